"""PCI: where a device is and which file said so; hot-plug events; udev's second opinion."""

from __future__ import annotations

import dataclasses
import errno
import os
import sys
from pathlib import Path

import pytest

from agent.core.machines.facts import local_nodes, to_facts
from agent.core.machines.synthetic import parse_synthetic
from agent.errors import HostError
from agent.host import proc, udev
from agent.host.files import HostFiles
from agent.host.machines import open_machine
from agent.host.sysfs.discovery import discover
from agent.model.machine import Machine, PciDevice
from tests.replay.checker import check_machine
from tests.replay.trees import link, put, write_tree

BUS = "sys/bus/pci/devices"
DEVICES = "sys/devices/pci0000:00"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two nodes; a bridge 00:01.0 with two devices below."""
    write_tree(tmp_path, parse_synthetic("2 nodes x 2 cores"))
    device(tmp_path, f"{DEVICES}/0000:00:01.0", class_="0x060400", numa_node=-1, local_cpus="f")
    for number in (0, 1):
        device(
            tmp_path, f"{DEVICES}/0000:00:01.0/0000:01:00.{number}", class_="0x020000", numa_node=-1, local_cpus="f"
        )
    return tmp_path


def device(root: Path, place: str, class_: str = "0x020000", **files: object) -> None:
    """Write a PCI function and the bus's link to it."""
    put(root, f"{place}/class", class_)
    put(root, f"{place}/vendor", "0x8086")
    put(root, f"{place}/device", "0x1592")
    for name, text in files.items():
        put(root, f"{place}/{name}", text)
    link(root, f"{BUS}/{place.rpartition('/')[2]}", place)


def read(root: Path) -> Machine:
    """Discover and check every invariant."""
    machine = discover(HostFiles(root))
    check_machine(machine)
    return machine


def where(root: Path, address: str = "0000:01:00.0") -> tuple[str, str]:
    """A device's nodes and what told."""
    found = next(entry for entry in read(root).devices if entry.address == address)
    return str(found.numa_nodes), found.numa_source


def test_a_device_names_its_own_node(root: Path) -> None:
    """numa_node is asked first."""
    put(root, f"{BUS}/0000:01:00.0/numa_node", 1)
    assert where(root) == ("1", f"{BUS}/0000:01:00.0/numa_node")


def test_the_bridge_above_answers_for_a_silent_device(root: Path) -> None:
    """numa_node -1: the nearest bridge's numa_node, before any list of CPUs."""
    put(root, f"{BUS}/0000:00:01.0/numa_node", 1)
    put(root, f"{BUS}/0000:01:00.0/local_cpus", "3")
    assert where(root) == ("1", f"{BUS}/0000:00:01.0/numa_node")


def test_local_cpus_answer_where_no_node_is_named(root: Path) -> None:
    """The device's own CPUs, then the bridge's; all CPUs mean that nothing is known."""
    assert where(root) == ("", "")
    put(root, f"{BUS}/0000:00:01.0/local_cpus", "3")
    assert where(root) == ("0", f"{BUS}/0000:00:01.0/local_cpus")
    put(root, f"{BUS}/0000:01:00.0/local_cpus", "c")
    assert where(root) == ("1", f"{BUS}/0000:01:00.0/local_cpus")
    (root / f"{BUS}/0000:01:00.0/local_cpus").unlink()
    put(root, f"{BUS}/0000:01:00.0/local_cpulist", "2-3")
    assert where(root) == ("1", f"{BUS}/0000:01:00.0/local_cpulist")


def test_a_device_without_a_node_is_near_to_all_in_the_facts(root: Path) -> None:
    """The facts list every node for it; the value keeps "nothing said" apart."""
    machine = read(root)
    assert [str(local_nodes(machine, entry)) for entry in machine.devices] == ["0-1"] * 3
    facts = to_facts(machine)
    assert [entry["address"] for entry in facts["pci"]] == ["0000:01:00.0", "0000:01:00.1"]
    assert [entry["address"] for entry in facts["bridges"]] == ["0000:00:01.0"]


def test_a_node_that_does_not_exist_is_told_and_not_used(root: Path) -> None:
    """Firmware names nodes that are not online."""
    put(root, f"{BUS}/0000:01:00.0/numa_node", 7)
    assert where(root) == ("", "")
    assert any("names node 7, which this machine does not have" in text for text in read(root).warnings)


def test_everything_else_about_a_device(root: Path) -> None:
    """Class, vendor, driver, IOMMU group, SR-IOV parent and the bridge above."""
    place = f"{DEVICES}/0000:00:01.0/0000:01:00.1"
    link(root, f"{place}/driver", "sys/bus/pci/drivers/vfio-pci")
    link(root, f"{place}/iommu_group", "sys/kernel/iommu_groups/17")
    link(root, f"{place}/physfn", f"{DEVICES}/0000:00:01.0/0000:01:00.0")
    found = read(root).devices[2]
    assert (found.class_code, found.vendor, found.device) == ("020000", "8086", "1592")
    assert (found.driver, found.iommu_group, found.physfn) == ("vfio-pci", 17, "0000:01:00.0")
    assert found.parent == "0000:00:01.0"


def test_the_parent_is_the_nearest_bridge(root: Path) -> None:
    """Two bridges above: the lower one is the parent, and is asked first."""
    bridge = f"{DEVICES}/0000:00:01.0/0000:02:00.0"
    device(root, bridge, class_="0x060400", numa_node=0)
    device(root, f"{bridge}/0000:03:00.0", numa_node=-1)
    put(root, f"{BUS}/0000:00:01.0/numa_node", 1)
    assert read(root).devices[-1].parent == "0000:02:00.0"
    assert where(root, "0000:03:00.0") == ("0", f"{BUS}/0000:02:00.0/numa_node")


def test_oddities_are_warnings(root: Path) -> None:
    """No address, no class, garbage: the other devices are read all the same."""
    put(root, f"{BUS}/0000:01:00.0/class", "network")
    put(root, f"{BUS}/0000:01:00.0/local_cpus", "xyz")
    (root / BUS / "no-address").mkdir()
    machine = read(root)
    assert len(machine.devices) == 3
    assert machine.devices[1].class_code == "000000"
    assert len([text for text in machine.warnings if "0000:01:00.0" in text or "no-address" in text]) == 3


def test_large_domains_are_addresses_and_sorted_by_number(root: Path) -> None:
    """VMD makes domains beyond 16 bits."""
    device(root, "sys/devices/pci10000:e0/10000:e0:00.0", numa_node=0)
    assert [entry.address for entry in read(root).devices][-1] == "10000:e0:00.0"


LIVE = pytest.mark.skipif(not Path("/sys/bus/pci/devices").exists(), reason="no PCI bus on this system")


def _udev() -> None:
    try:
        udev._pyudev()
    except HostError as error:
        pytest.skip(f"libudev is not here: {error}")


@LIVE
def test_udev_agrees_with_the_reader_on_this_machine() -> None:
    """The cross-check of PCI facts finds nothing, and finds what is made to differ."""
    _udev()
    machine = open_machine(None)
    assert udev.cross_check(machine.devices) == ()
    odd = [dataclasses.replace(entry, vendor="dead") for entry in machine.devices]
    odd.append(PciDevice("ffff:00:00.0", "020000", "8086", "1592"))
    found = udev.cross_check(tuple(odd))
    assert len(found) == len(machine.devices) + 1
    assert found[-1] == "ffff:00:00.0: sysfs lists it, udev does not"
    assert sorted(udev.cross_check(())) == [f"{d.address}: udev lists it, sysfs did not" for d in machine.devices]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may ask the kernel for a synthetic event")
@pytest.mark.skipif(not Path("/sys/devices/system/cpu/cpu0/uevent").exists(), reason="no live sysfs")
def test_hotplug_hears_the_kernel_itself() -> None:
    """A synthetic event of CPU 0 (the kernel's own uevent file) arrives without udevd; drain never blocks."""
    _udev()
    listener = udev.Hotplug()
    assert listener.drain() == ()
    assert listener.fileno() >= 0
    try:
        Path("/sys/devices/system/cpu/cpu0/uevent").write_text("change\n", encoding="ascii")
    except OSError as error:
        pytest.skip(f"/sys is read-only here: {error}")
    events = listener.drain()
    assert udev.Uevent("change", "cpu", "/devices/system/cpu/cpu0") in events
    assert listener.drain() == ()


def test_lost_events_are_a_reason_to_look_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """ENOBUFS from the socket means that the kernel dropped some: one event "lost"."""
    _udev()
    listener = udev.Hotplug()

    def overrun(timeout: float) -> None:
        raise OSError(105, f"No buffer space available after {timeout}")

    monkeypatch.setattr(listener._monitor, "poll", overrun)
    assert listener.drain() == (udev.Uevent("lost", "", ""),)


@LIVE
def test_libudev_is_found_without_ldconfig(monkeypatch: pytest.MonkeyPatch) -> None:
    """The image for another architecture has no ldconfig, which pyudev asks alone: the loader knows the name."""
    _udev()
    monkeypatch.setattr(udev, "find_library", lambda _name: None)
    assert udev.Hotplug().fileno() >= 0
    assert udev.cross_check(open_machine(None).devices) == ()


def test_a_libudev_that_cannot_be_loaded_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """For both who ask it: hot-plug and the second opinion."""
    _udev()
    monkeypatch.setattr(udev, "find_library", lambda _name: "libnowhere.so.1")
    with pytest.raises(HostError, match="install libudev1"):
        udev.Hotplug()
    with pytest.raises(HostError, match="install libudev1"):
        udev.cross_check(())


def test_a_refused_socket_is_told_with_who_refused_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a network namespace of its own the agent hears nothing: the log says of what, and why."""
    pyudev = pytest.importorskip("pyudev")

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(pyudev.Monitor, "from_netlink", refuse)
    with pytest.raises(HostError, match=r"^udev: cannot listen for hot-plug events: .*not permitted"):
        udev.Hotplug()


def test_without_libudev_there_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container without the library: hot-plug is off, and the error says what to install."""
    monkeypatch.setitem(sys.modules, "pyudev", None)
    with pytest.raises(HostError, match="install libudev1"):
        udev.Hotplug()


def test_psutil_sees_the_same_cpus_and_tells_differences() -> None:
    """The second opinion counts CPUs and cores; a machine that is not this one is told apart in all three numbers."""
    machine = open_machine(None)
    assert [text for text in proc.cross_check(machine) if "memory" not in text] == []
    other = proc.cross_check(parse_synthetic("2 sockets x 50 cores x 2 threads, 1T per node"))
    assert len(other) == 3
    assert all("the answers go by" in text for text in other)
