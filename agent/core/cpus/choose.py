"""The CPUs for one request: within the affinity first, then anywhere, and whole cores if asked for.

Kubelet rules 4.6 (allocation) and 4.7 (full-pcpus-only).

Under Compatibility.KUBELET the answer is the kubelet's, but for one thing: where its averages over uneven cores or
sockets would hand out CPUs that were not offered (another pod's, or reserved ones; kubernetes issues 124066,
140495), the same request is answered without averages. Under Compatibility.FIXED there are no averages, and

    D6  distribute-cpus-across-numa uses at least as many nodes as the hint has (kubernetes issue 139430), and with
        align-by-socket stays within as few sockets as hold the request (PR 139778)
    full-pcpus-only never splits a core: where the pick would, it is made again among whole cores only, and refused
        with the kubelet's sentence where these do not suffice
    D20 prefer-align-cpus-by-uncorecache never splits over two L3 caches what one cache of the affinity can hold
        (kubernetes issue 137315)
    isolated CPUs are tried first, alone; then the others alone; only then all together (`agent.core.cpus.pools`)

Used by `agent.core.cpus.provider`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from agent.core.cpus.packed import CannotTake, Taker
from agent.core.cpus.pools import take
from agent.core.cpus.topology import CpuTopology
from agent.core.kubelets import MENDED, KubeletRules
from agent.model.hint import ANY_NODES, Hint
from agent.model.idset import CpuSet, NodeSet
from agent.model.outcome import Reason, Refusal
from agent.model.rules import CpuOptions

MANY_SOCKETS = 8
"""With more, only single sockets and all of them together are tried, not every combination."""


class Chooser:
    """Picks CPUs on one machine under one set of options.

    Args:
        topology: the machine.
        options: cpuManagerPolicyOptions in force.
        apart: isolated CPUs, to be tried first; empty under Compatibility.KUBELET.
        literal: Compatibility.KUBELET.
        only_offered: see `Rules.only_offered`.
        kubelet: what the kubelet's minor decides.
    """

    def __init__(
        self,
        topology: CpuTopology,
        options: CpuOptions,
        apart: CpuSet,
        *,
        literal: bool,
        only_offered: bool = True,
        kubelet: KubeletRules = MENDED,
    ) -> None:
        self._topology = topology
        self._options = options
        self._apart = apart.bits
        self._literal = literal
        self._only_offered = only_offered
        self._kubelet = kubelet

    def choose(self, offered: CpuSet, count: int, affinity: Hint = ANY_NODES) -> CpuSet | Refusal:
        """Pick `count` of the CPUs offered; never others (`Rules.only_offered`)."""
        try:
            if self._literal:
                taken = self._aligned_first(offered.bits, count, affinity.nodes, literal=True)
                if not taken & ~offered.bits or not self._only_offered:
                    return CpuSet(taken)
                return CpuSet(self._aligned_first(offered.bits, count, affinity.nodes))
            return self._mended(offered.bits, count, affinity.nodes)
        except CannotTake as reason:
            facts = {"requested": count, "available": len(offered)}
            return Refusal(Reason.UNEXPECTED, str(reason), facts=facts)

    def part(self, offered: CpuSet, count: int, affinity: Hint = ANY_NODES) -> CpuSet | Refusal:
        """Pick `count` of a pod's own CPUs for one of its containers: cores may be split there.

        The pod is managed as a whole (kubelet rule 4.12). The affinity is the pod's.
        """
        try:
            kinds = () if self._literal else (offered.bits & self._apart, offered.bits & ~self._apart)
            pool = next((each for each in kinds if each.bit_count() >= count), offered.bits)
            taken = self._as_kubelet(pool, count, len(affinity.nodes or ()), literal=self._literal)
            if taken & ~offered.bits and self._only_offered:
                taken = take(self._topology, offered.bits, count, self._options)
            return CpuSet(self._in_one_cache(pool, count, taken))
        except CannotTake as reason:
            return Refusal(Reason.UNEXPECTED, str(reason), facts={"requested": count, "available": len(offered)})

    def check_cores(self, count: int, available: CpuSet) -> Refusal | None:
        """full-pcpus-only: whole cores asked for, and enough CPUs on cores that the system does not use (4.7)."""
        if not self._options.full_pcpus_only:
            return None
        threads = self._topology.cpus_per_core
        if threads and count % threads:
            return Refusal(
                Reason.SMT,
                f"SMT Alignment Error: requested {count} cpus not multiple cpus per core = {threads}",
                facts={"requested": count, "cpus_per_core": threads},
            )
        return self._too_few_cores(count, len(available)) if count > len(available) else None

    def whole_cores(self, count: int) -> int:
        """Round a number of CPUs up to whole cores where these are asked for (4.7)."""
        threads = self._topology.cpus_per_core if self._options.full_pcpus_only else 0
        return -(-count // threads) * threads if threads else count

    def _too_few_cores(self, count: int, available: int) -> Refusal:
        threads = self._topology.cpus_per_core
        return Refusal(
            Reason.SMT,
            f"SMT Alignment Error: not enough free physical CPUs: available physical CPUs = {available}, "
            f"requested CPUs = {count}, CPUs per core = {threads}",
            facts={"requested": count, "available": available, "cpus_per_core": threads},
        )

    def _mended(self, offered: int, count: int, nodes: NodeSet | None) -> CpuSet | Refusal:
        picks = self._picks(offered, count, nodes)
        found = next(picks, None)
        if found is None:
            return self._too_few_cores(count, self._unbroken(offered).bit_count())
        if self._options.prefer_uncore and not self._topology.in_one_cache(found):
            found = next((pick for pick in picks if self._topology.in_one_cache(pick)), found)
        return CpuSet(found)

    def _picks(self, offered: int, count: int, nodes: NodeSet | None) -> Iterator[int]:
        """Take from each pool, as far as the options let that be granted."""
        for pool in self._pools(offered, count, nodes):
            taken = self._aligned_first(pool, count, nodes)
            if self._allowed(taken):
                yield taken

    def _pools(self, offered: int, count: int, nodes: NodeSet | None) -> Iterator[int]:
        """What to pick from, in the order in which it is tried; the last ones are tried in any case."""
        for part in (offered & self._apart, offered & ~self._apart) if offered & self._apart else ():
            for pool in (part, self._unbroken(part)):
                if self._within(pool, nodes).bit_count() >= count:
                    yield pool
        yield offered
        unbroken = self._unbroken(offered)
        if unbroken.bit_count() >= count:
            yield unbroken

    def _unbroken(self, cpus: int) -> int:
        """The CPUs of the cores that are in the set as a whole."""
        whole = 0
        for core in self._topology.cores.values():
            if not core & ~cpus:
                whole |= core
        return whole

    def _within(self, pool: int, nodes: NodeSet | None) -> int:
        if nodes is None:
            return pool
        if self._options.align_by_socket:
            return pool & self._topology.in_sockets_of(nodes.bits)
        return pool & self._topology.in_nodes(nodes.bits)

    def _aligned_first(self, pool: int, count: int, nodes: NodeSet | None, *, literal: bool = False) -> int:
        taken = 0
        if nodes is not None:
            aligned = self._within(pool, nodes)
            taken = self._take(aligned, min(count, aligned.bit_count()), len(nodes), literal=literal)
        return taken | self._take(pool & ~taken, count - taken.bit_count(), 0, literal=literal)

    def _take(self, pool: int, count: int, at_least: int, *, literal: bool) -> int:
        options = self._options
        if self._literal or not options.distribute_across_numa:
            taken = self._as_kubelet(pool, count, at_least, literal=literal)
            return self._in_one_cache(pool, count, taken)
        if options.align_by_socket:
            pool = self._fewest_sockets(pool, count)
        return take(self._topology, pool, count, options, at_least=at_least)

    def _as_kubelet(self, pool: int, count: int, nodes: int, *, literal: bool) -> int:
        how = self._kubelet
        at_least = nodes if how.nodes_counted else 0
        return take(self._topology, pool, count, self._options, literal=literal, at_least=at_least, kubelet=how)

    def _in_one_cache(self, pool: int, count: int, taken: int) -> int:
        """Keep what was taken if one L3 cache holds it, else take all of the first cache that has enough (D20)."""
        topology = self._topology
        if self._literal or not self._options.prefer_uncore or topology.in_one_cache(taken):
            return taken
        parts = [pool & topology.caches[cache] for cache in Taker(topology, pool, count).caches()]
        found = (take(topology, part, count, self._options) for part in parts if part.bit_count() >= count)
        return next(filter(self._allowed, found), taken)

    def _allowed(self, taken: int) -> bool:
        """Say whether full-pcpus-only lets these be granted."""
        return not self._options.full_pcpus_only or self._unbroken(taken) == taken

    def _fewest_sockets(self, pool: int, count: int) -> int:
        """The part of the pool in as few sockets as hold the request, those with the fewest free CPUs first."""
        sockets = sorted((pool & cpus for cpus in self._topology.sockets.values() if pool & cpus), key=_by_size)
        for size in range(1, len(sockets)) if len(sockets) <= MANY_SOCKETS else (1,):
            for chosen in combinations(sockets, size):
                part = sum(chosen)  # disjoint: a CPU is in one socket
                if part.bit_count() >= count:
                    return part
        return pool


def _by_size(cpus: int) -> tuple[int, int]:
    return cpus.bit_count(), cpus & -cpus
