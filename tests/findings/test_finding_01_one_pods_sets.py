"""A pod whose sets cannot be worked out is left as it is and told; every other pod's sets are written as ever.

Finding 1.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent.core.cgroups import desired as wanted
from tests.flow.world import World, container, manifest


def failing(question: Callable[..., Any], uid: str) -> Callable[..., Any]:
    """A question about pods that goes wrong with one of them, in a way that nobody expects."""

    def asked(ledger: Any, of: str, *more: Any) -> Any:  # noqa: ANN401 - the question's own
        if of == uid:
            raise ZeroDivisionError("of a kind that nobody expects")
        return question(ledger, of, *more)

    return asked


@pytest.mark.parametrize("name", ["share", "pool_of", "own_of"])
def test_finding_01_sets_that_cannot_be_worked_out_are_one_pods(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Its cgroups stay; its neighbour, which came after it, is pinned; a fault is told once, and its end heals it."""
    world = World(tmp_path)
    world.engine.pods_listed(set())
    world.run(manifest("evil", container(cpu="2"), created=1))
    world.engine.reconcile()
    held = world.effective("evil")
    with monkeypatch.context() as patched:
        patched.setattr(wanted, name, failing(getattr(wanted, name), "evil"))
        world.run(manifest("victim", container(cpu="2"), created=2))
        world.run(manifest("shared", {"name": "app", "image": "x"}, created=3))
        world.engine.reconcile()
        world.engine.reconcile()
        assert world.effective("victim") == world.holds("victim") != ""
        assert world.effective("evil") == held
        assert not set(world.effective("shared")) & {*held, *world.holds("victim")} - {"-", ","}
        assert "left as they are" in world.ears.unenforced["evil"][""]
        assert world.ears.unenforced.get("victim", {}) == {}
        assert len([text for what, text in world.ears.problems if what == "set-aside"]) == 1
    world.engine.reconcile()
    assert world.effective("evil") == world.holds("evil")
    world.check()
