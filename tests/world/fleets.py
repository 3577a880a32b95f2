"""Fleets on paper: what agents publish of nodes that were filled with the real managers, and Nodes and pods."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from agent.forecast.dry_run import DryRun
from agent.forecast.node_summary import encode, summarize
from agent.kube.topology_crd import API, SUMMARY, WRITER, mark_of, topology_object
from agent.model.pod import Container, Pod, Qos
from agent.model.podspec import pod_from
from agent.model.quantity import parse_milli
from tests.world.nodes import managers_of

Json = dict[str, Any]
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


def pod_of(name: str, cpu: str = "2", *, owner: str = "", space: str = "default", **more: Any) -> Json:  # noqa: ANN401 - JSON
    """A Guaranteed pod; `owner` is a ReplicaSet's name, `notes` are annotations of ours, the rest is its spec's."""
    notes = {f"numalign.io/{key.replace('_', '-')}": value for key, value in more.pop("notes", {}).items()}
    amounts = {"cpu": cpu, "memory": more.pop("memory", "64Mi")}
    kind, _, of = owner.rpartition("/")
    metadata: Json = {"name": name, "namespace": space, "uid": f"uid-{space}-{name}", "annotations": notes}
    if owner:
        metadata["ownerReferences"] = [{"kind": kind or "ReplicaSet", "name": of}]
    containers = [{"name": "c", "resources": {"requests": amounts, "limits": amounts}}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": containers, **more}}


def workload(name: str, replicas: int, cpu: str = "2", **more: Any) -> Json:  # noqa: ANN401 - see pod_of
    """A Deployment of such pods."""
    made = pod_of(name, cpu, **more)
    template = {"metadata": {"annotations": made["metadata"]["annotations"]}, "spec": made["spec"]}
    metadata = {"name": name, "namespace": made["metadata"]["namespace"]}
    return {"kind": "Deployment", "metadata": metadata, "spec": {"replicas": replicas, "template": template}}


@dataclass
class PaperNode:
    """A node that decides with the real core."""

    name: str
    run: DryRun
    labels: Mapping[str, str] = field(default_factory=dict)
    spec: Json = field(default_factory=dict)
    pods: list[Json] = field(default_factory=list)
    allocatable: Mapping[str, str] = field(default_factory=dict)

    def bind(self, body: Json) -> bool:
        """The scheduler binds a pod to it; whether it runs."""
        number = len(self.pods) + 1
        stamp = f"2024-01-15T08:{number // 60:02}:{number % 60:02}Z"
        metadata = {**body["metadata"], "creationTimestamp": stamp}
        bound = {**body, "metadata": metadata, "spec": {**body["spec"], "nodeName": self.name}}
        self.run.see(pod_from(bound), float(number))
        runs = self.run.runs(bound["metadata"]["uid"])
        self.pods.append({**bound, "status": {"phase": "Running" if runs else "Failed"}})
        return runs

    def objects(self) -> list[Json]:
        """Its Node, its NodeResourceTopology with the summary, its pods."""
        state = self.run.state
        topology = topology_object(
            state.node.machine, state.ledger, state.node.rules, reserved=state.node.reserved, node=self.name,
            node_uid=f"uid-{self.name}", pods=(), summary=summary_of(self.run),
        )  # fmt: skip
        metadata = {"name": self.name, "uid": f"uid-{self.name}", "labels": dict(self.labels)}
        node = {"kind": "Node", "metadata": metadata, "spec": self.spec, "status": {"allocatable": self.allocatable}}
        return [topology, node, *self.pods]


def paper(name: str, machine: str, settings: Mapping[str, Any] | None = None, **more: Any) -> PaperNode:  # noqa: ANN401 - JSON
    """A node without pods, whose reserved CPUs and memory are taken from allocatable."""
    run = DryRun(managers_of(machine, settings or {"reservedSystemCPUs": "0"}))
    cpus = len(run.node.machine.online) - len(run.node.reserved)
    memory = sum(each.memory for each in run.node.machine.nodes)
    allocatable = {"cpu": str(cpus), "memory": str(memory), "pods": "110"}
    return PaperNode(name, run, allocatable=allocatable, **more)


def listed(nodes: Iterable[PaperNode], *more: Json) -> Json:
    """What kubectl prints of a fleet."""
    return {"kind": "List", "items": [*(each for node in nodes for each in node.objects()), *more]}
