"""Decide once more on refused pods while none of their own containers exists: so no container is moved. Pure.

The pods that wait have their turn in the queue before (safety.md S11, `agent.node.wait_queue`). Then follow, in order
of creation, the refused pods that start on the shared pool all the same, and those that are to be ended while the
room may still appear (`OPEN`): none of them delays a pod that waits. A pod that is refused again keeps its reported
refusal, unless another pod, or none, is about to leave its room now (`agent.node.leavers`). For a pod that waits, the
refusal of the latest decision is reported. The final report on a pod says what was true at its decision
(`Refusal.as_of`).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from agent.core.admission.waiting import FINAL, OPEN, held_back_by
from agent.model.outcome import HOLDER, NAMED, Refusal
from agent.model.pod import Stage
from agent.model.rules import OnMisalignment
from agent.node import transitions
from agent.node.deciding import decide_pod
from agent.node.leavers import LEAVES_WITHIN, held_up, is_open, last_word
from agent.node.retries import Looks
from agent.node.state import State
from agent.node.tracked_pod import TrackedPod
from agent.node.transitions import Moment, Transition
from agent.node.wait_queue import crowded_out, queue_of, waits

MOST_AGAIN = 16
"""Refused pods that are decided once more at one look; the rest has its turn at the next."""
LOOK = 1.0
"""Seconds between two looks while a refusal is open."""


def candidates(state: State, at: Moment) -> list[str]:
    """List the refused pods (uids) that may be decided once more, in order of creation."""
    found = [
        known for known in state.pods.values()
        if known.refusal is not None and FINAL not in known.refusal.facts
        and not (known.ended or known.unsaved or known.ran) and _another(state, known, known.refusal, at)
    ]  # fmt: skip
    return [known.pod.uid for known in sorted(found, key=lambda known: (known.pod.created, known.pod.uid))]


def chosen(state: State, aside: Collection[str], at: Moment) -> tuple[State, list[str]]:
    """Choose the refused pods that are decided once more at this look, and count the look.

    They are few at once, those first whose last decision is oldest. A pod is chosen again only where the ledger or
    the managers have changed since, or its refusal is open.

    Args:
        state: before.
        aside: uids of pods that are left alone for a while.
        at: the moment.
    """
    found = [uid for uid in candidates(state, at) if uid not in aside]
    now, known = (state.ledger, state.node), {uid: state.looks.last.get(uid, (0, ())) for uid in found}
    due = [uid for uid in found if is_open(state.pods[uid]) or [*map(id, known[uid][1])] != [*map(id, now)]]
    few = {*sorted(due, key=lambda uid: known[uid][0])[:MOST_AGAIN]}
    count = state.looks.count + 1
    looks = Looks(count, known | dict.fromkeys(few, (count, now)))
    return replace(state, looks=looks), [uid for uid in found if uid in few]


def _another(state: State, known: TrackedPod, refusal: Refusal, at: Moment) -> bool:
    if OPEN in refusal.facts:
        return True  # at least to be closed
    if waits(known, state.node.rules):
        return True  # its turn is in the queue: here only its reported refusal is kept true
    if _is_over(known, at):
        return refusal.as_of() is not refusal  # it names a holder, and is final from now on
    return _wish(state, known) is OnMisalignment.RUN


def _is_over(known: TrackedPod, at: Moment) -> bool:
    """Say whether a refused pod gets nothing any more: a container of it exists, or it is being deleted."""
    return known.pod.uid in at.running or known.pod.stage is Stage.LEAVING


def _wish(state: State, known: TrackedPod) -> OnMisalignment:
    return known.settings.on_misalignment or state.node.rules.on_misalignment


def once_more(state: State, uids: Collection[str], at: Moment) -> Transition:
    """Decide on refused pods once more, in this order; report pods that are admitted, or whose refusal changed.

    Args:
        state: before.
        uids: pods of `candidates`.
        at: the moment.
    """
    to_report, problems = [], list[str]()
    for uid in uids:
        known = state.pods[uid]
        step = _one(state, known, at)
        to_report += [known.pod] if step.to_report else []
        problems += step.problems
        state = step.state
    return Transition(state, tuple(to_report), tuple(problems))


def _one(state: State, known: TrackedPod, at: Moment) -> Transition:
    pod, refusal = known.pod, known.refusal
    if refusal is None:
        return Transition(state)
    if waits(known, state.node.rules):
        return _refused_again(state, state, known, _decided_now(state, known, refusal, at), at)
    if _is_over(known, at):
        return _refused_again(state, state, known, last_word(state, known), at)
    step = transitions.decide_or_set_aside(transitions.unplaced(state, pod.uid), pod, at, ran=False)
    new = step.state.pods[pod.uid]
    if new.refusal is not None:
        return _refused_again(state, step.state, known, new, at)
    line, young = queue_of(state.pods, state.node.rules), at.now - state.switches.hold_back_others
    if held_back_by(state.node, state.ledger, step.state.ledger, pod, line, young):
        return Transition(state)
    return replace(step, to_report=(pod,))


def _decided_now(state: State, known: TrackedPod, was: Refusal, at: Moment) -> TrackedPod:
    """Renew the refusal of a pod that waits by a decision now; only the queue lets the pod in or ends it."""
    uid, node, given = known.pod.uid, state.node, state.given.get(known.pod.uid)
    _, new = decide_pod(
        node, state.ledger, known, given=given, unwritable="", switches=state.switches, now=at.now,
        line=queue_of(state.pods, node.rules, but=uid), judge=at.judge,
    )  # fmt: skip
    if new.refusal is None or FINAL in new.refusal.facts or new.refusal is was:
        facts = {name: fact for name, fact in was.facts.items() if name not in (HOLDER, NAMED)}
        new = replace(known, refusal=replace(was, facts=facts))
    else:
        new = at.told(node, state.ledger, new, given)
    new = held_up(state, new, at.now, at.running)
    if OPEN in was.facts and new.refusal is not None:
        new = replace(new, refusal=replace(new.refusal, facts={**new.refusal.facts, OPEN: True}))
    return new


def _refused_again(state: State, after: State, known: TrackedPod, new: TrackedPod, at: Moment) -> Transition:
    """Follow one more refusal of a pod: close an open refusal in time, and report what is new in it.

    Args:
        state: before, with the pod as it is known.
        after: the state after the pod was refused once more.
        known: the pod as it was.
        new: the pod after it.
        at: the moment.
    """
    before, refusal = known.refusal, new.refusal
    if before is None or refusal is None:
        return Transition(state)
    soon = HOLDER in refusal.facts or known.early
    still = soon and _stays_open(known, at)
    if OPEN in before.facts and not still:  # final: its wish is carried out now
        said = _in_line(state, last_word(state, new), at)
        acts = _wish(state, known) is not OnMisalignment.RUN or _other_words(state, known, before, refusal)
        return Transition(after.with_pods(said), (known.pod,) if acts or known.early else ())
    if _other_words(state, known, before, refusal):
        return Transition(after.with_pods(new), (known.pod,))
    return Transition(state)


def _other_words(state: State, known: TrackedPod, before: Refusal, now: Refusal) -> bool:
    """Say whether a refusal differs: for a pod that waits all of it counts, for any other pod the holder alone."""
    if before.facts.get(HOLDER) != now.facts.get(HOLDER):
        return True
    said = ((each.reason, each.container, each.message, each.details) for each in (before, now))
    return waits(known, state.node.rules) and next(said) != next(said)


def _in_line(state: State, known: TrackedPod, at: Moment) -> TrackedPod:
    """Refuse a waiting pod for good where the queue has no place for it; any other pod stays as it is."""
    pods, rules = {**state.pods, known.pod.uid: known}, state.node.rules
    out = crowded_out(pods, rules, state.switches.most_waiting, at.now - LEAVES_WITHIN)
    return out.get(known.pod.uid, known)


def _stays_open(known: TrackedPod, at: Moment) -> bool:
    """Say whether an open refusal stays open: until a container exists, for LEAVES_WITHIN seconds at most."""
    return known.pod.uid not in at.running and at.now - known.since < LEAVES_WITHIN
