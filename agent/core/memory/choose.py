"""Which nodes a container's memory goes to, given the merged affinity.

Kubelet rules 5.5 (default and extension of the affinity) and 5.6 (allocation).

Used by `agent.core.memory.provider` and `agent.core.memory.pods`. Without an affinity the best of the hints is
taken; an affinity that is too small is extended to the best hint that contains it. The kubelet's sentences are kept
verbatim; `agent.core.admission.node` puts "Allocate failed due to ..., which is unexpected" around those of
Reason.UNEXPECTED.
"""

from __future__ import annotations

from agent.core.memory.hints import Placement
from agent.core.merge.demand import Demand
from agent.core.merge.masks import Positions, members
from agent.core.merge.merge import merge_answers
from agent.core.merge.needs import Family, Need
from agent.core.merge.order import Order
from agent.model.hint import Hint
from agent.model.outcome import Reason, Refusal
from agent.model.rules import Policy, TopologyRules

NO_DEFAULT = "[memorymanager] failed to get the default NUMA affinity, no NUMA nodes with enough memory is available"
DEFAULT_NOT_PREFERRED = "[memorymanager] failed to find the default preferred hint"
NO_EXTENSION = "[memorymanager] failed to find NUMA nodes to extend the current topology hint"
EXTENSION_NOT_PREFERRED = "[memorymanager] failed to find the extended preferred hint"
BREAKS_GROUP = "[memorymanager] preferred hint violates NUMA node allocation"

_BEST = TopologyRules(policy=Policy.BEST_EFFORT)
_PLAIN = Order()


def unexpected(message: str) -> Refusal:
    """A refusal in the memory manager's own words."""
    return Refusal(Reason.UNEXPECTED, message)


def choose_as_kubelet(placement: Placement, affinity: Hint, positions: Positions) -> int | Refusal:
    """The mask to allocate on, by the kubelet's steps, two defects included.

    D5: one node of a group is granted alone. D7: "no memory fits" is said as "no preference".
    """
    table, preferred = placement.table, affinity.preferred
    if affinity.nodes is None:
        best = _best(placement.demand() if table.request else None, positions)
        if best is None:
            return unexpected(NO_DEFAULT)
        mask, good = best
        if preferred and not good:
            return unexpected(DEFAULT_NOT_PREFERRED)
        preferred = good
    else:
        mask = positions.mask(affinity.nodes)
    if not table.fits(mask, reuse=False):
        best = _best(_containing(placement.demand(), mask, positions), positions)
        if best is None:
            return unexpected(NO_EXTENSION)
        mask, good = best
        if preferred and not good:
            return unexpected(EXTENSION_NOT_PREFERRED)
    return unexpected(BREAKS_GROUP) if table.breaks_group(mask) else mask


def choose(placement: Placement, affinity: Hint, positions: Positions) -> int | Refusal:
    """The mask to allocate on, one that the placement accepts.

    As the kubelet, with these mends. A mask that the group rule forbids is extended as one that is too small is, so
    that no node of a group is granted alone (defect D5).
    Nothing fits anywhere: a reason of its own, not "no preference" (D7). An affinity that is not preferred, so
        best-effort or none, gives
    way: rather than refuse the pod, the best nodes within the affinity are taken, else the best there are.
    """
    if affinity.nodes is not None:
        wanted = positions.mask(affinity.nodes) & placement.domain
        if placement.accepts(wanted):
            return wanted
    else:
        wanted = 0
    demand = placement.demand()
    if demand is None:
        return _nowhere(placement)
    best = _best(_containing(demand, wanted, positions), positions)
    if best is not None and (best[1] or not affinity.preferred):
        return best[0]
    if affinity.preferred:
        return unexpected(_why_not(placement, wanted, found=best is not None))
    best = _best(_within(demand, wanted), positions) or _best(demand, positions)
    return best[0] if best else _nowhere(placement)


def _why_not(placement: Placement, wanted: int, *, found: bool) -> str:
    if not wanted:
        return DEFAULT_NOT_PREFERRED
    if found:
        return EXTENSION_NOT_PREFERRED
    return NO_EXTENSION if not placement.table.fits(wanted) else BREAKS_GROUP


def _nowhere(placement: Placement) -> Refusal:
    request = placement.table.request
    asked = ", ".join(f"{amount} bytes of {name}" for name, amount in request.items())
    free = {name: sum(max(0, each) for each in amounts) for name, amounts in placement.table.free.items()}
    message = f"no set of NUMA nodes has {asked} free under the rules for groups of nodes"
    return Refusal(Reason.MEMORY, message, facts={"requested": dict(request), "free": free})


def _best(demand: Demand | None, positions: Positions) -> tuple[int, bool] | None:
    """The narrowest of the preferred masks, else of all: what best-effort makes of a single list (rule 5.5)."""
    if demand is None:
        return None
    hint = merge_answers([{"memory": demand}], positions, _BEST, _PLAIN).hint
    return (positions.mask(hint.nodes), hint.preferred) if hint.nodes else None


def _containing(demand: Demand | None, wanted: int, positions: Positions) -> Demand | None:
    """The masks of a demand that contain all nodes of another mask."""
    if demand is None or not wanted:
        return demand
    family = demand.family
    if family is not None:
        every = range(len(positions))
        present = tuple(Need(1, tuple(int(j == node) for j in every)) for node in members(wanted))
        family = None if wanted & ~family.domain else Family(family.domain, (*family.needs, *present))
    fixed = {mask: preferred for mask, preferred in demand.fixed.items() if not wanted & ~mask}
    return _unless_empty(demand, family, fixed)


def _within(demand: Demand, wanted: int) -> Demand | None:
    """The masks of a demand that lie within another mask."""
    family = Family(demand.family.domain & wanted, demand.family.needs) if demand.family is not None else None
    fixed = {mask: preferred for mask, preferred in demand.fixed.items() if not mask & ~wanted}
    return _unless_empty(demand, family, fixed)


def _unless_empty(demand: Demand, family: Family | None, fixed: dict[int, bool]) -> Demand | None:
    if family is not None and not family.possible:
        family = None
    return Demand(family, demand.size, fixed) if family is not None or fixed else None
