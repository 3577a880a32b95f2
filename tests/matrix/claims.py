"""A pod whose DRA claim the agent follows, on a node of this folder: its device is on NUMA node 1."""

from __future__ import annotations

import json
from typing import Any

from agent.kube.pod_report import ASSIGNMENT
from agent.model.idset import CpuSet
from tests.flow.claims import claim, device, result, slices
from tests.matrix.node import HARDWARE, Node

FOLLOWING = {"dra": {"enabled": True}}
"""Settings that follow claims."""


def run_beside(node: Node, name: str, **more: Any) -> None:  # noqa: ANN401 - as `Node.create` takes them
    """Publish a device, allocate it to a claim of the pod's name, and start the pod once the agent knows all that."""
    published = slices(device(name, 1))
    published["spec"]["nodeName"] = node.name
    node.api.put("resourceslices", {**published, "metadata": {"name": f"{node.name}-{name}"}})
    metadata = {"namespace": node.key(name).partition("/")[0], "name": name}
    node.api.put("resourceclaims", {**claim(result(name)), "metadata": metadata})
    node.create(name, spec={"resourceClaims": [{"name": "gpu", "resourceClaimName": name}]}, **more)

    def using(body: dict[str, Any]) -> None:
        body["spec"]["containers"][0]["resources"]["claims"] = [{"name": "gpu"}]

    node.api.change("pods", node.key(name), using)
    node.wait(lambda: "claims" in _assignment(node, name), f"the claim of {name} to be followed")
    node.kubelet.run(node.key(name))


def elsewhere(node: Node, name: str) -> str:
    """A pod that runs, and not beside its claim's device, "" for none."""
    runs = node.kernel(name)
    return f"{name} runs on {runs}, its device is on NUMA node 1" if str(_nodes(runs)) != "1" else ""


def _nodes(cpus: str) -> object:
    return HARDWARE.nodes_of(CpuSet.parse(cpus))


def _assignment(node: Node, name: str) -> dict[str, Any]:
    notes = node.api.get("pods", node.key(name))["metadata"]["annotations"]
    found: dict[str, Any] = json.loads(notes.get(ASSIGNMENT, "{}")).get("containers", {}).get("c", {})
    return found
