"""The random walk over faults and events: nothing is wrong, and what once was is not again.

A long walk: `NUMALIGN_EXAMPLES=40 pytest tests/property/test_walk.py -k random`; another one: --hypothesis-seed.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from agent.model.idset import CpuSet
from tests.examples import examples
from tests.property import walk
from tests.property.walk import begun, then


@pytest.fixture
def empty() -> Iterator[walk.Walk]:
    """A walk that has not begun."""
    made = walk.Walk()
    yield made
    made.teardown()


def test_nothing_is_wrong_on_a_random_walk() -> None:
    """Pods, resizes, jobs, restarts, full and hanging disks, late news: containers keep their CPUs, no pod hoards."""
    chosen = settings(
        max_examples=examples(25), stateful_step_count=30, database=None, report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck), print_blob=False,
    )  # fmt: skip
    run_state_machine_as_test(walk.Walk, settings=chosen)


# The shortest walks to faults that once were: tools/mutants/table.yaml (`walk-`) puts each back, and its walk is red.


def test_a_pod_that_is_gone_is_not_decided_late(empty: walk.Walk) -> None:
    """The runtime asked for it, and its news were late."""
    begun(empty)
    then(empty, empty.runtime_is_quicker, cpu="3", how="gone", steps=3, delivered=True)


def test_an_annotation_makes_no_shrink_void(empty: walk.Walk) -> None:
    """A pod that is not to be pinned any more is resized to one CPU."""
    begun(empty, ("own", "4", False))
    then(empty, empty.resized, which=0, cpu="1", note={"numalign.io/pin": "false"})


def test_a_pod_that_names_its_node_is_granted_nothing(empty: walk.Walk) -> None:
    """Before the kubelet has accepted it: there is no room for it beside another."""
    begun(empty, ("own", "3", False))
    then(empty, empty.pod_names_its_node, cpu="4", steps=0)


def test_a_full_disk_stops_no_writing(empty: walk.Walk) -> None:
    """The machine has less memory, which cannot be saved, and a pod comes that shares."""
    begun(empty, ("own", "3", False))
    then(empty, empty.disk, state="full", steps=8, less=True)
    then(empty, empty.own_pod_comes, cpu="500m", steps=5)


def test_a_lost_ledger_costs_no_container_its_cpus(empty: walk.Walk) -> None:
    """One whose resize waits has another number of CPUs than it asks for."""
    begun(empty, ("own", "2", False), ("own", "3", False), policy="single-numa-node")
    then(empty, empty.resized, which=1, cpu="4", note={})
    then(empty, empty.agent_is_killed, lost=True, api=True, less=False, pin=True, steps=0)


def test_a_pod_that_has_ended_holds_nothing(empty: walk.Walk) -> None:
    """Its cgroup's folder is there, without a process, and the next pod of its Job comes."""
    begun(empty, ("own", "5", False), nri=False)
    then(empty, empty.job_ends, which=0, folder=False, comes=True, fast=False)


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
