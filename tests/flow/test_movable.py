"""`memoryTier: far` on nodes whose memory is movable only, as daxctl onlines CXL: pipes and sockets still work."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.core.machines.changes import changes
from agent.core.machines.synthetic import parse_synthetic
from agent.model.idset import NodeSet
from agent.model.machine import Machine
from agent.node.explaining import explained
from tests.flow.world import MemoryStore, World, container, manifest

ORDINARY = parse_synthetic("2 sockets x 1 node x 4 cores x 1 thread, 8G per node, memory node 16G far near 0")
FAR = {
    "memoryManagerPolicy": "Static",
    "memoryTier": "far",
    "kubeReserved": {"cpu": "1", "memory": "156Mi"},
    "reservedMemory": [{"numaNode": 0, "limits": {"memory": "256Mi"}}],
}


def movable(machine: Machine, *numbers: int) -> Machine:
    """The machine where these nodes have no ordinary memory."""
    return replace(machine, nodes=tuple(replace(each, movable=each.id in numbers) for each in machine.nodes))


def node(folder: Path, machine: Machine, **more: Any) -> World:  # noqa: ANN401 - of a World
    """A listed node."""
    world = World(folder, machine=machine, **{"settings": FAR, **more})
    world.engine.pods_listed(set())
    return world


def mems(world: World, uid: str) -> str:
    """What a container's cgroup asks for."""
    return world.tree._store.get(world.path(uid, "app"), "cpuset.mems")


@pytest.mark.parametrize(("machine", "asked"), [(ORDINARY, "2"), (movable(ORDINARY, 2), "0,2")])
def test_far_memory_has_an_ordinary_node_beside_it(tmp_path: Path, machine: Machine, asked: str) -> None:
    """Memory is granted on the far node; the cgroup has the CPUs' node, too, where the far one is movable only."""
    world = node(tmp_path / "tree", machine)
    world.run(manifest("db", container(cpu="2", memory="600Mi"), created=1))
    assert (str(world.engine.ledger.grant("db", "app").mems), mems(world, "db")) == ("2", asked)
    assert world.condition("db") == "True Aligned"
    found = explained(world.engine.snapshot, "db")
    said = "NUMA node 2 has movable memory alone, which cannot hold the kernel's own (pipes, sockets): app may use"
    assert found is not None
    assert any(f"{said} memory on NUMA node 0 as well" in each for each in found.notes) is (asked != "2")
    assert (said in world.report("db").message) is (asked != "2")
    world.check()


def test_where_the_cpus_have_no_ordinary_memory_a_near_node_is_beside(tmp_path: Path) -> None:
    """A CPU node may be movable only as well (movable_node): then a node with ordinary memory is taken."""
    world = node(tmp_path / "tree", movable(ORDINARY, 0, 2))
    world.run(manifest("db", container(cpu="3", memory="600Mi"), created=1))
    assert mems(world, "db") == "1-2"


def test_a_confined_pod_is_not_bound_to_movable_memory_alone(tmp_path: Path) -> None:
    """Nor is one that asks to be kept on a node with its memory (numalign.io/align: numa,memory)."""
    world = node(tmp_path / "tree", movable(ORDINARY, 1, 2), settings={"kubeReserved": {"cpu": "1"}})
    body = manifest("web", container(cpu="2500m", memory="1Gi"), created=1)
    body["metadata"]["annotations"] = {"numalign.io/align": "numa,memory"}
    world.run(body)
    confined = world.engine.ledger.cpus.confined["web"]
    assert confined.memory
    assert mems(world, "web") == ("0-1" if confined.nodes == NodeSet.of(1) else "0")


def test_the_beside_is_no_grant_after_a_start_without_a_ledger(tmp_path: Path) -> None:
    """Adopted from its cgroup, a container's memory is that of the far node again."""
    machine = movable(ORDINARY, 2)
    world = node(tmp_path / "tree", machine)
    world.run(manifest("db", container(cpu="2", memory="600Mi"), created=1))
    again = node(tmp_path / "tree", machine, store=MemoryStore(), pods=world.pods.values())
    assert str(again.engine.ledger.grant("db", "app").mems) == "2"


def test_memory_that_becomes_movable_is_told_and_followed(tmp_path: Path) -> None:
    """A node that is onlined again as movable changes the machine, and what runs there gets the node beside it."""
    world = node(tmp_path / "tree", ORDINARY)
    world.run(manifest("db", container(cpu="2", memory="600Mi"), created=1))
    after = movable(ORDINARY, 2)
    assert changes(ORDINARY, after) == ("the memory of NUMA node 2 is movable only",)
    world.machine = after
    world.engine.changed(world.node())
    assert mems(world, "db") == "0,2"
