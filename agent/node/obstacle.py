"""Add the cause to the refusal of a pod (`agent.core.explain.cause`). Pure.

Called once for each refused pod, never for an admitted one. A fault in here costs the sentence alone.
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
    """Record the cause in the ledger for a refused pod that runs: the next start has the ledger alone."""
    record, refusal = ledger.pods.get(known.pod.uid), known.refusal
    if record is None or refusal is None or not refusal.details:
        return ledger
    text = f"{refusal.reason}: {refusal.message}"
    if record.why.get("") != text:
        return ledger
    record = replace(record, why={**record.why, "": with_details(text, refusal.as_of().details)})
    return replace(ledger, pods={**ledger.pods, known.pod.uid: record})


def with_obstacle(node: Node, ledger: Ledger, known: TrackedPod, given: Given | None = None) -> TrackedPod:
    """Add the cause to a pod's refusal; a pod without a refusal stays as it is.

    Args:
        node: the managers.
        ledger: as the refused admission saw it.
        known: the pod.
        given: devices that the kubelet gave it.
    """

    def prepare(before: Ledger) -> Ledger:
        return handed_over(before, known.pod, given) if given else before

    with contextlib.suppress(Exception):  # of any kind: the refusal counts without its cause
        case = Case(prepare(ledger), known.pod, known.settings)
        if known.refusal is not None:
            return replace(known, refusal=with_cause(node, case, known.refusal, prepare))
    return known
