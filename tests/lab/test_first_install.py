"""A stranger's first install on a real node: it fails and is removed; the next one comes from a registry (S18)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent import __version__
from tests.lab.chart import ALL, LONG, NAME, NAMESPACE, Helm, count, instead, sets, wait
from tests.lab.cluster import Lab
from tests.lab.pods import pod
from tests.lab.sampling import Sampler
from tests.peers.registry import serving
from tools.chart import rendering

LEFT = {
    "apps/v1": ("daemonsets",), "batch/v1": ("jobs",), "v1": ("serviceaccounts", "configmaps", "pods"),
    "rbac.authorization.k8s.io/v1": ("roles", "rolebindings", "clusterroles", "clusterrolebindings"),
    "admissionregistration.k8s.io/v1": ("validatingadmissionpolicies", "validatingadmissionpolicybindings"),
}  # fmt: skip
"""What the chart makes: API group -> its resources."""
NOBODY = "127.0.0.1:9"
"""A registry that no node reaches."""


@pytest.fixture(scope="module")
def bare(alone: Lab) -> Iterator[Helm]:
    """A node that numalign never served since its pods are there: one runs, and asks for whole CPUs."""
    with instead(alone) as helm:
        helm.node.run("rm -rf /var/lib/numalign")
        helm.lab.create(pod("before", cpu="2"), helm.node, wait=True)
        yield helm


@pytest.fixture
def helm(bare: Helm) -> Iterator[Helm]:
    """The same, without a release before and after."""
    yield bare
    bare.remove()


def left(helm: Helm) -> list[str]:
    """What is in the API of this release, in words."""
    found = []
    for group, names in LEFT.items():
        root = f"/api/{group}" if group == "v1" else f"/apis/{group}"
        for name in names:
            query = f"labelSelector=app.kubernetes.io/instance%3D{NAME}"
            found += [
                f"{name}/{each['metadata']['name']}"
                for each in helm.lab.plane.call("GET", f"{root}/{name}?{query}")["items"]
            ]
    return found


def test_s18_agents_that_never_started_keep_nobody_waiting(helm: Helm) -> None:
    """The kubelet cannot mount a folder of the agent's pod: `helm uninstall` ends, removes all, changes no pod."""
    helm.begin("install", rendering.CHART, "--set", "kubelet.rootDir=/var/snap/none/kubelet")
    where = f"/api/v1/namespaces/{NAMESPACE}/events?fieldSelector=reason%3DFailedMount"
    wait(lambda: helm.lab.plane.call("GET", where)["items"], "the kubelet's word that it cannot mount", 300)
    (status,) = helm.agent()["status"]["containerStatuses"]
    assert status["state"] == {"waiting": {"reason": "ContainerCreating"}}
    assert f'release "{NAME}" uninstalled' in helm("uninstall", NAME, *LONG)
    wait(lambda: not left(helm), f"the end of {left(helm)}")
    assert sets(helm) == {"before": ALL}


def test_s18_an_image_that_cannot_be_pulled_is_removed_without_hooks(helm: Helm) -> None:
    """The uninstallation's own pod would need that image, too: with --no-hooks nothing is waited for or stays."""
    told = helm.begin("install", rendering.CHART, "--set", f"image.registry={NOBODY}")
    assert "add --no-hooks: there is nothing to put back" in told

    def reasons() -> set[str]:
        statuses = [one for each in helm.agents() for one in each["status"].get("containerStatuses", [])]
        return {each["state"].get("waiting", {}).get("reason", "") for each in statuses}

    wait(lambda: reasons() & {"ErrImagePull", "ImagePullBackOff"}, "the kubelet's word that it cannot pull", 300)
    assert f'release "{NAME}" uninstalled' in helm("uninstall", NAME, "--no-hooks", *LONG)
    wait(lambda: not left(helm), f"the end of {left(helm)}")
    assert sets(helm) == {"before": ALL}


def test_the_chart_of_a_registry_pins_pods(helm: Helm, sampler: Sampler, releasing: None, tmp_path: Path) -> None:
    """Packaged, pushed, installed by its address: old and new pods get CPUs of their own, until it is uninstalled."""
    sampler.excused = "everything is given back"
    with serving(tmp_path / "registry") as address:
        rendering.helm("package", rendering.CHART, "--destination", tmp_path)
        rendering.helm("push", tmp_path / f"numalign-{__version__}.tgz", f"oci://{address}/charts", "--plain-http")
        place = f"oci://{address}/charts/numalign"
        told = helm.apply("install", place, "--version", __version__, "--plain-http")
    assert f"numalign {__version__} is installed in {NAMESPACE}" in told
    helm.lab.create(pod("after", cpu="3"), helm.node, wait=True)
    wait(lambda: {name: count(each) for name, each in sets(helm).items()} == {"before": 2, "after": 3}, "the pins")
    assert f'release "{NAME}" uninstalled' in helm("uninstall", NAME, *LONG)
    assert sets(helm) == {"before": ALL, "after": ALL}
    wait(lambda: not left(helm), f"the end of {left(helm)}")
