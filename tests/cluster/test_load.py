"""The load on the API server does not depend on other nodes' pods: `tools.bench.api` in small."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from agent.kube.topology_crd import SUMMARY
from tools.bench.figures import broken, figures
from tools.bench.load import Scenario
from tools.bench.phases import Plan

pytestmark = pytest.mark.cluster
PLAN = Plan(
    agents=10, processes=1, nodes=60, levels=(0, 300), present=2, quiet=3, rate=60, own=10, settle=1, steps=True
)  # fmt: skip


@pytest.mark.parametrize("summaries", [False, True])
def test_other_nodes_pods_cost_nothing(kube: Path, tmp_path: Path, *, summaries: bool) -> None:
    """Agents ask and get the same while 300 pods of others change; an own pod costs three requests.

    Summaries add bytes and no request, and a restart writes nothing then either.
    """
    with Scenario(kube, tmp_path / "cluster", replace(PLAN, summaries=summaries)) as scenario:
        phases = scenario.run()
    assert (SUMMARY in scenario.object) is summaries
    assert broken(phases, PLAN.agents) == []
    (others,) = [phase for phase in phases if phase.name == "others"]
    assert others.changes == 180, "others did change"
    found = figures(phases, PLAN.agents, PLAN.present)
    assert found.pod.requests == {"PATCH pods/status": 1.0, "PATCH noderesourcetopologies": 2.0}
    assert found.start.requests["PATCH pods/status"] == PLAN.present + 1, "each pod once, the agent's own too"
    once = ("GET", "GET noderesourcetopologies", "LIST nodes", "WATCH nodes", "WATCH pods")
    more = {"GET namespaces": 2.0, "LIST pods": 2.0, "discover": 5.0}
    assert found.restart.requests == {**dict.fromkeys(once, 1.0), **more}
