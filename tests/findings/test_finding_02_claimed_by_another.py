"""A start without names, or with wrong ones: who runs on the CPUs of its pod's grant stays there (finding 2)."""

from __future__ import annotations

from pathlib import Path

from agent.host.standin import container_id
from tests.flow.world import MemoryStore, World, container, manifest


def before(folder: Path) -> World:
    """A node with a pinned pod."""
    world = World(folder, store=MemoryStore())
    world.engine.pods_listed(set())
    world.run(manifest("db"))
    world.run(manifest("web", created=1))
    world.engine.reconcile()
    world.engine.keep_names()
    return world


def test_finding_02_a_restarted_container_beside_the_old_one_s_cgroup(tmp_path: Path) -> None:
    """Its name was not saved yet, the cgroup of the one before it is still dying, nobody answers: it stays."""
    first = before(tmp_path)
    first.tree.add_container("db", "7e" * 32)
    path = next(each.path for each in first.cgroups.observe().cgroups if each.container_id == "7e" * 32)
    first.tree.kernel_write(path, "cpuset.cpus", "1-2")
    after = World(tmp_path, store=first.store)
    after.engine.reconcile()
    on = {each.container_id: str(each.effective_cpus) for each in after.cgroups.observe().cgroups}
    assert (on["7e" * 32], on[container_id("db", "app")]) == ("1-2", "1-2")
    after.engine.containers_seen({"7e" * 32: ("db", "app")})
    after.tree.remove_container("db", container_id("db", "app"))
    after.engine.pods_listed({"db", "web"})
    assert after.engine.reconcile() == ()


def test_finding_02_a_status_that_claims_another_pods_container_moves_nobody(tmp_path: Path) -> None:
    """Whoever may write his own pod's status names a neighbour's container as his: it stays on its CPUs."""
    world = before(tmp_path)
    world.engine.containers_seen({container_id("db", "app"): ("web", "app")})
    world.engine.reconcile()
    assert (world.effective("db"), world.effective("web")) == ("1-2", "4-5")


def test_finding_02_a_status_that_claims_a_neighbours_shared_container_puts_it_on_no_grant(tmp_path: Path) -> None:
    """It claims to be called as the container with CPUs of its own: still it runs on the pool, as it asks for."""
    world = World(tmp_path)
    world.engine.pods_listed({"db", "web"})
    world.run(manifest("db", container(cpu="2"), container("helper", cpu="500m"), created=1))
    world.run(manifest("web", container(cpu="2"), created=2))
    world.engine.containers_seen({container_id("db", "helper"): ("web", "app")})
    world.engine.reconcile()
    assert world.effective("db", "helper") == str(world.engine.ledger.cpus.shared)
    assert world.effective("db") == world.holds("db")
