"""The invariants of a ledger (deploy/docs/dev/architecture.md), checked after every decision and every load.

Called by the engine after each change and by the checkpoint's reader; a violation is a bug of ours or a damaged file,
never a pod's fault. Cost is linear in what the ledger holds: bit operations on sets of CPUs, so that it can run after
every decision. The rules about effects (saved before written, freed after the cgroup) are the engine's own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Protocol

from agent.core.confine import accounted
from agent.core.cpus.pools import granted, isolated_apart
from agent.core.devices.books import shared_groups
from agent.core.machines.kubelet_view import managed
from agent.errors import InvariantError
from agent.model.devices import DeviceInventory
from agent.model.idset import CpuSet, NodeSet
from agent.model.ledger import Block, Ledger
from agent.model.machine import Machine
from agent.model.pod import Container, ContainerKind
from agent.model.rules import Compatibility, Rules


class Managed(Protocol):
    """What of `agent.core.admission.node.Node` the rules depend on."""

    @property
    def machine(self) -> Machine:
        """The hardware."""

    @property
    def rules(self) -> Rules:
        """The settings."""

    @property
    def reserved(self) -> CpuSet:
        """CPUs that the system keeps."""

    @property
    def inventory(self) -> DeviceInventory:
        """The devices."""


def check(ledger: Ledger, node: Managed, *, earlier: Collection[str] = ()) -> None:
    """Raise for the first rule that is broken.

    Args:
        ledger: what to check.
        node: the machine and settings that it is for.
        earlier: uids of pods admitted under other settings. A change of settings moves no running pod, so these may
            hold CPUs that are reserved now, or share an IOMMU group, as earlier versions let them.

    Raises:
        InvariantError: one sentence with the pod, container, CPU or node that breaks the rule.
    """
    for sentence in broken_rules(ledger, node, earlier=earlier):
        raise InvariantError(sentence)


def broken_rules(ledger: Ledger, node: Managed, *, earlier: Collection[str] = ()) -> Iterator[str]:
    """All broken rules, one sentence each, in a fixed order."""
    if ledger.machine != node.machine.digest:
        yield f"the ledger is of machine {ledger.machine}, this is {node.machine.digest}"
        return
    yield from _owners(ledger)
    yield from _cpus(ledger, node, earlier)
    yield from _within_pods(ledger)
    yield from _mixed(ledger, node.machine)
    yield from _room(ledger, node)
    yield from _blocks(ledger, node.machine)
    yield from _accounts(ledger, node)
    yield from _devices(ledger)
    for group, uids in shared_groups(ledger, node.inventory.groups):
        if not set(uids).issubset(earlier):
            yield f"pods {' and '.join(uids)} hold functions of one IOMMU group, {group}"


def _owners(ledger: Ledger) -> Iterator[str]:
    """Whatever is held is held by a container of a pod that is known."""
    held: list[tuple[str, Mapping[str, Collection[str]]]] = [
        ("CPUs", {uid: list(each) for uid, each in ledger.cpus.assigned.items()}),
        ("a pool of CPUs", dict.fromkeys(ledger.cpus.pools, ())),
        ("a confinement", dict.fromkeys(ledger.cpus.confined, ())),
        ("shared CPUs beside its own", {uid: list(each) for uid, each in ledger.cpus.mixed.items()}),
        ("memory", {uid: list(each) for uid, each in ledger.memory.blocks.items()}),
        ("a pool of memory", dict.fromkeys(ledger.memory.pools, ())),
        ("devices", {uid: list(each) for uid, each in ledger.devices.held.items()}),
    ]
    for what, owners in held:
        for uid, containers in sorted(owners.items()):
            record = ledger.pods.get(uid)
            if record is None:
                yield f"pod {uid} holds {what} and is not in the ledger"
                continue
            names = {container.name for container in record.pod.containers}
            for name in sorted(set(containers) - names):
                yield f"pod {uid} holds {what} for a container {name} that it does not have"


def _cpus(ledger: Ledger, node: Managed, earlier: Collection[str]) -> Iterator[str]:
    """Exclusive sets are disjoint between pods and from the pool, exist, are not reserved, and nothing is lost."""
    books, online = ledger.cpus, node.machine.online
    taken = CpuSet()
    for uid in sorted({*books.assigned, *books.pools}):
        own = CpuSet.union([*books.assigned.get(uid, {}).values(), books.pools.get(uid, CpuSet())])
        if own & taken:
            yield f"CPUs {own & taken} are exclusive to pod {uid} and to another pod"
        if own - online:
            yield f"pod {uid} holds CPUs {own - online}, which are not online"
        if own & node.reserved and uid not in earlier:
            yield f"pod {uid} holds the reserved CPUs {own & node.reserved}"
        taken |= own
    if books.shared & taken:
        yield f"CPUs {books.shared & taken} are exclusive and in the shared pool"
    if books.shared - online:
        yield f"the shared pool holds CPUs {books.shared - online}, which are not online"
    if node.rules.cpu.static:  # else nothing is granted: the pool is whatever the kernel schedules on
        yield from _pool(books.shared, taken, node)


def _pool(shared: CpuSet, taken: CpuSet, node: Managed) -> Iterator[str]:
    """The pool has all that no pod holds, as far as pods can run there, but for what is reserved strictly."""
    if shared & node.machine.barred:
        yield f"the shared pool holds CPUs {shared & node.machine.barred}, which no pod can run on"
    strict = node.rules.cpu.options.strict_reservation
    known = managed(node.machine, node.rules.compatibility).usable
    missing = known - taken - shared - (node.reserved if strict else CpuSet())
    missing -= isolated_apart(node.machine, node.rules, node.reserved)  # they leave the pool, too (safety rule S5)
    if missing:
        yield f"CPUs {missing} are neither exclusive nor in the shared pool"
    if strict and shared & node.reserved:
        yield f"the shared pool holds the strictly reserved CPUs {shared & node.reserved}"


def _within_pods(ledger: Ledger) -> Iterator[str]:
    """Containers of a pod that can run together hold different CPUs; those of a pod's own pool lie within it."""
    for uid, containers in sorted(ledger.cpus.assigned.items()):
        record = ledger.pods.get(uid)
        if record is None:
            continue
        if uid in ledger.cpus.pools:
            outside = CpuSet.union(containers.values()) - ledger.cpus.pools[uid]
            if outside:
                yield f"containers of pod {uid} hold CPUs {outside} outside the pod's own pool"
            continue
        beside = CpuSet()
        for container in record.pod.containers:
            own = containers.get(container.name, CpuSet())
            if own & beside:
                yield f"container {container.name} of pod {uid} holds CPUs {own & beside} of one that runs beside it"
            if _lasts(container):
                beside |= own


def _mixed(ledger: Ledger, machine: Machine) -> Iterator[str]:
    """Say where the shared part of a mixed set is offline, or granted to a container."""
    own = granted(ledger.cpus) if ledger.cpus.mixed else CpuSet()
    for uid, parts in sorted(ledger.cpus.mixed.items()):
        for name, part in sorted(parts.items()):
            if part & own:
                yield f"container {name} of pod {uid} shares CPUs {part & own}, which are exclusive"
            if part - machine.online:
                yield f"container {name} of pod {uid} shares CPUs {part - machine.online}, which are not online"


def _lasts(container: Container) -> bool:
    """Whether it runs beside those after it; a regular init container ends, and what it held may be used again."""
    return container.kind is not ContainerKind.INIT


def _room(ledger: Ledger, node: Managed) -> Iterator[str]:
    """Confined pods find the CPUs that they count on."""
    if not ledger.cpus.confined or not node.rules.cpu.static:
        return
    pool = ledger.cpus.shared - node.reserved
    for number, milli in sorted(accounted(ledger.cpus).items()):
        if number not in node.machine.by_node:
            yield f"a pod is confined to NUMA node {number}, which does not exist"
        elif milli > 1000 * len(pool & node.machine.by_node[number].cpus):
            left = pool & node.machine.by_node[number].cpus
            yield f"pods confined to NUMA node {number} count on {milli}m CPUs, and CPUs {left} are left to share"


def _blocks(ledger: Ledger, machine: Machine) -> Iterator[str]:
    """Memory is granted from nodes that exist, in amounts that are none below zero."""
    for uid, container, block in _all_blocks(ledger):
        where = f"container {container} of pod {uid}" if container else f"pod {uid}"
        if not block.nodes or block.nodes - machine.node_set:
            yield f"{where} holds {block.resource} of NUMA nodes {block.nodes}, not all of which exist"
        if block.size < 0:
            yield f"{where} holds {block.size} bytes of {block.resource}"


def _all_blocks(ledger: Ledger) -> Iterator[tuple[str, str, Block]]:
    for uid, containers in sorted(ledger.memory.blocks.items()):
        for name, blocks in sorted(containers.items()):
            for block in blocks:
                yield uid, name, block
    for uid, blocks in sorted(ledger.memory.pools.items()):
        for block in blocks:
            yield uid, "", block


def _accounts(ledger: Ledger, node: Managed) -> Iterator[str]:
    """Per node and resource: granted + free + the system's = total, and what is granted is what the blocks say.

    The kubelet fills and empties the nodes of a group from the lowest up, so only sums over nodes that blocks tie
    together mean anything (kubelet rules 5.7, 5.10).
    """
    books = {book.id: book for book in ledger.memory.nodes}
    if not books:
        if ledger.memory.blocks or ledger.memory.pools:
            yield "memory is granted, and there is no account of any NUMA node"
        return
    for book in ledger.memory.nodes:
        for resource in sorted({*book.total, *book.system, *book.reserved}):
            given = book.reserved.get(resource, 0)
            if not 0 <= given <= max(0, book.allocatable(resource)):
                yield (
                    f"NUMA node {book.id} has {book.total.get(resource, 0)} bytes of {resource}, keeps "
                    f"{book.system.get(resource, 0)} for the system and granted {given}"
                )
    yield from _sums(ledger, _start_of_ties(ledger, node))


def _start_of_ties(ledger: Ledger, node: Managed) -> dict[int, NodeSet]:
    """Each node alone; under KUBELET all of them, since a group may give back a single user's bytes (defect D5)."""
    nodes = NodeSet.from_ids(book.id for book in ledger.memory.nodes)
    exact = node.rules.compatibility is not Compatibility.KUBELET
    return {number: NodeSet.of(number) if exact else nodes for number in nodes}


def _sums(ledger: Ledger, tied: dict[int, NodeSet]) -> Iterator[str]:
    sizes: dict[tuple[int, str], int] = {}
    for uid, container, block in _all_blocks(ledger):
        if container and uid in ledger.memory.pools:
            continue  # the pod's own pool is accounted once, as a whole (kubelet rule 5.12)
        known = [node for node in block.nodes if node in tied]
        if not known:
            continue
        joined = NodeSet.union(tied[node] for node in known)
        for node in joined:
            tied[node] = joined
        sizes[known[0], block.resource] = sizes.get((known[0], block.resource), 0) + block.size
    totals: dict[tuple[NodeSet, str], list[int]] = {}
    for book in ledger.memory.nodes:
        for resource, size in book.reserved.items():
            totals.setdefault((tied[book.id], resource), [0, 0])[0] += size
    for (node, resource), size in sizes.items():
        totals.setdefault((tied[node], resource), [0, 0])[1] += size
    for (group, resource), (given, held) in sorted(totals.items()):
        if given != held:
            yield f"NUMA nodes {group} granted {given} bytes of {resource}, and containers hold {held}"


def _devices(ledger: Ledger) -> Iterator[str]:
    """A device is held by one pod, and within it by one of the containers that can run together."""
    owner: dict[tuple[str, str], str] = {}
    for uid, containers in sorted(ledger.devices.held.items()):
        record = ledger.pods.get(uid)
        own = {(name, each) for held in containers.values() for name, ids in held.items() for each in ids}
        for resource, device in sorted(own):
            if (resource, device) in owner:
                yield f"device {device} of {resource} is held by pods {owner[resource, device]} and {uid}"
            owner[resource, device] = uid
        beside: set[tuple[str, str]] = set()
        for container in record.pod.containers if record else ():
            mine = {(name, each) for name, ids in containers.get(container.name, {}).items() for each in ids}
            for resource, device in sorted(mine & beside):
                yield f"container {container.name} of pod {uid} holds {device} of {resource}, as one beside it does"
            if _lasts(container):
                beside |= mine
