"""The merge of listed hints, as a reference: the kubelet's answer without walking the product of the lists.

`agent.core.merge.merge` never lists anything; words and theorems T0 to T8 are in that module, and T0 to T4 carry this
one. T3, ANDs by counting: let g_i(m) be how many masks of list i contain m. The product of all g_i(m) counts the
choices whose AND contains m; Moebius inversion over supersets leaves those whose AND is m.

Cost: with k lists of at most 2^n masks, reading them, then nothing but set intersections where a mask is preferred by
all (T1); else at most about (k + 1) n big-integer steps over 2^n lanes (T3). The product has up to 2^(n k) members.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from operator import mul

from agent.core.merge.demand import Demand
from agent.core.merge.masks import Positions
from agent.core.merge.merge import Merged, merge_answers
from agent.core.merge.order import Order
from agent.core.merge.provider import Answer, Offer
from agent.model.hint import IMPOSSIBLE, NO_PREFERENCE, Hint, Stance
from agent.model.rules import Policy, TopologyRules

Listed = Collection[tuple[int | None, bool]]
"""One resource's hints: (mask over positions, or None for any placement; preferred)."""

Given = Answer | Mapping[str, Offer | tuple[Hint, ...]]
"""An answer some of whose offers are lists of hints."""
ANY: Listed = ((None, True),)
NEVER: Listed = ((None, False),)
"""What the kubelet puts in for "no preference" and for an empty list (kubelet rule 3.3)."""

COUNTABLE = 16  # nodes; a lane of 16 bits counts at most 2^16 - 1 non-zero masks
SETS_ARE_CHEAPER = 8  # pairs of masks that cost as much as one lane of the counting


def merge_as_kubelet(
    answers: Iterable[Given], positions: Positions, rules: TopologyRules,
    order: Order,
) -> Merged:  # fmt: skip
    """The agent's merge of hints, and with a refusal under restricted the node set that the kubelet names.

    The agent looks for no node set that would be refused; best-effort merges the same lists.
    """
    offers = [offered(each, positions) for each in answers]
    merged = merge_answers(offers, positions, rules, order)
    if merged.admit or rules.policy is not Policy.RESTRICTED:
        return merged
    return replace(merge_answers(offers, positions, replace(rules, policy=Policy.BEST_EFFORT), order), admit=False)


def offered(answer: Given, positions: Positions) -> Answer:
    """The answer as a provider says it."""
    if isinstance(answer, Stance):
        return answer
    return {name: offer_of(each, positions) if isinstance(each, tuple) else each for name, each in answer.items()}


def offer_of(hints: Iterable[Hint], positions: Positions) -> Offer:
    """A kubelet's list of hints as a provider says it: masks one by one."""
    fixed, free = dict[int, bool](), list[bool]()
    for hint in hints:
        if hint.nodes is None:
            free.append(hint.preferred)
        else:
            mask = positions.mask(hint.nodes)
            fixed[mask] = hint.preferred or fixed.get(mask, False)
    if not fixed:
        return NO_PREFERENCE if any(free) else IMPOSSIBLE
    return Demand(fixed=fixed, optional=any(free) if free else None)


def merge_lists(lists: Sequence[Listed], everything: int, order: Order, *, single: bool = False) -> tuple[int, bool]:
    """Merge hint lists as the kubelet does: (mask, preferred).

    Args:
        lists: one per resource, `ANY` and `NEVER` included.
        everything: the mask of all nodes, dense: 2^n - 1.
        order: with distances only for prefer-closest-numa-nodes.
        single: policy single-numa-node; lists are filtered, distances ignored (kubelet rules 3.3, 3.5).
    """
    if single:
        lists, order = [single_nodes(hints) for hints in lists], Order()
    best = order.best(common_preferred(lists, everything))
    if best is not None:
        return best, True
    if single:
        return everything, False  # T4: different single nodes have no node in common
    reached = and_product(
        [{everything if m is None else m & everything for m, _ in hints} for hints in lists], everything
    )
    return order.closest_to(least_count(lists), reached) or everything, False


def single_nodes(hints: Listed) -> Listed:
    """What policy single-numa-node leaves of a list."""
    return [(m, preferred) for m, preferred in hints if preferred and (m is None or m.bit_count() == 1)]


def least_count(lists: Iterable[Listed]) -> int:
    """B of rule 3.5: the largest of the lists' fewest node counts, before nodes that do not exist are dropped."""
    least = (min((m.bit_count() for m, _ in hints if m is not None), default=0) for hints in lists)
    return max(least, default=0)


def common_preferred(lists: Iterable[Listed], everything: int) -> set[int]:
    """All non-zero masks that the merge can call preferred (T1).

    Hints are compared as they are, before AND with the machine's nodes.
    """
    common: set[int | None] | None = None
    optional: set[int | None] = {everything}  # where every list would also do without a mask
    for hints in lists:
        masks = {mask for mask, preferred in hints if preferred}
        if None in masks:
            optional |= masks
            continue
        common = masks if common is None else common & masks
        if not common:
            return set()
    found = {mask & everything for mask in (optional if common is None else common) if mask is not None}
    found.discard(0)
    return found


def and_product(families: Sequence[Collection[int]], everything: int) -> Collection[int]:
    """All non-zero ANDs of one mask of each family. Pair by pair while that is cheap, else by counting (T3)."""
    reached = {everything}
    affordable = SETS_ARE_CHEAPER << everything.bit_count()
    for done, family in enumerate(families):
        if len(reached) * len(family) > affordable and everything.bit_count() <= COUNTABLE:
            return _and_product_by_counting([reached, *families[done:]], everything.bit_count())
        reached = {a & b for a in reached for b in family}
        reached.discard(0)
    return reached


def _and_product_by_counting(families: Sequence[Collection[int]], width: int) -> list[int]:
    """T3 on whole tables at once: one int holds a counter for each of the 2^n masks.

    Lanes never carry: 16 bits hold the 2^16 - 1 masks of one family, 64 bits hold the number of choices; before that
    could pass 2^63 the counts are cut back to 0 and 1. They never borrow: a part of a superset sum is never larger.
    """
    size = 1 << width
    product: Sequence[int] | None = None
    choices = 1
    for family in families:
        if product is not None and choices * len(family) >= 1 << 63:
            cut = array("H", [count > 0 for count in _exact_counts(product, width)])
            product, choices = _superset_sums(cut, width), size
        lanes = array("H", bytes(2 * size))
        for mask in family:
            lanes[mask] = 1
        lanes[0] = 0
        sums = _superset_sums(lanes, width)
        product = sums if product is None else list(map(mul, product, sums))
        choices *= len(family)
    counts = _exact_counts(product or (), width)
    return [mask for mask in range(1, size) if counts[mask]]


def _superset_sums(lanes: array[int], width: int) -> array[int]:
    """For each mask the sum over all masks that contain it."""
    packed = _pack(lanes)
    for j in range(width):
        packed += (packed >> (16 << j)) & _lanes_without(j, 16, width)
    return _unpack(packed, "H", width)


def _exact_counts(sums: Sequence[int], width: int) -> array[int]:
    """The inverse of superset sums (Moebius inversion)."""
    packed = _pack(array("Q", sums))
    for j in range(width):
        packed -= (packed >> (64 << j)) & _lanes_without(j, 64, width)
    return _unpack(packed, "Q", width)


@lru_cache(maxsize=256)
def _lanes_without(bit: int, lane: int, width: int) -> int:
    """All bits of the lanes whose mask lacks one position."""
    block = (1 << (lane << bit)) - 1
    for level in range(bit + 1, width):
        block |= block << (lane << level)
    return block


def _pack(lanes: array[int]) -> int:
    if sys.byteorder == "big":
        lanes = lanes[:]
        lanes.byteswap()
    return int.from_bytes(lanes.tobytes(), "little")


def _unpack(packed: int, code: str, width: int) -> array[int]:
    lanes = array(code)
    lanes.frombytes(packed.to_bytes(lanes.itemsize << width, "little"))
    if sys.byteorder == "big":
        lanes.byteswap()
    return lanes
