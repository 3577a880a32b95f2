"""Fleets on paper: Nodes, what their agents published, and their pods, as a source and as kubectl prints them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from agent.forecast.dry_run import DryRun
from agent.forecast.node_summary import encode, summarize
from agent.kube.topology_crd import topology_object
from agent.model.podspec import pod_from
from tests.world.nodes import managers_of

Json = dict[str, Any]
BEGAN = 1_700_000_000.0
"""Seconds since the epoch at the beginning of all nodes."""


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
        text = encode(replace(summarize(state, began=BEGAN, enforcing=True), generation=1, changed=BEGAN))
        topology = topology_object(
            state.node.machine, state.ledger, state.node.rules, reserved=state.node.reserved, node=self.name,
            node_uid=f"uid-{self.name}", pods=(), summary=text,
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
