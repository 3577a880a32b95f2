"""Memory books on disk and carried over: which node each byte is on survives, or is decided again."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from agent.core.memory.books import Draft, cut
from agent.errors import MalformedError
from agent.model.idset import NodeSet
from agent.model.ledger import Block, Ledger
from agent.model.ledgerjson import ledger_from_json, ledger_to_json
from tests.unit.memory_cases import GIB, KUBELET, Desk, machine, node, nodes
from tests.world.pods import container, pod

TWO = machine(node(0, 4 * GIB + 1), node(1, 4 * GIB))


def written(ledger: Ledger) -> dict[str, Any]:
    """A ledger as the checkpoint has it."""
    body: dict[str, Any] = json.loads(json.dumps(ledger_to_json(ledger)))
    return body


def test_splits_are_saved() -> None:
    """Under FIXED with each node's bytes, under KUBELET without."""
    for desk in (Desk(TWO), Desk(TWO, KUBELET)):
        desk.admit(pod("p", container("c", memory=5 * GIB)), nodes(0, 1))
        desk.ledger = replace(desk.ledger, memory=replace(desk.ledger.memory, reusable=None))
        assert ledger_from_json(written(desk.ledger)) == desk.ledger


@pytest.mark.parametrize("split", [[[0, 1]], [[0, 4 * GIB], [7, GIB]], [[1, GIB], [0, 4 * GIB]], [[0, 1, 2]], "x", 3])
def test_a_split_that_cannot_be_is_told(split: object) -> None:
    """Too few bytes, a node that the block does not name, a wrong order, a wrong shape: the error names the place."""
    desk = Desk(TWO)
    desk.admit(pod("p", container("c", memory=5 * GIB)), nodes(0, 1))
    body = written(desk.ledger)
    body["memory"]["blocks"]["p"]["c"][0][3] = split
    with pytest.raises(MalformedError, match=r"memory\.blocks\.p\.c\[0\]\[3\]"):
        ledger_from_json(body)


def test_a_block_is_entered_again_byte_by_byte() -> None:
    """Each byte on its own node where there is room, else from the lowest up; nothing where too little is left."""
    block = Block("memory", 3 * GIB, NodeSet.of(0, 1), ((0, GIB), (1, 2 * GIB)))
    draft = Draft(Desk(TWO).ledger.memory.nodes, exact=True)
    assert draft.enter(block) == block
    assert [book.reserved["memory"] for book in draft.nodes] == [GIB, 2 * GIB]
    assert draft.enter(replace(block, size=6 * GIB, split=())) is None
    assert [book.users for book in draft.nodes] == [1, 1]
    again = draft.enter(replace(block, split=((1, 3 * GIB),)))  # node 1 has 2 GiB left
    assert again is not None
    assert again.split == ((0, 3 * GIB),)
    assert draft.enter(replace(block, size=0, nodes=NodeSet.of(0, 7), split=())) is None


def test_kubelet_books_know_no_splits() -> None:
    """Then a block is entered from the lowest node up, and given back so."""
    block = Block("memory", 5 * GIB, NodeSet.of(0, 1), ((1, 4 * GIB), (0, GIB)))
    draft = Draft(Desk(TWO).ledger.memory.nodes, exact=False)
    entered = draft.enter(block)
    assert entered == replace(block, split=())
    assert [book.reserved["memory"] for book in draft.nodes] == [4 * GIB, GIB]
    draft.give(replace(block, split=()))
    assert draft.nodes == Desk(TWO).ledger.memory.nodes


def test_cutting_a_block() -> None:
    """Lowest node first; what is gone is told by node."""
    block = Block("memory", 10, NodeSet.of(0, 1), ((0, 4), (1, 6)))
    rest, gone = cut(block, 5)
    assert (rest.size, rest.split, gone) == (5, ((1, 5),), {0: 4, 1: 1})
    assert cut(block, 0) == (block, {})
    nothing, everything = cut(block, 10)
    assert (nothing.size, nothing.split, everything) == (0, (), {0: 4, 1: 6})
