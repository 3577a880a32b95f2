"""A container that crashes all day leaves nothing behind in memory, with no runtime to say that it is gone.

Finding 31.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.flow.world import World, manifest


@pytest.mark.parametrize("observing", [False, True])
def test_finding_31_names_of_containers_that_are_gone_do_not_pile_up(tmp_path: Path, *, observing: bool) -> None:
    """Hundreds of ids of one container, as its status names them one after the other; the living ones stay known."""
    world = World(tmp_path, observe_only=observing)
    world.engine.pods_listed(set())
    world.run(manifest("db"))
    (living,) = world.names()
    for number in range(300):
        world.engine.containers_seen({f"crash{number}": ("db", "app")})
    assert living in world.engine.names
    assert "crash299" in world.engine.names, "it may have been named before its cgroup is there"
    assert len(world.engine.names) < 10


def test_finding_31_a_restarted_container_is_confined_as_before(tmp_path: Path) -> None:
    """Its new id is named before its cgroup comes, after many that are gone."""
    world = World(tmp_path)
    world.engine.pods_listed(set())
    world.run(manifest("db"))
    for number in range(50):
        world.engine.containers_seen({f"crash{number}": ("db", "app")})
    world.engine.reconcile()
    assert world.effective("db") == "1-2"
    world.check()
