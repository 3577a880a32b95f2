"""The CPU manager: worked examples of its rules from the start (4.1) and hints (4.5) to release (4.14)."""

from __future__ import annotations

from typing import Any

import pytest

from agent.core.cpus.provider import CpuManager
from agent.errors import SettingsError
from agent.model.idset import CpuSet
from agent.model.ledger import Ledger
from agent.model.machine import Machine
from agent.model.outcome import Reason, Refusal
from agent.model.pod import Container, Qos
from agent.model.rules import Compatibility, CpuOptions, CpuRules, Policy, Rules, TopologyRules
from tests.unit.cpu_machines import (
    D2,
    FIXED,
    KUBELET,
    Q4,
    S1,
    U3,
    M,
    Node,
    at,
    container,
    init,
    machine,
    pod,
    shown,
    sidecar,
    smt,
)  # fmt: skip


@pytest.mark.parametrize(
    ("count", "options", "expected"),
    [
        (1, {}, "0"),
        (2, {}, "0,6"),
        (3, {}, "0,2,6"),
        (7, {}, "0-2,4,6,8,10"),
        (2, {"distribute_across_cores": True}, "0,2"),
        (7, {"distribute_across_numa": True}, "0-3,6-8"),
        (4, {"prefer_uncore": True}, "0-1,6-7"),
    ],
)
def test_reserved_cpus_are_chosen_as_grants_are(count: int, options: dict[str, Any], expected: str) -> None:
    """Without names, the manager's own algorithm picks what the system keeps (kubelet rule 4.1)."""
    rules = Rules(cpu=CpuRules(options=CpuOptions(**options), reserved_count=count), compatibility=KUBELET)
    assert str(CpuManager(D2, rules).reserved) == expected


@pytest.mark.parametrize(
    ("on", "rules", "sentence"),
    [
        (S1, CpuRules(reserved=CpuSet.parse("0,1"), reserved_count=3), "(size of 0-1 did not equal 3)"),
        (S1, CpuRules(reserved=CpuSet.parse("0,9"), reserved_count=2), "unknown CPU ID: 9"),
        (S1, CpuRules(reserved_count=9), "(size of  did not equal 9)"),
    ],
)
def test_what_cannot_be_reserved_is_refused_at_start(on: Machine, rules: CpuRules, sentence: str) -> None:
    """Each with the kubelet's sentence."""
    with pytest.raises(SettingsError) as error:
        CpuManager(on, Rules(cpu=rules))
    assert sentence in str(error.value)


def test_align_by_socket_is_refused_where_it_cannot_be() -> None:
    """With policy single-numa-node, and with more sockets than NUMA nodes."""
    cpu = CpuRules(options=CpuOptions(align_by_socket=True))
    with pytest.raises(SettingsError, match="single-numa-node policy is incompatible"):
        CpuManager(D2, Rules(cpu=cpu, topology=TopologyRules(Policy.SINGLE_NUMA_NODE)))
    with pytest.raises(SettingsError, match="number of sockets are more than number of NUMA"):
        CpuManager(U3, Rules(cpu=cpu))


@pytest.mark.parametrize(
    ("on", "free", "count", "options", "expected"),
    [
        (M, "2-11", 2, {}, "{0}p {1}p {01}n"),
        (M, "2-11", 5, {}, "{1}p {01}n"),
        (M, "2-11", 7, {}, "{01}p"),
        (M, "2-11", 11, {}, "[]"),
        (M, "0,3", 2, {}, "{01}n"),
        (M, "0-11", 0.5, {}, "None"),
        (Q4, "2,3,11", 2, {}, "{0}p {01}n {02}n {03}n {012}n {013}n {023}n {0123}n"),
        (Q4, "2,3,11", 2, {"align_by_socket": True}, "{0}p {01}p {02}n {03}n {012}n {013}n {023}n {0123}n"),
        (Q4, "0-28,40-57", 41, {"align_by_socket": True}, "{012}p {0123}p"),
    ],
)
def test_hints(on: Machine, free: str, count: int, options: dict[str, Any], expected: str) -> None:
    """Node sets with enough free CPUs; preferred as an empty machine would need them (kubelet rule 4.5)."""
    node = Node(on, **options)
    node.free(free)
    assert node.hints(count) == expected


@pytest.mark.parametrize(
    ("held", "count", "expected"),
    [("0,6", 2, "{0}p {01}n"), ("0-10", 11, "{01}p"), ("0-1,6-7", 2, "[]"), ("0-1,6-7", 11, "[]")],
)
def test_hints_of_what_is_held(held: str, count: int, expected: str) -> None:
    """A container that holds its CPUs gets hints from these alone; another number than it asks for fits nowhere."""
    node = Node(M)
    mine = pod("p", container("c", count))
    books = type(node.ledger.cpus)(
        shared=node.machine.online - CpuSet.parse(held), assigned={"p": {"c": CpuSet.parse(held)}}
    )
    answer = node.provider.container_hints(Ledger("", books), mine, mine.containers[0])
    assert shown(answer, M) == expected


@pytest.mark.parametrize(
    ("on", "reserved", "free", "count", "nodes", "options", "expected"),
    [
        (D2, "", "0-11", 2, None, {}, "0,6"),
        (D2, "", "0-11", 2, [0], {}, "0,6"),
        (D2, "", "0-11", 2, [1], {}, "1,7"),
        (D2, "", "0-11", 8, [0], {}, "0-2,4,6-8,10"),
        (D2, "", "0-11", 8, [1], {}, "0-1,3,5-7,9,11"),
        (Q4, "1", "2,11,21-22", 2, [0, 2], {}, "2,21"),
        (Q4, "1", "2,11,21-22", 2, [0, 2], {"align_by_socket": True}, "2,11"),
        (D2, "0,6", "1-5,7-11", 10, None, {"full_pcpus_only": True}, "1-5,7-11"),
    ],
)
@pytest.mark.parametrize("mode", [KUBELET, FIXED])
def test_allocate(
    on: Machine, reserved: str, free: str, count: int, nodes: list[int] | None,
    options: dict[str, Any], expected: str, mode: Compatibility,
) -> None:  # fmt: skip
    """Within the affinity first, then anywhere (kubelet rule 4.6): both modes alike where no defect is in play."""
    node = Node(on, reserved, mode=mode, **options)
    node.free(free)
    assert node.admit(pod("p", container("c", count)), nodes) == {"c": expected}
    assert CpuSet.parse(expected).isdisjoint(node.ledger.cpus.shared)


@pytest.mark.parametrize(
    ("on", "reserved", "free", "count", "message"),
    [
        (S1, "", "0-7", 1, "SMT Alignment Error: requested 1 cpus not multiple cpus per core = 2"),
        (
            D2, "1,6", "0,2-5,7-11", 10,
            ("SMT Alignment Error: not enough free physical CPUs: available physical CPUs = 8, requested CPUs = 10, "
            "CPUs per core = 2"),
        ),
    ],
)  # fmt: skip
def test_full_pcpus_only_refuses(on: Machine, reserved: str, free: str, count: int, message: str) -> None:
    """Parts of cores, and more than there are on cores that the system does not use (kubelet rule 4.7)."""
    node = Node(on, reserved, full_pcpus_only=True)
    node.free(free)
    refusal = node.admit(pod("p", container("c", count)))
    assert isinstance(refusal, Refusal)
    assert (refusal.reason, refusal.message) == (Reason.SMT, message)


def test_four_threads_per_core() -> None:
    """15 CPUs are no whole number of cores of 4."""
    on = machine([(0, None, [core * 4 + thread for thread in range(4)]) for core in range(8)])
    refusal = Node(on, full_pcpus_only=True).admit(pod("p", container("c", 15)))
    assert isinstance(refusal, Refusal)
    assert refusal.message.endswith("requested 15 cpus not multiple cpus per core = 4")


def test_too_large_is_refused_with_the_kubelets_sentence() -> None:
    """And leaves the pool as it was."""
    node = Node(S1, "0,4")
    refusal = node.admit(pod("p", container("c", 7)))
    assert isinstance(refusal, Refusal)
    assert refusal.message == "not enough cpus available to satisfy request: requested=7, available=6"
    assert node.shared == "0-7"


@pytest.mark.parametrize(
    ("containers", "held", "shared"),
    [
        ([init("i", 4), container("a", 2)], {"i": "0-1,4-5", "a": "0,4"}, "2-3,6-7"),
        ([sidecar("s", 4), container("a", 2)], {"s": "0-1,4-5", "a": "2,6"}, "3,7"),
        (
            [init("i", 2), init("j", 4), container("a", 2), container("b", 2)],
            {"i": "0,4", "j": "0-1,4-5", "a": "0,4", "b": "1,5"},
            "2-3,6-7",
        ),
    ],
)
def test_init_containers_leave_their_cpus_to_later_ones(
    containers: list[Container], held: dict[str, str], shared: str
) -> None:
    """Sidecars do not leave CPUs as init containers do, since they go on running (kubelet rule 4.13)."""
    node = Node(S1)
    assert node.admit(pod("p", *containers)) == held
    assert node.shared == shared


def test_reusable_cpus_are_part_of_the_hints() -> None:
    """What init containers leave (kubelet rule 4.13): CPUs left on node 0 take node 1 alone out of the hints."""
    node = Node(machine(smt(0, range(4), 8), smt(1, range(4, 8), 8)), "0")
    mine = pod("p", init("i", 2), sidecar("s", 1), container("a", 3), container("h", 0.5))
    for each in mine.containers[:2]:
        taken = node.provider.allocate(node.ledger, mine, each, at(0))
        assert isinstance(taken, Ledger)
        node.ledger = taken
    assert shown(node.provider.container_hints(node.ledger, mine, mine.containers[2]), node.machine) == "{0}p {01}n"
    assert node.admit(mine, [0]) == {"i": "1,9", "s": "8", "a": "1-2,9"}


def test_a_released_init_container_gives_back_what_no_other_holds() -> None:
    """The example of kubelet rule 4.14; and what it gave back may be granted again."""
    node = Node(S1)
    node.admit(pod("p", init("i", 4), container("a", 2)))
    node.release("p", "i")
    assert node.shared == "1-3,5-7"
    node.release("p", "nobody")
    node.release("q")
    assert node.shared == "1-3,5-7"
    node.release("p")
    assert node.shared == "0-7"
    assert not node.ledger.cpus.assigned


def test_who_shares() -> None:
    """Fractions, pods that are not Guaranteed, and pod-level resources with the gate off get nothing exclusive."""
    node = Node(S1, "0")
    assert node.admit(pod("a", container("c", 1.5))) == {}
    assert node.admit(pod("b", container("c", 2), qos=Qos.BURSTABLE)) == {}
    assert node.admit(pod("c", container("c", 2), whole=2)) == {}
    whole = pod("d", container("c", 2), whole=2)
    assert shown(node.provider.pod_hints(node.ledger, whole), S1) == "None"
    assert node.shared == "0-7"


def test_policy_none_grants_and_reserves_nothing() -> None:
    """It has no hints, and no pool but all CPUs."""
    provider = CpuManager(S1, Rules(cpu=CpuRules(static=False)))
    ledger, mine = Ledger("", provider.start()), pod("p", container("c", 2))
    assert shown(provider.container_hints(ledger, mine, mine.containers[0]), S1) == "None"
    assert provider.allocate(ledger, mine, mine.containers[0], at(0)) == ledger
    assert (provider.reserved, ledger.cpus.shared) == (CpuSet(), S1.online)


def test_strict_reservation_keeps_the_reserved_cpus_out_of_the_pool() -> None:
    """The shared pool has the reserved CPUs at start, and after a release (kubelet rule 4.2)."""
    node = Node(S1, "0,4", strict_reservation=True)
    assert node.shared == "1-3,5-7"
    node.admit(pod("p", container("c", 2)))
    assert node.shared == "2-3,6-7"
    node.release("p")
    assert node.shared == "1-3,5-7"


def test_options_of_one_pod() -> None:
    """numalign.io/cpu-options changes how its CPUs are picked, and neither what is reserved nor the pool."""
    node = Node(D2, "0,6", strict_reservation=True)
    other = node.provider.with_options(CpuOptions(distribute_across_cores=True))
    mine = pod("p", container("c", 2))
    taken = other.allocate(node.ledger, mine, mine.containers[0], at(1))
    assert isinstance(taken, Ledger)
    assert (str(taken.cpus.assigned["p"]["c"]), str(taken.cpus.shared)) == ("1,3", "2,4-5,7-11")
    assert other.reserved == node.provider.reserved
