"""Under best-effort the devices give way: CPUs and memory stay together (defect D17, Compatibility.FIXED).

Where no node set is preferred by all, the kubelet takes the overlap of what they offer whose node count is nearest to
what the neediest needs. That overlap may be too small for the CPUs: one NIC near node 0 makes it node 0, although 6
CPUs are free there and 40 on node 1. A request for 32 CPUs then becomes 6 and 26 (kubernetes issue 106270). Where
there is no overlap, because a NIC and a GPU are apart, all nodes are the affinity, and memory becomes a group of all.

The rule: where that overlap does not serve the CPUs and the memory, or there is none, and no more nodes than it has
do serve both, the affinity is the fewest nodes that do. Of these it is the one that also serves the devices, resource
by resource as long as that costs no further node; then the closest, then the lowest. So CPUs and memory together
never lie on more nodes than before, and a group of nodes for memory never gets wider. With align-by-socket CPUs may
lie on any node of a socket, so that the kubelet's affinity stays. Called by `agent.core.admission.pod`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from agent.core.merge.demand import Demand
from agent.core.merge.described import cover
from agent.core.merge.inputs import question_of
from agent.core.merge.masks import Positions
from agent.core.merge.needs import Budget
from agent.core.merge.order import Order
from agent.core.merge.provider import Answer
from agent.model.hint import Hint


def held_together(
    hint: Hint, answers: Mapping[str, Answer], firm: Collection[str], positions: Positions, order: Order
) -> Hint:
    """What best-effort merged, or better nodes for it.

    Args:
        hint: what came of all answers.
        answers: provider name -> what it said.
        firm: the providers whose resources stay together.
        positions: of the machine's nodes.
        order: by which equally good node sets are told apart.
    """
    if hint.preferred or hint.nodes is None:
        return hint
    first = question_of([answer for name, answer in answers.items() if name in firm], positions)
    others = question_of([answer for name, answer in answers.items() if name not in firm], positions).demands
    demands, mask = list(first.demands), positions.mask(hint.nodes)
    asked = [*demands, *others] if mask == positions.everything else demands
    if not demands or first.hopeless or all(demand.accepts(mask) for demand in asked):
        return hint
    budget = Budget()
    found = (_serving(demands, size, order, budget) for size in range(1, mask.bit_count() + 1))
    best = next((each for each in found if each is not None), None)
    if best is None:
        return hint
    for other in others:
        closer = _serving([*demands, other], best.bit_count(), order, budget)
        if closer is not None:
            best, demands = closer, [*demands, other]
    return Hint(positions.nodes(best), preferred=False)


def _serving(demands: Sequence[Demand], size: int, order: Order, budget: Budget) -> int | None:
    """The best mask of so many nodes that every demand accepts."""
    named = {mask for demand in demands for mask in demand.fixed if mask.bit_count() == size}
    masks = {mask for mask in named if all(demand.accepts(mask) for demand in demands)}
    families = [demand.family for demand in demands if demand.family is not None]
    if len(families) == len(demands):
        domain = families[0].domain
        for family in families:
            domain &= family.domain
        needs = tuple(dict.fromkeys(need for family in families for need in family.needs))
        mask, _ = cover(domain, needs, size, order, budget, ())
        masks |= set() if mask is None else {mask}
    return order.best(masks)
