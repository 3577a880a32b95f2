"""Where memory for one request could lie: the kubelet's hint rules as a Demand (kubelet rule 5.4), and its mends.

Used by `agent.core.memory.choose`. A node is used by containers that lie on it alone, or by one group of nodes,
never by both: a *single* may join singles on one node, a group only itself, unused nodes anything. A placement
answers which node sets will do (`demand`), whether one will (`accepts`), and which nodes a block then names
(`place`), which differ where memory lies on nodes without CPUs (`agent.core.memory.beyond`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from agent.core.merge.demand import Demand, capacity_size
from agent.core.merge.masks import Positions, members
from agent.core.merge.needs import Family, Need
from agent.model.idset import NodeSet
from agent.model.ledger import NodeBook


@dataclass(frozen=True, slots=True)
class Table:
    """The books by node position, as far as one request needs them.

    Attributes:
        request: bytes by resource.
        allocatable, free: resource -> bytes by node.
        used: mask of the nodes with users.
        groups: by node, the mask of its group.
        reusable: mask -> resource -> bytes that earlier init containers of the pod leave on exactly these nodes.
    """

    request: Mapping[str, int]
    allocatable: Mapping[str, tuple[int, ...]]
    free: Mapping[str, tuple[int, ...]]
    used: int
    groups: tuple[int, ...]
    reusable: Mapping[int, Mapping[str, int]] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        books: Iterable[NodeBook],
        positions: Positions,
        request: Mapping[str, int],
        reusable: Mapping[tuple[NodeSet, str], int],
    ) -> Table:
        """Read the books. A row that is missing counts as none of the resource (defect D8)."""
        books = tuple(books)
        left: dict[int, dict[str, int]] = {}
        for (nodes, resource), amount in reusable.items():
            if amount:
                left.setdefault(positions.mask(nodes), {})[resource] = amount
        return cls(
            request,
            {name: tuple([book.allocatable(name) for book in books]) for name in request},
            {name: tuple([book.free(name) for book in books]) for name in request},
            sum([1 << j for j, book in enumerate(books) if book.users]),
            tuple([positions.mask(book.group) for book in books]),
            left,
        )

    def fits(self, mask: int, *, reuse: bool = True) -> bool:
        """Whether what is free on the nodes, with what may be reused there, is enough of every resource."""
        spare = self.reusable.get(mask) if reuse else None
        return _enough(self.free, self.request, mask, spare)

    def has_room(self, mask: int) -> bool:
        """Return True if the nodes could serve the request without any other pod."""
        return _enough(self.allocatable, self.request, mask)

    def may_group(self, mask: int) -> bool:
        """Whether the group rule lets a block name these nodes."""
        nodes = members(mask)
        if len(nodes) == 1:
            return not self.groups[nodes[0]] & (self.groups[nodes[0]] - 1)
        return not self.breaks_group(mask)

    def breaks_group(self, mask: int) -> bool:
        """Whether several nodes include one that singles use, or that belongs to another group."""
        if not mask & (mask - 1):
            return False
        return any(self.groups[j] != mask for j in members(mask & self.used))

    def in_use(self) -> set[int]:
        """The masks of all groups that are in use, single nodes among them."""
        return {self.groups[j] for j in members(self.used)}


def _enough(
    amounts: Mapping[str, tuple[int, ...]],
    request: Mapping[str, int],
    mask: int,
    spare: Mapping[str, int] | None = None,
) -> bool:
    """Whether the nodes' amounts, with what is to spare, reach every amount of a request."""
    nodes = members(mask)
    for name, own in amounts.items():
        missing = request[name] - sum([own[j] for j in nodes])
        if missing > 0 and (not spare or missing > spare.get(name, 0)):
            return False
    return True


class Placement(Protocol):
    """Where one request could lie."""

    @property
    def table(self) -> Table:
        """The books and the request."""

    @property
    def domain(self) -> int:
        """Mask of the nodes that a demand's masks are made of."""

    def demand(self) -> Demand | None:
        """All masks that will do; None when none does."""

    def accepts(self, mask: int) -> bool:
        """Whether a mask of nodes of the domain is one of the demand's."""

    def place(self, mask: int) -> int:
        """The nodes that a block for an accepted mask names."""


class Plain:
    """The kubelet's own rule, over all nodes or (tier local) over those with CPUs.

    Args:
        table: books and request.
        domain: mask of the nodes that count.
    """

    def __init__(self, table: Table, domain: int) -> None:
        self.table = table
        self.domain = domain

    def demand(self) -> Demand | None:
        """All masks that will do; None when none does."""
        table, domain = self.table, self.domain
        size = _fewest(domain, table)
        if size == 0:
            return None
        unused = domain & ~table.used
        several = Need(2, (1,) * len(table.groups))
        family = Family(unused, (several, *_needs(table.request, table.free)))
        named = {1 << j for j in members(domain)} | table.in_use() | set(table.reusable)
        fixed = {mask: mask.bit_count() == size for mask in sorted(named) if self.accepts(mask)}
        whole = family if family.possible else None
        return Demand(whole, size, fixed) if whole or fixed else None

    def accepts(self, mask: int) -> bool:
        """Whether a mask is one of the demand's."""
        if not mask or mask & ~self.domain:
            return False
        return self.table.has_room(mask) and self.table.may_group(mask) and self.table.fits(mask)

    def place(self, mask: int) -> int:
        """The mask's nodes."""
        return mask


def _needs(request: Mapping[str, int], amounts: Mapping[str, tuple[int, ...]]) -> tuple[Need, ...]:
    return tuple([Need(request[name], own) for name, own in amounts.items()])


def _fewest(domain: int, table: Table) -> int | None:
    """Node count of the smallest mask by capacity, all resources together; 0 when even all nodes are too small."""
    return capacity_size(Family(domain, _needs(table.request, table.allocatable)))
