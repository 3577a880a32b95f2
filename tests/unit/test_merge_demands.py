"""The merge of described hints, on the cases that its shortcuts could get wrong."""

from __future__ import annotations

import pytest

from agent.core.merge.demand import Budget, Demand, Family, Need, Positions, fewest, listed
from agent.core.merge.described import goal_of
from agent.core.merge.inputs import MergeQuestion
from agent.core.merge.masks import members
from agent.core.merge.merge import Merged, merge_answers
from agent.core.merge.order import Order
from agent.core.merge.provider import Answer
from agent.core.merge.reasons import MergeReasons
from agent.core.merge.search import Bin, Search
from agent.model.hint import IMPOSSIBLE, NO_PREFERENCE, Hint, Stance
from agent.model.idset import NodeSet
from agent.model.rules import Policy, TopologyRules
from tests.parity.merge import Given, offered
from tests.property.merge_cases import by_product


def cpus(capacity: list[int], free: list[int], request: int) -> Demand:
    """What the CPU manager says in its hints (kubelet rule 4.5)."""
    domain = (1 << len(free)) - 1
    size = fewest(Family(domain, (Need(request, tuple(capacity)),)), Budget())
    return Demand(Family(domain, (Need(request, tuple(free)),)), size)


def merge(
    nodes: int | list[int],
    policy: str,
    *given: Given,
    distances: list[list[int]] | None = None,
    budget: Budget | None = None,
) -> Merged:
    """Merge on a machine of some nodes, with prefer-closest if there are distances."""
    positions = Positions.of(range(nodes) if isinstance(nodes, int) else nodes)
    rules = TopologyRules(Policy(policy), prefer_closest=distances is not None)
    answers = [offered(each, positions) for each in given]
    return merge_answers(answers, positions, rules, Order(distances), budget=budget)


def bits(merged: Merged) -> tuple[int | None, bool]:
    """The answer as a mask."""
    return None if merged.hint.nodes is None else merged.hint.nodes.bits, merged.hint.preferred


@pytest.mark.parametrize(
    ("needs", "least"),
    [
        ([Need(3, (1, 1), ((0b01, 1), (0b10, 1)))], 2),  # each node lends one to itself alone
        ([Need(3, (1, 1), ((0b11, 2),))], 1),  # what both share counts for either
        ([Need(2, (1, 1), ((0b01, 1), (0b10, 1)))], 1),
        ([Need(3, (3, 0)), Need(3, (0, 3))], 2),  # each alone needs one
        ([Need(5, (2, 2))], 0),
    ],
)
def test_the_fewest_nodes_count_what_is_shared_with_the_nodes_it_is_near(needs: list[Need], least: int) -> None:
    """Memory of a node without CPUs is near to some: counted for all, one node would seem enough where it is not."""
    assert fewest(Family(0b11, tuple(needs)), Budget()) == least


@pytest.mark.parametrize("policy", ["best-effort", "restricted", "single-numa-node"])
def test_a_family_that_nothing_serves_is_as_if_it_were_not_there(policy: str) -> None:
    """A demand whose sums no nodes reach, with a set that is named: only that counts."""
    never, other = Family(0b111, (Need(9, (1, 1, 1)),)), Demand(Family(0b111, (Need(1, (1, 1, 1)),)), 1)
    for fixed in ({0b011: False}, {0b110: True, 0b011: False}):
        named = bits(merge(3, policy, {"a": Demand(None, 2, fixed)}, {"b": other}))
        assert bits(merge(3, policy, {"a": Demand(never, 2, fixed)}, {"b": other})) == named
    # three nodes are wanted by another, and all three are just what the family would be about
    one, three = {0b001: False}, Demand(None, 3, {0b111: False})
    alone = bits(merge(3, policy, {"a": Demand(None, 1, one)}, {"b": three}))
    assert bits(merge(3, policy, {"a": Demand(never, 1, one)}, {"b": three})) == alone


UNEVEN = Demand(Family(0b1111, (Need(3, (1, 1, 2, 2)),)), size=1)


def test_two_equal_lists_are_not_one() -> None:
    """Pitfall 1: twice, {0,1} = {0,1,2} & {0,1,3} is the answer, although the list itself does not hold it."""
    assert bits(merge(4, "best-effort", {"memory": UNEVEN})) == (0b0101, False)
    twice = merge(4, "best-effort", {"memory": UNEVEN, "hugepages-2Mi": UNEVEN})
    assert bits(twice) == (0b0011, False)
    assert not UNEVEN.accepts(0b0011)


@pytest.mark.parametrize("policy", ["best-effort", "restricted", "single-numa-node"])
def test_described_and_listed_answers_mix(policy: str) -> None:
    """A demand and the same demand listed merge alike, in any combination."""
    cpu, gpu = cpus([8] * 4, [8, 2, 3, 8], 6), cpus([2] * 4, [0, 1, 1, 2], 2)
    at = Positions.of(range(4))
    want = merge(4, policy, {"cpu": listed(cpu, at)}, {"gpu": listed(gpu, at)})
    assert merge(4, policy, {"cpu": cpu}, {"gpu": listed(gpu, at)}) == want
    assert merge(4, policy, {"cpu": listed(cpu, at)}, {"gpu": gpu}) == want
    assert merge(4, policy, {"cpu": cpu}, {"gpu": gpu}) == want
    assert want.hint == Hint(NodeSet.of(3), preferred=True)


@pytest.mark.parametrize("policy", ["best-effort", "restricted", "single-numa-node"])
@pytest.mark.parametrize(("free", "node"), [(True, 0b01), (False, 0b10)])
def test_a_list_that_also_has_a_hint_without_nodes_binds_only_where_that_is_not_preferred(
    policy: str, *, free: bool, node: int
) -> None:
    """Beside a demand that likes both nodes: bound by it, the pod would lie on a node nobody needs."""
    cpu, at = cpus([4] * 2, [4, 4], 2), Positions.of(range(2))
    either = Hint(None, preferred=free), Hint(NodeSet.of(1), preferred=True)
    assert bits(merge(2, policy, {"cpu": cpu}, {"gpu": either})) == (node, True)
    assert bits(merge(2, policy, {"cpu": listed(cpu, at)}, {"gpu": either})) == (node, True)


def test_different_preferred_counts_never_meet() -> None:
    """T8: CPUs fit one node, memory needs two by capacity: nothing is preferred, and restricted refuses at once."""
    cpu, memory = cpus([8] * 64, [8] * 64, 4), cpus([10] * 64, [10] * 64, 12)
    budget = Budget()
    refused = merge(64, "restricted", {"cpu": cpu, "memory": memory}, budget=budget)
    assert refused == Merged(Hint(None, preferred=False), admit=False)
    assert budget.left == Budget().left
    assert bits(merge(64, "best-effort", {"cpu": cpu, "memory": memory})) == (0b11, False)


def test_align_by_socket_prefers_by_sockets_touched() -> None:
    """Kubelet rule 4.5: of two sockets, masks within one are preferred even if they have more nodes than needed."""
    sockets = (0b0011, 0b1100)
    cpu = Demand(Family(0b1111, (Need(6, (2, 3, 3, 3)),)), 1, sockets=sockets, touched=1)
    memory = Demand(Family(0b1111, (Need(2, (1, 1, 1, 1)),)), size=2)
    assert bits(merge(4, "restricted", {"cpu": cpu, "memory": memory})) == (0b1100, True)
    assert bits(merge(4, "restricted", {"cpu": cpu})) == (0b1100, True)


def test_masks_named_besides_a_family_are_tried_too() -> None:
    """A memory list: a group of two used nodes by name, and the unused ones by sums (T7)."""
    memory = Demand(Family(0b1100, (Need(2, (1, 1, 1, 1)),)), 2, fixed={0b0011: True})
    cpu = cpus([4] * 4, [4, 4, 4, 4], 6)
    assert bits(merge(4, "restricted", {"memory": memory, "cpu": cpu})) == (0b0011, True)
    busy = cpus([4] * 4, [1, 1, 4, 4], 6)
    assert bits(merge(4, "restricted", {"memory": memory, "cpu": busy})) == (0b1100, True)


def test_a_stance_beside_demands() -> None:
    """No preference changes nothing; an impossible resource only takes the preference away."""
    cpu = cpus([4] * 2, [1, 4], 2)
    assert bits(merge(2, "restricted", {"cpu": cpu}, Stance.NO_PREFERENCE, {"gpu": NO_PREFERENCE})) == (0b10, True)
    assert bits(merge(2, "best-effort", {"cpu": cpu}, {"gpu": IMPOSSIBLE})) == (0b10, False)
    assert not merge(2, "single-numa-node", {"cpu": cpu}, {"gpu": IMPOSSIBLE}).admit


def test_a_demand_without_masks_is_impossible() -> None:
    """As an empty list: it takes the preference away, and constrains no mask (pitfall 5)."""
    nothing = Demand(Family(0b11, (Need(9, (1, 1)),)), 1)
    cpu = cpus([4] * 2, [1, 4], 2)
    assert bits(merge(2, "best-effort", {"cpu": cpu, "gpu": nothing})) == (0b10, False)
    assert not merge(2, "single-numa-node", {"cpu": cpu, "gpu": nothing}).admit
    assert listed(nothing, Positions.of(range(2))) == ()


def test_the_smallest_integer_wins_among_equal_distances() -> None:
    """The search must not stop at the first mask, nor cut on distance alone (pitfall 8)."""
    flat = [[10 if a == b else 20 for b in range(6)] for a in range(6)]
    one, two = (Demand(Family(0b111111, (Need(2, w),)), 2) for w in ((1, 1, 0, 0, 1, 1), (0, 0, 1, 1, 1, 1)))
    lists = [[(m.nodes.bits, False) for m in listed(d, Positions.of(range(6))) if m.nodes] for d in (one, two)]
    want = by_product(lists, 0b111111, flat)
    got = merge(6, "best-effort", {"a": one, "b": two, "c": IMPOSSIBLE}, distances=flat)
    assert bits(got) == want


@pytest.mark.parametrize("ids", [list(range(64)), [3 * j + 1 for j in range(64)], [j * 4 for j in range(64)]])
def test_64_nodes_and_ids_with_holes_up_to_255(ids: list[int]) -> None:
    """Rank is all that matters: the same positions come back as whatever ids the machine has."""
    free = [(7 * j) % 9 for j in range(64)]
    merged = merge(ids, "restricted", {"cpu": cpus([8] * 64, free, 20), "gpu": cpus([1] * 64, [1] * 64, 3)})
    assert merged.admit
    assert merged.exact
    assert merged.hint.nodes is not None
    chosen = [ids.index(node) for node in merged.hint.nodes]
    assert len(chosen) == 3
    assert sum(free[j] for j in chosen) >= 20
    lower = [j for j in range(64) if j < max(chosen)]
    assert max(free[j] for j in lower) * 2 + free[max(chosen)] >= 20


def test_ordinary_merges_of_64_nodes_take_few_steps() -> None:
    """Steps, not time: three providers on 64 busy nodes, with and without distances, stay far below the budget."""
    near = [[10 if a == b else 12 if a // 4 == b // 4 else 20 for b in range(64)] for a in range(64)]
    cpu = cpus([16] * 64, [(5 * j) % 17 for j in range(64)], 60)
    memory = cpus([64] * 64, [(11 * j) % 65 for j in range(64)], 240)
    gpu = cpus([1] * 64, [int(j % 3 > 0) for j in range(64)], 4)
    for table in (None, near):
        budget = Budget()
        merged = merge(64, "best-effort", {"cpu": cpu, "memory": memory, "gpu": gpu}, distances=table, budget=budget)
        assert merged.exact
        assert Budget().left - budget.left < 1_000


def test_an_exhausted_budget_is_flagged_and_never_wrong() -> None:
    """What comes out at last is a reachable mask, said to be unproved, and the same again."""
    weights = [(1 << 39) + (j * 7919**3) % (1 << 38) for j in range(24)]
    amount = sum(weights[::3]) + 1
    tight = Demand(Family((1 << 24) - 1, (Need(amount, tuple(weights)),)), size=8)
    other = Demand(Family((1 << 24) - 1, (Need(8 << 40, tuple((1 << 41) - w for w in weights)),)), size=8)
    merged = merge(24, "best-effort", {"a": tight, "b": other}, budget=Budget(5))
    assert not merged.exact
    assert merged == merge(24, "best-effort", {"a": tight, "b": other}, budget=Budget(5))
    assert merged.hint.nodes


def test_an_unknown_preferred_count_is_never_called_preferred_or_exact() -> None:
    """Demand.size None: a bound was hit when it was computed."""
    merged = merge(4, "restricted", {"cpu": Demand(Family(0b1111, (Need(1, (1,) * 4),)), None)})
    assert merged == Merged(Hint(None, preferred=False), admit=False, exact=False)


def test_fewest_counts_nodes() -> None:
    """One need: the largest weights; several: searched; shared amounts: once; impossible: 0; no steps: None."""
    one = Family(0b1111, (Need(5, (1, 2, 3, 1)),))
    assert fewest(one, Budget(0)) == 2
    two = Family(0b1111, (Need(5, (1, 2, 3, 1)), Need(2, (1, 0, 0, 1))))
    assert fewest(two, Budget()) == 3
    assert fewest(two, Budget(0)) is None
    shared = Family(0b11, (Need(3, (1, 1), ((0b11, 1),)),))
    assert fewest(shared, Budget()) == 2
    assert fewest(Family(0b11, (Need(3, (1, 1)),)), Budget()) == 0


def test_without_steps_the_goal_is_that_of_a_set_that_serves() -> None:
    """Nodes are left out one by one while the rest still serves: maybe not the fewest, and never all."""
    demand = Demand(Family(0xFF, (Need(8, (4,) * 8), Need(5, (3,) * 8))), 2)
    assert goal_of(MergeQuestion((demand,), hopeless=False, everything=0xFF), Budget(0)) == (2, False)


def test_listing_is_in_the_kubelets_order_and_refuses_wide_machines() -> None:
    """Kubelet rule 3.1: by count, then by position; ids come back; above 16 nodes there is an error, not a wait."""
    demand = cpus([4, 4, 4], [4, 1, 4], 4)
    text = [f"{hint.nodes}{'p' if hint.preferred else 'n'}" for hint in listed(demand, Positions.of([5, 9, 2]))]
    assert text == ["2p", "9p", "2,5n", "2,9n", "5,9n", "2,5,9n"]
    with pytest.raises(ValueError, match="17 NUMA nodes"):
        listed(demand, Positions.of(range(17)))


def test_a_shared_amount_is_lost_with_its_last_node() -> None:
    """Two nodes share 2 devices: keeping either keeps both devices, dropping both loses them."""
    need = Need(3, (0, 0, 1, 1), ((0b0011, 2),))
    search = Search(0b1111, (Bin((need,), 0b1111),), Order(), Budget())
    assert search.run(2) == (0b0101, True)
    assert search.run(1) == (None, True)


def test_reasons_tell_what_everybody_said_and_what_would_be_next() -> None:
    """A refusal under restricted: the best mask, B, the runner-up, and who had nothing to say or to offer."""
    told: list[MergeReasons] = []
    answers: list[Answer] = [{"gpu": IMPOSSIBLE}, {"cpu": cpus([4] * 2, [3, 4], 2)}, Stance.NO_PREFERENCE]
    rules = TopologyRules(Policy.RESTRICTED)
    quiet = merge_answers(answers, Positions.of(range(2)), rules, Order())
    assert merge_answers(answers, Positions.of(range(2)), rules, Order(), trace=told.append) == quiet
    (reasons,) = told
    assert (reasons.admit, reasons.best, reasons.runner_up, reasons.goal) == (False, NodeSet.of(0), None, 1)
    assert [(v.provider, v.resource, v.stance) for v in reasons.voices] == [
        (0, "gpu", IMPOSSIBLE),
        (1, "cpu", None),
        (2, "", Stance.NO_PREFERENCE),
    ]
    assert [str(hint.nodes) for hint in reasons.voices[1].hints or ()] == ["0", "1", "0-1"]


@pytest.mark.parametrize(("nodes", "lists", "after"), [(8, [255, 247], None), (9, [None, None], None)])
def test_reasons_list_all_hints_of_up_to_eight_nodes(
    nodes: int, lists: list[int | None], after: NodeSet | None
) -> None:
    """A machine of eight nodes shows every hint; where no preferences meet, no set is named as the second."""
    told: list[MergeReasons] = []
    one, two = cpus([4] * nodes, [4] * nodes, 4), cpus([4] * nodes, [4] * nodes, 8)
    rules = TopologyRules(Policy.BEST_EFFORT)
    merge_answers([{"cpu": one, "memory": two}], Positions.of(range(nodes)), rules, Order(), trace=told.append)
    (reasons,) = told
    assert (reasons.best, reasons.preferred, reasons.runner_up) == (NodeSet.of(0, 1), False, after)
    assert [voice.hints and len(voice.hints) for voice in reasons.voices] == lists


def test_reasons_of_wide_machines_describe_and_find_the_runner_up() -> None:
    """64 nodes: no lists, but the demand itself, and the next best mask of as many nodes."""
    told: list[MergeReasons] = []
    demand = cpus([4] * 64, [4] * 64, 8)
    rules = TopologyRules(Policy.RESTRICTED)
    merge_answers([{"cpu": demand}], Positions.of(range(64)), rules, Order(), trace=told.append)
    (reasons,) = told
    assert (reasons.best, reasons.runner_up) == (NodeSet.of(0, 1), NodeSet.of(0, 2))
    assert (reasons.voices[0].hints, reasons.voices[0].demand) == (None, demand)


def test_positions_keep_ids_that_the_machine_lacks_apart() -> None:
    """Raw masks stay different and keep their counts; going back drops what is not there."""
    at = Positions.of([2, 5, 200])
    mask = at.mask(NodeSet.of(5, 7, 200))
    assert mask.bit_count() == 3
    assert mask & at.everything == 0b110
    assert mask != at.mask(NodeSet.of(5, 8, 200))
    assert at.nodes(mask) == NodeSet.of(5, 200)
    assert members(at.everything) == (0, 1, 2)
