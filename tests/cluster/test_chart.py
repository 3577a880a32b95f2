"""The chart against the real API server: every object is taken; Helm installs, upgrades, rolls back and removes it.

No kubelet and no controllers are here: the test plays the DaemonSet's pods with the real agent, and the hook's Job
with the command and the account that the chart gives it. On a real node: tests/lab.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.app.places import DEFAULT_STATE
from tests.chart import schemas
from tests.cluster.control_plane import ApiError, ControlPlane, path_of
from tests.cluster.nodes import MERGE, SYSTEM, Agent, Place
from tests.cluster.objects import Object, namespace
from tests.patience import until
from tools.chart import rendering

pytestmark = [pytest.mark.cluster, pytest.mark.go]
NAME = "chart"
FULL = "chart-numalign"
JOBS = f"/apis/batch/v1/namespaces/{SYSTEM}/jobs"
SETS = f"/apis/apps/v1/namespaces/{SYSTEM}/daemonsets"
OWN = f"labelSelector=app.kubernetes.io/instance={NAME}"
KINDS = (
    f"/api/v1/namespaces/{SYSTEM}/configmaps", f"/api/v1/namespaces/{SYSTEM}/serviceaccounts", SETS, JOBS,
    f"/apis/rbac.authorization.k8s.io/v1/namespaces/{SYSTEM}/roles",
    f"/apis/rbac.authorization.k8s.io/v1/namespaces/{SYSTEM}/rolebindings",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
)  # fmt: skip
EXAMPLES = sorted((rendering.ROOT / "deploy" / "examples" / "pods").iterdir())
CASES = sorted(rendering.CHART.glob("ci/*-values.yaml"))


@pytest.mark.parametrize("values", CASES, ids=lambda path: path.stem.removesuffix("-values"))
def test_the_api_server_takes_every_object(cluster: ControlPlane, values: Path) -> None:
    """A dry run on the server, strict about unknown fields: defaulting, validation, CEL of the policy, CRDs."""
    cluster.ensure(*(namespace(each) for each in ("dry-system", "monitoring")), *schemas.monitoring())
    found = rendering.objects(rendering.render("--values", values, name="dry", namespace="dry-system"))
    for each in found:
        until(partial(_taken, cluster, each), what=each["kind"])


def _taken(cluster: ControlPlane, body: Object) -> bool:
    """Whether the server would store it; False while it does not serve the kind yet."""
    path = (
        f"{path_of(body)}/{body['metadata']['name']}?fieldManager=test&force=true&dryRun=All&fieldValidation=Strict"
    )
    try:
        cluster.call("PATCH", path, body, kind="application/apply-patch+yaml")
    except ApiError as error:
        if error.status == 404 and "could not find the requested resource" in str(error):
            return False
        raise
    return True


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda path: path.stem)
def test_the_api_server_takes_every_example(cluster: ControlPlane, file: Path) -> None:
    """The example pods are valid for a real API server, not for our own reading alone."""
    for body in yaml.safe_load_all(file.read_text()):
        body["metadata"].setdefault("namespace", "default")
        assert _taken(cluster, body)


def test_kubectl_applies_the_manifests(cluster: ControlPlane, kube: Path, tmp_path: Path) -> None:
    """The kustomization as it is, against the server: every object is taken, as many as the chart has."""
    kubectl = tmp_path / "kubectl"
    kubectl.symlink_to(kube)
    cluster.ensure(namespace(SYSTEM))
    done = subprocess.run(
        [kubectl, "--kubeconfig", Helm(cluster, tmp_path).file, "apply", "--server-side", "--force-conflicts",
         "--dry-run=server", "--kustomize", rendering.MANIFESTS],
        capture_output=True, text=True, check=False, timeout=120, env={**os.environ, "HOME": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rendered = rendering.objects(rendering.render("--no-hooks", "--skip-tests"))
    assert len(done.stdout.splitlines()) == len(rendered) + 1, "and the namespace"
    assert "daemonset.apps/numalign serverside-applied (server dry run)" in done.stdout


class Helm:
    """Helm as the cluster's admin."""

    def __init__(self, cluster: ControlPlane, folder: Path) -> None:
        config = {
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": cluster.server, "insecure-skip-tls-verify": True}}],
            "users": [{"name": "u", "user": {"token": "admin-token-of-a-test"}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": SYSTEM}}],
        }  # fmt: skip
        self.file = folder / "kubeconfig"
        self.file.write_text(json.dumps(config))
        self.file.chmod(0o600)

    def __call__(self, *arguments: str | Path) -> str:
        return rendering.helm(*arguments, "--namespace", SYSTEM, environment={"KUBECONFIG": str(self.file)})


@pytest.fixture
def node(cluster: ControlPlane, tmp_path: Path, request: pytest.FixtureRequest) -> Place:
    """A node whose agent is the DaemonSet's."""
    name = f"chart-{request.node.name.rpartition('_')[2][:20]}"
    return Place(cluster, name, tmp_path)


def _belongs(cluster: ControlPlane, node: Place) -> None:
    """The agent's pod is the DaemonSet's only one: those that tests before it left go."""
    labels = cluster.call("GET", f"{SETS}/{FULL}")["spec"]["selector"]["matchLabels"]
    chosen = ",".join(f"{key}={value}" for key, value in labels.items())
    for pod in cluster.call("GET", f"/api/v1/namespaces/{SYSTEM}/pods?labelSelector={chosen}")["items"]:
        name = pod["metadata"]["name"]
        cluster.call("DELETE", f"/api/v1/namespaces/{SYSTEM}/pods/{name}?gracePeriodSeconds=0")
    path = f"/api/v1/namespaces/{SYSTEM}/pods/agent-{node.name}"
    cluster.call("PATCH", path, {"metadata": {"labels": labels}}, kind=MERGE)
    cluster.call("PATCH", f"{path}/status", {"status": {"phase": "Running"}}, kind=MERGE)
    status = {"desiredNumberScheduled": 1, "currentNumberScheduled": 1, "numberMisscheduled": 0, "numberReady": 1}
    cluster.call("PATCH", f"{SETS}/{FULL}/status", {"status": status}, kind=MERGE)


def _play_job(cluster: ControlPlane, folder: Path, lines: list[str]) -> None:
    """What controller, kubelet and image would do: run the Job's command with its account, report its end."""
    until(lambda: cluster.call("GET", JOBS)["items"], what="the hook's Job")
    (job,) = cluster.call("GET", JOBS)["items"]
    spec = job["spec"]["template"]["spec"]
    folder.mkdir()
    (folder / "token").write_text(cluster.token(SYSTEM, spec["serviceAccountName"]))
    (folder / "ca.crt").write_bytes(cluster.ca.read_bytes())
    done = subprocess.run(
        [sys.executable, "-m", "agent", *spec["containers"][0]["args"], "--api-server", cluster.server,
         "--api-account", folder],
        capture_output=True, text=True, check=False, timeout=120, env={**os.environ, "POD_NAMESPACE": SYSTEM},
    )  # fmt: skip
    lines.append(done.stdout + done.stderr)
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    ends = ("SuccessCriteriaMet", "Complete") if done.returncode == 0 else ("FailureTarget", "Failed")
    conditions = [{"type": each, "status": "True", "lastTransitionTime": now, "reason": "Played"} for each in ends]
    status: dict[str, Any] = {"startTime": now, "conditions": conditions}
    status |= {"succeeded": 1, "completionTime": now} if done.returncode == 0 else {"failed": 1}
    path = f"{JOBS}/{job['metadata']['name']}/status"
    cluster.call("PATCH", path, {"status": status}, kind=MERGE)


def _remaining(cluster: ControlPlane) -> list[str]:
    """Objects of the release that are still there."""
    found = (cluster.call("GET", f"{path}?{OWN}")["items"] for path in KINDS)
    return [
        each["metadata"]["name"] for items in found for each in items if "deletionTimestamp" not in each["metadata"]
    ]


def _hooked(act: Callable[[], str], cluster: ControlPlane, folder: Path) -> tuple[str, str]:
    """Run Helm while the Job is played; its output or error, and the Job's words."""
    lines: list[str] = []
    player = threading.Thread(target=_play_job, args=(cluster, folder, lines))
    player.start()
    try:
        said = act()
    except rendering.HelmError as error:
        said = f"error: {error}"
    player.join(120)
    return said, lines[0]


def test_s18_install_upgrade_rollback_uninstall(cluster: ControlPlane, node: Place, tmp_path: Path) -> None:
    """Neither upgrade nor rollback touches a grant; uninstall puts the node back and leaves no object."""
    helm = Helm(cluster, tmp_path)
    told = helm("install", NAME, rendering.CHART)
    assert f"rollout status daemonset/{FULL}" in told
    _belongs(cluster, node)
    with Agent(node):
        node.create("web")
        until(lambda: node.assignment("web"), what="the word")
        uid = node.start("web")
        until(lambda: node.effective(uid) == node.held(uid) != "", what="the pin")
        held = node.held(uid)
    helm("upgrade", NAME, rendering.CHART, "--set", "config.onMisalignment=wait", "--set", "log.level=debug")
    with Agent(node):
        assert (node.held(uid), node.effective(uid)) == (held, held)
    helm("rollback", NAME, "1")
    config = cluster.call("GET", f"/api/v1/namespaces/{SYSTEM}/configmaps/{FULL}")["data"]["config.yaml"]
    assert "onMisalignment: run" in config
    with Agent(node):
        assert (node.held(uid), node.effective(uid)) == (held, held)
        said, job = _hooked(lambda: helm("uninstall", NAME), cluster, tmp_path / "hook")
        assert f'release "{NAME}" uninstalled' in said
        assert f"{node.name}: released" in job
        assert "1 of 1 nodes are released" in job
        assert node.effective(uid) == str(node.machine.online)
    until(lambda: not _remaining(cluster), what="the end of every object")
    assert not (node.state / "checkpoint.json").exists()


def test_s18_uninstall_stops_where_a_node_remains(cluster: ControlPlane, node: Place, tmp_path: Path) -> None:
    """It names the node, removes nothing, keeps the Job's words; without hooks it goes on."""
    helm = Helm(cluster, tmp_path)
    helm("install", NAME, rendering.CHART, "--set", "uninstall.timeoutSeconds=5")
    _belongs(cluster, node)
    said, job = _hooked(lambda: helm("uninstall", NAME), cluster, tmp_path / "hook")
    assert said.startswith("error:")
    assert f"remains: {node.name}: its pod agent-{node.name}" in job
    assert {FULL, f"{FULL}-uninstall"} == set(_remaining(cluster)), "the Job, and everything that serves"
    cluster.call("GET", f"{SETS}/{FULL}")
    with pytest.raises(ApiError, match=r"^40[13]"):
        cluster.call("GET", f"{SETS}/{FULL}", token=(tmp_path / "hook" / "token").read_text())
    helm("uninstall", NAME, "--no-hooks")
    cluster.call("DELETE", f"{JOBS}/{FULL}-uninstall?propagationPolicy=Background")
    until(lambda: not _remaining(cluster), what="the end of every object")


def test_s18_an_account_that_exists_asks_the_agents(cluster: ControlPlane, node: Place, tmp_path: Path) -> None:
    """Where the chart makes no account, the hook uses the one that is named; it may ask, and stays."""
    helm = Helm(cluster, tmp_path)
    account = f"/api/v1/namespaces/{SYSTEM}/serviceaccounts/asker"
    cluster.ensure({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "asker", "namespace": SYSTEM}})
    accounts = "serviceAccount.create=false,serviceAccount.name=made,uninstall.serviceAccountName=asker"
    helm("install", NAME, rendering.CHART, "--set", accounts)
    _belongs(cluster, node)
    with Agent(node):
        said, job = _hooked(lambda: helm("uninstall", NAME), cluster, tmp_path / "hook")
    assert f'release "{NAME}" uninstalled' in said, job
    assert f"{node.name}: released" in job
    until(lambda: not _remaining(cluster), what="the end of every object")
    cluster.call("GET", account)


def test_the_state_folder_is_the_agents_default() -> None:
    """Inside the pod no option is needed to find the ledger: `kubectl exec ... numalign state` just works."""
    spec = rendering.of_kind(rendering.objects(rendering.render()), "DaemonSet")["spec"]["template"]["spec"]
    mounts = {each["name"]: each["mountPath"] for each in spec["containers"][0]["volumeMounts"]}
    assert mounts["state"] == str(DEFAULT_STATE)
