"""Other writers of cpusets are told by name: the kubelet's own managers, known plugins, and whoever fights (S10)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent.core.cgroups.writers import (
    REPAIRS,
    WINDOW,
    Repair,
    flapping,
    kubelet_writes,
    plugin_writes,
    pod_writes,
    state_writes,
)
from agent.host.writers import look
from agent.model.cgroup import Cause
from tests.cluster.objects import Object

AT = "/kubepods.slice/kubepods-pod1.slice/cri-containerd-ab.scope"


@pytest.mark.parametrize(
    ("configuration", "words"),
    [
        ({"kubeletconfig": {"cpuManagerPolicy": "static"}}, ["CPU manager", "static", "cpuManagerPolicy"]),
        ({"kubeletconfig": {"memoryManagerPolicy": "Static"}}, ["memory manager", "Static"]),
        ({"cpuManagerPolicy": "static", "memoryManagerPolicy": "Static"}, ["CPU manager", "memory manager"]),
        ({"kubeletconfig": {"cpuManagerPolicy": "none", "memoryManagerPolicy": "None"}}, []),
        ({"kubeletconfig": {}}, []),
        ({}, []),
        ({"kubeletconfig": None}, []),
        ({"kubeletconfig": {"cpuManagerPolicy": 7}}, []),
        ({"kubeletconfig": {"topologyManagerPolicy": "single-numa-node"}}, []),
    ],
)
def test_s10_the_kubelets_own_policies_are_told(configuration: dict[str, object], words: list[str]) -> None:
    """A static CPU or memory manager is named with its key and the remedy; policy none, and no answer, are nobody."""
    said = kubelet_writes(configuration)
    assert bool(said) == bool(words)
    assert all(word in said for word in words)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (json.dumps({"policyName": "static", "defaultCpuSet": "0-3", "checksum": 1}), True),
        (json.dumps({"policyName": "Static", "machineState": {}}), True),
        (json.dumps({"policyName": "none", "defaultCpuSet": "", "checksum": 1}), False),
        (json.dumps({"policyName": "None"}), False),
        ("", False),
        ("{", False),
        ("[]", False),
        (json.dumps({"policyName": ["static"]}), False),
        ("[" * 100_000, False),
    ],
)
def test_s10_the_kubelets_state_files_are_hints(text: str, *, found: bool) -> None:
    """The policy that a state file was written under counts; a damaged file says nothing and breaks nothing."""
    assert bool(state_writes("cpu_manager_state", text)) is found


def test_s10_known_plugins_are_told_by_their_names() -> None:
    """DRA drivers' folders and NRI plugins' binaries with their index; names that only resemble them are nobody."""
    found = plugin_writes(
        ["dra.cpu", "dra.cpu-reg.sock", "10-nri-resource-policy-balloons", "gpu.nvidia.com", "dra.cpux"]
    )
    assert len(found) == 3
    assert any("balloons" in sentence for sentence in found)
    assert sum("dra.cpu" in sentence for sentence in found) == 2
    assert plugin_writes(["README", "10-logger", "numalign"]) == ()


def repair(at: float, cause: Cause = Cause.DRIFT_FOREIGN, path: str = AT, found: str = "0-3") -> Repair:
    """One repair."""
    return Repair(path, "cpuset.cpus", found, cause, at)


def test_s10_flapping_is_told_with_the_value_that_comes_back() -> None:
    """Three repairs of one cgroup within a minute: the sentence has path, count and what was found there last."""
    said = flapping([repair(0), repair(10), repair(20, found="0-7")], 20)
    assert AT in said
    assert '"0-7"' in said
    assert f"{REPAIRS} times" in said


@pytest.mark.parametrize(
    "repairs",
    [
        [repair(0), repair(10)],
        [repair(0), repair(10), repair(WINDOW + 1)],
        [repair(0), repair(1), repair(2, path="/other")],
        [repair(0, Cause.DRIFT_OFFLINE), repair(1, Cause.DRIFT_OFFLINE), repair(2, Cause.DRIFT_OFFLINE)],
        [repair(0, Cause.DRIFT_RESET), repair(1, Cause.DRIFT_RESET, found=""), repair(2, Cause.DRIFT_RESET)],
        [repair(each, Cause.DRIFT_UNDONE, found="") for each in range(30)],
        [repair(0, Cause.QUOTA), repair(1, Cause.QUOTA), repair(2, Cause.QUOTA)],
        [],
    ],
)
def test_s10_what_is_no_fight_is_not_told(repairs: list[Repair]) -> None:
    """Two repairs, three over more than a minute, of several cgroups, of resets, or of a CPU that went away."""
    assert flapping(repairs, max((each.at for each in repairs), default=0)) == ""


NRI = {"name": "nri", "hostPath": {"path": "/var/run/nri"}}
BALLOONS = "ghcr.io/containers/nri-plugins/nri-resource-policy-balloons:v0.12.0"
DRA = "us-central1-docker.pkg.dev/k8s-staging-images/dra-driver-cpu/dra-driver-cpu:latest@sha256:abc"


def plugin(
    image: str = BALLOONS, path: str = "/var/run/nri", phase: str = "Running", kind: str = "containers", **labels: str
) -> Object:
    """A pod as the charts of such plugins make it; an empty path is no volume of the host."""
    volume = {"name": "nri", "hostPath": {"path": path}} if path else {"name": "nri", "emptyDir": {}}
    container = {"name": "c", "image": image, "volumeMounts": [{"name": "nri", "mountPath": "/var/run/nri"}]}
    return {
        "metadata": {"namespace": "plugins", "name": "p", "labels": labels},
        "spec": {kind: [container], "volumes": [{"name": "data", "emptyDir": {}}, volume]},
        "status": {"phase": phase},
    }


@pytest.mark.parametrize(
    ("body", "who"),
    [
        (plugin(), "balloons"),
        (plugin("mirror.test:5000/x/nri-resource-policy-topology-aware@sha256:abc"), "topology-aware"),
        (plugin(DRA), "DRA driver for CPUs"),
        (plugin("own/build", **{"app.kubernetes.io/name": "nri-resource-policy-topology-aware"}), "topology-aware"),
        (plugin("own/build", **{"app.kubernetes.io/name": "dra-driver-cpu"}), "DRA driver for CPUs"),
        (plugin("own/build", app="dracpu"), "DRA driver for CPUs"),
        (plugin(kind="initContainers"), "balloons"),
        *(
            (plugin(path=each), "balloons")
            for each in ("/run/nri/", "/var/run/nri/nri.sock", "/run", "/var//run", "/")
        ),
    ],
)
def test_s10_plugins_are_known_by_their_pods(body: Object, who: str) -> None:
    """By image or label, as published; the socket's folder, one above it or the socket itself is mounted."""
    assert pod_writes(body) == f"{pod_writes(body).partition(' runs here')[0]} runs here: pod plugins/p"
    assert who in pod_writes(body)


@pytest.mark.parametrize(
    "body",
    [
        plugin(path=""),
        plugin("own/build", path="", **{"app.kubernetes.io/name": "nri-resource-policy-balloons"}),
        *(plugin(path=each) for each in ("/var", "/var/lib/nri-resource-policy", "/run/nri2", "/opt/nri/plugins")),
        plugin("registry.k8s.io/network-plugin:v1"),
        plugin("numalign:0.1.0", **{"app.kubernetes.io/name": "numalign"}),
        plugin("nri-resource-policyx"),
        plugin(phase="Pending"),
        plugin(phase="Succeeded"),
        {**plugin(), "spec": {**plugin()["spec"], "containers": [{"name": "c", "image": BALLOONS}]}},
    ],
)
def test_s10_a_name_alone_stops_nobody(body: Object) -> None:
    """What a tenant can write, what does not reach the socket or does not run, other plugins, numalign itself."""
    assert pod_writes(body) == ""


@pytest.mark.parametrize("junk", [None, 7, "x", [], [None], {"a": 1}, [{"name": None, "hostPath": []}], True])
@pytest.mark.parametrize("key", ["metadata", "spec", "status", "volumes", "containers", "labels", "volumeMounts"])
def test_s10_a_pod_of_odd_shape_breaks_nothing(key: str, junk: object) -> None:
    """Whatever stands in place of a part of it."""
    assert pod_writes(junk) == ""
    body: dict[str, Any] = plugin()
    if key in body:
        body[key] = junk
    elif key == "labels":
        body["metadata"][key] = junk
    elif key == "volumeMounts":
        body["spec"]["containers"][0][key] = junk
    else:
        body["spec"][key] = junk
    assert pod_writes(body) == "" or key in {"metadata", "labels"}


def test_s10_a_state_file_that_was_replaced_is_told(tmp_path: Path) -> None:
    """Mounted as one file, it stays what it was: once the kubelet has put another in its place, nobody trusts it."""
    base = tmp_path / "var/lib/kubelet"
    base.mkdir(parents=True)
    old = tmp_path / "old"
    old.write_text('{"policyName": "none"}')
    with old.open() as mounted:
        (base / "cpu_manager_state").symlink_to(f"/proc/self/fd/{mounted.fileno()}")
        assert look(tmp_path) == ()
        old.unlink()
        (found,) = look(tmp_path)
    assert "has replaced cpu_manager_state" in found
    assert "restart this agent's pod" in found
