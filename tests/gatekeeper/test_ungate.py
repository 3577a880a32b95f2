"""`numalign ungate --all`, and the same by kubectl alone: with the caller's rights, without a gatekeeper (S23)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from agent.app.gatekeeper import ungate as ungating
from agent.cli.ungate import command
from agent.forecast.gate.values import GATE
from agent.kube.gate.switch import LABEL, PART, SWITCH
from tests.docs.pages import ROOT
from tests.gatekeeper.replicas import SPACE, Cluster
from tests.gatekeeper.standin import Request

Said = tuple[int, dict[str, Any]]
Run = Callable[..., Said]
CONFIG = """
apiVersion: v1
kind: Config
current-context: c
contexts: [{{name: c, context: {{cluster: c, user: u}}}}]
clusters: [{{name: c, cluster: {{server: "{server}"}}}}]
users: [{{name: u, user: {{token: t}}}}]
"""
KUBECTL = """#!/bin/sh
[ "$1" = proxy ] || exit 1
echo "Starting to serve on 127.0.0.1:{port}"
exec sleep 100
"""


@pytest.fixture(params=["numalign", "kubectl"])
def run(request: pytest.FixtureRequest, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the command with JSON; its exit code, and what it said."""
    monkeypatch.setattr(ungating, "BETWEEN", 0.01)
    server = cluster.api.access.server
    if request.param == "numalign":
        config = tmp_path / "config"
        config.write_text(CONFIG.format(server=server))

        def program(*more: str) -> Said:
            arguments = ["--all", "--kubeconfig", str(config), "-o", "json", *more]
            done = CliRunner().invoke(command, arguments, catch_exceptions=False)
            return done.exit_code, json.loads(done.stdout)

        return program
    fake = tmp_path / "bin" / "kubectl"
    fake.parent.mkdir()
    fake.write_text(KUBECTL.format(port=server.rpartition(":")[2]))
    fake.chmod(0o755)

    def plugin(*more: str) -> Said:
        program = str(ROOT / "deploy" / "kubectl-numalign")
        command = [sys.executable, program, "ungate", "--all", "-o", "json", *more]
        environment = {**os.environ, "PATH": f"{fake.parent}:{os.environ['PATH']}"}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=100, check=False)
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout)

    return plugin


def abandoned(cluster: Cluster) -> None:
    """What two replicas that were killed at once leave: a switch, gates, a phantom, a nomination."""
    switch = {"name": "numalign-gate", "namespace": SPACE, "labels": {SWITCH: "on"}}
    cluster.api.put("configmaps", {"metadata": switch})
    cluster.gated("waits")
    cluster.gated("both", gates=("kueue.x-k8s.io/admission", GATE))
    cluster.gated("phantom")
    condition = {"type": GATE, "status": "True", "reason": "Chosen", "message": "a: its decision takes the pod"}
    status = {"nominatedNodeName": "a", "conditions": [condition]}
    cluster.api.change("pods", "shop/phantom", lambda body: body["status"].update(status))
    for name, told in (("left", [condition]), ("theirs", [])):
        body = {"metadata": {"name": name, "namespace": "shop"}, "spec": {"containers": [{"name": "app"}]},
                "status": {"nominatedNodeName": "a", "conditions": told}}  # fmt: skip
        cluster.api.put("pods", body)


def test_s23_no_gate_and_no_nomination_of_ours_is_left(cluster: Cluster, run: Run) -> None:
    """The switch goes first; other gates and the scheduler's own nominations stay."""
    abandoned(cluster)
    code, said = run()
    assert (code, said["clean"], said["left"]) == (0, True, {})
    assert (said["lifted"], said["cleared"]) == (3, 2)
    assert said["switches"] == [f"{SPACE}/numalign-gate"]
    assert cluster.api.wrote("configmaps", "pods", "pods/status")[0].resource == "configmaps"
    assert cluster.api.gates("shop/both") == ["kueue.x-k8s.io/admission"]
    assert not cluster.api.gates("shop/waits")
    assert not any(map(cluster.api.nominated, ("shop/phantom", "shop/left")))
    assert cluster.api.nominated("shop/theirs") == "a"


def test_a_second_run_finds_nothing(cluster: Cluster, run: Run) -> None:
    """It can be run at any time."""
    abandoned(cluster)
    run()
    before = len(cluster.api.wrote("pods", "pods/status", "configmaps"))
    code, said = run()
    assert (code, said["lifted"], said["cleared"], said["switches"]) == (0, 0, 0, [])
    assert len(cluster.api.wrote("pods", "pods/status", "configmaps")) == before


def test_what_is_refused_is_named_and_the_rest_is_done(cluster: Cluster, run: Run) -> None:
    """Exit code 1, and the server's own words."""
    abandoned(cluster)
    cluster.api.before = lambda each: 403 if (each.verb, each.key) == ("PATCH", "shop/waits") else 0
    code, said = run()
    assert code == 1
    assert said["left"].keys() == {"pod shop/waits"}
    assert "made up by a test" in said["left"]["pod shop/waits"]
    assert not cluster.api.gates("shop/phantom")


def test_s23_gates_are_lifted_though_nominations_cannot_be_cleared(cluster: Cluster, run: Run) -> None:
    """A lifted pod that is nominated is bound, as ever; one that is gated would hold its room for good."""
    abandoned(cluster)
    cluster.api.before = lambda each: 403 if each.resource == "pods/status" else 0
    code, said = run()
    assert code == 1
    assert (said["lifted"], said["cleared"]) == (3, 0)
    assert said["left"].keys() == {"pod shop/phantom", "pod shop/left"}
    assert not any(GATE in cluster.api.gates(f"shop/{name}") for name in ("waits", "both", "phantom"))


def test_a_switch_that_stays_keeps_no_gate(cluster: Cluster, run: Run) -> None:
    """The caller may not delete it: it is named, and every pod is let go."""
    abandoned(cluster)
    cluster.api.before = lambda each: 403 if each.verb == "DELETE" else 0
    code, said = run()
    assert code == 1
    assert f"{SPACE}/numalign-gate" in said["left"]
    assert said["lifted"] >= 3
    assert not any(GATE in cluster.api.gates(f"shop/{name}") for name in ("waits", "both", "phantom"))


def test_a_switch_that_comes_back_is_named(cluster: Cluster, run: Run) -> None:
    """A gatekeeper that lives makes it again: the command says what to do."""
    abandoned(cluster)
    body = cluster.api.get("configmaps", f"{SPACE}/numalign-gate")

    def again(each: Request) -> int:
        if each.resource == "pods/status":
            cluster.api.put("configmaps", body)
        return 0

    cluster.api.before = again
    code, said = run()
    assert code == 1
    assert "scale its Deployment to 0" in said["left"][f"ConfigMap {SPACE}/numalign-gate"]


def test_with_policy_the_binding_goes_first(cluster: Cluster, tmp_path: Path) -> None:
    """What the chart's hook asks for: after that nothing puts the gate on a pod."""
    abandoned(cluster)
    binding = {"metadata": {"name": "numalign-gate", "labels": {LABEL: PART}}}
    cluster.api.put("mutatingadmissionpolicybindings", binding)
    cluster.api.put("mutatingadmissionpolicybindings", {"metadata": {"name": "theirs"}})
    config = tmp_path / "config"
    config.write_text(CONFIG.format(server=cluster.api.access.server))
    done = CliRunner().invoke(command, ["--all", "--policy", "--kubeconfig", str(config)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    first = cluster.api.wrote("mutatingadmissionpolicybindings", "configmaps", "pods", "pods/status")[0]
    assert (first.verb, first.resource, first.key) == ("DELETE", "mutatingadmissionpolicybindings", "numalign-gate")
    assert cluster.api.get("mutatingadmissionpolicybindings", "theirs")


@pytest.mark.parametrize("comes_back", ["configmaps", "mutatingadmissionpolicybindings"])
def test_with_policy_a_switch_may_come_back_and_the_binding_may_not(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, comes_back: str
) -> None:
    """The hook runs while the gatekeeper lives, which makes its switch again; that gates no pod then."""
    monkeypatch.setattr(ungating, "BETWEEN", 0.01)
    abandoned(cluster)
    cluster.api.put(
        "mutatingadmissionpolicybindings", {"metadata": {"name": "numalign-gate", "labels": {LABEL: PART}}}
    )
    keys = {"configmaps": f"{SPACE}/numalign-gate", "mutatingadmissionpolicybindings": "numalign-gate"}
    body = cluster.api.get(comes_back, keys[comes_back])

    def again(each: Request) -> int:
        if each.resource == "pods/status":
            cluster.api.put(comes_back, body)
        return 0

    cluster.api.before = again
    config = tmp_path / "config"
    config.write_text(CONFIG.format(server=cluster.api.access.server))
    arguments = ["--all", "--policy", "--kubeconfig", str(config), "-o", "json"]
    done = CliRunner().invoke(command, arguments, catch_exceptions=False)
    left = {"configmaps": [], "mutatingadmissionpolicybindings": ["binding numalign-gate"]}[comes_back]
    assert [*json.loads(done.stdout)["left"]] == left
    assert done.exit_code == len(left)


def test_without_all_nothing_is_done(cluster: Cluster) -> None:
    """No slip takes the gate from every pod."""
    abandoned(cluster)
    done = CliRunner().invoke(command, [])
    assert done.exit_code == 2
    assert "--all" in done.output
    assert not cluster.api.requests
