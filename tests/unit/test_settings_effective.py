"""agent.settings.to_rules: what the reservations come to on a machine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agent.errors import SettingsError
from agent.model.idset import CpuSet
from agent.model.machine import Cpu, Machine, NumaNode
from agent.model.rules import CpuOptions, CpuRules, DeviceSelector, MemoryRules, Policy, Scope, TopologyRules
from agent.settings import parse, rules_of
from agent.settings.reserved_cpus import reserved_count, reserved_cpus
from agent.settings.to_rules import eviction_memory, reserved_memory

MIB = 1 << 20
SMT = Machine(
    cpus=tuple(Cpu(cpu, cpu // 8, cpu - cpu % 2, 0, 0) for cpu in range(16)),
    nodes=tuple(NumaNode(n, CpuSet.from_ids(range(8 * n, 8 * n + 8)), 2048 * MIB) for n in (0, 1)),
)


def of(body: dict[str, Any]) -> Any:  # noqa: ANN401 - Settings, short
    """The settings of a document."""
    return parse(body)[0]


@pytest.mark.parametrize(
    ("body", "count"),
    [
        ({"kubeReserved": {"cpu": "500m"}}, 1),
        ({"kubeReserved": {"cpu": "500m"}, "systemReserved": {"cpu": "600m"}}, 2),
        ({"reservedSystemCPUs": "0,2,4", "kubeReserved": {"cpu": 8}}, 3),
        ({"reservedSystemCPUs": "", "kubeReserved": {"cpu": 4}}, 4),
    ],
)
def test_reserved_cpus_are_counted_as_the_kubelet_does(body: dict[str, Any], count: int) -> None:
    """KubeReserved + systemReserved rounded up; reservedSystemCPUs replaces both (kubelet rule 4.1)."""
    assert reserved_count(of(body), SMT, 0) == count


def test_s14_one_core_is_kept_where_nobody_reserves() -> None:
    """Safety rule S14: with kubeadm's defaults (nothing reserved) one whole core stays for the system."""
    assert reserved_count(of({}), SMT, 0) == 2
    assert reserved_count(of({}), Machine(cpus=(Cpu(0, 0, 0, 0, 0),), nodes=()), 0) == 0


def test_s14_what_the_kubelet_reserves_is_followed() -> None:
    """Capacity less allocatable counts where our own settings say nothing, so that the two agree."""
    assert reserved_count(of({}), SMT, 2500) == 3
    assert reserved_count(of({"kubeReserved": {"cpu": 1}}), SMT, 2500) == 1


def test_the_kubelet_refuses_to_start_without_a_reservation() -> None:
    """Under compatibility kubelet so do we, with its sentence."""
    with pytest.raises(SettingsError, match="unable to determine reserved CPU resources for static policy"):
        reserved_count(of({"compatibility": "kubelet"}), SMT, 0)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({"reservedSystemCPUs": "0,16"}, "reserved-cpus: 0,16 is not a subset of online-cpus: 0-15"),
        ({"reservedSystemCPUs": "0-15"}, "reserves every CPU"),
    ],
)
def test_reserved_cpus_must_be_there_and_not_all(body: dict[str, Any], why: str) -> None:
    """A CPU that is not online cannot be reserved, and some must be left."""
    with pytest.raises(SettingsError, match=f"^reservedSystemCPUs: {why}"):
        reserved_cpus(of(body), SMT)


def test_too_many_reserved_cpus_are_refused() -> None:
    """A reservation of all CPUs leaves no pod anything."""
    with pytest.raises(SettingsError, match="16 CPUs are reserved, and this machine has 16"):
        reserved_count(of({"kubeReserved": {"cpu": 16}}), SMT, 0)


@pytest.mark.parametrize(
    ("body", "size"),
    [
        ({}, 100 * MIB),
        ({"evictionHard": {"memory.available": "1Gi"}}, 1024 * MIB),
        ({"evictionHard": {"nodefs.available": "10%"}}, 0),
        ({"evictionHard": {"nodefs.available": "10%"}, "mergeDefaultEvictionSettings": True}, 100 * MIB),
        ({"evictionHard": {"memory.available": "50%"}}, 2048 * MIB),
        ({"evictionHard": {"memory.available": "5%"}}, 214748368),
        ({"evictionHard": {"memory.available": "0%"}}, 0),
        ({"evictionHard": {"memory.available": "100%"}}, 0),
    ],
)
def test_hard_eviction_is_part_of_the_reservation(body: dict[str, Any], size: int) -> None:
    """100Mi where the kubelet is told nothing; a percentage is a float32 share of all memory, here 4 GiB."""
    assert eviction_memory(of(body), SMT) == size


def test_memory_reservations_add_up() -> None:
    """KubeReserved + systemReserved + hard eviction, in bytes: what reservedMemory must sum to (kubelet rule 5.1)."""
    body = {"kubeReserved": {"memory": "1Gi"}, "systemReserved": {"memory": "100Mi"}}
    assert reserved_memory(of(body), SMT) == (1024 + 100 + 100) * MIB


def test_a_pasted_snippet_becomes_rules() -> None:
    """Policy, scope, options, reservations and gates arrive at the decisions as the file says."""
    body = {
        "topologyManagerPolicy": "restricted",
        "topologyManagerScope": "pod",
        "topologyManagerPolicyOptions": {"prefer-closest-numa-nodes": "true"},
        "cpuManagerPolicyOptions": {"full-pcpus-only": "true", "align-by-socket": "true"},
        "reservedSystemCPUs": "0-1",
        "memoryManagerPolicy": "Static",
        "reservedMemory": [{"numaNode": 1, "limits": {"memory": "612Mi"}}],
        "kubeReserved": {"memory": "512Mi"},
        "featureGates": {"PodLevelResourceManagers": True},
        "devices": [{"resource": "numalign.io/nic", "class": "02"}],
    }
    distances = tuple(replace(node, distances=(10, 20)) for node in SMT.nodes)
    rules = rules_of(of(body), replace(SMT, nodes=distances))
    assert rules.topology == TopologyRules(Policy.RESTRICTED, Scope.POD, prefer_closest=True)
    assert rules.cpu == CpuRules(
        options=CpuOptions(full_pcpus_only=True, align_by_socket=True), reserved=CpuSet.of(0, 1), reserved_count=2
    )
    assert rules.memory == MemoryRules(static=True, reserved={1: {"memory": 612 * MIB}})
    assert rules.pod_level_managers
    assert rules.devices == (DeviceSelector("numalign.io/nic", class_prefix="02"),)


def test_s1_default_rules_bind_no_memory() -> None:
    """The defaults are the careful ones (safety rule S1) where decisions read them, too."""
    rules = rules_of(of({}), SMT)
    assert (rules.cpu.static, rules.memory.static, rules.topology.policy) == (True, False, Policy.BEST_EFFORT)
    assert rules.keep_shared


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({"topologyManagerPolicyOptions": {"prefer-closest-numa-nodes": "true"}}, "has no distance file"),
        (
            {"memoryManagerPolicy": "Static", "reservedMemory": [{"numaNode": 3, "limits": {"memory": "100Mi"}}]},
            "NUMA node 3 that does not exist",
        ),
        ({"memoryManagerPolicy": "Static"}, "you should specify|is not equal"),
        ({"compatibility": "kubelet", "cpuManagerPolicyOptions": {"align-by-socket": "true"}}, "Alpha-level Options"),
    ],
)
def test_what_this_machine_cannot_give_is_refused(body: dict[str, Any], why: str) -> None:
    """Each with the kubelet's sentence and a remedy."""
    with pytest.raises(SettingsError, match=why):
        rules_of(of(body), SMT)
