"""A machine as the kubelet has it: what cAdvisor makes of the kernel's own numbers (kubelet rule 1.1).

The machine itself goes by sets of CPUs, which are the hardware. cAdvisor goes by numbers, which repeat, contradict
the sets or are missing on some machines (defects D21 to D25). Managers under Compatibility.KUBELET decide by this
view. What is written into cgroups, shown as the hardware and compared at a restart is the machine itself.

The readers of all known minors answer alike (cAdvisor 0.52.1, 0.53.0, 0.56.2, lib/0.60.5: `tests/peers/cadvisor`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from agent.core.machines.per_machine import per_machine
from agent.model.idset import CpuSet, NodeSet
from agent.model.machine import Cpu, KernelCpu, Machine, MemoryKind, NumaNode
from agent.model.rules import Compatibility

HIGHEST = 63
"""The kubelet's masks of NUMA nodes end here (rule 3.1)."""
_Core = tuple[int, int, int]
"""Node, core_id, physical_package_id."""


def managed(machine: Machine, compatibility: Compatibility) -> Machine:
    """The machine that the managers decide by: itself under Compatibility.FIXED, else the kubelet's view of it."""
    return machine if compatibility is Compatibility.FIXED else kubelet_view(machine)


@per_machine
def kubelet_view(machine: Machine) -> Machine:
    """The machine as cAdvisor describes it to the kubelet; itself where that is the same.

    A machine that was described has no numbers of a kernel, and a recording may lack them for every CPU: both are
    taken by their sets. A CPU that alone lacks an id does not exist for the kubelet. On a kernel without NUMA the
    nodes are the packages (defect D23); they are marked as not online, as no kernel knows them. A single package 0 is
    the kernel's only node.
    """
    facts = machine.kernel
    told = {each.id: facts.cpus[each.id] for each in machine.cpus if each.id in facts.cpus} if facts else {}
    told = {cpu: each for cpu, each in told.items() if each.core is not None and each.package is not None}
    if facts is None or not told:
        return machine
    node_of = _nodes_of(machine, told, facts.nodes)
    cores: dict[_Core, list[int]] = {}
    for cpu in sorted(node_of, key=str):  # the order of a shell's pattern: cpu10 before cpu2
        cores.setdefault((node_of[cpu], told[cpu].core or 0, told[cpu].package or 0), []).append(cpu)
    uncore = _uncore(cores, told)
    core_of = {cpu: key for key, threads in cores.items() for cpu in threads}
    cpus = tuple(
        replace(
            each, node=core_of[each.id][0], core=min(cores[core_of[each.id]]), package=core_of[each.id][2],
            uncore=uncore.get(core_of[each.id]),
        )
        for each in machine.cpus if each.id in core_of
    )  # fmt: skip
    nodes = _numa(machine, cpus, facts.nodes) if facts.nodes else _packages(machine, node_of)
    sockets = facts.sockets if facts.sockets != len({each.package for each in cpus}) else None
    counted = None if facts.nodes or facts.folders == len(cpus) else facts.folders
    if (cpus, nodes, sockets, counted) == (machine.cpus, machine.nodes, machine.sockets, machine.counted):
        return machine
    view = replace(
        machine, cpus=cpus, nodes=nodes, sockets=sockets, counted=counted, kernel=None,
        isolated=machine.isolated & CpuSet.from_ids(core_of),
    )  # fmt: skip
    return view if view.kernel_nodes else _without_places(view)


def _without_places(machine: Machine) -> Machine:
    """Where nodes are packages, no function says which of them it is near to."""
    return replace(machine, devices=tuple(replace(each, numa_nodes=NodeSet()) for each in machine.devices))


def _nodes_of(machine: Machine, told: Mapping[int, KernelCpu], folders: Mapping[int, CpuSet]) -> dict[int, int]:
    """CPU -> node, as the kubelet finds it: by the links in the nodes' folders, without which a CPU is not found.

    Without NUMA, a package is a node. Numbers that the kubelet's masks cannot hold become ranks (defect D23).
    """
    linked = {cpu: node for node in sorted(folders, key=str) for cpu in folders[node] if cpu in told}
    if folders:
        return linked or {each.id: each.node for each in machine.cpus if each.id in told and each.node in folders}
    packages = sorted({each.package or 0 for each in told.values()})
    fits = packages[0] >= 0 and packages[-1] <= HIGHEST
    number = {package: package if fits else rank for rank, package in enumerate(packages)}
    return {cpu: number[each.package or 0] for cpu, each in told.items()}


def _uncore(cores: Mapping[_Core, list[int]], told: Mapping[int, KernelCpu]) -> dict[_Core, int]:
    """Core -> id of its uncore cache; a core without one is left out.

    It is the first cache above level 2 seen from the core's first thread, unless as many CPUs share it as the node
    would have if all its cores had this one's number of threads. Where a cache cannot be read, that core and those
    after it in the node have none.
    """
    found: dict[_Core, int] = {}
    sizes: dict[int, int] = {}
    for node, _, _ in cores:
        sizes[node] = sizes.get(node, 0) + 1
    ended: set[int] = set()
    for key, threads in cores.items():
        outer = told[threads[0]].outer
        if outer is None:
            ended.add(key[0])
        if outer is None or key[0] in ended:
            continue
        whole = sizes[key[0]] * len(threads)
        number = next((number for number, shared in outer if shared != whole), None)
        if number is not None:
            found[key] = number
    return found


def _numa(machine: Machine, cpus: tuple[Cpu, ...], folders: Collection[int]) -> tuple[NumaNode, ...]:
    """The kernel's nodes, with the CPUs that the kubelet finds there."""
    there = {node: CpuSet.from_ids(each.id for each in cpus if each.node == node) for node in folders}
    return tuple(replace(each, cpus=there[each.id]) for each in machine.nodes if each.id in folders)


def _packages(machine: Machine, node_of: Mapping[int, int]) -> tuple[NumaNode, ...]:
    """Packages as nodes: cAdvisor gives them neither memory nor huge pages nor distances.

    A single node 0 keeps the machine's memory: where all lies on one node, that changes no choice.
    """
    if set(node_of.values()) == {0}:
        return tuple(replace(each, cpus=CpuSet.from_ids(node_of)) for each in machine.nodes)
    return tuple(
        NumaNode(
            number, CpuSet.from_ids(cpu for cpu, node in node_of.items() if node == number), 0,
            kind=MemoryKind.NONE, online=False,
        )
        for number in sorted(set(node_of.values()))
    )  # fmt: skip
