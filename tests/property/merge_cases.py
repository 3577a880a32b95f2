"""Cases for the merge's property tests, from a Random that hypothesis may steer; and the kubelet's way, literally."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import combinations
from random import Random

from agent.core.merge.demand import Budget, Demand, Family, Need, fewest
from agent.core.merge.masks import members

Listed = Collection[tuple[int | None, bool]]
"""One resource's hints: (mask over positions, or None for any placement; preferred)."""
NEVER: Listed = ((None, False),)
"""What the kubelet puts in for an empty list (kubelet rule 3.3)."""
MIXED = -1
"""In the place of a mask: hints that are not all preferred, or of several masks."""


@dataclass(frozen=True)
class Case:
    """Some demands on a machine of `width` nodes."""

    width: int
    demands: tuple[Demand, ...]
    hopeless: bool
    distances: list[list[int]] | None

    @property
    def everything(self) -> int:
        return (1 << self.width) - 1

    def lists(self) -> list[Listed]:
        lists: list[Listed] = [list_out(demand, self.width) for demand in self.demands]
        return [*lists, NEVER] if self.hopeless else lists


def list_out(demand: Demand, width: int) -> list[tuple[int | None, bool]]:
    """Every mask of a demand, by trying each mask there is."""
    return [(mask, demand.prefers(mask)) for mask in range(1, 1 << width) if demand.accepts(mask)]


def case(r: Random, widest: int = 7) -> Case:
    """Demands that are tight, repeated, share amounts, have no mask in common that all prefer, and so on."""
    width = r.randint(2, widest)
    demands = [demand(r, width) for _ in range(r.choice([1, 2, 2, 2, 3, 3]))]
    if r.random() < 0.15:
        demands[0] = _by_socket(r, demands[0], width)
    if r.random() < 0.25:
        demands.append(r.choice(demands))
    kept = tuple(each for each in demands if list_out(each, width))
    hopeless = r.random() < 0.5 or len(kept) < len(demands)
    return Case(width, kept, hopeless, distances(r, width) if r.random() < 0.4 else None)


def distances(r: Random, width: int) -> list[list[int]]:
    """A table: groups of equal nodes, or any, not always symmetric; often with equal entries."""
    if r.random() < 0.4:
        group = r.randint(1, 4)
        return [
            [10 if a == b else 12 if a // group == b // group else 20 for b in range(width)] for a in range(width)
        ]
    return [[10 if a == b else r.choice([11, 12, 20]) for b in range(width)] for a in range(width)]


def demand(r: Random, width: int) -> Demand:
    """A family of one to three needs, masks by name, or both."""
    full = (1 << width) - 1
    family = _family(r, width) if r.random() < 0.93 else None
    fixed: dict[int, bool] = {}
    if r.random() < 0.3 or family is None:
        fixed = {r.randint(1, full): r.random() < 0.4 for _ in range(r.randint(1, 4))}
    size: int | None = r.randint(1, width)
    if r.random() < 0.5:
        size = fewest(family, Budget()) if family else 0
    return Demand(family, size, fixed)


def _family(r: Random, width: int) -> Family:
    full = (1 << width) - 1
    domain = full if r.random() < 0.6 else r.randint(1, full)
    return Family(domain, tuple(_need(r, domain, width) for _ in range(r.choice([1, 1, 1, 2, 3]))))


def _need(r: Random, domain: int, width: int) -> Need:
    most = r.choice([1, 2, 3, 6, 20])
    weights = tuple(r.randint(0, most) if domain >> j & 1 and r.random() < 0.85 else 0 for j in range(width))
    shared: dict[int, int] = {}
    if r.random() < 0.2:
        shared = {r.randint(1, (1 << width) - 1): r.randint(1, 3) for _ in range(r.randint(1, 3))}
    whole = Need(0, weights, tuple(shared.items())).total(domain)
    return Need(whole * r.choice([3, 5, 6, 7, 8, 9, 10]) // 10, weights, tuple(shared.items()))


def _by_socket(r: Random, plain: Demand, width: int) -> Demand:
    """align-by-socket, with sockets of unequal size too."""
    count = r.randint(1, width)
    sockets = tuple(sum(1 << j for j in range(width) if j % count == socket) for socket in range(count))
    return Demand(plain.family, plain.size, plain.fixed, sockets, r.randint(1, count))


def lists(r: Random, width: int) -> list[list[tuple[int | None, bool]]]:
    """Hint lists without any regularity: empty masks, nodes that do not exist, no mask, repeated lists."""
    out: list[list[tuple[int | None, bool]]] = []
    for _ in range(r.randint(0, 4)):
        dense = r.random()
        hints = [_any_hint(r, width, dense) for _ in range(r.choice([0, 1, 2, 4, 8]))]
        out.append(hints or [(None, r.random() < 0.5)])
        if r.random() < 0.2:
            out.append(list(out[-1]))
    return out


def _any_hint(r: Random, width: int, dense: float) -> tuple[int | None, bool]:
    if r.random() < 0.04:
        return None, r.random() < 0.3
    mask = sum(1 << j for j in range(width) if r.random() < dense)
    return mask | (1 << width + 1 if r.random() < 0.03 else 0), r.random() < 0.3


def by_product(
    some: Sequence[Listed], everything: int, table: list[list[int]] | None, *, single: bool = False
) -> tuple[int, bool]:
    """The merge and its best combination, as kubelet rules 3.4 and 3.5 tell it: one candidate after the other."""
    if single:
        some, table = [[(m, p) for m, p in hints if p and (m is None or m.bit_count() == 1)] for hints in some], None
    best: tuple[int, bool] | None = None
    for candidate in candidates(some, everything):
        best = _compare(best, candidate, goal(some), table)
    return best or (everything, False)


def goal(some: Sequence[Listed]) -> int:
    """Find the largest of the lists' fewest node counts."""
    fewest_of = (min((m.bit_count() for m, _ in hints if m is not None), default=0) for hints in some)
    return max(fewest_of, default=0)


def candidates(some: Sequence[Listed], everything: int) -> set[tuple[int, bool]]:
    """What the permutations come to, each once: the masks' AND, and whether all are preferred and of one mask."""
    found: set[tuple[int, int | None]] = {(everything, None)}
    for hints in some:
        found = {_with(merged, seen, *hint) for merged, seen in found for hint in hints}
    return {(merged, seen != MIXED) for merged, seen in found}


def _with(merged: int, seen: int | None, mask: int | None, preferred: bool) -> tuple[int, int | None]:  # noqa: FBT001 - of a hint
    mixed = seen == MIXED or not preferred or (None not in (seen, mask) and seen != mask)
    if mask is None:
        return merged, MIXED if mixed else seen
    return merged & mask, MIXED if mixed else mask


def _compare(
    current: tuple[int, bool] | None, candidate: tuple[int, bool], goal: int, table: list[list[int]] | None
) -> tuple[int, bool] | None:
    """Kubelet rule 3.5, which combination is best, line by line."""
    if not candidate[0]:
        return current
    if current is None:
        return candidate
    if current[1] != candidate[1]:
        return candidate if candidate[1] else current
    better = (_better(current[0], candidate[0], table), current[1])
    if current[1]:
        return better
    return _nearer(current, candidate, goal, better)


def _nearer(
    current: tuple[int, bool], candidate: tuple[int, bool], goal: int, better: tuple[int, bool]
) -> tuple[int, bool]:
    a, b = current[0].bit_count(), candidate[0].bit_count()
    if a > goal:
        return better
    if a == goal:
        return better if b == goal else current
    if b > goal or b < a:
        return current
    return candidate if b == goal or b > a else better


def _better(current: int, candidate: int, table: list[list[int]] | None) -> int:
    if table is not None and current.bit_count() == candidate.bit_count() and current != candidate:
        x, y = average(current, table), average(candidate, table)
        if x != y:
            return current if x < y else candidate
        return min(current, candidate)
    return min(current, candidate, key=lambda mask: (mask.bit_count(), mask))


def average(mask: int, table: list[list[int]]) -> float:
    """The kubelet's average distance, as a float."""
    inside = members(mask)
    return sum(table[a][b] for a in inside for b in inside) / len(inside) ** 2


def subsets(mask: int) -> list[int]:
    """All non-empty parts of a mask, in the kubelet's order."""
    inside = members(mask)
    return [
        sum(1 << j for j in chosen) for count in range(1, len(inside) + 1) for chosen in combinations(inside, count)
    ]
