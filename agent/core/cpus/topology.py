"""The CPU topology as the CPU manager sees it (kubelet rule 1.2): every unit's CPUs as one integer, by the unit's id.

Built once per machine from `agent.model.machine.Machine`; read by `agent.core.cpus.packed` and
`agent.core.cpus.provider`. Ids: a core is called by its lowest CPU, a socket by its package, an uncore cache by its
own id or, where none was recorded for the core, by the socket's. `cpus_per_core` and its like are the kubelet's
machine-wide floored averages. `caches` are the L3 caches by their lowest CPU: the machine records none for a core
whose cache is as large as its NUMA node, so that there the cache is the node.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from agent.core.machines.per_machine import per_machine
from agent.model.machine import Machine

Units = dict[int, int]
"""Id -> CPUs, as bits."""


def bits(mask: int) -> Iterator[int]:
    """The CPU numbers in a mask, ascending."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


@dataclass(frozen=True)
class CpuTopology:
    """Where each CPU is.

    Attributes:
        all: every online CPU.
        nodes, sockets, uncores: CPUs of each unit, in any order. Nodes without CPUs are absent.
        caches: CPUs that share an L3 cache; those of a node for which none was recorded count as one.
        cores: the same, ascending: the machine's CPUs are, and a core is called by its lowest.
        core_of: CPU -> its core.
        num_cpus, num_sockets: as the kubelet counts them, which need not be what is here (`Machine.counted`).
        num_cores: cores counted per NUMA node.
    """

    all: int
    nodes: Units
    sockets: Units
    cores: Units
    uncores: Units
    caches: Units
    core_of: dict[int, int]
    num_cpus: int
    num_sockets: int
    num_cores: int

    @classmethod
    def of(cls, machine: Machine) -> CpuTopology:
        """The topology of a machine; the same object for the same machine."""
        return _of(machine)

    @cached_property
    def cpus_per_core(self) -> int:
        """Average threads per core, floored."""
        return self.num_cpus // self.num_cores if self.num_cores else 0

    @cached_property
    def cpus_per_socket(self) -> int:
        """Average CPUs per socket, floored."""
        return self.num_cpus // self.num_sockets if self.num_sockets else 0

    @cached_property
    def cpus_per_uncore(self) -> int:
        """Average CPUs per uncore cache, floored."""
        return self.num_cpus // len(self.uncores) if self.uncores else 0

    @cached_property
    def numa_first(self) -> bool:
        """Whether NUMA nodes are the larger unit (kubelet rule 4.9.1): as many sockets as nodes, or more."""
        return self.num_sockets >= len(self.nodes)

    @cached_property
    def sockets_of_node(self) -> dict[int, tuple[int, ...]]:
        """Sockets with CPUs in a node."""
        return _inside(self.nodes, self.sockets)

    @cached_property
    def nodes_of_socket(self) -> dict[int, tuple[int, ...]]:
        """Nodes with CPUs in a socket."""
        return _inside(self.sockets, self.nodes)

    @cached_property
    def cores_of_node(self) -> dict[int, tuple[int, ...]]:
        """Cores with CPUs in a node."""
        return _inside(self.nodes, self.cores)

    @cached_property
    def cores_of_socket(self) -> dict[int, tuple[int, ...]]:
        """Cores with CPUs in a socket."""
        return _inside(self.sockets, self.cores)

    @cached_property
    def uncores_of_node(self) -> dict[int, tuple[int, ...]]:
        """Uncore caches with CPUs in a node."""
        return _inside(self.nodes, self.uncores)

    @cached_property
    def caches_of_node(self) -> dict[int, tuple[int, ...]]:
        """L3 caches with CPUs in a node."""
        return _inside(self.nodes, self.caches)

    @cached_property
    def cores_of_uncore(self) -> dict[int, tuple[int, ...]]:
        """Cores with CPUs at an uncore cache, ascending."""
        return _inside(self.uncores, self.cores)

    def in_one_cache(self, cpus: int) -> bool:
        """Say whether all of the CPUs share one L3 cache."""
        return any(not cpus & ~cache for cache in self.caches.values())

    def in_nodes(self, nodes: int) -> int:
        """The CPUs of the NUMA nodes whose ids are in `nodes`."""
        found = 0
        for node, cpus in self.nodes.items():
            if nodes >> node & 1:
                found |= cpus
        return found

    def in_sockets_of(self, nodes: int) -> int:
        """The CPUs of all sockets that the NUMA nodes in `nodes` touch."""
        mine = self.in_nodes(nodes)
        found = 0
        for cpus in self.sockets.values():
            if cpus & mine:
                found |= cpus
        return found

    def whole_cores(self, cpus: int) -> int:
        """The CPUs of every core that has one in `cpus`."""
        found = 0
        for core in {self.core_of[cpu] for cpu in bits(cpus & self.all)}:
            found |= self.cores[core]
        return found


@per_machine
def _of(machine: Machine) -> CpuTopology:
    nodes: Units = {}
    sockets: Units = {}
    cores: Units = {}
    uncores: Units = {}
    core_of: dict[int, int] = {}
    per_node = set()
    everything = 0
    caches: dict[tuple[int | None, int], int] = {}
    for cpu in machine.cpus:
        bit = 1 << cpu.id
        everything |= bit
        core_of[cpu.id] = cpu.core
        per_node.add((cpu.node, cpu.core))
        uncore = cpu.package if cpu.uncore is None else cpu.uncore
        for units, unit in ((nodes, cpu.node), (sockets, cpu.package), (cores, cpu.core), (uncores, uncore)):
            units[unit] = units.get(unit, 0) | bit
        cache = (cpu.uncore, -1 if cpu.uncore is not None else cpu.node)
        caches[cache] = caches.get(cache, 0) | bit
    return CpuTopology(
        all=everything,
        nodes=nodes,
        sockets=sockets,
        cores=cores,
        uncores=uncores,
        caches={(cpus & -cpus).bit_length() - 1: cpus for cpus in caches.values()},
        core_of=core_of,
        num_cpus=everything.bit_count() if machine.counted is None else machine.counted,
        num_sockets=len(sockets) if machine.sockets is None else machine.sockets,
        num_cores=len(per_node),
    )


def _inside(outer: Units, inner: Units) -> dict[int, tuple[int, ...]]:
    return {unit: tuple(other for other, theirs in inner.items() if theirs & cpus) for unit, cpus in outer.items()}
