"""A machine as a tree of what contains what: sockets, dies, NUMA nodes, caches, cores.

Used by the drawing and by `agent.observe.tree`. The order of nesting is the machine's own: a node may hold sockets
(https://docs.kernel.org/admin-guide/cputopology.html promises none), a cache may span nodes (sub-NUMA clustering).
Containment is by sets of CPUs. Where units cross, NUMA nodes stay whole and the others are cut at their borders.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from agent.model.idset import CpuSet
from agent.model.machine import Cache, Machine, NumaNode, PciDevice


class UnitKind(StrEnum):
    """What a unit is; of equal sets, the earlier one contains the later one."""

    MACHINE = "machine"
    SOCKET = "socket"
    DIE = "die"
    NODE = "node"
    CACHE = "cache"
    CORE = "core"


_RANK = {kind: number for number, kind in enumerate(UnitKind)}
_HOLDERS_OF_NODES = (UnitKind.MACHINE, UnitKind.SOCKET, UnitKind.DIE)


@dataclass(slots=True)
class Unit:
    """A unit and what is in it; built once by `units`, then only read.

    Attributes:
        kind: what it is.
        cpus: its online CPUs.
        id: of the socket, die, node; lowest CPU otherwise.
        node, cache: the fact itself, for these kinds.
        children: units inside, by lowest CPU; memory-only nodes last.
        devices: local to just this unit.
        part: cut at the border of a NUMA node.
        covered: CPUs of all children.
    """

    kind: UnitKind
    cpus: CpuSet
    id: int
    node: NumaNode | None = None
    cache: Cache | None = None
    children: list[Unit] = field(default_factory=list)
    devices: list[PciDevice] = field(default_factory=list)
    part: bool = False
    covered: CpuSet = CpuSet()

    @property
    def label(self) -> str:
        """What to call it."""
        if self.kind is UnitKind.NODE:
            return f"NUMA node {self.id}"
        if self.cache:
            return f"L{self.cache.level}"
        return self.kind.value if self.kind is UnitKind.MACHINE else f"{self.kind.value} {self.id}"


def units(machine: Machine) -> Unit:
    """The tree of a machine. Every node of it is in the tree once, every core at least once, every device once."""
    root = Unit(UnitKind.MACHINE, machine.online, 0)
    borders = [node.cpus for node in machine.nodes if node.cpus]
    found = [piece for unit in _all(machine) for piece in _inside(unit, borders)]
    for unit in sorted(found, key=lambda unit: (-len(unit.cpus), _rank(unit), unit.cpus.first)):
        _insert(root, unit)
    for node in machine.nodes:
        if not node.cpus:
            near = machine.cpus_of(node.initiators)
            _deepest(root, near, _HOLDERS_OF_NODES).children.append(Unit(UnitKind.NODE, CpuSet(), node.id, node))
    _sort(root)
    _hang(machine, root)
    return root


def walk(unit: Unit) -> Iterator[Unit]:
    """The unit and all below it."""
    yield unit
    for child in unit.children:
        yield from walk(child)


def _rank(unit: Unit) -> tuple[int, int]:
    return _RANK[unit.kind], -unit.cache.level if unit.cache else 0


def _all(machine: Machine) -> Iterator[Unit]:
    of = {cpu.id: cpu for cpu in machine.cpus}
    yield from (Unit(UnitKind.SOCKET, cpus, of[cpus.first].package) for cpus in machine.packages)
    if len(machine.dies) > len(machine.packages):
        yield from (Unit(UnitKind.DIE, cpus, number) for number, cpus in enumerate(machine.dies))
    yield from (Unit(UnitKind.NODE, node.cpus, node.id, node) for node in machine.nodes if node.cpus)
    core_of = {cpu: core for core in machine.cores for cpu in core}
    for cache in machine.caches:
        if cache.level > 2 or not cache.cpus.issubset(core_of[cache.cpus.first]):  # noqa: PLR2004 - because L1 and L2 of one core say nothing about placement
            yield Unit(UnitKind.CACHE, cache.cpus, cache.cpus.first, cache=cache)
    yield from (Unit(UnitKind.CORE, cpus, cpus.first) for cpus in machine.cores)


def _inside(unit: Unit, borders: list[CpuSet]) -> Iterable[Unit]:
    """The unit, or its pieces where it crosses NUMA nodes: partly in one that it does not hold whole."""
    crossed = [
        node
        for node in borders
        if not node.isdisjoint(unit.cpus) and not node.issubset(unit.cpus) and not unit.cpus.issubset(node)
    ]
    if not crossed:
        return [unit]
    rest = unit.cpus - CpuSet.union(crossed)
    pieces = [unit.cpus & node for node in crossed] + ([rest] if rest else [])
    return [Unit(unit.kind, cpus, unit.id, unit.node, unit.cache, part=True) for cpus in pieces]


def _insert(into: Unit, unit: Unit) -> None:
    """Put a unit where it belongs; units come largest first, so that what is there can contain it or cross it."""
    old = [] if unit.cpus.isdisjoint(into.covered) else list(into.children)
    into.covered |= unit.cpus
    for child in old:
        if unit.cpus.issubset(child.cpus):
            _insert(child, unit)
            return
    left = unit.cpus
    for child in old:
        common = left & child.cpus
        if common:
            left -= common
            _insert(child, Unit(unit.kind, common, unit.id, unit.node, unit.cache, part=True))
    if left:
        unit.part = unit.part or left != unit.cpus
        unit.cpus = left
        into.children.append(unit)


def _deepest(root: Unit, cpus: CpuSet, kinds: tuple[UnitKind, ...]) -> Unit:
    """The smallest unit of these kinds that holds the CPUs; the root for no CPUs."""
    here = root
    while cpus:
        inner = [child for child in here.children if child.kind in kinds and cpus.issubset(child.cpus)]
        if not inner:
            break
        here = inner[0]
    return here


def _sort(unit: Unit) -> None:
    unit.children.sort(key=lambda child: (not child.cpus, child.cpus.first if child.cpus else child.id))
    for child in unit.children:
        _sort(child)


def _hang(machine: Machine, root: Unit) -> None:
    """Devices at their node; those near several nodes at what holds all of these; the rest at the machine."""
    nodes = {unit.id: unit for unit in walk(root) if unit.node}
    for device in machine.devices:
        near = sorted(device.numa_nodes)
        if len(near) == 1 and near[0] in nodes:
            nodes[near[0]].devices.append(device)
        else:
            _deepest(root, machine.cpus_of(device.numa_nodes), _HOLDERS_OF_NODES).devices.append(device)
