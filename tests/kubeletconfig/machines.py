"""The machines that files are tried on: a numalign Machine, and what cAdvisor reports to the kubelet there."""

from __future__ import annotations

from functools import cache
from typing import Any

from agent.core.machines.synthetic import parse_synthetic
from agent.model.machine import Machine

MACHINES = {
    "two nodes": "2 sockets x 4 cores x 2 threads, 16G per node, 100 2Mi pages, distance 10 20 20",
    "one node": "1 socket x 4 cores, 8G per node, distance 10 20",
    "four nodes": "2 sockets x 2 nodes x 2 cores x 2 threads, 8G per node, 2 1Gi pages, distance 10 12 20",
    "nine nodes": "9 nodes x 1 core, 1G per node, distance 10 12 20",
}
"""Name -> description."""
FIRST = "two nodes"


@cache
def machine(name: str) -> Machine:
    """A machine of MACHINES."""
    return parse_synthetic(MACHINES[name], name)


@cache
def described(name: str) -> dict[str, Any]:
    """The same machine in the shape that the program of tests/peers/kubeletconfig reads."""
    found = machine(name)
    where = {cpu.id: cpu for cpu in found.cpus}
    return {
        "nodes": [
            {
                "id": node.id,
                "memory": node.memory,
                "distances": list(node.distances),
                "hugePages": [[size // 1024, count] for size, count in node.hugepages],
                "cores": [
                    {"socket": where[min(core)].package, "cpus": sorted(core)}
                    for core in found.cores
                    if where[min(core)].node == node.id
                ],
            }
            for node in found.nodes
        ]
    }
