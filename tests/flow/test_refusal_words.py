"""What a refused pod is told: the kubelet's words, then what is in its way, with numbers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.app.page.views import view_of
from agent.core.explain import cause
from agent.kube.pod_report import carried, patch
from agent.model.outcome import RefusalCause
from agent.node import obstacle
from tests.flow.told import telling
from tests.flow.world import World, container, manifest

KUBELET = "Resources cannot be allocated with Topology locality"
STATIC = {"memoryManagerPolicy": "Static", "reservedMemory": [{"numaNode": 0, "limits": {"memory": "100Mi"}}]}
FOUR = "1 socket x 4 nodes x 4 cores x 1 thread, 8G per node"


@pytest.mark.parametrize(
    ("others", "body", "words"),
    [
        ((manifest("first", container(cpu="3")), manifest("second", container(cpu="2"))),
         manifest("p", container(cpu="3"), policy="single-numa-node", created=9),
         "it asks for 3 CPUs, and 2 are free on all NUMA nodes together: NUMA node 0 has 0, 1 has 2"),
        ((manifest("first", container(cpu="1")), manifest("second", container(cpu="3"))),
         manifest("p", container(cpu="3"), policy="restricted", created=9),
         "3 CPUs would fit on 1 NUMA node of an empty machine, but now NUMA node 0 has 2 free, 1 has 1, so it takes"),
        ((), manifest("p", container(cpu="7"), policy="single-numa-node", created=9),
         "no NUMA node of this machine has 7 CPUs, even when empty: the largest has 4"),
        ((), manifest("p", container(cpu="48"), policy="restricted", created=9),
         "it asks for 48 CPUs, and this machine has 8, even when empty"),
        ((manifest("first", container(cpu="4")),),
         manifest("p", container("a", cpu="2"), container("b", cpu="2"), policy="single-numa-node", created=9),
         "container b: "),
    ],
    ids=["numbers", "restricted", "never-on-one", "never", "second-container"],
)  # fmt: skip
def test_the_event_and_the_condition_say_what_is_in_the_way(
    tmp_path: Path, others: tuple[Mapping[str, Any], ...], body: Mapping[str, Any], words: str
) -> None:
    """The kubelet's sentence comes first, for programs that look for it; the first reason of `explain` follows."""
    with telling(tmp_path) as told:
        told.list(*others, body)
        told.settled()
        (event,) = told.api.events("p")
        assert event["reason"] == "TopologyAffinityError"
        assert event["message"].startswith(f"{KUBELET}: {words}"), event["message"]
        assert told.api.condition("p")["message"] == event["message"]
        refusal = told.world.engine.pods["p"].refusal
        assert refusal is not None
        assert refusal.message == KUBELET


def test_what_even_an_empty_node_refuses_is_told_so(tmp_path: Path) -> None:
    """5 CPUs need two NUMA nodes and its memory one: that nothing is free is no reason on an empty machine."""
    world = World(tmp_path, machine=FOUR, settings=STATIC)
    world.see(manifest("p", container(cpu="5", memory="512Mi"), policy="restricted"))
    refusal = world.ears.refused_["p"]
    assert refusal.details.startswith("even an empty node would refuse it: on this machine 5 CPUs need 2 NUMA nodes")
    assert "512Mi of memory needs 1 NUMA node" in refusal.details


def test_other_numbers_alone_are_no_other_word(tmp_path: Path) -> None:
    """The pod is refused once more, and other CPUs are free now: neither its condition nor an Event is written."""
    with telling(tmp_path) as told:
        told.list(manifest("p", container(cpu="7"), policy="single-numa-node"))
        told.settled()
        known = told.world.engine.pods["p"]
        assert known.refusal is not None
        sent = len(told.api.requests)
        other = replace(known.refusal, cause=RefusalCause("it asks for 7 CPUs, and 1 is free"))
        told.reporter.refused(known.pod, other, known.settings)
        told.settled()
        assert len(told.api.requests) == sent
        told.reporter.refused(known.pod, replace(known.refusal, message="something else"), known.settings)
        told.settled()
        assert len(told.api.requests) == sent + 2, "another message is another condition and another Event"


def test_a_pod_that_carries_other_numbers_is_not_told_again(tmp_path: Path) -> None:
    """After a restart the numbers may differ: what the pod carries is the same word."""
    world = World(tmp_path)
    world.see(manifest("p", container(cpu="9"), policy="single-numa-node", on_misalignment="fail"))
    report = world.report("p")
    body = {
        "metadata": {"annotations": {key: text for key, text in report.annotations.items() if text}},
        "status": {"conditions": [
            {"type": "numalign.io/Aligned", "status": "False", "reason": report.reason, "message": report.text},
            {"type": "numalign.io/Pinned", "status": "False", "reason": report.pinned.reason,
             "message": report.pinned.message},
        ]},
    }  # fmt: skip
    assert report.details
    assert carried(body, report), "an agent of before wrote no cause"
    written = patch(report, report.annotations, None, "now")["metadata"]["annotations"]
    said = json.loads(written["numalign.io/assignment"])
    assert (said["why"], said["cause"]) == (report.message, report.details)
    body["metadata"] = {"annotations": {key: text for key, text in written.items() if text}}
    assert carried(body, report)
    assert carried(body, replace(report, details="it asks for 9 CPUs, and 1 is free"))
    assert not carried(body, replace(report, message="something else"))


def test_a_fault_in_the_words_costs_the_words_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pod is refused with the kubelet's sentence, and no other pod is set aside."""

    def broken(*_: object) -> str:
        raise RuntimeError("broken")

    monkeypatch.setattr(obstacle, "with_cause", broken)
    world = World(tmp_path)
    world.see(manifest("p", container(cpu="5"), policy="single-numa-node"))
    assert (world.ears.refused_["p"].message, world.ears.problems) == (KUBELET, [])


def test_the_words_fit_an_event(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sentence that is too long is cut, with a mark."""
    monkeypatch.setattr(cause, "LONGEST", 40)
    world = World(tmp_path)
    world.see(manifest("p", container(cpu="5"), policy="single-numa-node"))
    assert world.ears.refused_["p"].details.endswith("...")
    assert len(world.ears.refused_["p"].details) == 40


def test_the_numbers_outlive_the_agent(tmp_path: Path) -> None:
    """A refused pod that runs on the shared pool: the next agent, whose page asks the ledger, has them still."""
    world = World(tmp_path)
    world.run(manifest("p", container(cpu="7"), policy="single-numa-node"))
    told = "TopologyAffinityError: Resources cannot be allocated with Topology locality: no NUMA node of this machine"
    assert world.engine.ledger.pods["p"].why[""].startswith(told)
    after = World(tmp_path, store=world.store, pods=world.pods.values())
    (row,) = view_of(after.engine.ledger, after.engine.node, after.engine.pods).rows
    assert "7 CPUs, even when empty: the largest has 4" in row.why
    (row,) = view_of(world.engine.ledger, world.engine.node, world.engine.pods).rows
    assert row.why.startswith("no NUMA node of this machine has 7 CPUs"), "said once, without the kubelet's words"
