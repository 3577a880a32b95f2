"""The merge of listed hints, with which the agent's is compared: the kubelet's own way."""

from __future__ import annotations

from functools import reduce
from itertools import product
from math import prod
from operator import and_
from random import Random

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from agent.core.merge.order import Order
from tests.examples import examples
from tests.property import merge_cases

MOST = 3_000  # permutations that are walked


@settings(max_examples=examples(200), deadline=None)
@given(r=st.randoms(use_true_random=False), width=st.integers(1, 6))
def test_the_candidates_are_those_of_the_product(*, r: Random, width: int) -> None:
    """Empty masks, missing nodes, hints without nodes, repeated lists: what all permutations come to, one by one."""
    some, everything = merge_cases.lists(r, width), (1 << width) - 1
    assume(prod(map(len, some)) <= MOST)
    walked = set()
    for permutation in product(*some):
        masks = [mask for mask, _ in permutation if mask is not None]
        preferred = all(p for _, p in permutation) and len(set(masks)) <= 1
        walked.add((reduce(and_, masks, everything), preferred))
    assert merge_cases.candidates(some, everything) == walked


@settings(max_examples=examples(100), deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 8))
def test_order_does_not_matter(r: Random, width: int) -> None:
    """T0: hints in any order within a list, lists in any order, a hint said twice."""
    some = merge_cases.lists(r, width)
    table = merge_cases.distances(r, width) if r.random() < 0.5 else None
    everything = (1 << width) - 1
    shuffled = [r.sample([*hints, r.choice(hints)], len(hints) + 1) for hints in some]
    r.shuffle(shuffled)
    assert merge_cases.by_product(shuffled, everything, table) == merge_cases.by_product(some, everything, table)


@settings(max_examples=examples(100), deadline=None)
@given(st.randoms(use_true_random=False), st.integers(2, 8))
def test_integer_spreads_compare_like_the_kubelets_averages(r: Random, width: int) -> None:
    """Order.spread against the float64 average, for every pair of sets of one size."""
    table = [[r.randint(10, 255) for _ in range(width)] for _ in range(width)]
    order = Order(table)
    masks = [mask for mask in range(1, 1 << width) if mask.bit_count() == r.randint(1, width)]
    for mask in masks:
        for other in masks:
            if mask.bit_count() == other.bit_count():
                floats = merge_cases.average(mask, table) < merge_cases.average(other, table)
                assert (order.spread(mask) < order.spread(other)) == floats
