"""Defects D1 and D6, uneven machines, safety rule S5 and isolated CPUs: what is mended, and in which mode."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.core.cpus.provider import CpuManager
from agent.model.idset import CpuSet
from agent.model.ledger import Ledger
from agent.model.outcome import Reason, Refusal
from agent.model.rules import Compatibility, CpuOptions, CpuRules, Rules
from tests.unit.cpu_machines import (
    D2,
    FIXED,
    KUBELET,
    P4,
    S1,
    U2,
    UNEVEN,
    M,
    Node,
    container,
    init,
    machine,
    pod,
    shown,
    smt,
)

BOTH = pytest.mark.parametrize("mode", [KUBELET, FIXED])


@BOTH
def test_d1_a_pod_that_holds_its_cores_is_not_asked_for_them_again(mode: Compatibility) -> None:
    """D2, reserved 0 and 6, a pod of 6 CPUs: the kubelet's second admission says that 4 are available."""
    node = Node(D2, "0,6", mode=mode, full_pcpus_only=True)
    mine = pod("p", container("c", 6))
    first = node.admit(mine)
    second = node.admit(mine)
    if mode is FIXED:
        assert second == first
    else:
        assert isinstance(second, Refusal)
        assert "available physical CPUs = 4, requested CPUs = 6" in second.message


@BOTH
def test_d1_cores_of_finished_init_containers_count(mode: Compatibility) -> None:
    """The same oversight: what the pod may reuse is available to it."""
    node = Node(S1, "0,4", mode=mode, full_pcpus_only=True)
    admitted = node.admit(pod("p", init("i", 4), container("c", 4)))
    assert isinstance(admitted, Refusal) == (mode is KUBELET)


@BOTH
def test_d6_as_many_nodes_as_the_hint_has(mode: Compatibility) -> None:
    """A pod whose devices need two nodes gets its CPUs on both (kubernetes issue 139430)."""
    node = Node(P4, "0", mode=mode, distribute_across_numa=True)
    node.admit(pod("p", container("c", 4)), [1, 2])
    nodes = node.machine.nodes_of(node.ledger.cpus.assigned["p"]["c"])
    assert str(nodes) == ("1" if mode is KUBELET else "1-2")


@BOTH
def test_d6_within_one_socket(mode: Compatibility) -> None:
    """With align-by-socket, 10 CPUs stay in one socket while one has them, whatever is most even (PR 139778)."""
    node = Node(P4, "0", mode=mode, distribute_across_numa=True, align_by_socket=True)
    node.free("1-3,17-18,4,8-10,24-25,12-13,28-29")
    node.admit(pod("p", container("c", 8)))
    sockets = {cpu.package for cpu in node.machine.cpus if cpu.id in node.ledger.cpus.assigned["p"]["c"]}
    assert len(sockets) == (2 if mode is KUBELET else 1)


def test_d6_a_request_of_several_sockets_gets_them() -> None:
    """With align-by-socket, what no one socket holds is spread over both, not refused."""
    node = Node(P4, "0", mode=FIXED, distribute_across_numa=True, align_by_socket=True)
    node.admit(pod("p", container("c", 20)))
    held = node.ledger.cpus.assigned["p"]["c"]
    assert [len(held & each.cpus) for each in node.machine.nodes] == [0, 7, 7, 6]


@BOTH
def test_uneven_cores_hand_out_nothing_that_was_not_offered(mode: Compatibility) -> None:
    """The kubelet would give away the reserved threads 8-11 (kubernetes issue 124066); mended in both modes."""
    node = Node(UNEVEN, "8-11", mode=mode)
    for number in range(4):
        assert not isinstance(node.admit(pod(f"p{number}", container("c", 2)), [1]), Refusal)
    held = CpuSet.union(each["c"] for each in node.ledger.cpus.assigned.values())
    assert (str(held), node.shared) == ("0-7", "8-11")


@BOTH
def test_uneven_cores_are_the_kubelets_while_it_hands_out_what_was_offered(mode: Compatibility) -> None:
    """Only a choice that takes other CPUs is mended: any other is the kubelet's, its averages included."""
    node = Node(UNEVEN, mode=mode)
    node.free("1-4,8")
    assert node.admit(pod("p", container("c", 2))) == {"c": "1-2" if mode is KUBELET else "4,8"}


@BOTH
def test_full_pcpus_only_never_splits_a_core(mode: Compatibility) -> None:
    """With CPU 0 reserved the kubelet takes its sibling for a pod that wants node 0; mended, a whole core."""
    node = Node(D2, "0", mode=mode, full_pcpus_only=True)
    node.free("6,1,7,3,9")
    assert node.admit(pod("p", container("c", 2)), [0]) == {"c": "1,6" if mode is KUBELET else "1,7"}


@BOTH
@pytest.mark.parametrize(("free", "count", "kubelet", "fixed"), [
    ("3,5,7,11-15", 5, "3,5,11-13", "5,7,12-13,15"),  # a cache with six free CPUs, and an odd number asked for
    ("0,8,4-6,12", 4, "0,4,8,12", "4-6,12"),  # a whole core in each cache, and four threads in one
    ("0,8,1,4", 3, "0-1,8", "0-1,8"),  # the kubelet's own answer lies in one cache: it stays
    ("1-2,4-5", 3, "1-2,4", "1-2,4"),  # no cache has three
])  # fmt: skip
def test_d20_one_cache_that_has_room_is_not_left(
    mode: Compatibility, free: str, count: int, kubelet: str, fixed: str
) -> None:
    """A request that one L3 cache holds is not split over two (kubernetes issue 137315)."""
    node = Node(U2, "9", mode=mode, prefer_uncore=True)
    node.free(free)
    assert node.admit(pod("p", container("c", count))) == {"c": kubelet if mode is KUBELET else fixed}


def test_full_pcpus_only_refuses_where_only_parts_of_cores_are_left() -> None:
    """On a machine with uneven cores the kubelet's own checks let such a pod pass."""
    node = Node(UNEVEN, "8", mode=FIXED, full_pcpus_only=True)
    node.free("4-7")
    refusal = node.admit(pod("q", container("c", 2)))
    assert isinstance(refusal, Refusal)
    assert refusal.reason is Reason.SMT


@BOTH
def test_s5_the_shared_pool_is_never_emptied(mode: Compatibility) -> None:
    """Safety rule S5: under strict-cpu-reservation the last shared CPU is not granted."""
    node = Node(S1, "0,4", mode=mode, strict_reservation=True)
    refusal = node.admit(pod("p", container("c", 6)))
    assert isinstance(refusal, Refusal)
    assert (refusal.reason, node.shared) == (Reason.SHARED_POOL, "1-3,5-7")
    assert not isinstance(node.admit(pod("p", container("c", 5))), Refusal)
    refusal = node.admit(pod("q", container("c", 1)))
    assert isinstance(refusal, Refusal)
    assert refusal.reason is Reason.SHARED_POOL


def test_s5_without_strict_reservation_the_reserved_cpus_stay_in_the_pool() -> None:
    """All others may go."""
    node = Node(S1, "0,4")
    assert not isinstance(node.admit(pod("p", container("c", 6))), Refusal)
    assert node.shared == "0,4"


def test_s5_pods_with_pod_level_resources_too() -> None:
    """The pod's own CPUs count as one grant."""
    node = Node(S1, "0,4", gate=True, strict_reservation=True)
    refusal = node.admit(pod("p", container("a", 1), container("b", 0), whole=6))
    assert isinstance(refusal, Refusal)
    assert refusal.reason is Reason.SHARED_POOL


def test_s5_isolated_cpus_leave_the_pool_and_are_granted_first() -> None:
    """Nothing balances there; given back, they are nobody's again. A grant does not mix them with others."""
    isolated = replace(S1, isolated=CpuSet.parse("2-3,6-7"))
    node = Node(isolated, "0,4", mode=FIXED)
    assert node.shared == "0-1,4-5"
    assert node.hints(6) == "{0}p"
    assert node.admit(pod("p", container("c", 2))) == {"c": "2,6"}
    assert node.admit(pod("q", container("c", 1))) == {"c": "3"}
    assert node.admit(pod("r", container("c", 2))) == {"c": "1,5"}
    assert node.shared == "0,4"
    for uid in "pqr":
        node.release(uid)
    assert node.shared == "0-1,4-5"
    assert node.admit(pod("s", container("c", 6))) == {"c": "1-3,5-7"}


def test_s5_isolated_cpus_are_like_any_other_for_the_kubelet() -> None:
    """It does not look at isolation."""
    node = Node(replace(S1, isolated=CpuSet.parse("2-3,6-7")), "0,4", mode=KUBELET)
    assert node.shared == "0-7"
    assert node.admit(pod("p", container("c", 2))) == {"c": "1,5"}


def test_s5_isolation_of_every_cpu_is_none() -> None:
    """A pool of no CPUs would serve nobody."""
    assert Node(replace(S1, isolated=S1.online), "0,4", mode=FIXED).shared == "0-7"


@pytest.mark.parametrize(
    ("mode", "isolated", "reserved"),
    [(FIXED, "0,4", "1,5"), (FIXED, "0-6", "0,4"), (KUBELET, "0,4", "0,4"), (KUBELET, "0-6", "0,4")],
)
def test_what_is_reserved_by_count_is_isolated_last(mode: Compatibility, isolated: str, reserved: str) -> None:
    """The system's threads would find nothing balanced there; the kubelet, which does not look at it, takes them."""
    rules = Rules(cpu=CpuRules(reserved_count=2), compatibility=mode)
    assert str(CpuManager(replace(S1, isolated=CpuSet.parse(isolated)), rules).reserved) == reserved


def test_isolated_cpus_within_the_affinity_come_before_the_rest() -> None:
    """The affinity counts more: isolated CPUs elsewhere are no reason to leave the node."""
    two = replace(machine(smt(0, range(4), 8), smt(1, range(4, 8), 8)), isolated=CpuSet.parse("6-7,14-15"))
    node = Node(two, "0,8", mode=FIXED)
    assert node.admit(pod("p", container("c", 2)), [0]) == {"c": "1,9"}
    assert node.admit(pod("q", container("c", 2)), [1]) == {"c": "6,14"}


def test_a_released_cpu_that_went_offline_does_not_come_back() -> None:
    """The pool holds CPUs that are online, whatever a pod held."""
    node = Node(S1, "0", mode=FIXED)
    node.ledger = Ledger(
        "", replace(node.ledger.cpus, assigned={"p": {"c": CpuSet.parse("7,9")}}, shared=CpuSet.parse("0-6"))
    )
    node.release("p")
    assert node.shared == "0-7"


def test_full_pcpus_only_counts_no_core_of_which_a_thread_is_reserved() -> None:
    """Half of the core is the system's: its other thread is half a core, which the option promises not to give."""
    assert Node(S1, "0", mode=FIXED, full_pcpus_only=True).admit(pod("p", container("c", 6))) == {"c": "1-3,5-7"}
    refused = Node(S1, "0-3", mode=FIXED, full_pcpus_only=True).admit(pod("p", container("c", 2)))
    assert isinstance(refused, Refusal)
    assert "available physical CPUs = 0" in refused.message


def test_strict_cpu_reservation_is_the_nodes_in_any_case() -> None:
    """It says who may run on the reserved CPUs: an option of one pod must not change that for all the others."""
    for strict in (False, True):
        rules = Rules(cpu=CpuRules(reserved=CpuSet.of(0), options=CpuOptions(strict_reservation=strict)))
        for wish in (False, True):
            asked = CpuManager(S1, rules).with_options(CpuOptions(full_pcpus_only=True, strict_reservation=wish))
            assert str(asked.start().shared) == ("1-7" if strict else "0-7")


def test_a_pod_that_holds_what_it_asks_for_has_the_hints_of_that() -> None:
    """With pod scope the kubelet asks nothing else once the pod's containers hold exactly the request."""
    node = Node(M, "0")
    whole = pod("p", container("a", 1), container("b", 1))
    node.admit(whole, [1])
    assert shown(node.provider.pod_hints(node.ledger, whole), M) == "{1}p {01}n"


@pytest.mark.parametrize("mode", [KUBELET, FIXED])
def test_what_a_later_container_holds_is_not_given_to_an_earlier_one(mode: Compatibility) -> None:
    """What an init container left is offered again with the pod; what is in use is not granted twice."""
    node = Node(S1, "0,4", mode=mode)
    again = pod("p", init("i", 2), container("a", 1), container("b", 1))
    first = node.admit(again)
    assert isinstance(first, dict)
    assert CpuSet.parse(first["a"]) | CpuSet.parse(first["b"]) == CpuSet.parse(first["i"])
    node.release("p", "a")
    found = node.admit(again)
    assert isinstance(found, dict)
    assert CpuSet.parse(found["a"]).isdisjoint(CpuSet.parse(found["b"]))
    assert found["b"] == first["b"]
