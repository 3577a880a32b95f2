"""What holds of the CPU manager on any machine: random machines, options, pods and orders of coming and going."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import agent.core.cpus.distributed as ways
from agent.core.cpus.distributed import distributed
from agent.core.cpus.packed import CannotTake, packed
from agent.core.cpus.topology import CpuTopology
from agent.core.kubelets import MENDED
from agent.core.merge.demand import Demand, Positions, listed
from agent.model.hint import ANY_NODES, Hint, Stance
from agent.model.idset import CpuSet, NodeSet
from agent.model.ledger import CpuBooks
from agent.model.machine import Cpu, Machine, NumaNode
from agent.model.outcome import Refusal
from agent.model.pod import Container, ContainerKind, Pod
from agent.model.rules import Compatibility, CpuOptions
from tests.examples import examples
from tests.unit.cpu_machines import Node, container, machine, pod
from tests.world.strategies import cpu_options

MODES = st.sampled_from(list(Compatibility))


@st.composite
def machines(draw: st.DrawFn) -> Machine:
    """Up to 4 nodes with uneven cores, threads missing here and there, some CPUs isolated."""
    nodes = draw(st.integers(1, 4))
    sockets = draw(st.sampled_from([count for count in (1, 2, 4) if nodes % count == 0]))
    cpus: list[Cpu] = []
    for node in range(nodes):
        for place in range(draw(st.integers(1, 5))):
            first = len(cpus)
            uncore = draw(st.sampled_from([None, node * 4 + place // 2]))
            socket = node * sockets // nodes
            threads = draw(st.sampled_from([1, 2, 2, 2]))
            cpus += [
                Cpu(first + each, node=node, core=first, package=socket, die=socket, uncore=uncore)
                for each in range(threads)
            ]
    books = tuple(
        NumaNode(node, CpuSet.from_ids(cpu.id for cpu in cpus if cpu.node == node), memory=0) for node in range(nodes)
    )
    isolated = CpuSet.from_ids(draw(st.sets(st.integers(0, len(cpus) - 1), max_size=4)))
    return Machine(cpus=tuple(cpus), nodes=books, isolated=draw(st.sampled_from([CpuSet(), isolated])))


@st.composite
def managers(draw: st.DrawFn) -> Node:
    """A CPU manager with some reserved CPUs, at its start."""
    machine = draw(machines())
    online = sorted(machine.online)
    reserved = CpuSet.from_ids(draw(st.sets(st.sampled_from(online), min_size=1, max_size=max(1, len(online) // 3))))
    options, mode, gate = draw(cpu_options), draw(MODES), draw(st.booleans())
    chosen = {name: getattr(options, name) for name in CpuOptions.__slots__}
    return Node(machine, str(reserved), mode=mode, gate=gate, **chosen)


@st.composite
def pods(draw: st.DrawFn, uid: str) -> Pod:
    """One to four containers, inits and sidecars first; sometimes with pod-level CPUs."""
    kinds = draw(st.lists(st.sampled_from([ContainerKind.INIT, ContainerKind.SIDECAR]), max_size=2))
    kinds += [ContainerKind.APP] * draw(st.integers(1, 2))
    each = [
        container(f"c{number}", draw(st.sampled_from([0, 0.5, 1, 2, 2, 3, 4])), kind)
        for number, kind in enumerate(kinds)
    ]
    return pod(uid, *each, whole=draw(st.sampled_from([None, None, 4])))


def affinities(node: Node) -> st.SearchStrategy[Hint]:
    """Any mask of the machine's nodes, or none."""
    some = st.sets(st.sampled_from(sorted(node.machine.node_set)), min_size=1)
    return st.one_of(st.just(ANY_NODES), some.map(lambda ids: Hint(NodeSet.from_ids(ids), preferred=True)))


def admit(node: Node, mine: Pod, hint: Hint) -> Refusal | None:
    """As `Node.admit`, with a hint."""
    result = node.admit(mine, None if hint.nodes is None else sorted(hint.nodes))
    return result if isinstance(result, Refusal) else None


def settled(books: CpuBooks) -> CpuBooks:
    """Without what belongs to one admission."""
    return replace(books, reusable=None)


@settings(max_examples=examples(150), deadline=None)
@given(data=st.data())
def test_allocate_then_release_is_the_identity(data: st.DataObject) -> None:
    """In any state that other pods left behind, whether the pod was admitted or refused."""
    node = data.draw(managers())
    for uid in "ab":
        admit(node, data.draw(pods(uid)), data.draw(affinities(node)))
    before = settled(node.ledger.cpus)
    admit(node, data.draw(pods("p")), data.draw(affinities(node)))
    node.release("p")
    assert settled(node.ledger.cpus) == before


@settings(max_examples=examples(150), deadline=None)
@given(data=st.data())
def test_nothing_is_held_twice_reserved_or_lost(data: st.DataObject) -> None:
    """Pods come and go: exclusive sets are disjoint, never reserved, and with the pool they are all CPUs."""
    node = data.draw(managers())
    known: dict[str, Pod] = {}
    for number in range(data.draw(st.integers(1, 7))):
        if data.draw(st.booleans()) and known:
            gone = data.draw(st.sampled_from(sorted(known)))
            node.release(gone)
            del known[gone]
        mine = data.draw(pods(f"p{number}"))
        if admit(node, mine, data.draw(affinities(node))) is None:
            known[mine.uid] = mine
        check(node, known)


def check(node: Node, known: dict[str, Pod]) -> None:
    """The rules of the module's CPU part."""
    books, provider = node.ledger.cpus, node.provider
    held = CpuSet()
    for uid, mine in known.items():
        own = CpuSet.union([*books.assigned.get(uid, {}).values(), books.pools.get(uid, CpuSet())])
        assert own.isdisjoint(held)
        held |= own
        if uid not in books.pools:
            lasting = [books.assigned.get(uid, {}).get(each.name, CpuSet()) for each in _lasting(mine)]
            assert sum(map(len, lasting)) == len(CpuSet.union(lasting))
    assert held.isdisjoint(provider.reserved)
    assert held.isdisjoint(books.shared)
    assert books.shared or not provider.start().shared  # S5: no grant empties the pool
    strict = provider.reserved if node.rules.cpu.options.strict_reservation else CpuSet()
    assert held | books.shared | strict | provider.apart == node.machine.online


def _lasting(mine: Pod) -> list[Container]:
    return [each for each in mine.containers if each.kind is not ContainerKind.INIT]


@settings(max_examples=examples(300), deadline=None)
@given(data=st.data())
def test_d20_what_one_cache_holds_lies_in_one_cache(data: st.DataObject) -> None:
    """Pods come and go: where one cache of the affinity has room for a request, all its CPUs are of one cache."""
    full = data.draw(st.booleans())
    machine = data.draw(machines())
    reserved = data.draw(st.sampled_from(sorted(machine.online)))
    node = Node(machine, str(reserved), mode=Compatibility.FIXED, prefer_uncore=True, full_pcpus_only=full)
    topology = CpuTopology.of(machine)
    known: list[str] = []
    for number in range(data.draw(st.integers(1, 12))):
        gone = data.draw(st.sampled_from([None, *known]))
        if gone is not None:
            node.release(gone)
            known.remove(gone)
        count, hint = data.draw(st.integers(1, 5)), data.draw(affinities(node))
        free = node.provider.free(node.ledger.cpus)
        if admit(node, pod(f"p{number}", container("c", count)), hint) is not None:
            continue
        known.append(f"p{number}")
        near = free if hint.nodes is None else free & machine.cpus_of(hint.nodes)
        parts = [cache & near.bits for cache in topology.caches.values()]
        if full:  # of cores that differ in size the kubelet's order may split one
            whole = CpuSet.union(core for core in machine.cores if core.issubset(near)).bits
            parts = [part & whole for part in parts]
            picks = [packed(topology, part, count, uncore=True) for part in parts if part.bit_count() >= count]
            parts = [pick for pick in picks if topology.whole_cores(pick) == pick]
        if any(part.bit_count() >= count for part in parts):
            assert topology.in_one_cache(node.ledger.cpus.assigned[known[-1]]["c"].bits)


@settings(max_examples=examples(100), deadline=None)
@given(data=st.data())
def test_who_has_its_cpus_is_offered_where_they_lie(data: st.DataObject) -> None:
    """Asked again, container or pod, the answer is every set of nodes that holds what it has, and no other."""
    node = data.draw(managers())
    admit(node, data.draw(pods("other")), data.draw(affinities(node)))
    mine = pod("p", *(container(f"c{place}", data.draw(st.sampled_from([0.5, 1, 2, 3]))) for place in range(2)))
    if admit(node, mine, data.draw(affinities(node))) is not None:
        return
    held = {name: node.machine.nodes_of(own) for name, own in node.ledger.cpus.assigned.get("p", {}).items()}
    positions = Positions.of(node.machine.node_set)
    asked = [(node.provider.pod_hints(node.ledger, mine), NodeSet.union(held.values()))]
    asked += [
        (node.provider.container_hints(node.ledger, mine, each), held.get(each.name, NodeSet()))
        for each in mine.containers
    ]
    for answer, lies in asked:
        if not lies:
            assert answer is Stance.NO_PREFERENCE
            continue
        assert isinstance(answer, dict)
        (offer,) = answer.values()
        assert isinstance(offer, Demand)
        some = {hint.nodes for hint in listed(offer, positions)}
        every = map(positions.nodes, range(1, 1 << len(positions)))
        assert some == {nodes for nodes in every if lies.issubset(nodes)}


@settings(max_examples=examples(100), deadline=None)
@given(data=st.data())
def test_the_same_question_has_the_same_answer(data: st.DataObject) -> None:
    """A second manager of an equal machine, in the same state, decides the same."""
    node = data.draw(managers())
    mine, hint = data.draw(pods("p")), data.draw(affinities(node))
    again = Node(
        replace(node.machine), str(node.provider.reserved), mode=node.rules.compatibility,
        gate=node.rules.pod_level_managers,
        **{name: getattr(node.rules.cpu.options, name) for name in CpuOptions.__slots__},
    )  # fmt: skip
    assert (admit(node, mine, hint), node.ledger.cpus) == (admit(again, mine, hint), again.ledger.cpus)


@settings(max_examples=examples(150), deadline=None)
@given(data=st.data())
def test_no_take_hands_out_what_was_not_offered(data: st.DataObject) -> None:
    """Any part of a machine, any algorithm, by real sizes: as many CPUs as asked for, all of them offered."""
    topology = CpuTopology.of(data.draw(machines()))
    full = data.draw(st.sets(st.sampled_from(sorted(topology.nodes))))  # nodes of which nothing is offered
    offered = data.draw(st.integers(0, topology.all)) & topology.all
    offered &= ~topology.in_nodes(sum(1 << node for node in full))
    count = data.draw(st.integers(0, offered.bit_count() + 1))
    spread, uncore, group = data.draw(st.booleans()), data.draw(st.booleans()), data.draw(st.sampled_from([1, 2]))
    lowered = data.draw(st.booleans())
    in_socket = lowered and data.draw(st.booleans())  # no kubelet prefers a socket and does not lower the share
    for take in (
        partial(packed, topology, offered, count, spread=spread, uncore=uncore),
        partial(
            distributed,
            topology,
            offered,
            count,
            group=group,
            spread=spread,
            at_least=data.draw(st.integers(0, 4)),
            by_socket=in_socket,
            kubelet=replace(MENDED, share_lowered=lowered),
        ),
    ):
        if count > offered.bit_count():
            with pytest.raises(CannotTake):
                take()
            continue
        taken = take()
        assert taken.bit_count() == count
        assert not taken & ~offered


@settings(max_examples=examples(60), deadline=None)
@given(data=st.data())
def test_of_many_nodes_the_choice_is_that_of_all_combinations(data: st.DataObject) -> None:
    """On 12 or 13 nodes not every set of them is tried; align-by-socket still finds the one of a single socket."""
    nodes, sockets = data.draw(st.integers(12, 13)), data.draw(st.sampled_from([2, 3]))
    socket = [node * sockets // nodes for node in range(nodes)]
    cores = ([(socket[node], None, [4 * node + cpu]) for cpu in range(4)] for node in range(nodes))
    topology = CpuTopology.of(machine(*cores))
    free = [data.draw(st.integers(0, 4)) for _ in range(nodes)]
    offered = sum(((1 << count) - 1) << (4 * node) for node, count in enumerate(free))
    count = data.draw(st.integers(0, sum(free)))
    how = replace(MENDED, share_lowered=True)
    take = partial(distributed, topology, offered, count, by_socket=data.draw(st.booleans()), kubelet=how)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ways, "MANY", 10_000)
        of_all = take()
    assert CpuSet(take()) == CpuSet(of_all)


@settings(max_examples=examples(100), deadline=None)
@given(data=st.data())
def test_renumbering_in_order_changes_nothing(data: st.DataObject) -> None:
    """CPU ids with holes: what is taken are the same CPUs by their new names."""
    machine = data.draw(machines())
    steps = data.draw(st.lists(st.integers(1, 5), min_size=len(machine.cpus), max_size=len(machine.cpus)))
    new = {cpu.id: sum(steps[: place + 1]) for place, cpu in enumerate(machine.cpus)}

    def renamed(cpus: CpuSet) -> CpuSet:
        return CpuSet.from_ids(new[cpu] for cpu in cpus)

    other = Machine(
        cpus=tuple(replace(cpu, id=new[cpu.id], core=new[cpu.core]) for cpu in machine.cpus),
        nodes=tuple(replace(node, cpus=renamed(node.cpus)) for node in machine.nodes),
    )
    offered = CpuSet(data.draw(st.integers(0, machine.online.bits)))
    count = data.draw(st.integers(0, len(offered)))
    for take in (packed, distributed):
        first = take(CpuTopology.of(machine), offered.bits, count)
        assert renamed(CpuSet(first)).bits == take(CpuTopology.of(other), renamed(offered).bits, count)
