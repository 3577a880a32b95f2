"""agent.core.memory.provider: what init containers and sidecars leave or keep, and what goes back."""

from __future__ import annotations

import pytest

from agent.model.pod import ContainerKind
from agent.model.rules import Compatibility
from tests.unit.memory_cases import GIB, MIB, Desk, even, nodes
from tests.world.pods import APP, HUGE_1G, INIT, SIDECAR, container, pod  # fmt: skip


@pytest.mark.parametrize(
    ("inits", "apps", "left"),
    [
        ((1, 2), (3, 4), [0, 0, 3, 4]),
        ((4, 3), (2, 1), [0, 1, 2, 1]),
        ((7, 4), (4, 3), [0, 0, 4, 3]),
        ((7, 4), (5, 2), [0, 0, 5, 2]),
    ],
)
def test_init_containers_leave_their_memory(
    mode: Compatibility, inits: tuple[int, int], apps: tuple[int, int], left: list[int]
) -> None:
    """Blocks shrink as others take their bytes over; together they stay what was taken (kubelet rule 5.8)."""
    desk = Desk(even(1, 16 * GIB, {HUGE_1G: 16 * GIB}), mode)
    each = [container(f"i{n}", INIT, memory=size * GIB, huge1g=size * GIB) for n, size in enumerate(inits)]
    each += [container(f"a{n}", APP, memory=size * GIB, huge1g=size * GIB) for n, size in enumerate(apps)]
    one = desk.admit(pod("p", *each), nodes(0))
    for resource in ("memory", HUGE_1G):
        held = [(desk.held(one, name) or {})[resource][0] for name in ("i0", "i1", "a0", "a1")]
        assert held == [size * GIB for size in left]
        assert desk.reserved_bytes(resource) == [sum(left) * GIB]
    assert desk.groups() == [(8, "0")]


def test_sidecars_keep_their_memory(mode: Compatibility) -> None:
    """A sidecar takes over what an init container before it left, and leaves nothing to the app."""
    desk = Desk(even(1, 16 * GIB), mode)
    kinds: list[tuple[str, ContainerKind, int]] = [("i", INIT, 2), ("s", SIDECAR, 2), ("a", APP, 3)]
    one = desk.admit(pod("p", *(container(name, kind, memory=size * GIB) for name, kind, size in kinds)), nodes(0))
    assert [(desk.held(one, name) or {})["memory"][0] // GIB for name in "isa"] == [0, 2, 3]


def test_reuse_needs_the_same_nodes(mode: Compatibility) -> None:
    """An app on other nodes than the init container takes new memory."""
    desk = Desk(even(2, 4 * GIB), mode)
    one = pod("p", container("i", INIT, memory=GIB), container("a", memory=GIB))
    assert desk.allocate(one, nodes(0), "i") is None
    assert desk.allocate(one, nodes(1), "a") is None
    assert desk.reserved_bytes() == [GIB, GIB]


def test_what_init_containers_leave_makes_room(mode: Compatibility) -> None:
    """Node 0 is full of the init container's memory; the app still gets a hint for it."""
    desk = Desk(even(2, 2 * GIB), mode)
    one = pod("p", container("i", INIT, memory=2 * GIB), container("a", memory=GIB))
    assert desk.allocate(one, nodes(0), "i") is None
    assert desk.hints(one, "a") == {"memory": "{0}p {1}p"}
    assert desk.allocate(one, nodes(0), "a") is None
    assert desk.reserved_bytes() == [2 * GIB, 0]


def test_the_start_of_a_container_ends_the_init_containers_before_it(mode: Compatibility) -> None:
    """What the app has not taken over is free again; sidecars stay."""
    desk = Desk(even(1, 16 * GIB), mode)
    kinds: list[tuple[str, ContainerKind, int]] = [("i", INIT, 5), ("s", SIDECAR, 1), ("a", APP, 2)]
    one = desk.admit(pod("p", *(container(name, kind, memory=size * GIB) for name, kind, size in kinds)), nodes(0))
    assert desk.reserved_bytes() == [5 * GIB]
    desk.ledger = desk.provider.started(desk.ledger, one, one.containers[1])
    assert desk.reserved_bytes() == [3 * GIB]
    desk.ledger = desk.provider.started(desk.ledger, one, one.containers[2])
    assert list(desk.ledger.memory.blocks["p"]) == ["s", "a"]
    assert desk.groups() == [(2, "0")]


def test_held_memory_is_hinted_where_it_is(mode: Compatibility) -> None:
    """A container that is admitted again stays on its nodes, though others have more room."""
    desk = Desk(even(2, 4 * GIB), mode)
    one = desk.admit(pod("a", container("c", memory=3 * GIB)), nodes(1))
    assert desk.hints(one, "c") == {"memory": "{1}p"}
    before = desk.ledger
    assert desk.allocate(one, nodes(0)) is None
    assert desk.ledger.memory.nodes == before.memory.nodes


def test_an_unknown_pod_or_container_is_released_without_effect(mode: Compatibility) -> None:
    """The ledger is the very same."""
    desk = Desk(even(2, GIB), mode)
    one = desk.admit(pod("a", container("c", memory=MIB)), nodes(0))
    before = desk.ledger
    desk.release(pod("ghost"))
    desk.release(one, "ghost")
    assert desk.ledger is before
