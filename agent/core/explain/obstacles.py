"""Why no set of NUMA nodes is as good as the policy asks for: sentences from the lists of one merge.

First the requests that no node can serve; else those whose own list has nothing good enough; else that the lists,
each content by itself, do not agree. Numbers are those of `agent.core.explain.supply`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from agent.core.admission.node import Node
from agent.core.cpus.pods import empty_pool
from agent.core.devices.books import left_by_inits
from agent.core.explain.refusals import no_room
from agent.core.explain.values import HintList, ListStance
from agent.core.explain.words import (
    CPU,
    EVEN_EMPTY,
    amount,
    bare,
    cpus,
    listing,
    nodes_count,
    on,
    sets,
    spread,
    verb,
)
from agent.core.merge.demand import Demand, fewest
from agent.core.merge.needs import Budget
from agent.core.request.amounts import is_memory
from agent.model.idset import CpuSet, NodeSet
from agent.model.ledger import Ledger
from agent.model.outcome import UnmetRequest
from agent.model.pod import ContainerKind, Pod
from agent.model.rules import Policy

NAMED = 3
MOST_PLACES = 64
"""Sets of NUMA nodes of a `UnmetRequest`."""


@dataclass(frozen=True, slots=True, eq=False)
class ObstacleView:
    """A hint list: in words, and as the merge saw it (None when it does not take part, or is impossible).

    `left` is what init containers left of it, which every node set must contain (`leftover`).
    """

    hint_list: HintList
    demand: Demand | None
    left: str = ""

    @property
    def what(self) -> str:
        """What is asked for, in words."""
        said = self.hint_list
        return amount(said.resource, said.amount) if said.amount else said.resource or said.provider


def obstacles(node: Node, pod: Pod, views: list[ObstacleView], ledger: Ledger, policy: Policy) -> tuple[str, ...]:
    """Why nothing is preferred by all; under single-numa-node, why no one node is."""
    if node.rules.pod_level_managers and pod.pod_level and empty_pool(pod):
        return (no_room(empty_pool(pod)),)
    impossible = [view for view in views if view.hint_list.stand is ListStance.IMPOSSIBLE]
    if impossible:
        single = policy is Policy.SINGLE_NUMA_NODE
        return tuple(dict.fromkeys(_nowhere(view, ledger, single=single) for view in impossible))
    binding = [view for view in views if view.demand is not None]
    if policy is Policy.SINGLE_NUMA_NODE:
        return _single(node, binding, ledger)
    return _smallest(node, binding, ledger)


def lacks(node: Node, views: list[ObstacleView], policy: Policy) -> tuple[UnmetRequest, ...]:
    """The same as values; what fits on every node by itself is left out, since that is no part of the trouble."""
    places = _single_nodes if policy is Policy.SINGLE_NUMA_NODE else _preferred
    asked = [view for view in views if view.demand or view.hint_list.stand is ListStance.IMPOSSIBLE]
    found = {view: places(view, node)[:MOST_PLACES] for view in asked}
    return tuple(
        UnmetRequest(view.hint_list.resource, view.hint_list.amount, dict(view.hint_list.free), tuple(fits))
        for view, fits in found.items()
        if len(fits) < len(node.seen.nodes)
    )


def _nowhere(view: ObstacleView, ledger: Ledger, *, single: bool) -> str:
    said = view.hint_list
    if not said.amount or not said.free:
        return f"no set of NUMA nodes will do for {view.what}"
    total, most = sum(said.free.values()), sum(said.capacity.values())
    if single and max(said.capacity.values()) < said.amount <= most:
        return _no_node(view, ledger)
    if most < said.amount:
        return f"it asks for {view.what}, and this machine has {bare(said.resource, most)}, {EVEN_EMPTY}"
    if total < said.amount:
        where = f": {spread(said.resource, said.free)}" if len(said.free) > 1 else ""
        free = f"{bare(said.resource, total)} {verb(said.resource, total, 'is', 'are')} free"
        left = f"{free} on all NUMA nodes together{where}" if total else "none is free"
        return f"it asks for {view.what}, and {left}"
    rule = _group_rule(ledger) if is_memory(said.resource) else ""
    if rule:
        free = spread(said.resource, said.free)
        return f"no set of NUMA nodes may serve {view.what}: as much is free ({free}), but {rule}"
    return f"no set of NUMA nodes will do for {view.what}: {spread(said.resource, said.free)}"


# ---- single-numa-node


def _single(node: Node, binding: list[ObstacleView], ledger: Ledger) -> tuple[str, ...]:
    good = {view: _single_nodes(view, node) for view in binding}
    lacking = [view for view in binding if not good[view]]
    if lacking:
        return _sentences(lacking, lambda view: _no_node(view, ledger))
    return (f"no one NUMA node has room for all of it: {_where(good, node)}",)


def _single_nodes(view: ObstacleView, node: Node) -> list[NodeSet]:
    every = (1 << place for place in range(len(node.positions)))
    return [node.positions.nodes(mask) for mask in every if view.demand is not None and view.demand.prefers(mask)]


def _no_node(view: ObstacleView, ledger: Ledger) -> str:
    said = view.hint_list
    largest = max(said.capacity.values(), default=0)
    if said.amount and said.capacity and largest < said.amount:
        return (
            f"no NUMA node of this machine has {view.what}, {EVEN_EMPTY}: the largest has "
            f"{bare(said.resource, largest)}"
        )
    if said.free and max(said.free.values()) < said.amount:
        return f"no one NUMA node has {view.what} free: {spread(said.resource, said.free)}"
    return _otherwise(view, ledger)


# ---- best-effort and restricted


def _smallest(node: Node, binding: list[ObstacleView], ledger: Ledger) -> tuple[str, ...]:
    lacking = [view for view in binding if not _prefers_any(view)]
    if lacking:
        return _sentences(lacking, lambda view: _too_wide(view, ledger))
    wanted = {view.hint_list.size for view in binding if view.hint_list.size}
    if len(wanted) > 1 and not any(view.demand is not None and view.demand.sockets for view in binding):
        parts = [
            f"{view.what} {verb(said.resource, said.amount, 'needs', 'need')} {nodes_count(said.size)}"
            for view in binding
            if (said := view.hint_list).size
        ]
        return (f"on this machine {listing(parts)}, so no set of nodes is the fewest for all of it",)
    good = {view: _preferred(view, node) for view in binding}
    if all(good.values()):
        return (f"its parts fit on as few nodes as they should, but not on the same ones: {_where(good, node)}",)
    return ("its parts fit on as few nodes as they should, but not on the same ones",)


def _prefers_any(view: ObstacleView) -> bool:
    demand = view.demand
    if demand is None or any(demand.fixed.values()):
        return True
    if view.hint_list.hints is not None:
        return any(hint.preferred for hint in view.hint_list.hints)
    if demand.family is None or demand.size is None:
        return False
    least = fewest(demand.family, Budget()) if demand.family.possible else None
    return least is not None and least <= demand.size


def _preferred(view: ObstacleView, node: Node) -> list[NodeSet]:
    demand = view.demand
    if view.hint_list.preferred or demand is None:
        return list(view.hint_list.preferred)
    return [node.positions.nodes(mask) for mask, preferred in sorted(demand.fixed.items()) if preferred]


def _too_wide(view: ObstacleView, ledger: Ledger) -> str:
    said = view.hint_list
    if view.demand is not None and view.demand.family is not None and view.demand.size is None:
        return (
            f"the search for the fewest NUMA nodes of an empty machine that hold {view.what} ended before its answer,"
            " so no set of nodes is preferred"
        )
    size = said.size or 1
    best = sum(sorted(said.free.values(), reverse=True)[:size])
    if said.free and best < said.amount:
        least = f", so it takes {nodes_count(said.least)}" if said.least and said.least > size else ""
        return (
            f"{view.what} would fit on {nodes_count(size)} of an empty machine, but now "
            f"{spread(said.resource, said.free, 'free')}{least}"
        )
    return _otherwise(view, ledger)


# ---- both


def _otherwise(view: ObstacleView, ledger: Ledger) -> str:
    """Enough is free, and still the nodes are not offered."""
    said = view.hint_list
    rule = _group_rule(ledger) if is_memory(said.resource) else ""
    if rule:
        return f"{view.what}: {rule}"
    if view.left:
        return f"{view.what} must include {view.left}: {spread(said.resource, said.free, 'free')}"
    free = f": {spread(said.resource, said.free)}" if said.free else ""
    return f"{view.what}: no NUMA node that has it can be used for it{free}"


def _group_rule(ledger: Ledger) -> str:
    """What the Memory Manager's group rule forbids now (kubelet rule 5.4: hints); "" where no pod holds memory."""
    groups = {book.group for book in ledger.memory.nodes if book.users and len(book.group) > 1}
    if groups:
        names = listing(on(group) for group in sorted(groups, key=lambda each: each.bits))
        return (
            f"{names} serve pods whose memory lies on all of them together, and serve no others (the Memory "
            "Manager's rule for groups)"
        )
    singles = NodeSet.from_ids(book.id for book in ledger.memory.nodes if book.users)
    if not singles:
        return ""
    one = len(singles) == 1
    return (
        f"{on(singles)} {'serves' if one else 'serve'} pods of one node alone, and cannot be part of a group (the "
        "Memory Manager's rule for groups)"
    )


def _sentences(lacking: list[ObstacleView], tell: Callable[[ObstacleView], str]) -> tuple[str, ...]:
    """One sentence each; of several memory resources those that are short themselves."""
    found = {view: tell(view) for view in lacking}
    memory = [view for view in lacking if is_memory(view.hint_list.resource)]
    short = [view for view in memory if max(view.hint_list.free.values(), default=0) < view.hint_list.amount]
    left = [view for view in lacking if view not in memory or view in (short or memory[:1])]
    return tuple(dict.fromkeys(found[view] for view in left))


def _where(good: dict[ObstacleView, list[NodeSet]], node: Node) -> str:
    """What fits where; what fits on every node is left out, since that is no part of the trouble."""
    narrow = {view: places for view, places in good.items() if len(places) < len(node.seen.nodes)}
    parts = [
        f"{view.what}{f', which must include {view.left},' if view.left else ''} "
        f"{verb(view.hint_list.resource, view.hint_list.amount or 1, 'fits', 'fit')} on {_places(places)}"
        for view, places in (narrow if len(narrow) > 1 else good).items()
    ]
    return listing(parts)


def leftover(node: Node, pod: Pod, container: str, ledger: Ledger, resource: str) -> str:
    """Tell what init containers left of a resource, which a later container must contain (kubelet rules 4.5, 6.2).

    Words with a place, like "CPU 1 of init container fetch on NUMA node 0"; "" for nothing.
    """
    mine = next((each for each in pod.containers if each.name == container), None)
    if mine is None or resource in node.inventory.reported:
        return ""
    books = ledger.cpus.reusable
    left = books[1] if resource == CPU and books and books[0] == pod.uid else CpuSet()
    free = left_by_inits(ledger.devices, pod, mine).get(resource, set())
    near = {each.id: each.nodes or NodeSet() for each in node.inventory.of(resource)}
    parts = []
    for each in pod.containers[: pod.containers.index(mine)]:
        grant = ledger.grant(pod.uid, each.name)
        held, ids = (grant.cpus or CpuSet()) & left, sorted(free & set(grant.devices.get(resource, ())))
        nodes = node.seen.nodes_of(held) | NodeSet.union(near.get(name, NodeSet()) for name in ids)
        if each.kind is ContainerKind.INIT and (held or ids):
            what = cpus(held) if held else f"{resource} {', '.join(ids)}"
            parts.append(f"{what} of init container {each.name}{f' on {on(nodes)}' if nodes else ''}")
    return listing(parts)


def _places(places: list[NodeSet]) -> str:
    if len(places) == 1:
        return on(places[0])
    if any(len(each) > 1 for each in places):
        more = len(places) - NAMED
        return sets(places[:NAMED], more=more > 0) + (f" and {more} more" if more > 0 else "")
    if len(places) > NAMED:
        return f"each of {on(NodeSet.union(places))}"
    return f"NUMA node {listing(map(str, places), 'or')}"
