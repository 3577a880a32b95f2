"""The second half of `agent.core.machines.synthetic`: a plan, once parsed, becomes a Machine.

Called by `agent.core.machines.synthetic` alone. Nothing here knows the description's words.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import product

from agent.core.machines.uncore import uncore_of
from agent.errors import MalformedError
from agent.model.idset import CpuSet, IdSet, NodeSet
from agent.model.machine import Cache, Cpu, Machine, MemoryKind, NumaNode, PciDevice

MAX_CPUS = 4096
MAX_NODES = 1024
SOURCE = "description"
GIB = 2**30
LEVELS = ("socket", "die", "node", "l3", "core", "thread")
FAR_DISTANCE = 7
"""A memory-only node is this much farther than the node that it is near to."""
_CLASSES = {"gpu": ("030200", "10de", "20b0"), "nic": ("020000", "8086", "1592"), "nvme": ("010802", "144d", "a80a")}
_VF = ("020000", "8086", "1889")


@dataclass
class Plan:
    """What a description says."""

    counts: dict[str, int] = field(default_factory=dict)
    cpus_per_l3: int | None = None
    memory: int = 16 * GIB
    memory_on: dict[int, int] = field(default_factory=dict)
    pages: list[tuple[int, int, tuple[int, ...] | None]] = field(default_factory=list)  # size, count, nodes
    devices: list[tuple[str, int, tuple[int, ...]]] = field(default_factory=list)  # what, count, nodes
    memory_nodes: list[tuple[int, MemoryKind, tuple[int, ...]]] = field(default_factory=list)  # size, kind, near
    sets: dict[str, IdSet] = field(default_factory=dict)  # offline, isolated, efficiency
    distance: tuple[int, int, int] = (10, 12, 21)
    node_ids: tuple[int, ...] = ()
    adjacent: bool = False


@dataclass(frozen=True)
class _Place:
    """Where a CPU is: each unit numbered over the whole machine."""

    socket: int
    die: int
    node: int
    l3: int
    core: int


def build(plan: Plan, name: str) -> Machine:
    """Make the machine; raises MalformedError when the parts do not fit together."""
    places = _places(plan)
    online = CpuSet.from_ids(places) - _cpus(plan, "offline", places)
    if not online:
        raise MalformedError("no CPU is left online")
    nodes = _nodes(plan, places, online)
    known = NodeSet.from_ids(node.id for node in nodes)
    node_of = {cpu: places[cpu].node for cpu in online}
    core = _lowest(online, {cpu: places[cpu].core for cpu in online})
    die = _lowest(online, {cpu: places[cpu].die for cpu in online})
    l3 = _groups(online, {cpu: places[cpu].l3 for cpu in online})
    caches = tuple(sorted((Cache(3, cpus) for cpus in l3.values()), key=lambda cache: cache.cpus.first))
    uncore = uncore_of(caches, {(3, cpus.first): number for number, cpus in l3.items()}, core, node_of)
    slow = _cpus(plan, "efficiency", places) & online
    slow = CpuSet() if slow == online else slow  # CPUs that are all alike are of no kind
    cpus = tuple(
        Cpu(cpu, node_of[cpu], core[cpu], places[cpu].socket, die[cpu], uncore.get(cpu), _kind(cpu, slow))
        for cpu in online
    )
    return Machine(
        cpus=cpus,
        nodes=nodes,
        offline=_cpus(plan, "offline", places),
        isolated=_cpus(plan, "isolated", places) & online,
        caches=caches,
        devices=_devices(plan, known),
        name=name,
    )


def _places(plan: Plan) -> dict[int, _Place]:
    """CPU id -> place, ascending."""
    counts = [plan.counts.get(level, 1) for level in LEVELS]
    total = 1
    for count in counts:
        total *= count
    if total > MAX_CPUS or counts[0] * counts[1] * counts[2] > MAX_NODES:
        nodes = counts[0] * counts[1] * counts[2]
        what = f"{total} CPUs" if total > MAX_CPUS else f"{nodes} NUMA nodes"
        raise MalformedError(f"{what} are too many: at most {MAX_CPUS} CPUs and {MAX_NODES} nodes")
    threads, cores = counts[5], total // counts[5]
    nodes = counts[0] * counts[1] * counts[2]
    ids = plan.node_ids or tuple(range(nodes))
    if len(ids) != nodes:
        raise MalformedError(f"{len(ids)} node ids are given for {nodes} nodes")
    per_node = cores // nodes
    cores_per_l3 = _cores_per_l3(plan, threads, per_node)
    l3_per_node = -(-per_node // cores_per_l3)
    found: dict[int, _Place] = {}
    for core, thread in product(range(cores), range(threads)):
        cpu = core * threads + thread if plan.adjacent else thread * cores + core
        node = core // per_node
        die = node // counts[2]
        l3 = node * l3_per_node + core % per_node // cores_per_l3
        found[cpu] = _Place(die // counts[1], die, ids[node], l3, core)
    return dict(sorted(found.items()))


def _cores_per_l3(plan: Plan, threads: int, per_node: int) -> int:
    if plan.cpus_per_l3 is None:
        return per_node // plan.counts.get("l3", 1)
    if "l3" in plan.counts:
        raise MalformedError("both a count of L3 caches and CPUs per L3 are given: one is enough")
    if plan.cpus_per_l3 % threads:
        raise MalformedError(f"{plan.cpus_per_l3} CPUs per L3 would cut a core of {threads} threads")
    if plan.cpus_per_l3 > per_node * threads:
        raise MalformedError(f"{plan.cpus_per_l3} CPUs per L3 are more than a node has ({per_node * threads})")
    return plan.cpus_per_l3 // threads


def _nodes(plan: Plan, places: dict[int, _Place], online: CpuSet) -> tuple[NumaNode, ...]:
    owners = sorted({place.node for place in places.values()})
    socket = {place.node: place.socket for place in places.values()}
    near: dict[int, tuple[int, ...]] = dict.fromkeys(owners, ())
    sizes = dict.fromkeys(owners, plan.memory)
    kinds = dict.fromkeys(owners, MemoryKind.DRAM)
    for number, (size, kind, close) in enumerate(plan.memory_nodes, start=owners[-1] + 1):
        near[number], sizes[number], kinds[number] = close or (owners[0],), size, kind
    for what, ids in (("memory", plan.memory_on), *((f"{s} byte pages", n or ()) for s, _, n in plan.pages)):
        _known(what, ids, sizes)
    for close in near.values():
        _known("near", close, owners)
    sizes.update(plan.memory_on)
    awake = {places[cpu].node for cpu in online}
    pages = {node: _pages(plan, node, sizes[node]) for node in sizes}
    return tuple(
        NumaNode(
            id=node,
            cpus=CpuSet.from_ids(cpu for cpu, place in places.items() if place.node == node and cpu in online),
            memory=sizes[node],
            hugepages=pages[node],
            distances=tuple(_distance(plan, node, other, near, socket) for other in sizes),
            kind=kinds[node] if sizes[node] else MemoryKind.NONE,
            kind_source=SOURCE,
            initiators=NodeSet.from_ids(close for close in near[node] if close in awake),
        )
        for node in sizes
    )


def _known(what: str, given: Iterable[int], nodes: Iterable[int]) -> None:
    missing = sorted(set(given) - set(nodes))
    if missing:
        raise MalformedError(f"{what}: node {missing[0]} does not exist; nodes: {NodeSet.from_ids(nodes)}")


def _pages(plan: Plan, node: int, memory: int) -> tuple[tuple[int, int], ...]:
    found: dict[int, int] = {}
    for size, count, nodes in plan.pages:
        found.setdefault(size, 0)
        if nodes is None and not memory:
            continue
        if nodes is None or node in nodes:
            found[size] += count
    if sum(size * count for size, count in found.items()) > memory:
        raise MalformedError(f"the huge pages of node {node} are more than its memory of {memory} bytes")
    return tuple(sorted(found.items()))


def _distance(plan: Plan, one: int, two: int, near: dict[int, tuple[int, ...]], socket: dict[int, int]) -> int:
    local, close, remote = plan.distance
    if one == two:
        return local
    extra = FAR_DISTANCE * (bool(near[one]) + bool(near[two]))
    pairs = product(near[one] or (one,), near[two] or (two,))
    return extra + min(local if a == b else close if socket[a] == socket[b] else remote for a, b in pairs)


def _devices(plan: Plan, known: NodeSet) -> tuple[PciDevice, ...]:
    found: list[PciDevice] = []
    bus = 0
    for what, count, nodes in plan.devices:
        _known(what, nodes, known)
        for node in nodes:
            place = NodeSet.of(node)
            if what == "vf":
                bus += 1
                parent = _device(bus, 0, 0, _CLASSES["nic"], place)
                found.append(parent)
                found += [_device(bus, i // 8, i % 8, _VF, place, parent.address) for i in range(1, count + 1)]
                continue
            for _ in range(count):
                bus += 1
                found.append(_device(bus, 0, 0, _CLASSES[what], place))
    return tuple(found)


def _device(
    bus: int, slot: int, function: int, what: tuple[str, str, str], node: NodeSet, physfn: str = ""
) -> PciDevice:
    address = f"{bus >> 8:04x}:{bus & 255:02x}:{slot & 31:02x}.{function}"
    return PciDevice(address, *what, physfn=physfn, numa_nodes=node, numa_source=SOURCE)


def _cpus(plan: Plan, name: str, places: dict[int, _Place]) -> CpuSet:
    cpus = CpuSet.from_ids(plan.sets.get(name, ()))
    missing = cpus - CpuSet.from_ids(places)
    if missing:
        raise MalformedError(f"{name}: CPUs {missing} do not exist; CPUs: {CpuSet.from_ids(places)}")
    return cpus


def _kind(cpu: int, slow: CpuSet) -> str:
    if not slow:
        return ""
    return "efficiency" if cpu in slow else "performance"


def _groups(online: CpuSet, key: dict[int, int]) -> dict[int, CpuSet]:
    bits: dict[int, int] = {}
    for cpu in online:
        bits[key[cpu]] = bits.get(key[cpu], 0) | 1 << cpu
    return {number: CpuSet(value) for number, value in bits.items()}


def _lowest(online: CpuSet, key: dict[int, int]) -> dict[int, int]:
    return {cpu: group.first for group in _groups(online, key).values() for cpu in group}
