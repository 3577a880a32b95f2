"""Which CPUs to take: the packed algorithm (rule 4.9). `agent.core.cpus.distributed` has the other one.

Whole units first, from the largest that fits to single threads; among units of a level those with the fewest free
CPUs first, then the lowest id: what is broken already is used up before something whole is broken. All sets are
integers.

    1. whole NUMA nodes (or sockets, whichever is larger), 2. the other of the two
    3. with prefer-align-cpus-by-uncorecache: whole caches, then the rest within one cache
    4. whole cores (not when spreading over cores)
    5. single CPUs, along the cores (packed) or along the sockets (spread)

Kubelets up to 1.37 call a core or socket whole when its free CPUs equal the machine's *average*. On machines with
uneven units they then take all CPUs of the unit, free or not (kubernetes issues 124066, 140495). `literal` answers
so. The caller must see to it that no CPU of another pod is handed out (`agent.core.cpus.provider` does). Without it,
and in kubelet 1.38, units are whole when all of their CPUs are free.

Spreading goes round the cores of a socket: one CPU of each, then the second of each. Cores with the fewest busy CPUs
come first, mended. Kubelets up to 1.37 go by number, and 1.38 begins with the fewest free CPUs (defect D26).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import zip_longest

from agent.core.cpus.topology import CpuTopology, Units, bits
from agent.core.kubelets import MENDED, KubeletRules


class CannotTake(Exception):  # noqa: N818 - control flow of this package: turned into a Refusal by the caller
    """The request cannot be met; the text is the kubelet's."""


def not_enough(requested: int, available: int) -> CannotTake:
    """The kubelet's sentence for a request larger than what is free."""
    return CannotTake(f"not enough cpus available to satisfy request: requested={requested}, available={available}")


class Taker:
    """One taking: what is free, what is taken, how many are still needed."""

    def __init__(
        self,
        topology: CpuTopology,
        available: int,
        count: int,
        *,
        spread: bool = False,
        literal: bool = False,
        kubelet: KubeletRules = MENDED,
    ) -> None:
        self.topology = topology
        self.literal = literal
        self.kubelet = kubelet
        self.free = available & topology.all
        self.need = count
        self.taken = 0
        self.spread = spread

    def take(self, cpus: int) -> None:
        """Move CPUs to the taken ones."""
        if not self.literal:
            cpus &= self.free
        self.taken |= cpus
        self.free &= ~cpus
        self.need -= cpus.bit_count()

    # ---- units with free CPUs, the most used first

    def _ordered(self, units: Units, among: Iterable[int]) -> list[int]:
        """Sorted by (free CPUs, id); units without a free CPU are left out."""
        free = self.free
        counted = [((units[unit] & free).bit_count(), unit) for unit in among]
        return [unit for count, unit in sorted(counted) if count]

    def nodes(self) -> list[int]:
        """NUMA nodes in the order in which they are used."""
        topology = self.topology
        if topology.numa_first:
            return self._ordered(topology.nodes, topology.nodes)
        return list(self._nested(self.sockets(), topology.nodes_of_socket, topology.nodes, topology.sockets))

    def sockets(self) -> list[int]:
        """Sockets in that order."""
        topology = self.topology
        if not topology.numa_first:
            return self._ordered(topology.sockets, topology.sockets)
        return list(self._nested(self.nodes(), topology.sockets_of_node, topology.sockets, topology.nodes))

    def _nested(
        self, outer: Iterable[int], inner_of: dict[int, tuple[int, ...]], inner: Units, outer_units: Units
    ) -> Iterator[int]:
        """Inner units of each outer one, each once per outer one that it has free CPUs in."""
        for unit in outer:
            here = outer_units[unit] & self.free
            yield from self._ordered(inner, (each for each in inner_of[unit] if inner[each] & here))

    def cores(self) -> list[int]:
        """Cores in that order: along the smaller of sockets and nodes."""
        topology = self.topology
        if topology.numa_first:
            return list(self._nested(self.sockets(), topology.cores_of_socket, topology.cores, topology.sockets))
        return list(self._nested(self.nodes(), topology.cores_of_node, topology.cores, topology.nodes))

    def uncores(self) -> list[int]:
        """Uncore caches in that order."""
        topology = self.topology
        return list(self._nested(self.nodes(), topology.uncores_of_node, topology.uncores, topology.nodes))

    def caches(self) -> list[int]:
        """L3 caches in that order."""
        topology = self.topology
        return list(self._nested(self.nodes(), topology.caches_of_node, topology.caches, topology.nodes))

    def singles(self) -> Iterator[int]:
        """CPUs one by one: along the cores, or along the sockets when spreading."""
        topology, free = self.topology, self.free
        if not self.spread:
            for core in self.cores():
                yield from bits(topology.cores[core] & free)
            return
        for socket in self.sockets():
            here = topology.sockets[socket] & free
            yield from bits(here) if self.kubelet.spread_by_number else self._round(socket, here)

    def _round(self, socket: int, free: int) -> Iterator[int]:
        """The free CPUs of a socket: one of each core in order, then the second of each, and so on."""
        cores = []
        for core in self.topology.cores_of_socket[socket]:
            cpus = self.topology.cores[core]
            counted = cpus & (free if self.kubelet.spread_by_free else ~free)
            cores.append((counted.bit_count(), core, cpus & free))
        for rank in zip_longest(*(bits(cpus) for _, _, cpus in sorted(cores))):
            yield from (cpu for cpu in rank if cpu is not None)

    # ---- steps

    def whole(self, order: Iterable[int], units: Units, average: int | None = None) -> None:
        """Take whole units along an order that was made once, each if it still fits into what is needed.

        A unit is whole when all of its CPUs are free; literally, where an average is given, when as many are as units
        have on average.
        """
        free_before = self.free
        if not (self.literal and self.kubelet.averages):
            average = None
        for unit in order:
            if self.need < 1:
                return
            cpus = units[unit]
            size = cpus.bit_count()
            mine = (cpus & free_before).bit_count()
            if mine == (size if average is None else average) and self.need >= size:
                self.take(cpus)

    def whole_nodes(self) -> None:
        """Step 1 or 2."""
        self.whole(self.nodes(), self.topology.nodes)

    def whole_sockets(self) -> None:
        """Step 1 or 2."""
        self.whole(self.sockets(), self.topology.sockets, self.topology.cpus_per_socket)

    def whole_cores(self) -> None:
        """Step 4."""
        self.whole(self.cores(), self.topology.cores, self.topology.cpus_per_core)

    def by_uncore(self) -> None:
        """Step 3 (kubelet rule 4.9.4): whole caches, then a rest that fits into one."""
        topology = self.topology
        order, in_turn = self.uncores(), not self.kubelet.caches_first
        if not in_turn:
            order = list(dict.fromkeys(order))  # one that spans nodes stands where it is met first
            self.whole(order, topology.uncores)
        for uncore in order:
            if in_turn and self.need >= topology.cpus_per_uncore:
                self.whole(self.uncores(), topology.uncores)
            if self.need < 1:
                return
            part = self._part_of(uncore)
            if part.bit_count() == self.need:
                self.take(part)
                return

    def _part_of(self, uncore: int) -> int:
        """The free CPUs of the lowest cores of a cache that would hold what is needed."""
        topology = self.topology
        threads = topology.cpus_per_core
        wanted = -(-self.need // threads) if threads else 0
        cores = [core for core in topology.cores_of_uncore[uncore] if topology.cores[core] & self.free][:wanted]
        part = 0
        for core in cores:
            part |= topology.cores[core] & self.free
        if self.need % 2 and threads > 1 and part.bit_count() > self.need:
            part &= ~(1 << (part.bit_length() - 1))
        return part

    def one_by_one(self) -> None:
        """Step 5."""
        for cpu in self.singles():
            if self.need < 1:
                return
            self.take(1 << cpu)


def packed(
    topology: CpuTopology,
    available: int,
    count: int,
    *,
    spread: bool = False,
    uncore: bool = False,
    literal: bool = False,
    kubelet: KubeletRules = MENDED,
) -> int:
    """Take `count` of the available CPUs, as close together as they come.

    Args:
        topology: the machine.
        available: CPUs to take from, as bits.
        count: how many.
        spread: distribute-cpus-across-cores: no whole cores, single CPUs along sockets.
        uncore: prefer-align-cpus-by-uncorecache.
        literal: units are taken as the kubelet does it, by averages where its minor has these.
        kubelet: what the kubelet's minor decides.

    Raises:
        CannotTake: with the kubelet's sentence.
    """
    taker = Taker(topology, available, count, spread=spread, literal=literal, kubelet=kubelet)
    if count < 1:
        return 0
    if count > taker.free.bit_count():
        raise not_enough(count, available.bit_count())
    steps = [taker.whole_nodes, taker.whole_sockets]
    if not topology.numa_first:
        steps.reverse()
    if uncore:
        steps.append(taker.by_uncore)
    if not spread:
        steps.append(taker.whole_cores)
    for step in (*steps, taker.one_by_one):
        step()
        if taker.need < 1:
            break
    return taker.taken
