"""One node's engine without its effects: the same decisions in the same order, for `simulate`.

Deciding, the line of those that wait, and what an end lets in are the engine's own functions
(`agent.engine.deciding`, `agent.engine.line`); only cgroups, the saved file and whoever is told are missing, and the
clock is the caller's. A property test holds both against each other. Not thread-safe.
"""

from __future__ import annotations

from collections.abc import Iterable

from agent.core.admission.node import Node
from agent.engine.deciding import asked, decided
from agent.engine.effects import Exempt
from agent.engine.known import SWITCHES, Known, Switches
from agent.engine.line import FINAL, crowded_out, line_of, turn, waits
from agent.model.ledger import Ledger
from agent.model.pod import ContainerKind, Pod


class Rehearsal:
    """One node.

    Args:
        node: the managers; may be shared by many nodes of one kind.
        switches: the engine's own settings.
        exempt: which pods are left alone.
    """

    def __init__(self, node: Node, switches: Switches = SWITCHES, exempt: Exempt = lambda _pod: "") -> None:
        self.node, self.switches, self._exempt = node, switches, exempt
        self.ledger: Ledger = node.start()
        self.known: dict[str, Known] = {}
        self._started: set[str] = set()

    def see(self, pod: Pod, now: float) -> None:
        """A pod is bound to this node. `now` counts seconds from any beginning, and is above 0."""
        known = Known(pod, asked(self.node, pod), exempt=self._exempt(pod), since=now)
        self.ledger, known = decided(
            self.node, self.ledger, known, given=None, unwritable="", switches=self.switches,
            line=line_of(self.known, self.node.rules, but=pod.uid), now=now,
        )  # fmt: skip
        self.known[pod.uid] = known
        self.known |= crowded_out(self.known, self.node.rules, self.switches.most_waiting)
        self.pass_time(now)

    def end(self, uids: Iterable[str], now: float) -> None:
        """Pods are gone, their cgroups too: what they held is free, and those that wait are tried."""
        for uid in sorted(uids):
            self.ledger = self.node.release(self.ledger, uid)
            self.known.pop(uid, None)
            self._started.discard(uid)
        self.pass_time(now)

    def pass_time(self, now: float) -> None:
        """Whoever is in starts; those that wait are tried; who has waited too long is refused for good."""
        self._start()
        while line_of(self.known, self.node.rules):
            before = self.ledger
            found = turn(self.node, before, self.known, self.switches, {}, now)
            self.ledger, self.known = found.ledger, {**self.known, **found.changed}
            self._start()
            if self.ledger == before:
                return

    def _start(self) -> None:
        """All containers of who came in start at once, in order: what only init containers held is free again."""
        for uid in [each for each in self.ledger.pods if each not in self._started]:
            self._started.add(uid)
            containers = self.ledger.pods[uid].pod.containers
            if any(each.kind is ContainerKind.INIT for each in containers):
                for each in containers:
                    self.ledger = self.node.container_started(self.ledger, uid, each.name)

    def runs(self, uid: str) -> bool:
        """Whether the pod is in, with or without what it wanted."""
        return uid in self.ledger.pods

    def waits(self, uid: str) -> bool:
        """Whether the pod stands in line."""
        known = self.known.get(uid)
        if known is None or known.refusal is None or self.runs(uid):
            return False
        return FINAL not in known.refusal.facts and waits(known, self.node.rules)
