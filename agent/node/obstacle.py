"""A refused pod with the cause of its refusal (`agent.core.explain.cause`). Pure.

Called once for a pod that was refused, never for one that got in; a fault in it costs the sentence alone.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace

from agent.core.admission.node import Node
from agent.core.devices.kubelet import Given, handed_over
from agent.core.explain.case import Case
from agent.core.explain.cause import with_cause
from agent.model.ledger import Ledger
from agent.model.outcome import with_details
from agent.node.tracked_pod import TrackedPod


def kept(ledger: Ledger, known: TrackedPod) -> Ledger:
    """The ledger in which a refused pod that runs has its cause: the next start asks the ledger alone."""
    record, refusal = ledger.pods.get(known.pod.uid), known.refusal
    if record is None or refusal is None or not refusal.details:
        return ledger
    words = f"{refusal.reason}: {refusal.message}"
    if record.why.get("") != words:
        return ledger
    record = replace(record, why={**record.why, "": with_details(words, refusal.as_of().details)})
    return replace(ledger, pods={**ledger.pods, known.pod.uid: record})


def with_obstacle(node: Node, ledger: Ledger, known: TrackedPod, given: Given | None = None) -> TrackedPod:
    """The pod, its refusal with its cause.

    Args:
        node: the managers.
        ledger: as the refused admission saw it.
        known: the pod.
        given: devices that the kubelet gave it.
    """

    def prepare(before: Ledger) -> Ledger:
        return handed_over(before, known.pod, given) if given else before

    with contextlib.suppress(Exception):  # of whatever kind: the refusal stands without it
        case = Case(prepare(ledger), known.pod, known.settings)
        if known.refusal is not None:
            return replace(known, refusal=with_cause(node, case, known.refusal, prepare))
    return known
