"""agent.core.explain on random nodes: it tells what was decided, and every change that it proposes helps."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from agent.core.admission.node import Node
from agent.core.explain import Explanation, PodStanding, explain
from agent.core.explain.candidates import is_aligned
from agent.core.explain.case import Case
from agent.core.explain.shown import lines, to_json
from agent.core.explain.values import AsOf, Lever, Merge, MergeRule, Verdict
from agent.core.request.annotations import ask_of
from agent.errors import SettingsError
from agent.model.ledger import Ledger
from agent.model.outcome import Admitted, Reason
from agent.model.pod import Pod
from agent.model.podspec import pod_from
from tests.world.nodes import managers_of

MACHINES = (
    "2 sockets x 1 node x 4 cores, 4G per node, nic on 1",
    "1 socket x 2 nodes x 2 cores x 2 threads, 4G per node, 64 2Mi pages on 1, 2 nics on 0",
    "2 sockets x 2 nodes x 2 cores x 2 threads, 4G per node, 2G on 1, distance 10 12 21, nic on 0 and 3",
    "3 sockets x 3 nodes x 2 cores, 4G per node",
)
NIC = "numalign.io/nic"

policies = st.sampled_from(["none", "best-effort", "restricted", "single-numa-node"])
scopes = st.sampled_from(["container", "pod"])


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    """A node of one of a few machines under any settings that go together."""
    machine = draw(st.sampled_from(MACHINES))
    body: dict[str, Any] = {
        "topologyManagerPolicy": draw(policies),
        "topologyManagerScope": draw(scopes),
        "reservedSystemCPUs": "0",
        "onMisalignment": "fail",
        "devices": [{"resource": NIC, "class": "02"}],
    }
    if draw(st.booleans()):
        body |= {
            "memoryManagerPolicy": "Static", "kubeReserved": {"memory": "412Mi"},
            "reservedMemory": [{"numaNode": 0, "limits": {"memory": "512Mi"}}],
        }  # fmt: skip
    options = draw(st.sampled_from([{}, {"full-pcpus-only": "true"}, {"distribute-cpus-across-numa": "true"}]))
    body["cpuManagerPolicyOptions"] = options
    if draw(st.booleans()) and "3 sockets" not in machine:
        body["topologyManagerPolicyOptions"] = {"prefer-closest-numa-nodes": "true"}
    try:
        return managers_of(machine, body)
    except SettingsError:  # what this machine cannot give
        return managers_of(machine, {**body, "cpuManagerPolicyOptions": {}, "topologyManagerPolicyOptions": {}})


@st.composite
def pods(draw: st.DrawFn, number: int, cpus: Sequence[object] = (1, 2, 2, 3, 4, 6, "500m")) -> Pod:
    """A pod of one or two containers."""
    containers = []
    for place in range(draw(st.integers(1, 2))):
        limits: dict[str, Any] = {
            "cpu": draw(st.sampled_from(cpus)),
            "memory": draw(st.sampled_from(["64Mi", "1Gi", "2500Mi", "5Gi"])),
        }
        if draw(st.integers(0, 3)) == 0:
            limits[NIC] = draw(st.integers(1, 2))
        if draw(st.integers(0, 5)) == 0:
            limits["hugepages-2Mi"] = "32Mi"
        containers.append({"name": f"c{place}", "resources": {"limits": limits}})
    notes = {"numalign.io/policy": draw(policies)} if draw(st.integers(0, 2)) == 0 else {}
    if draw(st.integers(0, 6)) == 0:
        notes["numalign.io/align"] = "numa"
    metadata = {
        "name": f"p{number}", "uid": f"p{number}", "annotations": notes,
        "creationTimestamp": f"2026-01-01T00:{number:02}:00Z",
    }  # fmt: skip
    return pod_from({"metadata": metadata, "spec": {"containers": containers}})


@st.composite
def worlds(draw: st.DrawFn) -> tuple[Node, Ledger, Pod]:
    """A node with some pods on it, of which some have ended, and a newcomer."""
    node = draw(nodes())
    ledger = node.start()
    for number in range(draw(st.integers(0, 5))):
        ledger = case_of(node, ledger, draw(pods(number))).admit(node).ledger
    for uid in sorted(ledger.pods):
        if draw(st.integers(0, 4)) == 0:
            ledger = node.release(ledger, uid)
    return node, ledger, draw(pods(9))


def case_of(node: Node, ledger: Ledger, pod: Pod) -> Case:
    """The admission of a pod with its wishes."""
    return Case.of(ledger, pod, ask_of(pod, node.rules.cpu.options, node.rules.topology.policy))


def fits(node: Node, case: Case, found: Explanation) -> bool:
    """Whether it gets in; for one that did, whether it is aligned."""
    outcome = case.admit(node)
    if not isinstance(outcome, Admitted):
        return False
    return found.verdict is Verdict.REFUSED or is_aligned(outcome.ledger, case.pod)


def sound(node: Node, case: Case, found: Explanation) -> None:
    """Every remedy helps, by no more than it takes."""
    for remedy in found.remedies:
        assert fits(node, case.changed(node, remedy), found), remedy.sentence
        if remedy.lever is Lever.REQUEST:
            more = case.asking(remedy.container, remedy.resource, remedy.amount + remedy.unit)
            assert not fits(node, more, found), f"a unit more: {remedy.sentence}"
        if remedy.lever is Lever.DEPARTURE:
            for count in range(len(remedy.departures)):
                for some in combinations(remedy.departures, count) if len(remedy.departures) < 3 else ():
                    assert not fits(node, case.without(node, *some), found), f"fewer: {remedy.sentence}"


def told(merge: Merge) -> None:
    """A merge's story agrees with itself."""
    if merge.rule in {MergeRule.ONLY, MergeRule.NARROWER, MergeRule.CLOSER, MergeRule.LOWER}:
        assert merge.preferred
        assert merge.winner is not None
        for said in merge.said:
            if said.hints is not None and merge.winner and any(h.nodes is not None for h in said.hints):
                assert any(hint.preferred and hint.nodes == merge.winner for hint in said.hints)
    for loser in merge.losers:
        assert loser.nodes != merge.winner or not (merge.preferred and merge.admit)
    assert bool(merge.obstacles) == (not (merge.preferred and merge.admit))


@settings(max_examples=80, deadline=None)
@given(worlds())
def test_a_newcomer_is_told_what_it_would_get(world: tuple[Node, Ledger, Pod]) -> None:
    """The verdict is that of the admission, what it gets is what it would get, and every remedy was tried."""
    node, ledger, pod = world
    case = case_of(node, ledger, pod)
    found = explain(node, ledger, pod, standing=PodStanding(hypothetical=True))
    outcome = case.admit(node)
    assert (found.verdict is Verdict.REFUSED) == (not isinstance(outcome, Admitted))
    if isinstance(outcome, Admitted):
        assert {got.container: got.cpus for got in found.got} == {
            each.name: outcome.ledger.grant(pod.uid, each.name).cpus for each in pod.containers
        }
        assert (found.verdict is Verdict.NOT_PREFERRED) == (not is_aligned(outcome.ledger, pod))
    else:
        assert found.refusal is not None
        assert found.refusal.reason is outcome.refusal.reason
        refusing = [merge for merge in found.merges if not merge.admit]
        assert bool(refusing) == (outcome.refusal.reason is Reason.TOPOLOGY)
    for merge in found.merges:
        told(merge)
    sound(node, case, found)
    assert json.loads(json.dumps(to_json(found)))["summary"] == found.summary
    assert all(line.endswith(".") for line in lines(found))


@settings(max_examples=60, deadline=None)
@given(worlds())
def test_pods_in_the_ledger_keep_what_they_have(world: tuple[Node, Ledger, Pod]) -> None:
    """Whatever is said of a pod in the ledger, it holds what that says; as of admission, the merge gave that."""
    node, ledger, _ = world
    for uid, record in ledger.pods.items():
        found = explain(node, ledger, record.pod, search=False)
        assert {got.container: got.cpus for got in found.got} == {
            each.name: ledger.grant(uid, each.name).cpus for each in record.pod.containers
        }
        if found.as_of is AsOf.ADMISSION and len(found.merges) == 1:
            hint = record.affinity[record.pod.containers[0].name]
            if hint.nodes is not None and found.merges[0].rule is not MergeRule.INDIFFERENT:
                assert found.merges[0].winner == hint.nodes
        assert (found.verdict is Verdict.NOT_PREFERRED) == (not is_aligned(ledger, record.pod))


@settings(max_examples=15, deadline=None)
@given(worlds())
def test_nothing_is_changed(world: tuple[Node, Ledger, Pod]) -> None:
    """Explaining is pure: the same question has the same answer, and the ledger is as before."""
    node, ledger, pod = world
    before = replace(ledger)
    first = to_json(explain(node, ledger, pod))
    assert to_json(explain(node, ledger, pod)) == first
    assert ledger == before
