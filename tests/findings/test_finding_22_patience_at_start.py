"""A start waits for the API server as long as it says, whatever it asks (finding 22)."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from agent.app.cluster.build import ClusterService, cluster_node
from tests.flow.cluster_node import ClusterNode, StandInApi
from tests.flow.world import manifest
from tests.patience import PATIENCE, until


@pytest.mark.parametrize("slow", ["/api/v1/nodes", "/api/v1/pods", "/api/v1/namespaces"])
def test_finding_22_no_answer_holds_the_start_up(tmp_path: Path, slow: str) -> None:
    """One kind of request is never answered: the agent is made all the same, with what had been answered by then."""
    node = ClusterNode(tmp_path)
    pods = [manifest(f"p{number}", namespace=f"ns{number}") for number in range(20)]
    with StandInApi(pods=pods, slow={slow: 3600.0}) as api:
        made: list[ClusterService] = []

        def make() -> None:
            with cluster_node(node.options(api.url, patience=0.5)) as agent:
                until(lambda: any(path.startswith(slow) for path, _ in api.asked))
                made.append(agent)

        thread = threading.Thread(target=make, daemon=True)
        thread.start()
        thread.join(2 * PATIENCE)
        assert made, "the start waits longer than for one answer"
        assert len([path for path, _ in api.asked if path.startswith(slow)]) == 1


def test_finding_22_namespaces_that_answer_in_time_count(tmp_path: Path) -> None:
    """Nothing is slow: every namespace is asked once."""
    node = ClusterNode(tmp_path)
    pods = [manifest(f"p{number}", namespace=f"ns{number % 3}") for number in range(9)]
    with StandInApi(pods=pods) as api, cluster_node(node.options(api.url, patience=PATIENCE)):
        asked = sorted(path for path, _ in api.asked if "namespaces" in path)
    assert asked == [f"/api/v1/namespaces/ns{number}" for number in range(3)]
