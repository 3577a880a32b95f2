"""Who ran before the agent is told by what ran, not by two clocks that may be apart (finding 28)."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.host.standin import container_id
from agent.model.podspec import pod_from
from tests.flow.cluster_node import ClusterNode, list_pods, running
from tests.flow.world import container, manifest


@pytest.mark.parametrize("ahead", [-300.0, 300.0])
def test_finding_28_a_clock_that_is_five_minutes_off_changes_nothing(tmp_path: Path, ahead: float) -> None:
    """A pod that ran when the agent began is adopted; one that started later is not, whatever the clocks say."""
    node = ClusterNode(tmp_path)
    before = manifest("before", container(cpu="500m"))
    node.world.tree.add_pod("before", pod_from(before).qos)
    node.world.tree.add_container("before", container_id("before", "app"))
    node.keep()
    after = manifest("after", container(cpu="500m"), created=1)
    with node.serving() as agent:
        list_pods(agent, running(before, ahead), running(after, ahead))
        pods = agent.engine.ledger.pods
        assert (pods["before"].adopted, pods["after"].adopted) == (True, False)
