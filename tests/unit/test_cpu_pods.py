"""Pods with pod-level resources that are managed as a whole (kubelet rule 4.12), and defect D9."""

from __future__ import annotations

import pytest

from agent.model.outcome import Reason, Refusal
from agent.model.pod import Container, Pod
from agent.model.rules import Compatibility
from tests.unit.cpu_machines import D2, FIXED, KUBELET, Node, container, init, pod, shown, sidecar

BOTH = pytest.mark.parametrize("mode", [KUBELET, FIXED])


@pytest.mark.parametrize(
    ("whole", "containers", "own", "held"),
    [
        (2, [container("a", 1), container("b", 0)], "2,8", {"a": "2", "b": "8"}),
        (3, [container("a", 1), container("b", 1), container("c", 0)], "2,6,8", {"a": "6", "b": "2", "c": "8"}),
        (
            3,
            [init("i", 0), sidecar("s", 1), init("j", 0), container("a", 1), container("b", 0)],
            "2,6,8",
            {"i": "2,6,8", "s": "6", "j": "2,8", "a": "2", "b": "8"},
        ),
        (2, [sidecar("s", 0), container("a", 1)], "2,8", {"s": "8", "a": "2"}),
    ],
)
@BOTH
def test_a_pod_divides_its_own_cpus(
    whole: int, containers: list[Container], own: str, held: dict[str, str], mode: Compatibility
) -> None:
    """Exclusive shares first, everybody else shares the rest; nothing is left over (kubelet rule 4.12)."""
    node = Node(D2, "0", gate=True, mode=mode)
    assert node.admit(pod("p", *containers, whole=whole)) == held
    assert str(node.ledger.cpus.pools["p"]) == own
    assert node.ledger.cpus.pools["p"].isdisjoint(node.ledger.cpus.shared)


@pytest.mark.parametrize(
    ("refused", "sentence"),
    [
        (
            pod("p", container("a", 1), container("b", 1), container("c", 0), whole=2),
            (
                "pod rejected, sum of exclusive container cpu requests equals pod budget, leaving no cpus for shared "
                "containers"
            ),
        ),
        (
            pod("p", sidecar("s", 2), init("i", 0), container("a", 1), whole=2),
            "pod rejected, pod has shared init containers but no cpus available for them",
        ),
    ],
)
def test_nobody_is_left_without_a_cpu(refused: Pod, sentence: str) -> None:
    """Such a pod is refused, and its hints say that it fits nowhere."""
    node = Node(D2, "0", gate=True)
    assert shown(node.provider.pod_hints(node.ledger, refused), D2) == "[]"
    refusal = node.admit(refused)
    assert isinstance(refusal, Refusal)
    assert (refusal.reason, refusal.message) == (Reason.EMPTY_POOL, sentence)


@BOTH
def test_a_pod_that_asks_for_more_inside_than_it_has_is_refused_and_loses_nothing(mode: Compatibility) -> None:
    """The kubelet refuses too, and never gives the pod's CPUs back."""
    node = Node(D2, "0", gate=True, mode=mode)
    refusal = node.admit(pod("p", container("a", 3), whole=2))
    assert isinstance(refusal, Refusal)
    assert refusal.message == "not enough cpus available to satisfy request: requested=3, available=2"
    assert (node.shared, node.ledger.cpus.pools) == ("0-11", {})


def test_the_last_container_gives_the_pods_cpus_back() -> None:
    """Until then they stay the pod's, whoever ended (kubelet rule 4.12)."""
    node = Node(D2, "0", gate=True)
    node.admit(pod("p", container("a", 1), container("b", 0), whole=2))
    node.release("p", "a")
    assert node.shared == "0-1,3-7,9-11"
    node.release("p", "b")
    assert (node.shared, node.ledger.cpus.pools, node.ledger.cpus.assigned) == ("0-11", {}, {})


def test_the_whole_pod_gives_them_back_at_once() -> None:
    """However many containers it has."""
    node = Node(D2, "0", gate=True)
    node.admit(pod("p", container("a", 1), container("b", 0), whole=4))
    node.release("p")
    assert (node.shared, node.ledger.cpus.pools, node.ledger.cpus.assigned) == ("0-11", {}, {})


@BOTH
def test_d9_admitted_again_a_pod_keeps_its_cpus(mode: Compatibility) -> None:
    """The kubelet takes new ones and loses the first; that is mended in both modes."""
    node = Node(D2, "0", gate=True, mode=mode)
    mine = pod("p", container("a", 1), container("b", 0), whole=4)
    first = node.admit(mine)
    books = node.ledger.cpus
    assert node.admit(mine) == first
    assert node.ledger.cpus == books


def test_d9_hints_of_a_pod_that_has_its_cpus_are_where_they_lie() -> None:
    """The kubelet's are empty as soon as some container shares."""
    mine = pod("p", container("a", 1), container("b", 0), whole=4)
    for mode, expected in ((KUBELET, "[]"), (FIXED, "{0}p {01}n")):
        node = Node(D2, "0", gate=True, mode=mode)
        node.admit(mine, [0])
        assert shown(node.provider.pod_hints(node.ledger, mine), D2) == expected


@BOTH
def test_d9_a_refused_second_admission_is_refused_for_the_kubelet_only(mode: Compatibility) -> None:
    """Where the kubelet has no room for the CPUs twice, it refuses the running pod."""
    node = Node(D2, "0", gate=True, mode=mode)
    mine = pod("p", container("a", 6), container("b", 0), whole=8)
    first = node.admit(mine)
    assert isinstance(node.admit(mine), Refusal) == (mode is KUBELET)
    assert {name: str(held) for name, held in node.ledger.cpus.assigned["p"].items()} == first
