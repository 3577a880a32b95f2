"""Other writers of cpusets are told by name: the kubelet's own managers, known plugins, and whoever fights (S10)."""

from __future__ import annotations

import json

import pytest

from agent.core.cgroups.writers import REPAIRS, WINDOW, Repair, flapping, kubelet_writes, plugin_writes, state_writes
from agent.model.cgroup import Cause

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
