"""Finding 19: an agent's token in the wrong hands changes nothing of a pod but what the agent itself writes."""

from __future__ import annotations

import pytest

from tests.cluster import fields
from tests.cluster.control_plane import ApiError, ControlPlane
from tests.cluster.nodes import STRATEGIC
from tests.cluster.objects import Object, pod
from tests.cluster.stolen import POLICY, Stolen, changed
from tests.peers import kubelets

pytestmark = pytest.mark.cluster


def _ran(name: str) -> Object:
    return {
        "name": name, "containerID": f"containerd://{name}", "ready": True, "started": True, "image": "none",
        "imageID": "none", "restartCount": 0, "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
    }  # fmt: skip


OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": "0b1c"}
DEVICE = "example.com/device"
CLAIM = {"name": "claim", "resourceClaimName": "claim-1"}
MAPPING = {"containerName": "c", "resourceName": DEVICE, "requestName": "r"}
PATCHES: dict[str, Object] = {
    "metadata.finalizers": {"metadata": {"finalizers": ["example.com/other"]}},
    "spec.tolerations": {"spec": {"tolerations": [{"operator": "Exists"}]}},
    "status.podIP": {"status": {"podIP": "10.0.0.2", "podIPs": [{"ip": "10.0.0.2"}]}},
    "status.podIPs": {"status": {"podIP": "10.0.0.2", "podIPs": [{"ip": "10.0.0.2"}, {"ip": "fd00::2"}]}},
    "status.podIPs[].ip": {"status": {"podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::3"}]}},
    "status.hostIP": {"status": {"hostIP": "10.1.0.2", "hostIPs": [{"ip": "10.1.0.2"}]}},
    "status.hostIPs": {"status": {"hostIP": "10.1.0.2", "hostIPs": [{"ip": "10.1.0.2"}, {"ip": "fd00::2"}]}},
    "status.hostIPs[].ip": {"status": {"hostIPs": [{"ip": "10.1.0.1"}, {"ip": "fd00::3"}]}},
    "status.resourceClaimStatuses": {"status": {"resourceClaimStatuses": [CLAIM]}},
    "status.resourceClaimStatuses[].name": {"status": {"resourceClaimStatuses": [CLAIM]}},
    "status.resourceClaimStatuses[].resourceClaimName": {"status": {"resourceClaimStatuses": [CLAIM]}},
    "status.extendedResourceClaimStatus": {
        "status": {"extendedResourceClaimStatus": {"resourceClaimName": "x", "requestMappings": [MAPPING]}}
    },
    "status.containerStatuses[].allocatedResourcesStatus": {"status": {"containerStatuses": [
        {**_ran("c"), "allocatedResourcesStatus": [{"name": DEVICE, "resources": [{"resourceID": "1"}]}]}
    ]}},
    **{
        f"status.{kind}ontainerStatuses[].state": {
            "status": {f"{kind}ontainerStatuses": [{**_ran(name), "state": {"waiting": {"reason": "Told"}}}]}
        }
        for kind, name in (("c", "c"), ("initC", "i"), ("ephemeralC", "e"))
    },
}  # fmt: skip
"""Changes that a value of the field's type alone would not make: the server would refuse them from anybody."""


def rich(stolen: Stolen, name: str, on: str) -> Object:
    """A running pod that has something in as many fields as the server lets a pod have."""
    body = pod(name, on, space=stolen.space)
    body["metadata"] |= {
        "labels": {"app": "web"}, "annotations": {"example.com/a": "b"}, "finalizers": ["example.com/keep"],
        "ownerReferences": [OWNER],
    }  # fmt: skip
    body["spec"] |= {
        "initContainers": [{"name": "i", "image": "none"}], "terminationGracePeriodSeconds": 30,
        "tolerations": [{"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}],
        "resourceClaims": [{"name": "claim", "resourceClaimTemplateName": "template"}],
    }  # fmt: skip
    body["spec"]["containers"][0]["resources"]["limits"][DEVICE] = "1"
    stolen.cluster.create(body)
    path = stolen.path(name)
    debugger = {"spec": {"ephemeralContainers": [{"name": "e", "image": "none"}]}}
    stolen.cluster.call("PATCH", f"{path}/ephemeralcontainers", debugger, kind=STRATEGIC)
    status = {
        "phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}], "hostIP": "10.1.0.1",
        "hostIPs": [{"ip": "10.1.0.1"}], "startTime": "2025-01-01T00:00:00Z",
        "conditions": [{"type": "Ready", "status": "True"}], "containerStatuses": [_ran("c")],
        "initContainerStatuses": [_ran("i")], "ephemeralContainerStatuses": [_ran("e")],
    }  # fmt: skip
    stored: Object = stolen.cluster.call("PATCH", f"{path}/status", {"status": status}, kind=STRATEGIC)
    return stored


@pytest.fixture(scope="module")
def stolen(cluster: ControlPlane) -> Stolen:
    """The token of the agent of node stolen."""
    return Stolen(cluster, "stolen")


def test_every_field_of_a_pod_is_judged() -> None:
    """Each field of the oldest and the newest Kubernetes has a verdict; a new one has none until it was looked at."""
    verdicts = {path: entry["verdict"] for path, entry in fields.known().items()}
    assert {path for path, verdict in verdicts.items() if verdict not in fields.VERDICTS} == set()
    assert {path for path, verdict in verdicts.items() if verdict == "left"} == {
        path for path in verdicts if path.startswith("metadata.managedFields[]")
    }, "the server's own notes on who wrote what: it rewrites those of others with each write"


def test_the_newest_kubernetes_is_in_the_list() -> None:
    """Whoever moves the tests to a newer server must read that one's fields first."""
    assert max(map(_minor, fields.VERSIONS)) >= kubelets.served()


@pytest.mark.go
@pytest.mark.usefixtures("openapi")
def test_the_list_of_fields_is_that_of_kubernetes() -> None:
    """As the OpenAPI of each version has them: `python -m tests.cluster.fields` would change nothing."""
    assert fields.generated() == fields.FIELDS.read_text("utf-8")


def test_no_field_of_a_pod_can_be_changed(stolen: Stolen) -> None:
    """Each field of metadata, spec and status, on the pod and its status: refused as judged, and nothing changed."""
    body = rich(stolen, "rich", stolen.name)
    found = {path: _verdict(stolen, body, path) for path in fields.known()}
    assert {path: verdict for path, verdict in found.items() if verdict not in _judged(path)} == {}
    after = stolen.cluster.call("GET", stolen.path("rich"))
    assert _without_notes(after) == _without_notes(body)


def _judged(path: str) -> set[str]:
    """What may come of a field; of one that the list's server lacks, and this one has, that it cannot be changed."""
    entry = fields.known()[path]
    served = entry["verdict"] == "unserved" and any(_minor(each) <= kubelets.served() for each in entry["in"])
    return {"policy", "server"} if served else {entry["verdict"]}


def _verdict(stolen: Stolen, body: Object, path: str) -> str:
    """Who keeps a field from being changed; "open" where nobody does."""
    patch = PATCHES.get(path) or changed(body, path, fields.known()[path]["sample"])
    part, _, key = path.removesuffix("[]").partition(".")
    key = key.partition(".")[0].removesuffix("[]")
    found = set()
    for where in ("", "/status"):
        try:
            stored = stolen.call("PATCH", stolen.path(body["metadata"]["name"]) + where, patch)
        except ApiError as error:
            found.add("policy" if POLICY in str(error) else "server")
        else:
            same = stored.get(part, {}).get(key) == body.get(part, {}).get(key)
            found.add("server" if same else "left" if key == "managedFields" else "open")
    if found == {"server"} and all(_minor(each) > kubelets.served() for each in fields.known()[path]["in"]):
        return "unserved"
    return next(each for each in ("open", "left", "policy", "server") if each in found)


def _minor(version: str) -> int:
    return int(version.split(".")[1])


def _without_notes(body: Object) -> Object:
    notes = ("managedFields", "resourceVersion")
    return {**body, "metadata": {key: value for key, value in body["metadata"].items() if key not in notes}}


def test_nothing_of_another_nodes_pod(stolen: Stolen) -> None:
    """Fields that the policy guards, and those that the agent may write on its own node: all refused elsewhere."""
    body = rich(stolen, "elsewhere", stolen.other)
    guarded = [
        path for path, entry in fields.known().items() if entry["verdict"] == "policy" and path.count(".") == 1
    ]
    patches = [PATCHES.get(path) or changed(body, path, fields.known()[path]["sample"]) for path in guarded]
    patches += [{"metadata": {"annotations": {"numalign.io/cpus": "1"}}}, {"spec": {"activeDeadlineSeconds": 1}}]
    for patch in patches:
        answers = [stolen.refusal("PATCH", stolen.path("elsewhere") + where, patch) for where in ("", "/status")]
        assert all(each.policy or each.status == 0 for each in answers), answers
        assert any(f"not on node {stolen.name}" in each.text for each in answers), answers
    assert _without_notes(stolen.cluster.call("GET", stolen.path("elsewhere"))) == _without_notes(body)
