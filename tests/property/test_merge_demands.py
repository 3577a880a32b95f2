"""The merge of described hints against that of the same hints, listed."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from agent.core.merge.demand import Budget, Demand, Family, Need, fewest
from agent.core.merge.masks import Positions
from agent.core.merge.merge import merge_answers
from agent.core.merge.order import Order
from agent.core.merge.provider import Answer
from agent.model.hint import IMPOSSIBLE, Hint
from agent.model.rules import Policy, TopologyRules
from tests.examples import examples
from tests.parity.merge import offer_of
from tests.property import merge_cases
from tests.property.merge_cases import Case, Listed, by_product

CASES = st.randoms(use_true_random=False)


def answers_of(one: Case) -> list[Answer]:
    """The case as providers would say it."""
    offers: list[Answer] = [{"r": demand} for demand in one.demands]
    return [*offers, {"r": IMPOSSIBLE}] if one.hopeless else offers


def merge(one: Case, policy: Policy, steps: int = 20_000) -> tuple[int | None, bool, bool]:
    """(mask, preferred, exact), all nodes for any."""
    positions = Positions(tuple(range(one.width)))
    rules = TopologyRules(policy, prefer_closest=one.distances is not None)
    merged = merge_answers(answers_of(one), positions, rules, Order(one.distances), budget=Budget(steps))
    assert merged.admit == (merged.hint.preferred or policy is Policy.BEST_EFFORT)
    mask = None if merged.hint.nodes is None else positions.mask(merged.hint.nodes)
    return mask, merged.hint.preferred, merged.exact


@settings(max_examples=examples(200), deadline=None)
@given(CASES)
def test_described_equals_listed(r: Random) -> None:
    """Tight families, repeated lists, shared amounts, named masks, sockets, distances: all three policies."""
    one = merge_cases.case(r)
    expected = by_product(one.lists(), one.everything, one.distances)
    assert merge(one, Policy.BEST_EFFORT) == (*expected, True)
    refused = (None, False, True)
    assert merge(one, Policy.RESTRICTED) == ((*expected, True) if expected[1] else refused)
    node, preferred = by_product(one.lists(), one.everything, one.distances, single=True)
    assert merge(one, Policy.SINGLE_NUMA_NODE) == (None if node == one.everything else node, preferred, True)


@settings(max_examples=examples(100), deadline=None)
@given(CASES)
def test_the_order_of_providers_and_mixing_in_lists_change_nothing(r: Random) -> None:
    """T0: answers in any order, some of them listed instead of described."""
    one = merge_cases.case(r, widest=6)
    positions = Positions(tuple(range(one.width)))
    rules = TopologyRules(Policy.BEST_EFFORT, prefer_closest=one.distances is not None)
    said: list[Answer] = [
        {"r": offer_of(_listed(demand, positions), positions) if r.random() < 0.5 else demand}
        for demand in one.demands
    ]
    if one.hopeless:
        said.append({"r": IMPOSSIBLE})
    r.shuffle(said)
    order = Order(one.distances)
    assert merge_answers(said, positions, rules, order) == merge_answers(answers_of(one), positions, rules, order)


@settings(max_examples=examples(150), deadline=None)
@given(CASES, st.sampled_from([0, 1, 2, 3, 5, 8, 13]))
def test_a_tiny_budget_never_gives_a_wrong_mask(r: Random, steps: int) -> None:
    """What the docstring of agent.core.merge.merge promises of an answer that is not exact."""
    one = merge_cases.case(r)
    lists = one.lists()
    expected = by_product(lists, one.everything, one.distances)
    mask, preferred, exact = merge(one, Policy.BEST_EFFORT, steps)
    assert merge(one, Policy.BEST_EFFORT, steps) == (mask, preferred, exact)
    if exact:
        assert (mask, preferred) == expected
    elif preferred:
        assert expected[1]
        assert all((mask, True) in hints for hints in lists)
        if all(_regular(demand) for demand in one.demands):
            assert mask is not None
            assert mask.bit_count() == expected[0].bit_count()
    else:
        assert mask in (_reachable(lists, one.everything) or {one.everything})


@settings(max_examples=examples(100), deadline=None)
@given(CASES)
def test_fewest_is_the_smallest_mask(r: Random) -> None:
    """Against all masks of the family; a budget that ends early says so and nothing else."""
    one = merge_cases.case(r)
    for demand in one.demands:
        if demand.family is not None:
            counts = [mask.bit_count() for mask in range(1, 1 << one.width) if demand.family.holds(mask)]
            assert fewest(demand.family, Budget()) == min(counts, default=0)
            assert fewest(demand.family, Budget(1)) in (None, min(counts, default=0))


@settings(max_examples=examples(100), deadline=None)
@given(CASES)
def test_families_are_closed_upward(r: Random) -> None:
    """T7 rests on it: with a mask, every larger one within the domain is in the family."""
    one = merge_cases.case(r, widest=6)
    for family in (demand.family for demand in one.demands):
        if family is not None:
            for mask in filter(family.holds, range(1, 1 << one.width)):
                assert all(family.holds(mask | 1 << j) for j in range(one.width) if family.domain >> j & 1)


@settings(max_examples=examples(50), deadline=None)
@given(CASES)
def test_the_reasons_change_no_answer(r: Random) -> None:
    """Tracing searches on a budget of its own, and its best mask is best-effort's answer."""
    one = merge_cases.case(r, widest=5)
    positions = Positions(tuple(range(one.width)))
    order = Order(one.distances)
    for policy in (Policy.BEST_EFFORT, Policy.RESTRICTED, Policy.SINGLE_NUMA_NODE):
        rules = TopologyRules(policy, prefer_closest=one.distances is not None)
        told: list[object] = []
        merged = merge_answers(answers_of(one), positions, rules, order, trace=told.append)
        assert merged == merge_answers(answers_of(one), positions, rules, order)
        assert len(told) == 1


def _listed(demand: Demand, positions: Positions) -> tuple[Hint, ...]:
    hints = merge_cases.list_out(demand, len(positions))
    return tuple(Hint(None if mask is None else positions.nodes(mask), preferred) for mask, preferred in hints)


def _regular(demand: Demand) -> bool:
    """No sockets, and no preferred mask named besides a family of another count."""
    if demand.family is None:
        return True
    return not demand.sockets and all(
        m.bit_count() == demand.size for m, preferred in demand.fixed.items() if preferred
    )


def _reachable(lists: list[Listed], everything: int) -> set[int]:
    reached = {everything}
    for hints in lists:
        reached = {a & (everything if mask is None else mask) for a in reached for mask, _ in hints}
    return reached - {0}


def test_a_family_twice_is_searched_with_two_bins() -> None:
    """The same family object in two lists is two bins, not one (the states of the fold keep both)."""
    family = Family(0b1111, (Need(3, (1, 1, 2, 2)),))
    once = Case(4, (Demand(family, 1),), hopeless=False, distances=None)
    twice = replace(once, demands=(Demand(family, 1), Demand(family, 1)))
    assert merge(once, Policy.BEST_EFFORT)[0] == 0b0101
    assert merge(twice, Policy.BEST_EFFORT)[0] == 0b0011
