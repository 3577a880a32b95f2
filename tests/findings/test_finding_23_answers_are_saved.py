"""What the runtime is answered was saved: it takes effect before anything else could undo it (finding 23)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from agent.host.device_nodes import Usable
from agent.host.nri.decisions import EngineDecisions
from agent.host.nri.driver import NriDriver
from agent.host.nri.values import Adjustment, RuntimeContainer, Sandbox
from agent.model.idset import CpuSet
from tests.flow.world import MemoryStore, World, container, manifest
from tests.patience import PATIENCE


@contextmanager
def asking(world: World) -> Iterator[NriDriver]:
    """What the runtime asks."""
    decisions = EngineDecisions(world.engine, lambda _address: Usable(()))
    decisions.start()
    yield NriDriver(decisions)
    assert decisions.stop(PATIENCE)


def answers(driver: NriDriver, name: str) -> list[str | None]:
    """The CPUs of a container of db, when it is made and when it is changed."""
    asked = Sandbox("s", "db", "default", "db"), RuntimeContainer("c", "s", name)
    made, changed = driver.create_container(*asked), driver.update_container(*asked)
    return [str(each.cpus) if each.cpus else None for each in (made, changed)]


def pinned(folder: Path, store: MemoryStore | None = None) -> World:
    """A pod with CPUs of its own, and a container that shares."""
    world = World(folder, store=store)
    world.engine.pods_listed({"db"})
    world.run(manifest("db", container(), container("log", cpu="500m")))
    return world


def test_finding_23_settings_that_could_not_be_saved_reach_no_container(tmp_path: Path) -> None:
    """The pool has another size on a full disk: it is answered as saved, until there is room."""
    world = pinned(tmp_path)
    with asking(world) as driver:
        assert answers(driver, "log") == ["0,3-7"] * 2
        world.store.full = "no space left"
        world.engine.changed(world.node(cpuManagerPolicyOptions={"strict-cpu-reservation": "true"}))
        assert str(world.engine.ledger.cpus.shared) == "3-7"
        assert answers(driver, "log") == ["0,3-7"] * 2
        assert answers(driver, "app") == ["1-2"] * 2
        world.store.full = ""
        world.engine.reconcile()
        assert answers(driver, "log") == ["3-7"] * 2


def test_finding_23_no_cpu_is_answered_that_went_away(tmp_path: Path) -> None:
    """What was saved has a CPU that is offline now: runtimes would fail the container for it."""
    world = pinned(tmp_path)
    gone = CpuSet.of(2)
    smaller = replace(world.machine, cpus=tuple(each for each in world.machine.cpus if each.id not in gone))
    with asking(world) as driver:
        world.store.full = "no space left"
        world.engine.changed(world.node(smaller))
        assert answers(driver, "app") == ["1"] * 2


def test_finding_23_what_was_never_saved_is_not_answered(tmp_path: Path) -> None:
    """The checkpoint is lost, the disk is full: what was read out of the cgroups is kept, and told to no runtime."""
    first = pinned(tmp_path)
    full = World(tmp_path, store=MemoryStore(full="no space left"), pods=first.pods.values())
    full.engine.pods_listed({"db"})
    assert full.holds("db") == "1-2"
    with asking(full) as driver:
        asked = Sandbox("s", "db", "default", "db"), RuntimeContainer("c", "s", "app")
        assert driver.create_container(*asked) == driver.update_container(*asked) == Adjustment()
        full.store.full = ""
        full.engine.reconcile()
        assert answers(driver, "app") == ["1-2"] * 2
