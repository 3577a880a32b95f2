"""What readers take of the engine: one state, which counts from the moment that it is saved."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.node.state import State
from tests.flow.gpus import asking, gpu
from tests.flow.world import World, container, manifest


def test_a_state_that_a_reader_holds_never_changes(tmp_path: Path) -> None:
    """Pods come, wait, change and go, devices, settings and another writer are told: each state stays what it was."""
    world = World(tmp_path, settings={"onMisalignment": "wait"})
    held: list[tuple[State, str]] = []

    def hold() -> None:
        held.append((world.engine.snapshot, repr(world.engine.snapshot)))

    world.engine.pods_listed(set())
    for number in range(5):
        world.see(manifest(f"p{number}", container(cpu="3"), created=number, policy="single-numa-node"))
        hold()
    world.start("p0")
    world.see(manifest("p0", container(cpu="2"), policy="single-numa-node"))
    hold()
    world.see(asking(created=9))
    world.engine.devices_reported("job", {"app": (gpu("g1", 1),)})
    hold()
    world.engine.switch(observe_only=True, why="another plugin")
    hold()
    world.engine.switch(observe_only=False)
    world.engine.changed(world.node(reservedSystemCPUs="0-1"))
    hold()
    world.end("p0")
    world.engine.pods_gone(["p0", "p1"])
    world.engine.reconcile()
    hold()
    assert [repr(state) for state, _ in held] == [text for _, text in held]
    assert len({text for _, text in held}) == len(held)


@pytest.mark.parametrize("full", ["No space left on device", ""])
def test_no_reader_sees_grants_that_are_not_saved(tmp_path: Path, full: str) -> None:
    """Whoever reads while a pod is saved sees the state before; afterwards the new one, with what the store has."""
    world, seen = World(tmp_path), list[bool]()
    world.engine.pods_listed(set())
    save = world.store.save

    def look(*given: object) -> None:
        seen.append("db" in world.engine.snapshot.ledger.pods or "db" in world.engine.snapshot.pods)
        save(*given)  # type: ignore[arg-type]  # as they came

    world.store.save = look  # type: ignore[assignment,method-assign]  # watched by this test
    world.store.full = full
    world.see(manifest("db"))
    state = world.engine.snapshot
    assert (set(seen), "db" in state.pods, "db" in state.ledger.pods) == ({False}, True, not full)
    assert state.saved == world.store.saved == state.ledger
