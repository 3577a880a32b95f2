"""The merge of described hints: exact for any number of nodes, without listing a single mask.

Theorems T4 to T8 of `agent.core.merge.merge` carry it. Called by that module only; masks are ints over positions.
"""

from __future__ import annotations

from collections.abc import Sequence

from agent.core.merge.demand import Demand, fewest
from agent.core.merge.inputs import MergeQuestion
from agent.core.merge.masks import members
from agent.core.merge.needs import Budget, Family, Need
from agent.core.merge.order import Order
from agent.core.merge.search import Bin, Limit, Search

State = tuple[int, tuple[Family, ...]]
"""A mask W of nodes that the choices of all sides so far have in common, and the families among these choices."""


def single_node(question: MergeQuestion) -> tuple[int, bool]:
    """Policy single-numa-node (T4): the lowest node that every side prefers, else everything."""
    everything, binding = question.everything, question.binding
    if question.hopeless:
        return everything, False
    if not binding:
        return min((mask for mask in _optional(question) if mask.bit_count() == 1), default=everything), True
    for node in members(everything):
        if all(demand.prefers(1 << node) for demand in binding):
            return 1 << node, True
    return everything, False


def preferred_mask(question: MergeQuestion, order: Order, budget: Budget) -> tuple[int | None, bool]:
    """The best mask that all sides prefer, or None (T1, T8); and whether that is proved."""
    if question.hopeless:
        return None, True
    everything, binding = question.everything, question.binding
    if not binding:
        return order.best({everything, *_optional(question)}), True
    named = {mask for demand in binding for mask, preferred in demand.fixed.items() if preferred}
    inside = sorted((order.key(mask & everything), mask) for mask in named if mask & everything)
    agreed = (mask & everything for _, mask in inside if all(demand.prefers(mask) for demand in binding))
    best = next(agreed, None)
    families = [(demand, demand.family) for demand in binding if demand.family is not None]
    if len(families) < len(binding):
        return best, True
    if any(demand.size is None for demand in binding):
        return best, False
    domain = everything
    for _, family in families:
        domain &= family.domain
    needs = tuple(dict.fromkeys(need for _, family in families for need in family.needs))
    mask, proved = _described(binding, domain, needs, best, order, budget)
    return mask if best is None else order.best({best, mask or best}), proved


def _optional(question: MergeQuestion) -> set[int]:
    """The masks that are preferred where none is needed (T1: N is empty)."""
    fixed = [mask for demand in question.demands for mask, preferred in demand.fixed.items() if preferred]
    return _within(question.everything, set(fixed))


def _within(everything: int, masks: set[int]) -> set[int]:
    return {mask & everything for mask in masks} - {0}


def _described(
    demands: Sequence[Demand], domain: int, needs: tuple[Need, ...], best: int | None, order: Order, budget: Budget
) -> tuple[int | None, bool]:
    """T8: the best mask of the families' own that all demands prefer, unless it has more nodes than `best`."""
    strict = {demand.size for demand in demands if not demand.sockets}
    if len(strict) > 1:
        return None, True
    most = min(domain.bit_count(), best.bit_count() if best else domain.bit_count())
    proved = True
    for size in [size for size in strict if size is not None and size <= most] or (
        [] if strict else range(1, most + 1)
    ):
        limits = tuple((demand.sockets, demand.touched) for demand in demands if demand.size != size)
        mask, done = cover(domain, needs, size, order, budget, limits)
        proved &= done
        if mask is not None:
            return mask, proved
    return None, proved


def cover(
    domain: int, needs: tuple[Need, ...], size: int, order: Order, budget: Budget, limits: tuple[Limit, ...]
) -> tuple[int | None, bool]:
    """The best mask of `size` nodes that serves all needs."""
    if size == 1 and not limits:  # by far the most frequent question, and it needs no search
        alone = (1 << j for j in members(domain) if _all_serve(needs, 1 << j))
        return next(alone, None) if order.distances is None else order.best(alone), True
    if not limits and order.distances is None and _all_serve(needs, lowest := _lowest(domain, size)):
        return lowest, True  # no smaller integer has as many nodes
    return Search(domain, (Bin(needs, domain),), order, budget, limits).run(size)


def merge_described(question: MergeQuestion, order: Order, budget: Budget) -> tuple[int, bool, bool]:
    """What best-effort answers: (mask, preferred, proved)."""
    best, proved = preferred_mask(question, order, budget)
    if best is not None:
        return best, True, proved
    mask, found = other_mask(question, order, budget)
    return mask, False, proved and found


def other_mask(question: MergeQuestion, order: Order, budget: Budget) -> tuple[int, bool]:
    """The answer where nothing can be preferred (T2, T5, T6), and whether it is proved."""
    states: set[State] = {(question.everything, ())}
    for demand in question.demands:
        states = _fold(states, demand)
    if not states:
        return question.everything, True
    target, known = goal_of(question, budget)
    width = question.everything.bit_count()  # nodes that the machine lacks can put the goal above it
    mask, found = _nearest(states, min(target, width), width, order, budget)
    return mask, known and found


def goal_of(question: MergeQuestion, budget: Budget) -> tuple[int, bool]:
    """B of kubelet rule 3.5: the largest of the demands' fewest node counts, and whether that is proved."""
    least = [_least(demand, budget) for demand in question.demands]
    return max((count for count, _ in least), default=0), all(known for _, known in least)


def _least(demand: Demand, budget: Budget) -> tuple[int, bool]:
    """The fewest nodes in any of the demand's masks, and whether that is proved.

    Raw masks count (kubelet rule 3.5: which combination is best).
    """
    counts = [mask.bit_count() for mask in demand.fixed]
    proved = True
    if demand.family is not None and demand.family.possible:
        least = fewest(demand.family, budget)
        if least is None:
            proved = False
            least = _thin_out(demand.family.domain, (demand.family,), 1).bit_count()
        counts.append(least)
    return min(counts, default=0), proved


def _fold(states: set[State], demand: Demand) -> set[State]:
    """Each state with each choice of one more demand: a mask named, no mask, or the family as a bin."""
    after: set[State] = set() if demand.optional is None else set(states)
    family = demand.family
    whole = family if family is not None and family.possible else None
    for domain, families in states:
        after.update((domain & mask, families) for mask in demand.fixed)
        if whole is not None:
            after.add((domain & whole.domain, (*families, whole)))
    # with one node left there is nothing to drop, and with none no candidate
    return {(domain, families if domain & (domain - 1) else ()) for domain, families in after if domain}


def _nearest(states: set[State], target: int, width: int, order: Order, budget: Budget) -> tuple[int, bool]:
    """The best mask of `target` nodes, else the most below it, else the fewest above it."""
    proved = True
    ordered = sorted(states, key=lambda state: (state[0], len(state[1])))
    below = [domain for domain, _ in ordered if domain.bit_count() < target]
    for size in range(max(target, 1), width + 1):
        found = []
        for domain, families in ordered:
            if domain.bit_count() >= size:
                mask, done = _split(domain, families, size, order, budget)
                proved &= done
                found.append(mask)
        if exact := [mask for mask in found if mask is not None and mask.bit_count() == size]:
            best = order.best(exact)
        elif size == target and below and (proved or not any(found)):
            best = order.closest_to(target, below)
        else:  # a mask of another size is a reachable one, taken when the budget ran out
            best = None if proved else order.closest_to(target, [mask for mask in found if mask])
        if best is not None:
            return best, proved
    raise AssertionError("a state's whole domain can always be kept")


def _split(
    domain: int, families: tuple[Family, ...], size: int, order: Order, budget: Budget
) -> tuple[int | None, bool]:
    """T5: the best mask of `size` nodes such that each other node of the domain is spared by one of the families."""
    if domain.bit_count() == size:
        return domain, True
    if not families:
        return None, True
    if order.distances is None:  # if one family spares all the highest nodes, nothing is smaller than the rest
        dropped = domain ^ (lowest := _lowest(domain, size))
        if any(_all_serve(family.needs, family.domain & ~dropped) for family in families):
            return lowest, True
    mask, proved = Search(domain, [Bin(family.needs, family.domain) for family in families], order, budget).run(size)
    if mask is None and not proved:
        mask = _thin_out(domain, families, size)
    return mask, proved


def _lowest(domain: int, size: int) -> int:
    """The lowest nodes of a domain."""
    return sum([1 << node for node in members(domain)[:size]])


def _all_serve(needs: tuple[Need, ...], mask: int) -> bool:
    return all([need.serves(mask) for need in needs])  # noqa: C419 - a short list beats a generator


def _thin_out(domain: int, families: Sequence[Family], size: int) -> int:
    """Drop nodes one by one, highest first, while some family spares them: reachable, if not as small as `size`."""
    own = [family.domain for family in families]
    for node in reversed(members(domain)):
        if domain.bit_count() <= size:
            break
        for b, family in enumerate(families):
            if all(need.serves(own[b] & ~(1 << node)) for need in family.needs):
                own[b] &= ~(1 << node)
                domain &= ~(1 << node)
                break
    return domain
