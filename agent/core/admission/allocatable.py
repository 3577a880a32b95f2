"""Node Allocatable of a machine: what a Node object would say that its pods can request. Pure."""

from __future__ import annotations

from agent.core.admission.node import Node

PODS = "pods"
CPU, MEMORY = "cpu", "memory"
MOST_PODS = 110
"""The kubelet's maxPods, where it is not known."""


def node_room(node: Node, *, reserved_cpu: int, reserved_memory: int, most_pods: int) -> dict[str, int]:
    """Sum Node Allocatable of a machine: resource -> thousandths.

    Args:
        node: the managers; devices that it hands out are resources.
        reserved_cpu: thousandths of a CPU kept from pods.
        reserved_memory: bytes kept from pods.
        most_pods: the kubelet's maxPods.
    """
    found = {PODS: 1000 * most_pods}
    for each in node.machine.nodes:
        for name, size in each.resources.items():
            found[name] = found.get(name, 0) + 1000 * size
    found[CPU] = max(0, 1000 * len(node.machine.online) - reserved_cpu)
    found[MEMORY] = max(0, found.get(MEMORY, 0) - 1000 * reserved_memory)
    found |= {resource: 1000 * len(devices) for resource, devices in node.inventory.resources.items()}
    return dict(sorted(found.items()))
