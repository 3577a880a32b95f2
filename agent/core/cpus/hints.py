"""Where a number of CPUs could lie: the CPU manager's hints as a Demand (kubelet rule 4.5).

The kubelet lists every set of NUMA nodes with enough CPUs: those that can still be granted in these nodes, and all
reusable ones, which must lie within. Preferred are the sets of as few nodes as an *empty* machine would need, and
with align-by-socket also those that touch as few sockets as that. Used by `agent.core.cpus.provider`.
"""

from __future__ import annotations

from agent.core.cpus.topology import CpuTopology
from agent.core.merge.demand import Budget, Demand, Family, Need, Positions, fewest
from agent.core.merge.provider import Offer
from agent.model.hint import IMPOSSIBLE
from agent.model.idset import CpuSet


class Hinter:
    """Makes the offers of one machine.

    Args:
        topology: the machine's CPUs.
        positions: of all its NUMA nodes, those without CPUs too.
        usable: the CPUs that an empty machine has for pods.
        by_socket: align-by-socket.
    """

    def __init__(self, topology: CpuTopology, positions: Positions, usable: CpuSet, *, by_socket: bool) -> None:
        self._cpus = tuple(topology.nodes.get(node, 0) for node in positions.ids)
        self._domain = sum(1 << place for place, cpus in enumerate(self._cpus) if cpus)
        self._capacity = self._weights(usable)
        per_socket = len(topology.nodes) // topology.num_sockets if by_socket and topology.num_sockets else 0
        self._nodes_per_socket = per_socket
        self._sockets = tuple(self._touched_by(cpus) for cpus in topology.sockets.values()) if per_socket else ()
        self._sizes: dict[int, int] = {}

    def offer(self, free: CpuSet, count: int, reusable: CpuSet = CpuSet()) -> Offer:
        """The node sets with `count` CPUs, from what is free and all that is reusable; IMPOSSIBLE for none."""
        needs = [Need(count - len(reusable), self._weights(free))]
        if reusable:
            held = self._touched_by(reusable.bits)
            needs += [Need(1, self._only(place)) for place in range(len(self._cpus)) if held >> place & 1]
        family = Family(self._domain, tuple(needs))
        if not family.possible:
            return IMPOSSIBLE
        size = self._size(count)
        if not self._sockets:
            return Demand(family, size)
        return Demand(family, size, sockets=self._sockets, touched=-(-size // self._nodes_per_socket))

    def _size(self, count: int) -> int:
        """Nodes that an empty machine would need; all of them where even these do not suffice."""
        if count not in self._sizes:
            family = Family(self._domain, (Need(count, self._capacity),))
            everything = self._domain.bit_count()
            found = fewest(family, Budget()) if family.possible else everything
            self._sizes[count] = everything if found is None else found
        return self._sizes[count]

    def _weights(self, cpus: CpuSet) -> tuple[int, ...]:
        bits = cpus.bits
        return tuple([(bits & mine).bit_count() for mine in self._cpus])

    def _touched_by(self, cpus: int) -> int:
        return sum(1 << place for place, mine in enumerate(self._cpus) if mine & cpus)

    def _only(self, place: int) -> tuple[int, ...]:
        return tuple(int(other == place) for other in range(len(self._cpus)))
