"""The engine on the cgroup trees of every runtime, driver and version: granted, shared, repaired, at rest, freed."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.core.machines.synthetic import parse_synthetic
from agent.host.scratch import Layout, Scratch
from tests.flow.world import World, container, manifest
from tests.unit.test_layout import SETUPS

MACHINE = "2 sockets x 1 node x 4 cores x 1 thread"
SIDE = {"name": "side", "image": "example.com/x", "resources": {"limits": {"cpu": "500m", "memory": "64Mi"}}}


def _world(folder: Path, setup: Layout) -> World:
    machine = parse_synthetic(MACHINE)
    Scratch.create(folder, cpus=machine.online, nodes=machine.node_set, setup=setup)
    world = World(folder, machine=MACHINE)
    world.engine.pods_listed(set())
    world.run(manifest("busy", container(cpu=""), created=1))  # Burstable
    world.run(manifest("idle", {"name": "app", "image": "example.com/x"}, created=2))  # BestEffort
    world.run(manifest("whole", container(cpu="2"), SIDE, created=3))  # exclusive, and one beside it that shares
    world.run(manifest("part", container(cpu="500m"), created=4))  # Guaranteed, a fraction
    return world


@pytest.mark.parametrize("setup", SETUPS, ids=str)
def test_s6_every_layout_is_confined_repaired_and_left_in_peace(tmp_path: Path, setup: Layout) -> None:
    """Pods of every class; drift is repaired; a restart writes nothing; the CPUs of a pod that ended are shared."""
    world = _world(tmp_path / "tree", setup)
    mine = world.effective("whole")
    assert mine == world.holds("whole") == "1-2"
    others = [("busy", "app"), ("idle", "app"), ("part", "app"), ("whole", "side")]
    assert {world.effective(*each) for each in others} == {"0,3-7"}
    world.tree.kernel_write(
        world.path("whole", "app"), "cpuset.cpus", "0-2"
    )  # wider: v1 lets nobody cut an inner cgroup
    world.engine.reconcile()
    assert world.effective("whole") == mine
    again = World(tmp_path / "tree", machine=MACHINE, store=world.store, pods=world.pods.values())
    again.engine.pods_seen(again.pods.values(), ran=())
    again.engine.reconcile()
    again.check()
    assert again.ears.written_ == []
    again.end("whole")
    again.engine.pods_listed(set(again.pods) - {"whole"})
    again.check()
    assert {again.effective(*each) for each in others[:3]} == {"0-7"}
