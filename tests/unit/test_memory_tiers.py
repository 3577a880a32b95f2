"""Nodes without CPUs: the table of four requests under the kubelet's rule and the tiers local, any and far."""

from __future__ import annotations

import pytest

from agent.core.machines.tiers import Reach
from agent.core.memory.hints import Table
from agent.core.merge.demand import Demand, Family, Need, Positions, listed
from agent.core.merge.masks import members
from agent.core.merge.merge import merge_answers
from agent.core.merge.order import Order
from agent.model.hint import Hint, Stance
from agent.model.idset import CpuSet, NodeSet
from agent.model.machine import Machine, NumaNode
from agent.model.outcome import Reason, Refusal
from agent.model.rules import MemoryTier, Policy, TopologyRules
from tests.unit.memory_cases import FIXED, GIB, KUBELET, Desk, machine, node
from tests.world.pods import container, pod

FAR_NODE = node(2, 64 * GIB, cpus=CpuSet(), distances=(14, 20, 10))
THREE = machine(
    node(0, 8 * GIB, cpus=CpuSet.of(0, 1, 2, 3), distances=(10, 20, 14)),
    node(1, 8 * GIB, cpus=CpuSet.of(4, 5, 6, 7), distances=(20, 10, 20)),
    FAR_NODE,
)
"""Two nodes of 4 CPUs and 8 GiB; node 2 has 64 GiB and no CPU, and is nearer to node 0."""
EVEN = machine(
    node(0, 8 * GIB, cpus=CpuSet.of(0, 1, 2, 3), distances=(10, 20, 14)),
    node(1, 8 * GIB, cpus=CpuSet.of(4, 5, 6, 7), distances=(20, 10, 14)),
    node(2, 64 * GIB, cpus=CpuSet(), distances=(14, 14, 10)),
)
"""The same, with node 2 as near to both."""
FREE_CPUS = (3, 4, 0)
"""CPU 0 is reserved, and 1 GiB of node 0."""


def cpu_demand(count: int, width: int = 3) -> Demand:
    """What the CPU manager would offer, by its free CPUs; preferred by the four that each node has."""
    free = FREE_CPUS + (0,) * (width - 3)
    return Demand(Family(0b011, (Need(count, free),)), 1 if count <= 4 else 2)


def ask(desk: Desk, policy: Policy, cpus: int, gib: int) -> str:
    """Merge CPUs and memory and allocate: "{0}p mems 0", or why not."""
    one = pod("a", container("c", cpus=cpus, memory=gib * GIB))
    offered = desk.provider.container_hints(desk.ledger, one, one.containers[0])
    answers = [{"cpu": cpu_demand(cpus, len(desk.positions))}, offered]
    merged = merge_answers(answers, desk.positions, TopologyRules(policy), Order())
    if not merged.admit:
        return "refused"
    taken = desk.provider.allocate(desk.ledger, one, one.containers[0], merged.hint)
    if isinstance(taken, Refusal):
        return taken.reason.value
    mems = taken.grant("a", "c").mems
    return f"{{{merged.hint.nodes}}}{'p' if merged.hint.preferred else 'n'} mems {mems}"


TABLE = [
    # CPUs, GiB, kubelet without node 2, kubelet, local, any
    (2, 4, "{0}p mems 0", "{0}p mems 0", "{0}p mems 0", "{0}p mems 0"),
    (2, 12, "{0-1}n mems 0-1", "{0}n mems 0-1", "{0-1}n mems 0-1", "{0}p mems 0,2"),
    (6, 12, "{0-1}p mems 0-1", "{0-1}n mems 0-1", "{0-1}p mems 0-1", "{0-1}n mems 0-1"),
    (2, 70, "UnexpectedAdmissionError", "{0-1}n mems 0-2", "InsufficientMemory", "{0}p mems 0,2"),
]


@pytest.mark.parametrize(("cpus", "gib", "without", "kubelet", "local", "wide"), TABLE)
def test_the_table_of_nodes_without_cpus(
    cpus: int, gib: int, without: str, kubelet: str, local: str, wide: str
) -> None:
    """Best-effort: what a memory-only node does to the kubelet, and what each tier makes of it."""
    reserved = {0: {"memory": GIB}}
    small = Machine(cpus=EVEN.cpus, nodes=tuple(_shorter(each) for each in EVEN.nodes[:2]))
    assert ask(Desk(small, KUBELET, reserved), Policy.BEST_EFFORT, cpus, gib) == without
    assert ask(Desk(EVEN, KUBELET, reserved), Policy.BEST_EFFORT, cpus, gib) == kubelet
    assert ask(Desk(EVEN, FIXED, reserved), Policy.BEST_EFFORT, cpus, gib) == local
    assert ask(Desk(EVEN, FIXED, reserved, MemoryTier.ANY), Policy.BEST_EFFORT, cpus, gib) == wide


def _shorter(each: NumaNode) -> NumaNode:
    return NumaNode(each.id, each.cpus, each.memory, each.hugepages, each.distances[:2])


def test_restricted_admits_what_fits_beside_a_memory_only_node() -> None:
    """6 CPUs and 12 GiB fit the two CPU nodes; node 2 makes the kubelet refuse them, and tier local does not."""
    reserved = {0: {"memory": GIB}}
    assert ask(Desk(EVEN, KUBELET, reserved), Policy.RESTRICTED, 6, 12) == "refused"
    assert ask(Desk(EVEN, FIXED, reserved), Policy.RESTRICTED, 6, 12) == "{0-1}p mems 0-1"


def test_local_is_the_kubelet_on_a_machine_without_them() -> None:
    """Every answer for every mask, over a grid of requests."""
    reserved = {0: {"memory": GIB}}
    small = Machine(cpus=EVEN.cpus, nodes=tuple(_shorter(each) for each in EVEN.nodes[:2]))
    for gib in range(1, 16):
        one = pod("a", container("c", memory=gib * GIB))
        assert Desk(EVEN, FIXED, reserved).hints(one, "c") == Desk(small, KUBELET, reserved).hints(one, "c")


def test_without_exclusive_cpus_every_node_counts() -> None:
    """A container with a fraction of a CPU has no CPU hints, so memory alone decides."""
    shared = pod("a", container("c", cpus=0.5, memory=12 * GIB))
    assert Desk(EVEN).hints(shared, "c") == {"memory": "{2}p {0,1}n {0,2}n {1,2}n {0,1,2}n"}


def test_tier_any_goes_to_the_nearest_first_and_only_if_needed() -> None:
    """Node 0 asks node 2, which is near to it alone; node 1 has no node without CPUs near to it."""
    desk = Desk(THREE, FIXED, {0: {"memory": 1}}, MemoryTier.ANY)
    assert desk.hints(pod("a", container("c", memory=12 * GIB)), "c") == {"memory": "{0}p {0,1}n"}
    first = desk.admit(pod("a", container("c", memory=12 * GIB)), Hint(NodeSet.of(0), preferred=True))
    assert [block.split for block in desk.blocks(first, "c") or ()] == [((0, 8 * GIB - 1), (2, 4 * GIB + 1))]
    assert desk.hints(first, "c") == {"memory": "{0}p"}, "asked again, it names the CPU node that it is on, no other"
    # node 0 and 2 are one group now: others may join it, by the name of its CPU node
    assert desk.hints(pod("b", container("c", memory=12 * GIB)), "c") == {"memory": "{0}p"}
    assert desk.hints(pod("b", container("c", memory=GIB)), "c") == {"memory": "{0}p {1}p"}


def test_tier_far_uses_nodes_without_cpus_only() -> None:
    """The masks are those of the CPU nodes near to node 2; the grant is on node 2 alone."""
    desk = Desk(EVEN, FIXED, {0: {"memory": 1}}, MemoryTier.FAR)
    one = pod("a", container("c", memory=40 * GIB))
    assert desk.hints(one, "c") == {"memory": "{0}p {1}p {0,1}n"}
    desk.admit(one, Hint(NodeSet.of(1), preferred=True))
    assert desk.held(one, "c") == {"memory": (40 * GIB, "2")}
    assert desk.hints(one, "c") == {"memory": "{0}p {1}p {0,1}n"}
    refusal = desk.allocate(pod("b", container("c", memory=40 * GIB)), Hint(None, preferred=False))
    assert refusal is not None
    assert refusal.reason is Reason.MEMORY


@pytest.mark.parametrize("tier", [MemoryTier.ANY, MemoryTier.FAR])
@pytest.mark.parametrize(
    ("held", "on"), [(0, ()), (20, (3,)), (60, (3,)), (4, (2,)), (70, (2, 3)), (12, (0, 2)), (12, (0, 1))]
)
def test_what_a_tier_offers_it_can_place(tier: MemoryTier, held: int, on: tuple[int, ...]) -> None:
    """The demand's masks are exactly those for which nodes can be named, with others' memory in the way too."""
    two_far = machine(
        node(0, 8 * GIB, cpus=CpuSet.of(0, 1), distances=(10, 20, 14, 30)),
        node(1, 8 * GIB, cpus=CpuSet.of(2, 3), distances=(20, 10, 14, 14)),
        node(2, 16 * GIB, cpus=CpuSet(), distances=(14, 14, 10, 30)),
        node(3, 64 * GIB, cpus=CpuSet(), distances=(30, 14, 30, 10)),
    )
    near = {0b01: {2}, 0b10: {2, 3}, 0b11: {2, 3}}
    desk = Desk(two_far, FIXED, {0: {"memory": 1}}, tier)
    if held:
        desk.admit(pod("other", container("c", memory=held * GIB)), Hint(NodeSet.of(*on) or None, preferred=True))
    for gib in (1, 8, 9, 16, 17, 30, 60, 70, 96):
        one = pod("a", container("c", memory=gib * GIB))
        placement = desk.provider._placer.placement(desk.ledger.memory, one, one.containers[0], {"memory": gib * GIB})
        demand = placement.demand()
        for mask in range(1, 4):
            if tier is MemoryTier.FAR:
                assert placement.accepts(mask) == _far_will_do(placement.table, near[mask], gib * GIB)
            assert placement.accepts(mask) == (demand is not None and demand.accepts(mask))
            if placement.accepts(mask):
                named = placement.place(mask)
                assert sum(placement.table.free["memory"][j] for j in members(named)) >= gib * GIB
                assert placement.table.may_group(named)


def _far_will_do(table: Table, near: set[int], size: int) -> bool:
    """Any nodes without CPUs, one of them near, that are in use together or all unused, and have enough."""
    free = table.free["memory"]
    used = {frozenset(members(group)) for group in table.in_use()}
    idle = {node for node in near if not table.used >> node & 1}
    together = [each for each in used if each & near and not each & {0, 1}] + [idle]
    return any(sum(free[node] for node in each) >= size for each in together)


def test_who_is_near() -> None:
    """By the kernel's own word, else by distance in both directions with all ties, else everybody."""
    positions = Positions.of(range(3))
    assert Reach.of(THREE, positions).near == {2: 0b001}
    assert Reach.of(EVEN, positions).near == {2: 0b011}
    told = NumaNode(2, CpuSet(), GIB, distances=(14, 20, 10), initiators=NodeSet.of(1))
    assert Reach.of(machine(*THREE.nodes[:2], told), positions).near == {2: 0b010}
    silent = machine(*(NumaNode(each.id, each.cpus, each.memory) for each in THREE.nodes))
    assert Reach.of(silent, positions).near == {2: 0b011}


def test_a_machine_that_tells_no_cpus_has_no_tiers() -> None:
    """Then every node is a node like any other."""
    bare = machine(*(NumaNode(number, CpuSet(), 4 * GIB) for number in range(2)))
    assert Desk(bare).hints(pod("a", container("c", memory=GIB)), "c") == {"memory": "{0}p {1}p {0,1}n"}


def test_listed_hints_of_a_stance_are_none() -> None:
    """A request without any fit is a stance, not a demand without masks."""
    desk = Desk(EVEN, FIXED, {0: {"memory": GIB}})
    one = pod("a", container("c", memory=500 * GIB))
    answer = desk.provider.container_hints(desk.ledger, one, one.containers[0])
    assert answer == {"memory": Stance.IMPOSSIBLE}
    assert listed(cpu_demand(6), desk.positions) == (Hint(NodeSet.of(0, 1), preferred=True),)
