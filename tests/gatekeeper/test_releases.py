"""A replica of the gatekeeper and a stand-in API server: each thing that it does to a pod."""

from __future__ import annotations

from agent.forecast.gate.values import GATE, HOSTNAME
from agent.kube.pod_report import ALIGNED, CONDITION
from tests.gatekeeper.replicas import Cluster, terms_of
from tests.gatekeeper.standin import Object
from tests.patience import until


def test_a_pod_is_nominated_and_then_released_by_two_patches(cluster: Cluster) -> None:
    """Status first, then the gate; the node that sums take and the decision refuses is in NotIn."""
    cluster.fill("a", 2, 3)  # two CPUs are left by sum, and on no NUMA node
    key = cluster.gated("web")
    cluster.replica()
    until(lambda: cluster.released(key), "the release")
    first, second = cluster.api.wrote("pods", "pods/status")
    assert (first.resource, second.resource) == ("pods/status", "pods")
    assert first.body["status"]["nominatedNodeName"] == "b"
    assert first.body["metadata"].keys() == second.body["metadata"].keys() == {"uid", "resourceVersion"}
    body = cluster.api.get("pods", key)
    (condition,) = [each for each in body["status"]["conditions"] if each["type"] == GATE]
    assert (condition["status"], condition["message"][:3]) == ("True", "b: ")


def test_nodes_that_would_refuse_are_in_not_in_of_every_term(cluster: Cluster) -> None:
    """Existing terms keep what they say; a term that says nothing matches no node, and stays so."""
    cluster.fill("a", 2, 2)  # one and two CPUs are left on its NUMA nodes
    own = {"key": "zone", "operator": "DoesNotExist"}
    terms: list[Object] = [
        {"matchExpressions": [own]},
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["b"]}]},
    ]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    key = cluster.gated("web", 3, affinity={"nodeAffinity": required})
    cluster.replica()
    until(lambda: cluster.released(key), "the release")
    avoid = {"key": HOSTNAME, "operator": "NotIn", "values": ["a"]}
    found = terms_of(cluster.api.get("pods", key))
    assert found == [{"matchExpressions": [own, avoid]}, {**terms[1], "matchExpressions": [avoid]}]


def test_a_pod_that_fits_nowhere_is_told_why_and_waits(cluster: Cluster) -> None:
    """Its condition names the closest node; the sentence is written once."""
    cluster.fill("a", 2, 2)
    cluster.fill("b", 2, 2)
    key = cluster.gated("web", 3)
    cluster.replica()

    def message() -> str:
        conditions = cluster.api.get("pods", key)["status"]["conditions"]
        return next((each["message"] for each in conditions if each["type"] == GATE), "")

    until(message, "the sentence")
    assert "comes closest" in message()
    cluster.serving()
    cluster.fill("b", 1)
    assert not cluster.released(key)
    assert len(cluster.api.wrote("pods/status")) == 1


def test_room_that_appears_lets_it_go(cluster: Cluster) -> None:
    """The node's next summary is enough: nothing is polled."""
    cluster.fill("a", 3, 3)
    cluster.fill("b", 3, 3)
    key = cluster.gated("web", 3)
    cluster.replica()
    cluster.serving()
    assert not cluster.released(key)
    cluster.runs["b"].end(["uid-on-b-0-3"], 10.0)
    cluster.publish("b")
    until(lambda: cluster.released(key), "the release")
    assert cluster.api.promised(key)[0] == "b"


def test_a_foreign_gate_beside_ours_keeps_it_from_a_nomination(cluster: Cluster) -> None:
    """A pod that another gate holds is not touched; when that is gone, it is decided (R1)."""
    key = cluster.gated("web", gates=("kueue.x-k8s.io/admission", GATE))
    cluster.replica()
    cluster.serving()
    assert cluster.api.wrote("pods", "pods/status") == []
    cluster.api.change("pods", key, lambda body: body["spec"].update(schedulingGates=[{"name": GATE}]))
    until(lambda: cluster.released(key), "the release")


def test_another_writer_between_costs_a_try_and_nothing_else(cluster: Cluster) -> None:
    """409 to the first patch: the pod as it is now is decided again."""
    key = cluster.gated("web")
    once: list[str] = []

    def touched(request: object) -> int:
        if getattr(request, "resource", "") == "pods/status" and not once:
            once.append(key)
            cluster.api.change("pods", key, lambda body: body["metadata"].update(labels={"a": "b"}))
        return 0

    cluster.api.before = touched
    cluster.replica()
    until(lambda: cluster.released(key), "the release")
    assert cluster.api.promised(key)[-1]
    assert [each.resource for each in cluster.api.wrote("pods", "pods/status")] == [
        "pods/status",
        "pods/status",
        "pods",
    ]


def test_a_release_that_is_refused_leaves_no_nomination_of_a_gated_pod(cluster: Cluster) -> None:
    """409 to the second patch: the nomination is cleared or the pod released, within a second or two."""
    key = cluster.gated("web")
    once: list[str] = []

    def touched(request: object) -> int:
        if getattr(request, "resource", "") == "pods" and getattr(request, "verb", "") == "PATCH" and not once:
            once.append(key)
            cluster.api.change("pods", key, lambda body: body["metadata"].update(labels={"a": "b"}))
        return 0

    cluster.api.before = touched
    cluster.replica()
    until(lambda: cluster.released(key), "the release")
    wrote = [each.resource for each in cluster.api.wrote("pods", "pods/status")]
    assert wrote[:2] == ["pods/status", "pods"]
    assert wrote[-1] == "pods"


def test_where_a_pod_landed_is_looked_up_when_no_summary_shows_it(cluster: Cluster) -> None:
    """A GET each five seconds until its node's agent has decided; a landing elsewhere is counted."""
    key = cluster.gated("web")
    replica = cluster.replica(look_up=0.2)
    until(lambda: cluster.released(key), "the release")
    promised = cluster.api.promised(key)[0]
    cluster.api.bind(key, "b" if promised == "a" else "a")

    def looked_up() -> list[str]:
        return [
            each.key for each in cluster.api.requests if (each.verb, each.resource, each.key) == ("GET", "pods", key)
        ]

    until(lambda: len(looked_up()) > 1, "a second look-up")
    leader = replica.gatekeeper.leader
    assert leader is not None
    assert not any("elsewhere" in each for each in leader.figures.state.counts)
    decided = {"type": CONDITION, "status": "True", "reason": ALIGNED}
    cluster.api.change("pods", key, lambda body: body["status"]["conditions"].append(decided))
    until(lambda: any("elsewhere" in each for each in leader.figures.state.counts), "the count")
    assert all(each.found for each in leader.figures.state.flights.values())


def test_a_claim_that_gets_its_volume_lets_the_pod_be_nominated(cluster: Cluster) -> None:
    """What a pod refers to is looked up again, though the pod itself does not change (R2)."""
    cluster.fill("a", 3, 3)
    cluster.fill("b", 3, 3)
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    key = cluster.gated("web", 3, volumes=volumes)
    replica = cluster.replica()
    cluster.serving()

    def claims() -> list[bool]:
        leader = replica.gatekeeper.leader
        waiting = [*leader.figures.state.waiting.values()] if leader else []
        return [claim.bound for each in waiting for claim in each.pod.claims]

    until(lambda: claims() == [False], "the look-up")
    claim = {
        "metadata": {"name": "data", "namespace": "shop"},
        "spec": {"volumeName": "pv"},
        "status": {"phase": "Bound"},
    }
    cluster.api.put("persistentvolumes", {"metadata": {"name": "pv"}, "spec": {}})
    cluster.api.put("persistentvolumeclaims", claim)
    until(lambda: claims() == [True], "the second look-up")
    assert not cluster.released(key)
