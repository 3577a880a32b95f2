"""Order: which of two node sets the kubelet calls better (kubelet rule 3.5), as one total key.

Fewer nodes, then (with prefer-closest-numa-nodes) the smaller average distance, then the smaller integer. The kubelet
divides the sum of all distances by the square of the node count, as a float64. Sets of one size share the divisor and
different sums below 2^53 stay different after it, so whole sums compare the same and no float is needed here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import cached_property

from agent.core.merge.masks import members
from agent.model.machine import Machine

REMEMBERED = 65_536
"""Spreads kept; an agent runs for months."""


class Order:
    """The key by which node sets are compared. Made once per machine: it remembers what it computed.

    Args:
        distances: by position, row and column; None without prefer-closest-numa-nodes.
    """

    def __init__(self, distances: Sequence[Sequence[int]] | None = None) -> None:
        self.distances = distances
        self._known: dict[int, int] = {}

    @classmethod
    def of(cls, machine: Machine) -> Order:
        """With the machine's distances, if each node tells its own to every node."""
        rows = [node.distances for node in machine.nodes]
        return cls(rows if rows and all(len(row) == len(rows) for row in rows) else None)

    @cached_property
    def pairs(self) -> list[list[int]]:
        """Both directions of each pair together; twice the own distance on the diagonal. Symmetric."""
        d = self.distances or ()
        return [[d[a][b] + d[b][a] for b in range(len(d))] for a in range(len(d))]

    @cached_property
    def twins(self) -> tuple[int, ...]:
        """By position, the lowest node that can take this one's place without any distance changing."""
        pairs, found = self.pairs, list(range(len(self.pairs)))
        for node, row in enumerate(pairs):
            for lower in sorted(set(found[:node])):
                other = pairs[lower]
                if row[node] == other[lower] and all(
                    row[x] == other[x] for x in range(len(pairs)) if x not in (node, lower)
                ):
                    found[node] = lower
                    break
        return tuple(found)

    def spread(self, mask: int) -> int:
        """Sum of the distances over all ordered pairs of nodes, each with itself too; 0 without distances."""
        if self.distances is None:
            return 0
        known = self._known.get(mask)
        if known is None:
            inside = members(mask)
            rows = [self.distances[a] for a in inside]
            known = sum([row[b] for row in rows for b in inside])
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            self._known[mask] = known
        return known

    def key(self, mask: int) -> tuple[int, int, int]:
        """What orders masks: the best has the least."""
        return mask.bit_count(), self.spread(mask), mask

    def best(self, masks: Iterable[int]) -> int | None:
        """The best of some masks, None if there are none."""
        return self.closest_to(0, masks)

    def closest_to(self, count: int, masks: Iterable[int]) -> int | None:
        """The best of the non-preferred: `count` nodes, else the most below it, else the fewest above it.

        This is `compare` of rule 3.5 for two non-preferred candidates (theorem T0 of `agent.core.merge.merge`).
        There may be tens of thousands of masks, so their counts come first, and the costly part only for those of
        one count.
        """
        masks = masks if isinstance(masks, Collection) else list(masks)
        if not masks:
            return None
        size = min(set(map(int.bit_count, masks)), key=lambda bits: (bits > count, abs(bits - count)))
        alike = [mask for mask in masks if mask.bit_count() == size]
        if self.distances is None or len(alike) == 1:
            return min(alike)
        return min(alike, key=lambda mask: (self.spread(mask), mask))
