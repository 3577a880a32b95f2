"""A hostile tenant, an unlucky API server and an unlucky operator against a running replica (S23)."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from agent.app.gatekeeper import leader as leaders
from agent.app.gatekeeper import seen_pods
from agent.app.gatekeeper.errands import Errands
from agent.forecast.gate.events import Event, LiftUndecided, LookedUp, LookUp, PatchAnswered, Tell
from agent.forecast.gate.values import GATE, TAKEN_BACK
from agent.kube.gate.unbound_pods import UnboundBody, UnreadablePod, unbound
from agent.kube.gate.writer import GateWriter
from tests.gatekeeper.replicas import SPACE, SWITCH, Cluster
from tests.gatekeeper.standin import Object, Request
from tests.patience import until
from tests.world.fleets import pod


def claim(name: str) -> Object:
    """A volume of a claim."""
    return {"name": "data", "persistentVolumeClaim": {"claimName": name}}


# ---- tenants


@pytest.mark.parametrize(
    "name", ["../../../pods?watch=true", "..", "data/status", "data?watch=true", "data%2Fstatus"]
)
def test_a_claims_name_is_no_path(cluster: Cluster, name: str) -> None:
    """The API server takes any text; as a path it would be a watch that never ends, with the gatekeeper's token."""
    asked: list[Request] = []

    def note(request: Request) -> int:
        asked.append(request)
        return 0

    cluster.api.before = note
    keys = [cluster.gated("odd", volumes=[claim(name)]), cluster.gated("other")]
    cluster.replica()
    until(lambda: all(map(cluster.released, keys)), "the releases")
    assert not [each for each in asked if each.verb == "GET" and each.resource == "persistentvolumeclaims"]


def test_an_owners_name_is_no_path(cluster: Cluster) -> None:
    """Nor is that of a Job."""
    asked: list[Request] = []

    def note(request: Request) -> int:
        asked.append(request)
        return 0

    cluster.api.before = note
    key = cluster.gated("odd")
    owner = {"kind": "Job", "name": "../../../../../api/v1/nodes?watch=true", "uid": "u", "controller": True}
    cluster.api.change("pods", key, lambda body: body["metadata"].update(ownerReferences=[owner]))
    cluster.replica()
    until(lambda: cluster.released(key), "the release")
    assert not [each for each in asked if each.verb == "GET" and each.resource == "jobs"]


def test_many_claims_of_one_namespace_delay_no_other(cluster: Cluster) -> None:
    """Look-ups take turns by namespace; of a pod with more claims than 20 none is looked up.

    Pods whose claims are missing are released before it, and keep no node once kube-scheduler has turned them away.
    """
    cluster.api.put("namespaces", {"metadata": {"name": "innocent"}})
    asked, turned_away = [0], set[str]()

    def slow(request: Request) -> int:
        if request.resource == "persistentvolumeclaims":
            asked[0] += 1
            time.sleep(0.02)
        return 0

    def scheduler() -> int:
        unschedulable = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        for key in {key for key in flood if cluster.released(key)} - turned_away:
            cluster.api.change("pods", key, lambda body: body["status"].update(conditions=[unschedulable]))
            turned_away.add(key)
        return len(turned_away)

    cluster.api.before = slow
    cluster.replica()
    cluster.serving()
    flood = [
        cluster.gated(f"flood-{number}", volumes=[claim(f"d-{number}-{each}") for each in range(20)])
        for number in range(60)
    ]
    cluster.gated("wide", volumes=[claim(f"w-{each}") for each in range(21)])
    until(lambda: scheduler() > 7, "more releases than the nodes have room for")
    body = pod("web", cpu="1", notes={"numalign.io/policy": "single-numa-node"}, schedulingGates=[{"name": GATE}])
    body["metadata"]["namespace"] = "innocent"
    cluster.api.put("pods", body)
    before = asked[0]
    until(lambda: scheduler() and cluster.released("innocent/web"), "the release")
    assert asked[0] - before < 200


def _gated(**spec: Any) -> UnboundBody | UnreadablePod | None:  # noqa: ANN401 - JSON
    return unbound(pod("web", schedulingGates=[{"name": GATE}], **spec), False)  # noqa: FBT003 - a `Reader`


LINE = {"key": "zone", "operator": "Exists"}
REQUIRED, PREFERRED = (f"{each}DuringSchedulingIgnoredDuringExecution" for each in ("required", "preferred"))


@pytest.mark.parametrize(
    "spec",
    [
        {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [LINE] * 201}]}}}},
        {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [LINE]}] * 201}}}},
        {
            "affinity": {
                "nodeAffinity": {PREFERRED: [{"weight": 1, "preference": {"matchExpressions": [LINE] * 2000}}]}
            }
        },
        {"tolerations": [{"operator": "Exists"}] * 201},
        {"nodeSelector": {f"label-{each}": "x" for each in range(201)}},
        {"containers": [{"name": "app", "ports": [{"hostPort": each} for each in range(1, 102)]}]},
    ],
    ids=["lines", "terms", "preferred", "tolerations", "selector", "ports"],
)
def test_a_pod_that_costs_too_much_to_compare_is_let_go(spec: dict[str, object]) -> None:
    """Each node would be compared with each rule, and all of it be kept: the gate is lifted instead."""
    assert isinstance(_gated(**spec), UnreadablePod)


def test_our_gate_is_found_among_many() -> None:
    """A pod with more gates than are kept of other lists has ours all the same."""
    gates = [*({"name": f"a{each}"} for each in range(300)), {"name": GATE}]
    found = unbound(pod("web", schedulingGates=gates), False)  # noqa: FBT003 - a `Reader`
    assert isinstance(found, UnboundBody)
    assert found.pod.gated


def test_s23_a_gate_that_is_overdue_is_lifted_though_the_pod_changes_all_the_time(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another writer forestalls every patch that names a version."""
    monkeypatch.setattr(leaders, "GRACE", 0.5)
    cluster.fill("a", 3, 3)
    cluster.fill("b", 3, 3)
    key, number = cluster.gated("web", 3), [0]

    def touch(request: Request) -> int:
        if request.verb == "PATCH" and request.key == key:
            number[0] += 1
            cluster.api.change("pods", key, lambda body: body["metadata"].update(labels={"a": f"{number[0]}"}))
        return 0

    cluster.api.before = touch
    cluster.replica(wait=1.0)
    until(lambda: cluster.released(key), "the end of its wait")
    assert not any(cluster.api.promised(key))


# ---- the API server


def test_s23_a_gated_pod_that_cannot_be_read_is_let_go_though_the_first_try_fails(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else may ever change it."""
    monkeypatch.setattr(seen_pods, "PATIENCE", 0.3)
    key = cluster.gated("odd")
    cluster.api.change("pods", key, lambda body: body["spec"]["containers"][0].update(resources="none"))
    refused: list[Request] = []

    def refuse(request: Request) -> int:
        if (request.verb, request.resource) == ("PATCH", "pods") and not refused:
            refused.append(request)
            return 500
        return 0

    cluster.api.before = refuse
    cluster.replica()
    until(lambda: cluster.released(key), "the release")
    assert refused


@pytest.mark.parametrize("resource", ["noderesourcetopologies", "nodes", "pods"])
def test_s23_a_leader_that_cannot_begin_gates_no_pod(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, resource: str
) -> None:
    """A list that is refused for good: the switch of the leader before goes, and gates are bounded as ever."""
    monkeypatch.setattr(leaders, "GRACE", 0.5)
    monkeypatch.setattr(leaders, "STARTS_WITHIN", 1.0)
    cluster.api.put("configmaps", {"metadata": {"name": SWITCH, "namespace": SPACE}})
    key = cluster.gated("web")

    def refuse(request: Request) -> int:
        return 404 if (request.resource, request.key) == (resource, "") else 0

    cluster.api.before = refuse
    cluster.replica(wait=1.0)
    until(lambda: not cluster.switched_on, "the switch to go")
    if resource != "pods":
        until(lambda: cluster.released(key), "the end of its wait")
    assert not any(cluster.api.promised(key))


def test_s23_a_nomination_that_cannot_be_cleared_does_not_stop_the_leader(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another policy may refuse one pod's status for good: the others are decided all the same."""
    monkeypatch.setattr(leaders, "CLEARS_WITHIN", 1.0)
    stuck = cluster.gated("stuck")
    cluster.api.change("pods", stuck, lambda body: body["status"].update(nominatedNodeName="a"))
    other, tries = cluster.gated("other"), [0]

    def refuse(request: Request) -> int:
        mine = (request.resource, request.key) == ("pods/status", stuck)
        tries[0] += mine
        return 403 if mine else 0

    cluster.api.before = refuse
    cluster.replica()
    until(lambda: cluster.released(other), "the release")
    assert tries[0] < 10


def test_without_a_word_of_one_watch_no_pod_is_gated(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pods cannot be listed any more, and nodes go on publishing: gated pods would not be seen."""
    monkeypatch.setattr(leaders, "SILENT", 2.0)
    cluster.replica()
    cluster.serving()
    cluster.api.before = lambda request: 500 if (request.resource, request.key) == ("pods", "") else 0
    cluster.api.expire()

    def off() -> bool:
        cluster.publish("a")
        return not cluster.switched_on

    until(off, "the switch to go", pause=0.2)


def test_look_ups_without_an_answer_hold_no_patch(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are given back; patches go out before the look-ups and sentences that wait."""
    monkeypatch.setattr("agent.app.gatekeeper.errands.AGAIN", 0.0)
    done, told, over = list[str](), list[Event](), threading.Event()

    class Writer(GateWriter):
        """Answers no look-up."""

        def __init__(self) -> None:
            pass

        def carry_out(self, effect: object) -> PatchAnswered | None:
            done.append(type(effect).__name__)
            return None

    def tell(event: Event) -> None:
        told.append(event)
        if len(told) == 3:
            over.set()

    errands = Errands(Writer(), tell, threads=1)
    errands.send(LookUp("a", "shop/a"))
    errands.send(Tell("b", "shop/b", "1", TAKEN_BACK, 0.0))
    errands.send(LiftUndecided("c", "shop/c", "1", ""))
    errands.start()
    assert over.wait(20)
    errands.stop()
    assert done == ["LiftUndecided", "LookUp", "Tell"]
    assert LookedUp("a", unanswered=True) in told
