"""The chart on a real node: Ready with its defaults, grants through upgrade and downgrade, nothing left behind (S18).

The lab's own release is removed for it, and comes back at the end.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent import __version__
from agent.kube.pod_report import ASSIGNMENT
from tests.lab import agent, reading
from tests.lab.cluster import Lab
from tests.lab.node import Node
from tests.lab.pods import container, pod, resources
from tests.lab.sampling import Sampler
from tools.chart import rendering

NAME, NAMESPACE, FULL = "chart", "chart-system", "chart-numalign"
ALL = "0-15"
TREE = reading.TREE[2]
PATIENT, LONG = "uninstall.timeoutSeconds=600", ("--timeout", "15m")
"""A machine that is emulated starts a pod in minutes, now and then."""
NEXT = "99.0.0"
"""The version that is upgraded to: this one's code under another name."""


class Helm:
    """The release of this file, on its node alone."""

    def __init__(self, lab: Lab, node: Node) -> None:
        self.lab, self.node = lab, node

    def __call__(self, *arguments: str | Path) -> str:
        return rendering.helm(
            *arguments,
            "--namespace",
            NAMESPACE,
            environment={"KUBECONFIG": str(self.lab.plane.kubeconfig)},
            seconds=900,
        )

    def apply(self, what: str, chart: Path = rendering.CHART, *more: str) -> str:
        """Install or upgrade, and wait until every pod is Ready."""
        where = f"nodeSelector.numalign\\.lab/kind={self.node.plan.kind}"
        told = self(what, NAME, chart, "--create-namespace", "--set", where, "--set", PATIENT, *LONG, *more)
        self.rolled_out()
        return told

    def rolled_out(self, seconds: float = 600) -> None:
        """Wait as `kubectl rollout status` does. Helm's own --wait lets one pod of a DaemonSet be away: here all."""
        path = f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets/{FULL}"

        def done() -> bool:
            body = self.lab.plane.call("GET", path)
            status = body["status"]
            counts = (status.get("updatedNumberScheduled", 0), status.get("numberAvailable", 0))
            return status.get("observedGeneration") == body["metadata"]["generation"] and counts == (1, 1)

        wait(done, "the rollout", seconds)

    def agent(self) -> dict[str, Any]:
        """The agent's pod."""
        selector = "labelSelector=app.kubernetes.io/component%3Dagent"
        items = self.lab.plane.call("GET", f"/api/v1/namespaces/{NAMESPACE}/pods?{selector}")["items"]
        (only,) = [each for each in items if "deletionTimestamp" not in each["metadata"]]
        found: dict[str, Any] = only
        return found


@pytest.fixture(scope="module")
def helm(alone: Lab) -> Iterator[Helm]:
    """The chart with its defaults, on the node that numalign serves."""
    lab = alone
    lab.clear(lab.numalign)
    agent.helm(lab.plane, "uninstall", agent.RELEASE, "--no-hooks", "--wait", "--timeout", "10m")
    release = Helm(lab, lab.numalign)
    try:
        told = release.apply("install")
        assert f"daemonset/{FULL}" in told
        yield release
    finally:
        lab.clear(lab.numalign)
        with contextlib.suppress(rendering.HelmError):  # the last test removed it
            release("uninstall", NAME, "--no-hooks", "--ignore-not-found", "--wait")
        agent.install(lab.plane, lab.numalign.plan.config)
        agent.wait_ready(lab.numalign)


def wait(condition: Callable[[], object], what: str, seconds: float = 120) -> None:
    """Poll until true."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.5)


@pytest.fixture(scope="module")
def pods(helm: Helm) -> dict[str, str]:
    """Two pods with CPUs of their own and one without: name -> effective CPUs."""
    lab, node = helm.lab, helm.node
    lab.create(pod("two", cpu="2"), node)
    lab.create(pod("three", cpu="3"), node)
    lab.create(pod("rest", container("c", resources=resources("100m", "", limits={}))), node)
    for each in ("two", "three", "rest"):
        lab.wait_running(each)
    wait(lambda: len(sets(helm)["rest"].split(",")) and count(sets(helm)["three"]) == 3, "the pins")
    found = sets(helm)
    assert (count(found["two"]), count(found["three"])) == (2, 3)
    assert count(found["rest"]) == 16 - 5
    return found


def sets(helm: Helm) -> dict[str, str]:
    """Pod -> effective CPUs of its only container, as the kernel has them."""
    return {name: found["c"].cpus for name, found in helm.lab.kernel(helm.node).items()}


def count(text: str) -> int:
    """CPUs in a list."""
    ends = [each.split("-") for each in text.split(",") if each]
    return sum(int(each[-1]) - int(each[0]) + 1 for each in ends)


def test_the_defaults_bring_a_ready_daemonset(helm: Helm) -> None:
    """Ready at the first attempt, as uid 0 without any capability, confined by seccomp, without new privileges."""
    body = helm.agent()
    assert body["spec"]["containers"][0]["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    (status,) = body["status"]["containerStatuses"]
    assert (status["ready"], status["restartCount"]) == (True, 0)
    number = status["containerID"].rpartition("/")[2]
    lines = helm.node.run(f"cat /proc/$(ctr -n k8s.io tasks ls | awk '/^{number}/ {{print $2}}')/status").splitlines()
    found = {line.split(":")[0]: line.split(":")[1].strip() for line in lines if ":" in line}
    assert {found[each] for each in ("CapPrm", "CapEff", "CapBnd", "CapInh", "CapAmb")} == {"0000000000000000"}
    assert (found["Uid"].split()[0], found["Seccomp"], found["NoNewPrivs"]) == ("0", "2", "1")


def test_a_pod_of_helm_test_proves_it(helm: Helm) -> None:
    """The hook's pod ends well, which it does only when the kernel confines it to as many CPUs as it asked for.

    Its words are for people; here the API server does not reach the kubelet that keeps them.
    """
    told = helm("test", NAME, *LONG)
    assert "Phase:          Succeeded" in told


@pytest.fixture
def newer(tmp_path: Path) -> Path:
    """The next version of the chart; its application is the same image."""
    copy = tmp_path / "numalign"
    shutil.copytree(rendering.CHART, copy)
    about = yaml.safe_load((copy / "Chart.yaml").read_text())
    (copy / "Chart.yaml").write_text(yaml.safe_dump({**about, "version": NEXT}))
    return copy


def test_s18_upgrade_and_downgrade_keep_every_grant(helm: Helm, pods: dict[str, str], newer: Path) -> None:
    """The agent's pod is replaced twice; no set changes in between, and no container restarts."""
    seen: list[dict[str, str]] = []
    first = helm.agent()["metadata"]["uid"]
    helm.apply("upgrade", newer, "--set", "log.level=debug", "--set", f"image.tag={__version__}")
    second = helm.agent()["metadata"]["uid"]
    seen.append(sets(helm))
    helm("rollback", NAME, "1", *LONG)
    helm.rolled_out()
    third = helm.agent()["metadata"]["uid"]
    seen.append(sets(helm))
    assert len({first, second, third}) == 3
    assert seen == [pods, pods]
    statuses = [helm.lab.pod(each)["status"]["containerStatuses"][0] for each in pods]
    assert [each["restartCount"] for each in statuses] == [0, 0, 0]


def test_s17_s18_uninstall_puts_the_node_back_and_says_so(helm: Helm, pods: dict[str, str], sampler: Sampler) -> None:
    """Everybody runs everywhere, with the kubelet's quota; nothing of ours is on pods, in the API, or on disk."""
    sampler.excused = "everything is given back"
    lab, node = helm.lab, helm.node
    # What the Job says is tested in tests/cluster/test_release.py: this API server does not reach the kubelets' logs.
    assert f'release "{NAME}" uninstalled' in helm("uninstall", NAME, *LONG)
    assert sets(helm) == dict.fromkeys(pods, ALL)
    asked = node.run(f"cd {TREE} && find kubepods.slice -name cpuset.cpus -exec grep -H . {{}} + ; true").splitlines()
    assert {line.partition(":")[2] for line in asked} <= {ALL}, "inherited, or all of them by name"
    slices = [line for line in asked if line.split("/")[1].startswith(("kubepods-burstable", "kubepods-besteffort"))]
    assert slices == [] or all(line.endswith(f":{ALL}") for line in slices)
    quota = node.run(f"cat {TREE}/kubepods.slice/kubepods-pod{_uid(lab, 'two')}.slice/cpu.max").split()
    assert quota == ["200000", "100000"]
    for each in pods:
        body = lab.pod(each)
        assert ASSIGNMENT not in body["metadata"].get("annotations", {})
        assert not [c for c in body["status"]["conditions"] if c["type"].startswith("numalign.io/")]
    agents = f"/api/v1/namespaces/{NAMESPACE}/pods?labelSelector=app.kubernetes.io/component%3Dagent"
    wait(lambda: not lab.plane.call("GET", agents)["items"], "the end of the agent's pod: Helm does not wait for it")
    assert node.run("ls -A /var/lib/numalign").split() == []
    left = lab.plane.call("GET", f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets")["items"]
    assert left == []
    topologies = lab.plane.call("GET", "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies")["items"]
    assert node.name not in {each["metadata"]["name"] for each in topologies}, json.dumps(topologies)[:500]


def _uid(lab: Lab, name: str) -> str:
    return str(lab.pod(name)["metadata"]["uid"]).replace("-", "_")
