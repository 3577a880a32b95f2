"""In-place resize of a running pod: its exclusive CPUs and bound memory follow its requests, nothing moves. Pure.

Called by the engine when the requests of a pod in the ledger changed
(https://kubernetes.io/docs/tasks/configure-pod-container/resize-container-resources/). The rules, per container:

    fewer CPUs       it gives back what it got last, the latest growth first. Of the growth that goes in part, and of
                     what it was admitted with, it keeps a part: siblings of cores that stay, then whole nodes and
                     sockets, then whole cores, lowest numbers first (rule 4.9). So less after more is what it had
    more CPUs        it keeps all that it has, and gets first what init containers before it hold, which have ended
                     (rule 4.13); then the nearest: siblings of its own cores, its caches, its nodes; beyond its
                     nodes only under policies that do not promise alignment
    no whole number  it gives its CPUs back and shares; one that shared and asks for whole ones now gets some
    memory           the same nodes hold more or less of it, if they have room; it never moves to others
    confined         (numalign.io/align) the same nodes, with more or less of their CPUs and memory accounted
    as a whole       (PodLevelResourceManagers) not followed: it keeps what it was admitted with, and says so

No growth takes a namespace past its ceiling (`agent.core.accounting.ceiling`).

What cannot be had leaves the container with what it has, and says so: a resize is never ignored in silence, and never
costs a container what it was promised (KEP 1287). Whoever was refused so is tried again when something is released.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from agent.core.accounting.ceiling import over
from agent.core.admission.node import Node
from agent.core.admission.pressure import still_unbound
from agent.core.memory.books import Draft
from agent.core.request.amounts import (
    AS_WHOLE,
    exclusive_count,
    is_memory,
    memory_requests,
    pod_exclusive_count,
    pod_memory_requests,
)
from agent.core.request.exclusive import is_fixed
from agent.model.hint import Hint
from agent.model.idset import CpuSet, NodeSet
from agent.model.ledger import Block, Ledger
from agent.model.outcome import Reason, Refusal
from agent.model.pod import Container, ContainerKind, Pod
from agent.model.quantity import units
from agent.model.rules import Compatibility, CpuOptions, Policy

STRICT = frozenset({Policy.RESTRICTED.value, Policy.SINGLE_NUMA_NODE.value})
"""Policies under which a pod never leaves its nodes."""
PREFIX = "resize not followed"
GROWN = "resize"
"""Where the ledger's `others` has what each growth brought, oldest first. An admitted resize changes no set of
the kubelet's own (kubelet rule 2.6), so there is no rule of its to follow."""


@dataclass(frozen=True, slots=True)
class Resized:
    """What became of a resize.

    Attributes:
        ledger: with what the containers hold now, and the pod as it asks now.
        refused: container -> why its resize could not be followed; it keeps what it had.
    """

    ledger: Ledger
    refused: Mapping[str, str]


def changed(old: Pod, new: Pod) -> bool:
    """Whether a resize lies between two pictures of a pod."""
    before = {each.name: (each.requests, each.limits) for each in old.containers}
    after = {each.name: (each.requests, each.limits) for each in new.containers}
    return before != after or (old.requests, old.limits) != (new.requests, new.limits)


def pending(ledger: Ledger) -> tuple[str, ...]:
    """Pods that hold something else than they ask for since a resize could not be followed."""
    return tuple(
        uid
        for uid, record in sorted(ledger.pods.items())
        if any(why.startswith(PREFIX) for why in record.why.values())
    )


def resized(node: Node, ledger: Ledger, pod: Pod, options: CpuOptions | None = None) -> Resized:
    """Follow a resize.

    Args:
        node: the managers.
        ledger: where the pod is.
        pod: as it asks now; containers that the ledger's record lacks are not granted anything.
        options: the pod's own CPU options.

    Raises:
        KeyError: the pod is not in the ledger.
    """
    return _Resize(node, ledger, pod, options).run()


class _Resize:
    def __init__(self, node: Node, ledger: Ledger, pod: Pod, options: CpuOptions | None) -> None:
        self._node = node
        self._ledger = ledger
        self._pod = pod
        self._options = options
        self._record = ledger.pods[pod.uid]
        self._cpus = node.cpu_provider(options)
        self._refused: dict[str, str] = {}
        self._shares = "" in self._record.why  # refused once and left on the shared pool: a resize admits nobody

    def run(self) -> Resized:
        names = {each.name for each in self._record.pod.containers}
        if self._as_a_whole():
            if self._differs_as_a_whole():
                why = "the pod is managed as a whole and keeps the CPUs and memory that it was admitted with"
                self._refused[self._pod.containers[0].name] = f"{PREFIX}: {why}"
        else:
            there = [each for each in self._pod.containers if each.name in names]
            for container in sorted(there, key=self._gets_more):  # what one gives up another may get
                self._resize_cpus(container)
            for container in sorted(there, key=self._gets_memory):
                self._resize_memory(container)
        self._resize_confinement()
        record = replace(self._record, pod=self._pod, affinity=self._affinity())
        judged = still_unbound(self._record, self._node.judged(self._ledger, record, self._options))
        if self._shares:
            judged = replace(judged, why={**judged.why, "": self._record.why[""]}, aligned=self._record.aligned)
        aligned = {name: good and name not in self._refused for name, good in judged.aligned.items()}
        told = replace(judged, why={**judged.why, **self._refused}, aligned=aligned)
        pods = {**self._ledger.pods, self._pod.uid: told}
        return Resized(replace(self._ledger, pods=pods), self._refused)

    def _gets_more(self, container: Container) -> bool:
        held = self._ledger.cpus.assigned.get(self._pod.uid, {}).get(container.name, CpuSet())
        return self._count(container, held) > len(held)

    def _gets_memory(self, container: Container) -> bool:
        wanted, blocks = self._wanted_memory(container), self._blocks(container)
        return any(wanted.get(block.resource, block.size) > block.size for block in blocks)

    def _as_a_whole(self) -> bool:
        uid = self._pod.uid
        return uid in self._ledger.cpus.pools or uid in self._ledger.memory.pools

    def _differs_as_a_whole(self) -> bool:
        """Whether it holds something else than it asks for: in its own pool, or in the shares of its containers."""
        uid, cpus, memory = self._pod.uid, self._ledger.cpus, self._ledger.memory
        if uid in cpus.pools and len(cpus.pools[uid]) != pod_exclusive_count(self._pod, AS_WHOLE):
            return True
        for container in self._pod.containers:
            count = exclusive_count(self._pod, container, AS_WHOLE)
            if uid in cpus.pools and count and count != len(cpus.assigned.get(uid, {}).get(container.name, ())):
                return True
        wanted = pod_memory_requests(self._pod, AS_WHOLE)
        return any(block.size != wanted.get(block.resource, 0) for block in memory.pools.get(uid, ()))

    # ---- confinement

    def _resize_confinement(self) -> None:
        """It stays on its nodes, where more or less is accounted for it."""
        found = self._node.confiner.resized(self._ledger, self._pod)
        if isinstance(found, Ledger):
            self._ledger = found
            return
        name = self._pod.containers[0].name
        text = f"{found.message}; it stays there, and what it was admitted with stays accounted"
        said = self._refused.get(name)
        self._refused[name] = f"{said}; {text}" if said else f"{PREFIX}: {text}"

    # ---- CPUs

    def _resize_cpus(self, container: Container) -> None:
        uid, name, rules = self._pod.uid, container.name, self._node.rules
        if self._pod.pod_level and not rules.pod_level_managers:
            return
        held = self._ledger.cpus.assigned.get(uid, {}).get(name, CpuSet())
        count = self._count(container, held)
        if len(held) == count or (not held and (self._shares or not rules.cpu.static)):
            return
        if not rules.cpu.static:
            why = f"cpuManagerPolicy is none now; it keeps CPUs {held}"
            self._refused[name] = f"{PREFIX} from {len(held)} to {count} CPUs: {why}"
            return
        found = self._fewer(name, held, count) if count < len(held) else self._more(container, held, count)
        if not isinstance(found, Refusal):
            after = self._cpus.regranted(self._ledger, uid, name, found)
            passed = over(rules, self._pod.namespace, self._ledger, after)
            if passed is None:
                self._ledger = after
                self._remember(name, held, found)
                return
            found = passed
        kept = f"it keeps CPUs {held}" if held else "it stays on the shared pool"
        self._refused[name] = f"{PREFIX} from {len(held)} to {count} CPUs: {found.message}; {kept}"

    def _count(self, container: Container, held: CpuSet) -> int:
        """The CPUs that it asks for. One that has some keeps them, whatever annotations and settings say since."""
        count = exclusive_count(self._pod, container, self._node.rules)
        if count or not held or self._pod.pod_level or not is_fixed(container):
            return count
        return units(container.requests["cpu"])

    def _fewer(self, name: str, held: CpuSet, count: int) -> CpuSet | Refusal:
        """What it had before it grew; else a part: the same rule that would choose if nothing else were free."""
        if not count:
            return CpuSet()
        refusal = self._cpus.chooser.check_cores(count, held)
        if refusal is not None:
            return refusal
        kept = held
        for last in reversed(self._grown(name)):
            if len(kept - last) < count:
                return self._part(kept - last, kept & last, count)
            kept -= last
        return self._part(CpuSet(), kept, count)

    def _part(self, base: CpuSet, last: CpuSet, count: int) -> CpuSet | Refusal:
        """All of one set, and of another what fits best to it."""
        siblings = _lowest(last & self._beside(base), count - len(base))
        rest = count - len(base) - len(siblings)
        others = self._cpus.chooser.part(last - siblings, rest) if rest else CpuSet()
        return others if isinstance(others, Refusal) else base | siblings | others

    def _grown(self, name: str) -> tuple[CpuSet, ...]:
        """What each growth brought, oldest first."""
        texts = self._ledger.others.get(GROWN, {}).get(self._pod.uid, {}).get(name, ())
        return tuple(CpuSet.parse(text) for text in texts)

    def _remember(self, name: str, held: CpuSet, found: CpuSet) -> None:
        """Note what came, or went."""
        grown = [str(each & found) for each in self._grown(name) if each & found]
        if held and found - held:
            grown.append(str(found - held))
        pods = self._ledger.others.get(GROWN, {})
        mine = {each: texts for each, texts in pods.get(self._pod.uid, {}).items() if each != name}
        if grown:
            mine[name] = tuple(grown)
        pods = {uid: texts for uid, texts in pods.items() if uid != self._pod.uid}
        if mine:
            pods[self._pod.uid] = mine
        others = {each: held for each, held in self._ledger.others.items() if each != GROWN}
        self._ledger = replace(self._ledger, others={**others, GROWN: pods} if pods else others)

    def _more(self, container: Container, held: CpuSet, count: int) -> CpuSet | Refusal:
        """All of its own, what its pod's init containers left, and the nearest others."""
        free, own = self._cpus.free(self._ledger.cpus), self._left_by_inits(container)
        refusal = self._cpus.chooser.check_cores(count, held | own | free)
        if refusal is not None:
            return refusal
        name = container.name
        if len(held | own) >= count:
            found = self._nearest(name, held, count, own)
        else:
            *_, reach = (CpuSet(), *self._zones(self._home(name, held), held, own))  # none where its nodes are gone
            found = self._nearest(name, held | reach, count, free)
        return self._nearest(name, held, count, own | free) if own and isinstance(found, Refusal) else found

    def _left_by_inits(self, container: Container) -> CpuSet:
        """CPUs of init containers that end before this one starts, which none beside it holds (kubelet rule 4.13)."""
        held = self._ledger.cpus.assigned.get(self._pod.uid, {})
        left = CpuSet()
        for each in self._pod.containers:
            if each.name == container.name and each.kind is not ContainerKind.APP:
                break
            if each.kind is ContainerKind.INIT:
                left |= held.get(each.name, CpuSet())
        later = self._pod.containers[self._pod.containers.index(container) :]
        beside = (each for each in self._pod.containers if each.kind is not ContainerKind.INIT or each in later)
        left -= CpuSet.union(held.get(each.name, CpuSet()) for each in beside)
        if not (self._options or self._node.rules.cpu.options).full_pcpus_only:
            return left
        return CpuSet.union(core for core in self._node.seen.cores if core.issubset(left))

    def _nearest(self, name: str, held: CpuSet, count: int, free: CpuSet) -> CpuSet | Refusal:
        """All that is held already, and the nearest of what is free."""
        if len(held) >= count:
            return held
        last: Refusal | None = None
        for near in self._zones(self._home(name, held), held, free):
            siblings = _lowest(near & self._beside(held), count - len(held))
            rest = count - len(held) - len(siblings)
            others = self._cpus.chooser.choose(near - siblings, rest) if rest else CpuSet()
            if isinstance(others, Refusal):
                last = others
                continue
            pool = self._ledger.cpus.shared
            if pool and not pool - siblings - others and self._node.rules.keep_shared:
                return replace(_full(free, count - len(held)), message="the shared pool would become empty")
            return held | siblings | others
        return last or _full(free, count - len(held))

    def _beside(self, held: CpuSet) -> CpuSet:
        """The other threads of its cores."""
        return CpuSet.union(core for core in self._node.seen.cores if core & held) - held

    def _zones(self, home: NodeSet, held: CpuSet, free: CpuSet) -> Iterator[CpuSet]:
        """What to take from, nearest first, each with all that is nearer; not beyond its nodes if it is strict."""
        machine = self._node.seen
        inside = free & machine.cpus_of(home)
        if held:
            yield inside & (CpuSet.union(group for group in machine.l3 if group & held) | self._beside(held))
        else:
            for number in sorted(home, key=lambda each: (-len(free & machine.by_node[each].cpus), each)):
                yield free & machine.by_node[number].cpus
        if held or self._record.policy != Policy.SINGLE_NUMA_NODE:
            yield inside
        if self._record.policy in STRICT:
            return
        far = sorted(
            (node for node in machine.nodes if node.id not in home),
            key=lambda node: (self._distance(home, node.id), node.id),
        )
        reach = home
        for node in far:
            reach |= NodeSet.of(node.id)
            yield free & machine.cpus_of(reach)

    def _home(self, name: str, held: CpuSet) -> NodeSet:
        """The nodes that it is to stay on: its affinity's, or those where it has something."""
        machine = self._node.seen
        hint = self._record.affinity.get(name)
        if self._record.policy in STRICT and hint is not None and hint.nodes:
            return hint.nodes & machine.node_set
        own = self._ledger.cpus.assigned.get(self._pod.uid, {}).values()
        here = machine.nodes_of(held or CpuSet.union(own))
        return here or machine.node_set

    def _distance(self, home: NodeSet, other: int) -> int:
        machine = self._node.seen
        order = [node.id for node in machine.nodes]
        distances = [machine.by_node[each].distances for each in home]
        return min((each[order.index(other)] for each in distances if each), default=0)

    # ---- memory

    def _resize_memory(self, container: Container) -> None:
        uid, name, rules = self._pod.uid, container.name, self._node.rules
        blocks, wanted = self._blocks(container), self._wanted_memory(container)
        if not blocks or all(block.size == wanted.get(block.resource, block.size) for block in blocks):
            return
        draft = Draft(self._ledger.memory.nodes, exact=rules.compatibility is Compatibility.FIXED)
        kept: list[Block] = []
        for block in blocks:
            size = wanted.get(block.resource, block.size)
            draft.give(block)
            entered = draft.enter(replace(block, size=size, split=() if size != block.size else block.split))
            if entered is None:
                why = f"NUMA nodes {block.nodes} have no {size - block.size} bytes of {block.resource} more"
                said = self._refused.get(name)
                text = f"{PREFIX}: {why}; it keeps what it has"
                self._refused[name] = f"{said}; {why}" if said else text
                return
            kept.append(entered)
        books = self._ledger.memory
        mine = {**books.blocks[uid], name: tuple(kept)}
        books = replace(books, nodes=draft.nodes, blocks={**books.blocks, uid: mine})
        self._ledger = replace(self._ledger, memory=books)

    def _blocks(self, container: Container) -> tuple[Block, ...]:
        return self._ledger.memory.blocks.get(self._pod.uid, {}).get(container.name, ())

    def _wanted_memory(self, container: Container) -> Mapping[str, int]:
        """The bytes that it asks for. One that has some keeps them, whatever annotations and settings say since."""
        wanted = memory_requests(self._pod, container, self._node.rules)
        if wanted or self._pod.pod_level:
            return wanted
        return {name: units(milli) for name, milli in container.requests.items() if is_memory(name)}

    def _affinity(self) -> Mapping[str, Hint]:
        """Where a container that got its first CPUs now belongs; the others belong where they did."""
        affinity = dict(self._record.affinity)
        machine = self._node.seen
        for name, cpus in self._ledger.cpus.assigned.get(self._pod.uid, {}).items():
            hint = affinity.get(name)
            if hint is None or hint.nodes is None:
                nodes = machine.nodes_of(cpus)
                affinity[name] = Hint(nodes, preferred=len(nodes) == 1)
        return affinity


def _lowest(cpus: CpuSet, count: int) -> CpuSet:
    return CpuSet.from_ids(sorted(cpus)[:count])


def _full(free: CpuSet, more: int) -> Refusal:
    needed = "1 CPU more is" if more == 1 else f"{more} CPUs more are"
    return Refusal(Reason.UNEXPECTED, f"{needed} needed, and {'1 is' if len(free) == 1 else f'{len(free)} are'} free")
