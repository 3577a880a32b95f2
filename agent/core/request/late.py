"""Annotations that came after their pod was placed: no running pod is moved for them, and that is told. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from agent.core.request.annotations import ALIGN, CPU_OPTIONS, DEVICES, POLICY, SCOPE, Problem
from agent.core.request.exclusive import EXCLUSIVE
from agent.core.request.isolated import ISOLATED
from agent.core.request.memory_policy import MEMORY_POLICY
from agent.core.request.mixed import MIXED
from agent.model.ledger import PodRecord

PLACING = (POLICY, SCOPE, ALIGN, CPU_OPTIONS, DEVICES, ISOLATED)
"""Annotations that count when a pod is placed, and never later."""
LATE = (*PLACING, EXCLUSIVE, MIXED, MEMORY_POLICY)
THEN = "delete the pod, and its owner makes it again"


def late(annotations: Mapping[str, str], record: PodRecord, names: tuple[str, ...] = LATE) -> Iterator[Problem]:
    """What a pod asks for now and did not ask for when it was placed.

    Args:
        annotations: of the pod now. Without the defaults of its namespace, which are meant for new pods.
        record: the pod in the ledger.
        names: the annotations to compare.
    """
    was = record.pod.annotations
    placed = {POLICY: record.policy, SCOPE: record.scope}
    for name in names:
        value = annotations.get(name)
        if value is not None and value not in (was.get(name), placed.get(name)):
            before = placed.get(name) or was.get(name)
            yield Problem(name, value, f"came after the pod was placed{f' (with {before})' if before else ''}", THEN)
