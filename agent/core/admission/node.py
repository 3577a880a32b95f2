"""The managers of one node: which pods are admitted, what they get and give back (`Node`).

Called by the engine (the pod was seen), by `explain` and `simulate` (a pod that may never exist) and by the parity
harness. How one pod goes through them is for `agent.core.admission.pod`. Order of the providers everywhere: devices,
CPUs, memory, then others by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from agent.core.accounting.ceiling import over
from agent.core.admission.alignment import AlignmentCheck, is_judgement
from agent.core.admission.pod import Admission, Trace
from agent.core.admission.unmixed import NO_KINDS, Kinds, kinds_for
from agent.core.confine import Confiner, align_requested
from agent.core.cpus import provider as cpus
from agent.core.devices import provider as devices
from agent.core.devices.choose import Preference
from agent.core.machines.in_force import barred
from agent.core.machines.kubelet_view import managed
from agent.core.memory import provider as memory
from agent.core.memory.confined import yielding
from agent.core.merge.masks import Positions
from agent.core.merge.order import Order
from agent.core.merge.provider import Answer, Provider
from agent.core.request.annotations import NOTHING, PodSettings
from agent.model.claims import PROVIDER as CLAIMS
from agent.model.devices import DeviceInventory
from agent.model.exclusive import Selection
from agent.model.hint import Hint
from agent.model.idset import CpuSet, NodeSet
from agent.model.ledger import Ledger, PodRecord
from agent.model.machine import Machine
from agent.model.outcome import Admitted, Outcome, Refusal, Refused
from agent.model.pod import Container, Pod
from agent.model.rules import Compatibility, CpuOptions, Policy, Rules, Scope, TopologyRules


class Node:
    """The managers of one node: what never changes between decisions. All state is in the ledger.

    `machine` is the hardware: what is written, shown and compared at a restart. `seen` is what the managers decide
    by, the kubelet's view of it under Compatibility.KUBELET (`agent.core.machines.kubelet_view`).

    Args:
        machine: the hardware.
        rules: checked settings.
        inventory: the devices that there are.
        extra_providers: hint providers beyond devices, CPUs and memory.
        preferences: what device plugins like to hand out, by resource.
    """

    def __init__(
        self,
        machine: Machine,
        rules: Rules,
        inventory: DeviceInventory,
        extra_providers: Iterable[Provider] = (),
        preferences: Mapping[str, Preference] | None = None,
    ) -> None:
        self.machine = machine
        self.rules = rules
        self.inventory = inventory
        self.seen = seen = managed(machine, rules.compatibility)
        self.positions = Positions.of(seen.node_set)
        self.order = Order.of(seen)
        self._cpus = cpus.CpuManager(seen, rules)
        self._devices = devices.DeviceManager(seen, rules, inventory, preferences)
        self._memory = memory.MemoryManager(seen, rules)
        self.confiner = Confiner(seen, rules, self._cpus.start().shared - self._cpus.reserved)
        self._made_of = tuple(extra_providers), preferences
        self._others = tuple(sorted((self.confiner, *self._made_of[0]), key=lambda each: each.name))
        self._overridden: dict[CpuOptions, cpus.CpuManager] = {}
        follows = any(each.name == CLAIMS for each in self._others)
        self._judge = AlignmentCheck(seen, inventory, follows=follows, compatibility=rules.compatibility)

    def unadvertised(self) -> Node:
        """The same managers, of a node of which it is not known what it advertises."""
        extra, preferences = self._made_of
        return Node(self.machine, replace(self.rules, advertised=None), self.inventory, extra, preferences)

    def on(self, machine: Machine) -> Node:
        """The same managers where pods can run on more of the machine, or on less (`Machine.barred`)."""
        if machine is self.machine:
            return self
        extra, preferences = self._made_of
        return Node(machine, self.rules, self.inventory, extra, preferences)

    def with_inventory(self, inventory: DeviceInventory) -> Node:
        """The same managers where other devices are known."""
        extra, preferences = self._made_of
        return Node(self.machine, self.rules, inventory, extra, preferences)

    def with_topology(self, policy: Policy | None, scope: Scope | None, exclusive: Selection | None = None) -> Node:
        """The same managers under another policy, scope or wish for exclusive CPUs (`agent.core.request.exclusive`).

        Raises:
            SettingsError: the CPU options forbid it.
        """
        topology, wish = self.rules.topology, self.rules.exclusive if exclusive is None else exclusive
        topology = replace(topology, policy=policy or topology.policy, scope=scope or topology.scope)
        extra, preferences = self._made_of
        rules = replace(self.rules, topology=topology, exclusive=wish)
        return Node(self.machine, rules, self.inventory, extra, preferences)

    def preferring_closest(self) -> Node:
        """The same managers with the topology option prefer-closest-numa-nodes."""
        extra, preferences = self._made_of
        rules = replace(self.rules, topology=replace(self.rules.topology, prefer_closest=True))
        return Node(self.machine, rules, self.inventory, extra, preferences)

    @property
    def reserved(self) -> CpuSet:
        """CPUs that the system keeps: named by the settings, or chosen as the CPU manager chooses."""
        return self._cpus.reserved

    def barred(self, path: str = "") -> str:
        """What pods cannot have of the machine, in words, but for CPUs that the settings keep from pods by name.

        Args:
            path: of the kubelet's own cgroup, where it is known.
        """
        cpu = self.rules.cpu
        kept = (cpu.reserved or CpuSet()) if cpu.static else self.machine.barred
        return barred(self.machine, kept, path)

    @property
    def providers(self) -> tuple[Provider, ...]:
        """In the order in which they are asked."""
        return (self._devices, self._cpus, self._memory, *self._others)

    def start(self) -> Ledger:
        """The ledger of a node without pods.

        Raises:
            SettingsError: what the managers refuse at start, with the kubelet's sentence: topology options (rule
                3.2), reserved CPUs (rule 4.1), reserved memory (rule 5.1).
        """
        return Ledger(machine=self.machine.digest, cpus=self._cpus.start(), memory=self._memory.start())

    def admit(self, ledger: Ledger, pod: Pod, settings: PodSettings = NOTHING, trace: Trace | None = None) -> Outcome:
        """Decide on one pod.

        Args:
            ledger: what each pod holds now.
            pod: the newcomer. One that is in the ledger already keeps what it holds (Compatibility.FIXED): a restart
                moves nothing. The kubelet admits such a pod again (defects D1, D4, D9).
            settings: policy, scope and CPU options of this pod, instead of the node's.
            trace: told of every merge.

        Returns:
            Admitted or Refused; go on with its `ledger` in both cases.
        """
        fixed = self.rules.compatibility is Compatibility.FIXED
        if fixed and pod.uid in ledger.pods:
            return Admitted(ledger)
        kinds = self._kinds(ledger, pod, settings) if fixed and self.seen.isolated else {}
        after, refusal = self.attempt(ledger, pod, settings, trace, kinds)
        if refusal is None:
            return Admitted(after)
        found = None
        for count, yielded in enumerate(yielding(ledger) if fixed else ()):  # all, the latest, the two latest, ...
            more, again = self.attempt(yielded, pod, settings)
            found = more if again is None else found
            if (again is None) == bool(count):
                break
        if found is not None:
            return Admitted(found)
        return Refused(refusal, ledger if fixed else self.release(after, pod.uid))

    def attempt(
        self, ledger: Ledger, pod: Pod, settings: PodSettings = NOTHING, trace: Trace | None = None,
        kinds: Kinds = NO_KINDS,
    ) -> tuple[Ledger, Refusal | None]:  # fmt: skip
        """Take what the pod asks for, as far as it goes: with a refusal the ledger holds what was taken before it.

        What `admit` is made of; the parity harness needs it bare, since a kubelet that restarts releases nothing
        until it has admitted all its pods again. `kinds` keeps containers to isolated CPUs, or to ordinary ones.
        """
        topology = self.rules.topology
        policy, scope = settings.policy or topology.policy, settings.scope or topology.scope
        scope = Scope.POD if align_requested(pod)[0] else scope
        if (policy, scope) != (topology.policy, topology.scope):
            topology = replace(topology, policy=policy, scope=scope)
        by_socket = self._by_socket(settings.cpu_options)
        admission = self._admission(ledger, pod, topology, settings.cpu_options, trace, kinds)
        refusal = admission.run()
        if refusal is not None:
            return _settled(admission.ledger), refusal
        record = PodRecord(
            pod=pod,
            policy=topology.policy,
            scope=topology.scope,
            asked=settings.policy or "",
            affinity=admission.hints,
        )
        judged = self._judge.judged(admission.ledger, record, by_socket=by_socket)
        after = _settled(admission.ledger, judged)
        refusal = over(self.rules, pod.namespace, ledger, after)
        return (ledger, refusal) if refusal else (after, None)

    def hint(
        self, ledger: Ledger, pod: Pod, container: Container, policy: Policy, options: CpuOptions | None = None
    ) -> tuple[Mapping[str, Answer], Hint]:
        """Ask what the managers offer to one container beside what it holds, and what a policy makes of that."""
        topology = replace(self.rules.topology, policy=policy)
        admission = self._admission(ledger, pod, topology, options, None)
        answers = admission.ask(ledger, container)
        return answers, admission.merge(answers).hint

    def _by_socket(self, options: CpuOptions | None) -> bool:
        return (options or self.rules.cpu.options).align_by_socket

    def _admission(
        self, ledger: Ledger, pod: Pod, topology: TopologyRules, options: CpuOptions | None, trace: Trace | None,
        kinds: Kinds = NO_KINDS,
    ) -> Admission:  # fmt: skip
        literal = self.rules.compatibility is Compatibility.KUBELET
        return Admission(
            pod, ledger, topology, self._providers_for(options, kinds), self.positions, self.order,
            as_whole=self.rules.pod_level_managers and pod.pod_level, trace=trace,
            firm=() if literal or self._by_socket(options) else (self._cpus.name, self._memory.name),
            width=None if literal else lambda ledger, name: len(self._lies_on(ledger, pod.uid, name)),
        )  # fmt: skip

    def _lies_on(self, ledger: Ledger, uid: str, container: str) -> NodeSet:
        """The NUMA nodes of a container's CPUs and memory."""
        grant = ledger.grant(uid, container)
        return self.seen.nodes_of(grant.cpus or CpuSet()) | (grant.mems or NodeSet())

    def devices_requested(self, pod: Pod) -> dict[str, dict[str, int]]:
        """The devices that numalign hands out itself and a pod asks for: container -> resource -> how many."""
        empty = self.start()
        asked = {each.name: self._devices.requested(empty, pod, each) for each in pod.containers}
        return {name: by for name, by in asked.items() if by}

    def cpu_provider(self, options: CpuOptions | None = None) -> cpus.CpuManager:
        """The CPU manager under a pod's own options, the node's where it has none."""
        found = next(each for each in self._providers_for(options) if each.name == self._cpus.name)
        return found if isinstance(found, cpus.CpuManager) else self._cpus

    def judged(self, ledger: Ledger, record: PodRecord, options: CpuOptions | None = None) -> PodRecord:
        """Return the record with its grant judged again: aligned or not, and why."""
        return self._judge.judged(ledger, record, by_socket=self._by_socket(options))

    def judged_elsewhere(self, ledger: Ledger, record: PodRecord, settings: PodSettings) -> PodRecord:
        """Judge a pod that was placed on a machine with other NUMA nodes: no hint of that means anything now.

        What it holds is merged again, as the kubelet does at its start. Where that is refused, or would be something
        else than what it holds, the nodes that it lies on are its affinity; so they are for a pod that is confined.

        Args:
            ledger: with the pod's grants in it.
            record: the pod's.
            settings: policy, scope and CPU options that it was admitted under.
        """
        uid, options = record.pod.uid, settings.cpu_options
        after, refusal = self.attempt(ledger, record.pod, settings)
        alike = (after.cpus, after.memory, after.devices, after.others) == (
            ledger.cpus, ledger.memory, ledger.devices, ledger.others,
        )  # fmt: skip
        same = refusal is None and alike and uid not in ledger.cpus.confined
        hints = after.pods[uid].affinity if same else self._judge.lying(ledger, record)
        judged = self.judged(ledger, replace(record, affinity=hints), options)
        return self._judge.moved(
            ledger, judged, [name for name in hints if not is_judgement(record.why.get(name, ""))]
        )

    def release(self, ledger: Ledger, uid: str) -> Ledger:
        """Give back all that a pod holds. A pod that is not in the ledger changes nothing."""
        for provider in self.providers:
            ledger = provider.release(ledger, uid)
        pods = {key: kept for key, kept in ledger.pods.items() if key != uid}
        others = {
            name: {key: held for key, held in mine.items() if key != uid}
            for name, mine in ledger.others.items()
            if mine.keys() - {uid}
        }
        return _settled(replace(ledger, others=others, pods=pods))

    def container_started(self, ledger: Ledger, uid: str, container: str) -> Ledger:
        """The runtime created a container: what init containers before it held may go (kubelet rule 5.9)."""
        record = ledger.pods.get(uid)
        found = next((each for each in record.pod.containers if each.name == container), None) if record else None
        if record is None or found is None:
            return ledger
        for provider in self.providers:
            ledger = provider.started(ledger, record.pod, found)
        return ledger

    def _kinds(self, ledger: Ledger, pod: Pod, settings: PodSettings) -> Kinds:
        """Find the kinds of CPUs by which no container is mixed of isolated and other ones, as far as it can be."""
        options = settings.cpu_options or self.rules.cpu.options

        def attempt(kinds: Kinds) -> Ledger | None:
            after, refusal = self.attempt(ledger, pod, settings, None, kinds)
            return None if refusal else after

        def quality(after: Ledger) -> tuple[int, ...]:
            record, own = after.pods[pod.uid], after.cpus.assigned.get(pod.uid, {}).values()
            lies = self._judge.lying(after, record).values()
            return (
                sum(record.aligned.values()),
                sum(hint.preferred for hint in record.affinity.values()),
                -sum(len(hint.nodes or ()) for hint in lies),
                sum(self._cpus.in_one_cache(cpus) for cpus in own) if options.prefer_uncore else 0,
            )

        prefers = self._cpus.prefers_isolated(pod)
        return kinds_for(pod, self.seen.isolated, attempt, quality, prefers=prefers)

    def _providers_for(self, options: CpuOptions | None, kinds: Kinds = NO_KINDS) -> tuple[Provider, ...]:
        manager = self._cpus
        if options is not None and options != self.rules.cpu.options:
            if options not in self._overridden:
                self._overridden[options] = manager.with_options(options)
            manager = self._overridden[options]
        manager = manager.keeping(kinds) if kinds else manager
        return (self._devices, manager, self._memory, *self._others)


def _settled(ledger: Ledger, record: PodRecord | None = None) -> Ledger:
    """What init containers left belongs to one admission only (kubelet rules 4.13, 5.8, 6.4); with a pod's record."""
    cpus, memory, devices = ledger.cpus, ledger.memory, ledger.devices
    return replace(
        ledger,
        cpus=cpus if cpus.reusable is None else replace(cpus, reusable=None),
        memory=memory if memory.reusable is None else replace(memory, reusable=None),
        devices=devices if devices.reusable is None else replace(devices, reusable=None),
        pods={**ledger.pods, record.pod.uid: record} if record else ledger.pods,
    )
