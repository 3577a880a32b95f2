"""agent.core.explain: refusals, placements that are not preferred, and all else, every sentence (explain/*.yaml).

The sentences are written down; that they are true is tried: each change that would have helped is made, and helps.

Cases stand in files: a machine, settings, pods that came before, and a pod.

machine    as after --root synthetic:
settings   the configuration file
devices    of the kubelet's plugins: resource -> {id: NUMA node}
before     pods that came before, in order; `ended`: names of those that have ended by now, `after`: that came later
given      devices that the kubelet gave the pod: resource -> ids
pod        the pod: name, annotations, and limits (and requests) of its only container, or containers in full
line       who waits already
ran        the pod ran before the agent
seen       the engine decides on the pod; without it nobody has seen it yet
room       what the machine has for pods (thousandths), asked of pods that nobody has seen
claims     the pod uses DRA claims
says       the lines of the explanation, all of them
rules      the rule by which each merge's winner won
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.core.admission.node import Node
from agent.core.admission.waiting import Waiting
from agent.core.devices.kubelet import Given, Offered, handed_over, places
from agent.core.explain.case import Case
from agent.core.explain.explainer import explain
from agent.core.explain.obstacles import ObstacleView, obstacles
from agent.core.explain.remedies import TRIES, _Search
from agent.core.explain.serialize import capital, lines, to_json
from agent.core.explain.standing import PodStanding
from agent.core.explain.values import AsOf, Explanation, HintList, Lever, ListStance, LossReason, Verdict
from agent.core.explain.words import size, spread
from agent.core.merge.demand import Demand, Family, Need
from agent.core.request.exempt import Exemptions
from agent.model.idset import NodeSet
from agent.model.ledger import Ledger
from agent.model.outcome import Admitted, Reason, Refusal
from agent.model.pod import Pod
from agent.model.podspec import pod_from
from agent.model.rules import Policy, Scope
from agent.node.deciding import checked_settings, decide_pod
from agent.node.device_tracker import DeviceTracker
from agent.node.explaining import explained
from agent.node.obstacle import with_obstacle
from agent.node.state import State
from agent.node.tracked_pod import SWITCHES, TrackedPod
from tests.flow.world import container, manifest
from tests.world.nodes import managers_of

FOLDER = Path(__file__).parent / "explain"
MERGES = FOLDER / "merges.txt"
"""What all cases show; to write it anew after a change that was meant: python -m tests.unit.test_explain"""
KEYS = {"name", "machine", "settings", "devices", "before", "ended", "after", "given", "pod", "line", "ran", "seen",
        "room", "claims", "says", "rules"}  # fmt: skip


@dataclass
class Told:
    """A case carried out."""

    node: Node
    ledger: Ledger
    pod: Pod
    found: Explanation
    given: Given


def cases(file: str) -> Iterator[dict[str, Any]]:
    """The cases of a file, checked for typing errors."""
    for case in yaml.safe_load((FOLDER / file).read_text(encoding="utf-8")):
        assert not set(case) - KEYS, f"{case['name']}: {set(case) - KEYS}"
        yield case


def node_of(case: Mapping[str, Any]) -> Node:
    """The managers of a case."""
    node = managers_of(case["machine"], case.get("settings"))
    reported = [
        (resource, name, NodeSet.of(node))
        for resource, devices in case.get("devices", {}).items()
        for name, node in devices.items()
    ]
    return node.with_inventory(node.inventory.with_reported(reported)) if reported else node


def pod_of(body: Mapping[str, Any], number: int) -> Pod:
    """A pod from the short form."""
    containers = body.get("containers") or [
        {"name": "app", **{key: body[key] for key in ("limits", "requests") if key in body}}
    ]
    spec = {
        key: [
            {**{k: v for k, v in each.items() if k not in {"limits", "requests"}},
             "resources": {k: each[k] for k in ("limits", "requests") if k in each}}
            for each in found
        ]
        for key, found in (("containers", containers), ("initContainers", body.get("initContainers", [])))
    }  # fmt: skip
    metadata = {
        "name": body["name"], "namespace": body.get("namespace", "shop"), "uid": body["name"],
        "annotations": {f"numalign.io/{key}": value for key, value in body.get("annotations", {}).items()},
        "creationTimestamp": f"2026-01-01T00:{number // 60:02}:{number % 60:02}Z",
    }  # fmt: skip
    return pod_from({"metadata": metadata, "spec": {**spec, **body.get("spec", {})}})


def carried_out(case: Mapping[str, Any]) -> Told:
    """Let the pods come and go as the engine does, and explain the pod."""
    node = node_of(case)
    ledger = node.start()
    number = 0
    given: Given = {"app": tuple(_offered(case))} if "given" in case else {}

    def come(body: Mapping[str, Any], *, ran: bool = False, line: list[Waiting] | None = None) -> TrackedPod:
        nonlocal ledger, number
        number += 1
        pod = pod_of(body, number)
        exempt = Exemptions().why(pod)
        known, before = TrackedPod(pod, checked_settings(node, pod), exempt=exempt, ran=ran), ledger
        mine = given if body is case["pod"] else None
        ledger, known = decide_pod(
            node, ledger, known, given=mine, unwritable="", switches=SWITCHES, now=1000.0, line=line or [],
        )  # fmt: skip
        return with_obstacle(node, before, known, mine)

    for body in _repeated(case.get("before", [])):
        assert come(body).refusal is None, f"{body['name']} of before did not get in"
    line = []
    for place, body in enumerate(case.get("line", [])):
        known = come(body)
        assert known.refusal is not None, f"{body['name']} need not wait"
        line.append(Waiting(known.pod, known.settings, float(place)))
    if not case.get("seen", True):
        number += 1
        pod = pod_of(case["pod"], number)
        standing = PodStanding(hypothetical=True, room=case.get("room"), claims=case.get("claims", False))
        return Told(node, ledger, pod, explain(node, ledger, pod, standing=standing), {})
    known = come(case["pod"], ran=case.get("ran", False), line=line)
    for body in case.get("after", []):
        come(body)
    for name in case.get("ended", []):
        ledger = node.release(ledger, name)
    standing = PodStanding(refusal=known.refusal, exempt=known.exempt, given=given)
    found = explain(node, ledger, known.pod, settings=known.settings, standing=standing)
    return Told(node, ledger, known.pod, found, given)


def shown(case: Mapping[str, Any]) -> Iterator[str]:
    """What numalign explains beside the sentences: what each provider said, who won each merge by what, who lost."""
    for merge in carried_out(case).found.merges:
        yield f"{case['name']}, {merge.container or 'the pod'}"
        for said in merge.hint_lists:
            counts = [said.size, said.least, said.preferred_count, said.other_count]
            numbers = f" (size, least, preferred, others: {counts})" if said.hints is not None else ""
            yield f"  {said.provider} {said.resource or '-'}, {said.stand.value}: {said.sentence}{numbers}"
        flags = [name for name in ("preferred", "admit", "exact") if getattr(merge, name)]
        yield f"  > {merge.winner if merge.winner is not None else 'any'} {flags}: {merge.rule_text}"
        yield from (f"  - {each.nodes} {each.why.value} by {', '.join(each.by) or '-'}" for each in merge.losers)
        if merge.more_losers:
            yield f"  - and {merge.more_losers} more"
        yield from (f"  ! {each}" for each in merge.obstacles)


def _repeated(bodies: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """`times: 3` stands for three pods, numbered."""
    for body in bodies:
        times = body.get("times", 0)
        yield from ({**body, "name": f"{body['name']}-{each}"} for each in range(times)) if times else [body]


def _offered(case: Mapping[str, Any]) -> Iterator[Offered]:
    for resource, names in case["given"].items():
        for name in names:
            yield Offered(resource, name, NodeSet.of(case["devices"][resource][name]))


def again(told: Told, found: Explanation) -> Case:
    """The admission that the remedies of an explanation were found on."""
    settings = checked_settings(told.node, told.pod)
    given = places(told.ledger, told.node.inventory, told.pod.uid) or told.given
    ledger = told.node.release(told.ledger, told.pod.uid)
    asking = replace(settings, policy=found.policy)
    return Case(handed_over(ledger, told.pod, given) if given else ledger, told.pod, asking)


def every() -> str:
    """What all cases show."""
    files = sorted(FOLDER.glob("*.yaml"))
    return "".join(f"{line}\n" for file in files for case in cases(file.name) for line in shown(case))


ALL = [(file.name, case) for file in sorted(FOLDER.glob("*.yaml")) for case in cases(file.name)]
REFUSALS = [case for file, case in ALL if file == "refusals.yaml"]
PLACEMENTS = [case for file, case in ALL if file == "placements.yaml"]


def named(case: Any) -> str:  # noqa: ANN401 - pytest asks for each value
    """The name of a case."""
    return str(case["name"]) if isinstance(case, dict) else str(case)


def fits(told: Told, case: Case) -> bool:
    """Whether the pod gets in; for one that is in, whether it is aligned."""
    outcome = case.admit(told.node)
    if not isinstance(outcome, Admitted):
        return False
    return told.found.verdict is Verdict.REFUSED or outcome.ledger.pods[told.pod.uid].is_aligned


@pytest.mark.parametrize(("file", "case"), ALL, ids=named)
def test_every_sentence(file: str, case: dict[str, Any]) -> None:
    """A case is told in exactly these sentences, and every merge was won by the rule that is named."""
    told = carried_out(case)
    assert list(lines(told.found)) == case["says"]
    assert [merge.rule.value for merge in told.found.merges] == case.get("rules", [])
    if file == "refusals.yaml":
        assert told.found.verdict is Verdict.REFUSED
    if file == "placements.yaml":
        assert told.found.verdict is Verdict.NOT_PREFERRED


def test_every_merge() -> None:
    """What each provider said, by which rule the winner won and who lost to it, is told word for word."""
    assert every().splitlines() == MERGES.read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("case", [*REFUSALS, *PLACEMENTS], ids=named)
def test_what_would_have_let_it_in_does(case: dict[str, Any]) -> None:
    """Each remedy is carried out and helps; without it nothing does, and one unit more of a request is too much."""
    told = carried_out(case)
    before = again(told, told.found)
    assert not fits(told, before) or told.found.as_of is AsOf.NOW
    for remedy in told.found.remedies:
        assert fits(told, before.changed(told.node, remedy)), remedy.sentence
        if remedy.lever is Lever.REQUEST:
            more = before.asking(remedy.container, remedy.resource, remedy.amount + remedy.unit)
            assert not fits(told, more), remedy.sentence


def test_there_are_enough_cases() -> None:
    """At least twelve refusals, twelve placements, and every lever and verdict among them."""
    assert len(REFUSALS) >= 12
    assert len(PLACEMENTS) >= 12
    found = [carried_out(case).found for _, case in ALL]
    assert {each.verdict for each in found} == set(Verdict)
    assert {remedy.lever for each in found for remedy in each.remedies} == set(Lever)


@pytest.mark.parametrize(("file", "case"), ALL, ids=named)
def test_json_has_the_documented_keys(file: str, case: dict[str, Any]) -> None:
    """The JSON shape is plain JSON, and every explanation has the same keys."""
    body = json.loads(json.dumps(to_json(carried_out(case).found)))
    assert sorted(body) == [
        "answers", "asOf", "asked", "fate", "got", "merges", "notes", "pod", "policy", "policyFrom", "qos", "reasons",
        "refusal", "remedies", "scope", "scopeFrom", "searched", "summary", "uid", "verdict", "version",
    ], file  # fmt: skip
    assert {each["lever"] for each in body["remedies"]} <= {each.value for each in Lever}
    for merge in body["merges"]:
        assert set(merge) == {
            "container", "said", "winner", "preferred", "admit", "exact", "rule", "ruleText", "losers", "moreLosers",
            "obstacles",
        }  # fmt: skip


def test_the_engine_explains_what_it_knows() -> None:
    """A snapshot explains its pods: refused and waiting, in, left alone, and none that it does not know."""
    case = next(case for _, case in ALL if case["name"] == "it waits for room")
    told = carried_out(case)
    known = TrackedPod(told.pod, checked_settings(told.node, told.pod), refusal=told.found.refusal)
    snapshot = State(told.ledger, told.node, DeviceTracker(told.node), {told.pod.uid: known})
    found = explained(snapshot, told.pod.uid)
    assert found is not None
    assert found.summary == told.found.summary
    inside = explained(snapshot, "cart")  # in the ledger only
    assert inside is not None
    assert (inside.verdict, inside.as_of) == (Verdict.ALIGNED, AsOf.ADMISSION)
    assert explained(snapshot, "nobody") is None


def test_who_is_left_alone_has_the_pool_once_it_is_there() -> None:
    """One that runs is told with the shared CPUs that it has, one that never came with none: it runs nowhere.

    From this an operator reads where the node's own pods run.
    """
    case = next(case for _, case in ALL if case["name"] == "a pod of kube-system")
    (got,) = carried_out(case).found.holdings
    assert (got.container, got.cpus, str(got.pool)) == ("app", None, "0-7")
    unseen = carried_out({**case, "seen": False})
    alone = PodStanding(exempt="namespace kube-system is left alone", hypothetical=True)
    assert explain(unseen.node, unseen.ledger, unseen.pod, standing=alone).holdings == ()


def test_nothing_is_searched_unless_it_is_asked_for() -> None:
    """Without the search the answer is the same, but for the remedies."""
    told = carried_out(REFUSALS[0])
    short = explain(told.node, told.ledger, told.pod, standing=PodStanding(refusal=told.found.refusal), search=False)
    assert (short.summary, short.reasons) == (told.found.summary, told.found.reasons)
    assert (short.remedies, short.searched) == ((), ())


def test_amounts_in_words() -> None:
    """Bytes are exact where that is short; nodes with equal amounts are told together."""
    assert [size(each) for each in (1 << 30, 1536 << 20, (15 << 30) + 12345, 0, 1000)] == [
        "1Gi", "1536Mi", "15.0Gi", "0", "1000",
    ]  # fmt: skip
    assert [size(1 << each) for each in (10, 20, 40, 50, 60)] == ["1Ki", "1Mi", "1Ti", "1Pi", "1Ei"]
    assert spread("cpu", {0: 4, 1: 8, 2: 8, 4: 4}, "free") == "NUMA nodes 0,4 have 4 free each, 1-2 have 8 each"
    assert spread("memory", {0: 1 << 30}) == "NUMA node 0 has 1Gi"


def test_large_machines_are_summarised() -> None:
    """With sixteen nodes no hint is listed: counts, sums and the rule are told instead."""
    found = carried_out(next(case for case in PLACEMENTS if case["machine"].startswith("4 sockets x 4"))).found
    said: HintList = found.merges[0].hint_lists[0]
    assert (said.stand, said.hints, said.size, said.least) == (ListStance.HINTS, None, 1, 2)
    assert sum(said.free.values()) == 16
    assert found.merges[0].rule_text.endswith("2 NUMA nodes, as many as the neediest of them takes at least")
    assert isinstance(found, Explanation)


def test_a_search_that_ended_early_is_told_and_nothing_is_made_up_of_an_empty_machine() -> None:
    """Memory and huge pages on dozens of uneven nodes may take too long: that ends no explanation with a fault."""
    node, each = managers_of("24 sockets x 1 node x 1 core, 4G per node"), dict.fromkeys(range(24), 4 << 30)
    said = HintList("memory", "memory", ListStance.HINTS, 8 << 30, each, each)
    unknown = Demand(Family((1 << 24) - 1, (Need(8 << 30, tuple(each.values())),)))
    pod = pod_from(manifest("solver"))
    (sentence,) = obstacles(node, pod, [ObstacleView(said, unknown)], node.start(), Policy.BEST_EFFORT)
    assert sentence == (
        "the search for the fewest NUMA nodes of an empty machine that hold 8Gi of memory ended before its answer, "
        "so no set of nodes is preferred"
    )


BEST = {"topologyManagerPolicy": "best-effort", "reservedSystemCPUs": "0"}


@pytest.mark.parametrize(
    ("machine", "options", "held", "cpus", "sentence"),
    [
        (
            "4 sockets x 4 nodes x 4 cores, 8G per node", {}, 14, 2,
            ("2 CPUs; free: NUMA nodes 0-13 have 1 each, 14-15 have 4 each. On an empty machine it needs 1 "
            "NUMA node; preferred: {14} or {15}"),
        ),
        (
            "2 sockets x 2 nodes x 4 cores, 8G per node", {"align-by-socket": "true"}, 0, 2,
            ("2 CPUs; free: NUMA node 0 has 3, 1-3 have 4 each. On an empty machine it needs 1 NUMA node; "
            "preferred: {0}, {1}, {2}, {3} and 2 more; 9 wider sets would do"),
        ),
        (
            "2 sockets x 1 node x 4 cores, 8G per node", {}, 1, 6,
            "6 CPUs: no set of NUMA nodes will do (4 free on the whole machine); free: NUMA node 0 has 0, 1 has 4",
        ),
    ],
    ids=["too many nodes to list", "whole sockets are preferred too", "too few on the whole machine"],
)  # fmt: skip
def test_what_a_hint_list_says(machine: str, options: dict[str, str], held: int, cpus: int, sentence: str) -> None:
    """The node sets that a list prefers are named, be it listed or not, and what is free where it has none."""
    first = 3 if held == 1 else 2  # one CPU of the first node is the system's
    told = carried_out({
        "machine": machine, "settings": {**BEST, "cpuManagerPolicyOptions": options},
        "before": [
            {"name": f"p{each}", "limits": {"cpu": 3 if each else first, "memory": "1Gi"}} for each in range(held)
        ],
        "pod": {"name": "solver", "limits": {"cpu": cpus, "memory": "1Gi"}},
    })  # fmt: skip
    assert told.found.merges[0].hint_lists[0].sentence == sentence


def test_why_a_node_set_lost_is_told_of_each() -> None:
    """CPUs prefer one node and could do with two; memory is not to be had on one: two different reasons."""
    found = carried_out(
        next(case for case in PLACEMENTS if case["name"] == "CPUs need one node and memory two")
    ).found
    lost = {str(each.nodes): (each.why, each.by) for each in found.merges[0].losers}
    assert lost == {
        "0": (LossReason.NOT_OFFERED, ("memory",)), "1": (LossReason.NOT_OFFERED, ("memory",)),
        "0-1": (LossReason.NOT_PREFERRED, ("cpu",)),
    }  # fmt: skip


@pytest.mark.parametrize(("compatibility", "free", "node"), [("kubelet", "7Gi", "0"), ("fixed", "1Gi", "1")])
def test_free_memory_is_what_the_memory_manager_counts(compatibility: str, free: str, node: str) -> None:
    """What a confined pod may use is not free under `fixed`; the kubelet's Memory Manager knows nothing of it.

    What is offered is taken: else a pod that fits where its hints say would be refused, or be put elsewhere.
    """
    told = carried_out({
        "machine": "2 sockets x 1 node x 4 cores, 8G per node",
        "settings": {
            **BEST, "compatibility": compatibility, "memoryManagerPolicy": "Static",
            "kubeReserved": {"memory": "924Mi"}, "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}],
        },
        "before": [{
            "name": "web", "annotations": {"align": "numa,memory"}, "requests": {"cpu": "500m", "memory": "1Gi"},
            "limits": {"memory": "6Gi"},
        }],
        "pod": {"name": "solver", "limits": {"cpu": 1, "memory": "4Gi"}},
    })  # fmt: skip
    _, memory, *_ = told.found.merges[0].hint_lists
    assert memory.sentence.startswith(f"4Gi of memory; free: NUMA node 0 has {free}, 1 has 8Gi.")
    assert [str(block.nodes) for block in told.found.holdings[0].memory] == [node]


@pytest.mark.parametrize(
    ("message", "plain"),
    [
        ("no healthy devices present; cannot allocate", "this node has no healthy device of that name"),
        (
            "no healthy devices present; cannot allocate unhealthy devices numalign.io/nic",
            "this node has no healthy device numalign.io/nic",
        ),
        ("previously allocated devices are no longer healthy", "a device that it held is not healthy any more"),
        ("a reason of a later version", "Allocate failed due to a reason of a later version, which is unexpected"),
    ],
)
def test_a_refusal_by_the_device_manager_is_told_for_what_it_is(message: str, plain: str) -> None:
    """Each of the kubelet's sentences has plain words of its own; one that nobody knows is told as it is."""
    told = carried_out(next(case for _, case in ALL if case["name"] == "aligned, the lower of two equal nodes"))
    refusal = Refusal(Reason.UNEXPECTED, f"Allocate failed due to {message}, which is unexpected")
    found = explain(told.node, told.node.start(), told.pod, standing=PodStanding(refusal=refusal), search=False)
    assert plain in found.summary


def test_a_refused_pod_that_runs_is_explained_from_the_ledger_alone() -> None:
    """Who reads the checkpoint, with no agent to ask, is told the refusal too, not that nothing was decided."""
    case = next(case for _, case in ALL if case["name"] == "single-numa-node, more CPUs than any node has")
    told = carried_out({**case, "settings": {**case["settings"], "onMisalignment": "run"}})
    assert list(lines(explain(told.node, told.ledger, told.pod))) == list(lines(told.found))
    assert told.found.verdict is Verdict.REFUSED


@pytest.mark.parametrize("closest", ["true", "false"])
def test_a_full_large_machine_is_explained_within_bounds(closest: str) -> None:
    """With 80 pods on 256 CPUs no more admissions are tried than allowed, and what could not be tried is told."""
    case = {
        "machine": "2 sockets x 4 nodes x 16 cores x 2 threads, 64G per node, distance 10 12 21",
        "settings": {
            "topologyManagerPolicy": "best-effort", "reservedSystemCPUs": "0", "onMisalignment": "fail",
            "topologyManagerPolicyOptions": {"prefer-closest-numa-nodes": closest},
        },
        "before": [{"name": "grid", "times": 80, "limits": {"cpu": 3, "memory": "1Gi"}}],
        "pod": {
            "name": "solver", "annotations": {"policy": "single-numa-node"}, "limits": {"cpu": 9, "memory": "1Gi"},
        },
    }  # fmt: skip
    told = carried_out(case)
    departure = next(each for each in told.found.remedies if each.lever is Lever.DEPARTURE)
    assert len(departure.departures) == 3
    assert "of the 3160 pairs of pods, 1000 were tried" in told.found.searched
    search = _Search(told.node, again(told, told.found), aligned=False)
    assert [remedy for lever in search.levers() for remedy in lever()]
    assert search.tries <= TRIES


@pytest.mark.parametrize(
    ("why", "aligned"),
    [
        ("it lost CPUs 3, which are offline or another pod's; it keeps 1-2", False),
        ("the resize to 4 CPUs waits for room", False),
    ],
)
def test_what_happened_to_a_pod_since_is_its_reason(why: str, aligned: bool) -> None:  # noqa: FBT001 - a column
    """A pod that lost CPUs, or whose resize waits, is not aligned for that reason, and is not searched in vain."""
    case = next(case for _, case in ALL if case["name"] == "aligned, the lower of two equal nodes")
    told = carried_out(case)
    record = told.ledger.pods[told.pod.uid]
    record = replace(record, aligned={"app": aligned}, why={"app": why})
    ledger = replace(told.ledger, pods={**told.ledger.pods, told.pod.uid: record})
    found = explain(told.node, ledger, told.pod)
    assert found.verdict is Verdict.NOT_PREFERRED
    assert found.summary == f"shop/checkout is in, but is not aligned: {why}"
    assert found.remedies == ()
    assert found.notes == ("created again now, it would be aligned: CPUs 1-2 on NUMA node 0",)


def test_a_pod_is_explained_by_the_scope_that_it_was_admitted_under() -> None:
    """The node's settings may have changed since: its containers lie where the scope of then put them."""
    case = next(case for _, case in ALL if case["name"] == "scope pod, both containers on two nodes")
    told = carried_out(case)
    settings = {**case["settings"], "topologyManagerScope": "container"}
    found = explain(managers_of(case["machine"], settings), told.ledger, told.pod)
    assert (found.scope, found.as_of) == (Scope.POD, AsOf.ADMISSION)
    assert found.merges == told.found.merges


def test_annotations_in_remedies_are_whole() -> None:
    """Written into the manifest as it stands, each annotation of a remedy asks for what was tried."""
    tried = 0
    for case in REFUSALS:
        told = carried_out(case)
        for remedy in told.found.remedies:
            _, _, written = remedy.sentence.partition(" (numalign.io/")
            if remedy.lever in (Lever.POLICY, Lever.SCOPE, Lever.CPU_OPTION) and written:
                key, _, value = written.partition(")")[0].partition(": ")
                pod = replace(told.pod, annotations={**told.pod.annotations, f"numalign.io/{key}": value})
                before = again(told, told.found)
                asks = Case(before.ledger, pod, checked_settings(told.node, pod)).admit(told.node)
                meant = before.changed(told.node, remedy).admit(told.node)
                assert isinstance(asks, Admitted), remedy.sentence
                assert (asks.ledger.cpus, asks.ledger.memory) == (meant.ledger.cpus, meant.ledger.memory)
                tried += 1
    assert tried >= 10


def test_a_request_beyond_all_measure_is_answered_at_once() -> None:
    """The search for a smaller one begins at what the node has, and not at what a pod of any tenant may ask for."""
    node = managers_of("1 socket x 4 cores", {"reservedSystemCPUs": "0"})
    pod = pod_from(manifest("evil", container("app", cpu="1000000000000000000")))
    found = explain(node, node.start(), pod, standing=PodStanding(hypothetical=True))
    assert [each.amount for each in found.remedies if each.lever is Lever.REQUEST] == [3]


def test_a_sentence_keeps_the_letters_of_a_setting_that_it_begins_with() -> None:
    """`plan` and `explain` name cpuManagerPolicy as the file has it; other sentences begin with a capital letter."""
    assert capital("cpuManagerPolicy is none") == "cpuManagerPolicy is none"
    assert capital("no setting reserves CPUs") == "No setting reserves CPUs"


if __name__ == "__main__":
    MERGES.write_text(every(), encoding="utf-8")
