"""Objects of a paper fleet: what agents would publish of nodes that were filled with the real managers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from agent.forecast.dry_run import DryRun
from agent.forecast.node_summary import encode, summarize
from agent.kube.topology_crd import API, SUMMARY, WRITER, mark_of
from agent.model.pod import Container, Pod, Qos
from agent.model.quantity import parse_milli

BEGAN = 1_700_000_000.0
"""Seconds since the epoch at 0 of the engines' clocks."""


def summary_of(run: DryRun, changed: float = BEGAN) -> str:
    """The annotation of a node."""
    made = summarize(run.state, began=BEGAN, enforcing=True)
    return encode(replace(made, generation=1, changed=changed))


def topology(name: str, summary: str, **metadata: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    """A NodeResourceTopology as an agent writes it, its zones left out."""
    notes = {WRITER: "test", **({SUMMARY: summary} if summary else {})}
    return {
        "apiVersion": API, "kind": "NodeResourceTopology",
        "metadata": {"name": name, "annotations": notes, **metadata}, "topologyPolicies": [], "zones": [],
        "attributes": [{"name": SUMMARY, "value": mark_of(summary)}],
    }  # fmt: skip


def node(name: str, uid: str = "", *, cpu: str = "8", memory: str = "8Gi", **spec: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    """A Node that is ready."""
    return {
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "uid": uid or f"uid-{name}", "labels": {"kubernetes.io/hostname": name}},
        "spec": spec,
        "status": {
            "allocatable": {"cpu": cpu, "memory": memory, "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }  # fmt: skip


def pod(
    name: str, node: str = "", *, cpu: str = "1", memory: str = "1Gi", bound: str = "", phase: str = "Pending",
    aligned: tuple[str, str, str] | None = None, notes: dict[str, str] | None = None, **spec: Any,  # noqa: ANN401 - JSON
) -> dict[str, Any]:  # fmt: skip
    """A Guaranteed pod; `aligned` is (reason, message, since) of its condition."""
    conditions: list[dict[str, Any]] = []
    if node:
        conditions.append({"type": "PodScheduled", "status": "True", "lastTransitionTime": bound or None})
    if aligned:
        reason, message, since = aligned
        status = "True" if reason in ("Aligned", "SharedPool") else "False"
        conditions.append(
            {"type": "numalign.io/Aligned", "status": status, "reason": reason, "message": message,
             "lastTransitionTime": since}
        )  # fmt: skip
    limits = {"cpu": cpu, "memory": memory}
    container = {"name": "app", "image": "example.com/app", "resources": {"limits": limits, "requests": limits}}
    return {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": "shop", "uid": f"uid-{name}", "creationTimestamp": "2026-01-01T00:00:00Z",
            "annotations": notes or {},
        },
        "spec": {"containers": [container], **({"nodeName": node} if node else {}), **spec},
        "status": {"phase": phase, "conditions": conditions},
    }  # fmt: skip


def asking(uid: str, cpu: int, memory: str = "1Gi", **more: Any) -> Pod:  # noqa: ANN401 - Pod's
    """The pod that a node sees of `pod`: whole CPUs, Guaranteed."""
    amounts = {"cpu": 1000 * cpu, "memory": parse_milli(memory)}
    return Pod(uid, uid, "shop", (Container("app", requests=amounts, limits=amounts),), Qos.GUARANTEED, **more)
