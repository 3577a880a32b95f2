"""State transitions as tests write them: `step(state, event, now)`, for inputs that can happen, with rules that hold.

The engine calls `agent.node.transitions` in an order that its edges make. A test that calls them by itself could
give them what no edge ever gives, and prove nothing. So `step` refuses an input that is impossible, carries the event
out, and looks at what came of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from agent.core.accounting import invariants
from agent.core.admission.node import Node
from agent.core.admission.resize import pending
from agent.core.devices.kubelet import Given, Offered
from agent.model.ledger import Grant, Ledger
from agent.model.outcome import Admitted, Outcome, Refused
from agent.model.pod import Pod
from agent.model.rules import OnMisalignment
from agent.node import transitions
from agent.node.leavers import is_open
from agent.node.state import State
from agent.node.tracked_pod import SWITCHES, Exempt, Switches
from agent.node.transitions import Moment, Transition
from agent.node.wait_queue import queue_of


class ImpossibleError(Exception):
    """A test gave an input that no edge of the engine gives."""


UNKNOWN = "nobody knows this pod"


class Event(Protocol):
    """What happens to a state."""

    @property
    def uid(self) -> str:
        """The pod that it is about, "" where it is about all."""

    def impossible(self, state: State) -> str:
        """Why it cannot happen in a state, "" where it can."""

    def make(self, state: State, at: Moment) -> Transition:
        """What the engine makes of the state."""


@dataclass(frozen=True)
class Seen:
    """The API listed a pod, new or changed. `ran`: it ran before the agent knew it."""

    pod: Pod
    ran: bool = False

    @property
    def uid(self) -> str:
        return self.pod.uid

    def impossible(self, state: State) -> str:
        if not self.uid:
            return "it has no uid"
        known = state.pods.get(self.uid)
        same = known is None or _identity(known.pod) == _identity(self.pod)
        return "" if same else "it is another pod of this uid"

    def make(self, state: State, at: Moment) -> Transition:
        return transitions.pod_seen(state, self.pod, at, ran=self.ran)


@dataclass(frozen=True)
class TriedAgain:
    """A pod that was refused, or not saved, is decided once more."""

    uid: str

    def impossible(self, state: State) -> str:
        known = state.pods.get(self.uid)
        if known is None:
            return UNKNOWN
        return "" if (known.refusal or known.unsaved) and not known.ended else "it is in, or has ended"

    def make(self, state: State, at: Moment) -> Transition:
        known = state.pods[self.uid]
        return transitions.retry(state, known.pod, at, ran=known.ran)


@dataclass(frozen=True)
class Ended:
    """A pod left the API."""

    uid: str

    def impossible(self, state: State) -> str:
        known = state.pods.get(self.uid)
        return UNKNOWN if known is None else "it has ended already" if known.ended else ""

    def make(self, state: State, at: Moment) -> Transition:
        return Transition(transitions.pods_gone(state, [self.uid]))


@dataclass(frozen=True)
class Freed:
    """The cgroups of a pod that ended have gone: what it held is free, and nobody knows it any more."""

    uid: str

    def impossible(self, state: State) -> str:
        known = state.pods.get(self.uid)
        if known is None:
            return UNKNOWN
        return "" if known.ended else "it has not ended: nothing is freed while its cgroup lives (safety.md S13)"

    def make(self, state: State, at: Moment) -> Transition:
        return Transition(transitions.released(state, [self.uid]).without([self.uid]))


@dataclass(frozen=True)
class Started:
    """A container of a pod runs."""

    uid: str
    name: str

    def impossible(self, state: State) -> str:
        record = state.ledger.pods.get(self.uid)
        if record is None:
            return "this pod is not in"
        return "" if any(each.name == self.name for each in record.pod.containers) else "it has no such container"

    def make(self, state: State, at: Moment) -> Transition:
        return Transition(transitions.containers_seen(state, [(self.uid, self.name)]))


@dataclass(frozen=True)
class LetIn:
    """Room may have appeared, or time has passed."""

    uid: str = ""

    def impossible(self, state: State) -> str:
        return ""

    def make(self, state: State, at: Moment) -> Transition:
        return transitions.let_in(state, (), at)


@dataclass(frozen=True)
class Softened:
    """Too many pods of a refused pod's owner were refused."""

    uid: str
    wish: OnMisalignment

    def impossible(self, state: State) -> str:
        known = state.pods.get(self.uid)
        if known is None:
            return UNKNOWN
        return "" if known.refusal and not known.ended else "it was not refused, or has ended"

    def make(self, state: State, at: Moment) -> Transition:
        return Transition(transitions.soften(state, self.uid, self.wish, at.now))


@dataclass(frozen=True)
class DevicesTold:
    """The kubelet told which devices it gave a pod, which may be unknown yet. `running`: a container of it runs."""

    uid: str
    given: Given
    running: bool = False

    def impossible(self, state: State) -> str:
        if self.running and self.uid not in state.ledger.pods:
            return "no container of a pod runs that is not in"
        return "" if self.uid else "it has no uid"

    def make(self, state: State, at: Moment) -> Transition:
        told, known = transitions.devices_reported(state, self.uid, self.given), state.pods.get(self.uid)
        if known is None or known.exempt or known.ended or self.uid not in told.ledger.pods:
            return Transition(told)
        return transitions.devices_late(told, self.uid, at, running=self.running or known.ran)


@dataclass(frozen=True)
class DevicesOffered:
    """The kubelet told which devices its plugins have."""

    offered: tuple[Offered, ...]
    uid: str = ""

    def impossible(self, state: State) -> str:
        return ""

    def make(self, state: State, at: Moment) -> Transition:
        return transitions.devices_offered(state, self.offered)


@dataclass(frozen=True)
class Changed:
    """Another machine or other settings are in force."""

    node: Node
    switches: Switches | None = None
    uid: str = ""

    def impossible(self, state: State) -> str:
        return ""

    def make(self, state: State, at: Moment) -> Transition:
        return Transition(transitions.changed(state, self.node, self.switches, at.exempt)[0])


def at_first(node: Node, ledger: Ledger | None = None, switches: Switches = SWITCHES) -> State:
    """The state that an engine begins with: on an empty node, or with the ledger that it saved."""
    return transitions.begun(node, ledger or node.start(), switches, saved=ledger is not None, complete=True)


def step(state: State, event: Event, now: float, exempt: Exempt = lambda _pod: "") -> Transition:
    """What an event makes of a state.

    Args:
        state: before.
        event: what happened.
        now: on a steady clock, in seconds, above 0: 0 says of a pod that it never waited.
        exempt: which pods are left alone.

    Raises:
        ImpossibleError: this cannot happen in this state, or the time goes back.
        InvariantError: the ledger breaks a rule of `agent.core.accounting.invariants`.
        AssertionError: the next state breaks a rule of its own.
    """
    why = event.impossible(state)
    if now <= 0 or now < max((each.since for each in state.pods.values()), default=0.0):
        why = f"the time goes back to {now}"
    if why:
        raise ImpossibleError(f"{event}: {why}")
    done = event.make(state, Moment(now, exempt))
    _check(state, event, now, done)
    return done


def outcome_of(state: State, uid: str) -> Outcome:
    """Whether a pod that the state knows is in, as the managers would say it."""
    refusal = state.pods[uid].refusal
    if uid in state.ledger.pods or refusal is None:
        return Admitted(state.ledger)
    return Refused(refusal, state.ledger)


def _identity(pod: Pod) -> tuple[object, ...]:
    """What the API server lets nobody change of a pod."""
    return pod.namespace, pod.name, pod.created, pod.qos, [(each.name, each.kind) for each in pod.containers]


def _check(before: State, event: Event, now: float, done: Transition) -> None:
    """What is true after every step."""
    after = done.state
    invariants.check(after.ledger, after.node, earlier=tuple(before.ledger.pods))
    assert after.ledger.pods.keys() <= after.pods.keys(), "somebody holds something whom nobody knows"
    for uid, known in after.pods.items():
        assert known.pod.uid == uid
        assert uid in after.ledger.pods or known.refusal is not None or known.ended, (
            f"{uid} is neither in nor refused"
        )
        assert known.since <= now, f"{uid} waits from later on"
    assert all(pod.uid in after.pods for pod in done.to_report), "something is told of a pod that nobody knows"
    places = max(after.switches.most_waiting, len(_line(before)))
    if not isinstance(event, Changed):  # a shorter line counts from the next decision on
        assert len(_line(after)) <= places, "more pods wait than may (safety.md S11)"
        _nobody_else_moved(before, event, after)


def _line(state: State) -> list[str]:
    """Find the uids of pods that wait; one over the limit is open, where another pod is about to leave its room."""
    line = (each.pod.uid for each in queue_of(state.pods, state.node.rules))
    return [uid for uid in line if not is_open(state.pods[uid])]


def _nobody_else_moved(before: State, event: Event, after: State) -> None:
    """An event of one pod leaves all others what they hold; a resize that waits takes what became free."""
    resizing = pending(before.ledger) if isinstance(event, LetIn) else ()
    for uid in before.ledger.pods.keys() - {event.uid, *resizing}:
        assert held(after.ledger, uid) == held(before.ledger, uid), f"{uid} was moved"


def held(ledger: Ledger, uid: str) -> Mapping[str, Grant]:
    """What each container of a pod holds; nothing where the pod is not in."""
    return (
        {each.name: ledger.grant(uid, each.name) for each in ledger.pods[uid].pod.containers}
        if uid in ledger.pods
        else {}
    )
