"""The merge against the facts of kubelet rules 3.5 (which combination is best) and 3.7 (examples), said by hints."""

from __future__ import annotations

import pytest

from agent.core.merge.demand import Demand, Family, Need
from agent.core.merge.masks import Positions
from agent.core.merge.merge import Merged
from agent.core.merge.order import Order
from agent.core.merge.provider import Answer
from agent.model.hint import ANY_NODES, IMPOSSIBLE, NO_PREFERENCE, Hint, Stance
from agent.model.idset import NodeSet
from agent.model.rules import Policy, TopologyRules
from tests.parity.merge import Given, merge_as_kubelet
from tests.property.merge_cases import Listed, goal

FOUR = [[10, 11, 12, 12], [11, 10, 12, 12], [12, 12, 10, 11], [12, 12, 11, 10]]
NOTHING: Answer = Stance.NO_PREFERENCE


def hints(text: str) -> tuple[Hint, ...]:
    """Hints written as in the specification: "01p 2n" is {0,1} preferred, {2} not; "*p" names no nodes."""
    return tuple(
        Hint(None if each[:-1] == "*" else NodeSet.of(*map(int, each[:-1])), each[-1] == "p") for each in text.split()
    )


def merge(
    nodes: int,
    policy: str,
    *given: Given,
    closest: bool = False,
    distances: list[list[int]] | None = None,
) -> Merged:
    """Merge on a machine of some nodes."""
    positions = Positions.of(range(nodes))
    return merge_as_kubelet(given, positions, TopologyRules(Policy(policy), prefer_closest=closest), Order(distances))


def shown(merged: Merged) -> str:
    """The answer as the specification writes it."""
    nodes = "*" if merged.hint.nodes is None else "".join(map(str, merged.hint.nodes))
    return f"{nodes}{'p' if merged.hint.preferred else 'n'} {'admit' if merged.admit else 'refuse'}"


@pytest.mark.parametrize(
    ("nodes", "answers", "best_effort", "restricted", "single"),
    [
        (2, [NOTHING, {}, {"r": NO_PREFERENCE}], "01p admit", "01p admit", "*p admit"),
        (2, [{"cpu": IMPOSSIBLE}], "01n admit", "01n refuse", "*n refuse"),
        (2, [{"gpu": ()}, {"cpu": hints("0p 1p")}], "0n admit", "0n refuse", "*n refuse"),
        (2, [{"cpu": hints("0p 1p 01n")}, {"gpu": hints("1p 01n")}], "1p admit", "1p admit", "1p admit"),
        (2, [{"cpu": hints("0p 1p 01n")}, {"memory": hints("01n")}], "01n admit", "01n refuse", "*n refuse"),
        (2, [{"cpu": hints("01p")}], "01p admit", "01p admit", "*n refuse"),
        (2, [{"cpu": hints("01n")}, {"gpu": hints("1p")}], "1n admit", "1n refuse", "*n refuse"),
        (4, [{"r1": hints("0123n 01n"), "r2": hints("12n 23n")}], "12n admit", "12n refuse", "*n refuse"),
        (8, [{"r1": hints("4p 02p"), "r2": hints("4p 02p")}], "4p admit", "4p admit", "4p admit"),
        (1, [{"cpu": hints("0p")}], "0p admit", "0p admit", "*p admit"),
    ],
)
def test_worked_examples_of_the_specification(
    nodes: int,
    answers: list[Given],
    best_effort: str,
    restricted: str,
    single: str,
) -> None:
    """Kubelet rule 3.7, each row under three policies."""
    policies = ("best-effort", "restricted", "single-numa-node")
    assert tuple(shown(merge(nodes, p, *answers)) for p in policies) == (best_effort, restricted, single)


def test_policy_none_stores_nothing_and_admits() -> None:
    """Policy none admits (kubelet rule 3.6), whatever is offered, even the impossible."""
    assert merge(2, "none", {"cpu": IMPOSSIBLE}) == Merged(ANY_NODES, admit=True)


@pytest.mark.parametrize(
    ("goal", "current", "candidate", "winner"),
    [
        (1, "01", "12", "01"),
        (2, "01", "0", "01"),
        (2, "0", "012", "0"),
        (2, "0", "01", "01"),
        (4, "01", "123", "123"),
        (4, "123", "01", "123"),
        (4, "123", "012", "012"),
    ],
)
def test_of_two_candidates_that_are_not_preferred(goal: int, current: str, candidate: str, winner: str) -> None:
    """The `compare` facts of kubelet rule 3.7, in both orders: T0 says that order does not matter."""
    masks = [sum(1 << int(node) for node in text) for text in (current, candidate)]
    expected = sum(1 << int(node) for node in winner)
    assert Order().closest_to(goal, masks) == Order().closest_to(goal, masks[::-1]) == expected


def test_the_goal_is_the_largest_of_the_smallest_counts() -> None:
    """The B facts of kubelet rule 3.7; lists without masks do not count."""
    lists: list[Listed] = [[(0b11, False), (0b111, False)], [(0b111, True), (0b1111, False)], [(None, True)]]
    assert goal(lists) == 3
    assert goal([]) == 0


def test_average_distances_decide_between_equal_counts() -> None:
    """The distance facts of kubelet rule 3.7: {2,3} is closer than {0,2}, which is the smaller integer."""
    order = Order(FOUR)
    assert order.spread(0b0001) / 1 == 10
    assert order.spread(0b0101) / 4 == 11
    assert order.spread(0b1101) / 9 == pytest.approx(11.111, abs=0.001)
    cpu = {"cpu": hints("02p 03p 12p 23p")}
    assert shown(merge(4, "best-effort", cpu, closest=True, distances=FOUR)) == "23p admit"
    assert shown(merge(4, "best-effort", cpu, closest=False, distances=FOUR)) == "02p admit"


def test_single_numa_node_ignores_distances() -> None:
    """Kubelet rule 3.5: a node that is nearer to itself does not win."""
    table = [[20, 20], [20, 10]]
    offer = {"cpu": hints("0p 1p")}
    assert shown(merge(2, "single-numa-node", offer, closest=True, distances=table)) == "0p admit"
    assert shown(merge(2, "best-effort", offer, closest=True, distances=table)) == "1p admit"


def test_d12_distances_go_by_position() -> None:
    """What compares node sets is never told an id: it is given positions, which index the rows."""
    assert [Positions.of([5, 1, 9]).mask(NodeSet.of(each)) for each in (1, 5, 9)] == [0b1, 0b10, 0b100]
    order = Order([[10, 40, 20], [40, 10, 30], [20, 30, 10]])
    assert [order.spread(mask) for mask in (0b11, 0b101, 0b110)] == [100, 60, 80]
    assert order.best([0b11, 0b101, 0b110]) == 0b101


def test_raw_masks_are_compared_before_missing_nodes_are_dropped() -> None:
    """{0,9} and {0,8} both become {0} on two nodes, and are still not the same preferred mask (pitfall 3, T1)."""
    assert shown(merge(2, "restricted", {"a": hints("09p")}, {"b": hints("08p")})) == "0n refuse"
    assert shown(merge(2, "restricted", {"a": hints("09p")}, {"b": hints("09p")})) == "0p admit"


def test_missing_nodes_count_for_the_goal() -> None:
    """B is taken from raw masks: {0,9} has two nodes, so {1,2} meets B exactly and {0} does not (pitfall 3)."""
    assert shown(merge(3, "best-effort", {"a": hints("09n 12n")})) == "12n admit"


def test_a_goal_above_the_machine_is_met_as_far_as_it_goes() -> None:
    """B counts nodes that the machine lacks, and can so be more than it has: the widest mask is the nearest."""
    for impossible in ({"gpu": IMPOSSIBLE}, {"gpu": hints("0n")}):
        assert shown(merge(1, "best-effort", {"cpu": hints("09p")}, impossible)) == "0n admit"
    assert shown(merge(2, "best-effort", {"cpu": hints("0n 0189n")}, {"gpu": hints("189n 01n")})) == "01n admit"


def test_an_empty_list_is_not_the_same_as_no_list() -> None:
    """Pitfall 5: both constrain no mask, but nothing can be preferred beside an impossible resource."""
    assert shown(merge(2, "restricted", {"cpu": hints("0p")}, {"gpu": NO_PREFERENCE})) == "0p admit"
    assert shown(merge(2, "restricted", {"cpu": hints("0p")}, {"gpu": IMPOSSIBLE})) == "0n refuse"


def test_a_hint_without_nodes_stands_for_no_preference_inside_a_list() -> None:
    """T1: a list with a preferred hint that names no nodes binds nobody."""
    assert shown(merge(2, "restricted", {"a": hints("0p *p")}, {"b": hints("1p")})) == "1p admit"
    assert shown(merge(2, "restricted", {"a": hints("0p *p")})) == "0p admit"
    assert shown(merge(2, "restricted", {"a": hints("0p *n")}, {"b": hints("1p")})) == "1n refuse"


def test_masks_without_a_common_node_leave_the_default() -> None:
    """Kubelet rule 3.4: candidates whose mask is empty are skipped, so all nodes remain, not preferred."""
    assert shown(merge(2, "best-effort", {"a": hints("0n")}, {"b": hints("1n")})) == "01n admit"


def test_a_list_of_hints_beside_a_demand_keeps_what_it_does_not_prefer() -> None:
    """Where one offer is described and one is listed, a hint that is not preferred does not become so."""
    described = {"cpu": Demand(Family(0b11, (Need(1, (4, 4)),)), size=1)}
    assert shown(merge(2, "restricted", described, {"gpu": hints("0n 1p")})) == "1p admit"
    assert shown(merge(2, "restricted", described, {"gpu": hints("0n")})).endswith("refuse")
