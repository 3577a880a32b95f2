"""Demands of busy machines of any width, for benchmarks: seeded, so that each run measures the same."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from agent.core.merge.demand import Budget, Demand, Family, Need, fewest
from agent.model.hint import IMPOSSIBLE, Stance

GIB = 1 << 30
Scene = Callable[[int], list[Demand | Stance]]


def near(width: int) -> list[list[int]]:
    """Distances of a hierarchy: groups of four nodes, pairs of groups, the rest."""
    return [
        [10 if a == b else 12 if a // 4 == b // 4 else 20 if a // 8 == b // 8 else 32 for b in range(width)]
        for a in range(width)
    ]


def by_sums(capacity: list[int], free: list[int], request: int) -> Demand | Stance:
    """A demand of one sum, preferred at the count that capacity dictates."""
    domain = (1 << len(free)) - 1
    family = Family(domain, (Need(request, tuple(free)),))
    if not family.possible:
        return IMPOSSIBLE
    return Demand(family, fewest(Family(domain, (Need(request, tuple(capacity)),)), Budget()))


def equal_nodes(cpus: int, gib: int, gpus: int, busy: float) -> Scene:
    """Nodes of 16 CPUs, 64 GiB and a GPU each; a share of them partly taken."""

    def demands(width: int) -> list[Demand | Stance]:
        r = Random(width)
        free = [16 if r.random() >= busy else r.randint(0, 15) for _ in range(width)]
        memory = [64 * GIB if left == 16 else r.randint(0, 64) * GIB for left in free]
        cards = [int(r.random() >= busy) for _ in range(width)]
        some = [
            by_sums([16] * width, free, cpus),
            by_sums([64 * GIB] * width, memory, gib * GIB),
        ]
        return [*some, by_sums([1] * width, cards, gpus)] if gpus else some

    return demands


def half(width: int) -> list[Demand | Stance]:
    """Half of a machine of which half is partly taken."""
    return equal_nodes(8 * width // 2, 32 * width // 2, 0, 0.5)(width)


def odd_nodes(share: float) -> Scene:
    """No two nodes alike: CPUs and bytes at random, and a share of all that is free wanted."""

    def demands(width: int) -> list[Demand | Stance]:
        r = Random(5 + width)
        capacity = [r.randint(8, 96) for _ in range(width)]
        free = [r.randint(0, most) for most in capacity]
        size = [r.randint(16 * GIB, 512 * GIB) for _ in range(width)]
        left = [r.randint(0, most) for most in size]
        return [
            by_sums(capacity, free, max(1, int(sum(free) * share))),
            by_sums(size, left, int(sum(left) * share)),
        ]

    return demands


ORDINARY: dict[str, tuple[Scene, bool]] = {  # name -> scene, prefer-closest
    "CPU, memory, GPU on one node, idle": (equal_nodes(4, 8, 1, 0.0), False),
    "the same, half of the nodes busy": (equal_nodes(8, 32, 1, 0.5), False),
    "the same, closest": (equal_nodes(8, 32, 1, 0.5), True),
    "on four nodes, 30 % busy, closest": (equal_nodes(60, 240, 4, 0.3), True),
    "CPU on one node, memory on four: not preferred": (equal_nodes(4, 250, 0, 0.0), False),
    "CPU on four, memory one, GPU two: not preferred, closest": (equal_nodes(60, 8, 2, 0.3), True),
    "half of a half-busy machine": (half, False),
    "no two nodes alike, 30 % wanted": (odd_nodes(0.3), False),
    "no two nodes alike, 90 % wanted": (odd_nodes(0.9), False),
}
HARD: dict[str, tuple[Scene, bool]] = {
    "half of a half-busy machine, closest": (half, True),
    "no two nodes alike, 30 % wanted, closest": (odd_nodes(0.3), True),
}
