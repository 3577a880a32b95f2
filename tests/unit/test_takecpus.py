"""Worked examples of taking CPUs, as tables: packed (rule 4.9.5), distributed (4.10), a remembered one (4.11)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

import agent.core.cpus.distributed as ways
from agent.core.cpus.distributed import Balance, Slices, distributed
from agent.core.cpus.packed import CannotTake, Taker, packed
from agent.core.cpus.topology import CpuTopology
from agent.core.kubelets import MENDED, kubelet_rules
from agent.model.idset import CpuSet
from agent.model.machine import Machine
from agent.model.rules import Compatibility, Minor, Rules
from tests.unit.cpu_machines import D2, P4, Q4, S1, U1, U2, U3, U4, UNEVEN, machine, smt

HOW = {True: kubelet_rules(Rules(compatibility=Compatibility.KUBELET, minor=Minor.V1_36)), False: MENDED}
"""Literally as kubelet 1.36 does it, and mended."""
PACKED = [
    (S1, "0-7", 1, "0"),
    (S1, "0-7", 2, "0,4"),
    (S1, "0-7", 8, "0-7"),
    (S1, "1,3,5-7", 1, "6"),
    (S1, "0-3,6", 2, "2,6"),
    (S1, "1-7", 1, "4"),
    (D2, "0-11", 6, "0,2,4,6,8,10"),
    (D2, "0-11", 8, "0-2,4,6-8,10"),
    (D2, "1-5,7-11", 1, "2"),
    (Q4, "0-79", 20, "0-9,40-49"),
    (Q4, "0-79", 40, "0-19,40-59"),
    (Q4, "0-79", 60, "0-29,40-69"),
    (Q4, "0-79", 64, "0-31,40-71"),
    (Q4, "1-39,41-79", 60, "10-39,50-79"),
    (Q4, "10-39,50-79", 20, "10-19,50-59"),
    (P4, "1-31", 6, "1-3,17-19"),
]
SPREAD = [(S1, "0-7", 3, "0-2"), (D2, "0-11", 2, "0,2"), (D2, "0-11", 3, "0,2,4"), (D2, "0-11", 8, "0-4,6,8,10")]
UNCORE = [
    (U1, "1-15", 10, "1-2,4-11"),
    (U2, "2-7,10-15", 6, "4-6,12-14"),
    (U2, "1-7,9-15", 10, "1,4-7,9,12-15"),
    (U3, "2-15", 6, "2-7"),
    (U4, "2-63,66-127", 3, "2-3,66"),
    (U4, "2-63,66-127", 8, "4-7,68-71"),
    (U4, "2-63,65-127", 3, "2,65-66"),
    (U4, "2-63,65-127", 4, "4-5,68-69"),
    (U4, "2-63,65-127", 11, "2,4-7,65-66,68-71"),
]
M3 = machine(*(smt(node, range(2 * node, 2 * node + 2), 6) for node in range(3)))
"""Three nodes, a socket each, of two cores of two threads."""
DISTRIBUTED = [
    (Q4, "0-79", 64, 1, "0-7,10-17,20-27,30-37,40-47,50-57,60-67,70-77"),
    (Q4, "0-79", 48, 1, "0-7,10-17,20-27,40-47,50-57,60-67"),
    (Q4, "1-29,32-39,41-69,72-79", 48, 1, "1-8,10-17,20-27,41-48,50-57,60-67"),
    (Q4, "2-29,31-39,42-69,71-79", 48, 1, "10-17,20-27,31-38,50-57,60-67,71-78"),
    (Q4, "0-79", 26, 1, "0-6,10-16,40-45,50-55"),
    (Q4, "0-79", 26, 2, "0-6,10-15,40-46,50-55"),
    (Q4, "0-79", 62, 2, "0-7,10-17,20-27,30-36,40-47,50-57,60-67,70-76"),
    (Q4, "0-8,10-18,20-48,50-58,60-79", 62, 1, "0-7,10-17,20-27,30-37,40-46,50-56,60-67,70-77"),
    (D2, "0-11", 8, 1, "0-3,6-9"),
    (D2, "1-5,7-11", 1, 1, "1"),
    (D2, "1-5,7-11", 1, 2, "2"),
    (P4, "1-31", 6, 1, "4-6,20-22"),
    (P4, "1-31", 10, 1, "4-6,8-10,20-21,24-25"),
    (P4, "1-31", 10, 2, "4-6,8-9,20-22,24-25"),
]


@pytest.mark.parametrize("literal", [True, False])
@pytest.mark.parametrize(("on", "free", "count", "expected"), PACKED)
def test_packed(on: Machine, free: str, count: int, expected: str, literal: bool) -> None:  # noqa: FBT001 - parameter
    """The most used units first, whole ones before parts: alike by averages and by real sizes on even machines."""
    assert (
        str(CpuSet(packed(CpuTopology.of(on), CpuSet.parse(free).bits, count, literal=literal, kubelet=HOW[literal])))
        == expected
    )


@pytest.mark.parametrize(("on", "free", "count", "expected"), SPREAD)
def test_spread(on: Machine, free: str, count: int, expected: str) -> None:
    """distribute-cpus-across-cores takes single CPUs along a socket, not the threads of a core together."""
    assert str(CpuSet(packed(CpuTopology.of(on), CpuSet.parse(free).bits, count, spread=True))) == expected


@pytest.mark.parametrize(("on", "free", "count", "expected"), UNCORE)
def test_uncore(on: Machine, free: str, count: int, expected: str) -> None:
    """prefer-align-cpus-by-uncorecache takes whole caches and fits the rest into one, where it can."""
    assert str(CpuSet(packed(CpuTopology.of(on), CpuSet.parse(free).bits, count, uncore=True))) == expected


@pytest.mark.parametrize(("on", "free", "count", "group", "expected"), DISTRIBUTED)
def test_distributed(on: Machine, free: str, count: int, group: int, expected: str) -> None:
    """The same number of CPUs from each node, the rest where the balance stays best."""
    assert str(CpuSet(distributed(CpuTopology.of(on), CpuSet.parse(free).bits, count, group=group))) == expected


def test_a_node_that_is_full_is_no_candidate_for_the_distribution() -> None:
    """Of three nodes one has no free CPU: the CPUs come from the other two, evenly, and the pod is not refused."""
    on, free = CpuTopology.of(M3), CpuSet.parse("2-5,8-11").bits
    for literal in (True, False):
        taken = distributed(on, free, 4, literal=literal, by_socket=True, at_least=3, kubelet=HOW[literal])
        assert str(CpuSet(taken)) == "2,4,8,10"


def test_more_than_there_is_is_refused_with_the_kubelets_sentence() -> None:
    """Both algorithms name what was asked and what is there."""
    for take in (packed, distributed):
        with pytest.raises(CannotTake, match=r"^not enough cpus available .* requested=5, available=4$"):
            take(CpuTopology.of(S1), CpuSet.parse("0,2,4,6").bits, 5)


@pytest.mark.parametrize(
    ("nodes", "count", "kubelet", "mended"),
    [
        (5, 16, "0-11,16-19", "0-15"),
        (6, 14, "0-10,20-22", "0-10,12-14"),
        (8, 16, "0-11,28-31", "0-15"),
        (8, 24, "0-19,28-31", "0-23"),
        (8, 20, "0-19", "0-19"),
    ],
)
def test_d2_slices_are_overwritten_for_the_kubelet_only(nodes: int, count: int, kubelet: str, mended: str) -> None:
    """Defect D2: a remembered combination of nodes changes, of some sizes; mended, it does not (rule 4.11)."""
    on = CpuTopology.of(machine(*([(0, None, [cpu]) for cpu in range(n * 4, n * 4 + 4)] for n in range(nodes))))
    assert [
        str(CpuSet(distributed(on, on.all, count, literal=literal, kubelet=HOW[literal])))
        for literal in (True, False)
    ] == [
        kubelet,
        mended,
    ]


class Looks(tuple[int, ...]):  # noqa: SLOT001 - it counts
    """NUMA nodes that a rest is dealt to; a fourth look at them is one that nothing had changed before."""

    looks = 0

    def __iter__(self) -> Iterator[int]:
        self.looks += 1
        assert self.looks < 4, "a pass that gave nothing is made again"
        return super().__iter__()


class NoNodes(Slices):
    """A remembered combination that has become empty."""

    def values(self) -> tuple[int, ...]:
        """None at all."""
        return Looks()


def test_d3_a_pass_that_gives_nothing_ends_the_attempt() -> None:
    """Where no node gives a group, a rest cannot be dealt out; where all do, it can, round by round."""
    assert ways._dealt({0: 1, 1: 1}, Looks((0, 1)), 4, 2) is None
    assert ways._dealt({}, Looks(), 1, 1) is None
    assert ways._dealt({0: 4, 1: 2}, Looks((0, 1)), 4, 2) == {0: 2, 1: 0}


def test_d14_a_pass_that_gives_nothing_ends_the_giving() -> None:
    """A rest that no node is left for is told, in the kubelet's words."""
    taker = Taker(CpuTopology.of(S1), CpuSet.parse("0-7").bits, 3)
    best = ways._Best(combination=Slices([0], 1), remainder=NoNodes.empty())
    with pytest.raises(CannotTake, match=r"^accounting error, not enough CPUs allocated, remaining: 1$"):
        ways._give(taker, best, 3, 2)


CROSSED = machine(
    [(0, None, [0]), (1, None, [1]), (0, None, [2]), (1, None, [3])],
    [(0, None, [4]), (1, None, [5]), (0, None, [6]), (1, None, [7])],
    [(0, None, [8]), (1, None, [9]), (0, None, [10]), (1, None, [11])],
)
"""Three nodes that are in both of two sockets."""


@pytest.mark.parametrize("literal", [True, False])
@pytest.mark.parametrize(
    ("free", "count", "expected"),
    [("1-3,7-10", 7, "1-3,7-10"), ("0,4-6,11", 4, "0,4-5,11"), ("3-4,6-7,11", 4, "3-4,6,11")],
)
def test_nodes_in_several_sockets_give_out_of_one_count(
    free: str,
    count: int,
    expected: str,
    literal: bool,  # noqa: FBT001 - parameter
) -> None:
    """Where nodes and sockets cross-cut, a request that the free CPUs hold gets as many of them as it asks for."""
    assert (
        str(
            CpuSet(
                distributed(
                    CpuTopology.of(CROSSED), CpuSet.parse(free).bits, count, literal=literal, kubelet=HOW[literal]
                )
            )
        )
        == expected
    )


def test_averages_hand_out_what_is_not_offered_and_real_sizes_do_not() -> None:
    """Kubernetes issue 124066: a half-free core looks free; without averages nothing but the offer is taken."""
    on, offered = CpuTopology.of(UNEVEN), CpuSet.parse("4,5,6,7")
    assert on.cpus_per_core == 1
    assert not CpuSet(packed(on, offered.bits, 2, literal=True, kubelet=HOW[True])).issubset(offered)
    assert CpuSet(packed(on, offered.bits, 2)).issubset(offered)


def test_a_floor_of_nodes_gives_way_where_it_cannot_be_filled_evenly() -> None:
    """At least two nodes are used if both can give half; if not, one is better than none."""
    on = CpuTopology.of(D2)
    assert str(CpuSet(distributed(on, on.all, 4, at_least=2))) == "0-1,6-7"
    assert str(CpuSet(distributed(on, CpuSet.parse("0,1,3,5,7,9,11").bits, 4, at_least=2))) == "1,3,7,9"


def test_sixty_four_nodes_are_distributed_over_in_bounded_time() -> None:
    """64 choose 32 combinations are not walked; the answer is even all the same."""
    on = CpuTopology.of(machine(*([(n, None, [cpu]) for cpu in range(n * 4, n * 4 + 4)] for n in range(64))))
    taken = CpuSet(distributed(on, on.all & ~0b1111, 130, at_least=40))
    assert sorted({len(taken & CpuSet(held)) for held in on.nodes.values()} - {0}) in ([3, 4], [3])
    assert len(taken) == 130


@pytest.mark.parametrize("literal", [True, False])
def test_of_sixteen_nodes_few_sets_are_tried(monkeypatch: pytest.MonkeyPatch, *, literal: bool) -> None:
    """12,870 sets of eight of them, and what does not divide, would take ten seconds, for which no pod starts."""
    name = "walk" if literal else "honest"
    subsets, tried = getattr(ways, name), list[Slices]()

    def counted(items: Sequence[int], size: int) -> Iterator[Slices]:
        for each in subsets(items, size):
            tried.append(each)
            assert len(tried) < 1000
            yield each

    monkeypatch.setattr(ways, name, counted)
    on = CpuTopology.of(machine(*([(0, None, [cpu]) for cpu in range(n * 8, n * 8 + 8)] for n in range(16))))
    free = on.all & ~sum(0b10000000 << 8 * node for node in range(1, 16, 2))  # uneven: no set is balanced at once
    taken = CpuSet(distributed(on, free, 36, at_least=8, literal=literal, kubelet=HOW[literal]))
    assert tried
    assert sorted(len(taken & CpuSet(held)) for held in on.nodes.values()) == [0] * 8 + [4] * 4 + [5] * 4


def test_the_balance_is_the_standard_deviation_in_thousandths() -> None:
    """Mean and deviation are rounded half away from zero, as Go's math.Round does."""
    values = [1, 2, 2, 7]
    assert Balance(sum(values), 4).of(sum(value * value for value in values)) == 2345  # sqrt(5.5) = 2.34520...
    assert Balance(10, 3).mean == 3333
