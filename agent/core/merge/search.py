"""Search: the best node set of a given size out of a domain, exactly, within a budget of steps.

The question (theorem T5 of `agent.core.merge.merge`): which mask of exactly `keep` nodes of a domain is best, when
every other node must be *dropped* by one of several bins, and a bin can only drop what it can spare? A bin starts
with certain nodes and must go on serving its needs. One bin that carries the needs of all providers asks for a mask
that serves them all; one bin per provider asks for an AND of their masks.

Deciding this is a knapsack with several resources, or bin packing, so hard inputs exist and a budget bounds the work.
The usual ones (equal nodes, small amounts, one tight resource) take a few steps for each node:

- nodes are decided from the highest down, drop before keep, so that small integers come early;
- cut where even the cheapest drops cost more than the slack, per need and over all needs in one price;
- cut where no completion beats the best mask found, compared as (distance, integer): never on distance alone,
  since of two sets with the same distance the smaller integer wins;
- of two nodes that nothing tells apart (twins), the lower is kept first: exchanging them only raises the integer;
- states that failed are remembered with their slack, and less slack fails too.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable
from operator import add, le
from typing import NamedTuple

from agent.core.merge.needs import Budget
from agent.core.merge.order import Order
from agent.core.merge.slack import Bin, Prices, Slack

__all__ = ["Bin", "Limit", "Search"]

Limit = tuple[tuple[int, ...], int]
"""Masks of all sockets, and how many of them a mask must touch exactly."""

_REMEMBERED = 24  # slacks kept per state: longer lists cost more than they save


class _StopError(Exception):
    """Out of steps, or the first mask was enough."""


class _Spot(NamedTuple):
    """Where the walk is: nodes of rank `at` and more are still to be decided, and `keep` of them stay.

    Attributes:
        slack: what the bins can still lose.
        kept: mask of the nodes kept so far.
        forced: mask of nodes that have to stay because a twin above them did.
        gone: by bin, the nodes dropped by it that share an amount with others.
        cost: twice the spread of `kept`.
        attach: for each node still to be decided, what keeping it adds to `cost`.
    """

    at: int
    keep: int
    slack: Slack
    kept: int
    forced: int
    gone: tuple[int, ...]
    cost: int
    attach: list[int]


class Search:
    """One domain with its bins; `run` may be called for several sizes.

    Args:
        domain: the mask to choose from.
        bins: what can drop nodes; each bin's nodes include the domain.
        order: what "best" means.
        budget: shared with other searches of the same decision.
        limits: further conditions on the mask (align-by-socket).
    """

    def __init__(
        self, domain: int, bins: Iterable[Bin], order: Order, budget: Budget, limits: tuple[Limit, ...] = ()
    ) -> None:
        self._prices = Prices(domain, tuple(bins))
        self._nodes = self._prices.nodes
        self._order = order
        self._budget = budget
        self._limits = limits
        self._near = order.distances is not None
        self._plain = not self._near and not limits
        self._rest = [0]  # by rank: the mask of all nodes from there on
        for node in reversed(self._nodes):
            self._rest.append(self._rest[-1] | 1 << node)
        self._rest.reverse()
        self._lower_twins = self._find_twins()
        self._rows: list[list[list[int]]] = []
        self._nearest: dict[tuple[int, int], list[int]] = {}
        self._best: tuple[int, int] | None = None  # twice the spread, mask

    def _find_twins(self) -> list[int]:
        """By rank, the mask of the lower nodes that nothing tells apart from this one."""
        place = self._order.twins if self._near else None
        lower: dict[object, int] = {}
        twins = [0] * len(self._nodes)
        for at in reversed(range(len(self._nodes))):
            node = self._nodes[at]
            sockets = tuple([socket >> node & 1 for sockets, _ in self._limits for socket in sockets])
            looks = (place[node] if place else 0, sockets, self._prices.looks(at))
            twins[at] = lower.get(looks, 0)
            lower[looks] = twins[at] | 1 << node
        return twins

    def run(self, keep: int, *, first: bool = False) -> tuple[int | None, bool]:
        """(the best mask of `keep` nodes or None, whether that is proved).

        Not proved: the budget ran out; a mask is valid then, but maybe not the best. With `first`, any mask will do.
        """
        self._best, self._first = None, first
        start = self._prices.start
        if not 0 < keep <= len(self._nodes) or min(start, default=0) < 0:
            return None, True
        self._failed: dict[object, list[Slack]] = {}
        self._visited: dict[object, list[Slack]] = {}
        attach = [self._order.pairs[node][node] for node in self._nodes] if self._near else []
        none_gone = (0,) * len(self._prices.spans)
        try:
            self._descend(_Spot(0, keep, start, 0, 0, none_gone, 0, attach))
        except _StopError:
            return self._answer(), first and self._answer() is not None
        return self._answer(), True

    def _answer(self) -> int | None:
        return None if self._best is None else self._best[1]

    # ------------------------------------------------------------------ the walk

    def _descend(self, spot: _Spot) -> bool:
        """True unless it is certain that no mask exists from here on."""
        if not self._budget.spend():
            raise _StopError
        at, keep, kept = spot.at, spot.keep, spot.kept
        drops = len(self._nodes) - at - keep
        slack = tuple(map(min, spot.slack, self._prices.payable[at]))
        if not self._feasible(spot, drops, slack):
            return False
        if not drops:
            return self._found(kept | self._rest[at])
        if self._best is not None and self._cannot_win(spot, self._best):
            return True
        end = at + drops
        if self._plain and self._prices.one_bin_drops(at, end, slack):
            return self._found(kept | self._rest[end])  # the lowest nodes: no completion is better
        return self._unless_known(spot, slack)

    def _feasible(self, spot: _Spot, drops: int, slack: Slack) -> bool:
        if spot.forced.bit_count() > spot.keep:
            return False
        if drops and not self._prices.affordable(spot.at, drops, slack):
            return False
        return all(
            _touched(sockets, spot.kept) <= count <= _touched(sockets, spot.kept | self._rest[spot.at])
            for sockets, count in self._limits
        )

    def _unless_known(self, spot: _Spot, slack: Slack) -> bool:
        """Branch, unless this was seen to fail or walked before; remember what comes of it.

        A cut because of the best mask, or of an earlier visit, is no failure: it answers True and is not remembered.
        """
        touched = tuple([socket & spot.kept != 0 for sockets, _ in self._limits for socket in sockets])
        state = (spot.at, spot.keep, spot.forced, spot.gone, touched)
        if _covered(slack, self._failed.get(state, ())):
            return False
        if self._near or len(self._prices.spans) > 1:  # else a set of kept nodes is reached in one way only
            visited = self._visited.setdefault((state, spot.kept), [])
            if _covered(slack, visited):
                return True
            _remember(visited, slack)
        some = self._branch(spot, slack)
        if not some:
            _remember(self._failed.setdefault(state, []), slack)
        return some

    def _branch(self, spot: _Spot, slack: Slack) -> bool:
        at, keep, _, kept, forced, gone, cost, attach = spot
        node, some = self._nodes[at], False
        bit = 1 << node
        if not forced & bit:
            rest = attach[1:]
            for b in self._prices.droppers(at, slack):
                paid, lost = self._prices.pay(b, at, slack, gone)
                if min(paid, default=0) >= 0:
                    some |= self._descend(_Spot(at + 1, keep, paid, kept, forced, lost, cost, rest))
        if keep:
            if self._near:
                row = self._order.pairs[node]
                cost += attach[0]
                attach = [a + 2 * row[n] for a, n in zip(attach[1:], self._nodes[at + 1 :], strict=True)]
            forced = (forced | self._lower_twins[at]) & ~bit
            some |= self._descend(_Spot(at + 1, keep - 1, slack, kept | bit, forced, gone, cost, attach))
        return some

    def _found(self, mask: int) -> bool:
        if any(_touched(sockets, mask) != count for sockets, count in self._limits):
            return False
        found = (2 * self._order.spread(mask), mask)
        if self._best is None or found < self._best:
            self._best = found
            if self._first:
                raise _StopError
        return True

    # ------------------------------------------------------------------ bounds

    def _cannot_win(self, spot: _Spot, best: tuple[int, int]) -> bool:
        """Whether nothing below can be better than the best mask found."""
        lowest = spot.kept | self._rest[len(self._nodes) - spot.keep]
        return (spot.cost + self._least_spread(spot), lowest) >= best

    def _least_spread(self, spot: _Spot) -> int:
        """At least this much is still added to twice the spread.

        Each node adds its distances to the kept nodes, and half of its distances to the others still to come: those
        are at least the distances to as many of its nearest.
        """
        if not self._near:
            return 0
        at, keep = spot.at, spot.keep
        near = self._nearest.get((at, keep))
        if near is None:
            near = self._nearest[at, keep] = [sum(row[: max(keep - 1, 0)]) for row in self._distances_from(at)]
        return sum(sorted(map(add, spot.attach, near))[:keep])

    def _distances_from(self, at: int) -> list[list[int]]:
        """For each node from a rank on, its distances to the others of them, ascending."""
        if not self._rows:
            self._rows = [[]]
            for i in reversed(range(len(self._nodes))):
                row = [self._order.pairs[self._nodes[i]][node] for node in self._nodes[i + 1 :]]
                grown = [known[:] for known in self._rows[-1]]
                for distances, distance in zip(grown, row, strict=True):
                    insort(distances, distance)
                self._rows.append([sorted(row), *grown])
            self._rows.reverse()
        return self._rows[at]


def _touched(sockets: tuple[int, ...], mask: int) -> int:
    return sum([1 for socket in sockets if socket & mask])


def _covered(slack: Slack, others: Iterable[Slack]) -> bool:
    """Whether another slack was nowhere smaller."""
    return any(all(map(le, slack, other)) for other in others)


def _remember(others: list[Slack], slack: Slack) -> None:
    if len(others) >= _REMEMBERED:
        others.pop(0)
    others.append(slack)
