"""The random walk over faults and events: nothing is wrong, and what once was is noticed."""

from __future__ import annotations

import errno
from collections.abc import Iterator

import pytest
from hypothesis.stateful import run_state_machine_as_test

from agent.model.idset import CpuSet
from tests.examples import examples
from tests.property import walk
from tests.property.walk_known import KNOWN, begun, then


@pytest.fixture
def empty() -> Iterator[walk.Walk]:
    """A walk that has not begun."""
    made = walk.Walk()
    yield made
    made.teardown()


def test_nothing_is_wrong_on_a_random_walk() -> None:
    """Pods, resizes, jobs, restarts, full and hanging disks, late news: containers keep their CPUs, no pod hoards."""
    run_state_machine_as_test(walk.Walk, settings=walk.settings(examples(25)))


@pytest.mark.parametrize("name", KNOWN)
def test_a_fault_that_once_was_is_noticed(name: str, empty: walk.Walk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is brought back one by one, and the judge calls the shortest walk to it wrong."""
    KNOWN[name].back(monkeypatch)
    with pytest.raises(AssertionError):
        KNOWN[name].shown(empty)


@pytest.mark.parametrize("name", KNOWN)
def test_the_same_walk_is_right_without_it(name: str, empty: walk.Walk) -> None:
    """So it is that fault which the judge notices."""
    KNOWN[name].shown(empty)


def test_a_shrink_that_is_carried_out_late_is_right(empty: walk.Walk) -> None:
    """The kernel refuses it until the pod asks for more again, which it may not have: the kubelet shrank it once."""
    begun(empty, ("own", "3", False))
    then(empty, empty.surroundings, what="kernel", error=errno.EBUSY, where="p0", steps=2)
    then(empty, empty.resized, which=0, cpu="1", note={"numalign.io/pin": "false"})
    then(empty, empty.resized, which=0, cpu="3", note={})
    assert empty.node.engine.ledger.cpus.assigned["p0"]["app"] == CpuSet.of(1)
    assert len(empty.node.judge.own) == 1
    then(empty, empty.time_passes, seconds=70)
    assert list(empty.node.judge.own.values()) == [{1}]
