"""What an agent reads at its start costs the API server no read of the whole cluster's pods (finding 21)."""

from __future__ import annotations

from pathlib import Path

from agent.app.cluster.build import cluster_node
from tests.flow.cluster_node import ClusterNode, StandInApi
from tests.flow.world import manifest


def test_finding_21_the_list_at_start_may_come_from_the_servers_cache(tmp_path: Path) -> None:
    """It carries resourceVersion=0 beside the node's selector; any other list of pods is not asked for."""
    node = ClusterNode(tmp_path)
    with StandInApi(pods=[manifest("db")]) as api, cluster_node(node.options(api.url)):
        lists = [query for path, query in api.asked if path == "/api/v1/pods"]
    assert lists == [{"fieldSelector": ["spec.nodeName=n1"], "resourceVersion": ["0"]}]
