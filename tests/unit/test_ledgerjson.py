"""agent.model.ledgerjson: what is saved is what is loaded, and nothing else is."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.errors import MalformedError
from agent.model.hint import Hint
from agent.model.idset import CpuSet, NodeSet
from agent.model.ledger import (
    Block,
    Confinement,
    CpuBooks,
    DeviceBooks,
    Ledger,
    MemoryBooks,
    NodeBook,
    PodRecord,
)  # fmt: skip
from agent.model.ledgerjson import VERSION, WRITTEN, ledger_from_json, ledger_to_json, version_of
from agent.model.podspec import pod_from
from tests.examples import examples

MANIFEST = {
    "metadata": {"name": "db", "uid": "u1", "annotations": {"numalign.io/policy": "restricted"}},
    "spec": {
        "initContainers": [{"name": "side", "restartPolicy": "Always"}],
        "containers": [{"name": "app", "resources": {"limits": {"cpu": 2, "memory": "1Gi", "example.com/nic": 1}}}],
        "overhead": {"cpu": "250m"},
        "priority": -5,
    },
}
FULL = Ledger(
    machine="00ff00ff00ff00ff",
    cpus=CpuBooks(
        shared=CpuSet.parse("0-1,6-7"),
        assigned={"u1": {"app": CpuSet.of(2, 3)}, "u2": {}},
        pools={"u3": CpuSet.of(4, 5)},
        confined={"u4": Confinement(NodeSet.of(0, 1), ((0, 500), (1, 250)), memory=True, limit=((0, 7), (1, 8)))},
        reusable=("u1", CpuSet.of(2)),
    ),
    memory=MemoryBooks(
        nodes=(NodeBook(0, 1, NodeSet.of(0, 2), {"memory": 1 << 40}, {"memory": 5}, {"hugepages-2Mi": 0}),),
        blocks={"u1": {"app": (Block("memory", 1 << 30, NodeSet.of(0, 2)),), "side": ()}},
        pools={"u3": (Block("hugepages-2Mi", 2, NodeSet.of(255)),)},
    ),
    devices=DeviceBooks(held={"u1": {"app": {"example.com/nic": ("0000:01:00.0", "b")}}}),
    others={"nic": {"u1": {"app": ("eth0", "eth1")}}},
    pods={
        "u1": PodRecord(
            pod_from(MANIFEST), "restricted", "pod", "restricted",
            {"app": Hint(NodeSet.of(0), preferred=True), "side": Hint(None, preferred=False)},
            {"app": True, "side": False}, {"side": "it asked for nothing"}, adopted=True, bind_memory=False,
        )
    },
)  # fmt: skip


FORMATS = pytest.mark.parametrize("version", [WRITTEN, VERSION])


def saved(version: int = WRITTEN) -> dict[str, Any]:
    """The full ledger as JSON text and back."""
    found: dict[str, Any] = json.loads(json.dumps(ledger_to_json(FULL, version)))
    return found


@FORMATS
def test_a_ledger_survives_the_round_trip(version: int) -> None:
    """All of it comes back equal, but for what init containers left to an admission that is over."""
    loaded = ledger_from_json(saved(version))
    assert loaded.cpus.reusable is None
    assert loaded.cpus.assigned == FULL.cpus.assigned
    assert (loaded.cpus.shared, loaded.cpus.pools, loaded.cpus.confined) == (
        FULL.cpus.shared, FULL.cpus.pools, FULL.cpus.confined,
    )  # fmt: skip
    assert (loaded.memory, loaded.devices, loaded.others, loaded.pods, loaded.machine) == (
        FULL.memory, FULL.devices, FULL.others, FULL.pods, FULL.machine,
    )  # fmt: skip
    assert ledger_to_json(loaded, version) == saved(version)


@FORMATS
def test_shared_parts_of_mixed_sets_survive(version: int) -> None:
    """Some CPUs, and the pool as it is; among what other providers hold, or without any."""
    mixed = {"u1": {"app": CpuSet.of(0), "side": CpuSet()}}
    for others in (FULL.others, {}):
        ledger = replace(FULL, cpus=replace(FULL.cpus, mixed=mixed, reusable=None), others=others)
        assert ledger_from_json(ledger_to_json(ledger, version)) == ledger


def test_a_pods_key_is_its_uid() -> None:
    """Version 2 has it twice: a file that says two things gives no record of another pod."""
    body = saved(VERSION)
    body["pods"]["u1"]["pod"]["uid"] = "u2"
    assert ledger_from_json(body) == ledger_from_json(saved())


def test_the_version_can_be_read_first() -> None:
    """A newer file is told from a broken one."""
    newer = {**saved(), "version": 7}
    assert version_of(newer) == 7
    with pytest.raises(MalformedError, match=r"^version: is 7"):
        ledger_from_json(newer)


@FORMATS
@pytest.mark.parametrize(
    ("steps", "value", "message"),
    [
        (("cpus", "shared"), "0-", "cpus.shared: "),
        (("cpus", "shared"), 3, "cpus.shared: must be a text"),
        (("cpus", "assigned", "u1", "app"), "2;3", "cpus.assigned.u1.app: "),
        (("cpus", "confined", "u4", "milli"), [[1]], r"cpus.confined.u4.milli\[0\]: must have 2"),
        (("memory", "nodes"), {}, "memory.nodes: must be a list"),
        (("memory", "nodes", 0, "users"), True, r"memory.nodes\[0\].users: must be a whole number"),
        (("pods", "u1", "pod", "qos"), "Gold", "pods.u1.pod.qos: 'Gold' is not one of"),
        (("pods", "u1", "pod", "created"), "now", "pods.u1.pod.created: "),
        (("pods", "u1", "adopted"), 0, "pods.u1.adopted: must be true or false"),
        (("pods", "u1", "extra"), 0, "pods.u1.extra: is not known to this version"),
    ],
)
def test_what_is_wrong_is_named_by_its_path(
    steps: tuple[str | int, ...], value: object, message: str, version: int
) -> None:
    """Each malformed field is one error that starts with its path."""
    body: Any = saved(version)
    inner = body
    for step in steps[:-1]:
        inner = inner[step]
    inner[steps[-1]] = value
    with pytest.raises(MalformedError, match=f"^{message}"):
        ledger_from_json(body)


def test_a_missing_field_is_named() -> None:
    """Nothing is guessed: an older file without a field is refused by name."""
    body = saved()
    del body["pods"]["u1"]["bind_memory"]
    with pytest.raises(MalformedError, match=r"^pods\.u1\.bind_memory: is missing"):
        ledger_from_json(body)


def _paths(value: object, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    inner: list[tuple[str | int, object]] = []
    if isinstance(value, dict):
        inner = list(value.items())
    elif isinstance(value, list):
        inner = list(enumerate(value))
    return [path] + [found for step, part in inner for found in _paths(part, (*path, step))]


odd: st.SearchStrategy[object] = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=4), st.sampled_from([[], {}, 10**400])
)


@settings(max_examples=examples(200), deadline=None)
@given(
    st.sampled_from([(version, *path) for version in (WRITTEN, VERSION) for path in _paths(saved(version))[1:]]), odd
)
def test_any_one_change_loads_or_is_malformed(where: tuple[Any, ...], value: object) -> None:
    """Whatever one value becomes, the result is a ledger that can be saved again, or a MalformedError."""
    version, *path = where
    body: Any = saved(version)
    inner = body
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    try:
        loaded = ledger_from_json(body)
    except MalformedError:
        return
    assert ledger_from_json(json.loads(json.dumps(ledger_to_json(loaded)))) == loaded


def test_memory_on_two_nodes_keeps_how_much_is_on_each() -> None:
    """A block of two nodes with its parts comes back equal; parts that do not add up are refused by their path."""
    block = Block("memory", 3 << 30, NodeSet.of(0, 2), ((0, 1 << 30), (2, 2 << 30)))
    ledger = replace(FULL, memory=replace(FULL.memory, blocks={"u1": {"app": (block,)}}))
    text = json.loads(json.dumps(ledger_to_json(ledger)))
    assert ledger_from_json(text).memory.blocks == {"u1": {"app": (block,)}}
    assert len(text["memory"]["blocks"]["u1"]["app"][0]) == 4, "resource, size, nodes, parts"
    text["memory"]["blocks"]["u1"]["app"][0].append([])
    with pytest.raises(MalformedError, match=r"memory.blocks.u1.app\[0\]"):
        ledger_from_json(text)
