"""The smallest changes that would have let a pod in. Each is found by admitting the pod with it; none is guessed.

Looked for in this order, one lever at a time:

    policy       the less strict ones, the strictest first; the first that lets it in is told
    scope        the other one
    request      of one container: fewer CPUs, fewer devices, less memory; the largest amount found that fits, so
                 that one unit more (1 CPU, 1 device, 1Mi of memory, one huge page) is refused. Admission is not
                 monotone: whole cores, and a smaller amount may be meant for fewer NUMA nodes than the pod's other
                 requests. CPUs and devices are counted down. Of memory the edges are tried where the number of NUMA
                 nodes changes that it needs, the largest first, and from there it is halved
    departure    the end of one pod, those that hold least first; else of two, those first that share a NUMA node;
                 else of several, of one NUMA node or the latest comers: the fewest found, none of which can be left
                 out
    cpu-option   one of cpuManagerPolicyOptions switched for this pod

For a pod that is in, but not aligned, the same search asks for alignment; of policies, best-effort instead of none.
The number of tries is bounded; what was not tried is said.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations

from agent.core.admission.node import Node
from agent.core.confine import align_requested
from agent.core.explain.candidates import (
    edges,
    holders_of,
    most_of,
    nodes_held,
    possible,
    requests_of,
    unit_of,
)
from agent.core.explain.case import Case
from agent.core.explain.grants import gives, held_words
from agent.core.explain.values import Lever, Remedy
from agent.core.explain.words import amount, listing
from agent.core.request.amounts import exclusive_count, is_memory
from agent.core.request.annotations import CPU_OPTIONS, POLICY, SCOPE
from agent.model.idset import NodeSet
from agent.model.ledger import Ledger
from agent.model.outcome import Admitted
from agent.model.pod import Container, Pod
from agent.model.quantity import show_bytes, units
from agent.model.rules import POD_OPTIONS, Policy, Scope

TRIES = 3000
"""Admissions that one search may try."""
MOST_PAIRS = 1000
MOST_EDGES = 200
"""Amounts of memory of one container that are tried before it is halved."""
MOST_SINGLES = 3
"""Pods whose end alone would do, that are named one by one."""
STRICTNESS = (Policy.SINGLE_NUMA_NODE, Policy.RESTRICTED, Policy.BEST_EFFORT, Policy.NONE)


@dataclass(frozen=True, slots=True)
class Found:
    """What a search found, and what it looked for in vain."""

    remedies: tuple[Remedy, ...] = ()
    searched: tuple[str, ...] = ()


def remedies(node: Node, case: Case, *, aligned: bool = False) -> Found:
    """Search.

    Args:
        node: the managers.
        case: the admission that was refused, or (with `aligned`) gave a pod that is not aligned.
        aligned: what is looked for is alignment.
    """
    search = _Search(node, case, aligned)
    search.look_at_empty()
    found = [remedy for lever in search.levers() for remedy in lever()]
    if search.tries >= TRIES:
        search.searched.append(f"The search ended after {TRIES} tries; there may be more")
    return Found(tuple(found), tuple(search.searched))


@dataclass
class _Search:
    """One search: counts its tries, and collects what was in vain; `cut`: of some memory not every edge was tried."""

    node: Node
    case: Case
    aligned: bool
    tries: int = 0
    searched: list[str] = field(default_factory=list)
    cut: bool = False
    holders: list[Pod] = field(default_factory=list)

    def look_at_empty(self) -> None:
        """Note the pods in the way: none, if it would be the same on an empty node."""
        self.holders = holders_of(self.case.ledger, self.case.pod.uid)
        if self._ended(*self.holders) is None:
            self.holders = []
            end = "would not align it" if self.aligned else "would refuse it"
            self.searched.append(f"no other pod is in its way: even an empty node {end}")

    def levers(self) -> tuple[Callable[[], Iterator[Remedy]], ...]:
        return (self.policies, self.scopes, self.requests, self.departures, self.options)

    def tried(self, case: Case) -> Ledger | None:
        """The ledger with the pod in it as it is wanted; None if it is not let in."""
        if self.tries >= TRIES:
            return None
        self.tries += 1
        outcome = case.admit(self.node)
        if not isinstance(outcome, Admitted) or (self.aligned and not outcome.ledger.pods[case.pod.uid].is_aligned):
            return None
        return outcome.ledger

    def described(self, remedy: Remedy, words: str, ledger: Ledger) -> Remedy:
        """The remedy with what it gives, and its sentence."""
        pod = self.case.pod
        given, good = gives(self.node, ledger, pod), ledger.pods[pod.uid].is_aligned
        got = (
            "; ".join(f"{name}: {text}" for name, text in given.items())
            if len(given) > 1
            else "".join(given.values())
        )
        end = "" if good else " (not aligned)"
        return replace(remedy, sentence=f"{words}: {got}{end}", gives=given, aligned=good)

    # ---- levers

    def policies(self) -> Iterator[Remedy]:
        now = self.case.settings.policy or self.node.rules.topology.policy
        others = STRICTNESS[STRICTNESS.index(now) + 1 :]
        if self.aligned:  # a less strict policy aligns nothing better, but none aligns nothing at all
            others = (Policy.BEST_EFFORT,) if now is Policy.NONE else ()
        for policy in others:
            remedy = Remedy(Lever.POLICY, "", policy=policy)
            ledger = self.tried(self.case.changed(self.node, remedy))
            if ledger is not None:
                yield self.described(remedy, f"with policy {policy} ({POLICY}: {policy})", ledger)
                return
        if others and not self.aligned:
            self.searched.append("no less strict policy lets it in")

    def scopes(self) -> Iterator[Remedy]:
        now = self.case.settings.scope or self.node.rules.topology.scope
        policy = self.case.settings.policy or self.node.rules.topology.policy
        if align_requested(self.case.pod)[0] or policy is Policy.NONE:
            return
        other = Scope.POD if now is Scope.CONTAINER else Scope.CONTAINER
        remedy = Remedy(Lever.SCOPE, "", scope=other)
        ledger = self.tried(self.case.changed(self.node, remedy))
        if ledger is not None:
            yield self.described(remedy, f"with scope {other} ({SCOPE}: {other})", ledger)

    def requests(self) -> Iterator[Remedy]:
        if self.case.pod.pod_level:
            return  # what the pod asks for as a whole is not divided here
        best: dict[str, tuple[float, Remedy, Ledger]] = {}
        tried = tuple(requests_of(self.node, self.case.pod))
        for container, resource, asked in tried:
            found = self._largest(container, resource, asked)
            if found is None:
                continue
            given_up = 1 - found[0].amount / asked
            if resource not in best or given_up < best[resource][0]:
                best[resource] = (given_up, *found)
        for _, remedy, ledger in best.values():
            yield self.described(remedy, self._less(remedy), ledger)
        if tried and not best:
            some = self.cut or self.tries >= TRIES
            which = "no smaller request that was tried is enough" if some else "no smaller request is enough"
            self.searched.append(f"{which}, of one resource in one container at a time")

    def _largest(self, container: Container, resource: str, asked: int) -> tuple[Remedy, Ledger] | None:
        unit = unit_of(resource)
        blank = Remedy(
            Lever.REQUEST, "", container=container.name, resource=resource, requested=asked, unit=unit
        )  # fmt: skip

        def tried(count: int) -> Ledger | None:
            return self.tried(self.case.asking(container.name, resource, count * unit))

        high = -(-asked // unit)  # in units; refused (or not aligned), as is
        if unit == 1:
            for count in range(min(high - 1, most_of(self.node, resource)), 0, -1):
                ledger = tried(count)
                if ledger is not None:
                    return replace(blank, amount=count), ledger
            return None
        low, at_low = 0, None
        beside = sum(units(each.requests.get(resource, 0)) for each in self.case.pod.containers if each != container)
        found = [each for each in edges(self.case.ledger, resource, unit, beside) if each < high]
        self.cut = self.cut or len(found) > MOST_EDGES
        for edge in found[:MOST_EDGES]:
            at_low = tried(edge)
            if at_low is not None:
                low = edge
                break
            high = edge
        if at_low is None:
            return None
        while high - low > 1:
            middle = (low + high) // 2
            ledger = tried(middle)
            low, high, at_low = (middle, high, ledger) if ledger is not None else (low, middle, at_low)
        return replace(blank, amount=low * unit), at_low

    def _less(self, remedy: Remedy) -> str:
        where = f" in container {remedy.container}" if len(self.case.pod.containers) > 1 else ""
        name, more = remedy.resource, remedy.amount + remedy.unit
        if is_memory(name):
            asked, instead = f"{show_bytes(remedy.amount)} of {name}", show_bytes(remedy.requested)
            still = f" ({show_bytes(more)} is too much)"
        else:
            asked, instead = amount(name, remedy.amount), str(remedy.requested)
            still = f" ({more} are too many)"
        return f"with {asked} instead of {instead}{where}{still if more < remedy.requested else ''}"

    def departures(self) -> Iterator[Remedy]:
        holders = self.holders
        singles = [(pod, ledger) for pod in holders if (ledger := self._ended(pod)) is not None]
        for pod, ledger in singles[:MOST_SINGLES]:
            yield self._departure((pod,), ledger)
        if len(singles) > MOST_SINGLES:
            more = len(singles) - MOST_SINGLES
            what = "1 other pod" if more == 1 else f"any of {more} other pods"
            self.searched.append(f"the end of {what} would do as well")
        if singles:
            return
        where = {pod.uid: nodes_held(self.node, self.case.ledger, pod) for pod in holders}
        pairs = sorted(combinations(holders, 2), key=lambda two: where[two[0].uid].isdisjoint(where[two[1].uid]))
        for pair in pairs[:MOST_PAIRS]:
            ledger = self._ended(*pair)
            if ledger is not None:
                yield self._departure(pair, ledger)
                return
        if len(pairs) > MOST_PAIRS:
            self.searched.append(f"of the {len(pairs)} pairs of pods, {MOST_PAIRS} were tried")
        fewest = min(self._several(holders, where), key=len, default=())
        ledger = self._ended(*fewest)
        if fewest and ledger is not None:
            yield self._departure(fewest, ledger)

    def _several(self, holders: list[Pod], where: Mapping[str, NodeSet]) -> Iterator[tuple[Pod, ...]]:
        """Sets of pods of which none can be left out: of one NUMA node each, and of the latest comers."""
        lines = [[pod for pod in holders if node in where[pod.uid]] for node in self.node.seen.node_set]
        lines.append(sorted(holders, key=lambda each: (-each.created, each.uid)))
        for line in lines:
            decommission = list[Pod]()
            for pod in line:
                decommission.append(pod)
                if self._ended(*decommission) is not None:
                    break
            else:
                continue
            for pod in list(decommission):
                fewer = [each for each in decommission if each is not pod]
                if self._ended(*fewer) is not None:
                    decommission = fewer
            yield tuple(decommission)

    def _ended(self, *pods: Pod) -> Ledger | None:
        return self.tried(self.case.without(self.node, *(pod.uid for pod in pods)))

    def _departure(self, pods: tuple[Pod, ...], ledger: Ledger) -> Remedy:
        names = tuple(pod.key for pod in pods)
        held = held_words(self.node, self.case.ledger, pods[0]) if len(pods) == 1 else ""
        words = f"when {listing(names)} {'ends' if len(names) == 1 else 'end'}{f' ({held})' if held else ''}"
        return self.described(
            Remedy(Lever.DEPARTURE, "", departures=tuple(pod.uid for pod in pods), names=names), words, ledger
        )

    def options(self) -> Iterator[Remedy]:
        rules, pod = self.node.rules, self.case.pod
        if not rules.cpu.static or not any(exclusive_count(pod, each, rules) for each in pod.containers):
            return
        now = self.case.options(self.node)
        for name, option in POD_OPTIONS.items():
            value = not getattr(now, option.field)
            remedy = Remedy(Lever.CPU_OPTION, "", option=name, value=value)
            case = self.case.changed(self.node, remedy)
            if not possible(case, self.node):
                continue
            ledger = self.tried(case)
            if ledger is not None:
                word = "with" if value else "without"
                yield self.described(remedy, f"{word} {name} ({self._annotation(case)})", ledger)

    def _annotation(self, case: Case) -> str:
        """The whole annotation that asks for a case's options: it replaces the one that the pod has."""
        then, base = case.options(self.node), self.node.rules.cpu.options
        words = [
            f"{name}={'true' if getattr(then, option.field) else 'false'}"
            for name, option in POD_OPTIONS.items()
            if getattr(then, option.field) != getattr(base, option.field)
        ]
        return f"{CPU_OPTIONS}: {', '.join(words)}" if words else f"remove {CPU_OPTIONS}"
