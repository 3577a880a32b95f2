"""The guests themselves: what QEMU is told is read rightly, the initramfs is sound, a guest boots."""

from __future__ import annotations

import gzip
import io
import subprocess
import sys
import tarfile
from itertools import count
from pathlib import Path

import pytest

from agent.core.machines.facts import to_facts
from agent.host.archives import open_root
from agent.host.sysfs.discovery import discover
from tests import programs
from tests.contract.trees import ScratchTree
from tests.guests import contract, kernels
from tests.guests.boot import boot
from tests.guests.kernels import kernel
from tests.guests.needs import QEMU, initramfs
from tests.guests.operations import NONE, answers
from tests.guests.shapes import ARM, BY_NAME, SHAPES
from tests.guests.truth import truth


def missing() -> str:
    """What a guest would need and is not installed; "" when all is there. Downloads nothing."""
    try:
        programs.need(QEMU)
        initramfs()
    except programs.MissingError as error:
        return str(error)
    return ""


def test_truth_reads_threads_cores_dies_and_sockets() -> None:
    """QEMU counts threads first: CPU 5 of 2x2x2x2 is the second thread of the first core of the second die."""
    facts = truth(("-machine", "q35", "-smp", "16,sockets=2,dies=2,cores=2,threads=2", "-m", "64M"))
    assert facts["cores"][2] == [4, 5]
    assert facts["dies"] == facts["l3"] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], [12, 13, 14, 15]]
    assert facts["packages"] == [list(range(8)), list(range(8, 16))]
    assert facts["numa"][0]["installed_bytes"] == 64 << 20
    assert facts["distances"] is None


def test_truth_takes_offline_and_absent_cpus_away() -> None:
    """Offline CPUs leave their cores; a node whose CPUs are not plugged in and that has no memory is not there."""
    facts = truth((
        "-machine", "q35", "-smp", "4,maxcpus=6,sockets=3,cores=2", "-m", "96M",
        "-object", "memory-backend-ram,id=a,size=64M", "-object", "memory-backend-ram,id=b,size=32M",
        "-numa", "node,nodeid=0,memdev=a,cpus=0-1", "-numa", "node,nodeid=1,cpus=2-3",
        "-numa", "node,nodeid=2,cpus=4-5", "-numa", "node,nodeid=3,memdev=b",
        "-numa", "dist,src=0,dst=3,val=40", "-append", "numalign.offline=3 isolcpus=2-3",
    ))  # fmt: skip
    assert (facts["cpus"], facts["offline"], facts["isolated"]) == ([0, 1, 2], [3], [2])
    assert [(node["node"], node["cpus"]) for node in facts["numa"]] == [(0, [0, 1]), (1, [2]), (3, [])]
    assert facts["distances"]["matrix"] == [[10, 20, 40], [20, 10, 20], [40, 20, 10]]


def test_truth_follows_buses_to_their_host_bridge() -> None:
    """A device is near the node of the bridge above its port, and near all nodes without one."""
    facts = truth((
        "-machine", "q35", "-smp", "2", "-m", "64M",
        "-object", "memory-backend-ram,id=a,size=32M", "-object", "memory-backend-ram,id=b,size=32M",
        "-numa", "node,nodeid=0,memdev=a,cpus=0", "-numa", "node,nodeid=1,memdev=b,cpus=1",
        "-device", "pxb-pcie,id=x,bus_nr=9,numa_node=1,bus=pcie.0", "-device", "pcie-root-port,id=y,bus=x",
        "-device", "e1000e,bus=y", "-device", "e1000e,bus=pcie.0",
    ))  # fmt: skip
    assert facts["pci"]["8086:10d3 near 1"] == 1
    assert facts["pci"]["8086:10d3 near 0-1"] == 1


def test_truth_reads_a_machine_of_64_bit_arm() -> None:
    """Its sockets have two nodes each, and its chipset is one host bridge."""
    facts = truth((*ARM.arguments, "-append", ""))
    assert [node["cpus"] for node in facts["numa"]] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert facts["packages"] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert facts["distances"]["matrix"][1] == [12, 10, 20, 20]
    assert facts["pci"] == {"1b36:0008 near 0-3": 1}


def test_shapes_are_told_apart() -> None:
    """At least six, with names of their own."""
    assert len(BY_NAME) == len(SHAPES) >= 6


@pytest.mark.skipif(missing() != "", reason=f"no guests here: {missing()}")
def test_initramfs_is_what_the_kernel_unpacks() -> None:
    """cpio, where it is installed, lists the same members; the archive is the same each time."""
    packed = initramfs()
    assert packed == initramfs()
    names = {b"bin/busybox", b"init", b"dev/console", b"TRAILER!!!"}
    assert all(name + b"\0" in gzip.decompress(packed) for name in names)
    command = [programs.need("cpio"), "-it", "--quiet"]
    listed = subprocess.run(command, input=gzip.decompress(packed), capture_output=True, check=True)
    assert listed.stdout.split() == [b"bin", b"bin/busybox", b"init", b"dev", b"dev/console"]


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [(("list",), 0, "guest-16n"), (("record", "guest-0n"), 2, "no such shape: guest-0n"), ((), 2, "required")],
)
def test_the_command_says_what_it_wants(arguments: tuple[str, ...], code: int, told: str) -> None:
    """Shapes are listed; an unknown one is refused before anything boots."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.guests", *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == code
    assert told in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("variable", "value"), [("NUMALIGN_GUEST_KERNEL", "/no/such/kernel"), ("PATH", "/no/such/bin")]
)
def test_what_is_missing_is_named_before_anything_boots(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    """One sentence, exit code 3."""
    monkeypatch.setenv(variable, value)
    done = subprocess.run(
        [sys.executable, "-m", "tests.guests", "record"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 3
    assert done.stderr.startswith("cannot record: ")
    assert len(done.stderr.splitlines()) == 1


def test_the_table_of_kernels_is_what_was_recorded() -> None:
    """Each kernel of RUNS has a column, and passed its contract tests; `make kernels` writes the table again."""
    known = contract.recorded()
    assert list(known) == [f"{name} v{version}" for name, version in kernels.RUNS]
    assert {each["failed"] for each in known.values()} == {0}
    text = contract.PAGE.read_text("utf-8")
    assert contract.page(text) == text
    assert text.count("<!-- kernels -->") == text.count("<!-- end -->") == 1


@pytest.mark.parametrize(("name", "version"), kernels.RUNS)
def test_the_stand_in_answers_as_the_kernel_that_it_plays(tmp_path: Path, name: str, version: int) -> None:
    """Operation by operation, but for what is not played: partitions, and what threads choose for themselves."""
    real = contract.recorded()[f"{name} v{version}"]
    major, minor = real["release"].split(".")[:2]
    places = (tmp_path / str(number) for number in count())
    played = answers(lambda: ScratchTree(next(places), version, (int(major), int(minor))))
    left_out = {each for each, told in played.items() if told == NONE}
    assert len(left_out) == 2
    assert played == {each: NONE if each in left_out else told for each, told in real["operations"].items()}


@pytest.mark.lab
@pytest.mark.skipif(missing() != "", reason=f"no guests here: {missing()}")
@pytest.mark.parametrize(("name", "version"), kernels.RUNS)
def test_the_contract_holds_on_a_real_kernel(name: str, version: int) -> None:
    """In a guest, of kernels that were fetched before (`make kernels`): each case of the table of writes passes."""
    image = kernels.kept(name)
    if image is None:
        pytest.skip(f"Linux {name} was not fetched: make kernels")
    ran = contract.run(image, version, "tests/contract/test_kernel.py")
    assert ran.failed == ()
    assert ran.passed > 0
    if kernels.release(image) == contract.recorded()[f"{name} v{version}"]["release"]:
        assert ran.operations == contract.recorded()[f"{name} v{version}"]["operations"]


@pytest.mark.lab
@pytest.mark.skipif(missing() != "", reason=f"no guests here: {missing()}")
def test_a_guest_boots_and_is_what_qemu_was_told(tmp_path: Path) -> None:
    """The smallest guest, booted now: discovery of what it sends equals its arguments."""
    try:
        kernel()
    except programs.MissingError as error:
        pytest.skip(str(error))
    sent = boot(BY_NAME["guest-holes"])
    place = tmp_path / "sent.tar.gz"
    place.write_bytes(sent.archive)
    with open_root(str(place)) as files:
        got, want = to_facts(discover(files)), truth(sent.command)
    assert {key: got[key] for key in ("cpus", "cores", "packages", "l3", "distances")} == {
        key: want[key] for key in ("cpus", "cores", "packages", "l3", "distances")
    }
    with tarfile.open(fileobj=io.BytesIO(sent.archive)) as tar:
        assert "guest/memory" in tar.getnames()
