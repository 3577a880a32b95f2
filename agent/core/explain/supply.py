"""How much of a resource each NUMA node has, now and when empty: the numbers behind a hint list.

The providers answer with node sets; people ask "how many are free, and where?". Counted from the same ledger that
the provider was asked about, by the same rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from agent.core import confine
from agent.core.admission.node import Node
from agent.core.cpus import provider as cpus
from agent.core.devices import provider as devices
from agent.core.kubelets import kubelet_rules
from agent.core.memory import provider as memory
from agent.core.memory.confined import CountedLedger
from agent.core.request.amounts import exclusive_count, memory_requests, pod_exclusive_count, pod_memory_requests
from agent.core.request.annotations import ALIGN
from agent.model.idset import CpuSet
from agent.model.ledger import Ledger
from agent.model.pod import Pod
from agent.model.rules import Compatibility, CpuOptions


@dataclass(frozen=True, slots=True)
class Supply:
    """One resource.

    Attributes:
        amount: what is asked for; 0 for unknown.
        free, capacity: by NUMA node.
        total: free on the whole machine; a device near two nodes counts once.
    """

    amount: int = 0
    free: Mapping[int, int] = field(default_factory=dict)
    capacity: Mapping[int, int] = field(default_factory=dict)
    total: int = 0


@dataclass(frozen=True, slots=True)
class Counter:
    """Counts for one pod's admission.

    Attributes:
        node: the managers.
        pod: the pod that asks.
        options: CPU options in force for it.
    """

    node: Node
    pod: Pod
    options: CpuOptions

    def supply(self, ledger: Ledger, container: str, provider: str, resource: str) -> Supply:
        """What a hint list was made of.

        Args:
            ledger: as the provider saw it.
            container: whose list it is, "" for the pod.
            provider: whose list.
            resource: which of its lists.
        """
        if provider == cpus.CpuManager.name:
            return self._cpus(ledger, container)
        if provider == memory.MemoryManager.name:
            return self._memory(ledger, container, resource)
        if provider == devices.DeviceManager.name:
            return self._devices(ledger, container, resource)
        if provider == confine.Confiner.name and resource == ALIGN:
            return self._confined(ledger)
        return Supply()

    def _cpus(self, ledger: Ledger, container: str) -> Supply:
        rules = self.node.rules
        manager = self.node.cpu_provider(self.options)
        free = manager.free(ledger.cpus, self.pod, container)
        if ledger.cpus.reusable and ledger.cpus.reusable[0] == self.pod.uid:
            free |= ledger.cpus.reusable[1]
        free |= CpuSet.union(ledger.cpus.assigned.get(self.pod.uid, {}).values()) if not container else CpuSet()
        found = next((each for each in self.pod.containers if each.name == container), None)
        count = exclusive_count(self.pod, found, rules) if found else pod_exclusive_count(self.pod, rules)
        nodes = self.node.seen.nodes
        return Supply(
            count,
            {each.id: len(each.cpus & free) for each in nodes if each.cpus},
            {each.id: len(each.cpus & self.node.seen.usable) for each in nodes if each.cpus},
            len(free),
        )

    def _memory(self, ledger: Ledger, container: str, resource: str) -> Supply:
        fixed = self.node.rules.compatibility is Compatibility.FIXED
        seen = CountedLedger(ledger, self.pod.uid).ledger if fixed and ledger.cpus.confined else ledger
        rules = self.node.rules
        found = next((each for each in self.pod.containers if each.name == container), None)
        every = kubelet_rules(rules).init_types
        request = (
            memory_requests(self.pod, found, rules)
            if found
            else pod_memory_requests(self.pod, rules, init_types=every)
        )
        barred = self.node.seen.barred_nodes
        books = [book for book in seen.memory.nodes if book.id not in barred]
        free = {book.id: max(0, book.free(resource)) for book in books}
        return Supply(
            request.get(resource, 0),
            free,
            {book.id: book.allocatable(resource) for book in books},
            sum(free.values()),
        )

    def _devices(self, ledger: Ledger, container: str, resource: str) -> Supply:
        manager = next(each for each in self.node.providers if isinstance(each, devices.DeviceManager))
        found = next((each for each in self.pod.containers if each.name == container), None)
        amount = manager.requested(ledger, self.pod, found).get(resource, 0)
        known = self.node.inventory.of(resource)
        taken = manager.taken(ledger.devices, resource, self.pod.uid)
        if resource in self.node.inventory.reported:
            return Supply(amount)
        free = [each for each in known if each.healthy and each.id not in taken]
        nodes = self.node.seen.node_set
        return Supply(
            amount,
            {node: sum(node in (each.nodes or ()) for each in free) for node in nodes},
            {node: sum(node in (each.nodes or ()) for each in known) for node in nodes},
            len(free),
        )

    def _confined(self, ledger: Ledger) -> Supply:
        found = next((each for each in self.node.providers if isinstance(each, confine.Confiner)), None)
        if found is None:
            return Supply()
        free = {node: max(0, milli) for node, milli in found.free(ledger).items()}
        return Supply(found.milli(self.pod), free, found.capacity(), sum(free.values()))
