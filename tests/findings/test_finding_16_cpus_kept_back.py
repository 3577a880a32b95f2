"""What pods that ask to be kept on few NUMA nodes keep from exclusive grants: their requests, and a bound beyond.

Finding 16.
"""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.flow.world import World, container, manifest

NODES, USABLE = 4, 15
MACHINE = "2 sockets x 2 nodes x 4 cores x 1 thread"


def kept(name: str, milli: int, created: int) -> dict[str, Any]:
    """A Burstable pod that asks for so many thousandths of a CPU, and to be kept on few nodes."""
    app = {"name": "app", "image": "x", "resources": {"requests": {"cpu": f"{milli}m"}}}
    return manifest(name, app, created=created, align="numa")


def fit(world: World) -> int:
    """So many Guaranteed pods of one CPU get it, until one is refused."""
    for number in count():
        name = f"g{number}"
        world.see(manifest(name, container(cpu="1"), created=200 + number))
        if name in world.ears.refused_:
            return number
    raise AssertionError


@pytest.mark.parametrize(
    ("pods", "milli", "free"),
    [(110, 1, 14), (1, 1001, 13), (10, 700, 7), (9, 1500, 1), (4, 2100, 3)],
    ids=["many small ones", "one", "the rest of each node is cut", "nearly all", "more than half of each node"],
)
def test_finding_16_so_many_cpus_are_kept_back_and_no_more(tmp_path: Path, pods: int, milli: int, free: int) -> None:
    """However many ask, and for however little: at most one CPU more per node than they ask for is kept back."""
    world = World(tmp_path, machine=MACHINE)
    world.engine.pods_listed(set())
    for number in range(pods):
        world.see(kept(f"k{number}", milli, number))
    assert len(world.engine.ledger.cpus.confined) == pods, "all of them count"
    found = fit(world)
    assert found == free
    assert found >= USABLE - pods * milli / 1000 - NODES


def test_finding_16_cpus_that_were_kept_back_are_had_when_their_pods_are_gone(tmp_path: Path) -> None:
    """The pod that was refused for them gets them; nothing of them is forgotten in the books."""
    world = World(tmp_path, machine=MACHINE)
    world.engine.pods_listed(set())
    world.run(kept("k", 100, 1))
    assert fit(world) == USABLE - 1
    world.end("k")
    world.engine.pods_gone(["k"])
    assert world.holds(f"g{USABLE - 1}")
