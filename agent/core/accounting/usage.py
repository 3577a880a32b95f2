"""What each NUMA node has and what is in use, counted from the ledger: for tables, metrics and explanations. Pure.

exclusive   CPUs granted to containers                shared   the pool that everyone else runs on
reserved    CPUs kept for the system (they are in the pool too, unless strict-cpu-reservation)
free        shared CPUs that could still be granted: shared - reserved (confined pods may count on some of them)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from agent.core.accounting.invariants import Managed
from agent.core.machines.kubelet_view import managed
from agent.model.idset import CpuSet
from agent.model.ledger import Ledger


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Bytes of one memory resource on one node.

    Attributes:
        total: what the node has.
        system: what is kept for the system.
        granted: what containers hold.
    """

    total: int
    system: int = 0
    granted: int = 0

    @property
    def free(self) -> int:
        """What could still be granted."""
        return self.total - self.system - self.granted


@dataclass(frozen=True, slots=True)
class NodeUse:
    """One NUMA node.

    Attributes:
        id: node id.
        exclusive, shared, reserved, free: its CPUs, see the module.
        memory: resource -> bytes; nothing is granted where the memory manager is off.
    """

    id: int
    exclusive: CpuSet
    shared: CpuSet
    reserved: CpuSet
    free: CpuSet
    memory: Mapping[str, MemoryUse]


def usage(ledger: Ledger, node: Managed) -> tuple[NodeUse, ...]:
    """All NUMA nodes as the managers see them, ascending id, memory-only ones too."""
    books = {book.id: book for book in ledger.memory.nodes}
    taken = CpuSet.union(
        [
            *(cpus for containers in ledger.cpus.assigned.values() for cpus in containers.values()),
            *ledger.cpus.pools.values(),
        ]
    )
    found = []
    for each in managed(node.machine, node.rules.compatibility).nodes:
        book = books.get(each.id)
        memory = {}
        for name, size in sorted((book.total if book else each.resources).items()):
            granted, system = (book.reserved.get(name, 0), book.system.get(name, 0)) if book else (0, 0)
            system = size - granted if each.id in node.machine.barred_nodes else system
            memory[name] = MemoryUse(size, system, granted)
        shared = ledger.cpus.shared & each.cpus
        free = (each.cpus & node.machine.usable) - taken - node.reserved
        found.append(NodeUse(each.id, taken & each.cpus, shared, node.reserved & each.cpus, free, memory))
    return tuple(found)
