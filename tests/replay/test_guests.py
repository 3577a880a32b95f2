"""Guests recorded by `python -m tests.guests`: discovery finds what QEMU was told to build.

The facts come from QEMU's arguments (tests/guests/truth.py), memory also from the guest's own shell.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from agent.core.machines.facts import to_facts
from agent.host.machines import open_machine
from agent.model.idset import IdSet
from agent.model.machine import Machine
from tests.guests.shapes import SHAPES, Shape
from tests.guests.truth import truth
from tests.replay.checker import check_machine

PLACE = Path(__file__).with_name("machines")
KERNELS_SHARE = 96 << 20
"""The kernel keeps page tables, its own image and, on small machines, the crash area for itself: less than this."""
SETS = ("cpus", "offline", "isolated", "cores", "dies", "packages", "l3", "distances")
TOTAL_LIMIT = 500_000


def load(shape: Shape) -> tuple[Machine, dict[str, Any], dict[str, Any]]:
    """The machine as discovered, its facts as discovered, and what was written down when it was recorded."""
    machine = open_machine(str(PLACE / f"{shape.name}.tar.xz"))
    told = json.loads((PLACE / f"{shape.name}.json").read_text(encoding="utf-8"))
    return machine, json.loads(json.dumps(to_facts(machine))), told


every_shape = pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)


@every_shape
def test_facts_are_what_the_arguments_say(shape: Shape) -> None:
    """The recording was made with today's arguments, and its facts are read from them, not from the guest."""
    _, _, told = load(shape)
    assert tuple(told["qemu"][: len(shape.arguments)]) == shape.arguments
    assert told["qemu"][-1].endswith(shape.append)
    assert told["facts"] == json.loads(json.dumps(truth(told["qemu"])))


@every_shape
def test_discovery_finds_the_machine_that_qemu_built(shape: Shape) -> None:
    """CPUs, cores, dies, packages, caches, distances, offline and isolated CPUs are equal, and nothing is odd."""
    machine, got, told = load(shape)
    check_machine(machine)
    assert {key: got[key] for key in SETS} == {key: told["facts"][key] for key in SETS}
    assert machine.warnings == ()


@every_shape
def test_discovery_finds_the_nodes_that_qemu_built(shape: Shape) -> None:
    """Ids, CPUs, huge pages and initiators; memory is what the guest's shell read, a little less than installed."""
    _, got, told = load(shape)
    want = told["facts"]["numa"]
    assert [node["node"] for node in got["numa"]] == [node["node"] for node in want]
    for found, given in zip(got["numa"], want, strict=True):
        assert found["cpus"] == given["cpus"]
        assert found["hugepages"] == given["hugepages"]
        assert found["memory_bytes"] == told["memory_bytes"][str(found["node"])]
        kept = given["installed_bytes"] - found["memory_bytes"]
        assert 0 <= kept <= KERNELS_SHARE
        if given["initiators"]:
            assert found["initiators"] == given["initiators"]


@every_shape
def test_discovery_hangs_devices_where_qemu_put_them(shape: Shape) -> None:
    """Every PCI function with the nodes it is near: behind a host bridge of a node, or anywhere."""
    _, got, told = load(shape)
    found = Counter(
        f"{device['vendor']}:{device['device']} near {IdSet.from_ids(device['numa_nodes'])}"
        for device in (*got["pci"], *got["bridges"])
    )
    assert dict(found) == told["facts"]["pci"]


def test_recordings_stay_small() -> None:
    """All of them are a part of every clone."""
    files = list(PLACE.iterdir())
    assert {file.name.partition(".")[0] for file in files} == {shape.name for shape in SHAPES}
    assert sum(file.stat().st_size for file in files) <= TOTAL_LIMIT
