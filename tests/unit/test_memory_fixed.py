"""Defects of the memory manager by number (kubelet rule 10): answered alike under KUBELET, mended under FIXED."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.core.accounting.invariants import broken_rules
from agent.core.admission.node import Node
from agent.core.memory.choose import BREAKS_GROUP, NO_DEFAULT
from agent.model.devices import DeviceInventory
from agent.model.idset import NodeSet
from agent.model.ledger import NodeBook, PodRecord
from agent.model.outcome import Reason
from agent.model.rules import Compatibility, CpuRules, MemoryRules, Rules
from tests.parity.memory import wrong_books
from tests.unit.memory_cases import (
    ANYWHERE,
    BOTH,
    FIXED,
    GIB,
    KUBELET,
    MIB,
    NO_HINT,
    Desk,
    about,
    machine,
    node,
    nodes,
)
from tests.world.pods import APP, INIT, container, pod

TWO = machine(node(0, 4 * GIB + 1), node(1, 4 * GIB))


def admitted_again(compatibility: Compatibility) -> Desk:
    """Inits of 4 and 3 GiB, apps of 2 and 1; all have started, then the pod is admitted again."""
    desk = Desk(machine(node(0, 16 * GIB + 1)), compatibility)
    sizes = {"i0": 4, "i1": 3, "a0": 2, "a1": 1}
    one = pod("p", *(container(n, INIT if n[0] == "i" else APP, memory=s * GIB) for n, s in sizes.items()))
    desk.admit(one, nodes(0))
    for each in one.containers:
        desk.ledger = desk.provider.started(desk.ledger, one, each)
    assert desk.reserved_bytes() == [3 * GIB]
    desk.admit(one, nodes(0))
    return desk


def test_d4_finished_init_containers_are_not_allocated_again() -> None:
    """The kubelet's restart takes 4 GiB for init containers that have ended, and keeps them until the pod ends."""
    assert admitted_again(KUBELET).reserved_bytes() == [7 * GIB]
    assert admitted_again(FIXED).reserved_bytes() == [3 * GIB]


def test_d4_finished_init_containers_have_no_preference() -> None:
    """What does not run does not pull a pod to another node."""
    desk = Desk(TWO)
    one = pod("p", container("i", INIT, memory=GIB), container("a", memory=GIB))
    desk.admit(one, nodes(0))
    desk.ledger = desk.provider.started(desk.ledger, one, one.containers[1])
    assert desk.hints(one, "i") == "no preference"


def test_d5_a_single_node_of_a_group_is_not_taken_alone() -> None:
    """The kubelet accepts it, and its books then name two different groups for one node."""
    for compatibility in BOTH:
        desk = Desk(TWO, compatibility)
        desk.admit(pod("group", container("c", memory=GIB)), nodes(0, 1))
        refusal = desk.allocate(pod("single", container("c", memory=MIB)), nodes(0))
        if compatibility is KUBELET:
            assert refusal is None
            assert desk.groups() == [(2, "0"), (1, "0-1")]
        else:
            assert refusal is not None
            assert desk.groups() == [(1, "0-1"), (1, "0-1")]


def test_d5_best_effort_joins_the_group_instead() -> None:
    """An affinity that is not preferred is extended to the group that its node belongs to."""
    desk = Desk(TWO)
    desk.admit(pod("group", container("c", memory=5 * GIB)), nodes(0, 1))
    one = desk.admit(pod("single", container("c", memory=MIB)), about(0))
    assert desk.held(one, "c") == {"memory": (MIB, "0-1")}
    assert desk.groups() == [(2, "0-1"), (2, "0-1")]


def test_d7_no_fit_is_impossible_not_any_node() -> None:
    """The kubelet says "no preference" and refuses later, in words about something else."""
    too_much = pod("a", container("c", memory=20 * GIB))
    kubelet, fixed = Desk(TWO, KUBELET), Desk(TWO)
    assert kubelet.hints(too_much, "c") == kubelet.hints(too_much) == {}
    assert fixed.hints(too_much, "c") == fixed.hints(too_much) == {"memory": "impossible"}


def test_d7_no_fit_has_a_reason_of_its_own() -> None:
    """With what was asked for and what is free, for people and for explain."""
    too_much = pod("a", container("c", memory=20 * GIB))
    refusal = Desk(TWO, KUBELET).allocate(too_much, NO_HINT)
    assert refusal is not None
    assert (refusal.reason, refusal.message) == (Reason.UNEXPECTED, NO_DEFAULT)
    refusal = Desk(TWO).allocate(too_much, NO_HINT)
    assert refusal is not None
    assert refusal.reason is Reason.MEMORY
    assert refusal.facts == {"requested": {"memory": 20 * GIB}, "free": {"memory": 8 * GIB}}


def test_best_effort_takes_the_best_there_is() -> None:
    """Everybody but memory wants both nodes; node 0 has a single user, so no block may name both (issue 138495)."""
    for compatibility in BOTH:
        desk = Desk(TWO, compatibility)
        desk.admit(pod("single", container("c", memory=MIB)), nodes(0))
        one = pod("a", container("c", memory=GIB))
        refusal = desk.allocate(one, about(0, 1))
        if compatibility is KUBELET:
            assert refusal is not None
            assert refusal.message == BREAKS_GROUP
        else:
            assert desk.held(one, "c") == {"memory": (GIB, "0")}


def test_d8_a_resource_without_a_row_counts_as_none_of_it() -> None:
    """What reads a node's books is asked for a row that they lack: nothing of it is there, and nothing is free."""
    book = NodeBook(0, 0, NodeSet.of(0), {"memory": GIB}, {"memory": MIB}, {"memory": MIB})
    assert (book.allocatable("no-such"), book.free("no-such")) == (0, 0)
    assert (book.allocatable("memory"), book.free("memory")) == (GIB - MIB, GIB - 2 * MIB)


@pytest.mark.parametrize("compatibility", BOTH)
def test_d9_a_pod_level_pool_is_taken_once(compatibility: Compatibility) -> None:
    """The kubelet takes it again after a restart and loses the first; its books go wrong, so we do it in no mode."""
    desk = Desk(TWO, compatibility, pod_level=True)
    total = {"cpu": 2, "memory": GIB}
    one = pod("w", container("c"), whole=total)
    for _ in range(2):
        assert desk.allocate_pod(one, nodes(0)) is None
        assert desk.reserved_bytes() == [GIB, 0]
        assert wrong_books(desk.ledger) == []


def test_d9_the_same_pod_has_its_own_nodes_as_a_hint() -> None:
    """Its containers share; the kubelet compares one share with the whole, fails, and has no preference."""
    total = {"cpu": 2, "memory": GIB}
    one = pod("w", container("c", memory=MIB), container("d"), whole=total)
    for compatibility, hints in ((KUBELET, "no preference"), (FIXED, {"memory": "{1}p"})):
        desk = Desk(TWO, compatibility, pod_level=True)
        assert desk.allocate_pod(one, nodes(1)) is None
        assert desk.hints(one) == hints


def test_d10_a_container_that_shares_asks_for_no_memory() -> None:
    """Container scope: the kubelet refuses it without an affinity, and enters empty blocks with one."""
    total = {"cpu": 2, "memory": GIB}
    one = pod("w", container("c"), whole=total)
    kubelet, fixed = Desk(TWO, KUBELET, pod_level=True), Desk(TWO, pod_level=True)
    refusal = kubelet.allocate(one, NO_HINT)
    assert refusal is not None
    assert refusal.message == NO_DEFAULT
    assert kubelet.allocate(one, nodes(0, 1)) is None
    assert kubelet.blocks(one, "c") == ()
    assert fixed.allocate(one, NO_HINT) is None
    assert fixed.blocks(one, "c") is None
    assert fixed.hints(one, "c") == {}


def test_d11_a_pod_of_several_containers_has_its_own_nodes_as_a_hint() -> None:
    """The kubelet compares the first container's block with what the whole pod asks for."""
    one = pod("a", container("c", memory=GIB), container("d", memory=GIB))
    for compatibility, hints in ((KUBELET, "no preference"), (FIXED, {"memory": "{1}p"})):
        desk = Desk(TWO, compatibility)
        desk.admit(one, nodes(1))
        assert desk.hints(one) == hints


def test_d11_a_block_that_shrank_is_still_where_it_is() -> None:
    """The init container's block lost bytes to the app; the kubelet then has no preference."""
    one = pod("a", container("i", INIT, memory=2 * GIB), container("c", memory=GIB))
    for compatibility, hints in ((KUBELET, "no preference"), (FIXED, {"memory": "{1}p"})):
        desk = Desk(TWO, compatibility)
        desk.admit(one, nodes(1))
        assert desk.hints(one, "i") == hints


def test_release_gives_each_byte_back_to_its_node() -> None:
    """A group fills from node 0 up: the first pod has all of it. The kubelet gives the second's bytes back there."""
    for compatibility, free in ((KUBELET, [3 * GIB, 0]), (FIXED, [0, 3 * GIB])):
        desk = Desk(TWO, compatibility)
        first = desk.admit(pod("a", container("c", memory=5 * GIB)), nodes(0, 1))
        second = desk.admit(pod("b", container("c", memory=3 * GIB)), nodes(0, 1))
        assert desk.free() == [0, 0]
        desk.release(second)
        assert desk.free() == free
        desk.release(first)
        assert desk.free() == [4 * GIB, 4 * GIB]


def test_bytes_that_are_taken_over_keep_their_nodes() -> None:
    """The app's block lies on both nodes, as the init container's did; what was left over goes back where it was."""
    desk = Desk(TWO)
    one = pod("p", container("i", INIT, memory=6 * GIB), container("a", memory=5 * GIB))
    desk.admit(one, nodes(0, 1))
    assert [block.split for block in desk.blocks(one, "i") or ()] == [((1, GIB),)]
    assert [block.split for block in desk.blocks(one, "a") or ()] == [((0, 4 * GIB), (1, GIB))]
    desk.release(one, "i")
    assert desk.free() == [0, 3 * GIB]


def test_a_node_without_memory_is_never_named() -> None:
    """The kernel refuses such a node in cpuset.mems; the kubelet names it."""
    empty = machine(node(0, 2 * GIB + 1), node(1, 0))
    for compatibility, named in ((KUBELET, "0-1"), (FIXED, "0")):
        desk = Desk(empty, compatibility)
        one = desk.admit(pod("a", container("c", memory=GIB)), nodes(0, 1))
        assert desk.held(one, "c") == {"memory": (GIB, named)}


def test_a_grant_without_any_preference_takes_one_node() -> None:
    """Policy none: the best hint there is."""
    desk = Desk(TWO)
    one = desk.admit(pod("a", container("c", memory=GIB)), ANYWHERE)
    assert desk.held(one, "c") == {"memory": (GIB, "0")}


def test_d5_the_kubelets_books_pass_the_invariants_all_the_same() -> None:
    """A group gave back a single user's bytes: node 0 grants fewer than its user holds; the sum is right."""
    made = Rules(memory=MemoryRules(static=True, reserved={0: {"memory": 1}}), compatibility=KUBELET)
    admission = Node(TWO, replace(made, cpu=CpuRules(static=False)), DeviceInventory())
    desk = Desk(machine(node(0, 4 * GIB + 1), node(1, 4 * GIB)), KUBELET)
    first = desk.admit(pod("a", container("c", memory=3 * GIB)), nodes(0, 1))
    second = desk.admit(pod("d", container("c", memory=3 * GIB)), nodes(0, 1))
    desk.release(first)
    single = desk.admit(pod("b", container("c", memory=3 * GIB)), nodes(0))
    desk.release(second)
    assert desk.reserved_bytes() == [GIB, 2 * GIB]
    pods = {"b": PodRecord(single, "best-effort", "container")}
    ledger = replace(admission.start(), memory=desk.ledger.memory, pods=pods)
    assert list(broken_rules(ledger, admission)) == []


def test_a_pod_of_a_group_gives_back_its_own_bytes_node_by_node() -> None:
    """One lies on nodes 0-1, the other on 1-2, of a group of three: the end of one frees nothing of the other's."""
    desk = Desk(machine(node(0, 4 * GIB + 1), node(1, 4 * GIB), node(2, 4 * GIB)))
    first, _, last = (
        desk.admit(pod(f"p{gib}", container("c", memory=gib * GIB)), nodes(0, 1, 2)) for gib in (3, 2, 5)
    )
    desk.release(first)
    assert desk.reserved_bytes() == [GIB, 4 * GIB, 2 * GIB]
    desk.release(last)
    assert desk.reserved_bytes() == [GIB, GIB, 0]
