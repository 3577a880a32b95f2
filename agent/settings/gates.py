"""The kubelet's feature gates that decisions read, and the first minor that has each. Used by `agent.settings`.

A gate that the kubelet does not have yet stops its start; here it is refused where `compatibility` names that minor.
Under `compatibility: kubelet`, which follows each node's own kubelet, it does not count on an older one: one file may
serve nodes of several minors. Under `fixed` every gate counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from agent.errors import SettingsError
from agent.model.rules import Compatibility, Minor
from agent.settings.kinds import Answers

POD_LEVEL_MANAGERS = "PodLevelResourceManagers"
EMPTY_RESOURCES = "PodLevelResourcesFixKubeletQOSClass"
GATES: Mapping[str, Minor | None] = {
    "CPUManagerPolicyAlphaOptions": None,
    "CPUManagerPolicyBetaOptions": None,
    "CPUManagerPolicyOptions": None,
    "DisableCPUQuotaWithExclusiveCPUs": None,
    POD_LEVEL_MANAGERS: Minor.V1_36,
    "PodLevelResources": None,
    EMPTY_RESOURCES: Minor.V1_37,
    "TopologyManagerPolicyAlphaOptions": None,
    "TopologyManagerPolicyBetaOptions": None,
    "TopologyManagerPolicyOptions": None,
}
"""None: all known minors have it."""


def too_new(gate: str, minor: Minor) -> str:
    """Why a kubelet of this minor does not know a gate; "" where it does."""
    first = GATES.get(gate)
    return "" if first is None or minor >= first else f"is a gate of kubelet {first} and later, not of {minor}"


def check_gates(gates: Mapping[str, bool], answers: Answers) -> None:
    """Refuse gates that the kubelet which `compatibility` names does not have.

    Raises:
        SettingsError: names the gate and its first minor.
    """
    for gate in sorted(gates if answers.minor else ()):
        if answers.minor and (why := too_new(gate, answers.minor)):
            raise SettingsError(f"featureGates.{gate}", f"{why}; remove it, or change compatibility")


def gate_on(gates: Mapping[str, bool], gate: str, answers: Answers, minor: Minor, *, default: bool) -> bool:
    """Whether a gate is on in the kubelet whose answers are given."""
    if answers.mode is Compatibility.KUBELET and too_new(gate, minor):
        return False
    return gates.get(gate, default)


def uncounted(gates: Mapping[str, bool], answers: Answers, minor: Minor) -> Iterator[str]:
    """One sentence for each gate that is on in the settings and that the node's older kubelet does not have."""
    if answers.mode is Compatibility.KUBELET:
        for gate in sorted(gates):
            if gates[gate] and (why := too_new(gate, minor)):
                yield f"featureGates.{gate}: does not count on this node: it {why}"
