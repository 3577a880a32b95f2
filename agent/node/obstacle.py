"""A refusal by the topology policy, with the numbers behind the kubelet's words. Pure.

Called once for a pod that was refused, never for one that got in; a fault in it costs the sentence alone.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace

from agent.core.admission.node import Node
from agent.core.admission.waiting import BEHIND
from agent.core.devices.kubelet import APART, Given, handed_over
from agent.core.explain.case import Case
from agent.core.explain.first_obstacle import first_obstacle
from agent.model.ledger import Ledger
from agent.model.outcome import OBSTACLE, Reason
from agent.node.tracked_pod import TrackedPod


def kept(ledger: Ledger, known: TrackedPod) -> Ledger:
    """The ledger in which a refused pod that runs has its obstacle: the next start asks the ledger alone."""
    record, refusal = ledger.pods.get(known.pod.uid), known.refusal
    if record is None or refusal is None or not refusal.obstacle:
        return ledger
    words = f"{refusal.reason}: {refusal.message}"
    if record.why.get("") != words:
        return ledger
    record = replace(record, why={**record.why, "": f"{words}: {refusal.as_of().obstacle}"})
    return replace(ledger, pods={**ledger.pods, known.pod.uid: record})


def with_obstacle(node: Node, ledger: Ledger, known: TrackedPod, given: Given | None = None) -> TrackedPod:
    """The pod, its refusal with what is in its way (`OBSTACLE`); the same pod where the message says it already.

    Args:
        node: the managers.
        ledger: as the refused admission saw it.
        known: the pod.
        given: devices that the kubelet gave it; where they alone are the reason, the message says all.
    """
    refusal = known.refusal
    if refusal is None or refusal.reason is not Reason.TOPOLOGY or BEHIND in refusal.message:
        return known
    if APART in refusal.message:
        return known

    def prepare(before: Ledger) -> Ledger:
        return handed_over(before, known.pod, given) if given else before

    with contextlib.suppress(Exception):  # of whatever kind: the refusal stands without it
        found = first_obstacle(node, Case(prepare(ledger), known.pod, known.settings), prepare)
        if found:
            return replace(known, refusal=replace(refusal, facts={**refusal.facts, OBSTACLE: found}))
    return known
