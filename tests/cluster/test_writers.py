"""Other writers of cpusets are found among the node's pods, and no tenant's namespace can have one (S10)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cluster.control_plane import ApiError, ControlPlane
from tests.cluster.nodes import Agent, Place
from tests.cluster.objects import namespace, pod
from tests.patience import until
from tests.unit.test_writers import BALLOONS, NRI


def play(place: Place, name: str, space: str = "", **more: Any) -> None:  # noqa: ANN401 - a specification's fields
    """A pod that runs on the node, without cgroups of its own."""
    path = f"/api/v1/namespaces/{space or place.name}/pods/{name}/status"
    place.cluster.create({**pod(name, place.name, space=space or place.name, **more)})
    place.cluster.call("PATCH", path, {"status": {"phase": "Running"}}, kind="application/merge-patch+json")


@pytest.mark.cluster
def test_s10_a_plugins_pod_stops_and_resumes_the_agent(cluster: ControlPlane, tmp_path: Path) -> None:
    """While it runs on this node numalign only observes and says who it is; a tenant's pod of that name is nobody."""
    node = Place(cluster, "other-writers", tmp_path, settings={"cpuManagerReconcilePeriod": "1s"})
    containers = [{"name": "c", "image": BALLOONS, "volumeMounts": [{"name": "nri", "mountPath": "/var/run/nri"}]}]
    play(node, "tenant", containers=[{**containers[0], "volumeMounts": []}])
    metric = 'numalign_other_writers{found="pods"}'
    with Agent(node) as agent:
        node.create("web")
        uid = node.start("web")
        until(lambda: node.effective(uid) == node.held(uid) != "", what="the pin")
        assert agent.metric(metric) == 0
        play(node, "balloons", containers=containers, volumes=[NRI])
        until(lambda: agent.metric(metric) == 1, what="the writer")
        until(lambda: node.events("NumalignWriters"), what="the Event")
        (event,) = node.events("NumalignWriters")
        assert f"pod {node.name}/balloons" in event["message"]
        node.create("later")
        later = node.start("later")
        until(lambda: node.held(later), what="the decision")
        until(lambda: node.assignment("later"), what="the word")
        assert node.effective(later) != node.held(later), "nothing is written"
    with Agent(node) as agent:  # the list of the start names it, before anything is written
        assert agent.metric(metric) == 1
        assert node.effective(later) != node.held(later)
        node.delete("balloons")
        until(lambda: node.effective(later) == node.held(later), what="the pin once it is gone")
        until(lambda: agent.metric(metric) == 0, what="the metric")


@pytest.mark.cluster
def test_s10_a_tenants_namespace_has_no_such_pod(cluster: ControlPlane) -> None:
    """Pod Security's levels baseline and restricted refuse a volume of the host: the API server itself says no."""
    for level in ("baseline", "restricted"):
        space = namespace(f"tenant-{level}")
        space["metadata"]["labels"] = {"pod-security.kubernetes.io/enforce": level}
        cluster.create(space)
        with pytest.raises(ApiError, match="hostPath"):
            cluster.create(pod("balloons", "anywhere", space=f"tenant-{level}", volumes=[NRI]))
