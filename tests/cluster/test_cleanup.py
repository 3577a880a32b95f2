"""S12 against a real API server: Failed pods that we refused are deleted after their time, and no others can be."""

from __future__ import annotations

import contextlib

import pytest
import yaml

from tests.cluster.control_plane import ApiError, ControlPlane
from tests.cluster.nodes import DEPLOY, FAIL, Agent, Make, Place
from tests.cluster.objects import Object, pod
from tests.patience import until

pytestmark = pytest.mark.cluster
ENDED = {"status": {"phase": "Failed", "reason": "DeadlineExceeded"}}
BINDING = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/numalign-cleanup"
DELETED = 'numalign_pod_actions_total{action="delete"}'


def allow(cluster: ControlPlane) -> None:
    """What the chart's rbac.cleanup installs."""
    cluster.ensure(*yaml.safe_load_all((DEPLOY / "access/rbac-cleanup.yaml").read_text()))


def settings(after: str) -> Object:
    """Failed pods are deleted after that time."""
    return {"refusals": {"deleteAfter": after}, "cpuManagerReconcilePeriod": "1s"}


def test_s12_failed_pods_of_ours_are_deleted_after_their_time(place: Make) -> None:
    """After a restart and a denial, told with its remedy, ours goes; one with a deadline of its own stays."""
    node = place(settings=settings("1h"))
    with contextlib.suppress(ApiError):  # none has bound it
        node.cluster.call("DELETE", BINDING)
    with Agent(node) as agent:
        node.create("ours", cpu="9", annotations=FAIL)
        node.create("theirs", cpu="9", annotations=FAIL, activeDeadlineSeconds=1)
        until(lambda: node.pod("ours")["spec"].get("activeDeadlineSeconds") == 1, what="the deadline")
        until(lambda: node.condition("ours") and node.condition("theirs"), what="the conditions")
        for name in ("ours", "theirs"):
            node.patch(name, ENDED, "/status")
        agent.settled()
        assert node.there("ours"), "an hour has not passed"
    node.configure(settings("2s"))
    with Agent(node) as agent:
        until(lambda: node.events("NumalignCleanup"), what="the denial")
        assert "rbac.cleanup: true" in node.events("NumalignCleanup")[0]["message"]
        assert node.there("ours")
        allow(node.cluster)
        until(lambda: not node.there("ours"), what="the deletion")
        until(lambda: agent.metric(DELETED) == 1, what="the count")
        assert node.there("theirs")


def _marked(node: Place, name: str, on: str = "") -> None:
    """A Failed pod that carries all that ours do."""
    (stored,) = node.cluster.create(pod(name, on or node.name, space=node.name, activeDeadlineSeconds=1))
    refused = {"type": "numalign.io/Aligned", "status": "False", "reason": "TopologyAffinityError"}
    word = {"metadata": {"annotations": {"numalign.io/failed": stored["metadata"]["uid"]}}}
    node.patch(name, {**word, "status": {**ENDED["status"], "conditions": [refused]}}, "/status")


def test_s12_the_policy_lets_an_agents_token_delete_nothing_else(place: Make) -> None:
    """Its own node's Failed pod of ours goes; another node's, a running one, and others' Failed ones are refused."""
    node = place()
    allow(node.cluster)
    token = (node.account / "token").read_text()
    for name in ("ours", "running", "copied", "aligned", "evicted"):
        _marked(node, name)
    _marked(node, "elsewhere", on="another")
    node.create("plain")
    node.patch("plain", {"status": {"phase": "Failed"}}, "/status")
    node.patch("running", {"status": {"phase": "Running"}}, "/status")
    node.patch("copied", {"metadata": {"annotations": {"numalign.io/failed": "another-uid"}}})
    node.patch("aligned", {"status": {"conditions": [{"type": "numalign.io/Aligned", "status": "True"}]}}, "/status")
    node.patch("evicted", {"status": {"reason": "Evicted"}}, "/status")

    def answer(name: str, *, trial: str = "") -> str:
        try:
            node.cluster.call("DELETE", node.path(name) + trial, token=token)
        except ApiError as error:
            return str(error)
        return ""

    until(lambda: "not on node" in answer("elsewhere", trial="?dryRun=All"), what="role and policy")
    assert "not on node" in answer("elsewhere")
    for name in ("plain", "running", "copied", "aligned", "evicted"):
        assert "only delete a Failed pod that it refused" in answer(name), name
        assert node.there(name)
    assert answer("ours") == ""
    assert not node.there("ours")
