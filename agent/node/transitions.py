"""What each event makes of the state. Pure: no clock, no file, no lock; nothing here is saved, written or reported.

A transition takes a state and an event and returns the next state, with the pods to report. `agent.engine.effects`
checks that state against the rules of the books and saves it; from then on it counts. What disk, kernel and other
programs answer is in `agent.node.answers`. Forecasts go through the same transitions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from agent.core.admission.empty_resources import as_the_kubelet_sees
from agent.core.admission.node import Node
from agent.core.admission.pressure import PressureCheck, unjudged
from agent.core.admission.resize import pending
from agent.core.admission.waiting import FINAL
from agent.core.devices.kubelet import Given, Offered
from agent.core.request.annotations import PodSettings
from agent.model.allocated import as_counted
from agent.model.cgroup import Observed
from agent.model.claims import Claims
from agent.model.ledger import Ledger
from agent.model.pod import Pod, Stage
from agent.model.rules import OnMisalignment
from agent.node.deciding import checked_settings, decide_pod, set_aside, was_set_aside
from agent.node.device_tracker import DeviceTracker, reported_before
from agent.node.fault_isolation import sentence
from agent.node.leavers import LEAVES_WITHIN, held_up, is_open, last_word
from agent.node.migrate import Migrated, migrate
from agent.node.obstacle import kept
from agent.node.recover import Recovered
from agent.node.state import State
from agent.node.tracked_pod import Exempt, Switches, TrackedPod, same, same_room, softer, was_refused
from agent.node.unlisted import keep
from agent.node.wait_queue import crowded_out, pass_queue, queue_of, refused_for_good, soften_pod

MOST_TOLD = 1000
"""Pods whose devices or claims are remembered, known or not: ten times what a node has."""

T = TypeVar("T")

Told = Callable[[Node, Ledger, TrackedPod, Given | None], TrackedPod]
"""(managers, ledger before the decision, pod, devices that the kubelet gave it) -> the pod as it is reported."""


def as_it_is(_node: Node, _ledger: Ledger, known: TrackedPod, _given: Given | None) -> TrackedPod:
    """Return the pod unchanged."""
    return known


@dataclass(frozen=True, slots=True)
class Moment:
    """What a decision needs beside the state.

    Attributes:
        now: on a steady clock, in seconds.
        exempt: which pods are left alone.
        judge: holds admissions against the nodes' real memory (safety.md S7).
        told: adds the cause of a refusal for people (`agent.node.obstacle`).
        running: uids of the pods of which a container exists.
    """

    now: float
    exempt: Exempt
    judge: PressureCheck = unjudged
    told: Told = as_it_is
    running: Collection[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Transition:
    """What an event made of a state.

    Attributes:
        state: the next one.
        to_report: pods with something new to report, in order.
        problems: sentences on what is wrong.
    """

    state: State
    to_report: tuple[Pod, ...] = ()
    problems: tuple[str, ...] = ()


def begun(node: Node, ledger: Ledger, switches: Switches, *, saved: bool, complete: bool) -> State:
    """Make the state that an engine begins with.

    Args:
        node: the managers.
        ledger: the grants (`agent.node.recover`).
        switches: the engine's own settings.
        saved: the store has the ledger.
        complete: the ledger lacks no pod (`State.complete`).
    """
    device_tracker = DeviceTracker(node, reported_before(ledger, node))
    known = {
        uid: TrackedPod(each.pod, checked_settings(node, each.pod), ran=each.adopted, remembered=True)
        for uid, each in ledger.pods.items()
    }
    return State(
        ledger,
        device_tracker.node(node),
        device_tracker,
        known,
        switches,
        ledger if saved else None,
        complete=complete,
    )


# ---- pods


def pod_seen(state: State, pod: Pod, at: Moment, *, ran: bool) -> Transition:
    """Take in a pod that was listed, added or changed; decide on it once it is bound or the kubelet accepted it.

    Args:
        state: before.
        pod: as it is now.
        at: the moment.
        ran: it runs already: adopted, never refused (safety.md S4). A pod that was decided on keeps its flag.
    """
    state = _brought(state, pod.uid)
    known = state.pods.get(pod.uid)
    pod = as_the_kubelet_sees(pod, state.node.rules, known.pod if known else None)
    if known is not None and known.decided:
        pod = as_counted(pod, known.pod, less=pod.uid not in state.ledger.pods or known.refusal is not None)
    accepted = pod.stage is not Stage.NAMED
    if not accepted and known is not None:
        pod = replace(pod, stage=known.pod.stage)  # the runtime starts it already: that is newer
    if pod.uid in state.gone:  # a static pod that is back
        state = replace(state, gone={uid: None for uid in state.gone if uid != pod.uid})
    if pod.stage is Stage.NAMED:
        settings = checked_settings(state.node, pod)
        return Transition(state.with_pods(TrackedPod(pod, settings, exempt=at.exempt(pod))))
    if known is not None and known.early and accepted:
        before, known = known, replace(known, early=False)
        state = state.with_pods(known)
        if known.refusal is not None and pod.uid not in at.running:
            return replace(decide_or_set_aside(unplaced(state, pod.uid), pod, at, ran=False), to_report=(pod,))
        if is_open(before):
            return Transition(state.with_pods(replace(last_word(state, known), pod=pod)), (pod,))
    if known is not None and pod.uid not in at.running and _as_a_newcomer(state, known, pod):
        state = unplaced(state, pod.uid)
    elif known is not None and known.decided and not known.ended and same(known.pod, pod):
        return Transition(state.with_pods(replace(known, pod=pod)))
    new = pod.uid not in state.ledger.pods or was_set_aside(state.ledger, pod.uid)
    step = decide_or_set_aside(state, pod, at, ran=(ran and new) or (known is not None and known.ran))
    return replace(step, to_report=(pod, *step.to_report))


def _brought(state: State, uid: str) -> State:
    """Record that the watch has brought a pod."""
    known = state.pods.get(uid)
    return state.with_pods(replace(known, remembered=False)) if known is not None and known.remembered else state


def _as_a_newcomer(state: State, known: TrackedPod, pod: Pod) -> bool:
    """Say whether a refused pod without a container is to be decided as one that comes now.

    It asks for another amount. Or an earlier agent refused it: the ledger has that it shares the pool, and no more.
    """
    if known.refusal is not None:
        return not same_room(known.pod, pod)
    record = state.ledger.pods.get(pod.uid)
    return record is not None and was_refused(record) and not (known.ran or known.ended)


def unplaced(state: State, uid: str) -> State:
    """Take a refused pod that is to be decided once more out of the ledger."""
    return replace(state, ledger=state.node.release(state.ledger, uid)) if uid in state.ledger.pods else state


def retry(state: State, pod: Pod, at: Moment, *, ran: bool) -> Transition:
    """Decide once more on a pod; report it when it is admitted, or refused for more than an unwritable store."""
    before, step = state.pods.get(pod.uid), decide_or_set_aside(state, pod, at, ran=ran)
    known = step.state.pods[pod.uid]
    new = known.refusal is None or (before is not None and before.unsaved and not known.unsaved)
    return replace(step, to_report=(pod, *step.to_report)) if new else step


def decide_or_set_aside(state: State, pod: Pod, at: Moment, *, ran: bool) -> Transition:
    """Decide on a pod. Where that fails, set the pod aside with all that it holds, until the pod changes."""
    try:
        free = state
        if was_set_aside(state.ledger, pod.uid):
            free = replace(state, ledger=state.node.release(state.ledger, pod.uid))
        return decide(free, pod, at, ran=ran)
    except Exception as error:  # noqa: BLE001 - of any kind: it is this pod's alone
        text = f"pod {pod.key} is set aside until it changes: {sentence(error)}"
        return Transition(put_aside(state, pod, ran=ran), problems=(text,))


def decide(state: State, pod: Pod, at: Moment, *, ran: bool) -> Transition:
    """Put a pod into the ledger, or a refusal beside it; report the pods that lost their place in the queue by it."""
    before, rules = state.pods.get(pod.uid) or TrackedPod(pod, PodSettings()), state.node.rules
    known = TrackedPod(
        pod, softer(checked_settings(state.node, pod), before.softer), exempt=at.exempt(pod), ran=ran,
        since=before.since, softer=before.softer, early=before.early, remembered=before.remembered,
    )  # fmt: skip
    final = refused_for_good(before, known, rules)
    if final is not None:
        return Transition(state.with_pods(replace(known, refusal=final)))
    given = state.given.get(pod.uid)
    ledger, known = decide_pod(
        state.node, state.ledger, known, given=given, unwritable=state.unwritable,
        switches=state.switches, now=at.now, line=queue_of(state.pods, rules, but=pod.uid), judge=at.judge,
    )  # fmt: skip
    known = held_up(state, at.told(state.node, state.ledger, known, given), at.now, at.running)
    state = state.with_pods(known, ledger=kept(ledger, known))
    out = crowded_out(state.pods, rules, state.switches.most_waiting, at.now - LEAVES_WITHIN)
    return Transition(state.with_pods(*out.values()), tuple(each.pod for uid, each in out.items() if uid != pod.uid))


def reopened(state: State, pod: Pod, at: Moment, *, ran: bool) -> Transition:
    """Decide once more on a refused pod of which nothing runs; a final refusal of before does not count."""
    known = state.pods[pod.uid]
    if known.refusal is None or known.exempt:
        return Transition(state)
    facts = {name: fact for name, fact in known.refusal.facts.items() if name != FINAL}
    known = replace(known, refusal=replace(known.refusal, facts=facts))
    return retry(state.with_pods(known, ledger=state.node.release(state.ledger, pod.uid)), pod, at, ran=ran)


def put_aside(state: State, pod: Pod, *, ran: bool) -> State:
    """Set aside a pod that could not be decided on: it keeps what it holds, or runs on the shared pool."""
    ledger, known = set_aside(state.node, state.ledger, tracked(state, pod, ran=ran))
    return state.with_pods(known, ledger=ledger)


def tracked(state: State, pod: Pod, *, ran: bool) -> TrackedPod:
    """Return a pod as it is known; a new pod with its checked annotations."""
    known = state.pods.get(pod.uid)
    return replace(known, pod=pod) if known else TrackedPod(pod, checked_settings(state.node, pod), ran=ran)


def adopted(state: State, found: Recovered) -> State:
    """Take in running pods that the ledger lacked, with the CPUs and memory that they run on."""
    pods = [found.ledger.pods[uid].pod for uid in found.adopted]
    known = (TrackedPod(pod, checked_settings(state.node, pod), ran=True) for pod in pods)
    return state.with_pods(*known, ledger=found.ledger)


def left_behind(state: State, observed: Observed, there: Collection[str]) -> Transition:
    """Leave containers of unknown pods their CPUs until their cgroups are empty; the ledger is complete then."""
    ledger, left = keep(state.node, state.ledger, observed, there)
    gone = (TrackedPod(ledger.pods[uid].pod, PodSettings(), ran=True, ended=True) for uid in left)
    return Transition(replace(state, ledger=ledger, complete=True).with_pods(*gone), problems=tuple(left.values()))


def pods_gone(state: State, uids: Collection[str]) -> State:
    """Mark pods that ended or left the API. Their grants are released when their processes have ended (S13)."""
    known = [uid for uid in uids if uid in state.pods]
    return state.without({*uids} - {*known}).with_pods(*(replace(state.pods[uid], ended=True) for uid in known))


def released(state: State, uids: Iterable[str]) -> State:
    """Release all that pods hold."""
    ledger = state.ledger
    for uid in uids:
        ledger = state.node.release(ledger, uid)
    return replace(state, ledger=ledger)


def containers_seen(state: State, spots: Iterable[tuple[str, str]]) -> State:
    """Release what init containers held once the containers (pod uid, name) after them run (kubelet rule 5.9)."""
    ledger = state.ledger
    for uid, name in spots:
        ledger = state.node.container_started(ledger, uid, name)
    return replace(state, ledger=ledger)


# ---- the queue


def let_in(state: State, behind: Collection[str], at: Moment) -> Transition:
    """Try the pods that wait for room, in order of arrival (safety.md S11), without the uids in `behind`."""
    known = {uid: each for uid, each in state.pods.items() if uid not in behind}
    known |= {
        uid: replace(known[uid], exempt=at.exempt(known[uid].pod)) for uid in pending(state.ledger) if uid in known
    }
    found = pass_queue(state.node, state.ledger, known, state.switches, state.given, at.now, at.judge)
    return Transition(state.with_pods(*found.changed.values(), ledger=found.ledger), found.to_report)


def soften(state: State, uid: str, wish: OnMisalignment, now: float) -> State:
    """Give a refused pod a milder wish from now on; where the queue has no place for it (safety.md S11), it runs."""
    new = state.with_pods(soften_pod(state.pods[uid], wish, now))
    if len(queue_of(new.pods, new.node.rules)) > new.switches.most_waiting:
        new = state.with_pods(soften_pod(state.pods[uid], OnMisalignment.RUN, now))
    return new


# ---- devices


def devices_reported(state: State, uid: str, given: Given) -> State:
    """Record the devices that the kubelet gave a pod."""
    tracker = state.device_tracker
    device_tracker = replace(tracker, given=_known_few(state, tracker.given)).with_given(uid, given)
    return replace(state, device_tracker=device_tracker, node=device_tracker.node(state.node))


def claims_reported(state: State, uid: str, claims: Claims) -> State:
    """Record the devices of a pod's claims."""
    tracker = state.device_tracker
    tracker = replace(tracker, claims=_known_few(state, tracker.claims))
    return replace(state, device_tracker=tracker.claim(uid, claims))


def _known_few(state: State, reports: Mapping[str, T]) -> Mapping[str, T]:
    """Bound the reports that may come before their pods: of too many, keep those of known pods."""
    return reports if len(reports) < MOST_TOLD else {uid: each for uid, each in reports.items() if uid in state.pods}


def devices_late(state: State, uid: str, at: Moment, *, running: bool) -> Transition:
    """Enter late devices of a pod that is in the ledger; decide once more where that may place it nearer to them.

    Args:
        state: with the reported devices.
        uid: the pod.
        at: the moment.
        running: a container of it runs, so that the pod must keep its place.
    """
    ledger, again = state.device_tracker.late(state.node, state.ledger, uid, started=running)
    if not again:
        return Transition(replace(state, ledger=ledger))
    known = state.pods[uid]
    free = replace(state, ledger=state.node.release(ledger, uid), device_tracker=state.device_tracker.once_more(uid))
    return decide(free, known.pod, at, ran=known.ran)


def devices_once_more(state: State, before: State, uid: str) -> State:
    """Drop late devices that could not be checked or saved: the next look takes them in again."""
    return replace(state, device_tracker=before.device_tracker).with_pods(replace(before.pods[uid], unsaved=True))


def devices_offered(state: State, offered: Iterable[Offered]) -> Transition:
    """Record the devices of the kubelet's plugins; those that the settings select, too, stay the plugins' (S22)."""
    device_tracker, problems = state.device_tracker.offer(offered)
    return Transition(
        replace(state, device_tracker=device_tracker, node=device_tracker.node(state.node)), problems=problems
    )


# ---- machine, settings, kernel


def changed(state: State, node: Node, switches: Switches | None, exempt: Exempt) -> tuple[State, Migrated]:
    """Carry every grant over to another machine or other settings; `Migrated` has the losses."""
    device_tracker = replace(state.device_tracker, plain=node)
    node = device_tracker.node(node)
    migrated = migrate(state.ledger, node, reshaped=node.machine.shape != state.node.machine.shape)
    known = {
        uid: replace(each, settings=softer(checked_settings(node, each.pod), each.softer), exempt=exempt(each.pod))
        for uid, each in state.pods.items()
    }
    new = replace(
        state, ledger=migrated.ledger, node=node, device_tracker=device_tracker, pods=known,
        switches=switches or state.switches, pending=None,
    )  # fmt: skip
    return new, migrated


def each_in_order(state: State, pods: Sequence[Pod], decide_one: Callable[[State, Pod], Transition]) -> Transition:
    """Make one transition for each of several pods, as one step."""
    to_report, problems = list[Pod](), list[str]()
    for pod in pods:
        step = decide_one(state, pod)
        state = step.state
        to_report += step.to_report
        problems += step.problems
    return Transition(
        replace(state, retries=state.retries.without([pod.uid for pod in pods])), tuple(to_report), tuple(problems)
    )
