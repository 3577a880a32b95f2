"""`kubectl numalign`, as kubectl starts it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.kubectl.conftest import NODE, Scene
from tests.kubectl.desk import PLUGIN
from tools.chart import rendering

pytestmark = pytest.mark.cluster
GROUP = "rbac.authorization.k8s.io"
READER = (
    {"apiVersion": f"{GROUP}/v1", "kind": "ClusterRole", "metadata": {"name": "reader"},
     "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}]},
    {"apiVersion": f"{GROUP}/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "reader"},
     "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": "reader"},
     "subjects": [{"apiGroup": GROUP, "kind": "User", "name": "reader"}]},
)  # fmt: skip
"""Somebody who may read pods, and nothing else."""


def port(scene: Scene) -> str:
    """Of the agent's page, from its log."""
    for line in scene.agent.words().splitlines():
        match = re.search(r'"address": ?"(?:http://)?127\.0\.0\.1:(\d+)/?"', line)
        if match and "page" in line:
            return match.group(1)
    raise AssertionError(scene.agent.words())


def rows(text: str) -> dict[str, list[str]]:
    """Lines of a table by their first word."""
    return {line.split()[0]: re.split(r" {2,}", line) for line in text.splitlines() if line.strip()}


def test_pods_says_who_got_what(scene: Scene) -> None:
    """CPUs, NUMA nodes and the verdict of each pod; a reason where it is not aligned."""
    found = rows(scene.desk.run("kubectl", "numalign", "pods", "-n", NODE))
    assert found["NAME"] == ["NAME", "NODE", "CPUS", "NUMA", "ALIGNED", "WHY"]
    assert found["trader"][1:5] == [NODE, "1-2,9-10", "0", "yes"]
    assert found["wide"][1:5] == [NODE, "3-6,8,11-14", "0-1", "no"]  # the trader's memory keeps node 0 for itself
    assert found["greedy"][4] == "refused"
    assert "Topology locality" in found["greedy"][5]
    assert found["web"][2:5] == ["-", "0", "yes"]  # no CPUs of its own, memory that is bound


def test_pods_can_be_narrowed(scene: Scene) -> None:
    """By verdict, by node, over all namespaces; JSON is for programs."""
    only = scene.desk.json("kubectl", "numalign", "pods", "-A", "--refused", "-o", "json")
    assert [each["name"] for each in only] == ["greedy"]
    assert only[0]["assignment"]["refused"] == "TopologyAffinityError"
    assert scene.desk.json("kubectl", "numalign", "pods", "-A", "--node", "nowhere", "-o", "json") == []
    assert "no pods" in scene.desk.run("kubectl", "numalign", "pods", "-A", "--node", "nowhere")
    table = scene.desk.run("kubectl", "numalign", "pods", "-A", "--node", NODE)
    assert "NAMESPACE" in table
    assert "\033" not in table


def test_why_tells_the_story_of_one_pod(scene: Scene) -> None:
    """Condition, what was asked, policy, containers, Events; without the agent it says so and goes on."""
    text = scene.desk.run("kubectl", "numalign", "why", "greedy", "-n", NODE)
    assert "TopologyAffinityError: " in text
    assert "asked: numalign.io/policy: single-numa-node" in text
    assert re.search(r"event \S+ TopologyAffinityError: ", text)
    assert "was not asked: error: unable to forward" in text
    text = scene.desk.run("kubectl", "numalign", "why", "typo", "-n", NODE, "--agent", "off")
    assert re.search(r"event \S+ BadAnnotation: numalign.io/policy: \"single\" is not one of", text)
    assert "container c: CPUs " in text
    assert "was not asked" not in text


def test_why_asks_the_agent_for_what_would_help(scene: Scene) -> None:
    """Beyond the annotations the agent knows the reasons, and what would have let the pod in."""
    page = f"http://127.0.0.1:{port(scene)}"
    text = scene.desk.run("kubectl", "numalign", "why", "greedy", "-n", NODE, "--agent", page)
    assert "9 CPUs" in text, text
    assert re.search(r"^would get in ", text, re.MULTILINE), text


def test_why_needs_no_right_to_read_events(scene: Scene) -> None:
    """Somebody who may read pods alone gets all that the pod says, and one line on what is missing."""
    scene.place.cluster.ensure(*READER)
    text = scene.desk.run("kubectl", "numalign", "why", "greedy", "-n", NODE, "--agent", "off", "--as", "reader")
    assert "TopologyAffinityError: " in text
    assert "Events were not read: Error from server (Forbidden)" in text


@pytest.mark.go
@pytest.mark.usefixtures("charting")
def test_the_agent_is_found_by_what_the_chart_gives_it() -> None:
    """Its label and its annotation are there with any name of chart and release; the scene's pod has no more."""
    found = rendering.objects(rendering.render("--set", "nameOverride=renamed", name="other"))
    metadata = rendering.of_kind(found, "DaemonSet")["spec"]["template"]["metadata"]
    assert metadata["labels"]["app.kubernetes.io/component"] == "agent"
    assert "numalign.io/tolerate-missing-plugin" in metadata["annotations"]


def test_node_asks_the_agent(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """NUMA nodes and who holds what, memory too: through a port-forward, or at an address."""
    monkeypatch.setitem(scene.desk.environment, "PAGE_PORT", port(scene))
    text = scene.desk.run("kubectl", "numalign", "node", NODE)
    found = rows(text)
    assert found["NUMA"] == ["NUMA", "EXCLUSIVE", "SHARED", "RESERVED", "FREE", "MEMORY"]
    assert found["0"][1] == "1-3,8-11"
    assert found[f"{NODE}/trader"][1:5] == ["1-2,9-10", "0", "0: 1Gi", "yes"]
    assert "was not asked" not in text
    same = scene.desk.run("kubectl", "numalign", "node", NODE, "--agent", f"http://127.0.0.1:{port(scene)}")
    assert same == text
    answer = scene.desk.json("kubectl", "numalign", "node", NODE, "-o", "json")
    assert answer["agent"]["node"]["node"] == NODE


def test_node_without_the_agent_reads_annotations(scene: Scene) -> None:
    """No page, or no agent there: one line says so, the table is still there."""
    text = scene.desk.run("kubectl", "numalign", "node", NODE)
    assert rows(text)[f"{NODE}/trader"][1:3] == ["1-2,9-10", "0"]
    assert "was not asked" in text
    assert "there is no node nowhere" in scene.desk.run("kubectl", "numalign", "node", "nowhere", code=1)


def test_faults_are_one_sentence(scene: Scene) -> None:
    """Kubectl's own words, exit code 1; wrong arguments, exit code 2."""
    text = scene.desk.run("kubectl", "numalign", "why", "nobody", "-n", NODE, code=1)
    assert 'kubectl numalign: Error from server (NotFound): pods "nobody" not found' in text
    assert "invalid choice" in scene.desk.run("kubectl", "numalign", "what", code=2)
    assert "examples:" in scene.desk.run("kubectl", "numalign", "--help")


def test_a_fault_of_several_lines_stays_so(tmp_path: Path, scene: Scene) -> None:
    """What kubectl says without a cluster has several lines; each is shown, without control characters."""
    (tmp_path / "kubectl").write_text("#!/bin/sh\nprintf 'first\\n\\033second\\n' >&2; exit 1\n")
    (tmp_path / "kubectl").chmod(0o755)
    path = f"PATH={tmp_path}:{scene.desk.environment['PATH']}"
    assert scene.desk.run("env", path, str(PLUGIN), "pods", code=1) == "kubectl numalign: first\n?second\n"


def test_other_peoples_text_moves_no_cursor(tmp_path: Path, scene: Scene) -> None:
    """Whoever owns a pod writes its annotations: control characters are not passed on to a terminal."""
    notes = {"numalign.io/cpus": "\033[2J1-2", "numalign.io/assignment": '["no", "mapping"]'}
    metadata = {"namespace": "n", "name": "p", "uid": "u", "annotations": notes}
    body = {"apiVersion": "v1", "kind": "List", "items": [{"metadata": metadata}]}
    (tmp_path / "kubectl").write_text(f"#!/bin/sh\ncat <<'X'\n{json.dumps(body)}\nX\n")
    (tmp_path / "kubectl").chmod(0o755)
    text = scene.desk.run("env", f"PATH={tmp_path}:{scene.desk.environment['PATH']}", str(PLUGIN), "pods")
    assert "\033" not in text
    assert "?[2J1-2" in text
