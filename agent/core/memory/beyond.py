"""Memory on NUMA nodes without CPUs, offered to the CPU nodes near to it: the tiers any and far.

Used by `agent.core.memory.choose` under Compatibility.FIXED, where a container asks for exclusive CPUs. Such memory
is an amount that all its near CPU nodes share, so demands stay sums (`agent.core.merge.demand`) and the merge stays
exact.
"""

from __future__ import annotations

from collections.abc import Iterable

from agent.core.machines.tiers import Reach
from agent.core.memory.hints import Table
from agent.core.merge.demand import Demand, capacity_size
from agent.core.merge.masks import members
from agent.core.merge.needs import Family, Need


class Widened:
    """Tier any: the CPU nodes' own memory first, then that of nodes without CPUs near to them."""

    def __init__(self, table: Table, reach: Reach) -> None:
        self.table = table
        self.domain = reach.hosts
        self._reach = reach

    def demand(self) -> Demand | None:
        """All masks that will do; None when none does."""
        table, reach = self.table, self._reach
        idle = [node for node in reach.near if not table.used >> node & 1]
        capacity = [
            _shared_need(reach, table.request[name], own, reach.near) for name, own in table.allocatable.items()
        ]
        size = capacity_size(Family(reach.hosts, tuple(capacity)))
        if size == 0:
            return None
        needs = [_shared_need(reach, table.request[name], free, idle) for name, free in table.free.items()]
        family = Family(reach.hosts & ~table.used, tuple(needs))
        named = {group & reach.hosts for group in table.in_use()} - {0}
        fixed = {mask: mask.bit_count() == size for mask in named if self.accepts(mask)}
        whole = family if family.possible else None
        return Demand(whole, size, fixed) if whole or fixed else None

    def accepts(self, mask: int) -> bool:
        """Whether a mask of nodes of the domain is one of the demand's."""
        return bool(mask) and self._nodes(mask) != 0

    def place(self, mask: int) -> int:
        """The mask's nodes and those without CPUs that are needed, nearest first."""
        return self._nodes(mask)

    def _nodes(self, mask: int) -> int:
        table = self.table
        if mask & table.used:
            group = table.groups[members(mask & table.used)[0]]
            same = group & self._reach.hosts == mask
            return group if same and table.may_group(group) and table.fits(group) else 0
        if table.fits(mask):
            return mask
        for node in self._reach.beside(mask):
            if not table.used >> node & 1:
                mask |= 1 << node
                if table.fits(mask):
                    return mask
        return 0


class Far:
    """Tier far: only memory of nodes without CPUs, named by the CPU nodes near to it."""

    def __init__(self, table: Table, reach: Reach) -> None:
        self.table = table
        self.domain = reach.hosts
        self._reach = reach

    def demand(self) -> Demand | None:
        """All masks that will do; None when none does.

        A node or group that is enough alone counts with all that is asked for, an unused node with what it has, the
        others with nothing: a sum reaches the request exactly when one is enough, or the unused ones together are.
        """
        table, reach = self.table, self._reach
        zeros = (0,) * len(table.groups)
        capacity = [
            Need(table.request[name], zeros, _merged((reach.near[z], own[z]) for z in reach.near))
            for name, own in table.allocatable.items()
        ]
        size = capacity_size(Family(reach.hosts, tuple(capacity)))
        if size == 0:
            return None
        enough = [group for group in self._alone() if table.fits(group)]
        idle = [z for z in reach.near if not table.used >> z & 1]
        needs = [
            Need(
                table.request[name],
                zeros,
                _merged(
                    [(reach.folded(g), table.request[name]) for g in enough]
                    + [(reach.near[z], free[z]) for z in idle]
                ),
            )
            for name, free in table.free.items()
        ]
        family = Family(reach.hosts, tuple(needs))
        return Demand(family, size) if family.possible else None

    def accepts(self, mask: int) -> bool:
        """Whether a mask of nodes of the domain is one of the demand's."""
        return bool(mask) and self._nodes(mask) != 0

    def place(self, mask: int) -> int:
        """The nearest node or group that is enough, else the unused nodes that are needed, nearest first."""
        return self._nodes(mask)

    def _alone(self) -> list[int]:
        """Masks that one block could name without any further node: singles, and groups of nodes without CPUs."""
        table, hosts = self.table, self._reach.hosts
        singles = [1 << z for z in self._reach.near if table.may_group(1 << z)]
        groups = [g for g in sorted(table.in_use()) if g & (g - 1) and not g & hosts and table.may_group(g)]
        return singles + groups

    def _nodes(self, mask: int) -> int:
        table = self.table
        alone = {group for group in self._alone() if table.fits(group)}
        beside = self._reach.beside(mask)
        for node in beside:
            for group in sorted(alone):
                if group >> node & 1:
                    return group
        together = 0
        for node in beside:
            if not table.used >> node & 1:
                together |= 1 << node
                if table.fits(together):
                    return together
        return 0


def _shared_need(reach: Reach, amount: int, own: tuple[int, ...], lent: Iterable[int]) -> Need:
    """A sum over CPU nodes, which alone a mask names, to which nodes without CPUs lend what they have, once."""
    return Need(amount, own, _merged((reach.near[node], own[node]) for node in lent))


def _merged(pairs: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Shared amounts by mask, sorted."""
    total: dict[int, int] = {}
    for mask, amount in pairs:
        if amount:
            total[mask] = total.get(mask, 0) + amount
    return tuple(sorted(total.items()))
