"""Masks: sets of NUMA nodes as plain ints over node *positions*, for the code that handles millions of them.

The position of a node is the rank of its id on the machine. Rank keeps "fewer bits" and "smaller integer", the two
comparisons the kubelet makes (rule 3.1: masks and their order), so a machine whose ids have holes, or reach 255,
needs nothing else, and a table of weights or distances is indexed without gaps. Ids come back only in what leaves the
room (`NodeSet`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache

from agent.model.idset import NodeSet


@lru_cache(maxsize=4096)
def members(mask: int) -> tuple[int, ...]:
    """The positions in a mask, ascending."""
    return tuple(j for j in range(mask.bit_length()) if mask >> j & 1)


@dataclass(frozen=True)
class Positions:
    """The machine's NUMA node ids, ascending; index = position."""

    ids: tuple[int, ...]

    @classmethod
    def of(cls, nodes: Iterable[int]) -> Positions:
        """Positions of the ids in an iterable (a NodeSet, Machine.by_node, ...), in any order."""
        return cls(tuple(sorted(set(nodes))))

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def everything(self) -> int:
        """The mask of all nodes."""
        return (1 << len(self.ids)) - 1

    @cached_property
    def rank(self) -> dict[int, int]:
        """Position by node id."""
        return {node: j for j, node in enumerate(self.ids)}

    @cached_property
    def _dense(self) -> bool:
        return self.ids == tuple(range(len(self.ids)))

    def mask(self, nodes: NodeSet) -> int:
        """The mask of a set of ids.

        An id that the machine lacks keeps a bit of its own, above all positions: the kubelet compares hints for
        equality, and counts their nodes, *before* it drops such ids (kubelet rules 3.4: the merge, 3.5: the
        best combination).
        """
        if self._dense:
            return nodes.bits
        width, rank = len(self.ids), self.rank
        return sum(1 << (rank[node] if node in rank else width + node) for node in nodes)

    def nodes(self, mask: int) -> NodeSet:
        """The ids of a mask; bits above the positions (ids that the machine lacks) are dropped."""
        if self._dense:
            return NodeSet(mask & self.everything)
        return NodeSet.from_ids(self.ids[j] for j in members(mask & self.everything))
