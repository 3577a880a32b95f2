"""The queue of pods that wait for room, and resizes that wait for it. Pure: the time is an argument.

The rules are in `agent.core.admission.waiting` (safety.md S11) and `agent.core.admission.resize`. The queue has the
pods that were refused, wish to wait, and were not refused for good. Why a pod is refused for good:

    never      an empty node would refuse it, too
    crowd      so many pods wait that the kubelet's retries would make sandboxes without end: the latest pod of the
               namespace with the most places loses its place (`agent.core.admission.waiting`). It keeps the place
               for some seconds while its room is about to be free (`HOLDER`)
    overdue    it waited as long as the settings allow

Such a pod stays refused until its containers or requests change; annotations do not count (`refused_for_good`).
`agent.kube.publishing.pod_reporter` ends it.

A pod with another wish is decided when it is seen, and may take the room that the queue waits for: every wait is
bounded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from agent.core.admission.node import Node
from agent.core.admission.pressure import PressureCheck, unjudged
from agent.core.admission.resize import pending
from agent.core.admission.waiting import FINAL, OPEN, Waiting, crowded, hopeless, let_in, overdue
from agent.core.devices.kubelet import Given, handed_over
from agent.model.ledger import Ledger
from agent.model.outcome import HOLDER, Refusal
from agent.model.pod import Pod, Stage
from agent.model.rules import OnMisalignment, Rules
from agent.node.holding import holding
from agent.node.tracked_pod import Switches, TrackedPod, same_room, softer


def waits(known: TrackedPod, rules: Rules) -> bool:
    """Say whether a refused pod's wish is to wait."""
    return not known.ran and (known.settings.on_misalignment or rules.on_misalignment) is OnMisalignment.WAIT


def queue_of(known: Mapping[str, TrackedPod], rules: Rules, but: str = "") -> list[Waiting]:
    """List the pods in the queue, without the pod `but`; a pod that is being deleted needs no room any more."""
    return [
        Waiting(each.pod, each.settings, each.since)
        for uid, each in known.items()
        if uid != but and each.refusal and not each.ended and not each.unsaved and each.pod.stage is not Stage.LEAVING
        and FINAL not in each.refusal.facts and waits(each, rules)
    ]  # fmt: skip


def queued(known: TrackedPod, refusal: Refusal, now: float, *, node: Node, given: Given | None) -> TrackedPod:
    """Put a refused pod that wishes to wait into the queue, or refuse it for good; its wait starts once."""
    final = hopeless(node, known.pod, known.settings, _prepare({known.pod.uid: given or {}}))
    return replace(known, refusal=final or refusal, since=known.since or now)


def refused_for_good(before: TrackedPod, now: TrackedPod, rules: Rules) -> Refusal | None:
    """Return the final refusal of a pod that asks for the same room as before: no annotation queues it again.

    None for a pod that now wishes to run on the shared pool or is left alone: it takes no place in the queue.
    """
    refusal = before.refusal
    if refusal is None or FINAL not in refusal.facts or not same_room(before.pod, now.pod):
        return None
    wish = now.settings.on_misalignment or rules.on_misalignment
    return None if now.exempt or now.ran or not now.settings.pin or wish is OnMisalignment.RUN else refusal


def crowded_out(known: Mapping[str, TrackedPod], rules: Rules, most: int, young: float) -> dict[str, TrackedPod]:
    """Refuse the pods for good that have no place in the queue; return them by uid, to be reported.

    While a pod is young and its room is about to be free, its refusal stays open (`agent.node.second_look`).

    Args:
        known: every known pod.
        rules: the node's rules.
        most: how many pods may wait.
        young: a pod that began to wait after this moment is young.
    """
    line = queue_of(known, rules)
    out, found = crowded(line, most), dict[str, TrackedPod]()
    places = Counter(each.pod.namespace for each in line if each not in out)
    for pod in (each.pod for each in out):
        mine = known[pod.uid]
        if mine.refusal is not None and HOLDER in mine.refusal.facts and mine.since > young:
            if OPEN not in mine.refusal.facts:
                facts = {**mine.refusal.facts, OPEN: True}
                found[pod.uid] = replace(mine, refusal=replace(mine.refusal, facts=facts))
        elif mine.refusal is not None:
            share = f"shared by {len(places)} namespaces, and {places[pod.namespace]} of {pod.namespace} do"
            text = f"{mine.refusal.message}; it does not wait: {most} pods may (waiting.sandboxesPerMinute), {share}"
            final = replace(mine.refusal, message=text, facts={**mine.refusal.facts, FINAL: "crowd"})
            found[pod.uid] = replace(mine, refusal=final.as_of())
    return found


def soften_pod(known: TrackedPod, wish: OnMisalignment, now: float) -> TrackedPod:
    """Give a refused pod a milder wish; with the wish to wait, its wait begins now."""
    if known.refusal is None:
        return known
    facts = {name: fact for name, fact in known.refusal.facts.items() if name != FINAL}
    settings, refusal = softer(known.settings, wish), replace(known.refusal, facts=facts)
    return replace(known, settings=settings, softer=wish, refusal=refusal, since=now)


@dataclass(frozen=True, slots=True)
class QueuePass:
    """What room and time made of the queue.

    Attributes:
        ledger: the grants.
        changed: pods whose decision changed, by uid.
        to_report: pods with something new to report, in order.
    """

    ledger: Ledger
    changed: Mapping[str, TrackedPod] = field(default_factory=dict)
    to_report: tuple[Pod, ...] = ()


def pass_queue(
    node: Node, ledger: Ledger, known: Mapping[str, TrackedPod], switches: Switches, given: Mapping[str, Given],
    now: float, judge: PressureCheck = unjudged,
) -> QueuePass:  # fmt: skip
    """Let the resizes and pods in that fit now; refuse the pods for good that waited too long.

    Args:
        node: the managers.
        ledger: the grants.
        known: every known pod.
        switches: the engine's settings.
        given: devices that the kubelet gave, by pod.
        now: on the clock of TrackedPod.since.
        judge: holds admissions against the nodes' real memory (safety.md S7).
    """
    changed, to_report = dict[str, TrackedPod](), list[Pod]()
    for uid in pending(ledger):
        if uid in known and not known[uid].ended:
            after = holding(node, ledger, replace(known[uid], pod=ledger.pods[uid].pod), switches, judge)
            if after.pods[uid] != ledger.pods[uid]:
                ledger = after
                to_report.append(known[uid].pod)
    line = queue_of(known, node.rules)
    young = now - switches.hold_back_others
    ledger, entered = let_in(node, ledger, line, _prepare(given), judge, young)
    for pod in entered:
        changed[pod.uid] = replace(known[pod.uid], refusal=None)
        to_report.append(pod)
    inside = {pod.uid for pod in entered}
    late = overdue([each for each in line if each.pod.uid not in inside], now, switches.waiting_limit)
    for each in late:
        mine = known[each.pod.uid]
        if mine.refusal is not None:
            text = f"{mine.refusal.message}; it waited {now - each.since:.0f} s for room, longer than waiting.limit"
            final = replace(mine.refusal, message=text, facts={**mine.refusal.facts, FINAL: "overdue"})
            changed[each.pod.uid] = replace(mine, refusal=final.as_of())
            to_report.append(each.pod)
    return QueuePass(ledger, changed, tuple(to_report))


def _prepare(given: Mapping[str, Given]) -> Callable[[Ledger, Pod], Ledger]:
    def prepared(ledger: Ledger, pod: Pod) -> Ledger:
        mine = given.get(pod.uid)
        return handed_over(ledger, pod, mine) if mine else ledger

    return prepared
