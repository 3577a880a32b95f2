"""Demand: which node sets would do for one resource, described instead of listed.

The kubelet's managers answer with a list of hints, one for each of up to 2^n node sets, and its Topology Manager then
walks the product of the lists: 8 nodes and 3 lists take seconds, 64 nodes never end. But the lists are regular. They
follow from a few sums (kubelet rules 4.5, 5.4, 6.2: hints of CPUs, memory, devices), so a provider here states the
sums:

    Need    "the amounts of the nodes must reach `amount`": 6 free CPUs, 4 GiB of free memory, 2 free GPUs
    Family  all masks within a domain that serve every Need; with a mask, all larger ones within the domain are in it
    Demand  a family, the node count that makes a mask of it preferred, and single masks named one by one

For 6 CPUs where nodes 0..3 have 8 CPUs each, and 8, 2, 3 and 8 free::

    Demand(Family(domain=0b1111, needs=(Need(6, (8, 2, 3, 8)),)), size=1)

stands for the hints {0}p {3}p {0,1}n {0,2}n {0,3}n {1,3}n {2,3}n ... and `listed` writes them out in the kubelet's
own order. `size` comes from capacity, not from what is free::

    fewest(Family(0b1111, (Need(6, (8, 8, 8, 8)),)), Budget()) == 1

Three names for three things (`agent.model.hint`): a provider that has nothing to say about a resource answers
NO_PREFERENCE; one that finds no node set at all answers IMPOSSIBLE, never a Demand without masks.

All masks are ints over node positions (`agent.core.merge.masks`). Built by the providers, read by
`agent.core.merge.merge`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate, combinations

from agent.core.merge.masks import Positions, members
from agent.core.merge.needs import Budget, Family, Need
from agent.core.merge.order import Order
from agent.core.merge.search import Bin, Search
from agent.model.hint import IMPOSSIBLE, NO_PREFERENCE, Hint

__all__ = [
    "IMPOSSIBLE",
    "NO_PREFERENCE",
    "Budget",
    "Demand",
    "Family",
    "Need",
    "Positions",
    "capacity_size",
    "fewest",
    "listed",
    "members",
]

LISTABLE = 16
"""More nodes than this are never listed: 2^n hints are too many."""


@dataclass(frozen=True, slots=True)
class Demand:
    """The hints of one resource.

    Attributes:
        family: the masks that will do; None when `fixed` names them all.
        size: node count of the family's preferred masks; None when it is not known (a bound was hit): none of the
            family's masks is preferred then.
        fixed: masks named one by one, with whether they are preferred, besides those of the family; a mask that both
            name is preferred if either says so.
        sockets: with align-by-socket, the masks of all sockets; a mask of the family that touches exactly `touched`
            of them is preferred too.
        touched: see `sockets`.
        optional: whether the kubelet's list also has a hint without nodes, and if so, whether that one is preferred.
            No provider of the agent has one.
    """

    family: Family | None = None
    size: int | None = None
    fixed: Mapping[int, bool] = field(default_factory=dict)
    sockets: tuple[int, ...] = ()
    touched: int = 0
    optional: bool | None = None

    @property
    def possible(self) -> bool:
        """Whether there is any mask. A demand without one counts as IMPOSSIBLE."""
        return bool(self.fixed) or (self.family is not None and self.family.possible)

    def accepts(self, mask: int) -> bool:
        """Whether the mask is one of the hints."""
        return mask in self.fixed or (self.family is not None and self.family.holds(mask))

    def prefers(self, mask: int) -> bool:
        """Whether the mask is one of the preferred hints."""
        if self.fixed.get(mask):
            return True
        return self.family is not None and self.would_prefer(mask) and self.family.holds(mask)

    def would_prefer(self, mask: int) -> bool:
        """Whether a mask of the family with these nodes is preferred (its sums are not looked at)."""
        if mask.bit_count() == self.size:
            return True
        return bool(self.sockets) and sum(1 for socket in self.sockets if socket & mask) == self.touched


def fewest(family: Family, budget: Budget) -> int | None:
    """How many nodes the family's smallest mask has: 0 when the family is empty, None when the budget ran out."""
    if not family.possible:
        return 0
    # no mask is smaller than each need alone makes it; for one need without shared amounts, that is the answer
    least = max((_alone(family.domain, need) for need in family.needs), default=1)
    if len(family.needs) == 1 and not family.needs[0].shared:
        return least
    search = Search(family.domain, (Bin(family.needs, family.domain),), Order(), budget)
    for count in range(least, family.domain.bit_count()):
        mask, proved = search.run(count, first=True)
        if mask is not None:
            return count
        if not proved:
            return None
    return family.domain.bit_count()


def _alone(domain: int, need: Need) -> int:
    missing = need.amount - sum(amount for nodes, amount in need.shared if nodes & domain)
    if missing <= 0:
        return 1
    sums = accumulate(sorted((need.weights[j] for j in members(domain)), reverse=True))
    return next(count for count, total in enumerate(sums, 1) if total >= missing)


def listed(demand: Demand, positions: Positions) -> tuple[Hint, ...]:
    """The demand's hints in the kubelet's order: by node count, then lexicographic by position (kubelet rule 3.1).

    For explain, parity and tests; the merge never needs it. Raises ValueError above 16 nodes.
    """
    if len(positions) > LISTABLE:
        raise ValueError(f"{len(positions)} NUMA nodes are too many to list node sets (at most {LISTABLE})")
    hints = []
    for mask in enumeration(len(positions)):
        held = demand.family is not None and demand.family.holds(mask)
        if held or mask in demand.fixed:
            preferred = demand.fixed.get(mask, False) or (held and demand.would_prefer(mask))
            hints.append(Hint(positions.nodes(mask), preferred))
    return tuple(hints)


@lru_cache(maxsize=LISTABLE + 1)
def enumeration(width: int) -> tuple[int, ...]:
    """All non-zero masks over `width` positions in the kubelet's order."""
    return tuple(
        sum(1 << j for j in chosen) for count in range(1, width + 1) for chosen in combinations(range(width), count)
    )


@lru_cache(maxsize=4096)
def capacity_size(family: Family) -> int | None:
    """Node count of the family's smallest mask, 0 without any.

    Remembered: capacity changes with the machine only, and the same requests come again and again.
    """
    return fewest(family, Budget())
