"""The agent as a process against a real API server, with its own bound token, RBAC and the admission policy on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.control_plane import ControlPlane
from tests.cluster.nodes import Agent, Place, wait

pytestmark = pytest.mark.cluster
Make = Callable[..., Place]


@pytest.fixture
def place(cluster: ControlPlane, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Make]:
    """Makes a node named after the test."""
    name = request.node.name.removeprefix("test_").split("[")[0].replace("_", "-")[:50].strip("-")

    def make(**options: Any) -> Place:  # noqa: ANN401 - Place's
        return Place(cluster, name, tmp_path, **options)

    yield make


def test_a_pod_gets_cpus_and_carries_the_word(place: Make) -> None:
    """Admitted, saved, enforced, told once: annotations, condition, topology object; and freed when it is gone."""
    node = place()
    with Agent(node) as agent:
        node.create("web")
        wait(lambda: node.assignment("web"), what="the annotation")
        uid = node.start("web")
        wait(lambda: node.effective(uid) == node.held(uid) != "", what="the cpuset")
        notes = node.pod("web")["metadata"]["annotations"]
        assert notes["numalign.io/cpus"] == node.held(uid)
        assert node.condition("web")["status"] == "True"
        wait(lambda: node.topology().get("zones"), what="the topology object")
        assert agent.patches() == 1
        node.tree.remove_pod(uid)
        node.delete("web")
        wait(lambda: uid not in node.ledger().pods, what="the release")
