"""Exclusive CPUs for containers: the kubelet's static CPU Manager policy as a hint provider (kubelet rule 4).

A container of a Guaranteed pod that asks for whole CPUs gets CPUs of its own; all others run on the shared pool. With
policy none all run there. State is `CpuBooks` in the ledger; every method is a pure function of its arguments.

Asked by `agent.core.admission.node`, after devices and before memory. Its parts: `pools` (which CPUs may be used),
`hints` (where it could lie), `choose` (which CPUs), `pods` (pods managed as a whole).

Defects of the kubelet, answered alike under Compatibility.KUBELET and mended under FIXED: D1, a pod that
holds its CPUs already is not asked again for whole free cores; in `choose` D2, a remembered combination that changes,
and D6, the affinity's number of nodes that is ignored. Mended in both: D3, the endless loop; D9, pods managed as a
whole lose their CPUs when they are admitted again (up to 1.37); a CPU that an init container left and that a later
container holds is not given to an earlier one, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import replace
from functools import partial

from agent.core.cpus.choose import Chooser
from agent.core.cpus.hints import Hinter
from agent.core.cpus.pods import Take, empty_pool, is_prefix, partition
from agent.core.cpus.pools import Pools, granted
from agent.core.cpus.topology import CpuTopology
from agent.core.kubelets import kubelet_rules
from agent.core.merge.masks import Positions
from agent.core.merge.provider import Answer
from agent.core.request import mixed
from agent.core.request.amounts import exclusive_count, pod_exclusive_count
from agent.core.request.isolated import IsolatedCpus, counted, of_kind, wish_of
from agent.model.hint import IMPOSSIBLE, Hint, Stance
from agent.model.idset import CpuSet
from agent.model.ledger import CpuBooks, Ledger
from agent.model.machine import Machine
from agent.model.outcome import COUNTED, Reason, Refusal
from agent.model.pod import Container, ContainerKind, Pod, Qos
from agent.model.rules import Compatibility, CpuOptions, Rules
from agent.settings.cpu_options import check_machine

CPU = "cpu"


class CpuManager:
    """The CPU manager of one machine.

    Args:
        machine: the hardware.
        rules: checked settings.
        options: instead of those of the rules, for one pod (numalign.io/cpu-options); the pools stay the node's.

    Raises:
        SettingsError: what the policy refuses at its start (rule 4.1), with the kubelet's sentence: options that do
            not go with the machine, or CPUs to reserve that cannot be had.
    """

    name = "cpus"

    def __init__(self, machine: Machine, rules: Rules, *, options: CpuOptions | None = None) -> None:
        self._machine = machine
        self.rules = rules
        self.options = options = options or rules.cpu.options
        self._kubelet = rules.compatibility is Compatibility.KUBELET
        how = kubelet_rules(rules)
        self._cores_first = how.cores_before_state
        self._keeps_pods = how.pods_kept
        self._topology = topology = CpuTopology.of(machine)
        if rules.cpu.static:
            sockets, nodes = topology.num_sockets, len(topology.nodes)
            check_machine(rules.cpu.options, rules.topology.policy, sockets=sockets, nodes=nodes)
        self._pools = Pools(machine, topology, rules)
        self._chooser = Chooser(
            topology, options, self._pools.apart, literal=self._kubelet, only_offered=rules.only_offered, kubelet=how
        )
        self._hinter = Hinter(
            topology, Positions.of(machine.node_set), machine.usable, by_socket=options.align_by_socket
        )
        self._isolated = machine.isolated & machine.usable
        self._kinds: Mapping[str, IsolatedCpus] = {}

    @property
    def reserved(self) -> CpuSet:
        """CPUs that the system keeps; none under policy none."""
        return self._pools.reserved

    @property
    def apart(self) -> CpuSet:
        """Kernel-isolated CPUs that are kept out of the shared pool (safety rule S5)."""
        return self._pools.apart

    def with_options(self, options: CpuOptions) -> CpuManager:
        """The same for a pod with options of its own, but for those that are the node's in any case."""
        return CpuManager(self._machine, self.rules, options=self.rules.cpu.options.for_pod(options))

    def start(self) -> CpuBooks:
        """The books of a node without pods."""
        return CpuBooks(shared=self._pools.shared())

    def keeping(self, kinds: Mapping[str, IsolatedCpus]) -> CpuManager:
        """Make the same for a pod whose containers (by name) are kept to isolated CPUs, or to ordinary ones."""
        found = copy(self)
        found._kinds = kinds  # noqa: SLF001 - of the same class
        return found

    def free(self, books: CpuBooks, pod: Pod | None = None, container: str = "") -> CpuSet:
        """Find the CPUs that may be granted now: to any pod, to one, to one of its containers."""
        if pod is None:
            return self._pools.free(books)
        named = pod.containers if self._kinds else ()
        kinds = {self._kinds.get(each.name) for each in named if container in ("", each.name)}
        kind, wish = kinds.pop() if len(kinds) == 1 else None, wish_of(pod, self.rules)
        return of_kind(self._pools.free(books), self._isolated, kind if wish is IsolatedCpus.PREFER else wish or kind)

    def prefers_isolated(self, pod: Pod) -> bool:
        """Say whether a pod prefers isolated CPUs."""
        return wish_of(pod, self.rules) is IsolatedCpus.PREFER

    def in_one_cache(self, cpus: CpuSet) -> bool:
        """Say whether CPUs share one L3 cache."""
        return self._topology.in_one_cache(cpus.bits)

    @property
    def chooser(self) -> Chooser:
        """Picks CPUs under these options; for changes of what is granted already (`agent.core.admission.resize`)."""
        return self._chooser

    def regranted(self, ledger: Ledger, uid: str, container: str, cpus: CpuSet) -> Ledger:
        """The ledger where a container holds these CPUs instead of what it held; none for the shared pool."""
        books = ledger.cpus
        held = books.assigned.get(uid, {})
        others = {name: mine for name, mine in held.items() if name != container}
        kept = CpuSet.union([cpus, *others.values()])
        shared = self._pools.put_back(books, held.get(container, CpuSet()) - kept) - cpus
        return self._with(ledger, self._assigned(books, uid, {**others, container: cpus} if cpus else others, shared))

    def regranted_pod(self, ledger: Ledger, uid: str, own: CpuSet, shares: Mapping[str, CpuSet]) -> Ledger:
        """Leave a pod that is managed as a whole this part of what it held, so divided."""
        books = ledger.cpus
        shared = self._pools.put_back(books, books.pools[uid] - own)
        books = self._assigned(books, uid, shares, shared)
        return self._with(ledger, replace(books, pools={**books.pools, uid: own}))

    def container_hints(self, ledger: Ledger, pod: Pod, container: Container) -> Answer:
        """Where the container's exclusive CPUs could lie."""
        count = self._count(pod, container)
        if not count:
            return Stance.NO_PREFERENCE
        books = ledger.cpus
        held = books.assigned.get(pod.uid, {}).get(container.name)
        if held is not None:
            return {CPU: self._hinter.offer(held, count) if len(held) == count else IMPOSSIBLE}
        return {CPU: self._hinter.offer(self.free(books, pod, container.name), count, self._reusable(books, pod))}

    def pod_hints(self, ledger: Ledger, pod: Pod) -> Answer:
        """Where the exclusive CPUs of the whole pod could lie."""
        count = self._pod_count(pod)
        if not count:
            return Stance.NO_PREFERENCE
        books = self._unbroken(ledger, pod).cpus
        own = books.pools.get(pod.uid)
        if pod.pod_level and not (own and self._keeps_pods) and empty_pool(pod):
            return {CPU: IMPOSSIBLE}
        if own is not None and (self._keeps_pods or not self._kubelet):  # defect D9: the kubelet grants it twice
            return {CPU: self._hinter.offer(own, count) if len(own) == count else IMPOSSIBLE}
        held = CpuSet()
        for container in pod.containers:
            cpus = books.assigned.get(pod.uid, {}).get(container.name)
            if cpus is None:
                continue
            if len(cpus) != exclusive_count(pod, container, self.rules):
                return {CPU: IMPOSSIBLE}
            held |= cpus
        if self._kubelet and len(held) == count:
            return {CPU: self._hinter.offer(held, count)}
        return {CPU: self._hinter.offer(self.free(books, pod), count, self._reusable(books, pod) | held)}

    def allocate(self, ledger: Ledger, pod: Pod, container: Container, affinity: Hint) -> Ledger | Refusal:
        """Grant the container its exclusive CPUs; one that has them keeps them."""
        count = self._count(pod, container)
        if not count:
            return ledger
        books = ledger.cpus
        held = books.assigned.get(pod.uid, {}).get(container.name)
        if held is not None and not self._cores_first:  # defect D1: it runs already
            return self._with(ledger, _reused(books, pod.uid, container, held))
        reusable = self._reusable(books, pod)
        free = self.free(books, pod, container.name)
        refusal = self._chooser.check_cores(count, self._physical(books, free, reusable))
        if refusal is not None:
            return refusal
        if held is not None:
            return self._with(ledger, _reused(books, pod.uid, container, held))
        taken = self._bought(books, pod, count, affinity, free, reusable)
        if isinstance(taken, Refusal):
            return self.why_none(taken, pod)
        containers = {**books.assigned.get(pod.uid, {}), container.name: taken}
        books = self._assigned(books, pod.uid, containers, books.shared - taken)
        return self._with(ledger, _reused(self._mixed(books, pod, container), pod.uid, container, taken))

    def _mixed(self, books: CpuBooks, pod: Pod, container: Container) -> CpuBooks:
        """The books with the shared CPUs that a container has beside its own, where it asks for some."""
        if not mixed.takes_part(pod, container, self.rules):
            return books
        part = mixed.part(books, self.rules, self.reserved & self._machine.usable, granted(books))
        if part is None:
            return books
        mine = {**books.mixed.get(pod.uid, {}), container.name: part}
        return replace(books, mixed={**books.mixed, pod.uid: mine})

    def allocate_pod(self, ledger: Ledger, pod: Pod, affinity: Hint) -> Ledger | Refusal:
        """Grant a pod with pod-level resources CPUs of its own, and divide them between its containers."""
        count = self._pod_count(pod)
        part = partial(self._chooser.part, affinity=affinity)
        ledger = self._unbroken(ledger, pod) if count else ledger
        books = ledger.cpus
        again = pod.uid in books.pools
        if count and again and self._keeps_pods:
            return self._completed(ledger, pod, part)
        if not count or (again and not self._kubelet):  # defect D9: the kubelet grants it twice
            return ledger
        own = self._own(books, pod, count, affinity)
        if again and not isinstance(own, Refusal):
            return ledger  # the kubelet would take these too, and lose the first
        if isinstance(own, Refusal):
            return own
        shares = partition(pod, own, part)
        if isinstance(shares, Refusal):
            return shares
        books = self._assigned(books, pod.uid, shares, books.shared - own)
        return self._with(ledger, replace(books, pools={**books.pools, pod.uid: own}))

    def _unbroken(self, ledger: Ledger, pod: Pod) -> Ledger:
        """Release a pod whose containers with CPUs are not its first ones: kubelet 1.38 takes it as a new one."""
        books = ledger.cpus
        own = books.pools.get(pod.uid) if self._keeps_pods else None
        if not own or (is_prefix(pod, books.assigned.get(pod.uid, {})) and not own & books.shared):
            return ledger
        return self.release(ledger, pod.uid)

    def _completed(self, ledger: Ledger, pod: Pod, part: Take) -> Ledger | Refusal:
        """Give the containers that have none their CPUs out of the pod's own, which it keeps (kubelet 1.38)."""
        books = ledger.cpus
        held = books.assigned.get(pod.uid, {})
        if len(held) == len(pod.containers):
            return ledger
        shares = partition(pod, books.pools[pod.uid], part, held)
        if isinstance(shares, Refusal):
            return shares
        return self._with(ledger, self._assigned(books, pod.uid, shares, books.shared))

    def started(self, ledger: Ledger, pod: Pod, container: Container) -> Ledger:  # noqa: ARG002 - Provider
        """Nothing: CPUs of finished init containers stay the pod's until it ends (kubelet rule 4.14: release)."""
        return ledger

    def release(self, ledger: Ledger, uid: str, container: str | None = None) -> Ledger:
        """Give back what a container (None: the pod) holds.

        What its other containers hold, too, stays (kubelet rule 4.14: release).
        """
        books = ledger.cpus
        containers = books.assigned.get(uid, {})
        own = books.pools.get(uid)
        if container is None:
            reusable = None if books.reusable and books.reusable[0] == uid else books.reusable
            if not containers and own is None and uid not in books.mixed:
                return self._with(ledger, replace(books, reusable=reusable))
            freed = CpuSet.union(containers.values()) | (own or CpuSet())
            kept: Mapping[str, CpuSet] = {}
            books = replace(books, reusable=reusable, mixed=_but(books.mixed, uid))
        elif container in containers:
            kept = {name: cpus for name, cpus in containers.items() if name != container}
            freed = containers[container] - CpuSet.union(kept.values())
            if own is not None:
                freed = CpuSet() if kept else own
            parts = {name: part for name, part in books.mixed.get(uid, {}).items() if name != container}
            books = replace(books, mixed={**_but(books.mixed, uid), **({uid: parts} if parts else {})})
        else:
            return ledger
        if self.rules.only_offered:
            shared = self._pools.put_back(books, freed)
        else:  # whatever it had been given: reserved CPUs too, but not what lay outside a pod's own pool
            shared = books.shared | (freed if own is None or kept else own)
        books = self._assigned(books, uid, kept, shared)
        if not kept:
            books = replace(books, pools={key: pool for key, pool in books.pools.items() if key != uid})
        return self._with(ledger, books)

    def _count(self, pod: Pod, container: Container) -> int:
        """Exclusive CPUs of a container; 0 also for pods with pod-level resources while the gate is off."""
        if not self.rules.cpu.static or (pod.pod_level and not self.rules.pod_level_managers):
            return 0
        return exclusive_count(pod, container, self.rules)

    def _pod_count(self, pod: Pod) -> int:
        if not self.rules.cpu.static or (pod.pod_level and not self.rules.pod_level_managers):
            return 0
        return pod_exclusive_count(pod, self.rules)

    def _reusable(self, books: CpuBooks, pod: Pod) -> CpuSet:
        """What finished init containers of this pod left."""
        if books.reusable is None or books.reusable[0] != pod.uid:
            return CpuSet()
        return books.reusable[1]

    def _physical(self, books: CpuBooks, free: CpuSet, reusable: CpuSet) -> CpuSet:
        """CPUs on cores without a reserved CPU. The kubelet forgets those that init containers left (defect D1)."""
        if self._kubelet:
            return books.shared - self._pools.touched
        return (free | reusable) - self._pools.touched

    def _own(self, books: CpuBooks, pod: Pod, count: int, affinity: Hint) -> CpuSet | Refusal:
        """The CPUs of a pod that is managed as a whole."""
        why = empty_pool(pod)
        if why:
            return Refusal(Reason.EMPTY_POOL, why, facts={"requested": count})
        free = self.free(books, pod)
        refusal = self._chooser.check_cores(count, self._physical(books, free, CpuSet()))
        taken = refusal or self._grant(books, count, affinity, free)
        return self.why_none(taken, pod) if isinstance(taken, Refusal) else taken

    def why_none(self, refusal: Refusal, pod: Pod) -> Refusal:
        """Say with a refusal which CPUs did not count, where the pod says so itself."""
        said = counted(pod, self.rules)
        if not said:
            return refusal
        return replace(refusal, message=f"{refusal.message}: {said}", facts={**refusal.facts, COUNTED: said})

    def _grant(self, books: CpuBooks, count: int, affinity: Hint, free: CpuSet) -> CpuSet | Refusal:
        taken = self._chooser.choose(free, count, affinity)
        if isinstance(taken, Refusal) or not self.rules.keep_shared:
            return taken
        if books.shared and not books.shared - taken:
            asked = "the CPU asked for is" if count == 1 else f"the {count} CPUs asked for are"
            return Refusal(
                Reason.SHARED_POOL,
                f"{asked} all that the shared pool has left, which must not become empty",
                facts={"requested": count, "shared": str(books.shared)},
            )
        return taken

    def _bought(
        self, books: CpuBooks, pod: Pod, count: int, affinity: Hint, free: CpuSet, reusable: CpuSet
    ) -> CpuSet | Refusal:  # fmt: skip
        """The CPUs of one more container, which may be others than what init containers left (kubelet rule 4.13).

        The kubelet then keeps both, and more than the pod requested. A pod that no kubelet would pin does not get
        more: where it would, what is left comes first.
        """
        taken = self._grant(books, count, affinity, free | reusable)
        lasting = self._lasting(books, pod) & reusable
        if lasting and not isinstance(taken, Refusal) and taken & lasting:
            reusable -= lasting
            taken = self._grant(books, count, affinity, free | reusable)
        if isinstance(taken, Refusal) or pod.qos is Qos.GUARANTEED:
            return taken
        if len(CpuSet.union(books.assigned.get(pod.uid, {}).values()) | taken) <= self._pod_count(pod):
            return taken
        if count <= len(reusable):
            return self._chooser.choose(reusable, count, affinity)
        more = self._grant(books, count - len(reusable), affinity, free)
        return more if isinstance(more, Refusal) else more | reusable

    def _lasting(self, books: CpuBooks, pod: Pod) -> CpuSet:
        """What the pod's sidecars and app containers hold: no other container of it may have that, too.

        The kubelet offers it to an earlier container that lacks its CPUs, where an init container left it.
        """
        held = books.assigned.get(pod.uid, {}) if self.rules.only_offered else {}
        return CpuSet.union(
            held[each.name] for each in pod.containers if each.kind is not ContainerKind.INIT and each.name in held
        )

    def _assigned(self, books: CpuBooks, uid: str, containers: Mapping[str, CpuSet], shared: CpuSet) -> CpuBooks:
        others = {key: held for key, held in books.assigned.items() if key != uid}
        return replace(books, shared=shared, assigned={**others, uid: containers} if containers else others)

    def _with(self, ledger: Ledger, books: CpuBooks) -> Ledger:
        return replace(ledger, cpus=books)


def _but(mixed: Mapping[str, Mapping[str, CpuSet]], uid: str) -> dict[str, Mapping[str, CpuSet]]:
    return {key: parts for key, parts in mixed.items() if key != uid}


def _reused(books: CpuBooks, uid: str, container: Container, cpus: CpuSet) -> CpuBooks:
    """What later containers of the pod may reuse: a finished init container's CPUs, less what others took (4.13)."""
    before = books.reusable[1] if books.reusable and books.reusable[0] == uid else CpuSet()
    after = before | cpus if container.kind is ContainerKind.INIT else before - cpus
    return replace(books, reusable=(uid, after))
