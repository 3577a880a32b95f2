"""Histories of the managers that nobody has recorded: made by the Go oracle now."""

from __future__ import annotations

import pytest

from agent.model.rules import Minor
from tests.parity.reading import of_kubelet, vectors_of
from tests.parity.running import check
from tests.peers.oracle import EDGES, EDGES_38, NoOracleError, generate, oracle


@pytest.mark.go
@pytest.mark.parametrize("family", ["memory", "device"])
def test_fresh_histories_are_answered_alike(family: str) -> None:
    """Another seed than that of the recorded ones; inputs that the kubelet answers by chance are dropped."""
    try:
        program = oracle()
    except NoOracleError as why:
        pytest.skip(str(why))
    made = generate(program, family, seed=20_260_102, count=150, repeats=32)
    assert len(made) > 60
    check(of_kubelet(vectors_of(made), Minor.V1_36))


@pytest.mark.go
@pytest.mark.parametrize("family", ["cpu-take", "cpu", "node"])
def test_rare_machines_are_answered_alike(family: str) -> None:
    """Machines with holes, uneven nodes, memory-only nodes, and nodes and sockets that cross-cut."""
    try:
        program = oracle()
    except NoOracleError as why:
        pytest.skip(str(why))
    made = generate(program, family, seed=20_260_103, count=150, repeats=8, edges=EDGES)
    assert len(made) > 60
    check(of_kubelet(vectors_of(made), Minor.V1_36))


@pytest.mark.go
@pytest.mark.parametrize("family", ["cpu-take", "cpu", "memory", "node"])
def test_what_kubelet_1_38_answers_by_rules_of_its_own(family: str) -> None:
    """Inputs on which its rules act, answered by its own managers now."""
    try:
        program = oracle(minor=38)
    except NoOracleError as why:
        pytest.skip(str(why))
    made = generate(program, family, seed=20_260_104, count=150, repeats=8, edges=EDGES_38)
    assert len(made) > 60
    check(of_kubelet(vectors_of(made), Minor.V1_38))
