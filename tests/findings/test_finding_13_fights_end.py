"""Systemd's own resets are no fight, and a fight with another writer is tried anew after a quiet time, by itself.

Finding 13.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from tests.flow.world import World, container, manifest


class Clock:
    """Time that a test moves."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def pinned(folder: Path, clock: Clock) -> World:
    """A node with one pinned pod."""
    world = World(folder / "tree", clock=clock)
    world.engine.pods_listed({"db", "new"})
    world.run(manifest("db", container(cpu="2"), created=1))
    return world


def fought(world: World, clock: Clock, value: str) -> int:
    """Somebody writes a value as fast as it is repaired, for 20 seconds; how many repairs there were."""
    repairs = 0
    for _ in range(20):
        world.tree.kernel_write(world.path("db", "app"), "cpuset.cpus", value)
        repairs += len(world.engine.reconcile())
        clock.now += 1
    return repairs


def test_finding_13_resets_to_the_parents_set_are_repaired_and_nothing_else(tmp_path: Path) -> None:
    """Daemon-reloads within a minute, as an upgrade of packages makes them: enforcement goes on, pods are pinned."""
    clock = Clock()
    world = pinned(tmp_path, clock)
    parents = "0-7"  # what the pod's own cgroup has: the pool and its CPUs
    assert fought(world, clock, parents) >= 3
    assert world.engine.snapshot.yields == {}
    clock.now += 60
    world.engine.reconcile()
    world.run(manifest("new", container(cpu="2"), created=5))
    assert world.effective("db") == world.holds("db")
    assert world.effective("new") == world.holds("new") != ""
    assert world.condition("new") == "True Aligned"


def test_finding_13_a_fight_that_is_over_ends_by_itself(tmp_path: Path) -> None:
    """Somebody else wrote for a while, and is gone: five minutes later everything is enforced again, by itself."""
    clock = Clock()
    world = pinned(tmp_path, clock)
    fought(world, clock, "0-3")
    assert list(world.engine.snapshot.yields) == ["flapping"]
    assert world.condition("db") == "False NotEnforced"
    world.see(manifest("new", container(cpu="2"), created=5))
    assert world.condition("new") == "False NotEnforced"
    clock.now += 300
    world.engine.reconcile()
    assert world.engine.snapshot.yields == {}
    world.start("new")
    clock.now += 600
    world.engine.reconcile()
    for uid in ("db", "new"):
        assert (world.effective(uid), world.condition(uid)) == (world.holds(uid), "True Aligned")


def test_finding_13_a_fight_that_goes_on_is_left_alone_ever_longer_and_told_each_time(tmp_path: Path) -> None:
    """Five minutes, ten, twenty: a few writes between them, and a sentence for each that says when."""
    clock = Clock()
    world = pinned(tmp_path, clock)
    began: list[float] = []
    while clock.now < 12 * 3600:
        if not world.engine.snapshot.yields:
            began.append(clock.now)
            fought(world, clock, "0-3")
        world.engine.reconcile()
        clock.now += 60
    told = [text for what, text in world.ears.problems if what == "writers"]
    assert len(told) == len(began) <= 8
    assert "tried again after 5 minutes" in told[0]
    assert "(time 2 in a row), and tried again after 10 minutes" in told[1]
    assert "tried again after 20 minutes" in told[2]
    pauses = [later - earlier for earlier, later in pairwise(began)]
    assert pauses == sorted(pauses)


def test_finding_13_a_retry_leaves_other_reasons_in_force(tmp_path: Path) -> None:
    """Its own quiet time over, the engine still writes nothing while files tell of another writer."""
    clock = Clock()
    world = pinned(tmp_path, clock)
    fought(world, clock, "0-3")
    world.engine.switch(observe_only=True, why="an NRI plugin", source="files")
    clock.now += 300
    assert world.engine.reconcile() == ()
    assert world.engine.snapshot.yields == {"files": "an NRI plugin"}
    assert world.condition("db") == "False NotEnforced"
