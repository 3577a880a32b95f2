"""S5 through the engine: CPUs that the kernel isolates, and a resize that would empty the shared pool."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.flow.world import World, container, manifest


def node(folder: Path, machine: str, **settings: Any) -> World:  # noqa: ANN401 - a document's values
    """A listed node with a pod that shares."""
    world = World(folder, machine=machine, settings=settings)
    world.engine.pods_listed({"web", "db", "next"})
    world.run(manifest("web", container(cpu="", memory=""), created=1))
    return world


def test_s5_nobody_shares_an_isolated_cpu(tmp_path: Path) -> None:
    """Nothing balances load there: who shares never gets one, before a grant, beside it, or after its end."""
    world = node(tmp_path, "2 sockets x 1 node x 4 cores x 1 thread, isolated 2-3,6-7")
    assert world.effective("web") == "0-1,4-5"
    world.run(manifest("db", container(cpu="2"), created=2))
    assert (world.effective("db"), world.effective("web")) == ("2-3", "0-1,4-5")
    world.run(manifest("next", container(cpu="3"), created=3))
    assert (world.effective("next"), world.effective("web")) == ("4-6", "0-1")
    for uid in ("db", "next"):
        world.end(uid)
        world.engine.pods_gone([uid])
    world.engine.reconcile()
    assert world.effective("web") == "0-1,4-5"
    world.check()


@pytest.mark.parametrize(("strict", "held", "shared"), [("false", "1-3", "0"), ("true", "1-2", "3")])
def test_s5_a_resize_does_not_empty_the_pool(tmp_path: Path, strict: str, held: str, shared: str) -> None:
    """Under strict reservation the last shared CPU is not given to a pod that grows, which says why."""
    options = {"strict-cpu-reservation": strict}
    world = node(tmp_path, "1 socket x 1 node x 4 cores x 1 thread", cpuManagerPolicyOptions=options)
    world.run(manifest("db", container(cpu="2"), created=2))
    world.see(manifest("db", container(cpu="3"), created=2))
    assert (world.effective("db"), world.effective("web")) == (held, shared)
    why = world.engine.ledger.pods["db"].why.get("app", "")
    assert ("the shared pool would become empty" in why) is (strict == "true")
