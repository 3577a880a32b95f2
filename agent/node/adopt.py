"""Read the grants of pods that the checkpoint lacks: from their cgroups, and from an earlier agent's records on them.

    CPUs, memory   the sets that the containers run on. A set is plausible for a container that is entitled to
                   exclusive CPUs if it has exactly as many CPUs as that, all online, none reserved, and none that
                   another pod holds. The shared pool is never plausible, though it may have as many CPUs.
                   A set that stands alone is plausible as well: no CPU of it is in the pool or in a set of another
                   pod's container. It may have another size, CPUs that are reserved since (a CPU that goes offline
                   moves a reservation by number), or a container that is not entitled any more. Then a resize could
                   not be followed, or settings or annotations changed: the set is adopted as it is, and the
                   difference is a resize that waits. A mixed container (numalign.io/mixed) is adopted without its
                   shared part: the reserved CPUs, or the pool.
    as a whole     (PodLevelResourceManagers) the sets of a pod's containers together are the pod's own CPUs, if they
                   are plausible as one set; its memory is on the nodes that they are bound to.
    confinement    the nodes whose CPUs the pod's cgroup has.
    devices        are in no cgroup. The pod's condition has them, also after its request changed; a tenant can write
                   annotations, but no condition. It counts unless another pod's condition or grant has one of the
                   same devices.

Where no source has the devices of a running pod, its record says so (UNTOLD), and nothing of these resources is
handed out until it ends (`agent.core.devices.provider`): the next pod would get a disk that is in use.

Used by `agent.node.recover`. Nothing is placed here, and nothing that runs is moved.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from agent.core.admission.alignment import AlignmentCheck
from agent.core.admission.node import Node
from agent.core.admission.resize import PREFIX as RESIZE
from agent.core.cgroups.burstable import common
from agent.core.cpus.pods import partition
from agent.core.devices.books import UNTOLD, in_use
from agent.core.memory.books import Draft
from agent.core.memory.pods import pool_blocks
from agent.core.memory.pods import shares as memory_shares
from agent.core.request import mixed
from agent.core.request.amounts import exclusive_count, pod_exclusive_count
from agent.core.request.annotations import PodSettings, pod_settings
from agent.core.request.exclusive import is_fixed, memory_takes_part
from agent.model.cgroup import Cgroup, Level, Observed
from agent.model.hint import Hint
from agent.model.idset import CpuSet, NodeSet
from agent.model.ledger import Block, Ledger, PodRecord
from agent.model.pod import Container, ContainerKind, Pod
from agent.model.quantity import units
from agent.model.rules import Compatibility, MemoryTier, Policy, Scope
from agent.node.fault_isolation import Isolated

LOST = "the saved ledger was lost"
Devices = Mapping[str, Mapping[str, tuple[str, ...]]]
"""Container -> resource -> ids."""


@dataclass(frozen=True, slots=True)
class AnnotatedGrant:
    """What an earlier agent recorded on a pod. Untrusted input: a tenant can write annotations.

    Attributes:
        policy, scope, asked: what was in force, and what its annotation asked for; any text.
        devices: what its containers hold, by its condition.
        refused: it was refused, so that it holds nothing.
    """

    policy: str = ""
    scope: str = ""
    asked: str = ""
    devices: Devices = field(default_factory=dict)
    refused: bool = False


class Adopter:
    """Reads grants, pod by pod, oldest first.

    Args:
        node: the managers.
        base: the grants that are known.
        pods: the running pods without a grant, by uid.
        words: what an earlier agent recorded on them, by uid.
        observed: the cgroups of all pods.
    """

    def __init__(
        self, node: Node, base: Ledger, pods: Mapping[str, Pod], words: Mapping[str, AnnotatedGrant],
        observed: Observed,
    ) -> None:  # fmt: skip
        self._pool, self._parts = common(observed), dict[str, dict[str, CpuSet]]()
        self._memory = Draft(base.memory.nodes, exact=node.rules.compatibility is Compatibility.FIXED)
        self._observed, self._unlike = observed, dict[str, dict[str, str]]()
        self._node = node
        self.ledger = base
        self._words = words
        self._pods = tuple(pods)
        self._judge = AlignmentCheck(node.seen, node.inventory, compatibility=node.rules.compatibility)
        self._taken = node.reserved | CpuSet.union(
            [*(cpus for each in base.cpus.assigned.values() for cpus in each.values()), *base.cpus.pools.values()]
        )
        self._device_requests: dict[str, dict[str, dict[str, int]]] = {}
        for uid, pod in pods.items():
            with Isolated(lambda _error: None):  # left to admission, which reports it
                if requests := node.devices_requested(pod):
                    self._device_requests[uid] = requests
        self._devices = self._believed()
        self._confined: dict[str, tuple[NodeSet, bool]] = {}
        self.untold: dict[str, str] = {}
        """Pods whose devices no source has: uid -> a sentence on that, without the pod's name."""

    def adopt(self, pod: Pod, cgroups: Mapping[str, Cgroup], whole: Cgroup | None) -> bool:
        """Take a pod's sets and devices as its grant; False where none of its containers has a plausible set.

        Args:
            pod: the pod.
            cgroups: its containers' cgroups, by container name.
            whole: the pod's own cgroup.
        """
        refused = self._words.get(pod.uid, AnnotatedGrant()).refused
        own = self._own(pod, cgroups)
        found = self._shares(pod, cgroups, own) if own else self._cpus(pod, cgroups)
        devices = self._devices.get(pod.uid, {})
        nodes_kept = self._kept_on(pod, found, whole)
        untold = pod.uid in self._device_requests and not devices and not refused
        if not (found or devices or nodes_kept or untold):
            return False
        nodes = {name: self._node.seen.nodes_of(cpus) for name, cpus in found.items()}
        together = self._memory_together(pod, cgroups) if own else ()
        blocks = self._blocks(pod, cgroups) if self._node.rules.memory.static and not own else {}
        blocks = memory_shares(pod, together[0].nodes) if together else blocks
        for name, each in blocks.items():
            nodes[name] = NodeSet.union([nodes.get(name, NodeSet()), *(block.nodes for block in each)])
        for container in pod.containers if nodes_kept else ():
            nodes[container.name] = NodeSet.union([nodes.get(container.name, NodeSet()), nodes_kept or NodeSet()])
        bound = nodes_kept is not None and self._bound(pod, cgroups, nodes_kept)
        record = replace(self._record(pod, nodes), bind_memory=bool(blocks) or bound)
        base = self.ledger
        cpus, memory, held = base.cpus, base.memory, base.devices
        if found:
            parts = self._parts.get(pod.uid)
            mixed_sets = {**cpus.mixed, pod.uid: parts} if parts else cpus.mixed
            pools = {**cpus.pools, pod.uid: own} if own else cpus.pools
            cpus = replace(cpus, assigned={**cpus.assigned, pod.uid: found}, mixed=mixed_sets, pools=pools)
        if blocks:
            pooled = {**memory.pools, pod.uid: together} if together else memory.pools
            memory = replace(memory, blocks={**memory.blocks, pod.uid: blocks}, pools=pooled)
        if devices:
            held = replace(held, held={**held.held, pod.uid: devices})
        ledger = replace(base, cpus=cpus, memory=memory, devices=held)
        if untold:
            self.untold[pod.uid] = self._unknown_devices(pod.uid)
        self.ledger = self._judged(ledger, record)
        self._taken |= CpuSet.union(found.values()) | own
        if nodes_kept is not None:
            self._confined[pod.uid] = nodes_kept, bound
        return True

    def confine(self) -> None:
        """Account the confinements, once it is known which CPUs are shared; what does not fit is left out."""
        cpus = self.ledger.cpus
        self.ledger = replace(
            self.ledger, cpus=replace(cpus, shared=cpus.shared - (self._taken - self._node.reserved))
        )
        for uid, (nodes, bound) in self._confined.items():
            with Isolated(lambda _error: None):
                record = self.ledger.pods[uid]
                ledger = self._node.confiner.adopt(self.ledger, record.pod, nodes, bound=bound)
                self.ledger = self._judged(ledger, record)

    # ---- what is recorded on pods

    def _believed(self) -> dict[str, Devices]:
        """Collect the devices of each pod whose condition can be believed."""
        claims = {uid: self._claim(uid) for uid in self._pods}
        counted = Counter(
            (resource, number)
            for claim in claims.values()
            for resource, number in {
                (resource, number) for by in claim.values() for resource, ids in by.items() for number in ids
            }
        )
        return {
            uid: claim
            for uid, claim in claims.items()
            if claim
            and all(
                counted[resource, number] == 1 and number not in in_use(self.ledger.devices, resource)
                for by in claim.values()
                for resource, ids in by.items()
                for number in ids
            )
        }

    def _claim(self, uid: str) -> Devices:
        """Read the devices that a pod holds by its condition: those that exist here and that numalign hands out."""
        inventory = self._node.inventory
        own = {
            resource: {each.id for each in devices}
            for resource, devices in inventory.resources.items()
            if resource not in inventory.reported
        }
        found: dict[str, dict[str, tuple[str, ...]]] = {}
        for name, by in self._words.get(uid, AnnotatedGrant()).devices.items():
            held = {resource: tuple(sorted(own.get(resource, set()) & set(ids))) for resource, ids in by.items()}
            if kept := {resource: ids for resource, ids in held.items() if ids}:
                found[name] = kept
        return found

    def _unknown_devices(self, uid: str) -> str:
        asked = sorted({resource for by in self._device_requests[uid].values() for resource in by})
        return (
            f"{UNTOLD}: nothing of {', '.join(asked)} is handed out while it runs; "
            "the saved ledger was lost, and no word of numalign on the pod says it"
        )

    def _judged(self, ledger: Ledger, record: PodRecord) -> Ledger:
        """Judge the alignment of a pod that is in the ledger; record the result and what differs from its request."""
        record, text = self._judge.judged(ledger, record), self.untold.get(record.pod.uid)
        if text is not None:
            record = replace(record, aligned=dict.fromkeys(record.aligned, False), why={**record.why, "": text})
        unlike = self._unlike.get(record.pod.uid, {})
        aligned = {name: good and name not in unlike for name, good in record.aligned.items()}
        record = replace(record, aligned=aligned, why={**record.why, **unlike})
        return replace(ledger, pods={**ledger.pods, record.pod.uid: record})

    def _record(self, pod: Pod, nodes: Mapping[str, NodeSet]) -> PodRecord:
        topology, noted = self._node.rules.topology, self._words.get(pod.uid, AnnotatedGrant())
        settings: PodSettings = pod_settings(pod, self._node.rules.cpu.options, topology.policy)
        policy = noted.policy if noted.policy in set(Policy) else settings.policy or topology.policy
        return PodRecord(
            pod=pod, policy=policy,
            scope=self._scope(pod),
            asked=noted.asked if noted.asked in set(Policy) else settings.policy or "",
            affinity={name: Hint(each, preferred=len(each) == 1) for name, each in sorted(nodes.items())},
            adopted=True,
        )  # fmt: skip

    # ---- what the cgroups have

    def _cpus(self, pod: Pod, cgroups: Mapping[str, Cgroup]) -> dict[str, CpuSet]:
        """Find each container's exclusive CPUs where its set is plausible, and note what differs from its request."""
        found: dict[str, CpuSet] = {}
        unlike: dict[str, str] = {}
        beside = CpuSet()
        for container in pod.containers:
            name, entitled = container.name, exclusive_count(pod, container, self._node.rules)
            count = entitled or (units(container.requests["cpu"]) if is_fixed(container) else 0)
            if not count or (container.kind is ContainerKind.INIT and name not in cgroups):
                continue
            cgroup = cgroups.get(name)
            online = self._node.machine.online  # a set keeps the CPUs of it that went offline
            cpus, part = self._apart(pod, container, cgroup.cpus & online if cgroup else CpuSet(), count)
            alone = self._stands_alone(pod.uid, cpus)
            free = online - (self._taken - self._node.reserved if alone else self._taken) - beside
            plausible = (len(cpus) == count and entitled) or alone
            if not cpus or not cpus.issubset(free) or cpus == self._pool or not plausible:
                if entitled:
                    unlike[name] = f"from 0 to {count} CPUs: {LOST}; it stays on the shared pool"
                continue
            if len(cpus) != count:
                unlike[name] = f"from {len(cpus)} to {count} CPUs: {LOST}; it keeps CPUs {cpus}"
            found[name] = cpus
            if part is not None:
                self._parts.setdefault(pod.uid, {})[name] = part
            if container.kind is not ContainerKind.INIT:
                beside |= cpus
        if found:
            self._unlike[pod.uid] = {name: f"{RESIZE} {text}" for name, text in unlike.items()}
        return found

    def _own(self, pod: Pod, cgroups: Mapping[str, Cgroup]) -> CpuSet:
        """Find the CPUs of a pod that is managed as a whole; none for any other pod."""
        rules, online = self._node.rules, self._node.machine.online
        whole = rules.cpu.static and rules.pod_level_managers and pod.pod_level and self._scope(pod) == Scope.POD
        count = pod_exclusive_count(pod, rules) if whole else 0
        own = CpuSet.union(each.cpus for each in cgroups.values()) & online
        alone = self._stands_alone(pod.uid, own)
        free = online - (self._taken - self._node.reserved if alone else self._taken)
        plausible = count and own and own != self._pool and (len(own) == count or alone)
        return own if plausible and own.issubset(free) else CpuSet()

    def _shares(self, pod: Pod, cgroups: Mapping[str, Cgroup], own: CpuSet) -> dict[str, CpuSet]:
        """Divide the CPUs of a pod that is managed as a whole: each container has those that it runs on."""
        there = {each.name: cgroups[each.name].cpus & own for each in pod.containers if each.name in cgroups}
        if len(own) == pod_exclusive_count(pod, self._node.rules):
            kept = {
                each.name: there[each.name]
                for each in pod.containers
                if each.name in there and exclusive_count(pod, each, self._node.rules)
            }
            shares = partition(pod, own, self._node.cpu_provider(None).chooser.choose, kept)
            return shares if isinstance(shares, dict) else there
        text = f"{RESIZE}: {LOST} while not all of it ran; it keeps CPUs {own}"
        self._unlike[pod.uid] = {pod.containers[0].name: text}
        return there

    def _memory_together(self, pod: Pod, cgroups: Mapping[str, Cgroup]) -> tuple[Block, ...]:
        """Read the memory of a pod that is managed as a whole: none where its containers are not bound."""
        nodes, every = NodeSet.union(each.mems for each in cgroups.values()), self._node.machine.node_set
        if not self._node.rules.memory.static or not nodes or (len(every) > 1 and nodes == every):
            return ()
        draft = Draft(self._memory.nodes, exact=self._node.rules.compatibility is Compatibility.FIXED)
        found = [draft.enter(each) for each in pool_blocks(pod, self._granted(nodes))]
        kept = tuple(each for each in found if each is not None)
        if len(kept) < len(found):
            return ()
        self._memory = draft
        return kept

    def _scope(self, pod: Pod) -> str:
        """Return the scope that a pod was placed under, as far as is known."""
        noted, rules = self._words.get(pod.uid, AnnotatedGrant()), self._node.rules
        settings = pod_settings(pod, rules.cpu.options, rules.topology.policy)
        return noted.scope if noted.scope in set(Scope) else settings.scope or rules.topology.scope

    def _stands_alone(self, uid: str, cpus: CpuSet) -> bool:
        """Say whether no CPU of a set is in the pool, or in a set of another pod's container."""
        elsewhere = (
            each.cpus for each in self._observed.cgroups if each.level is Level.CONTAINER and each.pod_uid != uid
        )
        return bool(self._pool) and cpus.isdisjoint(self._pool) and all(cpus.isdisjoint(each) for each in elsewhere)

    def _apart(self, pod: Pod, container: Container, cpus: CpuSet, count: int) -> tuple[CpuSet, CpuSet | None]:
        """Split a set into a container's own CPUs and the shared part of a mixed set; None for any other set."""
        if not mixed.takes_part(pod, container, self._node.rules):
            return cpus, None
        reserved, pooled = cpus & self._node.reserved, cpus & self._pool
        ways = (
            (pooled, pooled if pooled.issubset(self._node.reserved) else CpuSet()),
            (reserved, reserved), (reserved | pooled, CpuSet()),
        )  # fmt: skip
        exact = ((part, kept) for part, kept in ways if part and len(cpus - part) == count)
        # of another size: its own are those outside the pool; some may be reserved since
        part, kept = next(exact, ways[0] if pooled else ways[1])
        return (cpus - part, kept) if part else (cpus, None)

    def _blocks(self, pod: Pod, cgroups: Mapping[str, Cgroup]) -> dict[str, tuple[Block, ...]]:
        """Read the memory blocks: the nodes that the containers are bound to now, the sizes of their requests."""
        found: dict[str, tuple[Block, ...]] = {}
        for container in pod.containers:
            cgroup = cgroups.get(container.name)
            if not memory_takes_part(pod, container, self._node.rules):
                continue
            everywhere = self._node.machine.node_set
            if cgroup is None or (len(everywhere) > 1 and cgroup.mems in (NodeSet(), everywhere)):
                continue  # not bound; a machine with one node cannot show it, and needs no block
            found[container.name] = tuple(
                self._fitting(
                    pod.uid, container.name, Block(name, units(milli), self._granted(cgroup.mems) or everywhere)
                )
                for name, milli in sorted(container.requests.items())
                if name == "memory" or name.startswith("hugepages-")
            )
        return found

    def _fitting(self, uid: str, name: str, block: Block) -> Block:
        """Cut a block to the room on its nodes: the container's request may have grown since it was bound."""
        room = {book.id: max(0, book.free(block.resource)) for book in self._memory.nodes}
        most = sum(room.get(number, 0) for number in block.nodes)
        if most < block.size and block.nodes.issubset(NodeSet.from_ids(room)):
            what = f"NUMA nodes {block.nodes} have no {block.size - most} bytes of {block.resource} more"
            said = self._unlike.setdefault(uid, {})
            said[name] = f"{said[name]}; {what}" if name in said else f"{RESIZE}: {what}; it keeps what it has"
            block = replace(block, size=most)
        return self._memory.enter(block) or block

    def _granted(self, mems: NodeSet) -> NodeSet:
        """Take the ordinary node that `tiers.with_ordinary` adds to movable memory out of the nodes of a grant."""
        far = NodeSet.from_ids(each.id for each in self._node.machine.nodes if each.movable) & mems
        return far if far and self._node.rules.memory.tier is MemoryTier.FAR else mems

    def _kept_on(self, pod: Pod, found: Mapping[str, CpuSet], whole: Cgroup | None) -> NodeSet | None:
        """Find the nodes that a pod is confined to now, if it asks for confinement; else None."""
        if whole is None or not whole.cpus or not self._node.confiner.milli(pod):
            return None
        nodes = self._node.machine.nodes_of(whole.cpus - CpuSet.union(found.values()))
        return nodes if nodes and nodes != self._node.machine.node_set else None

    def _bound(self, pod: Pod, cgroups: Mapping[str, Cgroup], nodes: NodeSet) -> bool:
        """Say whether a confined pod that asks for bound memory has it bound to its nodes."""
        here = [cgroups[each.name] for each in pod.containers if each.name in cgroups]
        return bool(self._node.confiner.limit(pod)) and bool(here) and all(each.mems == nodes for each in here)
