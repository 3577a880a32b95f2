"""The NUMA nodes in lstopo's XML: whose CPUs they are, their memory, how far they are from each other.

In hwloc 2 the CPUs of a NUMANode are those near to it, so that several may name the same: DRAM beside HBM, say. The
kernel gives each CPU to one node. It is the one with the fewest CPUs, of those that are alike one of DRAM, of those
the lowest; the others have no CPUs of their own, and are reached best by that one's. CPUs that no NUMANode names are
on a node that has no memory and is not online, as the kernel has them; it gets the lowest number that is free.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agent.core.machines.lstopo_element import Element
from agent.model.idset import MAX_ID, CpuSet, NodeSet
from agent.model.machine import MemoryKind, NumaNode

_KINDS = {
    "MCDRAM": MemoryKind.HBM, "HBM": MemoryKind.HBM, "GPUMemory": MemoryKind.GPU, "NVM": MemoryKind.FAR,
    "CXL-DRAM": MemoryKind.FAR, "CXL-NVM": MemoryKind.FAR,
}  # fmt: skip
"""What lstopo calls memory (subtype of a NUMANode); DRAM, SPM and what it does not know count as DRAM."""
SOURCE = "lstopo XML"
MOST_BYTES = 2**60
MOST_PAGES = 2**50


@dataclass(frozen=True)
class Memory:
    """The nodes.

    Attributes:
        nodes: ascending id.
        owner: online CPU -> its node.
        warnings: what of the file could not be used.
    """

    nodes: tuple[NumaNode, ...]
    owner: dict[int, int]
    warnings: tuple[str, ...] = ()

    def owners(self, cpus: CpuSet) -> NodeSet:
        """The nodes of some online CPUs."""
        return NodeSet.from_ids(self.owner[cpu] for cpu in cpus)


def nodes_of(root: Element, objects: Sequence[Element], online: CpuSet) -> Memory:
    """Read the nodes; a file without any has one, the whole machine.

    Args:
        root: the topology.
        objects: all that it holds, in order, its machine first.
        online: the CPUs.
    """
    elements: dict[int, Element] = {}
    for each in (one for one in objects if one.get("type") == "NUMANode"):
        number = each.number("os_index", most=MAX_ID)
        if number in elements:
            raise each.wrong("is there twice")
        elements[number] = each
    if not elements:
        elements = {0: objects[0]}
    near = {number: CpuSet(each.bits("cpuset")) & online for number, each in elements.items()}
    owner = _owners(elements, near, online)
    lost = next((number for number in sorted(set(owner.values())) if number not in elements), None)
    matrix = _distances(root, objects, list(elements)) if lost is None else {}
    unused = any(True for one in objects for _ in one.all("distances")) and len(elements) > 1 and not matrix
    nodes = [] if lost is None else [_lost(lost, owner)]
    for number in elements:
        cpus = CpuSet.from_ids(cpu for cpu, node in owner.items() if node == number)
        close = NodeSet.from_ids(owner[cpu] for cpu in near[number])
        everywhere = len(close) == len(set(owner.values())) > 1
        memory = elements[number].number("local_memory", 0, most=MOST_BYTES)
        word = _word(elements[number])
        kind = _KINDS.get(word, MemoryKind.DRAM) if memory else MemoryKind.NONE
        said = word or not memory
        nodes.append(
            NumaNode(
                id=number,
                cpus=cpus,
                memory=memory,
                hugepages=_pages(elements[number]),
                distances=tuple(matrix[number][other] for other in sorted(elements)) if matrix else (),
                kind=kind,
                kind_source=SOURCE if said else "",
                initiators=NodeSet() if cpus or everywhere else close,
            )
        )
    told = ("<distances>: no matrix is of all NUMA nodes: distances are left out",) if unused else ()
    return Memory(tuple(sorted(nodes, key=lambda node: node.id)), owner, told)


def _word(each: Element) -> str:
    """What lstopo calls a node's memory; "" where it does not say: format 1 has it as an info."""
    told = (info.get("value") for info in each.all("info") if info.get("name") == "Type")
    return each.get("subtype") or next(told, "")


def _lost(number: int, owner: dict[int, int]) -> NumaNode:
    """The node of the CPUs that no NUMANode names."""
    cpus = CpuSet.from_ids(cpu for cpu, node in owner.items() if node == number)
    return NumaNode(number, cpus, 0, kind=MemoryKind.NONE, kind_source=SOURCE, online=False)


def _owners(elements: dict[int, Element], near: dict[int, CpuSet], online: CpuSet) -> dict[int, int]:
    order = sorted(elements, key=lambda node: (len(near[node]), _word(elements[node]) in _KINDS, node), reverse=True)
    owner: dict[int, int] = {}
    for node in order:  # the best comes last and stays
        owner.update(dict.fromkeys(near[node], node))
    free = next(number for number in range(len(elements) + 1) if number not in elements)
    return {cpu: owner.get(cpu, free) for cpu in online}


def _pages(each: Element) -> tuple[tuple[int, int], ...]:
    """Huge pages: all sizes but the smallest, which is the kernel's own."""
    found = {
        page.number("size", most=2**50): page.number("count", 0, most=MOST_PAGES)
        for page in each.all("page_type")
        if page.get("size")
    }
    memory = each.number("local_memory", 0, most=MOST_BYTES)
    huge = sorted(found.items())[1:]
    if sum(size * count for size, count in huge) > memory:
        raise each.wrong(f"has more huge pages than its local_memory of {memory} bytes")
    return tuple(huge)


def _distances(root: Element, objects: Sequence[Element], order: Sequence[int]) -> dict[int, dict[int, int]]:
    """Node -> node -> distance; empty where the file has no matrix of all nodes.

    Args:
        root: the topology; format 2 has it there.
        objects: format 1 has it in the one that holds all nodes: the machine, or its only package.
        order: the nodes as the file lists them.
    """
    for each in root.all("distances2"):
        if each.get("type") == "NUMANode" and each.get("name") in {"NUMALatency", ""}:
            nodes = [_whole(each, word) for part in each.all("indexes") for word in part.text.split()]
            values = [_whole(each, word) for part in each.all("u64values") for word in part.text.split()]
            if len(values) != len(nodes) ** 2:
                raise each.wrong(f"has {len(values)} values for {len(nodes)} nodes")
            if set(nodes) == set(order):
                return _matrix(nodes, values)
    for each in (found for one in objects for found in one.all("distances")):
        values = [_scaled(part, each.get("latency_base")) for part in each.all("latency")]
        if len(order) > 1 and len(values) == len(order) ** 2:
            return _matrix(order, values)
    return {}


def _matrix(nodes: Sequence[int], values: Sequence[int]) -> dict[int, dict[int, int]]:
    size = len(nodes)
    return {
        node: dict(zip(nodes, values[row * size : (row + 1) * size], strict=True)) for row, node in enumerate(nodes)
    }


def _whole(each: Element, word: str) -> int:
    if not (word.isascii() and word.isdigit() and len(word) < len(str(MOST_BYTES))):
        raise each.wrong(f'holds "{word[:20]}", which is no whole number')
    return int(word)


def _scaled(part: Element, base: str) -> int:
    try:
        value = float(part.get("value")) * float(base or "1")
    except ValueError:
        raise part.wrong("is no number") from None
    if not 0 <= value < MOST_BYTES:
        raise part.wrong("is no distance")
    return round(value)
