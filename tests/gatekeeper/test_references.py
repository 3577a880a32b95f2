"""What a gated pod refers to: claims, owners' clocks, the size of a gang, defaults of its namespace."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.errors import KubeError
from agent.forecast.gate.values import GATE, Gang, OwnerClock, UnboundPod, VolumeClaim
from agent.forecast.placing import Requirement, Term
from agent.kube.client import KubeClient
from agent.kube.gate.references import NEVER, References
from agent.kube.gate.unbound_pods import LARGE_GANG, UnboundBody, UnreadablePod, unbound
from tests.gatekeeper.standin import Object, StandIn
from tests.world.fleets import pod

NOW = 1_800_000_000.0


@pytest.fixture
def api(tmp_path: Path) -> Iterator[StandIn]:
    """A server with the pod's namespace."""
    made = StandIn(tmp_path)
    made.put("namespaces", {"metadata": {"name": "shop", "annotations": {"numalign.io/policy": "restricted"}}})
    yield made
    made.close()


def gated(owner: str = "", labels: dict[str, str] | None = None, **spec: Any) -> Object:  # noqa: ANN401 - JSON
    """A gated pod."""
    body = pod("web", schedulingGates=[{"name": GATE}], **spec)
    kind, _, name = owner.partition("/")
    if owner:
        body["metadata"]["ownerReferences"] = [{"kind": kind, "name": name, "uid": "u", "controller": True}]
    body["metadata"]["labels"] = labels or {}
    return body


def read(body: Object) -> UnboundBody:
    """What is read of it."""
    found = unbound(body, False)  # noqa: FBT003 - a `Reader`
    assert isinstance(found, UnboundBody)
    return found


def whole(api: StandIn, body: Object) -> tuple[UnboundPod, float]:
    """The pod with all that it refers to, and when to look again."""
    return References(KubeClient(api.access, "test"), wall=lambda: NOW).whole(read(body))


def stamp(at: float) -> str:
    """As the API writes a time."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))


def test_a_namespaces_annotations_are_below_the_pods_own(api: StandIn) -> None:
    """And a pod that refers to nothing is not looked up again."""
    found, again = whole(api, gated())
    assert (found.pod.annotations, again) == ({"numalign.io/policy": "restricted"}, NEVER)


def test_a_jobs_deadline_and_size(api: StandIn) -> None:
    """Of a Job with a parallelism the pods that are not Ready start together; the deadline counts from its start."""
    job = {
        "metadata": {"name": "train", "namespace": "shop"},
        "spec": {"parallelism": 4, "completions": 6, "activeDeadlineSeconds": 60},
        "status": {"startTime": stamp(NOW - 10), "succeeded": 3, "ready": 1},
    }
    api.put("jobs", job)
    found, again = whole(api, gated("Job/train"))
    assert found.clocks == (OwnerClock("activeDeadlineSeconds of Job shop/train", NOW + 50),)
    assert found.gang == Gang("shop/Job/train", 2)
    assert (found.owner, again) == ("Job train", 5.0)
    api.change("jobs", "shop/train", lambda body: body["spec"].update(parallelism=1))
    assert whole(api, gated("Job/train"))[0].gang is None


@pytest.mark.parametrize(("reason", "runs"), [("ReplicaSetUpdated", True), ("NewReplicaSetAvailable", False)])
def test_a_deployments_deadline(api: StandIn, reason: str, runs: bool) -> None:  # noqa: FBT001 - a parameter
    """It counts from the last progress, while a rollout is under way."""
    owner = [{"kind": "Deployment", "name": "web", "uid": "d", "controller": True}]
    api.put("replicasets", {"metadata": {"name": "web-1", "namespace": "shop", "ownerReferences": owner}})
    told = {"type": "Progressing", "status": "True", "reason": reason, "lastUpdateTime": stamp(NOW)}
    api.put("deployments", {
        "metadata": {"name": "web", "namespace": "shop"}, "spec": {"progressDeadlineSeconds": 30},
        "status": {"conditions": [told]},
    })  # fmt: skip
    found, again = whole(api, gated("ReplicaSet/web-1"))
    assert [each.ends for each in found.clocks] == ([NOW + 30] if runs else [])
    assert again == (30.0 if runs else NEVER)


def test_volume_claims(api: StandIn) -> None:
    """Bound with the volume's node rules; waiting for its first pod; unbound; missing: looked up again soon."""
    zone = {"key": "zone", "operator": "In", "values": ["east"]}
    required = {"nodeSelectorTerms": [{"matchExpressions": [zone]}]}
    space = {"namespace": "shop"}
    claims = [("bound", {"volumeName": "pv"}), ("later", {"storageClassName": "wait"}), ("none", {})]
    for name, spec in claims:
        phase = "Bound" if name == "bound" else "Pending"
        body: Object = {"metadata": {"name": name, **space}, "spec": spec, "status": {"phase": phase}}
        api.put("persistentvolumeclaims", body)
    api.put("persistentvolumes", {"metadata": {"name": "pv"}, "spec": {"nodeAffinity": {"required": required}}})
    allowed = [{"matchLabelExpressions": [{"key": "zone", "values": ["west"]}]}]
    wait = {"volumeBindingMode": "WaitForFirstConsumer", "allowedTopologies": allowed}
    api.put("storageclasses", {"metadata": {"name": "wait"}, **wait})
    names = ("bound", "later", "none", "missing")
    volumes = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in names]
    found, again = whole(api, gated(volumes=volumes))
    assert found.claims == (
        VolumeClaim("bound", terms=(Term((Requirement("zone", "In", ("east",)),)),)),
        VolumeClaim("later", bound=False, waits=True, terms=(Term((Requirement("zone", "In", ("west",)),)),)),
        VolumeClaim("none", bound=False),
        VolumeClaim("missing", exists=False, bound=False),
    )
    assert again == 5.0


def test_what_may_not_be_read_counts_as_absent_and_a_fault_is_told(api: StandIn) -> None:
    """403 leaves the pod to NotIn alone; 500 is tried again."""
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    api.before = lambda request: 403 if request.resource == "persistentvolumeclaims" else 0
    assert whole(api, gated(volumes=volumes))[0].claims == (VolumeClaim("data", exists=False, bound=False),)
    api.before = lambda request: 500 if request.resource == "persistentvolumeclaims" else 0
    with pytest.raises(KubeError):
        whole(api, gated(volumes=volumes))


@pytest.mark.parametrize(
    ("labels", "notes", "size"),
    [
        ({"kueue.x-k8s.io/pod-group-name": "g"}, {"kueue.x-k8s.io/pod-group-total-count": "3"}, 3),
        ({"kueue.x-k8s.io/pod-group-name": "g"}, {}, LARGE_GANG),
        ({"scheduling.x-k8s.io/pod-group": "g"}, {}, LARGE_GANG),
        (
            {"kueue.x-k8s.io/pod-group-name": "g"},
            {"kueue.x-k8s.io/pod-group-total-count": "3", "kueue.x-k8s.io/pod-group-fast-admission": "true"},
            0,
        ),
    ],
)
def test_groups_that_the_pod_itself_names(labels: dict[str, str], notes: dict[str, str], size: int) -> None:
    """A group whose size no field tells is left to its own queue. Pods of a StatefulSet in Kueue are none."""
    body = gated(labels=labels)
    body["metadata"]["annotations"] = notes
    gang = read(body).pod.gang
    assert (gang.size if gang else 0) == size


def test_a_pod_that_never_asked_is_left_out_and_one_that_cannot_be_read_is_named() -> None:
    """Nominations of others count; a gate on a pod that cannot be read is known."""
    plain = pod("web")
    assert unbound(plain, False) is None  # noqa: FBT003 - a `Reader`
    assert isinstance(unbound(plain, True), UnboundBody)  # noqa: FBT003 - as above
    nominated = {**plain, "status": {"nominatedNodeName": "a"}}
    assert read(nominated).pod.nominated == "a"
    odd = gated(containers="none")
    found = unbound(odd, False)  # noqa: FBT003 - as above
    assert isinstance(found, UnreadablePod)
    assert found.gated
