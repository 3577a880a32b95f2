"""Pods that hold room and are about to leave it: ended, being deleted, or not accepted by the kubelet yet. Pure.

After a start, a pod of the saved ledger may have gone while no agent ran: until the first complete list it counts as
about to leave, unless the watch has brought it.

A pod that is refused only because of such a pod has its name in the refusal, and is decided again within moments
(`agent.node.second_look`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from agent.core.admission.waiting import FINAL, OPEN
from agent.core.devices.kubelet import handed_over
from agent.model.outcome import HOLDER, NAMED, Admitted, Reason
from agent.model.pod import Stage
from agent.model.rules import OnMisalignment
from agent.node.state import State
from agent.node.tracked_pod import TrackedPod
from agent.node.wait_queue import waits

LEAVES_WITHIN = 10.0
"""Seconds for which a refused pod is not ended while such a pod holds its room."""
MOST_TRIED, MOST_NAMED = 8, 3
"""How many of the pods that are about to leave are tried alone, ended ones first; and how many a sentence names."""
WORDS = {
    Stage.BOUND: "is bound to this node, and the kubelet has said nothing of it yet",
    Stage.LEAVING: "is being deleted, and has not ended yet",
}

UNLISTED = "was there before this agent started, and the list of pods has not shown it yet"


def leavers(state: State, but: str, running: Collection[str]) -> list[TrackedPod]:
    """List the pods that hold something and are about to leave it, without pod `but`: ended first, then by age."""
    ledger = state.ledger
    books = (
        ledger.cpus.assigned, ledger.cpus.pools, ledger.cpus.confined, ledger.memory.blocks, ledger.memory.pools,
        ledger.devices.held,
    )  # fmt: skip
    found = [
        known
        for uid, known in state.pods.items()
        if uid != but
        and any(uid in book for book in books)
        and (
            known.ended
            or known.pod.stage is Stage.LEAVING
            or (known.pod.stage is Stage.BOUND and uid not in running)
            or (known.remembered and not state.listed)
        )
    ]
    return sorted(found, key=lambda known: (not known.ended, known.pod.created, known.pod.uid))


def held_up(state: State, known: TrackedPod, now: float, running: Collection[str]) -> TrackedPod:
    """Name in a pod's refusal the pod that holds its room and is about to leave; without one, change nothing.

    Args:
        state: as the refused admission saw it; the pod itself holds nothing in it.
        known: the pod.
        now: on the clock of TrackedPod.since.
        running: uids of the pods of which a container exists.
    """
    refusal = known.refusal
    if refusal is None or known.unsaved or known.ran or FINAL in refusal.facts or refusal.reason is Reason.BEHIND:
        return known
    every = leavers(state, known.pod.uid, running)
    if not every or _fits(state, known, ()):
        return known  # by the books there is room: the nodes' real memory was in the way (safety.md S7)
    near = next((some for some in (every[:MOST_TRIED], every) if _fits(state, known, some)), None)
    if near is None:
        return known
    alone = (each for each in near[:MOST_TRIED] if _fits(state, known, (each,)))
    found = [one] if (one := next(alone, None)) else near
    more = f"; and {len(found) - MOST_NAMED} more pods" if len(found) > MOST_NAMED else ""
    text, named = (
        "; ".join(_sentence(state, each, space) for each in found[:MOST_NAMED]) + more
        for space in (known.pod.namespace, "")
    )
    since = known.since or now
    young = now - since < LEAVES_WITHIN and not waits(known, state.node.rules)
    facts = {**refusal.facts, HOLDER: text, **({NAMED: named} if named != text else {})}
    facts |= {OPEN: True} if young else {}
    found_so = replace(known, refusal=replace(refusal, facts=facts), since=since)
    return found_so if young or is_followed(state, known, running) else last_word(state, found_so)


def is_followed(state: State, known: TrackedPod, running: Collection[str]) -> bool:
    """Say whether a refused pod is decided again: it waits, or will share the pool and has no container yet."""
    rules = state.node.rules
    wish = known.settings.on_misalignment or rules.on_misalignment
    return waits(known, rules) or (wish is OnMisalignment.RUN and known.pod.uid not in running)


def is_open(known: TrackedPod) -> bool:
    """Say whether a refusal is open: room may appear within moments, so the pod's wish is not carried out yet."""
    return known.refusal is not None and OPEN in known.refusal.facts and not known.ended


def last_word(state: State, known: TrackedPod) -> TrackedPod:
    """Close a pod's refusal; for a pod that does not wait it is final, as of this decision."""
    if known.refusal is None:
        return known
    facts = {name: fact for name, fact in known.refusal.facts.items() if name != OPEN}
    refusal = replace(known.refusal, facts=facts)
    return replace(known, refusal=refusal if waits(known, state.node.rules) else refusal.as_of())


def _fits(state: State, known: TrackedPod, gone: Sequence[TrackedPod]) -> bool:
    """Say whether the pod would be admitted without the pods in `gone`."""
    node, ledger, pod = state.node, state.ledger, known.pod
    for each in gone:
        ledger = node.release(ledger, each.pod.uid)
    given = state.given.get(pod.uid)
    ledger = handed_over(ledger, pod, given) if given else ledger
    return isinstance(node.admit(ledger, pod, known.settings), Admitted)


def _sentence(state: State, known: TrackedPod, space: str) -> str:
    """Say what a pod is about to do; to another namespace without its name, where one is given."""
    if known.ended:
        unread = state.broken or not state.listed
        what = "has ended, and what it held is not free yet" if unread else "has ended, its cgroup is still there"
    else:
        what = WORDS.get(known.pod.stage, UNLISTED)
    name = known.pod.key if space in ("", known.pod.namespace) else "a pod of another namespace"
    return f"{name} {what}"
