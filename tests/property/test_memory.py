"""The memory manager: nothing is lost, nothing is granted twice, and hints keep their word."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.core.merge.demand import Demand
from agent.core.merge.masks import members
from agent.model.hint import Hint
from agent.model.ledger import Block, Ledger
from agent.model.machine import Machine
from agent.model.outcome import Refusal
from agent.model.pod import Container, Pod
from agent.model.rules import Compatibility
from tests.examples import examples
from tests.parity.memory import wrong_books
from tests.property.memory_worlds import random_affinity, random_desk, random_pod
from tests.unit.memory_cases import BOTH, FIXED, Desk

CASES = st.randoms(use_true_random=False)


def fill(r: Random, desk: Desk, most: int = 6, *, pod_level: bool = False) -> list[Pod]:
    """A history: pods come, are refused or stay, start, and go; those that stayed."""
    kept: list[Pod] = []
    for number in range(r.randint(0, most)):
        if kept and r.random() < 0.25:
            desk.release(kept.pop(r.randrange(len(kept))))
            continue
        one = random_pod(r, f"p{number}", pod_level=pod_level)
        affinity = random_affinity(r, desk.machine.node_set)
        before = desk.ledger
        if pod_level and one.pod_level and r.random() < 0.7:
            refusal = desk.allocate_pod(one, affinity)
        else:
            refusal = desk.allocate(one, affinity)
        if refusal is not None:
            desk.release(one)
            assert desk.compatibility is not FIXED or same(desk.ledger, before)
            continue
        kept.append(one)
        for each in one.containers if r.random() < 0.4 else ():
            desk.ledger = desk.provider.started(desk.ledger, one, each)
        check(desk)
    return kept


def same(one: Ledger, other: Ledger) -> bool:
    """Whether two ledgers hold the same memory."""
    return (one.memory.nodes, one.memory.blocks, one.memory.pools) == (
        other.memory.nodes, other.memory.blocks, other.memory.pools
    )  # fmt: skip


def check(desk: Desk) -> None:
    """Books and blocks agree; under FIXED by node, and no node belongs to two groups."""
    assert wrong_books(desk.ledger) == []
    if desk.compatibility is not FIXED:
        return
    books = desk.ledger.memory
    users: Counter[int] = Counter()
    granted: Counter[tuple[int, str]] = Counter()
    for block in accounted(desk.ledger):
        assert sum(part for _, part in block.split) == block.size
        assert {node for node, _ in block.split} <= set(block.nodes)
        users.update(block.nodes)
        granted.update({(node, block.resource): part for node, part in block.split})
        for node in block.nodes:
            assert next(book for book in books.nodes if book.id == node).group == block.nodes
    for book in books.nodes:
        assert book.users == users[book.id]
        assert book.users or list(book.group) == [book.id]
        for resource, amount in book.reserved.items():
            assert amount == granted[book.id, resource]
            assert book.total[resource] == amount + book.free(resource) + book.system[resource]


def accounted(ledger: Ledger) -> list[Block]:
    """The blocks that take from nodes: those of containers, or of a pod managed as a whole."""
    books = ledger.memory
    blocks = [
        block for uid, held in books.blocks.items() if uid not in books.pools for b in held.values() for block in b
    ]
    return blocks + [block for pool in books.pools.values() for block in pool]


@pytest.mark.parametrize("compatibility", BOTH)
@settings(max_examples=examples(100), deadline=None)
@given(CASES)
def test_books_always_agree(compatibility: Compatibility, r: Random) -> None:
    """Whatever the history, what is granted is what the blocks say, and no node grants what it does not have."""
    pod_level = r.random() < 0.4
    desk = random_desk(r, compatibility, pod_level=pod_level)
    kept = fill(r, desk, pod_level=pod_level)
    check(desk)
    for one in kept:
        desk.release(one)
        check(desk)
    assert not desk.ledger.memory.blocks
    assert not desk.ledger.memory.pools
    assert all(book.users == 0 and not any(book.reserved.values()) for book in desk.ledger.memory.nodes)


@settings(max_examples=examples(120), deadline=None)
@given(CASES)
def test_allocate_and_release_is_the_identity(r: Random) -> None:
    """Under FIXED each byte goes back to its node, however the nodes were shared."""
    desk = random_desk(r, FIXED)
    fill(r, desk)
    before = desk.ledger
    one = random_pod(r, "newcomer")
    desk.allocate(one, random_affinity(r, desk.machine.node_set))
    desk.release(one)
    assert same(desk.ledger, before)


@settings(max_examples=examples(120), deadline=None)
@given(CASES)
def test_every_hint_keeps_its_word(r: Random) -> None:
    """What a hint names can be had there, to the byte, and nothing else changes; what no hint names is not taken."""
    desk = random_desk(r, FIXED)
    fill(r, desk)
    one = random_pod(r, "newcomer")
    first = one.containers[0]
    answer = desk.provider.container_hints(desk.ledger, one, first)
    assert isinstance(answer, dict)
    demand = answer["memory"]
    for mask in range(1, 1 << len(desk.positions)):
        affinity = Hint(desk.positions.nodes(mask), preferred=True)
        taken = desk.provider.allocate(desk.ledger, one, first, affinity)
        if isinstance(demand, Demand) and demand.accepts(mask):
            assert isinstance(taken, Ledger)
            assert {block.size for block in taken.memory.blocks["newcomer"][first.name]} == set(asked(first))
            check(replace_ledger(desk, taken))
        elif isinstance(taken, Ledger):  # its nodes with CPUs are a hint, or it was extended to a preferred one
            assert isinstance(demand, Demand)
            wanted = within(desk, mask)
            larger = [each for each in range(1, 1 << len(desk.positions)) if not wanted & ~each]
            assert demand.accepts(wanted) or any(demand.prefers(each) for each in larger)


def asked(one: Container) -> list[int]:
    """Bytes by resource."""
    return [milli // 1000 for name, milli in one.requests.items() if name != "cpu"]


def within(desk: Desk, mask: int) -> int:
    """A mask without the nodes that have no CPUs, where hints name CPU nodes only."""
    hosts = [j for j in members(mask) if desk.machine.by_node[desk.positions.ids[j]].cpus]
    return sum(1 << j for j in hosts)


def replace_ledger(desk: Desk, ledger: Ledger) -> Desk:
    """The same desk with another ledger."""
    other = Desk(desk.machine, desk.compatibility, desk.reserved, desk.tier, desk.pod_level)
    other.ledger = ledger
    return other


@settings(max_examples=examples(80), deadline=None)
@given(CASES)
def test_the_order_of_resources_and_nodes_changes_nothing(r: Random) -> None:
    """Manifests list resources, and discovery nodes, in any order."""
    desk = random_desk(r, FIXED)
    one = random_pod(r, "p")
    shuffled = replace(one, containers=tuple(_shuffled(r, each) for each in one.containers))
    affinity = random_affinity(r, desk.machine.node_set)
    other = replace_ledger(desk, desk.ledger)
    for each in one.containers:
        assert desk.hints(one, each.name) == other.hints(shuffled, each.name)
    assert desk.hints(one) == other.hints(shuffled)
    assert _words(desk.allocate(one, affinity)) == _words(other.allocate(shuffled, affinity))
    assert same(desk.ledger, other.ledger)


def _shuffled(r: Random, one: Container) -> Container:
    items = list(one.requests.items())
    r.shuffle(items)
    return replace(one, requests=dict(items), limits=dict(reversed(items)))


def _words(refusal: Refusal | None) -> str:
    return refusal.message if refusal else ""


@settings(max_examples=examples(80), deadline=None)
@given(CASES)
def test_tiers_change_nothing_where_every_node_has_cpus(r: Random) -> None:
    """Local, any and far are one rule on an ordinary machine."""
    desk = random_desk(r, FIXED)
    ordinary = Machine(cpus=desk.machine.cpus, nodes=tuple(each for each in desk.machine.nodes if each.cpus))
    desks = [Desk(ordinary, FIXED, desk.reserved, tier) for tier in type(desk.tier)]
    one = random_pod(r, "p")
    affinity = random_affinity(r, ordinary.node_set)
    assert len({str(each.hints(one)) for each in desks}) == 1
    assert len({_words(each.allocate(one, affinity)) for each in desks}) == 1
    assert all(same(each.ledger, desks[0].ledger) for each in desks)
