"""What the kubelet's own cgroup has in force, as a part of the machine. Pure.

Every pod runs below that cgroup (kubepods), so the kernel gives no pod a CPU or a NUMA node that it lacks: another
program made it or one above it narrower, a cpuset partition took CPUs, or CPUs came after the start of a kubelet that
wrote those of then. Such CPUs are placed on as if they were offline. Under Compatibility.KUBELET, too: the kubelet
would grant them, and the kernel would not. What a pod holds there already stays its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from agent.errors import MalformedError
from agent.model.cgroup import InForce
from agent.model.idset import CpuSet, NodeSet
from agent.model.machine import Machine

BARRED, BARRED_NODES = "barred", "barredNodes"
"""Keys of what is saved of it with a ledger."""


def within(machine: Machine, found: InForce) -> Machine:
    """The machine where pods run on what is in force; the same object where that is so already.

    A set that has nothing of the machine says nothing: there is no such cgroup yet, or it is of another machine.
    """
    with_memory = NodeSet.from_ids(node.id for node in machine.nodes if node.memory and node.online)
    cpus = machine.online - found.cpus if machine.online & found.cpus else CpuSet()
    nodes = with_memory - found.mems if with_memory & found.mems else NodeSet()
    return barring(machine, cpus, nodes)


def barring(machine: Machine, cpus: CpuSet, nodes: NodeSet) -> Machine:
    """The machine where nothing is placed on these, as far as it has them."""
    cpus, nodes = cpus & machine.online, nodes & machine.node_set
    if (cpus, nodes) == (machine.barred, machine.barred_nodes):
        return machine
    return replace(machine, barred=cpus, barred_nodes=nodes)


def as_saved(machine: Machine) -> dict[str, str]:
    """What is saved of it with a ledger, in JSON's types; nothing where pods can run on all of the machine."""
    found = {BARRED: str(machine.barred), BARRED_NODES: str(machine.barred_nodes)}
    return {name: text for name, text in found.items() if text}


def as_it_was(machine: Machine, saved: Mapping[str, object]) -> Machine:
    """The machine with what `as_saved` told of it; nothing in that is trusted."""
    try:
        cpus = CpuSet.parse(str(saved.get(BARRED, "")))
        return barring(machine, cpus, NodeSet.parse(str(saved.get(BARRED_NODES, ""))))
    except MalformedError:
        return machine


def barred(machine: Machine, kept: CpuSet, path: str = "") -> str:
    """What pods cannot have of a machine, and what to do; "" for nothing but CPUs that are kept from pods anyway."""
    found, remedies = [], []
    if machine.barred - kept:
        found.append(f"CPUs {machine.usable} of {machine.online}")
        remedies = [f"set reservedSystemCPUs: {machine.barred | kept}", "restart the kubelet if CPUs were added"]
    if machine.barred_nodes:
        every = NodeSet.from_ids(node.id for node in machine.nodes if node.memory)
        found.append(f"NUMA nodes {every - machine.barred_nodes} of {every}")
    remedies.append("widen it (AllowedCPUs=, AllowedMemoryNodes=, a cpuset partition or another program's write)")
    what = f"{path}, the kubelet's own cgroup, has" if path else "the kubelet's own cgroup has"
    return f"{what} {' and '.join(found)}, and no pod is granted the rest: {', or '.join(remedies)}" if found else ""
