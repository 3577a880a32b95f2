"""The arithmetic of the memory books: taking bytes from NUMA nodes and giving them back.

Kubelet rules 5.2 (books), 5.6 (allocation), 5.7 (release).

Used by `agent.core.memory.provider` and its parts. Per node and resource, what the system keeps, what is granted and
what is free always add up to the total. The nodes of one block are its *group*; a node counts its users, one per
block that names it, and belongs to no group but its own when it has none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from agent.model.idset import NodeSet
from agent.model.ledger import Block, MemoryBooks, NodeBook
from agent.model.machine import Machine
from agent.model.rules import MemoryRules

Split = dict[int, int]
"""Bytes by node id."""


def empty_books(machine: Machine, rules: MemoryRules) -> MemoryBooks:
    """The books of a machine on which nothing is granted; no nodes under policy None.

    The system never keeps more than there is: a machine may have less memory than when its reservation was checked.
    """
    if not rules.static:
        return MemoryBooks()
    books = []
    for node in machine.nodes:
        kept = rules.reserved.get(node.id, {})
        total = node.resources
        system = {name: min(kept.get(name, 0), amount) for name, amount in total.items()}
        books.append(NodeBook(node.id, 0, NodeSet.of(node.id), total, system, dict.fromkeys(total, 0)))
    return MemoryBooks(nodes=tuple(books))


class Draft:
    """The node books while one change is made; `nodes` is the result.

    Args:
        books: what to start from.
        exact: remember from which node each byte came, and give it back there (Compatibility.FIXED). Otherwise, as
            in the kubelet, bytes return to the lowest nodes first, so that only the sums of groups mean anything.
    """

    def __init__(self, books: Iterable[NodeBook], *, exact: bool) -> None:
        self._books = {book.id: book for book in books}
        self._exact = exact

    @property
    def nodes(self) -> tuple[NodeBook, ...]:
        """The books now."""
        return tuple(self._books.values())

    def take(self, block: Block, amount: int, reused: Mapping[int, int] | None = None) -> Block:
        """Enter a block: `amount` new bytes from its nodes, lowest id first; the rest is reused.

        Args:
            block: with all its bytes, new and reused.
            amount: new bytes; the caller knows that they are free.
            reused: from which nodes the reused bytes are, if known.

        Returns:
            The block, with its split under exact books.
        """
        split = dict(reused or {})
        left = amount
        for node in block.nodes:
            book = self._books.get(node)
            if book is None:
                continue
            part = min(left, max(0, book.free(block.resource)))
            left -= part
            if part:
                split[node] = split.get(node, 0) + part
            self._books[node] = replace(_with(book, block.resource, part), users=book.users + 1, group=block.nodes)
        return replace(block, split=tuple(sorted(split.items()))) if self._exact else block

    def enter(self, block: Block) -> Block | None:
        """Enter a block that was granted before, all of it new, each byte on its own node where there is room.

        For a ledger carried over to another machine or other settings. None, and nothing entered, where a node is
        gone or the nodes together have too little.
        """
        books = [self._books.get(node) for node in block.nodes]
        if not books or None in books:
            return None
        free = {book.id: max(0, book.free(block.resource)) for book in books if book}
        if sum(free.values()) < block.size:
            return None
        if self._exact and block.split and all(free[node] >= part for node, part in block.split):
            for node, part in block.split:
                self._books[node] = _with(self._books[node], block.resource, part)
            return self.take(block, 0, dict(block.split))
        return self.take(replace(block, split=()), block.size)

    def give(self, block: Block) -> None:
        """Take a block out again: its bytes are free, its nodes have one user less."""
        own = dict(block.split)
        left = block.size
        for node in block.nodes:
            left -= self._free(node, block.resource, min(own.get(node, 0), left))
            self._leave(node)
        for node in self._rest(block) if left else ():
            left -= self._free(node, block.resource, left)

    def _rest(self, block: Block) -> list[int]:
        """Where else to give bytes back, without a split or where the books no longer have what it says.

        From the lowest of its nodes up, as the kubelet does. Then elsewhere, unused nodes first: after a single user
        of a node of a group (defect D5), the group may have given back bytes of the single. The kubelet keeps its
        books wrong then.
        """
        others = sorted(self._books, key=lambda node: (self._books[node].users > 0, node))
        return [*block.nodes, *others]

    def _free(self, node: int, resource: str, amount: int) -> int:
        """Free up to `amount` bytes on a node; how many that were."""
        book = self._books.get(node)
        part = min(amount, book.reserved.get(resource, 0)) if book else 0
        if book and part:
            self._books[node] = _with(book, resource, -part)
        return part

    def _leave(self, node: int) -> None:
        book = self._books.get(node)
        if book is not None:
            users = max(0, book.users - 1)
            self._books[node] = replace(book, users=users, group=book.group if users else NodeSet.of(node))


def cut(block: Block, amount: int) -> tuple[Block, Split]:
    """Take bytes out of a block that another container reuses, lowest node first; where these bytes lie."""
    left, kept, gone = amount, [], Split()
    for node, part in block.split:
        moved = min(part, left)
        left -= moved
        if moved:
            gone[node] = moved
        if part > moved:
            kept.append((node, part - moved))
    return replace(block, size=block.size - amount, split=tuple(kept)), gone


def _with(book: NodeBook, resource: str, amount: int) -> NodeBook:
    """A node's book with more bytes granted, or fewer."""
    if not amount:
        return book
    return replace(book, reserved={**book.reserved, resource: book.reserved.get(resource, 0) + amount})
