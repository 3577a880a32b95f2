"""The sentence of a pod that waits: what is missing where it comes closest, and what would let it in. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from agent.core.admission.allocatable import CPU
from agent.core.explain.case import Case
from agent.core.explain.cause import with_cause
from agent.core.explain.words import amount
from agent.forecast.gate.books import Books, NodeSite, PodKind
from agent.forecast.gate.values import FitCondition
from agent.forecast.gate.views import View
from agent.model.outcome import RefusalCause, UnmetRequest
from agent.model.pod import Pod

LOOKED_AT = 8
"""Nodes that refuse a pod whose causes are compared: those with the most CPUs left by sums."""
DEPARTURES = 64
"""Pods of a node whose end is tried."""
AGAIN = 30.0
"""Seconds after which a sentence is made again."""
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


def told(view: View, sites: Mapping[str, NodeSite]) -> Told:
    """Tell where a kind of pod comes closest, what it lacks there, and what would let it in."""
    if view.takers:
        text = (
            f"{len(view.takers)} nodes would take it, and earlier pods have their room: {view.takers[0].name} is one"
        )
        return Told(RefusalCause(text), view.takers[0].name, text)
    refusing = sorted(view.refusers, key=lambda place: (-sites[place.name].free.get(CPU, 0), place.name))
    if refusing:
        found = [(place.name, _cause(sites[place.name].books, view.kind)) for place in refusing[:LOOKED_AT]]
        name, cause = min(found, key=lambda each: (_shortfall(each[1]), each[0]))
        there = f"{len(view.refusers)} of {len(sites)} nodes have room for it in sum, and none on its NUMA nodes"
        books = sites[name].books
        helps = _departure(books, view.kind) if books and not cause.never else ""
        return Told(cause, name, "; ".join(filter(None, (f"{name} comes closest: {cause.text}", helps, there))))
    if view.short:
        return _short(view, sites)
    blind = sum(1 for each in sites.values() if each.summary is None)
    text = f"no node may be asked: the scheduler's filters keep it from {len(sites) - blind}, {blind} have no summary"
    return Told(RefusalCause(text), "", text)


def waiting(found: Told, most: float, clock: str) -> FitCondition:
    """Return the condition of a pod that waits; the owner's clock or the setting that ends its wait is named."""
    return FitCondition(fits=False, reason=WAITING, message=f"{found.text}; it waits {most:.0f} s at most ({clock})")


def chosen(node: str) -> FitCondition:
    """Return the condition of a pod that is nominated: it names the node first."""
    return FitCondition(fits=True, reason=CHOSEN, message=f"{node}: its decision takes the pod")


def _cause(books: Books | None, kind: PodKind) -> RefusalCause:
    if books is None:
        return RefusalCause()
    refusal = books.refusal(kind)
    if refusal is None:
        return RefusalCause()
    case = Case(books.ledger, kind.pod, kind.settings_on(books.node))
    found = with_cause(books.node, case, refusal)
    return found.cause if found.cause.text else replace(found.cause, text=found.plain)


def _shortfall(cause: RefusalCause) -> tuple[bool, int]:
    """Order causes: those that time can mend first, then by what is missing."""
    missing = [each.amount - max(each.free.values(), default=0) for each in cause.lacks]
    return cause.never, max(missing, default=2**62)


def _departure(books: Books, kind: PodKind) -> str:
    """Find the smallest pod whose end would let it in."""
    held = sorted(books.ledger.pods.values(), key=lambda each: (_cpus(each.pod), each.pod.created))
    for each in held[:DEPARTURES]:
        if each.pod.uid in books.ledger.cpus.assigned and books.without([each.pod.uid]).reply(kind).takes:
            return f"the end of a pod with {_cpus(each.pod) // 1000} CPUs there would let it in"
    return "no single pod's end there would let it in"


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
    asked, free = dict(needs.amounts)[name] // 1000, max(0, site.free.get(name, 0)) // 1000
    cause = RefusalCause(
        f"it asks for {amount(name, asked)}, and {amount(name, free)} is left in sum", (UnmetRequest(name, asked),)
    )
    text = f"{place.name} comes closest: {cause.text}; none of {len(view.short)} nodes has room for it in sum"
    return Told(cause, place.name, text)
