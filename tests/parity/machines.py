"""The `machine` object of a parity vector as an agent.model Machine. Used by every family's module.

A vector's core is [socket id, uncore cache id or null, [online CPU ids]]; its page sizes are KiB; a node without
cores is memory only. A core's id is its lowest CPU id; a null uncore id means that the kubelet recorded none (it then
uses the socket id, which is the CPU manager's business, not the machine's).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent.model.idset import CpuSet
from agent.model.machine import Cpu, Machine, MemoryKind, NumaNode
from agent.model.rules import Minor


def minor_of(given: Mapping[str, Any]) -> Minor:
    """The kubelet that a vector's answer is of: its `kubelet`, which `reading.of_kubelet` sets; 1.36 without."""
    return Minor(given.get("kubelet", Minor.V1_36))


def pod_level(given: Mapping[str, Any]) -> bool:
    """Whether a vector's gate PodLevelResourceManagers is on; kubelets before 1.36 do not know it."""
    return minor_of(given) >= Minor.V1_36 and bool((given.get("gates") or {}).get("PodLevelResourceManagers"))


def machine_of(vector: dict[str, Any]) -> Machine:
    """Build the Machine that a vector's `machine` describes."""
    cores = [
        (node["id"], socket, uncore, sorted(ids))
        for node in vector["numa"]
        for socket, uncore, ids in node.get("cores") or []
    ]
    die: dict[int, int] = {}  # vectors know no dies: each socket is one
    for _, socket, _, ids in cores:
        die[socket] = min(die.get(socket, ids[0]), ids[0])
    cpus = [
        Cpu(cpu, node=node, core=ids[0], package=socket, die=die[socket], uncore=uncore)
        for node, socket, uncore, ids in cores
        for cpu in ids
    ]
    return Machine(
        cpus=tuple(sorted(cpus, key=lambda cpu: cpu.id)),
        nodes=tuple(sorted((_node(node) for node in vector["numa"]), key=lambda node: node.id)),
        name="vector",
    )


def _node(node: dict[str, Any]) -> NumaNode:
    pages = sorted((kib * 1024, count) for kib, count in node.get("hugepages") or [])
    return NumaNode(
        id=node["id"],
        cpus=CpuSet.from_ids(cpu for _, _, ids in node.get("cores") or [] for cpu in ids),
        memory=node.get("memory", 0),
        hugepages=tuple(pages),
        distances=tuple(node.get("distances") or ()),
        kind=MemoryKind.DRAM if node.get("memory") else MemoryKind.NONE,
    )
