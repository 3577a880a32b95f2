"""Described machine -> the kernel's files -> discovery -> recording -> discovery: one machine all the way."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from hypothesis import given, settings

from agent.core.machines.changes import changes
from agent.core.machines.facts import to_facts
from agent.core.machines.synthetic import parse_synthetic
from agent.host.archives import open_root
from agent.host.record import check, record
from agent.host.sysfs.discovery import discover
from agent.model.idset import CpuSet
from agent.model.machine import Cache, Machine
from tests.examples import examples
from tests.replay.checker import check_machine
from tests.replay.trees import write_tree
from tests.world.descriptions import descriptions


def read(folder: str | Path) -> Machine:
    """Discover a folder or an archive and check every invariant."""
    with open_root(str(folder)) as files:
        machine = discover(files)
    check_machine(machine)
    return machine


@given(text=descriptions())
@settings(max_examples=examples(30), deadline=None)
def test_described_machine_is_discovered_from_its_files(text: str) -> None:
    """What a modern kernel would show of a described machine is read as that machine."""
    machine = parse_synthetic(text)
    check_machine(machine)
    with tempfile.TemporaryDirectory() as folder:
        again = read(write_tree(Path(folder), machine))
    assert changes(machine, again) == ()
    assert again.digest == machine.digest
    assert (again.offline, again.caches) == (machine.offline, machine.caches)
    assert again.warnings == ()


@given(text=descriptions(dies=False))
@settings(max_examples=examples(20), deadline=None)
def test_old_kernels_show_the_same_sets(text: str) -> None:
    """Bitmaps alone, per-CPU online files, no ids of caches: the sets of CPUs are the same."""
    machine = parse_synthetic(text)
    with tempfile.TemporaryDirectory() as folder:
        again = read(write_tree(Path(folder), machine, old=True))
    got, want = to_facts(again), to_facts(machine)
    for key in ("cpus", "cores", "packages", "l3", "distances", "offline", "pci"):
        assert _plain(got[key]) == _plain(want[key])
    assert [(n.id, n.cpus, n.memory) for n in again.nodes] == [(n.id, n.cpus, n.memory) for n in machine.nodes]


def test_the_json_of_a_machine_tells_its_caches() -> None:
    """Sizes in bytes under the documented key: programs read them."""
    machine = parse_synthetic("1 socket x 2 cores x 2 threads, 2 CPUs per L3")
    machine = replace(machine, caches=(Cache(2, CpuSet.of(0, 2), 1 << 20), Cache(3, CpuSet.of(1, 3), 2 << 20)))
    assert to_facts(machine)["caches"] == [
        {"level": 2, "cpus": [0, 2], "size_bytes": 1 << 20}, {"level": 3, "cpus": [1, 3], "size_bytes": 2 << 20}
    ]  # fmt: skip


def _plain(value: object) -> object:
    """Without what an old kernel cannot know: who reaches a memory-only node best, and which file told."""
    if isinstance(value, list):
        return [entry["address"] if isinstance(entry, dict) else entry for entry in value]
    return value


@given(text=descriptions())
@settings(max_examples=examples(20), deadline=None)
def test_a_recording_is_the_machine_that_was_recorded(text: str) -> None:
    """Recording, then discovering, gives the same digest, and recording a recording gives the same bytes."""
    machine = parse_synthetic(text)
    with tempfile.TemporaryDirectory() as name:
        folder, archive = Path(name) / "tree", Path(name) / "one.tar.xz"
        folder.mkdir()
        with open_root(str(write_tree(folder, machine))) as files:
            made = record(files, "one", live=False)
        archive.write_bytes(made.archive)
        check(str(archive), made.machine)
        with open_root(str(archive)) as files:
            again = record(files, "one", live=False)
    assert made.machine.digest == again.machine.digest == machine.digest
    assert made.archive == again.archive
