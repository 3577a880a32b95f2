"""Least privilege, proven on a real API server: an agent's token reaches its own node's pods and our fields only."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.control_plane import ApiError, ControlPlane
from tests.cluster.objects import Object, namespace, node, pod

pytestmark = pytest.mark.cluster
DEPLOY = Path(__file__).parents[2] / "deploy"
MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"
OWN = "/api/v1/namespaces/access/pods/own"
PLAIN = "/api/v1/namespaces/access/pods/plain"
SWITCHES = "numalign-eviction", "numalign-cleanup"
OTHER = "/api/v1/namespaces/access/pods/other"


@pytest.fixture(scope="module")
def tokens(cluster: ControlPlane) -> dict[str, str]:
    """The agent's account with its role and policy; tokens bound to its pod on node a1, and bound to nothing."""
    space = namespace("numalign-system")
    cluster.ensure(space)
    cluster.create(namespace("access"), node("a1"), node("a2"))
    for name in ("rbac", "admission-policy"):
        cluster.ensure(*yaml.safe_load_all((DEPLOY / f"access/{name}.yaml").read_text()))
    for switch in SWITCHES:  # another test's agent may evict or delete; this one asks what is allowed without
        with contextlib.suppress(ApiError):  # none has bound it
            cluster.call("DELETE", f"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/{switch}")
    (agent,) = cluster.create(pod("agent", "a1", space="numalign-system", serviceAccountName="numalign"))
    cluster.create(*(pod(name, on, space="access") for name, on in (("own", "a1"), ("plain", "a1"), ("other", "a2"))))
    tokens = {
        "bound": cluster.token("numalign-system", "numalign", agent),
        "loose": cluster.token("numalign-system", "numalign"),
    }
    deadline = time.monotonic() + 60  # the server takes a moment to compile a new policy
    while True:
        try:
            cluster.call("PATCH", OTHER, {"metadata": {"labels": {"x": "y"}}}, token=tokens["bound"], kind=MERGE)
        except ApiError as error:
            if "ValidatingAdmissionPolicy" in str(error):
                return tokens
        assert time.monotonic() < deadline
        time.sleep(0.2)


def patch(cluster: ControlPlane, token: str, path: str, body: Object, kind: str = MERGE) -> Any:  # noqa: ANN401 - JSON
    """One patch with an agent's token."""
    return cluster.call("PATCH", path, body, token=token, kind=kind)


def condition(*kinds: str) -> Object:
    """A status patch with conditions of these types."""
    return {"status": {"conditions": [
        {"type": kind, "status": "True", "reason": "R", "message": "m"} for kind in kinds
    ]}}  # fmt: skip


def test_what_the_agent_does_is_let_through(cluster: ControlPlane, tokens: dict[str, str]) -> None:
    """Its annotations and conditions (in one patch of the status), their removal, the deadline."""
    token = tokens["bound"]
    body = {
        "metadata": {"annotations": {"numalign.io/cpus": "2"}},
        **condition("numalign.io/Aligned", "numalign.io/Pinned"),
    }
    stored = patch(cluster, token, f"{OWN}/status", body, STRATEGIC)
    assert stored["metadata"]["annotations"] == {"numalign.io/cpus": "2"}
    assert [each["type"] for each in stored["status"]["conditions"]] == ["numalign.io/Aligned", "numalign.io/Pinned"]
    taken_off = [{"type": each, "$patch": "delete"} for each in ("numalign.io/Aligned", "numalign.io/Pinned")]
    stored = patch(cluster, token, f"{OWN}/status", {"status": {"conditions": taken_off}}, STRATEGIC)
    assert not stored["status"].get("conditions")
    patch(cluster, token, f"{OWN}/status", {"metadata": {"annotations": {"numalign.io/cpus": None}}}, STRATEGIC)
    assert patch(cluster, token, OWN, {"spec": {"activeDeadlineSeconds": 1}})["spec"]["activeDeadlineSeconds"] == 1


@pytest.mark.parametrize(
    ("path", "body", "why"),
    [
        (f"{OTHER}/status", {"metadata": {"annotations": {"numalign.io/cpus": "2"}}}, "not on node a1"),
        (f"{OTHER}/status", condition("numalign.io/Aligned"), "not on node a1"),
        (OTHER, {"spec": {"activeDeadlineSeconds": 1}}, "not on node a1"),
        (OWN, {"metadata": {"labels": {"team": "x"}}}, "labels"),
        (OWN, {"metadata": {"annotations": {"example.com/a": "x"}}}, "annotations of numalign.io/"),
        (OWN, {"metadata": {"finalizers": ["example.com/f"]}}, "finalizers"),
        (PLAIN, {"spec": {"activeDeadlineSeconds": 600}}, "to 1"),
        (OWN, {"spec": {"terminationGracePeriodSeconds": 1}}, "terminationGracePeriodSeconds|activeDeadlineSeconds"),
        (f"{OWN}/status", {"metadata": {"annotations": {"example.com/a": "x"}}}, "annotations of numalign.io/"),
        (f"{OWN}/status", {"status": {"phase": "Failed"}}, "own condition"),
        (f"{OWN}/status", condition("Ready"), "condition numalign.io/Aligned"),
        (f"{OWN}/status", condition("numalign.io/Pinned", "numalign.io/Other"), "or numalign.io/Pinned"),
    ],
    ids=[
        "other-annotation",
        "other-condition",
        "other-deadline",
        "label",
        "annotation",
        "finalizer",
        "deadline",
        "grace",
        "status-annotation",
        "phase",
        "condition",
        "one-of-ours",
    ],
)
def test_s19_everything_else_is_refused(
    cluster: ControlPlane, tokens: dict[str, str], path: str, body: Object, why: str
) -> None:
    """Another node's pod, a label, a foreign annotation, a finalizer, a spec field, a status field, a condition."""
    kind = STRATEGIC if path.endswith("/status") else MERGE
    with pytest.raises(ApiError, match=why):
        patch(cluster, tokens["bound"], path, body, kind)


def test_an_image_cannot_be_changed(cluster: ControlPlane, tokens: dict[str, str]) -> None:
    """Of the spec fields that the API lets change at all, the image would run somebody's code."""
    body = {"spec": {"containers": [{"name": "c", "image": "mine"}]}}
    with pytest.raises(ApiError, match="activeDeadlineSeconds"):
        patch(cluster, tokens["bound"], OWN, body, STRATEGIC)


def test_a_token_without_a_node_writes_nothing(cluster: ControlPlane, tokens: dict[str, str]) -> None:
    """A token that is not bound to a pod names no node: refused even for what a bound one may do."""
    with pytest.raises(ApiError, match="names no node"):
        patch(cluster, tokens["loose"], f"{OWN}/status", condition("numalign.io/Aligned"), STRATEGIC)


def test_events_are_of_the_own_node(cluster: ControlPlane, tokens: dict[str, str]) -> None:
    """An Event from this node about a pod or this Node passes, one in another node's name does not."""

    def event(host: str, kind: str, name: str) -> Object:
        about = {"kind": kind, "apiVersion": "v1", "name": name, "namespace": "default"}
        return {
            "apiVersion": "v1", "kind": "Event", "metadata": {"generateName": "e.", "namespace": "default"},
            "involvedObject": about, "source": {"component": "numalign", "host": host},
            "reportingComponent": "numalign.io/agent", "reportingInstance": host, "message": "m", "reason": "R",
            "type": "Normal",
        }  # fmt: skip

    path = "/api/v1/namespaces/default/events"
    cluster.call("POST", path, event("a1", "Pod", "p"), token=tokens["bound"])
    cluster.call("POST", path, event("a1", "Node", "a1"), token=tokens["bound"])
    for wrong in (event("a2", "Pod", "p"), event("a1", "Node", "a2")):
        with pytest.raises(ApiError, match="events of node a1"):
            cluster.call("POST", path, wrong, token=tokens["bound"])


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/api/v1/secrets"),
        ("GET", "/api/v1/persistentvolumes"),
        ("DELETE", OWN),
        ("POST", "/api/v1/namespaces/access/pods"),
        ("POST", f"{OWN}/eviction"),
        ("GET", "/api/v1/nodes/a1/proxy/configz"),
        ("GET", "/api/v1/configmaps"),
    ],
)
def test_s19_no_other_verbs(cluster: ControlPlane, tokens: dict[str, str], method: str, path: str) -> None:
    """RBAC grants no more than what is used; eviction and deletion are switches of their own."""
    body = pod("x", "a1", space="access") if method == "POST" else None
    with pytest.raises(ApiError) as refused:
        cluster.call(method, path, body, token=tokens["bound"])
    assert refused.value.status == 403
