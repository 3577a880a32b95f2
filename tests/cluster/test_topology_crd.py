"""NodeResourceTopology against a real API server with the real schema."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.kube.access import ApiAccess
from agent.kube.client import KubeClient
from agent.kube.topology_crd import PATH, TopologyPublisher
from tests.cluster.control_plane import ControlPlane
from tests.cluster.objects import account, bind, cluster_role, node, rule
from tests.unit.test_topology_crd import zones

pytestmark = pytest.mark.cluster
CRD = Path(__file__).parents[2] / "deploy/crds/noderesourcetopologies.yaml"


@pytest.fixture(scope="module")
def client(cluster: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> KubeClient:
    """A client that may read and write these objects, with the CRD installed."""
    cluster.ensure(yaml.safe_load(CRD.read_text()))
    cluster.wait_served(PATH)
    group = rule("topology.node.k8s.io", "noderesourcetopologies", "get", "create", "patch")
    cluster.create(account("topology"), cluster_role("topology", group), bind("topology", "topology"))
    token = tmp_path_factory.mktemp("token") / "token"
    token.write_text(cluster.token("default", "topology"))
    cluster.wait_allowed(token.read_text(), "create", "noderesourcetopologies", "topology.node.k8s.io")
    return KubeClient(ApiAccess(cluster.server, cluster.ca, token, check_name=False), "t1")


def named(name: str, cluster: ControlPlane) -> dict[str, Any]:
    """The object of a node that exists."""
    (owner,) = cluster.create(node(name))
    body = zones((0, 3))
    body["metadata"]["name"] = name
    body["metadata"]["ownerReferences"][0] |= {"name": name, "uid": owner["metadata"]["uid"]}
    return body


def test_created_then_patched_on_change_only(cluster: ControlPlane, client: KubeClient) -> None:
    """The schema accepts the object; an equal one is not written again; a change is one patch; the Node owns it."""
    body = named("t1", cluster)
    publisher = TopologyPublisher(client)
    assert publisher.publish(body)
    stored = cluster.call("GET", f"{PATH}/t1")
    assert stored["zones"] == body["zones"]
    assert stored["metadata"]["ownerReferences"][0]["kind"] == "Node"
    assert not publisher.publish(body)
    assert not TopologyPublisher(client).publish(body), "a restarted agent writes nothing when nothing changed"
    changed = {**body, "zones": body["zones"][:2]}
    assert publisher.publish(changed)
    after = cluster.call("GET", f"{PATH}/t1")
    assert len(after["zones"]) == 2
    assert after["metadata"]["generation"] == stored["metadata"]["generation"] + 1


def test_another_writers_object_is_left_alone(cluster: ControlPlane, client: KubeClient) -> None:
    """An object without our mark is not touched, and who wrote it is told."""
    body = named("t2", cluster)
    foreign = {**body, "metadata": {"name": "t2"}, "zones": []}
    cluster.create(foreign)
    publisher = TopologyPublisher(client)
    assert not publisher.publish(body)
    assert publisher.foreign
    assert cluster.call("GET", f"{PATH}/t2")["zones"] == []


def test_a_change_is_one_request_and_another_writer_between_is_noticed(
    cluster: ControlPlane, client: KubeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the first read only patches are sent; a version that not ours any more makes it read and judge again."""
    body = named("t3", cluster)
    counted: list[tuple[str, int]] = []
    monkeypatch.setattr(client, "_count", lambda verb, status, _seconds: counted.append((verb, status)))
    publisher = TopologyPublisher(client)
    publisher.publish(body)
    counted.clear()
    for part in (slice(2), slice(3)):
        assert publisher.publish({**body, "zones": body["zones"][part]})
    assert counted == [("PATCH noderesourcetopologies", 200)] * 2
    foreign = {"metadata": {"annotations": {"numalign.io/publisher": None}}, "zones": []}
    cluster.call("PATCH", f"{PATH}/t3", foreign, kind="application/merge-patch+json")
    counted.clear()
    assert not publisher.publish(body)
    assert publisher.foreign
    assert counted == [("PATCH noderesourcetopologies", 409), ("GET noderesourcetopologies", 200)]
    cluster.call("DELETE", f"{PATH}/t3")
    assert publisher.publish(body), "it is gone, so it is ours again"
    assert cluster.call("GET", f"{PATH}/t3")["zones"] == body["zones"]
    cluster.call("DELETE", f"{PATH}/t3")
    changed = {**body, "zones": body["zones"][:1]}
    assert publisher.publish(changed), "deleted between two patches"
    assert len(cluster.call("GET", f"{PATH}/t3")["zones"]) == 1
