"""Recorded machines: each equals its facts, the rest are survived, and both are read in time."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from agent.core.machines.facts import to_facts
from agent.host.archives import open_root
from agent.host.machines import open_machine
from agent.host.sysfs.discovery import discover
from agent.model.machine import MemoryKind
from tests.reference import MACHINES, needs_machines, recorded
from tests.replay.checker import check_machine
from tests.replay.trees import OWN

ARCHIVES = sorted(MACHINES.glob("*.tar.bz2"))


@dataclass(frozen=True)
class Difference:
    """Where the facts (what lstopo 2.9.0 says) interpret a tree instead of reading it.

    Attributes:
        key: of the facts.
        file: the file of the tree that shows what is there.
        holds: its content.
        extra: what we list and the facts do not.
        why: the interpretation.
    """

    key: str
    file: str
    holds: str
    extra: tuple[Any, ...]
    why: str


DIFFERENCES = {
    "2pa-pcidomain32bits": Difference(
        key="pci",
        file="sys/bus/pci/devices/10000:00:04.0/class",
        holds="0x010000",
        extra=({"address": "10000:00:00.0", "numa_nodes": [0]}, {"address": "10000:00:04.0", "numa_nodes": [0]}),
        why="that build of lstopo keeps PCI domains in 16 bits and drops devices of larger ones",
    ),
}
"""The whole list: every other key of every recording with facts must be equal."""


def _name(path: Path) -> str:
    return path.name.removesuffix(".tar.bz2")


def _same_keys(got: list[dict[str, Any]], want: list[dict[str, Any]]) -> list[dict[str, Any]]:
    keys = list(want[0]) if want else []
    return [{key: entry[key] for key in keys} for entry in got] if keys else got


@needs_machines
@pytest.mark.parametrize(
    "archive", [path for path in ARCHIVES if (MACHINES / f"{_name(path)}.json").exists()], ids=_name
)
def test_recorded_machine_equals_its_facts(archive: Path) -> None:
    """Every key of the facts is read from the tree, but for the list of differences above."""
    want = json.loads((MACHINES / f"{_name(archive)}.json").read_text(encoding="utf-8"))
    with open_root(str(archive)) as files:
        machine = discover(files, _name(archive))
        check_machine(machine)
        got = json.loads(json.dumps(to_facts(machine)))
        for key in ("numa", "pci"):
            got[key] = _same_keys(got[key], want[key])
        odd = DIFFERENCES.get(_name(archive))
        if odd:
            assert files.read_text(odd.file) == odd.holds
            extra = [entry for entry in got[odd.key] if entry not in want[odd.key]]
            assert extra == list(odd.extra)
            got[odd.key] = [entry for entry in got[odd.key] if entry in want[odd.key]]
    assert {key: got[key] for key in want} == want


@needs_machines
@pytest.mark.parametrize("archive", [p for p in ARCHIVES if not (MACHINES / f"{_name(p)}.json").exists()], ids=_name)
def test_recording_without_facts_is_survived(archive: Path) -> None:
    """Conflicting or broken trees give a sound machine, and it tells what is odd."""
    machine = open_machine(str(archive))
    check_machine(machine)
    assert machine.warnings


@needs_machines
def test_conflicting_package_is_told_and_resolved() -> None:
    """CPU 3's core_siblings say 0-3, its physical_package_id 3: on x86 the id is believed, and a warning says so."""
    machine = recorded("40intel64-4n10c+pci-conflicts")
    assert [len(cpus) for cpus in machine.packages] == [10, 10, 10, 10]
    assert any("physical_package_id" in text for text in machine.warnings)


@needs_machines
def test_nodes_that_claim_the_same_cpus_are_told_apart_by_their_links() -> None:
    """numa=fake: all cpumaps are 0-7; cpuN/nodeM, which cAdvisor follows too, gives each node one CPU."""
    machine = recorded("8em64t-2s2ca2c-buggynuma")
    assert [str(node.cpus) for node in machine.nodes] == [str(number) for number in range(8)]
    assert len(machine.warnings) == 8


@needs_machines
def test_cpus_of_a_node_that_is_not_online_keep_their_node() -> None:
    """CPUs 4, 6, ... link to node 0, which node/online does not list: kept, without memory, marked as not online."""
    machine = recorded("offline-cpu0-node0")
    node = machine.by_node[0]
    assert (node.online, node.memory, node.kind) == (False, 0, MemoryKind.NONE)
    assert str(node.cpus) == "4,6,8,10,12,14,16,18,20"
    assert str(machine.offline) == "0-3,21-23"


@needs_machines
@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("nvidiagpunumanodes", {0: "dram", 8: "dram", 250: "gpu", 255: "gpu"}),
        ("fakeheteromemtiers", {0: "dram", 1: "dram", 2: "hbm", 4: "hbm", 6: "far", 8: "far", 9: "far"}),
        ("fakememinitiators-1np2c+1npp+gi", {0: "none", 5: "dram", 7: "far", 10: "far"}),
    ],
)
def test_memory_kinds_and_their_sources(name: str, kinds: dict[int, str]) -> None:
    """HBM, far and GPU memory are told apart, and each answer names the file that gave it."""
    machine = recorded(name)
    assert {node: str(machine.by_node[node].kind) for node in kinds} == kinds
    assert all(machine.by_node[node].kind_source for node, kind in kinds.items() if kind != "dram")


@needs_machines
def test_gpu_memory_is_nearest_to_the_node_of_its_gpu() -> None:
    """A GPU's local_cpus are of node 0: that is the initiator of its memory node, and the device's own node."""
    machine = recorded("nvidiagpunumanodes")
    assert str(machine.by_node[255].initiators) == "0"
    assert str(machine.by_node[250].initiators) == "8"
    assert [str(device.numa_nodes) for device in machine.devices] == ["0", "0", "0", "8", "8", "8"]
    assert machine.devices[0].numa_source.endswith("0004:05:00.0/local_cpus")


@needs_machines
def test_hybrid_cores_are_told_apart() -> None:
    """Six performance cores with two threads, eight efficiency cores."""
    machine = recorded("20em64t-hybrid-1p6c2t+2ca4co1t")
    assert [cpu.id for cpu in machine.cpus if cpu.kind == "performance"] == list(range(12))
    assert [cpu.id for cpu in machine.cpus if cpu.kind == "efficiency"] == list(range(12, 20))


@needs_machines
def test_initiators_are_nodes_with_cpus() -> None:
    """Class 1 (CPUs) is read before class 0, whose initiator is a GPU's node without CPUs."""
    machine = recorded("fakememinitiators-1np2c+1npp+gi")
    assert {n.id: str(n.initiators) for n in machine.nodes if n.memory} == {
        5: "0", 6: "2", 7: "0,2", 8: "1", 9: "3", 10: "1,3"
    }  # fmt: skip


@pytest.mark.parametrize(
    "path", sorted(p for p in OWN.glob("*") if p.suffix in (".txt", ".xz")), ids=lambda p: p.name
)
def test_own_machines_are_sound(path: Path) -> None:
    """Every machine that comes with the project can be opened by its bare name and holds all invariants."""
    machine = open_machine(path.name.removesuffix(".tar.xz").removesuffix(".txt"))
    check_machine(machine)
    assert not machine.warnings


@pytest.mark.skipif(not Path("/sys/devices/system/cpu/online").exists(), reason="no live /sys on this system")
def test_this_machine_is_sound() -> None:
    """The live tree through the same reader. `make bench` has the time."""
    with open_root(None) as files:
        check_machine(discover(files))
