"""Prices: what dropping a node costs each bin of a search, and what the bins can still spare.

Part of `agent.core.merge.search`, which says what bins and drops are. Nodes are addressed by rank: 0 is the highest
node of the domain. The needs of all bins are the columns of one table; a bin's are a span of it. A *slack* is one
number per column: how much of that need's total may still be lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from agent.core.merge.masks import members
from agent.core.merge.needs import Need

Slack = tuple[int, ...]

_UNIT = 1 << 80  # the whole slack of a column, in the price common to all columns; any scale is sound


@dataclass(frozen=True, slots=True)
class Bin:
    """Needs, and the nodes that serve them at first; the domain searched lies within."""

    needs: tuple[Need, ...]
    nodes: int


class Prices:
    """The table, for one domain and some bins."""

    def __init__(self, domain: int, bins: Sequence[Bin]) -> None:
        self.nodes = members(domain)[::-1]
        self.start: Slack = tuple([need.total(each.nodes) - need.amount for each in bins for need in each.needs])
        self.price = [[need.weights[node] for node in self.nodes] for each in bins for need in each.needs]
        self.spans: list[range] = []
        for each in bins:
            column = self.spans[-1].stop if self.spans else 0
            self.spans.append(range(column, column + len(each.needs)))
        self._scale = [_UNIT // max(slack, 1) for slack in self.start]
        self._common = [
            [sum([self.price[d][i] * self._scale[d] for d in span]) for i in range(len(self.nodes))]
            for span in self.spans
        ]
        self._cheapest = [min(column) for column in zip(*self._common, strict=True)]
        self._sums: dict[tuple[int, int], list[int]] = {}
        self._share(bins, domain)
        self.kinds = [  # bins of one kind differ in their slack only
            b if self.linked[b] else next(k for k, other in enumerate(bins) if other.needs == each.needs)
            for b, each in enumerate(bins)
        ]

    def _share(self, bins: Sequence[Bin], domain: int) -> None:
        """A shared amount is lost with the last of its nodes; with one outside the domain it never is."""
        self.shared: list[list[tuple[int, int, int]]] = []  # by bin: (nodes, amount, column)
        for each, span in zip(bins, self.spans, strict=True):
            groups = [
                (nodes & each.nodes, amount, d)
                for d, need in zip(span, each.needs, strict=True)
                for nodes, amount in need.shared
            ]
            self.shared.append([group for group in groups if group[0] and not group[0] & ~domain])
        self.linked = [0] * len(bins)  # by bin: all nodes whose going may cost a shared amount
        most = [0] * len(self.start)
        for b, groups in enumerate(self.shared):
            for nodes, amount, d in groups:
                self.linked[b] |= nodes
                most[d] += amount
        self.payable = [most]  # by rank: what each column can still lose; more slack than that is no use
        for prices in reversed(list(zip(*self.price, strict=True)) or [()] * len(self.nodes)):
            self.payable.append([left + price for left, price in zip(self.payable[-1], prices, strict=True)])
        self.payable.reverse()

    def affordable(self, at: int, drops: int, slack: Slack) -> bool:
        """Whether the cheapest drops from a rank on fit: of one bin column by column, and of all in one price."""
        if not self.spans:
            return False
        have = sum([left * scale for left, scale in zip(slack, self._scale, strict=True)])
        if self._smallest(-1, at)[drops] > have:
            return False
        if len(self.spans) > 1:
            return True
        return all(self._smallest(d, at)[drops] <= left for d, left in enumerate(slack))

    def _smallest(self, column: int, at: int) -> list[int]:
        """Sums of the 0, 1, 2, ... smallest prices from a rank on; column -1 is the common price."""
        sums = self._sums.get((column, at))
        if sums is None:
            prices = self._cheapest if column < 0 else self.price[column]
            sums = [0]
            for price in sorted(prices[at:]):
                sums.append(sums[-1] + price)
            self._sums[column, at] = sums
        return sums

    def droppers(self, at: int, slack: Slack) -> Iterable[int]:
        """The bins worth trying for a node, cheapest first: one that pays nothing is enough; of equal ones, one."""
        if len(self.spans) == 1:
            return (0,)
        bit = 1 << self.nodes[at]
        chosen: dict[tuple[int, ...], int] = {}
        for b in sorted(range(len(self.spans)), key=lambda b: self._common[b][at]):
            if not self._common[b][at] and not self.linked[b] & bit:
                return (b,)
            chosen.setdefault((self.kinds[b], *[slack[d] for d in self.spans[b]]), b)
        return chosen.values()

    def pay(self, b: int, at: int, slack: Slack, gone: tuple[int, ...]) -> tuple[Slack, tuple[int, ...]]:
        """The slack, and the linked nodes gone by bin, after bin b has dropped a node."""
        paid = list(slack)
        for d in self.spans[b]:
            paid[d] -= self.price[d][at]
        bit = 1 << self.nodes[at]
        if self.linked[b] & bit:
            dropped = gone[b] | bit
            for nodes, amount, d in self.shared[b]:
                if nodes & bit and not nodes & ~dropped:
                    paid[d] -= amount
            gone = (*gone[:b], dropped, *gone[b + 1 :])
        return tuple(paid), gone

    def one_bin_drops(self, at: int, end: int, slack: Slack) -> bool:
        """Whether some bin alone can drop all nodes from rank `at` up to `end`."""
        return any(
            not self.linked[b] and all(sum(self.price[d][at:end]) <= slack[d] for d in span)
            for b, span in enumerate(self.spans)
        )

    def looks(self, at: int) -> tuple[int, ...]:
        """Everything about a node that any bin can see: nodes that look alike can take each other's place."""
        node = self.nodes[at]
        marks = [nodes >> node & 1 for groups in self.shared for nodes, _, _ in groups]
        return (*[prices[at] for prices in self.price], *marks)
