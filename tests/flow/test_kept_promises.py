"""Promises that no other test would miss: an unsaved ledger is not enforced, and S4 lasts as long as its pod."""

from __future__ import annotations

from pathlib import Path

from agent.host.standin import container_id
from agent.model.idset import CpuSet
from tests.flow.world import MemoryStore, World, container, manifest

MEMORY = {"memoryManagerPolicy": "Static", "reservedMemory": [{"numaNode": 0, "limits": {"memory": "100Mi"}}]}


def test_an_adopted_ledger_that_cannot_be_saved_is_not_written(tmp_path: Path) -> None:
    """The checkpoint is lost, the disk is full: what was read out of the cgroups is kept in mind, and no more."""
    first = World(tmp_path / "tree")
    first.engine.pods_listed({"db"})
    first.run(manifest("db", container(cpu="2"), created=1))
    full = World(tmp_path / "tree", store=MemoryStore(full="no space left"), pods=first.pods.values())
    assert full.holds("db") == first.holds("db")
    full.engine.pods_listed({"db"})
    full.tree.kernel_write(full.path("db", "app"), "cpuset.cpus", "5")
    full.engine.reconcile()
    assert full.ears.written_ == []
    full.store.full = ""
    full.engine.reconcile()
    assert full.effective("db") == full.holds("db")


def test_what_changes_while_the_disk_is_full_is_enforced_once_it_is_saved(tmp_path: Path) -> None:
    """The new one stands, since the old one may be of another machine; nothing is written before it is saved."""
    world = World(tmp_path / "tree")
    world.engine.pods_listed({"web", "db"})
    world.run(manifest("web", container(cpu="", memory=""), created=1))
    world.run(manifest("db", container(cpu="2"), created=2))
    world.store.full = "no space left"
    before = len(world.ears.written_)
    world.engine.changed(world.node(cpuManagerPolicyOptions={"strict-cpu-reservation": "true"}))
    assert world.engine.ledger.cpus.shared == CpuSet.parse("3-7")
    world.engine.reconcile()
    assert len(world.ears.written_) == before
    world.store.full = ""
    world.engine.reconcile()
    assert world.store.saved == world.engine.ledger
    assert world.effective("web") == str(world.engine.ledger.cpus.shared)


def test_s4_memory_is_moved_where_the_pod_asks_for_it(tmp_path: Path) -> None:
    """numalign.io/move-memory: a container with pages on the wrong node is bound all the same."""
    world = World(tmp_path, settings=MEMORY)
    world.engine.pods_listed({"db"})
    world.see(manifest("db", move_memory="true"))
    number = container_id("db", "app")
    world.tree.add_pod("db", world.pods["db"].qos)
    path = world.tree.add_container("db", number)
    world.tree.put_pages(path, {1: 8 << 20})
    world.engine.containers_seen({number: ("db", "app")})
    (cgroup,) = [each for each in world.cgroups.observe().cgroups if each.container_id == number]
    assert str(cgroup.mems) == "0"
    assert world.condition("db") == "True Aligned"


def test_s4_a_pod_that_ran_before_the_agent_is_never_refused_when_it_changes(tmp_path: Path) -> None:
    """It changes long after it was adopted, to what cannot be had: it runs on, and nothing is done to it."""
    world = World(tmp_path)
    world.engine.pods_listed({"big"})
    world.see(manifest("big", container(cpu="9"), created=1, on_misalignment="fail"), ran=["big"])
    assert "big" in world.engine.ledger.pods
    world.see(manifest("big", container(cpu="10"), created=1, on_misalignment="fail", policy="restricted"))
    assert "big" in world.engine.ledger.pods, "one that is refused and to fail is in no book"
