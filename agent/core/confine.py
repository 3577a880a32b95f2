"""Confinement: pods that ask to be kept on few NUMA nodes, on the CPUs that are shared there (numalign.io/align).

The kubelet aligns exclusive CPUs only. A Burstable pod, or a Guaranteed one with a fraction of a CPU, may ask for

    numalign.io/align: numa           the shared CPUs of as few nodes as its requests need
    numalign.io/align: numa,memory    and the memory of these nodes, if its limits fit there (safety rule S7)

It takes nothing for itself: its request is accounted per node, so that nodes are not oversubscribed, and exclusive
grants leave room for it (`kept_back`). It is a hint provider like the others: same policies, same merge. The whole
pod is kept together, so its scope is always the pod's. Pods that do not ask are not looked at.

Asked by `agent.core.admission.node`, after devices, CPUs and memory; `kept_back` by `agent.core.cpus.provider`; the
cgroups are planned from `CpuBooks.confined` by `agent.core.cgroups.plan`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations

from agent.core.merge.demand import Demand, fewest
from agent.core.merge.masks import Positions
from agent.core.merge.needs import Budget, Family, Need
from agent.core.merge.provider import Answer
from agent.core.request.amounts import exclusive_count, pod_exclusive_count
from agent.core.request.annotations import ALIGN, ALIGNS
from agent.model.fields import words_in
from agent.model.hint import IMPOSSIBLE, Hint, Stance
from agent.model.idset import CpuSet, NodeSet
from agent.model.ledger import Confinement, CpuBooks, Ledger
from agent.model.machine import Machine
from agent.model.outcome import Refusal
from agent.model.pod import Container, Pod, Qos, Resources, at_once
from agent.model.quantity import units
from agent.model.rules import Rules

_MEMORY = "memory"


def align_requested(pod: Pod) -> tuple[bool, bool]:
    """Whether the pod asks to be confined, and its memory too. A malformed wish is none."""
    wish = ",".join(words_in(pod.annotations.get(ALIGN, "")))
    return wish in ALIGNS, wish in ALIGNS and _MEMORY in wish


def accounted(books: CpuBooks) -> dict[int, int]:
    """Thousandths of a CPU that confined pods may count on, per node."""
    total: dict[int, int] = {}
    for _, confinement in sorted(books.confined.items()):
        for node, milli in confinement.milli:
            total[node] = total.get(node, 0) + milli
    return total


def limits(ledger: Ledger, but: str = "") -> Counter[int]:
    """Bytes of memory that confined pods may use, per node; `but` is the uid of a pod that does not count.

    Nor does one whose memory is not bound (any more): it may lie anywhere.
    """
    total: Counter[int] = Counter()
    for uid, confinement in ledger.cpus.confined.items():
        if uid != but and (uid not in ledger.pods or ledger.pods[uid].bind_memory):
            total.update(dict(confinement.limit))
    return total


def counted_on(books: CpuBooks, machine: Machine, reserved: CpuSet) -> CpuSet:
    """Shared CPUs that must not become exclusive, because confined pods count on them.

    Per node as many whole CPUs as their requests come to. Which ones does not matter to the pods, so it is those that
    exclusive pods miss least: CPUs of cores that are broken already, then the highest numbers.
    """
    kept = CpuSet()
    for node, milli in sorted(accounted(books).items()):
        if node not in machine.by_node:
            continue
        free = (books.shared & machine.by_node[node].cpus) - reserved
        broken = CpuSet.union(core for core in machine.cores if not core.issubset(free))
        order = sorted(free, key=lambda cpu: (cpu not in broken, -cpu))
        kept |= CpuSet.from_ids(order[: units(milli)])
    return kept


Spread = tuple[tuple[int, int], ...]
"""Nodes, each with what is accounted there."""


class Confiner:
    """The provider.

    Args:
        machine: as the managers see it; where its nodes are the kubelet's own and no kernel's (defect D23), no pod is
            confined.
        rules: with cpuManagerPolicy none, no set of CPUs is written, and no pod is confined.
        usable: CPUs of the pool of an empty node that may be counted on: without those that the system keeps.
    """

    name = "confine"

    def __init__(self, machine: Machine, rules: Rules, usable: CpuSet) -> None:
        self._machine = machine
        self._rules = rules
        self._usable = usable
        self._positions = Positions.of(machine.node_set)
        self._domain = self._positions.mask(machine.nodes_of(usable))

    def container_hints(self, ledger: Ledger, pod: Pod, container: Container) -> Answer:  # noqa: ARG002 - Provider
        """Nothing: a pod that asks is merged as a whole."""
        return Stance.NO_PREFERENCE

    def pod_hints(self, ledger: Ledger, pod: Pod) -> Answer:
        """The node sets whose shared CPUs (and memory, if asked) have room for the pod."""
        milli = self.milli(pod)
        if not milli:
            return Stance.NO_PREFERENCE
        limit = self.limit(pod)
        both = milli + 1000 * self._exclusive(pod)  # its own exclusive CPUs leave the pool of these nodes first
        family = Family(self._domain, self._needs(both, limit, self.free(ledger), self._free_memory(ledger)))
        if not family.possible:
            return {ALIGN: IMPOSSIBLE}
        capacity = Family(self._domain, self._needs(both, limit, self.capacity(), self._memory_capacity()))
        return {ALIGN: Demand(family, fewest(capacity, Budget()))}

    def allocate(self, ledger: Ledger, pod: Pod, container: Container, affinity: Hint) -> Ledger | Refusal:  # noqa: ARG002 - Provider
        """Account the pod on the nodes of the affinity, once; where it does not fit, it stays unconfined."""
        milli = self.milli(pod)
        if not milli or pod.uid in ledger.cpus.confined:
            return ledger
        free, memory, limit = self.free(ledger), self._free_memory(ledger), self.limit(pod)
        allowed = self._domain if affinity.nodes is None else self._domain & self._positions.mask(affinity.nodes)
        mask = self._fewest_of(allowed, self._needs(milli, limit, free, memory)) if limit else 0
        bound = bool(mask)
        mask = mask or self._fewest_of(allowed, self._needs(milli, 0, free, memory))
        if not mask:
            return ledger
        nodes = self._positions.nodes(mask)
        confinement = Confinement(
            nodes=nodes,
            milli=_spread(milli, nodes, free),
            memory=bound,
            limit=_spread(limit, nodes, memory) if bound else (),
        )
        return self._with(ledger, {**ledger.cpus.confined, pod.uid: confinement})

    def adopt(self, ledger: Ledger, pod: Pod, nodes: NodeSet, *, bound: bool) -> Ledger:
        """Account a pod that runs confined to these nodes already; as it was where they lack the room.

        Args:
            ledger: where the pod is, not confined.
            pod: it.
            nodes: where it is kept.
            bound: its memory is bound to them, too.
        """
        milli, limit = self.milli(pod), self.limit(pod) if bound else 0
        free, memory = self.free(ledger), self._free_memory(ledger)
        if not _fits(milli, nodes, free) or not _fits(limit, nodes, memory):
            return ledger
        shares = _spread(limit, nodes, memory) if bound else ()
        found = Confinement(nodes=nodes, milli=_spread(milli, nodes, free), memory=bound, limit=shares)
        return self._with(ledger, {**ledger.cpus.confined, pod.uid: found})

    def allocate_pod(self, ledger: Ledger, pod: Pod, affinity: Hint) -> Ledger | Refusal:
        """As for a container: the pod is one in any case."""
        return self.allocate(ledger, pod, pod.containers[0], affinity)

    def resized(self, ledger: Ledger, pod: Pod, no_more: str = "") -> tuple[Ledger, str]:
        """Account what a confined pod asks for now, on the nodes where it is and with its memory bound as it was.

        Less always fits: what is counted shrinks node by node, and the lowest nodes keep theirs. CPUs and memory are
        looked at apart.

        Args:
            ledger: where the pod is.
            pod: as it asks now.
            no_more: why nothing beyond what it has is accounted; "" where it may be.

        Returns:
            The ledger, and why it accounts less than the pod asks for; "" where it does not.
        """
        held = ledger.cpus.confined.get(pod.uid)
        if held is None:
            return ledger, ""
        milli, limit = self.milli(pod), self.limit(pod) if held.memory else 0
        without, said = self.release(ledger, pod.uid), list[str]()
        if not milli:
            return without, ""
        cpus, memory = self.free(without), self._free_memory(without)

        def spread(need: int, has: Spread, room: Mapping[int, int], what: str) -> Spread:
            had = sum(part for _, part in has)
            here = sum(max(0, room.get(node, 0)) for node in held.nodes)
            if need <= had:
                return has if need == had else _spread(need, held.nodes, dict(has))
            if no_more or need > here:
                free = f"{need} {what} are needed on NUMA nodes {held.nodes}, and {here} are free there"
                said.append(no_more or free)
                return has
            return _spread(need, held.nodes, room)

        again = replace(
            held, milli=spread(milli, held.milli, cpus, "thousandths of a CPU"),
            limit=spread(limit, held.limit, memory, "bytes of memory"),
        )  # fmt: skip
        return self._with(ledger, {**ledger.cpus.confined, pod.uid: again}), "; ".join(dict.fromkeys(said))

    def started(self, ledger: Ledger, pod: Pod, container: Container) -> Ledger:  # noqa: ARG002 - Provider
        """Nothing: the request is accounted as long as the pod is there."""
        return ledger

    def release(self, ledger: Ledger, uid: str, container: str | None = None) -> Ledger:
        """The pod counts on nothing any more; of one container alone there is nothing to give back."""
        if container is not None or uid not in ledger.cpus.confined:
            return ledger
        return self._with(ledger, {key: kept for key, kept in ledger.cpus.confined.items() if key != uid})

    def milli(self, pod: Pod) -> int:
        """Thousandths of a CPU to account; 0 for a pod that is not confined: it does not ask, or has nothing to."""
        asked, _ = align_requested(pod)
        if not asked or not self._rules.cpu.static or pod.qos is Qos.BEST_EFFORT or not self._machine.kernel_nodes:
            return 0
        gate = self._rules.pod_level_managers
        if pod.pod_level and gate and pod.qos is Qos.GUARANTEED:
            return 0  # the CPU manager serves it as a whole (kubelet rule 4.12)
        if "cpu" in (pod.requests or {}):
            return (pod.requests or {})["cpu"]
        shared = [each for each in pod.containers if pod.pod_level or not exclusive_count(pod, each, self._rules)]
        return at_once((each.kind, each.requests.get("cpu", 0)) for each in shared)

    def _exclusive(self, pod: Pod) -> int:
        """Exclusive CPUs that the pod gets besides; none where pod-level resources keep the CPU manager away."""
        gate = self._rules.pod_level_managers
        return 0 if pod.pod_level and not gate else pod_exclusive_count(pod, self._rules)

    def limit(self, pod: Pod) -> int:
        """Bytes of memory to bind; 0 when it is not asked for, or when some container has no limit (S7)."""
        if not align_requested(pod)[1]:
            return 0
        if _MEMORY in (pod.limits or {}):
            return units((pod.limits or {})[_MEMORY])
        if any(not _of(container.limits) for container in pod.containers):
            return 0
        return at_once((each.kind, _of(each.limits)) for each in pod.containers)

    def _needs(self, milli: int, limit: int, cpus: Mapping[int, int], memory: Mapping[int, int]) -> tuple[Need, ...]:
        needs = [Need(milli, self._weights(cpus))]
        if limit:
            needs.append(Need(limit, self._weights(memory)))
        return tuple(needs)

    def _weights(self, amounts: Mapping[int, int]) -> tuple[int, ...]:
        return tuple(max(0, amounts.get(node, 0)) for node in self._positions.ids)

    def capacity(self) -> dict[int, int]:
        """The same on an empty node."""
        return {node.id: 1000 * len(node.cpus & self._usable) for node in self._machine.nodes}

    def free(self, ledger: Ledger) -> dict[int, int]:
        """Node -> thousandths of a CPU that one more pod may count on."""
        taken = accounted(ledger.cpus)
        pool = ledger.cpus.shared & self._usable
        return {node.id: 1000 * len(node.cpus & pool) - taken.get(node.id, 0) for node in self._machine.nodes}

    def _memory_capacity(self) -> dict[int, int]:
        kept = self._rules.memory.reserved
        return {
            node.id: node.resources[_MEMORY] - kept.get(node.id, {}).get(_MEMORY, 0)
            for node in self._machine.nodes
            if node.id not in self._machine.barred_nodes
        }

    def _free_memory(self, ledger: Ledger) -> dict[int, int]:
        free = self._memory_capacity() | {
            book.id: book.free(_MEMORY) for book in ledger.memory.nodes if book.id not in self._machine.barred_nodes
        }
        for node, size in limits(ledger).items():
            free[node] = free.get(node, 0) - size
        return free

    def _fewest_of(self, allowed: int, needs: tuple[Need, ...]) -> int:
        """The first mask, in the kubelet's order of masks, of the fewest nodes that serve; 0 for none."""
        family = Family(allowed, needs)
        if not family.possible:
            return 0
        budget = Budget()
        single = [1 << place for place in range(allowed.bit_length()) if allowed >> place & 1]
        for count in range(1, len(single)):
            for chosen in combinations(single, count):
                if not budget.spend():
                    return allowed
                if family.holds(sum(chosen)):
                    return sum(chosen)
        return allowed

    def _with(self, ledger: Ledger, confined: Mapping[str, Confinement]) -> Ledger:
        return replace(ledger, cpus=replace(ledger.cpus, confined=confined))


def _fits(amount: int, nodes: NodeSet, room: Mapping[int, int]) -> bool:
    return amount <= sum(max(0, room.get(node, 0)) for node in nodes)


def _of(limits: Resources) -> int:
    return units(limits.get(_MEMORY, 0))


def _spread(amount: int, nodes: NodeSet, free: Mapping[int, int]) -> Spread:
    """Node by node, lowest first, as much as is free: as the memory manager fills its nodes (kubelet rule 5.6)."""
    spread: list[tuple[int, int]] = []
    for node in nodes:
        part = min(amount, max(0, free.get(node, 0)))
        spread.append((node, part))
        amount -= part
    return tuple(spread)
