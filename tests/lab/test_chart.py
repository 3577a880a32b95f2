"""The chart on a real node: Ready with its defaults, grants through upgrade and downgrade, nothing left behind (S18).

The lab's own release is removed for it, and comes back at the end.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from agent import __version__
from tests.lab import reading, report
from tests.lab.chart import ALL, FULL, LONG, NAME, NAMESPACE, Helm, count, instead, sets, wait
from tests.lab.claims import Desk
from tests.lab.cluster import Lab
from tests.lab.pods import container, pod, resources
from tests.lab.sampling import Sampler
from tools.chart import rendering

TREE = reading.TREE[2]
NEXT = "99.0.0"
"""The version that is upgraded to: this one's code under another name."""
CLAIMED, CLAIM, DEVICE = "claimed", "c", "gpu2"
"""A pod, its claim, and the device that the claim asks for: on NUMA node 2, where no other pod has CPUs."""


@pytest.fixture(scope="module")
def helm(alone: Lab) -> Iterator[Helm]:
    """The chart with its defaults, on the node that numalign serves."""
    with instead(alone) as release:
        told = release.apply("install")
        assert f"daemonset/{FULL}" in told
        yield release


@pytest.fixture(scope="module")
def pods(helm: Helm) -> dict[str, str]:
    """Two pods with CPUs of their own and one without: name -> effective CPUs."""
    lab, node = helm.lab, helm.node
    # the pod of helm test has ended, and may still hold its CPUs: then three gets those beside the claim's device
    wait(lambda: count(reading.shared(node)) in (0, 16), "all CPUs in the pool")
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


@pytest.fixture
def desk(helm: Helm, pods: dict[str, str]) -> Iterator[Desk]:
    """Beside the pods one with a DRA claim, on CPUs of its device's NUMA node, and told so; the driver goes again.

    The agent that follows claims is another one: a rollout is quicker than the kubelet's next look at a volume.
    """
    lab, node, began = helm.lab, helm.node, time.monotonic()
    desk = Desk(lab, node)
    try:
        desk.start()
        report.record("claims: drivers on a node publish after, s", f"{time.monotonic() - began:.0f}")
        helm.apply("upgrade", rendering.CHART, "--set", "config.dra.enabled=true", "--set", "log.level=debug")
        assert sets(helm) == pods
        desk.claim(node, CLAIM, (DEVICE,))
        own = container(cpu="2")
        own["resources"]["claims"] = [{"name": "mine"}]
        claims = [{"name": "mine", "resourceClaimName": f"{CLAIM}-{node.name}"}]
        lab.create(pod(CLAIMED, own, resourceClaims=claims), node, scheduled=True)
        lab.wait_running(CLAIMED)
        wait(lambda: desk.told(CLAIMED)[0] == {DEVICE: "2"}, "where its device is, in the annotation")
        wait(lambda: sets(helm)[CLAIMED] == "8-9", "CPUs beside its device: without one it has two of node 0")
        report.record("claims: a pod beside its device after, s", f"{time.monotonic() - began:.0f}")
        yield desk
    finally:
        desk.clear()
        desk.stop()


def test_s17_s18_uninstall_puts_the_node_back_and_says_so(
    helm: Helm, pods: dict[str, str], desk: Desk, sampler: Sampler
) -> None:
    """Everybody runs on, everywhere, with the kubelet's quota; nothing of ours is on pods, in the API, or on disk.

    A pod with a DRA claim keeps its claim.
    """
    sampler.excused = "everything is given back"
    lab, node, everybody = helm.lab, helm.node, (*pods, CLAIMED)
    reserved = [DEVICE], [lab.pod(CLAIMED)["metadata"]["uid"]]
    assert desk.claimed(node, CLAIM) == reserved
    # What the Job says is tested in tests/cluster/test_release.py: this API server does not reach the kubelets' logs.
    assert f'release "{NAME}" uninstalled' in helm("uninstall", NAME, *LONG)
    assert sets(helm) == dict.fromkeys(everybody, ALL)
    asked = node.run(f"cd {TREE} && find kubepods.slice -name cpuset.cpus -exec grep -H . {{}} + ; true").splitlines()
    assert {line.partition(":")[2] for line in asked} <= {ALL}, "inherited, or all of them by name"
    slices = [line for line in asked if line.split("/")[1].startswith(("kubepods-burstable", "kubepods-besteffort"))]
    assert slices == [] or all(line.endswith(f":{ALL}") for line in slices)
    for each in ("two", CLAIMED):
        quota = node.run(f"cat {TREE}/kubepods.slice/kubepods-pod{_uid(lab, each)}.slice/cpu.max").split()
        assert quota == ["200000", "100000"]
    for each in everybody:
        body = lab.pod(each)
        assert "numalign.io" not in json.dumps(body["metadata"].get("annotations", {}))
        assert not [c for c in body["status"]["conditions"] if c["type"].startswith("numalign.io/")]
        (status,) = body["status"]["containerStatuses"]
        assert ("running" in status["state"], status["restartCount"]) == (True, 0)
    assert desk.claimed(node, CLAIM) == reserved
    agents = f"/api/v1/namespaces/{NAMESPACE}/pods?labelSelector=app.kubernetes.io/component%3Dagent"
    wait(lambda: not lab.plane.call("GET", agents)["items"], "the end of the agent's pod: Helm does not wait for it")
    assert node.run("ls -A /var/lib/numalign").split() == []
    left = lab.plane.call("GET", f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets")["items"]
    assert left == []
    topologies = lab.plane.call("GET", "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies")["items"]
    assert node.name not in {each["metadata"]["name"] for each in topologies}, json.dumps(topologies)[:500]


def _uid(lab: Lab, name: str) -> str:
    return str(lab.pod(name)["metadata"]["uid"]).replace("-", "_")
