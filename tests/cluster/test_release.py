"""Uninstalling against the real API server: each agent is asked, answers, and leaves nothing behind (S18)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.kube.pod_report import ASSIGNMENT
from tests.cluster.control_plane import ApiError, ControlPlane
from tests.cluster.nodes import MERGE, STRATEGIC, SYSTEM, Agent, Make, Place
from tests.patience import until

pytestmark = pytest.mark.cluster
ROLE = Path(__file__).parents[2] / "deploy" / "access" / "rbac-uninstall.yaml"
SETS = f"/apis/apps/v1/namespaces/{SYSTEM}/daemonsets"
OTHER_IMAGE = {"name": "c", "image": "other"}
WHOLE = {"cpu": "2", "memory": "64Mi"}
BURSTABLE = [
    {"name": "c", "image": "none", "resources": {"requests": WHOLE, "limits": WHOLE}},
    {"name": "side", "image": "none", "resources": {"requests": {"cpu": "100m"}}},
]
"""An app with whole CPUs, and what keeps its pod from being Guaranteed."""


class Uninstaller:
    """The hook's account and its command, and a DaemonSet that counts the nodes of one test."""

    def __init__(self, cluster: ControlPlane, name: str, folder: Path) -> None:
        self.cluster, self.name, self.folder = cluster, name, folder
        rights = list(yaml.safe_load_all(ROLE.read_text()))
        rights[1]["rules"][0]["resourceNames"] = [name]
        for each in rights:
            each["metadata"]["name"] = f"{name}-uninstall"
        for binding in (rights[2], rights[4]):
            binding["roleRef"]["name"] = binding["subjects"][0]["name"] = f"{name}-uninstall"
        cluster.ensure(*rights)
        folder.mkdir()
        token = cluster.token(SYSTEM, f"{name}-uninstall")
        (folder / "token").write_text(token)
        cluster.wait_allowed(token, "list", "pods")
        cluster.wait_allowed(token, "patch", "pods", subresource="status", namespace=SYSTEM)
        (folder / "ca.crt").write_bytes(cluster.ca.read_bytes())
        labels = {"release": name}
        container = {"name": "agent", "image": "none"}
        cluster.create({
            "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": name, "namespace": SYSTEM},
            "spec": {"selector": {"matchLabels": labels},
                     "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}}},
        })  # fmt: skip

    def counts(self, *places: Place, wanted: int = 0) -> None:
        """These nodes' agents belong to the DaemonSet; it should have `wanted` of them."""
        for place in places:
            path = f"/api/v1/namespaces/{SYSTEM}/pods/agent-{place.name}"
            self.cluster.call("PATCH", path, {"metadata": {"labels": {"release": self.name}}}, kind=MERGE)
            self.cluster.call("PATCH", f"{path}/status", {"status": {"phase": "Running"}}, kind=MERGE)
        count = wanted or len(places)
        status = {"desiredNumberScheduled": count, "currentNumberScheduled": count, "numberMisscheduled": 0,
                  "numberReady": 0}  # fmt: skip
        self.cluster.call("PATCH", f"{SETS}/{self.name}/status", {"status": status}, kind=MERGE)

    def run(self, within: float = 60, output: str = "json", more: str = "") -> tuple[int, str]:
        """Exit code and output of the hook's command."""
        done = subprocess.run(
            [sys.executable, "-m", "agent", "release", "--cluster", "--daemonset", self.name, "--within", str(within),
             "--api-server", self.cluster.server, "--api-account", self.folder, "--output", output,
             *([more] if more else [])],
            capture_output=True, text=True, timeout=within + 60, check=False,
            env={**os.environ, "POD_NAMESPACE": SYSTEM},
        )  # fmt: skip
        assert "Traceback" not in done.stderr, done.stderr
        return done.returncode, done.stdout


@pytest.fixture
def place(cluster: ControlPlane, tmp_path: Path) -> Make:
    """Makes nodes by name."""

    def make(name: str, **settings: Any) -> Place:  # noqa: ANN401 - settings of a configuration file
        folder = tmp_path / name
        folder.mkdir()
        return Place(cluster, name, folder, settings=settings)

    return make


def _pinned(place: Place, name: str, **more: Any) -> str:  # noqa: ANN401 - of a pod's spec
    """A pod that has its own CPUs; its uid."""
    place.create(name, **more)
    until(lambda: place.assignment(name), what="the word")
    uid = place.start(name)
    until(lambda: place.effective(uid) == place.held(uid) != "", what="the pin")
    return uid


def test_s18_every_node_is_put_back_and_says_so(cluster: ControlPlane, place: Make, tmp_path: Path) -> None:
    """Cgroups, quotas, annotations, condition, topology object and ledger: nothing of ours remains on two nodes."""
    first, second = place("farewell-1"), place("farewell-2")
    hook = Uninstaller(cluster, "farewell", tmp_path / "hook")
    hook.counts(first, second)
    with Agent(first) as one, Agent(second):
        uids = [(each, _pinned(each, "web")) for each in (first, second)]
        mesh = _pinned(first, "mesh", annotations={"exclusive": "auto"}, containers=BURSTABLE)
        first.create("plain", cpu="500m")
        until(lambda: first.assignment("plain"), what="the word")
        until(lambda: first.topology() and second.topology(), what="the topology objects")
        code, text = hook.run()
        assert code == 0, text
        found = json.loads(text)
        assert [(each["node"], each["released"]) for each in found["nodes"]] == [
            ("farewell-1", True), ("farewell-2", True),
        ]  # fmt: skip
        for each, uid in uids:
            assert each.effective(uid) == str(each.machine.online)
            assert ASSIGNMENT not in each.pod("web")["metadata"].get("annotations", {})
            left = each.pod("web")["status"].get("conditions", [])
            assert [one["type"] for one in left if one["type"].startswith("numalign.io/")] == []
            assert each.topology() == {}
        everywhere = str(first.machine.online)
        assert [first.effective(mesh, part) for part in ("c", "side")] == [everywhere, everywhere]
        assert (first.assignment("mesh"), first.condition("mesh"), first.assignment("plain")) == ({}, {}, {})
        assert one.metric("numalign_observe_only") == 1
        late = first.create("late")
        uid = first.start("late")
        first.tree.kernel_write(first.tree.pod_path(uids[0][1]), "cpuset.cpus", "0-15")
        assert first.effective(uid) == str(first.machine.online), "nothing is pinned any more"
        assert first.assignment("late") == {}, late["metadata"]["name"]
    assert list(first.state.iterdir()) == []


def test_s18_a_request_outlives_the_agent_and_can_be_taken_back(
    cluster: ControlPlane, place: Make, tmp_path: Path
) -> None:
    """A restarted agent finds the request and pins nothing; without it everything is as before."""
    node = place("farewell-3")
    hook = Uninstaller(cluster, "farewell-again", tmp_path / "hook")
    hook.counts(node)
    with Agent(node) as agent:
        uid = _pinned(node, "web")
        held = node.held(uid)
        assert hook.run()[0] == 0
        agent.end()
    with Agent(node) as agent:
        until(lambda: agent.metric("numalign_observe_only") == 1, what="still released")
        assert node.effective(uid) == str(node.machine.online)
        path = f"/api/v1/namespaces/{SYSTEM}/pods/agent-{node.name}"
        cluster.call("PATCH", path, {"metadata": {"annotations": {"numalign.io/release": None}}}, kind=MERGE)
        until(lambda: node.effective(uid) != str(node.machine.online), what="the pin")
        assert len(node.effective(uid)) == len(held)
        until(lambda: node.assignment("web") and node.condition("web"), what="the word")
        until(node.topology, what="the topology object")
        notes = cluster.call("GET", path)["metadata"].get("annotations", {})
        assert "numalign.io/released" not in notes


def test_s18_nodes_that_remain_are_named(cluster: ControlPlane, place: Make, tmp_path: Path) -> None:
    """An agent that does not answer, a node without one: named within the limit, exit code 1."""
    good, dead = place("farewell-4"), place("farewell-5")
    hook = Uninstaller(cluster, "farewell-partly", tmp_path / "hook")
    hook.counts(good, dead, wanted=3)
    with Agent(good):
        code, text = hook.run(within=4, output="text")
        if "0 of 3 nodes" in text:  # a slow machine: who is released by now answers at once
            code, text = hook.run(within=60, output="text")
    assert code == 1
    lines = text.splitlines()
    assert "1 of 3 nodes are released" in lines
    assert "remains: farewell-5: its pod agent-farewell-5 is not ready: the node may be down" in lines
    assert "remains: a node without an agent: the DaemonSet has no pod on it" in lines
    assert "--no-hooks" in lines[-1]
    assert hook.run(within=1, more="--even-if-nodes-remain")[0] == 0


def test_s18_without_a_daemonset_there_is_nobody_to_ask(cluster: ControlPlane, tmp_path: Path) -> None:
    """A second uninstall after a broken one does not wait."""
    hook = Uninstaller(cluster, "farewell-gone", tmp_path / "hook")
    cluster.call("DELETE", f"{SETS}/{hook.name}")
    assert hook.run(output="text") == (0, "0 of 0 nodes are released\n")


def test_the_hooks_account_can_change_nothing_of_a_pod(cluster: ControlPlane, place: Make, tmp_path: Path) -> None:
    """Neither an agent's spec nor anything outside of the namespace; there it may list pods, and nothing else."""
    node = place("farewell-6")
    hook = Uninstaller(cluster, "farewell-rights", tmp_path / "hook")
    token = (tmp_path / "hook" / "token").read_text()
    own = f"/api/v1/namespaces/{SYSTEM}/pods/agent-{node.name}"
    patch = {"metadata": {"annotations": {"numalign.io/release": "x"}}, "spec": {"containers": [OTHER_IMAGE]}}
    cluster.call("PATCH", f"{own}/status", patch, token=token, kind=STRATEGIC)
    assert cluster.call("GET", own)["spec"]["containers"][0]["image"] == "none"
    node.create("other")
    there = f"/api/v1/namespaces/{node.name}/pods"
    assert cluster.call("GET", there, token=token)["items"]
    for method, path in (("PATCH", own), ("GET", own), ("GET", f"{there}/other"), ("PATCH", f"{there}/other/status"),
                         ("GET", f"{there}?watch=1"), ("GET", f"/api/v1/namespaces/{node.name}/secrets"),
                         ("GET", "/api/v1/nodes"), ("DELETE", f"{SETS}/{hook.name}")):  # fmt: skip
        with pytest.raises(ApiError, match="403"):
            cluster.call(method, path, {} if method == "PATCH" else None, token=token, kind=MERGE)
