"""The search, on inputs where one wrong rule in it gives another mask. Random tests meet such inputs too rarely."""

from __future__ import annotations

import pytest

from agent.core.merge.demand import Budget, Demand, Family, Need, Positions, listed
from agent.core.merge.merge import merge_answers
from agent.core.merge.order import Order
from agent.core.merge.provider import Answer
from agent.core.merge.search import Bin, Search
from agent.model.hint import IMPOSSIBLE
from agent.model.idset import NodeSet
from agent.model.rules import Policy, TopologyRules
from tests.property.merge_cases import NEVER, Listed, by_product

FLAT = [[10, 20, 20], [20, 10, 20], [20, 20, 10]]
LOPSIDED = [[10, 20, 12, 11], [12, 10, 12, 12], [12, 20, 10, 12], [12, 11, 11, 10]]
NEAR_LAST = [[10, 12, 11], [20, 10, 11], [20, 11, 10]]
SHARING = Demand(Family(0b111, (Need(2, (0, 0, 0), ((0b111, 1), (0b110, 3))),)), size=1)


@pytest.mark.parametrize(
    ("demands", "distances", "hopeless", "expected"),
    [
        pytest.param(
            [
                Demand(Family(0b111, (Need(0, (0, 0, 1)), Need(4, (0, 5, 0)))), 1),
                Demand(Family(0b111, (Need(10, (8, 8, 20)),)), 1, fixed={0b110: True}),
            ],
            FLAT,
            True,
            0b001,
            id="of equal distances the smaller integer still counts",
        ),
        pytest.param(
            [Demand(Family(0b1111, (Need(1, (0, 2, 0, 0)), Need(1, (3, 0, 1, 2)))), 2)],
            LOPSIDED,
            False,
            0b1010,
            id="cut by the best mask is not failed",
        ),
        pytest.param(
            [Demand(Family(0b111, (Need(3, (2, 2, 2)),)), 2)],
            NEAR_LAST,
            True,
            0b110,
            id="equal weights at other distances are no twins",
        ),
        pytest.param([SHARING, SHARING], FLAT, True, 0b001, id="bins with shared amounts differ by what is gone"),
    ],
)
def test_one_wrong_rule_would_show(
    *, demands: list[Demand], distances: list[list[int]], hopeless: bool, expected: int
) -> None:
    """Each mask was found by listing all hints, and is not what the search gives without the rule named."""
    positions = Positions.of(range(len(distances)))
    lists: list[Listed] = [
        [(hint.nodes.bits, hint.preferred) for hint in listed(demand, positions) if hint.nodes] for demand in demands
    ]
    order = Order(distances)
    wanted = by_product([*lists, NEVER] if hopeless else lists, positions.everything, distances)
    said: list[Answer] = [{"r": demand} for demand in demands]
    rules = TopologyRules(Policy.BEST_EFFORT, prefer_closest=True)
    merged = merge_answers([*said, {"r": IMPOSSIBLE}] if hopeless else said, positions, rules, order)
    assert wanted[0] == expected
    assert merged.exact
    assert (merged.hint.nodes, merged.hint.preferred) == (NodeSet(expected), wanted[1])


def test_twins_are_interchangeable_nodes_only() -> None:
    """Order.twins: same distances to all others and to themselves, in both directions together."""
    near = [[10 if a == b else 12 if a // 2 == b // 2 else 20 for b in range(6)] for a in range(6)]
    assert Order(near).twins == (0, 0, 2, 2, 4, 4)
    near[5][5] = 11
    assert Order(near).twins == (0, 0, 2, 2, 4, 5)
    near[0][3] = 21
    assert Order(near).twins == (0, 1, 2, 3, 4, 5)


def test_without_bins_nothing_can_be_dropped() -> None:
    """The whole domain, or nothing."""
    search = Search(0b101, (), Order(), Budget())
    assert search.run(2) == (0b101, True)
    assert search.run(1) == (None, True)


def test_a_bin_that_does_not_serve_at_first_has_no_mask() -> None:
    """However many nodes are kept."""
    search = Search(0b11, (Bin((Need(3, (1, 1)),), 0b11),), Order(), Budget())
    assert [search.run(count) for count in (1, 2)] == [(None, True)] * 2


def test_limits_hold_for_the_mask_found() -> None:
    """align-by-socket: of four nodes in two sockets, exactly one is touched, even by a larger integer."""
    need = Need(4, (1, 3, 2, 2))
    plain = Search(0b1111, (Bin((need,), 0b1111),), Order(), Budget())
    assert plain.run(2) == (0b0011, True)
    other = Search(0b1111, (Bin((need,), 0b1111),), Order(), Budget(), (((0b0101, 0b1010), 1),))
    assert other.run(2) == (0b1010, True)


def test_regular_machines_need_a_few_steps_for_each_node() -> None:
    """Twins and remembered failures: 128 equal nodes in groups of 4, 40 of them wanted, with distances."""
    width = 128
    near = [[10 if a == b else 12 if a // 4 == b // 4 else 20 for b in range(width)] for a in range(width)]
    budget = Budget()
    need = Need(40 * 8, (8,) * width)
    mask, proved = Search((1 << width) - 1, (Bin((need,), (1 << width) - 1),), Order(near), budget).run(40)
    assert (mask, proved) == ((1 << 40) - 1, True)
    assert Budget().left - budget.left < 20 * width


def test_an_amount_that_no_drop_can_cost_is_not_searched_for() -> None:
    """Devices near a node outside the domain stay whatever is dropped: one step finds the mask, where each counts."""
    needs = (Need(9, (1, 3, 2, 3, 3), ((0b10010, 3),)), Need(9, (3, 2, 3, 1, 3), ((0b01010, 2),)))
    assert Search(0b00111, [Bin(needs, 0b11111)], Order(), Budget(1)).run(1) == (0b00001, True)


@pytest.mark.parametrize(
    "bins",
    [
        pytest.param(
            (Bin((Need(2, (1, 3, 0)), Need(4, (3, 2, 3))), 0b111),), id="of one bin, each sum alone shows it"
        ),
        pytest.param(
            (Bin((Need(6, (3, 3, 2)),), 0b111), Bin((Need(5, (2, 3, 1)),), 0b111)),
            id="of several, all sums in one price: to spare one counts as much as to spare many",
        ),
    ],
)
def test_what_cannot_be_is_told_at_once(bins: tuple[Bin, ...]) -> None:
    """To walk the nodes first gives the same answer, and on many nodes spends all steps: it would not be proved."""
    budget = Budget()
    assert Search(0b111, bins, Order(), budget).run(1) == (None, True)
    assert Budget().left - budget.left == 1


def test_of_two_bins_that_can_spare_as_much_both_are_tried() -> None:
    """They pay differently for what comes next: only if the second drops the one node can the first drop the other.

    To ask the first alone answers a larger mask, so that a pod is put on other nodes than the kubelet's rules say.
    """
    bins = (Bin((Need(1, (0, 1, 1)),), 0b111), Bin((Need(3, (1, 2, 1)),), 0b111))
    assert Search(0b111, bins, Order(), Budget()).run(1) == (0b001, True)


def test_no_nodes_are_no_set_of_nodes() -> None:
    """Where nothing is needed every node will do, and none at all still will not: no pod is sent to no node."""
    assert not Family(0, ()).possible
    assert not Family(0b11, (Need(0, (1, 1)),)).holds(0)
