"""A start with an older copy of the checkpoint: who runs on CPUs of his own stays there (finding 2)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.flow.world import MemoryStore, World, manifest


@pytest.mark.parametrize("full", ["", "No space left"], ids=["saved", "disk full"])
@pytest.mark.parametrize("named", [True, False], ids=["names", "no names"])
def test_finding_02_an_older_copy_of_the_checkpoint_moves_nobody(tmp_path: Path, full: str, *, named: bool) -> None:
    """It gives the CPUs to a pod that has left since, and lacks the one that runs on them: a state folder of before.

    Whether the API answers at once or later, and whether what is found can be saved.
    """
    world = World(tmp_path, store=MemoryStore())
    world.engine.pods_listed(set())
    world.run(manifest("left"))
    older = MemoryStore(world.store.saved, dict(world.store.extra), full)
    world.end("left")
    world.engine.pods_gone(["left"])
    world.run(manifest("stays", created=1))
    before, pod = world.effective("stays"), world.pods["stays"]
    assert before == world.holds("stays") != ""
    after = World(tmp_path, store=older, pods=[pod] if named else [])
    after.engine.reconcile()
    assert world.effective("stays") == before
    after.pods = {"stays": pod}
    after.engine.adopt([pod], after.names(), {}, {"stays"})  # as the first list is followed
    after.engine.pods_seen([pod], ran={"stays"})
    after.engine.containers_seen(after.names())
    after.engine.pods_listed({"stays"})
    after.engine.reconcile()
    assert world.effective("stays") == before
    older.full = ""
    after.engine.reconcile()
    assert world.effective("stays") == before
    assert after.holds("stays") == before


def test_finding_02_a_pod_that_has_not_started_keeps_its_grant(tmp_path: Path) -> None:
    """The checkpoint is the last one: whom it granted CPUs and who has no cgroup yet keeps them."""
    world = World(tmp_path, store=MemoryStore())
    world.engine.pods_listed(set())
    world.run(manifest("runs"))
    world.see(manifest("waits", created=1))
    held = world.holds("waits")
    after = World(tmp_path, store=world.store)
    after.engine.reconcile()
    assert after.holds("waits") == held != ""
