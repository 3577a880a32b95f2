"""Carry a ledger over to another machine or other settings: grants stay as they are, as far as they still can.

Called by `agent.node.recover` (start) and `agent.engine.engine` (a CPU went offline, a setting changed). The rules,
pods in order of admission (created, uid), so that of two claims to one thing the older pod's counts:

    CPUs         stay with their container. One that is offline, or claimed by an older pod, is lost; a container
                 that lost all of them runs on the shared pool. A CPU that is reserved now stays with its holder.
    memory       stays where the nodes exist and have room for it; else the container is bound to nothing.
    devices      stay where they exist and no older pod has them.
    confinement  stays where its nodes exist and have the shared CPUs for it.
    mixed        the shared CPUs beside a container's own stay, whatever is reserved now; one that is offline is lost.

Losses are reported, and recorded in the pod's record. On a machine with other CPUs or NUMA nodes every pod is judged
again: its affinity, and the nodes of its claims' devices, were of the other machine. Nothing is placed here, since
that would move a running container; a pod without one is placed afterwards (`agent.node.placing_again`).
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from agent.core.admission.alignment import is_judgement
from agent.core.admission.node import Node
from agent.core.confine import accounted
from agent.core.devices.claims import unlocated
from agent.core.explain.words import on
from agent.core.memory.books import Draft
from agent.core.request.annotations import pod_settings
from agent.model.devices import DeviceInventory
from agent.model.idset import CpuSet
from agent.model.ledger import LOST_CPUS, Block, Confinement, Ledger, PodRecord
from agent.model.rules import Compatibility, Policy, Scope

_NODES = re.compile(r"NUMA nodes? [0-9,-]+")


@dataclass(frozen=True, slots=True)
class Loss:
    """What a container lost; `container` is "" for the pod as a whole."""

    uid: str
    container: str
    what: str


@dataclass(frozen=True, slots=True)
class Migrated:
    """The ledger for the new machine and settings, and the losses."""

    ledger: Ledger
    losses: tuple[Loss, ...] = ()

    def sentences(self) -> Iterator[str]:
        """Put each loss into a sentence for people."""
        for loss in self.losses:
            place = f"container {loss.container} of " if loss.container else ""
            yield f"{place}pod {self.ledger.pods[loss.uid].pod.key}: {loss.what}"


def migrate(old: Ledger, node: Node, *, reshaped: bool = False) -> Migrated:
    """Carry each pod's grants over to the machine and settings of now; drop what no longer exists.

    Args:
        old: grants of any machine and settings; may contradict itself, as one from a damaged tree does.
        node: the machine and settings now.
        reshaped: the machine may have other CPUs or NUMA nodes than the ledger's.
    """
    claims = _Claims(old, node, reshaped)
    for record in sorted(old.pods.values(), key=lambda each: (each.pod.created, each.pod.uid)):
        claims.pod(record)
    claims.confinements()
    claims.mixed_sets()
    ledger = claims.ledger()
    return Migrated(_judged_again(ledger, node) if reshaped else ledger, tuple(claims.losses))


def _judged_again(ledger: Ledger, node: Node) -> Ledger:
    """Replace in a ledger all that was said of the machine that it came from."""
    ledger = unlocated(ledger)
    pods = {}
    for uid, record in ledger.pods.items():
        pods[uid] = record
        with contextlib.suppress(Exception):  # of any kind: its record stays as it was
            pods[uid] = _judged(ledger, node, record) if record.affinity else record
    return replace(ledger, pods=pods)


def _judged(ledger: Ledger, node: Node, record: PodRecord) -> PodRecord:
    settings = pod_settings(record.pod, node.rules.cpu.options, node.rules.topology.policy)
    settings = replace(settings, policy=Policy(record.policy), scope=Scope(record.scope))
    kept = {name: text for name, text in record.why.items() if not is_judgement(text)}
    judged = node.judged_elsewhere(ledger, record, settings)
    aligned = {name: good and name not in kept and "" not in kept for name, good in judged.aligned.items()}
    return replace(judged, aligned=aligned, why={**judged.why, **kept})


@dataclass
class _Claims:
    """The new books, filled pod by pod."""

    old: Ledger
    node: Node
    reshaped: bool
    losses: list[Loss] = field(default_factory=list)

    def __post_init__(self) -> None:
        start = self.node.start()
        self.start = start
        self.taken = CpuSet()
        self.assigned: dict[str, dict[str, CpuSet]] = {}
        self.pools: dict[str, CpuSet] = {}
        self.confined: dict[str, Confinement] = {}
        self.mixed: dict[str, dict[str, CpuSet]] = {}
        self.blocks: dict[str, dict[str, tuple[Block, ...]]] = {}
        self.block_pools: dict[str, tuple[Block, ...]] = {}
        self.books = start.memory.nodes
        self.exact = self.node.rules.compatibility is Compatibility.FIXED
        self.devices: dict[str, dict[str, dict[str, tuple[str, ...]]]] = {}
        self.held = set[tuple[str, str]]()
        self.known = _device_ids(self.node.inventory)
        self.pods: dict[str, PodRecord] = {}

    def pod(self, record: PodRecord) -> None:
        uid, before = record.pod.uid, len(self.losses)
        names = [container.name for container in record.pod.containers]
        self._cpus(uid, names)
        if self.books:
            self._memory(uid, names)
        self._devices(uid, names)
        why = {loss.container: loss.what for loss in self.losses[before:]}
        if self.reshaped:
            record = replace(
                record, why={name: _NODES.sub("its NUMA nodes", text) for name, text in record.why.items()}
            )
        aligned = {name: kept and name not in why for name, kept in record.aligned.items()}
        self.pods[uid] = replace(record, aligned=aligned, why={**record.why, **why}) if why else record

    def _lost(self, uid: str, container: str, what: str) -> None:
        self.losses.append(Loss(uid, container, what))

    def _cpus(self, uid: str, names: list[str]) -> None:
        pool = self.old.cpus.pools.get(uid)
        within = self.node.machine.online - self.taken
        if pool is not None:
            kept = pool & within
            if kept != pool:
                self._lost(uid, "", f"it lost CPUs {pool - kept}, which are offline or another pod's")
            if kept:
                self.pools[uid] = kept
            within = kept
        mine = CpuSet()
        for name in names:
            asked = self.old.cpus.assigned.get(uid, {}).get(name)
            if asked is None:
                continue
            kept = asked & within
            if kept != asked:
                rest = f"it keeps {kept}" if kept else "it runs on the shared pool"
                self._lost(uid, name, f"{LOST_CPUS} {asked - kept}, which are offline or another pod's; {rest}")
            if kept:
                self.assigned.setdefault(uid, {})[name] = kept
                mine |= kept
        self.taken |= mine | self.pools.get(uid, CpuSet())

    def _memory(self, uid: str, names: list[str]) -> None:
        whole = self._place(uid, "", self.old.memory.pools.get(uid, ()))
        if whole:
            self.block_pools[uid] = whole
        for name in names:
            blocks = self.old.memory.blocks.get(uid, {}).get(name, ())
            if not whole:  # the pod's own pool is accounted once, as a whole (kubelet rule 5.12)
                blocks = self._place(uid, name, blocks)
            if blocks:
                self.blocks.setdefault(uid, {})[name] = blocks

    def _place(self, uid: str, name: str, blocks: Iterable[Block]) -> tuple[Block, ...]:
        """Book the blocks of one container, all or none (kubelet rule 5.10); empty for none."""
        draft = Draft(self.books, exact=self.exact)
        entered = []
        exist = self.node.machine.node_set
        for block in blocks:
            if self.reshaped and len(exist) == 1 and block.nodes != exist:  # there is no other place
                block = replace(block, nodes=exist, split=())  # noqa: PLW2901 - the same, where it lies now
            kept = draft.enter(block)
            if kept is None:
                where = on(block.nodes) if block.nodes.issubset(exist) else "its NUMA nodes"
                self._lost(uid, name, f"it lost its {block.resource} on {where}: gone, or too small")
                return ()
            entered.append(kept)
        self.books = draft.nodes
        return tuple(entered)

    def _devices(self, uid: str, names: list[str]) -> None:
        mine: set[tuple[str, str]] = set()
        for name in names:
            for resource, ids in sorted(self.old.devices.held.get(uid, {}).get(name, {}).items()):
                kept = tuple(each for each in ids if self._has(resource, each))
                if kept != ids:
                    gone = ", ".join(sorted(set(ids) - set(kept)))
                    self._lost(uid, name, f"it lost {resource} {gone}: gone, or another pod's")
                if kept:
                    self.devices.setdefault(uid, {}).setdefault(name, {})[resource] = kept
                    mine |= {(resource, each) for each in kept}
        self.held |= mine

    def _has(self, resource: str, number: str) -> bool:
        """Say whether a device stays: it exists and is free, or its resource is unknown until podresources comes."""
        known = self.known.get(resource)
        return (resource, number) not in self.held and (known is None or number in known)

    def confinements(self) -> None:
        """Carry the confinements over: last, when it is known which CPUs are shared."""
        free = self.start.cpus.shared - self.taken - self.node.reserved
        room = {each.id: 1000 * len(each.cpus & free) for each in self.node.machine.nodes}
        for uid in self.pods:
            confinement = self.old.cpus.confined.get(uid)
            if confinement is None:
                continue
            books = replace(self.start.cpus, confined={**self.confined, uid: confinement})
            exist = confinement.nodes.issubset(self.node.machine.node_set)
            if exist and all(milli <= room.get(number, 0) for number, milli in accounted(books).items()):
                self.confined[uid] = confinement
                continue
            where = on(confinement.nodes) if exist else "its NUMA nodes"
            what = f"it is not kept on {where} any more: gone, or without the CPUs for it"
            self._lost(uid, "", what)
            record = self.pods[uid]
            self.pods[uid] = replace(
                record, aligned=dict.fromkeys(record.aligned, False), why={**record.why, "": what}
            )

    def mixed_sets(self) -> None:
        """Carry the shared parts of mixed sets over: last as well, since no container may hold them exclusively."""
        within = self.node.machine.online - self.taken
        for uid, record in self.pods.items():
            for name in (
                each.name for each in record.pod.containers if each.name in self.old.cpus.mixed.get(uid, {})
            ):
                part = self.old.cpus.mixed[uid][name]
                if part - within:
                    self._lost(
                        uid, name, f"it lost the shared CPUs {part - within} beside its own: offline, or a pod's"
                    )
                if part & within or not part:
                    self.mixed.setdefault(uid, {})[name] = part & within

    def ledger(self) -> Ledger:
        start = self.start
        cpus = replace(
            start.cpus,
            shared=start.cpus.shared - self.taken,
            assigned=self.assigned, pools=self.pools, confined=self.confined, mixed=self.mixed,
        )  # fmt: skip
        memory = replace(start.memory, nodes=self.books, blocks=self.blocks, pools=self.block_pools)
        others = {
            name: {uid: held for uid, held in pods.items() if uid in self.pods}
            for name, pods in self.old.others.items()
        }
        return replace(
            start, cpus=cpus, memory=memory, devices=replace(start.devices, held=self.devices), pods=self.pods,
            others=others,
        )  # fmt: skip


def _device_ids(inventory: DeviceInventory) -> Mapping[str, frozenset[str]]:
    return {resource: frozenset(device.id for device in devices) for resource, devices in inventory.resources.items()}
