"""The test cluster is a real one: it stores, refuses by RBAC, binds tokens to nodes, survives restarts."""

from __future__ import annotations

import pytest

from tests.cluster.control_plane import ApiError, ControlPlane

pytestmark = pytest.mark.cluster


def pod(name: str, node: str) -> dict[str, object]:
    """A pod bound to a node."""
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
        "spec": {"nodeName": node, "serviceAccountName": "agent", "containers": [{"name": "c", "image": "none"}]},
    }  # fmt: skip


def test_tokens_are_bound_and_refused_what_rbac_does_not_grant(cluster: ControlPlane) -> None:
    """A fresh service account may read nothing, and its token carries the node of the pod it is bound to."""
    cluster.create(
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "agent", "namespace": "default"}},
    )
    (mine,) = cluster.create(pod("bound", "n1"))
    token = cluster.token("default", "agent", mine)
    with pytest.raises(ApiError, match="cannot list resource") as refused:
        cluster.call("GET", "/api/v1/pods", token=token)
    assert refused.value.status == 403
    review = cluster.call(
        "POST", "/apis/authentication.k8s.io/v1/tokenreviews",
        {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}},
    )  # fmt: skip
    extra = review["status"]["user"]["extra"]
    assert extra["authentication.kubernetes.io/node-name"] == ["n1"]


def test_objects_survive_a_restart_of_the_server(cluster: ControlPlane) -> None:
    """Killed and started again on the same port, the server knows what it knew."""
    cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kept", "namespace": "default"}})
    cluster.kill("kube-apiserver")
    with pytest.raises(OSError, match="refused"):
        cluster.call("GET", "/readyz", raw=True)
    cluster.start_apiserver()
    cluster.wait_ready()
    assert cluster.call("GET", "/api/v1/namespaces/default/configmaps/kept")["metadata"]["name"] == "kept"
