"""The sentence of a pod that waits: what is missing where it comes closest, and what would let it in. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from agent.core.admission.allocatable import CPU
from agent.core.explain.case import Case
from agent.core.explain.cause import with_cause
from agent.core.explain.words import amount, bare
from agent.core.request.annotations import POLICY
from agent.forecast.gate.books import NodeSite, PodKind
from agent.forecast.gate.values import FitCondition
from agent.forecast.gate.views import View
from agent.forecast.placing import ANYWHERE
from agent.forecast.scheduling import needs_of
from agent.model.outcome import Reason, RefusalCause, UnmetRequest
from agent.model.pod import Pod
from agent.model.rules import Policy

LOOKED_AT = 8
"""Nodes that refuse a pod whose causes are compared: those with the most CPUs left by sums."""
REASONS = 3
"""Filters of kube-scheduler that a sentence names."""
DEPARTURES = 64
"""Pods of a node whose end is tried."""
AGAIN = 30.0
"""Seconds after which a sentence is made again."""
RATE = 0.4
"""Sentences that are made again in a second, as a share of those that may be under way at once."""
WAITING, CHOSEN = "Waiting", "Chosen"


@dataclass(frozen=True, slots=True)
class Told:
    """What is told of a kind of pod that waits.

    Attributes:
        cause: what is in its way on the closest node; the same value as a refusal has.
        node: the closest node; "" where no node can be asked.
        text: the sentence.
    """

    cause: RefusalCause
    node: str
    text: str


def told(view: View, sites: Mapping[str, NodeSite], gang: int = 0) -> Told:
    """Tell where a kind of pod comes closest, what it lacks there, and what would let it in.

    No name, namespace or amount of another pod is in it: the pod's own tenant reads it.

    Args:
        view: the nodes for the kind, all asked.
        sites: all nodes.
        gang: how many pods start together; 0 for a pod alone.
    """
    if view.takers:
        name, left = view.takers[0].name, len(view.takers) - 1
        more = f" and {left} more node{'s' if left > 1 else ''}" if left else ""
        text = f"{name}{more} would take it, and that room is kept for pods that came before it or are nominated"
        if gang:
            text = (
                f"its gang starts whole, and not all of its {gang} pods fit at once: {name}{more} would take this one"
            )
        return Told(RefusalCause(text), name, text)
    refusing = sorted(view.refusers, key=lambda place: (-sites[place.name].free.get(CPU, 0), place.name))
    if refusing:
        found = [(place.name, _cause(sites[place.name], view.kind)) for place in refusing[:LOOKED_AT]]
        name, cause = min(found, key=lambda each: (_shortfall(each[1]), each[0]))
        many, of = len(view.refusers), len(sites)
        there = f"{many} of {of} nodes {'has' if many == 1 else 'have'} room for it in sum"
        helps = _helps(sites[name], view.kind, ends=not cause.never)
        return Told(cause, name, "; ".join(filter(None, (f"{name} comes closest: {cause.text}", helps, there))))
    return _short(view, sites) if view.short else _barred(view.kind, sites)


def waiting(found: Told, most: float, clock: str) -> FitCondition:
    """Return the condition of a pod that waits; the owner's clock or the setting that ends its wait is named."""
    return FitCondition(fits=False, reason=WAITING, message=f"{found.text}; it waits {most:.0f} s at most ({clock})")


def chosen(node: str) -> FitCondition:
    """Return the condition of a pod that is nominated: it names the node first."""
    return FitCondition(fits=True, reason=CHOSEN, message=f"{node}: its decision takes the pod")


def _cause(site: NodeSite, kind: PodKind) -> RefusalCause:
    books = site.books_for(kind)
    refusal = books.refusal(kind) if books else None
    if books is None or refusal is None:
        return RefusalCause()
    if refusal.reason is Reason.BEHIND:
        return RefusalCause("it fits there, and that room is kept for a pod that came before and waits there")
    case = Case(books.ledger, kind.pod, kind.settings_on(books.node))
    found = with_cause(books.node, case, refusal)
    return found.cause if found.cause.text else replace(found.cause, text=found.plain)


def _shortfall(cause: RefusalCause) -> tuple[bool, int]:
    """Order causes: those that time can mend first, then by what is missing."""
    missing = [each.amount - max(each.free.values(), default=0) for each in cause.lacks]
    return cause.never, max(missing, default=2**62)


def _helps(site: NodeSite, kind: PodKind, *, ends: bool) -> str:
    """Say what would let a kind of pod in on a node: each thing was tried by the node's decision."""
    found = list[str]()
    cpus = _fewer(site, kind)
    if cpus:
        found.append(f"with {amount(CPU, cpus)}")
    notes = {**kind.pod.annotations, POLICY: Policy.BEST_EFFORT.value}
    if _takes(site, replace(kind.pod, annotations=notes)):
        found.append(f"with {POLICY}: {Policy.BEST_EFFORT.value}")
    if ends and _one_ends(site, kind):
        found.append("when one pod there ends")
    if not found:
        return "several pods there must end before it gets in" if ends else "no wait lets it in there"
    *first, last = found
    return f"it gets in there {', '.join(first)} or {last}" if first else f"it gets in there {last}"


def _takes(site: NodeSite, pod: Pod) -> bool:
    kind = PodKind(pod, needs_of(pod), ANYWHERE)
    books = site.books_for(kind)
    return books is not None and not site.lacks(kind.needs) and books.asked(kind).takes


def _fewer(site: NodeSite, kind: PodKind) -> int:
    """Find the most whole CPUs of the largest container with which the node takes the pod; 0 for none."""
    largest = max(kind.pod.containers, key=lambda each: each.requests.get(CPU, 0))
    least, most = 0, (largest.requests.get(CPU, 0) - 1) // 1000
    while least < most:
        middle = (least + most + 1) // 2
        if _takes(site, _with_cpus(kind.pod, largest.name, middle)):
            least = middle
        else:
            most = middle - 1
    return least


def _with_cpus(pod: Pod, name: str, cpus: int) -> Pod:
    """Return the pod where a container asks for so many CPUs, and limits them where it did."""

    def changed(amounts: Mapping[str, int]) -> Mapping[str, int]:
        return {**amounts, CPU: 1000 * cpus} if CPU in amounts else amounts

    containers = (
        replace(each, requests=changed(each.requests), limits=changed(each.limits)) if each.name == name else each
        for each in pod.containers
    )
    return replace(pod, containers=tuple(containers))


def _one_ends(site: NodeSite, kind: PodKind) -> bool:
    """Tell whether the end of a single pod would let it in."""
    books = site.books_for(kind)
    if books is None:
        return False
    held = sorted(books.ledger.pods.values(), key=lambda each: (_cpus(each.pod), each.pod.created))
    held = [each for each in held if each.pod.uid in books.ledger.cpus.assigned]
    return any(books.without([each.pod.uid]).asked(kind).takes for each in held[:DEPARTURES])


def _cpus(pod: Pod) -> int:
    return sum(each.requests.get(CPU, 0) for each in pod.containers)


def _short(view: View, sites: Mapping[str, NodeSite]) -> Told:
    """Tell of a pod that no node has room for by sums."""
    needs = view.kind.needs

    def missing(site: NodeSite) -> float:
        return max((amount - site.free.get(name, 0)) / amount for name, amount in needs.amounts)

    place = min(view.short, key=lambda each: (missing(sites[each.name]), each.name))
    site = sites[place.name]
    name = site.lacks(needs)
    milli = dict(needs.amounts)[name]
    asked, free = milli // 1000, max(0, site.free.get(name, 0)) // 1000
    whole = site.node.allocatable.get(name, 0) if site.node else 0
    never = milli > whole
    left = (
        f"the node has {bare(name, whole // 1000)}"
        if never
        else f"{bare(name, free)} {'is' if free <= 1 else 'are'} left"
    )
    cause = RefusalCause(f"it asks for {amount(name, asked)}, and {left}", (UnmetRequest(name, asked),), never)
    helps = f"it gets in there with {amount(CPU, cpus)}" if name == CPU and (cpus := _fewer(site, view.kind)) else ""
    ends = "no wait lets it in there" if never else "pods there must end before it gets in as it is"
    text = f"{place.name} comes closest: {cause.text}; {'; '.join(filter(None, (helps, ends)))}"
    return Told(cause, place.name, f"{text}; 0 of {len(sites)} nodes have room for it in sum")


def _barred(kind: PodKind, sites: Mapping[str, NodeSite]) -> Told:
    """Tell of a pod that kube-scheduler's filters keep from every node whose decision is known."""
    whys = Counter(why for each in sites.values() if each.node and (why := kind.placing.barred(each.node.facts)))
    named = ", ".join(f"{why} on {count}" for why, count in whys.most_common(REASONS))
    text = f"kube-scheduler may bind it to none of {len(sites)} nodes{f': {named}' if named else ''}"
    text += "; it gets in when such a node is there, or with another selector or toleration"
    return Told(RefusalCause(text), "", text)
