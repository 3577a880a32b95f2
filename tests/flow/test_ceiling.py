"""The ceiling of a namespace through the engine (exclusiveCPUs): refusal, waiting, resize, lower and higher."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agent.model.outcome import Reason
from tests.flow.world import World
from tests.world.manifests import container, manifest

FOUR: dict[str, Any] = {"exclusiveCPUs": {"limits": {"shop": 4}}}


def node(folder: Path, **settings: Any) -> World:  # noqa: ANN401 - a document's values
    """Eight CPUs, one reserved; namespace shop may hold four."""
    world = World(folder, settings={**FOUR, **settings}, most_waiting=3, waiting_limit=60.0)
    world.engine.pods_listed(set())
    return world


def of(namespace: str, name: str, cpu: str, created: int = 0, wish: str = "run") -> dict[str, Any]:
    """A pod of a namespace."""
    return manifest(name, container(cpu=cpu), namespace=namespace, created=created, on_misalignment=wish)


def test_who_passes_the_ceiling_runs_on_the_shared_pool_and_is_told(tmp_path: Path) -> None:
    """Its container starts without CPUs of its own, and the reason is told; another namespace has its own room."""
    world = node(tmp_path)
    world.run(of("shop", "a", "3"))
    world.run(of("shop", "b", "2", 1))
    assert (world.holds("a"), world.holds("b")) == ("1-3", "")
    assert world.ears.refused_["b"].reason is Reason.CEILING
    world.run(of("other", "c", "3", 2))
    assert world.holds("c") == "4-6"


def test_who_waits_gets_in_when_its_namespace_gives_back(tmp_path: Path) -> None:
    """It waits though CPUs are free, another namespace does not wait behind it, and what can never be is final."""
    world = node(tmp_path)
    world.run(of("shop", "a", "3"))
    world.see(of("shop", "b", "2", 1, wish="wait"))
    assert "b" not in world.engine.ledger.pods
    world.see(of("shop", "never", "5", 2, wish="wait"))
    assert "final" in world.ears.refused_["never"].facts
    world.run(of("other", "c", "2", 3))
    assert world.holds("c")
    world.end("a")
    world.engine.pods_gone(["a"])
    world.check()
    assert len(world.engine.ledger.grant("b", "app").cpus or ()) == 2


def test_other_ceilings_count_from_then_on_and_move_nobody(tmp_path: Path) -> None:
    """Lower: all keep what they have, also after a restart; higher: a growth that was refused is followed."""
    world = node(tmp_path)
    world.run(of("shop", "a", "3"))
    world.see(of("shop", "a", "5"))
    assert world.holds("a") == "1-3"
    world.engine.changed(world.node(exclusiveCPUs={"perNamespace": 1}))
    world.engine.reconcile()
    assert (world.holds("a"), world.effective("a")) == ("1-3", "1-3")
    again = World(tmp_path, settings=world.settings, store=world.store, pods=world.pods.values())
    assert (again.holds("a"), again.effective("a")) == ("1-3", "1-3")
    again.engine.pods_listed({"a"})
    again.engine.changed(again.node(exclusiveCPUs={"perNamespace": 5}))
    again.engine.reconcile()
    assert len(again.engine.ledger.grant("a", "app").cpus or ()) == 5


def test_cpus_move_between_containers_of_a_namespace_at_its_ceiling(tmp_path: Path) -> None:
    """What one container gives up another gets in the same resize, whichever comes first in the pod."""
    world = node(tmp_path)

    def asking(first: str, second: str) -> dict[str, Any]:
        return manifest("a", container("one", cpu=first), container("two", cpu=second), namespace="shop")

    world.run(asking("1", "3"))
    for first, second in (("2", "2"), ("1", "3")):
        world.see(asking(first, second))
        held = [len(world.engine.ledger.grant("a", name).cpus or ()) for name in ("one", "two")]
        assert held == [int(first), int(second)]
        assert "resize not followed" not in str(world.engine.ledger.pods["a"].why)
