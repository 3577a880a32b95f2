"""The machines and the settings that sequences are written for: the one place that knows them.

`lab` is the guest that tests/lab boots; change its shape here and there together. What a guest's kernel keeps of a
node's memory differs with its version, so sequences stay off the edges: they are run on both ends of `MEMORY`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MEMORY = ("800M", "1G")
"""The least and the most memory that a node of the lab's guest has (bytes of MemTotal, in words)."""

MACHINES: Mapping[str, str] = {
    "lab": (
        "2 sockets x 2 nodes x 2 cores x 2 threads, adjacent threads, {memory} per node, 16 2Mi pages per node, "
        "distance 10 12 32"
    ),
    "caches": (
        "1 socket x 1 node x 8 cores x 2 threads, adjacent threads, 4 CPUs per L3, {memory} per node"
    ),
    "wide": (
        "2 sockets x 2 nodes x 4 cores x 2 threads, adjacent threads, {memory} per node, distance 10 12 32"
    ),
    "two": (
        "2 sockets x 1 node x 4 cores x 2 threads, adjacent threads, {memory} per node, distance 10 32"
    ),
    "eight": (
        "2 sockets x 4 nodes x 1 core x 2 threads, adjacent threads, {memory} per node, distance 10 12 32"
    ),
}  # fmt: skip
"""Name -> description for `agent.core.machines.synthetic`. Only `lab` is booted for every run of the lab."""

BASE: Mapping[str, Any] = {
    "cpuManagerPolicy": "static",
    "memoryManagerPolicy": "Static",
    "topologyManagerPolicy": "best-effort",
    "reservedSystemCPUs": "0-1",
    "kubeReserved": {"memory": "100Mi"},
    "evictionHard": {"memory.available": "50Mi"},
    "reservedMemory": [{"numaNode": 0, "limits": {"memory": "150Mi"}}],
}
"""KubeletConfiguration keys that hold unless a sequence's `config` says otherwise (null takes one away)."""


def config_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """The managers' settings of a sequence: BASE with its own `config` over it."""
    return {key: value for key, value in {**BASE, **given}.items() if value is not None}


def description(machine: str, memory: str = MEMORY[-1]) -> str:
    """A machine in the words of `agent.core.machines.synthetic`."""
    return MACHINES[machine].format(memory=memory)
