"""Recordings: just what discovery reads, the same machine again, and nothing that tells whose it is."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from agent.app.statedir.node_allocatable import NodeAllocatable, load, save
from agent.cli.record import record as command
from agent.core.machines.synthetic import parse_synthetic
from agent.errors import HostError
from agent.host.archives import open_root
from agent.host.record import check, record, redact
from agent.host.sysfs.discovery import discover
from tests.replay.trees import link, put, write_tree

MACHINE = parse_synthetic("2 nodes x 2 cores x 2 threads, 2 cpus per l3, 1G per node, 3 2Mi pages, gpu on 1, vf on 0")

HOST = "db7-rack12.corp.example"
SERIAL = "0000000012345ABCDEF"
MAC = "52:54:00:ab:cd:ef"
GUID = "000d3af7-8d6e-000d-3af7-8d6e000d3af7"
SECRETS = (HOST, "db7", SERIAL, MAC, "525400abcdef", GUID, "000d3af7", "buildd", "someone@", "Tag-4711")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A machine whose files are full of what must not leave it."""
    root = write_tree(tmp_path / "tree", MACHINE)
    put(
        root,
        "proc/cpuinfo",
        f"processor\t: 0\nmodel name\t: Fast CPU 3000\nSerial\t\t: {SERIAL}\nHardware : {HOST}\n",
    )
    put(root, "proc/version", f"Linux version 6.1.0-18-{HOST} (buildd@{HOST}) (gcc) #1 SMP someone@x")
    put(root, "proc/cmdline", f"root=UUID={GUID} ip=::::{HOST}:eth0 hostname={HOST}")
    put(root, "proc/sys/kernel/hostname", HOST)
    put(root, "sys/class/dmi/id/product_serial", SERIAL)
    put(root, "sys/class/dmi/id/chassis_asset_tag", "Tag-4711")
    put(root, "sys/class/net/eth0/address", MAC)
    meminfo = root / "proc/meminfo"
    meminfo.write_text(f"{meminfo.read_text()}Comment: {HOST} {MAC}\n", encoding="utf-8")
    for name in ("uevent", "vpd", "label", "net/eth0/address"):
        put(root, f"sys/bus/pci/devices/0000:01:00.0/{name}", f"{SERIAL} {MAC} {HOST}")
    # files that discovery reads, with contents they should not have
    put(root, "sys/bus/pci/devices/0000:02:00.0/class", f"{HOST}")
    put(root, "sys/devices/system/cpu/cpu1/cpu_capacity", MAC)
    put(root, "sys/devices/system/node/node1/distance", f"10 {SERIAL}x")
    # a device behind a bus whose folder names hold a MAC address, as on some clouds
    place = f"sys/devices/LNXSYSTM:00/VMBUS:01/{GUID}/pci4750:00/4750:00:02.0"
    put(root, f"{place}/class", "0x020000")
    put(root, f"{place}/numa_node", 1)
    link(root, f"{place}/driver", "sys/bus/pci/drivers/mlx5_core")
    link(root, "sys/bus/pci/devices/4750:00:02.0", place)
    return root


def unpacked(archive: bytes) -> dict[str, bytes]:
    """Every member: name and link target, and content."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        found: dict[str, bytes] = {}
        for member in tar:
            handle = tar.extractfile(member) if member.isreg() else None
            found[f"{member.name} {member.linkname} {member.uname} {member.gname}"] = handle.read() if handle else b""
        return found


def test_nothing_that_names_the_machine_is_in_a_recording(root: Path) -> None:
    """Host names, serial numbers, MAC addresses, GUIDs, build hosts: planted everywhere, found nowhere."""
    with open_root(str(root)) as files:
        made = record(files, "bug", live=False)
    everything = "\n".join(f"{name}\n{data.decode()}" for name, data in unpacked(made.archive).items())
    assert [secret for secret in SECRETS if secret.lower() in everything.lower()] == []
    assert "Fast CPU 3000" in everything
    assert "drivers/mlx5_core" in everything
    assert (
        json.loads(next(d for n, d in unpacked(made.archive).items() if "numalign-record.json" in n))["kernel"]
        == "6.1.0-18"
    )


def test_the_kubelets_version_is_recorded_without_what_a_build_adds(root: Path, tmp_path: Path) -> None:
    """Taken from the state folder of the node's agent; a recorded machine is no node, and has none."""
    state = tmp_path / "state"
    state.mkdir()
    save(state, NodeAllocatable(known=True, kubelet=f"v1.37.2-{HOST}"))
    with open_root(str(root)) as files:
        made = record(files, "x", live=True, kubelet=load(state).kubelet)
    assert facts(made.archive)["kubelet"] == "v1.37.2"
    assert HOST not in str(facts(made.archive))
    target = tmp_path / "again.tar.xz"
    result = CliRunner().invoke(
        command, ["--root", str(root), "--name", "again", "--state-dir", str(state), str(target)]
    )
    assert (result.exit_code, facts(target.read_bytes())["kubelet"]) == (0, "")


def facts(archive: bytes) -> dict[str, Any]:
    """What the recording says of itself."""
    found: dict[str, Any] = json.loads(next(d for n, d in unpacked(archive).items() if "numalign-record.json" in n))
    return found


def test_a_device_behind_an_anonymous_folder_is_still_found(root: Path, tmp_path: Path) -> None:
    """The GUID's folder is renamed on both sides of the link."""
    with open_root(str(root)) as files:
        made = record(files, "bug", live=False)
    path = tmp_path / "bug.tar.xz"
    path.write_bytes(made.archive)
    check(str(path), made.machine)
    with open_root(str(path)) as files:
        device = discover(files).devices[-1]
    assert (device.address, str(device.numa_nodes), device.driver) == ("4750:00:02.0", "1", "mlx5_core")


def test_only_what_discovery_reads_is_packed(root: Path) -> None:
    """No uevent, no DMI, no network class, no command line."""
    with open_root(str(root)) as files:
        made = record(files, "x", live=False)
    names = " ".join(unpacked(made.archive))
    with tarfile.open(fileobj=io.BytesIO(made.archive)) as tar:
        assert made.members == sum(not member.isdir() for member in tar)
    for absent in ("uevent", "dmi", "/net/", "vpd", "cmdline", "hostname", "proc/version"):
        assert absent not in names
    for present in ("topology/core_cpus ", "cache/index3/id ", "hugepages-2048kB/nr_hugepages ", "proc/cpuinfo "):
        assert present in names


def test_a_mounted_sys_folder_can_be_recorded(root: Path, tmp_path: Path) -> None:
    """--root /host/sys: the recording has its sys/ again."""
    with open_root(str(root / "sys")) as files:
        made = record(files, "mounted", live=False)
    path = tmp_path / "mounted.tar.xz"
    path.write_bytes(made.archive)
    check(str(path), made.machine)


def test_a_recording_that_gives_another_machine_is_refused(root: Path, tmp_path: Path) -> None:
    """The proof that the archive is whole is made after each recording."""
    with open_root(str(root)) as files:
        made = record(files, "one", live=False)
    path = tmp_path / "one.tar.xz"
    path.write_bytes(made.archive)
    with pytest.raises(HostError, match=r"one\.tar\.xz: gives machine .* recorded was .*please report"):
        check(str(path), MACHINE)


@pytest.mark.parametrize(
    ("path", "text", "want"),
    [
        ("sys/x/online", "0-3,8\n", "0-3,8\n"),
        ("sys/x/shared_cpu_map", "00000000,0000ffff\n\0", "00000000,0000ffff\n"),
        ("sys/x/size", "32768K", "32768K\n"),
        ("sys/x/numa_node", "-1", "-1\n"),
        ("sys/x/isolated", "(null)", "(null)\n"),
        ("sys/x/type", "Unified", "Unified\n"),
        ("sys/x/type", "Secret", "(left out: 6 characters)\n"),
        ("sys/x/address", MAC, "(left out: 17 characters)\n"),
        ("proc/meminfo", "MemTotal: 5 kB\nMemFree: 1 kB\n", "MemTotal: 5 kB\n"),
        ("sys/n/node1/meminfo", "Node 1 MemTotal: 5 kB\nNode 1 MemFree: 3 kB", "Node 1 MemTotal: 5 kB\n"),
        ("proc/cpuinfo", "processor : 0\nSerial : 12\nphysical id : 1", "processor : 0\nphysical id : 1\n"),
        ("proc/driver/nvidia/gpus/x/numa_status", "Node: 255\nUUID: GPU-1\n", "Node: 255\n"),
    ],
)
def test_redaction_keeps_what_discovery_understands(path: str, text: str, want: str) -> None:
    """Contents are written anew from known forms; anything else is replaced by its length."""
    assert redact(path, text) == want


def test_the_command_writes_an_archive_that_root_accepts(root: Path, tmp_path: Path) -> None:
    """It says what is in it, does not replace a file without --force, and refuses odd names."""
    target = tmp_path / "out.tar.xz"
    made = CliRunner().invoke(command, ["--root", str(root), "--name", "mine", str(target)], catch_exceptions=False)
    assert made.exit_code == 0
    assert "8 CPUs, 2 NUMA nodes, 4 PCI functions" in made.output
    there = CliRunner().invoke(command, ["--root", str(root), str(target)])
    assert there.exit_code == 2
    assert "is there already; choose another name, or --force" in there.output
    again = CliRunner().invoke(command, ["--root", str(target), "--force", str(target)], catch_exceptions=False)
    assert again.exit_code == 0
    odd = CliRunner().invoke(command, ["--root", str(root), "--name", "../x", str(target)])
    assert (odd.exit_code, "is no name of a folder" in odd.output) == (2, True)
    nowhere = CliRunner().invoke(command, ["--root", str(root), str(tmp_path / "none" / "x")])
    assert (nowhere.exit_code, "cannot be written: No such file" in nowhere.output) == (2, True)
