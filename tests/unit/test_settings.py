"""agent.settings: what a configuration means, and the one sentence for each that means nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agent.errors import SettingsError
from agent.model.idset import CpuSet
from agent.model.rules import Enforcement, OnMisalignment, Policy, Scope
from agent.settings import Settings, parse
from agent.settings.kinds import Answers, CpuPolicy, MemoryPolicy
from agent.settings.kubelet_names import IGNORED
from tools.chart.settings_schema import schema

SNIPPET: dict[str, Any] = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    "topologyManagerPolicy": "restricted",
    "topologyManagerScope": "pod",
    "topologyManagerPolicyOptions": {"prefer-closest-numa-nodes": "true"},
    "cpuManagerPolicy": "static",
    "cpuManagerPolicyOptions": {"full-pcpus-only": "true"},
    "cpuManagerReconcilePeriod": "5s",
    "reservedSystemCPUs": "0,4",
    "memoryManagerPolicy": "Static",
    "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1124Mi"}}],
    "kubeReserved": {"cpu": "500m", "memory": "512Mi"},
    "systemReserved": {"memory": "512Mi", "ephemeral-storage": "1Gi"},
    "evictionHard": {"memory.available": "100Mi", "nodefs.available": "10%"},
    "featureGates": {"PodLevelResourceManagers": False},
    "port": 10250,
    "clusterDNS": ["10.0.0.10"],
}


def test_s1_defaults_do_no_harm() -> None:
    """Safety rule S1: static CPUs, no bound memory, best-effort, pods run whatever happens, enforcement auto."""
    settings, warnings = parse({})
    assert settings.cpu_manager_policy is CpuPolicy.STATIC
    assert settings.memory_manager_policy is MemoryPolicy.NONE
    assert settings.topology_manager_policy is Policy.BEST_EFFORT
    assert settings.on_misalignment is OnMisalignment.RUN
    assert settings.enforcement is Enforcement.AUTO
    assert settings.compatibility is Answers.FIXED
    assert settings.excluded_namespaces == ("kube-system",)
    assert warnings == ()


def test_s3_the_kill_switch_is_one_setting() -> None:
    """It is off unless it is set, and nothing else is needed to set it."""
    assert not parse({})[0].observe_only
    assert parse({"observeOnly": True})[0].observe_only


def test_a_kubelet_snippet_can_be_pasted() -> None:
    """Names and values of KubeletConfiguration mean what they mean there; what is not needed is named."""
    settings, warnings = parse(SNIPPET)
    assert settings.topology_manager_policy is Policy.RESTRICTED
    assert settings.topology_manager_scope is Scope.POD
    assert settings.reserved_system_cpus == CpuSet.of(0, 4)
    assert settings.kube_reserved == {"cpu": 500, "memory": 512_000 << 20}
    assert settings.reserved_memory[0].limits == {"memory": 1_124_000 << 20}
    assert settings.cpu_manager_reconcile_period == 5.0
    assert warnings == ("ignored: settings of the kubelet that numalign does not need: port, clusterDNS",)


def test_every_field_of_the_kubelet_is_known() -> None:
    """More than a hundred fields of v1beta1 are ignored, and none of them is one of ours."""
    ours = set(Settings.fields())
    assert len(IGNORED) > 100
    assert not IGNORED & ours
    assert {"maxPods", "cgroupDriver", "systemReservedCgroup", "shutdownGracePeriod"} <= IGNORED


def test_what_is_shown_is_what_is_parsed() -> None:
    """The settings in force, written as a file, are the same settings."""
    for body in (
        {},
        SNIPPET,
        {"waiting": {"limit": "1h0.5s"}, "reservedSystemCPUs": 3, "refusals": {"deleteAfter": "24h"}},
    ):
        settings, _ = parse(body)
        shown = json.loads(json.dumps(settings.shown()))
        assert parse(shown)[0] == settings


def test_an_empty_file_is_the_defaults() -> None:
    """YAML's nothing is a configuration without keys."""
    assert parse(None) == parse({})


def test_what_has_an_effect_is_not_told() -> None:
    """Settings that are acted on come without a warning."""
    assert parse({"onMemoryShortage": "refuse", "refusals": {"deleteAfter": "24h"}})[1] == ()


@pytest.mark.parametrize("manager", ["CPUManager", "TopologyManager"])
@pytest.mark.parametrize("kind", ["", "Alpha", "Beta"])
def test_gates_that_open_the_kubelets_policy_options_are_not_told(manager: str, kind: str) -> None:
    """A kubelet's configuration that sets options has them: pasted as it is, it brings no warning."""
    assert parse({"featureGates": {f"{manager}Policy{kind}Options": True}})[1] == ()


def test_unneeded_gates_are_named_with_the_nearest() -> None:
    """A gate that no decision depends on is ignored with a warning that helps against typing errors."""
    _, warnings = parse({"featureGates": {"PodLevelResourceManager": True, "MemoryQoS": True}})
    assert warnings[0].startswith("ignored: featureGates.MemoryQoS: no decision")
    assert "did you mean PodLevelResourceManagers?" in warnings[1]


def test_the_quota_follows_the_gate() -> None:
    """DisableCPUQuotaWithExclusiveCPUs switched off keeps the quota, as in the kubelet (S16)."""
    assert parse({})[0].lifts_quota
    assert not parse({"featureGates": {"DisableCPUQuotaWithExclusiveCPUs": False}})[0].lifts_quota
    assert not parse({"liftCpuQuota": False})[0].lifts_quota


BAD: list[tuple[Any, str, str]] = [
    ([], "", "must be a mapping"),
    ({3: 4}, "", "keys are texts"),
    ({"apiVersion": "v1"}, "apiVersion", "remove it"),
    ({"kind": "Pod"}, "kind", "KubeletConfiguration"),
    ({"topologyManagerPolcy": "none"}, "topologyManagerPolcy", "did you mean topologyManagerPolicy?"),
    ({"maxpods": 5}, "maxpods", "did you mean maxPods?"),
    ({"zzz": 5}, "zzz", "is not a setting of numalign or of a kubelet up to 1.38; correct its name"),
    ({"reserved_system_cpus": "1"}, "reserved_system_cpus", "did you mean reservedSystemCPUs?"),
    ({"topologyManagerPolicy": "single"}, "topologyManagerPolicy", "'single-numa-node'"),
    ({"onMisalignment": None}, "onMisalignment", "nothing is not possible"),
    ({"observeOnly": None}, "observeOnly", "nothing is neither true nor false"),
    ({"topologyManagerScope": ["pod"]}, "topologyManagerScope", "write 'container' or 'pod'"),
    ({"topologyManagerPolicyOptions": {"nearest": "true"}}, "topologyManagerPolicyOptions", "unknown Topology"),
    ({"topologyManagerPolicyOptions": []}, "topologyManagerPolicyOptions", "must be a mapping"),
    ({"cpuManagerPolicyOptions": {"full-pcpus-only": {}}}, "cpuManagerPolicyOptions", "is not an option's value"),
    ({"cpuManagerPolicy": "none", "cpuManagerPolicyOptions": {"a": True}}, "cpuManagerPolicyOptions", "unsupported"),
    ({"cpuManagerReconcilePeriod": 10}, "cpuManagerReconcilePeriod", "like 10s"),
    ({"cpuManagerReconcilePeriod": "9" * 30 + "h"}, "cpuManagerReconcilePeriod", "time: invalid duration"),
    ({"cpuManagerReconcilePeriod": "3"}, "cpuManagerReconcilePeriod", 'time: invalid duration "3"; write one like'),
    ({"waiting": {"limit": "9" * 30 + "h"}}, "waiting.limit", "longer than a year"),
    ({"reservedSystemCPUs": "0-x"}, "reservedSystemCPUs", '"0-x" is no number or range'),
    ({"reservedSystemCPUs": "5-2"}, "reservedSystemCPUs", "invalid range"),
    ({"reservedSystemCPUs": [0]}, "reservedSystemCPUs", "in quotes"),
    ({"reservedSystemCPUs": "0", "systemReservedCgroup": "/s"}, "reservedSystemCPUs", "remove one of them"),
    ({"kubeReserved": {"gpu": 1}}, "kubeReserved", '"gpu" cannot be reserved'),
    ({"kubeReserved": {"cpu": "-1"}}, "kubeReserved", "negative"),
    ({"kubeReserved": {"cpu": "many"}}, "kubeReserved", "not a quantity"),
    ({"kubeReserved": 4}, "kubeReserved", "must be a mapping"),
    ({"kubeReserved": {"cpu": None}}, "kubeReserved", "cpu: has no value; write a quantity like 500m, or remove"),
    ({"systemReserved": {"memory": ""}}, "systemReserved", "memory: has no value; write a quantity like 1Gi"),
    ({"memoryManagerPolicy": "static"}, "memoryManagerPolicy", "did you mean Static?"),
    ({"reservedMemory": [{"numaNode": 0}]}, "reservedMemory[0].limits", "is missing"),
    (
        {"reservedMemory": [{"numaNode": 0, "limits": {"memory": 1}, "limit": 1}]},
        "reservedMemory[0].limit", "did you mean",
    ),
    ({"reservedMemory": [{"numaNode": -1, "limits": {"memory": 1}}]}, "reservedMemory[0].numaNode", "less than 0"),
    ({"reservedMemory": [{"numaNode": 0, "limits": {"cpu": 1}}]}, "reservedMemory[0].limits", "cannot be reserved"),
    ({"reservedMemory": [{"numaNode": 0, "limits": {"memory": 0}}]}, "reservedMemory[0].limits", "remove the line"),
    (
        {"reservedMemory": [{"numaNode": 0, "limits": {"memory": 1}}, {"numaNode": 0, "limits": {"memory": 2}}]},
        "reservedMemory[1].limits.memory", "twice",
    ),
    (
        {"memoryManagerPolicy": "Static", "reservedMemory": [{"numaNode": 1, "limits": {"memory": "-1Mi"}}]},
        "reservedMemory[0].limits.memory", "is negative",
    ),
    ({"evictionHard": {"memory.free": "1Gi"}}, "evictionHard", "no eviction signal"),
    ({"evictionHard": {"memory.available": "101%"}}, "evictionHard", "no percentage"),
    ({"evictionHard": {"memory.available": 5}}, "evictionHard", "in quotes"),
    ({"evictionHard": {"memory.available": ""}}, "evictionHard", '"" is not a threshold'),
    ({"evictionHard": {"memory.available": "0"}}, "evictionHard", 'not positive; write "0%" to switch'),
    ({"featureGates": {"A": "yes"}}, "featureGates.A", "neither true nor false"),
    (
        {"featureGates": {"PodLevelResourceManagers": True, "PodLevelResources": False}},
        "featureGates.PodLevelResourceManagers", "needs the gate",
    ),
    ({"onMisalignment": "wait", "enforcement": "cgroup"}, "onMisalignment", "set enforcement to auto"),
    ({"observeOnly": "no"}, "observeOnly", "neither true nor false"),
    ({"excludedNamespaces": ["Kube"]}, "excludedNamespaces[0]", "write namespaces"),
    ({"includedPods": ["web"]}, "includedPods[0]", "namespace/name"),
    ({"waiting": {"limit": "1h", "limits": 2}}, "waiting.limits", "did you mean limit?"),
    ({"waiting": 5}, "waiting", "write a mapping"),
    ({"waiting": {"sandboxesPerMinute": 0}}, "waiting.sandboxesPerMinute", "less than 1"),
    ({"refusals": {"fallback": "fail"}}, "refusals.fallback", "'wait' or 'run'"),
    ({"devices": [{"resource": "numalign.io/nic"}]}, "devices[0]", "selects every device"),
    ({"devices": [{"resource": "nic", "class": "02"}]}, "devices[0].resource", "a domain and a name"),
    ({"devices": [{"resource": "a.b/my nic", "class": "02"}]}, "devices[0].resource", "a domain and a name"),
    ({"devices": [{"resource": "a.kubernetes.io/x", "class": "02"}]}, "devices[0].resource", "belongs to Kubernetes"),
    ({"devices": [{"resource": "a.b/c", "class": "2"}]}, "devices[0].class", "hex digits"),
    ({"devices": [{"resource": "a.b/c", "vendor": 8086}]}, "devices[0].vendor", "in quotes"),
    ({"devices": [{"resource": "a.b/c", "addresses": ["3b:0"]}]}, "devices[0].addresses[0]", "0000:3b:00.0"),
    (
        {"devices": [{"resource": f"a.b/{n}", "addresses": ["0000:3b:00.0"]} for n in "cd"]},
        "devices[1].addresses", "selected twice",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("body", "key", "why"), BAD, ids=[f"{number}-{case[1]}" for number, case in enumerate(BAD)])
def test_one_sentence_names_key_and_remedy(body: Any, key: str, why: str) -> None:  # noqa: ANN401 - bad input is anything
    """Each unknown, malformed or impossible setting is one line that starts with its key."""
    with pytest.raises(SettingsError) as caught:
        parse(body)
    text = str(caught.value)
    assert caught.value.key == key
    assert text.startswith(f"{key}: ") or not key
    assert why in text
    assert "\n" not in text
    assert len(text) < 400


def test_the_schema_describes_every_setting() -> None:
    """The chart validates with it: it knows all keys, the kubelet's too, and refuses others."""
    found = schema()
    assert found["additionalProperties"] is False
    assert set(found["properties"]) >= {*IGNORED, "onMisalignment", "apiVersion", "reservedSystemCPUs"}
    assert found["properties"]["cpuManagerReconcilePeriod"]["default"] == "10s"
    json.dumps(found)
