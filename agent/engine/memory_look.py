"""Looks at the nodes' real memory when a decision needs it (safety.md S7). Used by `agent.engine.effects` only.

Under `onMemoryShortage: open`, and for pods whose memory is not bound, nothing is read. What cannot be read is told
once, and nothing is held against it: memory is then bound by the ledger's books alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from agent.core.admit import Node
from agent.core.shortage import Judge, Pressure, bound, judged, unjudged
from agent.engine.ports import Cgroups
from agent.errors import HostError
from agent.model.cgroup import Level
from agent.model.ledger import Ledger
from agent.model.outcome import Admitted, Outcome
from agent.model.pod import Pod
from agent.model.rules import OnMemoryShortage

Room = Callable[[Iterable[int]], Mapping[int, int]]
"""Node ids -> bytes that are free or can be reclaimed, of each; raises HostError."""


class MemoryLook:
    """Makes judges of admissions.

    Args:
        room: the kernel's word; None where there is none (a recorded machine).
        cgroups: the tree.
        problem: told what cannot be read, once until it can be again.
    """

    def __init__(self, room: Room | None, cgroups: Cgroups, problem: Callable[[str], None]) -> None:
        self._room, self._cgroups, self._problem = room, cgroups, problem
        self._wrong = ""

    def judge(self) -> Judge:
        """A judge for the decisions of one event: it looks when the first of them needs it, and for each that ran."""
        room = self._room
        if room is None:
            return unjudged
        seen: list[Pressure | None] = []

        def judge(node: Node, before: Ledger, outcome: Outcome, pod: Pod, *, ran: bool = False) -> Outcome:
            if node.rules.on_memory_shortage is OnMemoryShortage.OPEN or not isinstance(outcome, Admitted):
                return outcome
            if not any(bound(outcome.ledger, outcome.ledger.pods[pod.uid], node.rules)):
                return outcome
            if ran or not seen:  # one that ran has touched memory already
                seen[:] = [self._look(room, node, outcome.ledger)]
            return outcome if seen[0] is None else judged(node, before, outcome, pod, seen[0], ran=ran)

        return judge

    def _look(self, room: Room, node: Node, ledger: Ledger) -> Pressure | None:
        """What the kernel says now; None where it cannot be understood."""
        holders = {uid for uid, record in ledger.pods.items() if any(bound(ledger, record, node.rules))}
        try:
            observed = self._cgroups.observe() if holders else None
            touched = {
                each.pod_uid: self._cgroups.touched(each.path)
                for each in (observed.cgroups if observed else ())
                if each.level is Level.POD and each.pod_uid in holders
            }
            pressure = Pressure(room(node.machine.node_set), touched)
        except HostError as error:
            if not self._wrong:
                self._problem(f"onMemoryShortage has no effect now, memory is bound by the ledger's books: {error}")
            self._wrong = str(error)
            return None
        self._wrong = ""
        return pressure
