"""agent.core.memory.provider: the kubelet's rules, by the examples of the specification, the same in both modes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.core.memory.choose import (
    BREAKS_GROUP,
    DEFAULT_NOT_PREFERRED,
    EXTENSION_NOT_PREFERRED,
    NO_EXTENSION,
)  # fmt: skip
from agent.core.memory.pods import NO_ROOM_FOR_INIT, NO_ROOM_FOR_SHARED
from agent.errors import SettingsError
from agent.model.hint import Hint
from agent.model.outcome import Reason
from agent.model.pod import ContainerKind, Pod, Qos
from agent.model.rules import Compatibility
from tests.unit.memory_cases import ANYWHERE, GIB, KUBELET, MIB, NO_HINT, Desk, about, even, machine, node, nodes
from tests.world.pods import APP, HUGE_1G, HUGE_2M, INIT, SIDECAR, container, pod  # fmt: skip

HALF = 512 * MIB


def test_a_group_leaves_the_other_nodes(mode: Compatibility) -> None:
    """Nodes 0 and 1 are a group: one container's GiB of each kind can go to nodes 2 or 3, or both."""
    desk = Desk(even(4, 1536 * MIB, {HUGE_1G: GIB}), mode)
    desk.admit(pod("big", container("c", memory=2 * GIB, huge1g=2 * GIB)), nodes(0, 1))
    small = pod("small", container("c", memory=GIB, huge1g=GIB))
    assert desk.hints(small, "c") == dict.fromkeys((HUGE_1G, "memory"), "{2}p {3}p {2,3}n")


def test_a_group_is_not_preferred_when_one_node_would_do(mode: Compatibility) -> None:
    """Preferred is what the empty machine could do: one node, which the group of both leaves to nobody."""
    desk = Desk(even(2, 4 * GIB, {HUGE_2M: 20 * MIB}), mode)
    desk.admit(pod("big", container("c", memory=5 * GIB, huge2m=22 * MIB)), nodes(0, 1))
    small = pod("small", container("c", memory=GIB, huge2m=16 * MIB))
    assert desk.hints(small, "c") == dict.fromkeys((HUGE_2M, "memory"), "{0,1}n")


def test_a_node_of_singles_joins_no_group(mode: Compatibility) -> None:
    """Node 0 is used by a container of its own: 6 GiB fit on the other two only."""
    desk = Desk(even(3, 4 * GIB), mode, {0: {"memory": HALF}})
    desk.admit(pod("single", container("c", memory=GIB)), nodes(0))
    assert desk.hints(pod("a", container("c", memory=6 * GIB)), "c") == {"memory": "{1,2}p"}


def test_capacity_decides_what_is_preferred(mode: Compatibility) -> None:
    """6 GiB on nodes of 3.5 and 4 GiB need both, so both are preferred."""
    desk = Desk(even(2, 4 * GIB), mode, {0: {"memory": HALF}})
    assert desk.hints(pod("a", container("c", memory=6 * GIB)), "c") == {"memory": "{0,1}p"}


def test_memory_fills_nodes_from_the_lowest(mode: Compatibility) -> None:
    """No affinity: the best hint is taken; memory is half on each node, huge pages all on the first."""
    desk = Desk(even(2, HALF, {HUGE_1G: GIB}), mode)
    one = desk.admit(pod("a", container("c", memory=GIB, huge1g=GIB)), ANYWHERE)
    assert desk.held(one, "c") == {HUGE_1G: (GIB, "0-1"), "memory": (GIB, "0-1")}
    assert desk.reserved_bytes() == [HALF, HALF]
    assert desk.reserved_bytes(HUGE_1G) == [GIB, 0]
    assert desk.groups() == [(2, "0-1"), (2, "0-1")]


def test_several_nodes_with_a_single_user_are_refused(mode: Compatibility) -> None:
    """Node 0 has a single user; a preferred affinity of both nodes breaks the rule of groups."""
    desk = Desk(even(2, 2 * GIB), mode)
    desk.admit(pod("single", container("c", memory=MIB)), nodes(0))
    refusal = desk.allocate(pod("b", container("c", memory=MIB)), nodes(0, 1))
    assert refusal is not None
    assert (refusal.reason, refusal.message) == (Reason.UNEXPECTED, BREAKS_GROUP)


def test_a_preferred_hint_without_nodes_wants_a_preferred_default(mode: Compatibility) -> None:
    """One GiB would fit one node of the empty machine; with half of node 0 in use only two others have it."""
    desk = Desk(machine(node(0, GIB + 1), node(1, HALF), node(2, HALF)), mode)
    desk.admit(pod("single", container("c", memory=HALF)), nodes(0))
    refusal = desk.allocate(pod("b", container("c", memory=GIB)), ANYWHERE)
    assert refusal is not None
    assert refusal.message == DEFAULT_NOT_PREFERRED


def test_a_preferred_affinity_is_not_extended_to_worse(mode: Compatibility) -> None:
    """Node 1 is too small, and what contains it is not as good as one node of the empty machine."""
    desk = Desk(machine(node(0, GIB + 1), node(1, HALF), node(2, HALF)), mode)
    desk.admit(pod("single", container("c", memory=HALF)), nodes(0))
    refusal = desk.allocate(pod("b", container("c", memory=GIB)), nodes(1))
    assert refusal is not None
    assert refusal.message == EXTENSION_NOT_PREFERRED


def test_an_affinity_in_use_by_others_is_not_extended(mode: Compatibility) -> None:
    """Nothing that contains node 0 is free: nodes 1 and 2 are a group of their own."""
    desk = Desk(even(3, GIB), mode)
    desk.admit(pod("group", container("c", memory=GIB + HALF)), nodes(1, 2))
    refusal = desk.allocate(pod("b", container("c", memory=GIB + HALF // 2)), nodes(0))
    assert refusal is not None
    kubelet = mode is KUBELET
    # FIXED looks for any fit first, finds none, and says so with a reason of its own, not "no preference" (D7)
    assert (refusal.reason, refusal.message == NO_EXTENSION) == (
        (Reason.UNEXPECTED, True) if kubelet else (Reason.MEMORY, False)
    )


def test_an_affinity_that_is_too_small_is_extended(mode: Compatibility) -> None:
    """Best-effort merged to node 0; the container needs both."""
    desk = Desk(even(2, GIB), mode)
    one = desk.admit(pod("a", container("c", memory=GIB + HALF)), about(0))
    assert desk.held(one, "c") == {"memory": (GIB + HALF, "0-1")}


def test_others_than_guaranteed_pods_have_no_memory_of_their_own(mode: Compatibility) -> None:
    """Burstable and best-effort pods, and pods with pod-level resources while the gate is off."""
    desk = Desk(even(2, 4 * GIB), mode)
    burstable = pod("b", container("c", memory=GIB), qos=Qos.BURSTABLE)
    whole = pod("w", container("c", memory=GIB), whole={"cpu": 1})
    for each in (burstable, whole):
        assert desk.hints(each, "c") == desk.hints(each) == "no preference"
        before = desk.ledger
        assert desk.allocate(each, nodes(0)) is None
        assert desk.ledger is before


def test_policy_none_grants_nothing(mode: Compatibility) -> None:
    """Under policy None: no hints, no books, nothing taken; a reservation is not needed."""
    desk = Desk(even(2, 4 * GIB), mode, {}, static=False)
    assert desk.ledger.memory.nodes == ()
    one = desk.admit(pod("a", container("c", memory=GIB)), nodes(0))
    assert desk.hints(one, "c") == "no preference"
    assert desk.ledger.memory.blocks == {}


def test_static_without_a_reservation_does_not_start(mode: Compatibility) -> None:
    """The kubelet's sentence, and what to write."""
    with pytest.raises(SettingsError, match=r"you should specify the system reserved memory; write for example"):
        Desk(even(1, GIB), mode, {0: {"memory": 0}})


def test_the_whole_pod_is_asked_for_at_once(mode: Compatibility) -> None:
    """Scope pod: 1 + 2 GiB of apps beside a sidecar of 2, a later init container of 4: at most 6 at once."""
    desk = Desk(even(2, 8 * GIB), mode, {0: {"memory": 4 * GIB}})
    sizes: list[tuple[str, ContainerKind, int]] = [("s", SIDECAR, 2), ("i", INIT, 4), ("a", APP, 1), ("b", APP, 2)]
    one = pod("p", *(container(name, kind, memory=size * GIB) for name, kind, size in sizes))
    assert desk.hints(one) == {"memory": "{1}p {0,1}n"}


def test_sparse_node_ids(mode: Compatibility) -> None:
    """Node ids with holes, one of them beyond 63, are nodes like any other."""
    desk = Desk(machine(node(0, GIB + 1), node(8, GIB), node(200, GIB)), mode)
    one = pod("a", container("c", memory=2 * GIB))
    assert desk.hints(one, "c") == {"memory": "{0,8}p {0,200}p {8,200}p {0,8,200}n"}
    desk.admit(one, nodes(8, 200))
    assert desk.groups() == [(0, "0"), (1, "8,200"), (1, "8,200")]
    desk.release(one)
    assert desk.groups() == [(0, "0"), (0, "8"), (0, "200")]


def test_fractions_of_bytes() -> None:
    """The kubelet refuses them with this sentence; we round them up."""
    half = pod("a", container("c", memory=GIB))
    odd = {"cpu": 1000, "memory": 1500}
    one = pod("a", type(half.containers[0])("c", APP, odd, odd))
    desk = Desk(even(1, GIB), KUBELET)
    refusal = desk.allocate(one, NO_HINT)
    assert refusal is not None
    assert refusal.message == "[memorymanager] failed to represent quantity as int64"
    desk = Desk(even(1, GIB))
    assert desk.held(desk.admit(one, NO_HINT), "c") == {"memory": (2, "0")}


def test_a_fraction_of_a_byte_at_pod_level(mode: Compatibility) -> None:
    """The kubelet passes such a pod over; we round up."""
    asked = {"cpu": 1000, "memory": 1500}
    one = replace(pod("w", container("c")), requests=asked, limits=asked)
    desk = Desk(even(1, GIB), mode, pod_level=True)
    assert desk.allocate_pod(one, nodes(0)) is None
    assert desk.reserved_bytes() == [0 if mode is KUBELET else 2]


def whole_pod(pool: int, *containers: tuple[str, ContainerKind, int | None]) -> Pod:
    """A pod with `pool` MiB of its own and containers with or without MiB of theirs."""
    made = []
    for name, kind, size in containers:
        made.append(container(name, kind) if size is None else container(name, kind, memory=size * MIB))
    return pod("w", *made, whole={"cpu": 8, "memory": pool * MIB})


def test_a_pod_level_pool_is_taken_once_and_shared_out(mode: Compatibility) -> None:
    """A regular init container has all but the earlier sidecars' memory, shared ones what nobody has for himself."""
    desk = Desk(even(2, GIB), mode, pod_level=True)
    one = whole_pod(100, ("s", SIDECAR, 10), ("i", INIT, None), ("a", APP, 30), ("b", APP, None))
    assert desk.hints(one) == {"memory": "{0}p {1}p {0,1}n"}
    assert desk.allocate_pod(one, nodes(1)) is None
    held = {name: (desk.held(one, name) or {})["memory"] for name in "siab"}
    assert held == {name: (size * MIB, "1") for name, size in (("s", 10), ("i", 90), ("a", 30), ("b", 60))}
    assert desk.reserved_bytes() == [0, 100 * MIB]
    for name in "sia":
        desk.release(one, name)
        assert desk.reserved_bytes() == [0, 100 * MIB]
    desk.release(one, "b")
    assert desk.groups() == [(0, "0"), (0, "1")]
    assert desk.ledger.memory.pools == {}


@pytest.mark.parametrize(
    ("containers", "words"),
    [
        (
            (("s", SIDECAR, 100), ("i", INIT, None), ("a", APP, 0)),
            NO_ROOM_FOR_INIT.format("memory"),
        ),
        (
            (("a", APP, 100), ("b", APP, None)),
            NO_ROOM_FOR_SHARED.format("memory"),
        ),
    ],
)
def test_a_pool_that_leaves_nothing_is_refused(
    mode: Compatibility, containers: tuple[tuple[str, ContainerKind, int | None], ...], words: str
) -> None:
    """EmptyPodSharedPoolError, and impossible hints before that."""
    desk = Desk(even(2, GIB), mode, pod_level=True)
    one = whole_pod(100, *containers)
    assert desk.hints(one) == {"memory": "impossible"}
    refusal = desk.allocate_pod(one, NO_HINT)
    assert refusal is not None
    assert (refusal.reason, refusal.message) == (Reason.EMPTY_POOL, words)


def test_order_of_requests_changes_nothing(mode: Compatibility) -> None:
    """Blocks are sorted by resource, whatever the manifest's order is."""
    desk = Desk(even(1, GIB, {HUGE_2M: 20 * MIB, HUGE_1G: GIB}), mode)
    milli = {"memory": MIB * 1000, HUGE_2M: 2 * MIB * 1000, "cpu": 1000, HUGE_1G: GIB * 1000}
    one = desk.admit(pod("a", type(container("c"))("c", APP, milli, milli)), Hint(None, preferred=False))
    assert [block.resource for block in desk.blocks(one, "c") or ()] == [HUGE_1G, HUGE_2M, "memory"]
