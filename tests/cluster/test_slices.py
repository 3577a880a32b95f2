"""Never two writers (S10): a ResourceSlice names a driver that hands out this node's CPUs, whatever its pod."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.errors import KubeError
from agent.kube.access import ApiAccess
from agent.kube.client import KubeClient
from agent.kube.resource_slices import PATH, cpu_slices
from tests.cluster.control_plane import ApiError, ControlPlane
from tests.cluster.nodes import Agent, Make
from tests.cluster.objects import Object, account
from tests.cluster.stolen import Stolen
from tests.patience import until

pytestmark = pytest.mark.cluster


def resource_slice(node: str, driver: str = "dra.cpu") -> Object:
    """As the driver for CPUs publishes it: its CPUs of one NUMA node, as devices."""
    return {
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice",
        "metadata": {"name": f"{node}-{driver}-x"},
        "spec": {
            "driver": driver, "nodeName": node, "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "cpudev000", "attributes": {"dra.cpu/numaNodeID": {"int": 0}}}],
        },
    }  # fmt: skip


def test_s10_a_resource_slice_stops_and_resumes_the_agent(place: Make) -> None:
    """Of this node and of the driver for CPUs: observed only, and named; no other node's, no other driver's."""
    node = place(settings={"cpuManagerReconcilePeriod": "1s"})
    for other in (resource_slice("another-node"), resource_slice(node.name, "gpu.nvidia.com")):
        node.cluster.call("POST", PATH, other)
    with Agent(node) as agent:
        node.create("web")
        uid = node.start("web")
        until(lambda: node.effective(uid) == node.held(uid) != "", what="the pin")
        assert agent.metric('numalign_other_writers{found="slices"}') == 0
    node.cluster.call("POST", PATH, resource_slice(node.name))
    with Agent(node) as agent:
        until(lambda: agent.metric('numalign_other_writers{found="slices"}') == 1, what="the writer")
        until(lambda: node.events("NumalignWriters"), what="the Event")
        assert f"ResourceSlice {node.name}-dra.cpu-x" in node.events("NumalignWriters")[0]["message"]
        node.create("later")
        later = node.start("later")
        until(lambda: node.assignment("later"), what="the decision")
        agent.settled()
        assert node.effective(later) != node.held(later), "nothing is written"


def test_s10_s19_an_agent_may_list_slices_and_no_more(cluster: ControlPlane) -> None:
    """They are no secret; nobody's token of ours makes one or takes one away."""
    stolen = Stolen(cluster, "slices")
    assert stolen.call("GET", PATH)["items"] is not None
    for method, path in (("POST", PATH), ("DELETE", f"{PATH}/x"), ("PATCH", f"{PATH}/x")):
        assert stolen.refusal(method, path, resource_slice(stolen.name)).status == 403


def test_s10_what_cannot_be_asked_says_nothing(cluster: ControlPlane, tmp_path: Path) -> None:
    """A token without the right is told that nobody is there; a server that is away, that nobody knows."""
    cluster.ensure(account("nobody"))
    (tmp_path / "token").write_text(cluster.token("default", "nobody"))
    client = KubeClient(ApiAccess(cluster.server, cluster.ca, tmp_path / "token", check_name=False), "n")
    with pytest.raises(KubeError):
        client.get(PATH)
    assert cpu_slices(client, "n") == ""
    away = KubeClient(ApiAccess("https://127.0.0.1:1", cluster.ca, tmp_path / "token", check_name=False), "n")
    assert cpu_slices(away, "n") is None
    for each in (client, away):
        each.close()
    with pytest.raises(ApiError):
        cluster.call("GET", f"{PATH}/none")
