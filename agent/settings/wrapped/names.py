"""Providers' own names for the kubelet's settings -> KubeletConfiguration's.

    GKE        topologyManager.policy, memoryManager.policy
               (https://cloud.google.com/kubernetes-engine/docs/reference/rest/v1/NodeKubeletConfig)
    AKS        cpuCfsQuota, imageGcHighThreshold (https://learn.microsoft.com/azure/aks/custom-node-configuration)
    Gardener   evictionHard.memoryAvailable, kubeReserved.ephemeralStorage (core.gardener.cloud, KubeletConfig)
    kOps       evictionHard as a flag has it (kops.k8s.io/v1alpha2, KubeletConfigSpec)
    kubespray  kubelet_cpu_manager_policy, kube_cpu_reserved (https://kubespray.io/#/docs/ansible/vars)
    Bottlerocket  cpu-manager-policy (https://bottlerocket.dev/en/os/latest/#/api/settings/kubernetes/)

What a provider has beside these is no setting of the kubelet, and is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from itertools import islice

from agent.settings.kubelet_names import IGNORED
from agent.settings.kubelet_values import TAKEN
from agent.settings.wrapped import flags
from agent.settings.wrapped.part import Document, mapping_at

AKS_ONLY = frozenset(
    {
        "containerLogMaxSizeMB", "cpuCfsQuota", "cpuCfsQuotaPeriod", "imageGcHighThreshold", "imageGcLowThreshold",
        "podMaxPids",
    }
)  # fmt: skip
"""Names by which a file without kind is known to be of AKS."""


def with_groups(given: Document) -> dict[str, object]:
    """GKE's and AKS' names."""
    found = {key: value for key, value in given.items() if key not in ("topologyManager", "memoryManager")}
    for key, path in (
        ("topologyManagerPolicy", "topologyManager.policy"), ("topologyManagerScope", "topologyManager.scope"),
        ("memoryManagerPolicy", "memoryManager.policy"),
    ):  # fmt: skip
        group, _, name = path.partition(".")
        inner = mapping_at(given, group)
        if inner is not None and inner.get(name):
            found[key] = inner[name]
    return _known(found)


_RESOURCES = {"ephemeralStorage": "ephemeral-storage"}


def gardener(given: Document) -> dict[str, object]:
    """Gardener's names."""
    found = dict(given)
    hard = mapping_at(given, "evictionHard")
    if hard is not None:
        found["evictionHard"] = {_signal(name): value for name, value in hard.items()}
    for key in ("kubeReserved", "systemReserved"):
        inner = mapping_at(given, key)
        if inner is not None:
            found[key] = {_RESOURCES.get(str(name), name): value for name, value in inner.items()}
    return _known(found)


def _signal(name: object) -> object:
    """MemoryAvailable -> memory.available, imageFSInodesFree -> imagefs.inodesFree."""
    text = str(name)
    for ending in ("InodesFree", "Available"):
        if text.endswith(ending):
            return f"{text.removesuffix(ending).lower()}.{ending[0].lower()}{ending[1:]}"
    return name


def kops(given: Document) -> dict[str, object]:
    """KOps' names: what is a mapping in KubeletConfiguration may be a flag's text there."""
    found = dict(given)
    texts = {
        "evictionHard": "eviction-hard", "kubeReserved": "kube-reserved", "systemReserved": "system-reserved",
        "cpuManagerPolicyOptions": "cpu-manager-policy-options", "featureGates": "feature-gates",
    }  # fmt: skip
    for key, flag in texts.items():
        value = found.get(key)
        if isinstance(value, str):
            found |= flags.part_of({flag: value}, "").body
    gates = mapping_at(found, "featureGates")
    if gates is not None:
        found["featureGates"] = {name: _true_or_false(value) for name, value in gates.items()}
    return _known(found)


def bottlerocket(given: Document) -> dict[str, object]:
    """Bottlerocket's settings.kubernetes, of which the most is not the kubelet's."""
    found: dict[str, object] = {}
    for key in TAKEN:
        value = given.get(_kebab(key))
        if value is not None:
            found[key] = dict.fromkeys(map(str, value), "true") if isinstance(value, list) else value
    reserved = mapping_at(given, "memory-manager-reserved-memory") or {}
    entries = [_entry(node, limits) for node, limits in reserved.items() if isinstance(limits, Mapping)]
    if any(entries):
        found["reservedMemory"] = [entry for entry in entries if entry]
    reserved_cpus = given.get("reserved-cpus")
    if reserved_cpus is not None:
        found["reservedSystemCPUs"] = reserved_cpus
    return found


def _entry(node: object, limits: Document) -> dict[str, object]:
    if limits.get("enabled") is False:
        return {}
    text = str(node)
    number: object = int(text) if text.isdecimal() and len(text) < 6 else node  # noqa: PLR2004 - digits of a node
    return {"numaNode": number, "limits": {name: value for name, value in limits.items() if name != "enabled"}}


_KUBESPRAY_SETTINGS = {
    "kubelet_cpu_manager_policy": "cpuManagerPolicy",
    "kubelet_cpu_manager_policy_options": "cpuManagerPolicyOptions",
    "kubelet_topology_manager_policy": "topologyManagerPolicy",
    "kubelet_topology_manager_scope": "topologyManagerScope",
    "kubelet_reserved_system_cpus": "reservedSystemCPUs",
}
_KUBESPRAY_RESERVED = {"kube_reserved": "kubeReserved", "system_reserved": "systemReserved"}
_KUBESPRAY_EXTRA = ("kubelet_config_extra_args", "kubelet_node_config_extra_args")
KUBESPRAY = (*_KUBESPRAY_SETTINGS, *_KUBESPRAY_EXTRA, "kubelet_custom_flags")
"""Variables of an inventory by which it is known."""


def kubespray(given: Document) -> tuple[dict[str, object], list[str]]:
    """Kubespray's variables, and which of them are there; reservations hold where they are switched on."""
    found: dict[str, object] = {}
    keys = list[str]()
    for variable, name in _KUBESPRAY_SETTINGS.items():
        if given.get(variable):
            found[name] = given[variable]
            keys.append(variable)
    for switch, name in _KUBESPRAY_RESERVED.items():
        parts = {unit: given.get(f"{switch.removesuffix('_reserved')}_{unit}_reserved") for unit in ("cpu", "memory")}
        parts = {unit: value for unit, value in parts.items() if value is not None}
        if given.get(switch) is True and parts:
            found[name] = parts
            keys.append(switch)
    for variable in _KUBESPRAY_EXTRA:
        inner = mapping_at(given, variable)
        if inner is not None:
            found |= inner
            keys.append(variable)
    return found, keys


def _kebab(name: str) -> str:
    """CpuManagerPolicy -> cpu-manager-policy."""
    return "".join(f"-{letter.lower()}" if letter.isupper() else letter for letter in name)


def _true_or_false(value: object) -> object:
    return {"true": True, "false": False}.get(value.lower(), value) if isinstance(value, str) else value


def _known(found: Document) -> dict[str, object]:
    """Without what a provider alone has. What is nearly a setting's name stays, so that it is refused by name."""
    return {
        key: value
        for key, value in islice(found.items(), _MOST_KEYS)
        if key in TAKEN or key in IGNORED or get_close_matches(str(key)[:60].lower(), _LOWER, n=1, cutoff=0.85)
    }


_MOST_KEYS = 300
_LOWER = [name.lower() for name in TAKEN]
