"""What a node says of who has what: the kubelet's state files, numalign's ledger, and the kernel's cgroups."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from agent.model.idset import IdSet
from tests.lab import agent
from tests.lab.guest import CommandError
from tests.lab.node import Node

CPU_STATE, MEMORY_STATE = "/var/lib/kubelet/cpu_manager_state", "/var/lib/kubelet/memory_manager_state"
FILES = {2: ("cpuset.cpus.effective", "cpuset.mems.effective"), 1: ("cpuset.effective_cpus", "cpuset.effective_mems")}
TREE = {2: "/sys/fs/cgroup", 1: "/sys/fs/cgroup/cpuset"}


MONITOR = "crio-conmon-"
"""How the cgroup of CRI-O's monitor of a container begins, which lies beside the container's in some layouts."""


class Sets(NamedTuple):
    """CPUs and memory nodes as lists like "2-3,8"; "" for none."""

    cpus: str
    mems: str


Books = dict[str, dict[str, Sets]]
"""Pod uid -> container -> sets."""


def books(node: Node) -> Books:
    """What the node's keeper of CPUs and memory has written down."""
    return _kubelet(node) if node.plan.kind == "kubelet" else _numalign(node)


def _kubelet(node: Node) -> Books:
    cpus = json.loads(node.get(CPU_STATE)).get("entries") or {}
    memory = json.loads(node.get(MEMORY_STATE)).get("entries") or {}
    mems = {
        uid: {name: _union(each["numaAffinity"] for each in blocks) for name, blocks in containers.items()}
        for uid, containers in memory.items()
    }
    return _together(cpus, mems)


def _numalign(node: Node) -> Books:
    ledger = agent.ledger(node)
    if ledger is None:
        return {}
    cpus = {uid: {name: str(each) for name, each in found.items()} for uid, found in ledger.cpus.assigned.items()}
    mems = {
        uid: {name: _union(block.nodes for block in blocks) for name, blocks in found.items()}
        for uid, found in ledger.memory.blocks.items()
    }
    return _together(cpus, mems)


def _together(cpus: dict[str, dict[str, str]], mems: dict[str, dict[str, str]]) -> Books:
    found: Books = {}
    for uid in (*cpus, *mems):
        names = {*cpus.get(uid, {}), *mems.get(uid, {})}
        found[uid] = {
            name: Sets(str(IdSet.parse(cpus.get(uid, {}).get(name, ""))), mems.get(uid, {}).get(name, ""))
            for name in sorted(names)
        }
    return found


def _union(lists: Iterable[Iterable[int]]) -> str:
    return str(IdSet.from_ids({number for each in lists for number in each}))


def shared(node: Node) -> str:
    """The shared pool as the node's keeper has it."""
    if node.plan.kind == "kubelet":
        return str(IdSet.parse(json.loads(node.get(CPU_STATE))["defaultCpuSet"]))
    ledger = agent.ledger(node)
    return str(ledger.cpus.shared) if ledger else ""


def tree(node: Node, *more: str) -> dict[str, dict[str, str]]:
    """Cgroup path -> file -> text, of FILES and more, of everything below the kubelet's root but monitors."""
    version = node.plan.cgroups
    names = " ".join(f"--include={name}" for name in (*FILES[version], *more))
    found: dict[str, dict[str, str]] = {}
    for line in node.run(f"cd {TREE[version]} && grep -rsH '' {names} kubepods*; true").splitlines():
        path, _, text = line.partition(":")
        folder, _, file = path.rpartition("/")
        if MONITOR not in folder:
            found.setdefault(folder, {})[file] = text
    return found


def kernel(node: Node, pods: Iterable[dict[str, Any]]) -> Books:
    """Effective sets of every running container of pods."""
    by_id = {
        name[1]: [files.get(file, "") for file in FILES[node.plan.cgroups]]
        for folder, files in tree(node).items()
        if (name := re.search(r"([0-9a-f]{64})(\.scope)?$", folder))
    }
    sets: Books = {}
    for pod in pods:
        status = pod["status"]
        for each in (*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())):
            found = by_id.get(str(each.get("containerID", "")).rpartition("/")[2])
            if found:
                sets.setdefault(pod["metadata"]["uid"], {})[each["name"]] = Sets(*found)
    return sets


def holds(node: Node, uid: str) -> bool:
    """Whether a pod still has a cgroup, or exclusive CPUs in the books.

    The kubelet's memory manager drops a pod that is gone when it admits the next one: its file is not waited for.
    """
    name = uid.replace("-", "_")
    code, out, _ = node.guest.execute(
        f"ls -d {TREE[node.plan.cgroups]}/kubepods*/*{name}* {TREE[node.plan.cgroups]}/kubepods*/*/*{name}* "
        f"{TREE[node.plan.cgroups]}/kubepods*/*{uid}* {TREE[node.plan.cgroups]}/kubepods*/*/*{uid}* 2>/dev/null; true"
    )
    if code or out.strip():
        return True
    try:
        if node.plan.kind == "kubelet":
            return uid in (json.loads(node.get(CPU_STATE)).get("entries") or {})
    except CommandError:
        return False
    ledger = agent.ledger(node)
    return ledger is not None and (uid in ledger.cpus.assigned or uid in ledger.memory.blocks)
