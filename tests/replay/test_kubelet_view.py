"""Machines as a kubelet has them: by hand for odd ones, and as cAdvisor's own reader finds them in recorded trees."""

from __future__ import annotations

import io
import json
import subprocess
import tarfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.core.cpus.topology import CpuTopology
from agent.core.machines.kubelet_view import kubelet_view
from agent.host.archives import open_root
from agent.host.machines import open_machine
from agent.host.record import record
from agent.host.sysfs.read import RECORDING
from agent.model.machine import Machine
from agent.model.rules import Minor
from tests.parity.machines import machine_of
from tests.peers import PeerMissingError, readers
from tests.reference import MACHINES, needs_machines
from tests.replay.odd import ODD, Odd

TOPOLOGY = ("all", "nodes", "sockets", "cores", "uncores", "core_of", "num_cpus", "num_sockets", "num_cores")

MASKED = {"no-numa-unknown": {-1: 0}}
"""Nodes whose number no mask of the kubelet can hold: numalign goes by their ranks (D23)."""

ONE_ROW = "offline-cpu0-node0"
"""A node with two distances, on a machine of one node: cAdvisor takes them, numalign leaves them out and says so."""

FIRST_FORMAT = sorted(Path(__file__).with_name("machines").glob("*.tar.xz"))


def parts(machine: Machine) -> dict[str, Any]:
    """What `Odd.seen` has, of a machine."""
    topology = CpuTopology.of(machine)
    return {
        "cores": sorted(list(cpus) for cpus in machine.cores),
        "packages": sorted(list(cpus) for cpus in machine.packages),
        "nodes": {node.id: list(node.cpus) for node in machine.nodes},
        "uncore": {cpu.id: cpu.uncore for cpu in machine.cpus if cpu.uncore is not None},
        "cpus": topology.num_cpus,
        "sockets": topology.num_sockets,
    }


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: odd.name)
def test_the_view_is_the_machine_but_for_what_is_written_down(odd: Odd) -> None:
    """A kubelet sees the hardware's units, except for those that are written down by hand."""
    machine = open_machine(str(odd.recording))
    view = kubelet_view(machine)
    assert parts(view) == {**parts(machine), **odd.seen}
    assert view.digest == machine.digest or odd.seen


@pytest.mark.parametrize("recording", FIRST_FORMAT, ids=lambda path: path.name.partition(".")[0])
def test_a_recording_of_the_first_format_is_taken_as_if_it_were_whole(recording: Path) -> None:
    """It has an id for each outer cache once, and none of inner ones: that says nothing of the kernel.

    On one of them a thread is offline, so that the L3 cache is not as large as the kubelet takes the node to be.
    """
    machine = open_machine(str(recording))
    uneven = {"uncore": {0: 0, 2: 0, 3: 0}} if recording.name.startswith("guest-offline") else {}
    assert parts(kubelet_view(machine)) == {**parts(machine), **uneven}
    with open_root(str(recording)) as files:
        again = record(files, "again", live=False)
    assert again.machine.digest == machine.digest
    with tarfile.open(fileobj=io.BytesIO(again.archive)) as packed:
        noted = packed.extractfile(f"again/{RECORDING}")
        assert noted is not None
        assert json.load(noted)["format"] == 1


@pytest.mark.go
@pytest.mark.usefixtures("cadvisor")
def test_cadvisor_finds_the_same_in_every_recorded_tree(tmp_path: Path) -> None:
    """The reader of each kubelet's cAdvisor gives the managers what numalign's view of the same tree has."""
    folders = [unpacked(odd.recording, tmp_path) for odd in ODD]
    seen = [as_seen(kubelet_view(open_machine(str(folder)))) for folder in folders]
    for minor in readers.VERSIONS:
        for folder, ours, answer in zip(folders, seen, _asked(minor, folders), strict=True):
            assert common(folder, ours) == common(folder, as_told(answer, MASKED.get(folder.name, {}))), folder.name
    assert len(folders) >= 20


@needs_machines
@pytest.mark.go
@pytest.mark.usefixtures("cadvisor")
def test_cadvisor_finds_the_same_in_the_reference_folder(tmp_path: Path) -> None:
    """Wherever a recorder kept what cAdvisor needs to find a CPU, it finds what numalign's view has."""
    folders = []
    for recording in sorted(MACHINES.glob("*.tar.bz2")):
        place = tmp_path / recording.name.removesuffix(".tar.bz2")
        place.mkdir()
        subprocess.run(["tar", "xf", recording, "-C", place, "--no-same-permissions"], check=False)
        folders.append(next(sys.parent for sys in sorted(place.glob("*/sys"))))
    answers = zip(folders, _asked(Minor.V1_36, folders), strict=True)
    told = [(folder, each) for folder, each in answers if any(node["cores"] for node in each["machine"]["numa"])]
    for folder, answer in told:
        ours, theirs = as_seen(kubelet_view(open_machine(str(folder)))), as_told(answer, {})
        if folder.parent.name == ONE_ROW:
            theirs["memory"] = {node: (*rest, ()) for node, (*rest, _) in theirs["memory"].items()}
        assert common(folder, ours) == common(folder, theirs), folder.parent.name
    assert len(told) >= 10


def common(folder: Path, parts: dict[str, Any]) -> dict[str, Any]:
    """What is compared: without NUMA, a single node keeps its memory here, and has none for cAdvisor (D23)."""
    lone = len(parts["nodes"]) == 1 and not (folder / "sys/devices/system/node").is_dir()
    return {**parts, "memory": {}} if lone else parts


def unpacked(recording: Path, place: Path) -> Path:
    """The folder of a recording that has sys and proc."""
    with tarfile.open(recording) as packed:
        packed.extractall(place, filter="tar")
    return place / recording.name.removesuffix(".tar.xz")


def _asked(minor: Minor, folders: list[Path]) -> list[dict[str, Any]]:
    try:
        return readers.read(readers.reader(minor), folders)
    except PeerMissingError as why:  # neither root nor a user namespace
        pytest.skip(str(why))


def as_seen(machine: Machine) -> dict[str, Any]:
    """All that the kubelet's managers read of a machine."""
    topology = CpuTopology.of(machine)
    nodes = {node.id: (node.memory, node.hugepages, node.distances) for node in machine.nodes}
    return {**{name: getattr(topology, name) for name in TOPOLOGY}, "memory": nodes}


def as_told(answer: dict[str, Any], numbers: Mapping[int, int]) -> dict[str, Any]:
    """The same of cAdvisor's answer, its nodes under other numbers."""
    assert "error" not in answer, answer
    for node in answer["machine"]["numa"]:
        node["id"] = numbers.get(node["id"], node["id"])
    machine = machine_of(answer["machine"])
    return as_seen(replace(machine, counted=answer["cpus"], sockets=answer["sockets"]))
