"""A container that nobody names, beside an agent that was told all names: its pod is not told to have its CPUs.

Finding 2.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.host.standin import container_id
from tests.flow.world import World, container, manifest

SANDBOX, STRANGER = "5a" * 32, "7e" * 32
LONG = 31.0
"""Seconds after which a container that was seen should have been named."""


class Clock:
    """Time that a test moves."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    """The engine's."""
    return Clock()


@pytest.fixture
def world(tmp_path: Path, clock: Clock) -> World:
    """All names are known: a pod with a sandbox, one of whose two containers has not been made yet."""
    made = World(tmp_path, clock=clock)
    made.engine.pods_listed({"two"})
    made.see(manifest("two", container("front", cpu="1"), container("back", cpu="2")))
    made.start("two", "front")
    made.tree.add_container("two", SANDBOX)
    made.engine.reconcile()
    clock.now += LONG
    made.engine.reconcile()
    return made


def test_finding_02_a_sandbox_is_no_container_that_lacks_a_name(world: World) -> None:
    """What has no name and is alone in its pod may be the sandbox: its container may not be there yet."""
    assert world.condition("two") == "True Aligned"


def test_finding_02_a_pod_with_a_container_that_nobody_names_is_not_told_to_have_its_cpus(
    world: World, clock: Clock
) -> None:
    """One of two is a container, it may be the one that was granted CPUs, and runs on the pool; a name ends that."""
    world.tree.add_container("two", STRANGER)
    world.engine.reconcile()
    assert world.condition("two") == "True Aligned", "a moment is what names take that come by the API"
    clock.now += LONG
    world.engine.reconcile()
    assert world.condition("two") == "False NotEnforced"
    message = world.report("two").message
    assert "neither the API server nor the runtime" in message
    assert STRANGER in message
    world.engine.containers_seen({STRANGER: ("two", "back")})
    assert world.condition("two") == "True Aligned"


def test_finding_02_an_agent_that_begins_gives_no_such_time(world: World, tmp_path: Path, clock: Clock) -> None:
    """Who was there before it and is in no list has no name: told with the first complete list."""
    world.tree.add_container("two", STRANGER)
    after = World(tmp_path, store=world.store, clock=clock, pods=world.pods.values())
    after.engine.pods_listed({"two"})
    assert after.condition("two") == "False NotEnforced"
    world.tree.remove_container("two", STRANGER)
    after.engine.reconcile()
    assert after.condition("two") == "True Aligned"


def test_finding_02_a_sandbox_that_is_made_anew_is_none_either(world: World, clock: Clock) -> None:
    """The one before may outlast its processes; who runs there counts."""
    world.tree.remove_container("two", SANDBOX)
    world.tree.add_container("two", SANDBOX, processes=0)
    world.tree.add_container("two", "6b" * 32)
    clock.now += LONG
    world.engine.reconcile()
    assert world.condition("two") == "True Aligned"
    assert world.effective("two", "front") == world.holds("two", "front")
    assert container_id("two", "front") not in world.report("two").message
