"""NUMA nodes from sysfs: CPUs, memory, huge pages, distances.

Called by `agent.host.sysfs.discovery`. Files: https://www.kernel.org/doc/Documentation/ABI/stable/sysfs-devices-node.
A kernel without NUMA has no node folders: the machine is then one node, 0, with all CPUs and the memory of
/proc/meminfo; that is also the only node that such a kernel accepts in cpuset.mems.
"""

from __future__ import annotations

from agent.errors import MalformedError, SysfsMalformedError
from agent.host.sysfs.cpus import CPUS
from agent.host.sysfs.read import SysfsReader, ids_in, parse_meminfo, parse_number
from agent.host.sysfs.tiers import NODES, read_classes
from agent.model.idset import CpuSet, NodeSet
from agent.model.machine import MemoryKind, NumaNode

PAGES = "sys/kernel/mm/hugepages"
KIB = 1024
MAX_DISTANCE = 65_535
_MAX_KIB = 2**53


def read_nodes(reader: SysfsReader, online: CpuSet) -> tuple[NumaNode, ...]:
    """Every NUMA node, ascending; each online CPU is in exactly one.

    Raises SysfsMalformedError when several nodes claim a CPU and nothing else says which.
    """
    ids = _node_ids(reader)
    if not ids:
        return (_only_node(reader, online),)
    node_of = _node_of_cpus(reader, ids, online)
    cpus = {
        node: CpuSet.from_ids(c for c in online if node_of[c] == node) for node in sorted({*ids, *node_of.values()})
    }
    memory = {node: _memory(reader, node) if node in ids else 0 for node in cpus}
    distances = _distances(reader, ids) if len(cpus) == len(ids) else {}
    classes = read_classes(reader, cpus, memory, node_of)
    movable = _movable(reader)
    return tuple(
        NumaNode(
            id=node,
            cpus=cpus[node],
            memory=memory[node],
            hugepages=_hugepages(reader, f"{NODES}/node{node}/hugepages", memory[node]),
            distances=distances.get(node, ()),
            kind=classes[node].kind,
            kind_source=classes[node].source,
            initiators=classes[node].initiators,
            tier=classes[node].tier,
            movable=bool(memory[node]) and node in movable,
            online=node in ids,
        )
        for node in cpus
    )


def _movable(reader: SysfsReader) -> NodeSet:
    """Nodes with memory of which none is ordinary; empty where the kernel does not say which nodes have that."""
    ordinary = reader.ids(f"{NODES}/has_normal_memory")
    return NodeSet() if ordinary is None else NodeSet((reader.ids(f"{NODES}/has_memory") or 0) & ~ordinary)


def _node_ids(reader: SysfsReader) -> list[int]:
    """Nodes that node/online lists and that have a folder; without that file, all folders."""
    folders = ids_in(reader.names(NODES), "node")
    listed = reader.ids(f"{NODES}/online")
    if listed is None or not folders:
        return folders
    if set(CpuSet(listed)) != set(folders):
        reader.warn(
            f"{NODES}/online", f"lists {CpuSet(listed)}, the folders are {CpuSet.from_ids(folders)}: only both count"
        )
    return [node for node in folders if listed >> node & 1] or folders


def _node_of_cpus(reader: SysfsReader, ids: list[int], online: CpuSet) -> dict[int, int]:
    """Online CPU -> node.

    A CPU that several cpumaps claim (numa=fake does that: arch/x86/mm/numa_emulation.c) belongs to the node that its
    own cpuN/nodeM link names, which is what cAdvisor follows. A CPU that no node claims goes to the node that its
    link names even though that node is not online (memory-less at boot), and to an unused id when there is no link.
    """
    claims: dict[int, list[int]] = {cpu: [] for cpu in online}
    for node in ids:
        for cpu in CpuSet((_cpumap(reader, node)) & online.bits):
            claims[cpu].append(node)
    found: dict[int, int] = {}
    for cpu, nodes in claims.items():
        if len(nodes) == 1:
            found[cpu] = nodes[0]
            continue
        linked = ids_in(reader.names(f"{CPUS}/cpu{cpu}"), "node")
        if len(linked) == 1:
            found[cpu] = linked[0]
        elif nodes:
            where = reader.files.where(f"{NODES}/node{nodes[1]}/cpumap")
            raise SysfsMalformedError(where, f"claims CPU {cpu}, which node{nodes[0]}/cpumap claims too")
        else:
            found[cpu] = ids[0] if len(ids) == 1 else max(ids) + 1
        odd = f"nodes {nodes} claim it" if nodes else "no node's cpumap has it"
        reader.warn(f"{CPUS}/cpu{cpu}", f"{odd}: taken as one of node {found[cpu]}")
    return found


def _cpumap(reader: SysfsReader, node: int) -> int:
    return reader.cpu_bits(f"{NODES}/node{node}/cpumap", f"{NODES}/node{node}/cpulist") or 0


def _meminfo(reader: SysfsReader, path: str) -> dict[str, int]:
    return {key: value for key, value in parse_meminfo(reader.text(path) or "").items() if value <= _MAX_KIB}


def _memory(reader: SysfsReader, node: int) -> int:
    path = f"{NODES}/node{node}/meminfo"
    total = _meminfo(reader, path).get("MemTotal")
    if total is None:
        reader.warn(path, "has no MemTotal: the node is taken to have no memory")
    return (total or 0) * KIB


def _machine_memory(reader: SysfsReader) -> int:
    return _meminfo(reader, "proc/meminfo").get("MemTotal", 0) * KIB


def _hugepages(reader: SysfsReader, folder: str, memory: int) -> tuple[tuple[int, int], ...]:
    """(page size in bytes, count), ascending, zeros included; none where the kernel has no huge pages.

    Huge pages are part of the node's memory: counts that exceed it cannot be.
    """
    pages = _read_pages(reader, folder)
    if sum(size * count for size, count in pages.items()) > memory:
        reader.warn(folder, f"has more huge pages than the node has memory ({memory} bytes): taken as none")
        pages = dict.fromkeys(pages, 0)
    return tuple(sorted(pages.items()))


def _read_pages(reader: SysfsReader, folder: str) -> dict[int, int]:
    found: dict[int, int] = {}
    for name in reader.names(folder):
        size = name.removeprefix("hugepages-").removesuffix("kB")
        if name != f"hugepages-{size}kB" or not (size.isascii() and size.isdigit()) or int(size) == 0:
            continue
        count = reader.number(f"{folder}/{name}/nr_hugepages")
        if count is not None and 0 <= count <= _MAX_KIB and int(size) <= _MAX_KIB:
            found[int(size) * KIB] = count
    return found


def _distances(reader: SysfsReader, ids: list[int]) -> dict[int, tuple[int, ...]]:
    """Node -> row, in the order of the online nodes; none at all unless every row is complete."""
    rows: dict[int, tuple[int, ...]] = {}
    for node in ids:
        path = f"{NODES}/node{node}/distance"
        text = reader.text(path)
        if text is None:
            return {}
        try:
            row = tuple(parse_number(word) for word in text.split())
        except MalformedError as error:
            reader.warn(path, f"{error}: distances are left out")
            return {}
        if len(row) != len(ids) or not all(0 < number <= MAX_DISTANCE for number in row):
            reader.warn(path, f"has {len(row)} distances for {len(ids)} nodes, or impossible ones: left out")
            return {}
        rows[node] = row
    return rows


def _only_node(reader: SysfsReader, online: CpuSet) -> NumaNode:
    memory = _machine_memory(reader)
    if not memory:
        reader.warn("proc/meminfo", "has no MemTotal: the memory of this machine is unknown, taken as none")
    kind = MemoryKind.DRAM if memory else MemoryKind.NONE
    return NumaNode(0, online, memory, _hugepages(reader, PAGES, memory), kind=kind, kind_source="proc/meminfo")
