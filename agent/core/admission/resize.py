"""In-place resize of a running pod: its exclusive CPUs and bound memory follow its requests, nothing moves. Pure.

Called by the engine when the requests of a pod in the ledger changed
(https://kubernetes.io/docs/tasks/configure-pod-container/resize-container-resources/). The rules, per container:

    fewer CPUs       it gives back what it got last, the latest growth first. Of the growth that goes in part, and of
                     what it was admitted with, it keeps a part: siblings of cores that stay, then whole nodes and
                     sockets, then whole cores, lowest numbers first (rule 4.9). So less after more is what it had.
                     Where whole cores are asked for (full-pcpus-only), it keeps the next number of these
    init containers  those that have ended hold CPUs of the containers after them, and CPUs beyond these only where
                     they request more: so the pod holds no more than a scheduler counts
    more CPUs        it keeps all that it has, and gets first what init containers before it hold, which have ended
                     (rule 4.13); then the nearest: siblings of its own cores, its caches, its nodes; beyond its
                     nodes only under policies that do not promise alignment
    no whole number  it gives its CPUs back and shares; one that shared and asks for whole ones now gets some, where
                     its affinity, memory and devices are
    memory           the same nodes hold more or less of it, if they have room; it never moves to others
    confined         (numalign.io/align) the same nodes, with more or less of their CPUs and memory accounted
    as a whole       (PodLevelResourceManagers) less is given back (`agent.core.admission.resize_whole`), and more is
                     not followed

Nothing keeps a pod from giving back what it does not request any more: no annotation, setting or option, nor that it
is left alone. Each of them may keep it from getting more (`no_more`), and that is said. No growth takes a namespace
past its ceiling (`agent.core.accounting.ceiling`).

What cannot be had leaves the container with what it has, and says so: a resize is never ignored in silence, and never
costs a container what it was promised (KEP 1287). A refused resize is tried again when something is released.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from agent.core.accounting.ceiling import over
from agent.core.admission.node import Node
from agent.core.admission.pressure import still_unbound
from agent.core.admission.resize_whole import as_a_whole, differs, given_back
from agent.core.memory.books import Draft
from agent.core.merge.inputs import question_of
from agent.core.request import exclusive
from agent.core.request.amounts import AS_WHOLE, exclusive_count, is_memory, memory_requests
from agent.core.request.isolated import IsolatedCpus, is_mixed, of_kind
from agent.model.hint import Hint
from agent.model.idset import CpuSet, NodeSet
from agent.model.ledger import Block, Ledger, PodRecord
from agent.model.outcome import Reason, Refusal
from agent.model.pod import Container, ContainerKind, Pod
from agent.model.quantity import units
from agent.model.rules import Compatibility, CpuOptions, Policy

STRICT = frozenset({Policy.RESTRICTED.value, Policy.SINGLE_NUMA_NODE.value})
"""Policies under which a pod never leaves its nodes."""
PREFIX = "resize not followed"
AS_IT_WAS = "the pod is managed as a whole: it gives back what it can, and gets no more than it was admitted with"
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
    return tuple(uid for uid, record in sorted(ledger.pods.items()) if unfollowed(record))


def unfollowed(record: PodRecord) -> bool:
    """Say whether a resize of a pod could not be followed, or not all of it."""
    return any(why.startswith(PREFIX) for why in record.why.values())


def resized(node: Node, ledger: Ledger, pod: Pod, options: CpuOptions | None = None, *, no_more: str = "") -> Resized:
    """Follow a resize.

    Args:
        node: the managers.
        ledger: where the pod is.
        pod: as it asks now; containers that the ledger's record lacks are not granted anything.
        options: the pod's own CPU options.
        no_more: why the pod gets nothing beyond what it holds; "" where it may.

    Raises:
        KeyError: the pod is not in the ledger.
    """
    return _Resize(node, ledger, pod, options, no_more).run()


class _Resize:
    def __init__(self, node: Node, ledger: Ledger, pod: Pod, options: CpuOptions | None, no_more: str) -> None:
        self._node = node
        self._ledger = ledger
        self._pod = pod
        self._options = options
        self._no_more = no_more
        self._record = ledger.pods[pod.uid]
        self._cpus = node.cpu_provider(options)
        self._refused: dict[str, str] = {}
        self._fixed = node.rules.compatibility is Compatibility.FIXED
        self._shares = "" in self._record.why  # refused, left on the shared pool: a resize admits no pod

    def run(self) -> Resized:
        names = {each.name for each in self._record.pod.containers}
        if as_a_whole(self._ledger, self._pod.uid):
            exact = self._node.rules.compatibility is Compatibility.FIXED
            self._ledger = given_back(self._ledger, self._pod, self._cpus, self._chosen, exact=exact)
            if differs(self._ledger, self._pod):
                self._refused[self._pod.containers[0].name] = f"{PREFIX}: {AS_IT_WAS}"
        else:
            there = [each for each in self._pod.containers if each.name in names]
            for container in sorted(there, key=self._gets_more):  # what one gives up another may get
                self._resize_cpus(container)
            self._resize_inits()
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

    # ---- confinement

    def _resize_confinement(self) -> None:
        """It stays on its nodes, where more or less is accounted for it."""
        self._ledger, why = self._node.confiner.resized(self._ledger, self._pod, self._no_more)
        if why:
            text = f"{why}; it stays there, and no more is accounted for it than was"
            self._say(self._pod.containers[0].name, f"{PREFIX}: {text}", text)

    # ---- CPUs

    def _resize_cpus(self, container: Container) -> None:
        uid, name = self._pod.uid, container.name
        held = self._ledger.cpus.assigned.get(uid, {}).get(name, CpuSet())
        count, why = self._count(container, held), ""
        if count < len(held):
            self._regrant(name, held, self._fewer(name, held, self._cpus.chooser.whole_cores(count)))
            held = self._ledger.cpus.assigned.get(uid, {}).get(name, CpuSet())
            refusal = self._cpus.chooser.check_cores(count, held) if count < len(held) else None
            why = refusal.message if refusal else ""
        elif count > len(held) and (held or self._may_begin()):
            why = self._no_growth(container) if held else self._no_more
            found = CpuSet() if why else self._more(container, held, count)
            why = found.message if isinstance(found, Refusal) else why or self._regrant(name, held, found)
        if why:
            kept = f"it keeps CPUs {held}" if held else "it stays on the shared pool"
            self._say(name, f"{PREFIX} from {len(held)} to {count} CPUs: {why}; {kept}")

    def _resize_inits(self) -> None:
        """Let ended init containers hold CPUs of the containers after them, where the pod would hold too many CPUs.

        A scheduler counts the most that a pod requests at one time: beside an init container, or after all of them.
        """
        held = self._ledger.cpus.assigned.get(self._pod.uid, {})
        if all(each.name in self._pod.untold for each in self._pod.containers if each.kind is ContainerKind.APP):
            return  # none was made yet: an init container may run
        lasting, beside, inits = CpuSet(), CpuSet(), list[tuple[str, CpuSet]]()
        for each in self._pod.containers:
            mine = held.get(each.name, CpuSet())
            if each.kind is not ContainerKind.INIT:
                lasting |= mine
                beside |= mine if each.kind is ContainerKind.SIDECAR else CpuSet()
            elif mine:
                inits.append((each.name, beside))
        most = max([len(lasting), *(len(held[name]) + len(others) for name, others in inits)])
        if len(CpuSet.union(held.values())) <= most:
            return
        more = CpuSet()
        for name, others in sorted(inits, key=lambda each: -len(held[each[0]]) - len(each[1])):
            room, own, kept = lasting - others, held[name], CpuSet()
            for some in (own & room, room, more, own):
                kept |= self._chosen(some - kept, min(len(some - kept), len(own) - len(kept)))
            more |= kept - lasting
            self._ledger = self._cpus.regranted(self._ledger, self._pod.uid, name, kept)

    def _may_begin(self) -> bool:
        """Say whether a container that shares may get CPUs of its own, or be told why not.

        What gets none at admission gets none by a resize, and a pod that shares by its own wish is told nothing.
        """
        rules, apart = self._node.rules, self._pod.pod_level and not self._node.rules.pod_level_managers
        shares = self._shares or not rules.cpu.static or apart
        return not shares and (not self._no_more or self._pod.uid in self._ledger.cpus.assigned)

    def _no_growth(self, container: Container) -> str:
        """Say why a container that has CPUs of its own gets no more of them; "" where it may."""
        rules = self._node.rules
        if not rules.cpu.static:
            return "cpuManagerPolicy is none now"
        if self._pod.pod_level and not rules.pod_level_managers:
            return "the feature gate PodLevelResourceManagers is off now"
        if not exclusive_count(self._pod, container, rules):
            problem = exclusive.problem(self._pod, rules)
            return f"{exclusive.EXCLUSIVE} {problem}" if problem else exclusive.left_out(self._pod, container, rules)
        return self._no_more

    def _regrant(self, name: str, held: CpuSet, found: CpuSet) -> str:
        """Give a container these CPUs instead of those that it held; say why where that may not be."""
        after = self._cpus.regranted(self._ledger, self._pod.uid, name, found)
        passed = over(self._node.rules, self._pod.namespace, self._ledger, after)
        if passed is None:
            self._ledger = after
            self._remember(name, held, found)
        return passed.message if passed else ""

    def _say(self, name: str, text: str, more: str = "") -> None:
        """Note why a container keeps what it had, beside what was noted of it before."""
        said = self._refused.get(name)
        self._refused[name] = f"{said}; {more or text}" if said else text

    def _count(self, container: Container, held: CpuSet) -> int:
        """The CPUs that it asks for. One that has some keeps them, whatever annotations and settings say since."""
        if self._pod.pod_level:
            return exclusive_count(self._pod, container, AS_WHOLE)
        count = exclusive_count(self._pod, container, self._node.rules)
        if count or not held or not exclusive.is_fixed(container):
            return count
        return units(container.requests["cpu"])

    def _fewer(self, name: str, held: CpuSet, count: int) -> CpuSet:
        """Keep what it had before it grew; else a part: the same rule that would choose if nothing else were free."""
        kept = held
        for last in reversed(self._grown(name)):
            if len(kept - last) < count:
                return self._part(kept - last, kept & last, count)
            kept -= last
        return self._part(CpuSet(), kept, count)

    def _part(self, base: CpuSet, last: CpuSet, count: int) -> CpuSet:
        """Keep all of one set, and of another what fits best to it."""
        siblings = _lowest(last & self._beside(base), count - len(base))
        rest = count - len(base) - len(siblings)
        return base | siblings | self._chosen(last - siblings, rest)

    def _chosen(self, cpus: CpuSet, count: int) -> CpuSet:
        """Choose so many of these CPUs, whatever an option would rather have."""
        found = self._cpus.chooser.part(cpus, count) if 0 < count < len(cpus) else _lowest(cpus, count)
        return found if isinstance(found, CpuSet) and found.issubset(cpus) else _lowest(cpus, count)

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
        free, own = self._cpus.free(self._ledger.cpus, self._pod, container.name), self._left_by_inits(container)
        refusal = self._cpus.chooser.check_cores(count, held | own | free)
        if refusal is not None:
            return self._cpus.why_none(refusal, self._pod)
        if len(held | own) >= count:
            found = self._nearest(container, held, count, own)
        else:
            home = self._home(container, held)
            *_, reach = (CpuSet(), *self._zones(home, held, own))  # none where its nodes are gone
            found = self._nearest(container, held | reach, count, free)
        if own and isinstance(found, Refusal):
            found = self._nearest(container, held, count, own | free)
        if isinstance(found, Refusal):
            return self._cpus.why_none(found, self._pod)
        return self._unmixed(found, container, held, count, free)

    def _unmixed(self, found: CpuSet, container: Container, held: CpuSet, count: int, free: CpuSet) -> CpuSet:
        """Take CPUs of one kind, isolated or not, where these are on no more NUMA nodes than those of both."""
        machine = self._node.seen
        if not self._fixed or not is_mixed(found, machine.isolated):
            return found
        for kind in (IsolatedCpus.REQUIRE, IsolatedCpus.AVOID):
            same = of_kind(free, machine.isolated, kind)
            other = self._nearest(container, held, count, same)
            if isinstance(other, CpuSet) and not is_mixed(other, machine.isolated):
                return other if len(machine.nodes_of(other)) <= len(machine.nodes_of(found)) else found
        return found

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
        left -= CpuSet.union(held.get(each.name, CpuSet()) for each in beside) | self._node.seen.barred
        if not (self._options or self._node.rules.cpu.options).full_pcpus_only:
            return left
        return CpuSet.union(core for core in self._node.seen.cores if core.issubset(left))

    def _nearest(self, container: Container, held: CpuSet, count: int, free: CpuSet) -> CpuSet | Refusal:
        """All that is held already, and the nearest of what is free."""
        if len(held) >= count:
            return held
        last: Refusal | None = None
        for near in self._zones(self._home(container, held), held, free):
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
        yield from (free & node.cpus for node in far if not held)  # the first ones stay together
        reach = home
        for node in far:
            reach |= NodeSet.of(node.id)
            yield free & machine.cpus_of(reach)

    def _home(self, container: Container, held: CpuSet) -> NodeSet:
        """The nodes that it is to stay on: its affinity's, or those of its CPUs, which may be the first ones."""
        every, strict = self._node.seen.node_set, self._record.policy in STRICT
        hint = self._record.affinity.get(container.name)
        known = hint.nodes if hint is not None else None
        affinity = every if known is None else known & every
        if strict and known is not None and (held or affinity != every):
            return affinity
        return self._node.seen.nodes_of(held) if held else self._first_home(container, affinity, strict=strict)

    def _first_home(self, container: Container, affinity: NodeSet, *, strict: bool) -> NodeSet:
        """Its affinity's, or those of its pod's other CPUs, if they suit; else what a fresh pod like it would get."""
        node, every = self._node, self._node.seen.node_set
        own = self._ledger.cpus.assigned.get(self._pod.uid, {}).values()
        policy = Policy.BEST_EFFORT if self._record.policy == Policy.NONE else Policy(self._record.policy)
        answers, hint = node.hint(self._ledger, self._pod, container, policy, self._options)
        demands = question_of(list(answers.values()), node.positions).demands
        for nodes in (affinity, node.seen.nodes_of(CpuSet.union(own))):
            mask = node.positions.mask(nodes)
            if nodes and nodes != every and all(demand.accepts(mask) for demand in demands):
                return nodes
        return every if hint.nodes is None or (strict and not hint.preferred) else hint.nodes

    def _distance(self, home: NodeSet, other: int) -> int:
        machine = self._node.seen
        order = [node.id for node in machine.nodes]
        distances = [machine.by_node[each].distances for each in home]
        return min((each[order.index(other)] for each in distances if each), default=0)

    # ---- memory

    def _resize_memory(self, container: Container) -> None:
        uid, name, exact = self._pod.uid, container.name, self._node.rules.compatibility is Compatibility.FIXED
        wanted, kept = self._wanted_memory(container), list[Block]()
        for block in self._blocks(container):
            size = wanted.get(block.resource, block.size)
            draft, entered = Draft(self._ledger.memory.nodes, exact=exact), None
            why = self._no_more if size > block.size else ""
            if size != block.size and not why:
                draft.give(block)
                barred = size > block.size and block.nodes & self._node.seen.barred_nodes
                entered = None if barred else draft.enter(replace(block, size=size, split=()))
                more = f"{size - block.size} bytes of {block.resource} more"
                why = "" if entered else f"NUMA nodes {block.nodes} have no {more}"
            if entered:
                self._ledger = replace(self._ledger, memory=replace(self._ledger.memory, nodes=draft.nodes))
            elif why:
                self._say(name, f"{PREFIX}: {why}; it keeps what it has", why)
            kept.append(entered or block)
        if tuple(kept) != self._blocks(container):
            books = self._ledger.memory
            mine = {**books.blocks[uid], name: tuple(kept)}
            self._ledger = replace(self._ledger, memory=replace(books, blocks={**books.blocks, uid: mine}))

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
