"""OpenShift's KubeletConfig, and its PerformanceProfile: what the Node Tuning Operator makes of one.

The rules for a profile are those of the operator's own generator: static CPUs, a period of 5s, reserved CPUs from
spec.cpu.reserved (and spec.cpu.shared with mixed CPUs), the policy of spec.numa, static memory and its reservation
for restricted and single-numa-node, whole cores for single-numa-node. The annotation kubeletconfig.experimental goes
before the defaults
(https://github.com/openshift/cluster-node-tuning-operator/blob/main/docs/performanceprofile/performance_profile.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from agent.errors import MalformedError
from agent.model.idset import CpuSet
from agent.model.quantity import parse_milli, show_bytes, units
from agent.settings.wrapped.part import Document, KubeletPart, Load, mapping_at, named, place, value_at

_SNIPPET = "kubeletconfig.experimental"
_UNCORE = "kubeletconfig.prefer-align-cpus-by-uncorecache"
_HARD = {
    "memory.available": "100Mi", "nodefs.available": "10%", "imagefs.available": "15%", "nodefs.inodesFree": "5%",
}  # fmt: skip


def kubelet_config(document: Document, _: Load) -> Iterator[KubeletPart]:
    """spec.kubeletConfig, which goes over the settings of the node's MachineConfigPool."""
    found = mapping_at(document, "spec.kubeletConfig")
    if found is not None:
        sized = value_at(document, "spec.autoSizingReserved") is True
        notes = ("autoSizingReserved: each node chooses its systemReserved; it follows from the Node here",)
        yield KubeletPart(found, place("spec.kubeletConfig", document), notes=notes if sized else ())


_DERIVED = (
    "derived as the Node Tuning Operator does; isolated and offlined CPUs, huge pages and kernel arguments of the "
    "profile are no settings of a kubelet"
)


def performance_profile(document: Document, load: Load) -> Iterator[KubeletPart]:
    """What the operator makes of a profile, with what is not derived."""
    annotations = mapping_at(document, "metadata.annotations") or {}
    snippet = annotations.get(_SNIPPET)
    loaded = load(snippet) if isinstance(snippet, str) else []
    body: dict[str, object] = dict(loaded[0]) if loaded and isinstance(loaded[0], Mapping) else {}
    policy = value_at(document, "spec.numa.topologyPolicy") or "best-effort"
    body |= {
        "cpuManagerPolicy": "static", "cpuManagerReconcilePeriod": "5s", "topologyManagerPolicy": policy,
        "evictionHard": {**_HARD, **_inner(body, "evictionHard")},
        "kubeReserved": {"memory": "500Mi", **_inner(body, "kubeReserved")},
        "systemReserved": {"memory": "500Mi", **_inner(body, "systemReserved")},
    }  # fmt: skip
    reserved = _reserved(document)
    if reserved is not None:
        body["reservedSystemCPUs"] = reserved
    if policy in ("restricted", "single-numa-node"):
        body["memoryManagerPolicy"] = "Static"
        if not body.get("reservedMemory"):
            body["reservedMemory"] = [{"numaNode": 0, "limits": {"memory": _sum(body)}}]
    options: dict[str, object] = dict(_inner(body, "cpuManagerPolicyOptions"))
    if policy == "single-numa-node":
        options.setdefault("full-pcpus-only", "true")
    if _UNCORE in annotations:
        options["prefer-align-cpus-by-uncorecache"] = annotations[_UNCORE]
    if options:
        body["cpuManagerPolicyOptions"] = options
    yield KubeletPart(body, f"the settings that follow from {named(document)}", notes=(_DERIVED,))


def _reserved(document: Document) -> object:
    """spec.cpu.reserved, with the shared CPUs where containers may be mixed."""
    reserved, shared = value_at(document, "spec.cpu.reserved"), value_at(document, "spec.cpu.shared")
    if value_at(document, "spec.workloadHints.mixedCpus") is not True or not shared:
        return reserved
    try:
        return str(CpuSet.parse(str(reserved)) | CpuSet.parse(str(shared)))
    except MalformedError:
        return reserved  # refused by the setting's own check


def _inner(body: Document, key: str) -> Document:
    return mapping_at(body, key) or {}


def _sum(body: Document) -> str:
    """KubeReserved + systemReserved + hard eviction of memory, as the operator adds them up."""
    texts = (
        _inner(body, "kubeReserved").get("memory"), _inner(body, "systemReserved").get("memory"),
        _inner(body, "evictionHard").get("memory.available"),
    )  # fmt: skip
    try:
        return show_bytes(sum(units(parse_milli(text)) for text in texts))
    except MalformedError:
        return "0"  # of a percentage: refused by the setting's own check
