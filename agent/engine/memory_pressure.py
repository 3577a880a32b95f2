"""Check decisions against the nodes' real memory (safety.md S7). Used by `agent.engine.engine` only.

Nothing is read for a pod whose memory is not bound. Under `onMemoryShortage: open` the figures are read only for pods
that wish to be bound themselves. A failed read is reported once: until a read succeeds, memory is bound by the
ledger's books alone, and no pod's own wish is followed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from agent.core.admission.node import Node
from agent.core.admission.pressure import Pressure, PressureCheck, bound, judged, to_judge, unjudged
from agent.engine.ports import CgroupTree
from agent.errors import HostError
from agent.model.cgroup import Level
from agent.model.ledger import Ledger
from agent.model.outcome import Admitted, Outcome
from agent.model.pod import Pod

Room = Callable[[Iterable[int]], Mapping[int, int]]
"""Node ids -> bytes of each node that are free or can be reclaimed; raises HostError."""


class MemoryPressure:
    """Makes checks of admissions.

    Args:
        room: reads the kernel's figures; None where there are none (a recorded machine).
        cgroups: the tree.
        problem: called with the first failed read; again only after a read that succeeded.
    """

    def __init__(self, room: Room | None, cgroups: CgroupTree, problem: Callable[[str], None]) -> None:
        self._room = room
        self._cgroups = cgroups
        self._problem = problem
        self._wrong = ""

    def judge(self) -> PressureCheck:
        """Make the check for the decisions of one event: it reads at the first need, and for each pod that ran."""
        room = self._room
        if room is None:
            return unjudged
        seen: list[Pressure | None] = []

        def judge(node: Node, before: Ledger, outcome: Outcome, pod: Pod, *, ran: bool = False) -> Outcome:
            if not isinstance(outcome, Admitted) or not to_judge(node, before, outcome, pod, ran=ran):
                return outcome
            if ran or not seen:  # one that ran has touched memory already
                seen[:] = [self._look(room, node, outcome.ledger)]
            return judged(node, before, outcome, pod, seen[0], ran=ran)

        return judge

    def _look(self, room: Room, node: Node, ledger: Ledger) -> Pressure | None:
        """Read the kernel's figures; None where they cannot be read, which is reported."""
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
                self._problem(
                    "onMemoryShortage has no effect now: memory is bound by the ledger's books, and no pod's by its "
                    f"own wish: {error}"
                )
            self._wrong = str(error)
            return None
        self._wrong = ""
        return pressure
