"""One control plane, one node with an agent and pods of every fate, and a desk with kubectl."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.control_plane import ControlPlane
from tests.cluster.nodes import SYSTEM, Agent, Place
from tests.kubectl.desk import Desk
from tests.patience import until

NODE = "worker-1"
PODS: dict[str, dict[str, Any]] = {
    "trader": {"cpu": "4", "memory": "1Gi"},
    "wide": {"cpu": "9", "memory": "1Gi"},
    "greedy": {"cpu": "9", "memory": "1Gi", "annotations": {"policy": "single-numa-node"}},
    "web": {"cpu": "500m"},
    "typo": {"cpu": "1", "annotations": {"policy": "single"}},
}


@dataclass
class Scene:
    """What the tests of this folder look at."""

    place: Place
    agent: Agent
    desk: Desk


@pytest.fixture(scope="session")
def scene(kube: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Pods: trader (aligned), wide (over two NUMA nodes), greedy (refused), web (shared), typo (a bad annotation)."""
    folder = tmp_path_factory.mktemp("desk")
    with ControlPlane(kube, folder / "cluster") as cluster:
        (folder / NODE).mkdir()
        place = Place(cluster, NODE, folder / NODE, settings={"memoryManagerPolicy": "Static", "page": {"port": 0}})
        own = f"/api/v1/namespaces/{SYSTEM}/pods/agent-{NODE}"
        labels = {"app.kubernetes.io/name": "renamed", "app.kubernetes.io/component": "agent"}
        notes = {"numalign.io/tolerate-missing-plugin": "true"}
        metadata = {"metadata": {"labels": labels, "annotations": notes}}
        cluster.call("PATCH", own, metadata, kind="application/merge-patch+json")
        running = {"status": {"phase": "Running"}}
        cluster.call("PATCH", own + "/status", running, kind="application/merge-patch+json")
        with Agent(place) as agent:
            for name, more in PODS.items():  # one after the other: of those of one second nobody knows the order
                place.create(name, **more)
                until(partial(place.condition, name), what=name)
                place.start(name)
            until(lambda: place.events("TopologyAffinityError", "greedy"), what="the Event")
            until(lambda: place.events("BadAnnotation", "typo"), what="the other Event")
            yield Scene(place, agent, Desk(cluster, kube, folder / "somebody", NODE))
