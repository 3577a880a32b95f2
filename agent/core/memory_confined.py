"""What confined pods may use of a node's memory, as the memory manager sees it (numalign.io/align: numa,memory).

Used by `agent.core.memory` under Compatibility.FIXED. A confined pod's limit is not granted in the books, since its
bytes are not its own, but it may use them there and nowhere else: a Guaranteed pod that was granted the same bytes
could run the node out of memory. The kubelet knows no such pods, so Compatibility.KUBELET never comes here.
"""

from __future__ import annotations

from dataclasses import replace

from agent.core.confine import limits
from agent.model.ledger import Ledger, NodeBook
from agent.model.outcome import Refusal

_MEMORY = "memory"


class Seen:
    """A ledger in whose memory books the limits of confined pods count as granted.

    Attributes:
        ledger: with these books; the very same ledger where no pod is confined with its memory.
    """

    def __init__(self, ledger: Ledger, uid: str) -> None:
        self._before = ledger
        used = limits(ledger, but=uid)  # a pod never stands in its own way
        # Never more than is free: after memory was lost, limits and grants together may exceed a node.
        self._kept = {book.id: max(0, min(used[book.id], book.free(_MEMORY))) for book in ledger.memory.nodes}
        self.ledger = self._with(ledger, 1) if any(self._kept.values()) else ledger

    def undone(self, after: Ledger | Refusal) -> Ledger | Refusal:
        """What came of this ledger, with the limits taken out of its books again."""
        if isinstance(after, Refusal) or self.ledger is self._before:
            return after
        return self._before if after is self.ledger else self._with(after, -1)

    def _with(self, ledger: Ledger, sign: int) -> Ledger:
        nodes = tuple(_more(book, sign * self._kept.get(book.id, 0)) for book in ledger.memory.nodes)
        return replace(ledger, memory=replace(ledger.memory, nodes=nodes))


def _more(book: NodeBook, size: int) -> NodeBook:
    if not size:
        return book
    return replace(book, reserved={**book.reserved, _MEMORY: book.reserved.get(_MEMORY, 0) + size})
