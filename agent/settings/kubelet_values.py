"""KubeletConfiguration's fields that numalign reads, and how the kubelet reads what is written for them.

A key without a value is a key that is not there, and so is an empty text: both come of rendered
templates and of lines that are commented out. Used by `agent.settings.parsing`.
"""

from __future__ import annotations

from collections.abc import Mapping

POLICIES = ("cpuManagerPolicy", "memoryManagerPolicy", "topologyManagerPolicy", "topologyManagerScope")
_TEXTS = (*POLICIES, "reservedSystemCPUs")
TAKEN = frozenset(
    {
        *_TEXTS, "cpuManagerPolicyOptions", "cpuManagerReconcilePeriod", "evictionHard", "featureGates",
        "kubeReserved", "mergeDefaultEvictionSettings", "reservedMemory", "systemReserved",
        "topologyManagerPolicyOptions",
    }
)  # fmt: skip
"""Of these numalign does what the kubelet does; the others that the kubelet knows are `kubelet_names.IGNORED`."""
_YES_OR_NO = {"y": True, "Y": True, "n": False, "N": False}
"""YAML 1.1 as the kubelet's decoder reads it; PyYAML leaves these four as texts."""


def as_the_kubelet_reads(document: Mapping[str, object]) -> dict[str, object]:
    """The document without what the kubelet takes as unset, and with YAML 1.1's short booleans."""
    found = {key: value for key, value in document.items() if not (key in TAKEN and value is None)}
    for key in _TEXTS:
        if found.get(key) == "":
            del found[key]
    if found.get("reservedSystemCPUs") is not None:  # they replace both numbers, which are then not read
        for key in ("kubeReserved", "systemReserved"):
            part = found.get(key)
            if isinstance(part, Mapping) and part.get("cpu", 0) in (None, ""):
                found[key] = {name: amount for name, amount in part.items() if name != "cpu"}
    merges = found.get("mergeDefaultEvictionSettings")
    if isinstance(merges, str):
        found["mergeDefaultEvictionSettings"] = _YES_OR_NO.get(merges, merges)
    gates = found.get("featureGates")
    if isinstance(gates, Mapping):
        found["featureGates"] = {name: _gate(value) for name, value in gates.items()}
    reserved = found.get("reservedMemory")
    if isinstance(reserved, list):
        found["reservedMemory"] = [_reservation(each) for each in reserved]
    return found


def _gate(value: object) -> object:
    if value is None:
        return False
    return _YES_OR_NO.get(value, value) if isinstance(value, str) else value


def _reservation(entry: object) -> object:
    if not isinstance(entry, Mapping):
        return entry
    found = {key: value for key, value in entry.items() if value is not None}
    node = found.get("numaNode")
    if isinstance(node, float) and node.is_integer():
        found["numaNode"] = int(node)
    return found
