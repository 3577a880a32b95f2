"""What confined pods may use of a node's memory, as the memory manager sees it (numalign.io/align: numa,memory).

Used by `agent.core.memory.provider` under Compatibility.FIXED. A confined pod's limit is not granted in the books,
since its bytes are not its own, but it may use them there and nowhere else: a Guaranteed pod that was granted the
same bytes could run the node out of memory. The kubelet knows no such pods, so Compatibility.KUBELET never comes
here.

The scheduler counts a pod's request, not its limit. So one that may use more than it requests keeps no pod out: where
a newcomer would be refused otherwise, such pods are left unbound, the latest first (`yielding`). Their pages stay.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from agent.core.confine import limits
from agent.core.request.amounts import pod_requests
from agent.model.ledger import Confinement, Ledger, NodeBook, PodRecord
from agent.model.outcome import Refusal
from agent.model.quantity import units

UNBOUND = "its memory is not bound"
"""How the reason of a container begins whose pod is left unbound."""
YIELDED = "another pod needs what it may use beyond its request"
_MEMORY = "memory"


def yielding(ledger: Ledger) -> Iterator[Ledger]:
    """The ledger with pods left unbound that may use more than they request: all, the latest, the two latest, ..."""
    able = [uid for uid, each in ledger.cpus.confined.items() if _beyond(ledger, uid, each)]
    latest = sorted(able, key=lambda uid: (-ledger.pods[uid].pod.created, uid))
    for count in (len(latest), *range(1, len(latest))) if latest else ():
        pods = {uid: _unbound(ledger.pods[uid]) for uid in latest[:count]}
        yield replace(ledger, pods={**ledger.pods, **pods})


def _beyond(ledger: Ledger, uid: str, confinement: Confinement) -> bool:
    record = ledger.pods.get(uid)
    if record is None or not record.bind_memory or not confinement.memory:
        return False
    return sum(size for _, size in confinement.limit) > units(pod_requests(record.pod).get(_MEMORY, 0))


def _unbound(record: PodRecord) -> PodRecord:
    names = [each.name for each in record.pod.containers]
    why = {**record.why, **dict.fromkeys(names, f"{UNBOUND}: {YIELDED}")}
    return replace(record, bind_memory=False, why=why, aligned={**record.aligned, **dict.fromkeys(names, False)})


class CountedLedger:
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
