"""Other writers of cpusets are found by what the agent sees in a cluster: the node's pods, the kubelet's files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent.core.cgroups.writers import pod_writes
from agent.host.writers import look
from tests.cluster.control_plane import ApiError, ControlPlane
from tests.cluster.nodes import Agent, Place, wait
from tests.cluster.objects import Object, namespace, pod

NRI = {"name": "nri", "hostPath": {"path": "/var/run/nri"}}
BALLOONS = "ghcr.io/containers/nri-plugins/nri-resource-policy-balloons:v0.12.0"
DRA = "us-central1-docker.pkg.dev/k8s-staging-images/dra-driver-cpu/dra-driver-cpu:latest@sha256:abc"


def plugin(
    image: str = BALLOONS, path: str = "/var/run/nri", phase: str = "Running", kind: str = "containers", **labels: str
) -> Object:
    """A pod as the charts of such plugins make it; an empty path is no volume of the host."""
    volume = {"name": "nri", "hostPath": {"path": path}} if path else {"name": "nri", "emptyDir": {}}
    container = {"name": "c", "image": image, "volumeMounts": [{"name": "nri", "mountPath": "/var/run/nri"}]}
    return {
        "metadata": {"namespace": "plugins", "name": "p", "labels": labels},
        "spec": {kind: [container], "volumes": [{"name": "data", "emptyDir": {}}, volume]},
        "status": {"phase": phase},
    }


@pytest.mark.parametrize(
    ("body", "who"),
    [
        (plugin(), "balloons"),
        (plugin("mirror.test:5000/x/nri-resource-policy-topology-aware@sha256:abc"), "topology-aware"),
        (plugin(DRA), "DRA driver for CPUs"),
        (plugin("own/build", **{"app.kubernetes.io/name": "nri-resource-policy-topology-aware"}), "topology-aware"),
        (plugin("own/build", **{"app.kubernetes.io/name": "dra-driver-cpu"}), "DRA driver for CPUs"),
        (plugin("own/build", app="dracpu"), "DRA driver for CPUs"),
        (plugin(kind="initContainers"), "balloons"),
        *(
            (plugin(path=each), "balloons")
            for each in ("/run/nri/", "/var/run/nri/nri.sock", "/run", "/var//run", "/")
        ),
    ],
)
def test_finding_s10_plugins_are_known_by_their_pods(body: Object, who: str) -> None:
    """By image or label, as published; the socket's folder, one above it or the socket itself is mounted."""
    assert pod_writes(body) == f"{pod_writes(body).partition(' runs here')[0]} runs here: pod plugins/p"
    assert who in pod_writes(body)


@pytest.mark.parametrize(
    "body",
    [
        plugin(path=""),
        plugin("own/build", path="", **{"app.kubernetes.io/name": "nri-resource-policy-balloons"}),
        *(plugin(path=each) for each in ("/var", "/var/lib/nri-resource-policy", "/run/nri2", "/opt/nri/plugins")),
        plugin("registry.k8s.io/network-plugin:v1"),
        plugin("numalign:0.1.0", **{"app.kubernetes.io/name": "numalign"}),
        plugin("nri-resource-policyx"),
        plugin(phase="Pending"),
        plugin(phase="Succeeded"),
        {**plugin(), "spec": {**plugin()["spec"], "containers": [{"name": "c", "image": BALLOONS}]}},
    ],
)
def test_finding_s10_a_name_alone_stops_nobody(body: Object) -> None:
    """What a tenant can write, what does not reach the socket or does not run, other plugins, numalign itself."""
    assert pod_writes(body) == ""


@pytest.mark.parametrize("junk", [None, 7, "x", [], [None], {"a": 1}, [{"name": None, "hostPath": []}], True])
@pytest.mark.parametrize("key", ["metadata", "spec", "status", "volumes", "containers", "labels", "volumeMounts"])
def test_finding_s10_a_pod_of_odd_shape_breaks_nothing(key: str, junk: object) -> None:
    """Whatever stands in place of a part of it."""
    assert pod_writes(junk) == ""
    body: dict[str, Any] = plugin()
    if key in body:
        body[key] = junk
    elif key == "labels":
        body["metadata"][key] = junk
    elif key == "volumeMounts":
        body["spec"]["containers"][0][key] = junk
    else:
        body["spec"][key] = junk
    assert pod_writes(body) == "" or key in {"metadata", "labels"}


def test_finding_s10_a_state_file_that_was_replaced_is_told(tmp_path: Path) -> None:
    """Mounted as one file, it stays what it was: once the kubelet has put another in its place, nobody trusts it."""
    base = tmp_path / "var/lib/kubelet"
    base.mkdir(parents=True)
    old = tmp_path / "old"
    old.write_text('{"policyName": "none"}')
    with old.open() as mounted:
        (base / "cpu_manager_state").symlink_to(f"/proc/self/fd/{mounted.fileno()}")
        assert look(tmp_path) == ()
        old.unlink()
        (found,) = look(tmp_path)
    assert "has replaced cpu_manager_state" in found
    assert "restart this agent's pod" in found


def play(place: Place, name: str, space: str = "", **more: Any) -> None:  # noqa: ANN401 - a specification's fields
    """A pod that runs on the node, without cgroups of its own."""
    path = f"/api/v1/namespaces/{space or place.name}/pods/{name}/status"
    place.cluster.create({**pod(name, place.name, space=space or place.name, **more)})
    place.cluster.call("PATCH", path, {"status": {"phase": "Running"}}, kind="application/merge-patch+json")


@pytest.mark.cluster
def test_finding_s10_a_plugins_pod_stops_and_resumes_the_agent(cluster: ControlPlane, tmp_path: Path) -> None:
    """While it runs on this node numalign only observes and says who it is; a tenant's pod of that name is nobody."""
    node = Place(cluster, "other-writers", tmp_path, settings={"cpuManagerReconcilePeriod": "1s"})
    containers = [{"name": "c", "image": BALLOONS, "volumeMounts": [{"name": "nri", "mountPath": "/var/run/nri"}]}]
    play(node, "tenant", containers=[{**containers[0], "volumeMounts": []}])
    metric = 'numalign_other_writers{found="pods"}'
    with Agent(node) as agent:
        node.create("web")
        uid = node.start("web")
        wait(lambda: node.effective(uid) == node.held(uid) != "", what="the pin")
        assert agent.metric(metric) == 0
        play(node, "balloons", containers=containers, volumes=[NRI])
        wait(lambda: agent.metric(metric) == 1, what="the writer")
        wait(lambda: node.events("NumalignWriters"), what="the Event")
        (event,) = node.events("NumalignWriters")
        assert f"pod {node.name}/balloons" in event["message"]
        node.create("later")
        later = node.start("later")
        wait(lambda: node.held(later), what="the decision")
        wait(lambda: node.assignment("later"), what="the word")
        assert node.effective(later) != node.held(later), "nothing is written"
    with Agent(node) as agent:  # the list of the start names it, before anything is written
        assert agent.metric(metric) == 1
        assert node.effective(later) != node.held(later)
        node.delete("balloons")
        wait(lambda: node.effective(later) == node.held(later), what="the pin once it is gone")
        wait(lambda: agent.metric(metric) == 0, what="the metric")


@pytest.mark.cluster
def test_finding_s10_a_tenants_namespace_has_no_such_pod(cluster: ControlPlane) -> None:
    """Pod Security's levels baseline and restricted refuse a volume of the host: the API server itself says no."""
    for level in ("baseline", "restricted"):
        space = namespace(f"tenant-{level}")
        space["metadata"]["labels"] = {"pod-security.kubernetes.io/enforce": level}
        cluster.create(space)
        with pytest.raises(ApiError, match="hostPath"):
            cluster.create(pod("balloons", "anywhere", space=f"tenant-{level}", volumes=[NRI]))
