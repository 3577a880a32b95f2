"""Containers that run before the agent does: what becomes of the memory that they have already."""

from __future__ import annotations

import time
from pathlib import Path

from agent.engine.enforcer import STARTS
from agent.host.standin import container_id
from tests.flow.world import World, manifest
from tests.world.manifests import container


def test_s4_memory_that_is_not_bound_since_it_lies_elsewhere_is_told_once(tmp_path: Path) -> None:
    """After a power cut containers may start before the agent: their pages are not moved, and people know of it."""
    memory = {"memoryManagerPolicy": "Static", "reservedMemory": [{"numaNode": 0, "limits": {"memory": "100Mi"}}]}
    world = World(tmp_path, settings=memory)
    world.engine.pods_listed({"db"})
    world.see(manifest("db"))
    number = container_id("db", "app")
    world.tree.add_pod("db", world.pods["db"].qos)
    path = world.tree.add_container("db", number)
    world.tree.put_pages(path, {1: 8 << 20})
    world.engine.containers_seen({number: ("db", "app")})
    world.engine.reconcile()
    assert world.ears.problems == [], "a runtime that starts a container has not written its sets yet"
    now = time.monotonic() + STARTS
    world.engine._enforcer.backoff.clock = lambda: now
    world.engine.reconcile()
    world.engine.reconcile()
    (told,) = [text for what, text in world.ears.problems if what == "memory"]
    assert told.startswith(
        "container app of pod default/db: its memory is not bound to NUMA nodes 0; it has pages on"
    )
    assert "numalign.io/move-memory" in told
    (cgroup,) = [each for each in world.cgroups.observe().cgroups if each.container_id == number]
    assert (str(cgroup.cpus), str(cgroup.mems)) == ("1-2", ""), "its CPUs are pinned all the same"
    world.tree.put_pages(path, {0: 8 << 20})
    world.engine.reconcile()
    (cgroup,) = [each for each in world.cgroups.observe().cgroups if each.container_id == number]
    assert str(cgroup.mems) == "0", "once they are gone from there, it is bound"


def test_s4_the_nodes_of_a_pod_that_asked_to_be_kept_together_are_named(tmp_path: Path) -> None:
    """Its memory is bound by its own wish, and not by a grant: whoever reads why it is not, reads to which node."""
    world = World(tmp_path)
    shared = container(resources={"requests": {"cpu": "1500m"}, "limits": {"memory": "64Mi"}})
    body = manifest("db", shared, align="numa,memory")
    world.engine.pods_listed({"db"})
    world.see(body)
    (confined,) = world.engine.ledger.cpus.confined.values()
    there, elsewhere = (1, 0) if str(confined.nodes) == "1" else (0, 1)
    number = container_id("db", "app")
    world.tree.add_pod("db", world.pods["db"].qos)
    path = world.tree.add_container("db", number)
    world.tree.put_pages(path, {elsewhere: 8 << 20})
    world.engine.containers_seen({number: ("db", "app")})
    world.engine.reconcile()
    now = time.monotonic() + STARTS
    world.engine._enforcer.backoff.clock = lambda: now
    world.engine.reconcile()
    (told,) = [text for what, text in world.ears.problems if what == "memory"]
    assert f"is not bound to NUMA nodes {there}; it has pages on nodes {elsewhere}," in told
