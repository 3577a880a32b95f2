"""Which CPUs are which before any pod holds some: reserved, shared, kernel-isolated (rules 4.1, 4.2; safety rule S5).

    usable = shared pool | exclusive | reserved under strict-cpu-reservation | isolated CPUs that no pod holds

Reserved CPUs are never granted. They are part of the shared pool unless strict-cpu-reservation is on.

Kernel-isolated CPUs (isolcpus) leave the shared pool, since the kernel balances no load there and several shared
containers would pile up on one of them. They stay grantable: isolated CPUs are meant for exclusive use, so
`agent.core.cpus.choose` tries them first and does not mix them with others if it can help it. Given back, they are
free again. The kubelet does not look at isolation (https://github.com/kubernetes/kubernetes/issues/107761), so
under Compatibility.KUBELET they are CPUs like any other; and where isolation leaves no CPU to the pool, likewise.

CPUs that the kubelet's own cgroup lacks (`Machine.barred`) are granted to no pod, and are in no pool.

Used by `agent.core.cpus.provider`; `isolated_apart` by `agent.core.accounting.invariants` too.
"""

from __future__ import annotations

from agent.core.confine import counted_on
from agent.core.cpus.distributed import distributed
from agent.core.cpus.packed import CannotTake, packed
from agent.core.cpus.topology import CpuTopology
from agent.core.kubelets import MENDED, KubeletRules, kubelet_rules
from agent.errors import SettingsError
from agent.model.idset import CpuSet
from agent.model.ledger import CpuBooks
from agent.model.machine import Machine
from agent.model.rules import Compatibility, CpuOptions, Rules

_KEY = "reservedSystemCPUs"


def take(
    topology: CpuTopology,
    available: int,
    count: int,
    options: CpuOptions,
    *,
    literal: bool = False,
    at_least: int = 0,
    kubelet: KubeletRules = MENDED,
) -> int:
    """Take CPUs by the algorithm that the options ask for (kubelet rule 4.8); raises CannotTake."""
    if options.distribute_across_numa:
        group = topology.cpus_per_core if options.full_pcpus_only else 1
        spread = options.distribute_across_cores
        return distributed(
            topology,
            available,
            count,
            group=group,
            spread=spread,
            literal=literal,
            at_least=at_least,
            by_socket=options.align_by_socket and kubelet.distribute_in_socket,
            kubelet=kubelet,
        )
    return packed(
        topology,
        available,
        count,
        spread=options.distribute_across_cores,
        uncore=options.prefer_uncore,
        literal=literal,
        kubelet=kubelet,
    )


def isolated_apart(machine: Machine, rules: Rules, reserved: CpuSet) -> CpuSet:
    """The CPUs that are kept out of the shared pool because the kernel isolates them."""
    if rules.compatibility is Compatibility.KUBELET or not rules.cpu.static:
        return CpuSet()
    strict = reserved if rules.cpu.options.strict_reservation else CpuSet()
    return machine.isolated & machine.usable if machine.usable - machine.isolated - strict else CpuSet()


def reserved_set(machine: Machine, topology: CpuTopology, rules: Rules) -> CpuSet:
    """The CPUs that the system keeps: those named, or as many as the manager's own algorithm picks (rule 4.1).

    Among isolated CPUs it picks last, and not at all under Compatibility.FIXED if others suffice.

    Raises:
        SettingsError: with the kubelet's sentence.
    """
    cpu = rules.cpu
    if not cpu.static:
        return CpuSet()
    chosen = cpu.reserved or _picked(machine, topology, rules)
    if len(chosen) != cpu.reserved_count:
        raise SettingsError(
            _KEY if cpu.reserved else "kubeReserved.cpu",
            f"[cpumanager] unable to reserve the required amount of CPUs (size of {chosen} did not equal "
            f"{cpu.reserved_count}); this machine has {_cpus(len(machine.online))} online",
        )
    unknown = chosen - machine.online
    if unknown:
        raise SettingsError(
            _KEY,
            "[cpumanager] unable to build the reserved physical CPUs from the reserved set: "
            f"unknown CPU ID: {unknown.first}; name CPUs that are online: {machine.online}",
        )
    return chosen


def _cpus(count: int) -> str:
    return f"{count} CPU" if count == 1 else f"{count} CPUs"


def _picked(machine: Machine, topology: CpuTopology, rules: Rules) -> CpuSet:
    literal = rules.compatibility is Compatibility.KUBELET
    count = rules.cpu.reserved_count
    ordinary = machine.online - machine.isolated
    among = machine.online if literal or len(ordinary) < count else ordinary
    try:
        return CpuSet(
            take(topology, among.bits, count, rules.cpu.options, literal=literal, kubelet=kubelet_rules(rules))
        )
    except CannotTake:
        return CpuSet()  # the size tells, as for the kubelet


class Pools:
    """The pools of one machine under one set of rules; all state is in the books.

    Attributes:
        reserved: CPUs that are never granted.
        touched: the reserved CPUs and their siblings (the kubelet's reserved_physical).
        apart: isolated CPUs that are kept out of the shared pool.
    """

    def __init__(self, machine: Machine, topology: CpuTopology, rules: Rules) -> None:
        self._machine = machine
        self._strict = rules.cpu.static and rules.cpu.options.strict_reservation
        self.reserved = reserved_set(machine, topology, rules)
        self.touched = CpuSet(topology.whole_cores(self.reserved.bits))
        self.apart = isolated_apart(machine, rules, self.reserved)
        self._never_shared = self.apart | (self.reserved if self._strict else CpuSet())

    def shared(self, granted: CpuSet = CpuSet()) -> CpuSet:
        """The shared pool when these CPUs are granted."""
        return self._machine.usable - granted - self._never_shared

    def free(self, books: CpuBooks) -> CpuSet:
        """What may be granted now."""
        free = books.shared - self.reserved
        if self.apart:
            free |= self.apart - self.reserved - granted(books)
        if books.mixed:  # they were reserved once, and a container may use them as long as it lives
            free -= CpuSet.union(part for parts in books.mixed.values() for part in parts.values())
        if books.confined:
            free -= counted_on(books, self._machine, self.reserved)
        return free

    def put_back(self, books: CpuBooks, cpus: CpuSet) -> CpuSet:
        """The shared pool with CPUs returned to it that a container gave back."""
        return books.shared | (cpus & self._machine.usable) - self._never_shared


def granted(books: CpuBooks) -> CpuSet:
    """All CPUs that some pod holds."""
    held = CpuSet.union(books.pools.values())
    for containers in books.assigned.values():
        held |= CpuSet.union(containers.values())
    return held
