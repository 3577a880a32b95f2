"""Sequences for machines of another shape than the lab's: a kubelet that pins by itself does what they expect.

What numalign does there is seen without a guest (tests/referee/test_files.py): the engine on the same machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.lab.cluster import Lab
from tests.lab.node import Plan
from tests.referee.books_node import BooksNode
from tests.referee.ground import Ground
from tests.referee.running import compare, run
from tests.referee.sequence import Sequence, read_all

pytestmark = [pytest.mark.lab]

PLANS = {
    name: Plan(kind="kubelet", number=4, machine=machine)
    for name, machine in {"caches": "caches", "wide": "wide", "two": "two", "eight": "eight-dies"}.items()
}


@pytest.fixture(scope="module", params=PLANS)
def other(lab: Lab, request: pytest.FixtureRequest) -> Iterator[Ground]:
    """A guest of each shape, while the others rest; gone afterwards."""
    with lab.spare(replace(PLANS[request.param], minor=lab.shadow.plan.minor)) as node:
        yield Ground(lab, node, machine=request.param)


def test_a_kubelet_does_what_the_sequences_for_its_machine_expect(other: Ground) -> None:
    """CPUs, nodes and pools of every container are those of the file; refusals are refusals."""
    mine = [each for each in read_all(minor=other.node.plan.minor) if each.machine == other.machine]
    assert mine
    wrong = [f"{each.name}: {text}" for each in mine for text in _differences(other, each)]
    assert not wrong, "\n".join(wrong)


def _differences(ground: Ground, sequence: Sequence) -> tuple[str, ...]:
    ground.ready(sequence)
    return compare(sequence, run(sequence, BooksNode(ground, sequence)))
