"""One node's engine without its effects: the same transitions in the same order, for `simulate`.

Only cgroups, the saved file and the reports are missing (`agent.node.transitions`), and the clock is the caller's. A
property test holds both against each other. Not thread-safe.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy

from agent.core.admission.node import Node
from agent.core.admission.waiting import FINAL
from agent.model.claims import Claims
from agent.model.ledger import Ledger
from agent.model.pod import ContainerKind, Pod
from agent.node import transitions
from agent.node.state import State
from agent.node.tracked_pod import SWITCHES, Exempt, Switches, TrackedPod
from agent.node.transitions import Moment, Told, as_it_is
from agent.node.wait_queue import queue_of, waits


class DryRun:
    """One node.

    Args:
        node: the managers; may be shared by many nodes of one kind.
        switches: the engine's own settings.
        exempt: which pods are left alone.
        ledger: the grants to begin with, of pods whose containers all run; None for an empty node.
    """

    def __init__(
        self,
        node: Node,
        switches: Switches = SWITCHES,
        exempt: Exempt = lambda _pod: "",
        ledger: Ledger | None = None,
    ) -> None:
        self.node, self._exempt = node, exempt
        begun = node.start() if ledger is None else ledger
        self._state = transitions.begun(node, begun, switches, saved=False, complete=True)
        self._started = frozenset(begun.pods)

    def fork(self) -> DryRun:
        """The same node once more: what comes to one of them does not come to the other."""
        return copy(self)

    @property
    def state(self) -> State:
        """All that is known."""
        return self._state

    @property
    def ledger(self) -> Ledger:
        """The grants now."""
        return self._state.ledger

    @property
    def pods(self) -> Mapping[str, TrackedPod]:
        """Every pod that was bound to this node and has not ended, by uid."""
        return self._state.pods

    def follow(self, uid: str, claims: Claims) -> None:
        """It is known which devices a pod's claims give it; before the pod is seen."""
        self._state = transitions.claims_reported(self._state, uid, claims)

    def see(self, pod: Pod, now: float, told: Told = as_it_is) -> None:
        """A pod is bound to this node. `now` counts seconds from any beginning, and is above 0."""
        at = Moment(now, self._exempt, told=told)
        self._state = transitions.decide(self._state, pod, at, ran=False).state
        self.pass_time(now)

    def end(self, uids: Iterable[str], now: float) -> None:
        """Pods are gone, their cgroups too: what they held is free, and those that wait are tried."""
        gone = sorted(uids)
        self._state = transitions.released(self._state, gone).without(gone)
        self._started -= set(gone)
        self.pass_time(now)

    def pass_time(self, now: float) -> None:
        """Start the pods that are in, try the pods that wait, and refuse for good those that have waited too long."""
        self._start()
        while queue_of(self.pods, self.node.rules):
            before = self.ledger
            self._state = transitions.let_in(self._state, (), Moment(now, self._exempt)).state
            self._start()
            if self.ledger == before:
                return

    def _start(self) -> None:
        """Start all containers of the pods that came in, in order: what only init containers held is free again."""
        for uid in [each for each in self.ledger.pods if each not in self._started]:
            self._started |= {uid}
            containers = self.ledger.pods[uid].pod.containers
            if any(each.kind is ContainerKind.INIT for each in containers):
                self._state = transitions.containers_seen(self._state, [(uid, each.name) for each in containers])

    def exempts(self, pod: Pod) -> str:
        """Why a pod is left alone, "" when it is not."""
        return self._exempt(pod)

    def runs(self, uid: str) -> bool:
        """Whether the pod is in, with or without what it wanted."""
        return uid in self.ledger.pods

    def waits(self, uid: str) -> bool:
        """Whether the pod stands in line."""
        known = self.pods.get(uid)
        if known is None or known.refusal is None or self.runs(uid):
            return False
        return FINAL not in known.refusal.facts and waits(known, self.node.rules)
