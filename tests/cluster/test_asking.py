"""`numalign explain` and `plan` beside an agent that serves a real API server: who was refused stays known."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from agent.app.statedir import unplaced_pods as unplaced
from agent.cli import group
from tests.cluster.control_plane import ControlPlane
from tests.cluster.nodes import Agent, Place
from tests.patience import until

pytestmark = pytest.mark.cluster


def test_a_refused_pod_is_explained_while_the_agent_runs_and_when_the_pod_is_gone(
    cluster: ControlPlane, tmp_path: Path
) -> None:
    """One that shall fail is explained from the state folder, and still is after it was deleted."""
    node = Place(cluster, "asking", tmp_path, settings={"topologyManagerPolicy": "single-numa-node"})

    def ask(*words: str) -> tuple[int, dict[str, object]]:
        where = ("--state-dir", str(node.state), "--config", str(node.config), "--root", node.machine_spec)
        found = CliRunner().invoke(group, [*words, *where, "--output", "json"])
        assert found.output, found.exception  # our own exceptions reach the test, and say what is missing
        return found.exit_code, json.loads(found.output)

    with Agent(node):
        node.create("fits", cpu="2")
        node.create("big", cpu="9", annotations={"on_misalignment": "fail"})
        until(lambda: node.assignment("fits") and node.condition("big"), what="both words")
        # the agent's own pod is in the file, too: it is left alone
        until(
            lambda: any(each.pod.name == "big" for each in unplaced.load(node.state).pods.values()), what="the file"
        )
        code, body = ask("explain", "asking/big")
        assert (code, body["verdict"]) == (1, "refused")
        assert "no NUMA node of this machine has 9 CPUs" in str(body["summary"])
        assert ask("explain", "fits")[1]["verdict"] == "aligned"
        assert ask("plan", "--policy", "none")[0] == 0
        node.delete("big")
        until(lambda: any(each.gone for each in unplaced.load(node.state).pods.values()), what="that it is gone")
        code, body = ask("explain", "big")
        assert (code, body["verdict"]) == (1, "refused")
        assert "the pod is gone; all numbers are those of now" in list(body["notes"])  # type: ignore[call-overload]  # JSON
