"""The kubelet's feature gates that decisions read, and what each kubelet makes of them. Used by `agent.settings`.

A gate that the kubelet does not have yet, or that it has locked, stops its start; here it is refused where
`compatibility` names that minor. Under `compatibility: kubelet`, which follows each node's own kubelet, it does not
count on such a node: one file may serve nodes of several minors. Under `fixed` every gate counts. AllAlpha and
AllBeta stand for the gates of that stage which the file does not name
(k8s.io/component-base/featuregate, setUnsetAlphaGates; pkg/features/kube_features.go has the stages).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from agent.errors import SettingsError
from agent.model.rules import Compatibility, Minor
from agent.settings.kinds import Answers

ALL_ALPHA, ALL_BETA = "AllAlpha", "AllBeta"
ALPHA_OPTIONS, BETA_OPTIONS = "CPUManagerPolicyAlphaOptions", "CPUManagerPolicyBetaOptions"
QUOTA = "DisableCPUQuotaWithExclusiveCPUs"
TOPOLOGY_OPTIONS, TOPOLOGY_BETA_OPTIONS = "TopologyManagerPolicyOptions", "TopologyManagerPolicyBetaOptions"
POD_LEVEL = "PodLevelResources"
POD_LEVEL_MANAGERS = "PodLevelResourceManagers"
EMPTY_RESOURCES = "PodLevelResourcesFixKubeletQOSClass"
FIX_DEFAULTING = "PodLevelResourcesFixDefaulting"


@dataclass(frozen=True, slots=True)
class Gate:
    """A gate over the known minors.

    Attributes:
        alpha, beta, done: the first known minor that has it in this stage (done: stable, or deprecated); None: none.
        locked: the first minor that locks it to true.
    """

    alpha: Minor | None = None
    beta: Minor | None = None
    done: Minor | None = None
    locked: Minor | None = None

    @property
    def first(self) -> Minor:
        """The first minor that has it."""
        return min(each for each in (self.alpha, self.beta, self.done) if each)

    def all_of_stage(self, minor: Minor) -> str:
        """AllAlpha or AllBeta, whichever stands for it in this minor; "" for neither."""
        if self.done and minor >= self.done:
            return ""
        if self.beta and minor >= self.beta:
            return ALL_BETA
        return ALL_ALPHA if self.alpha and minor >= self.alpha else ""


_OLDEST = min(Minor)
GATES: Mapping[str, Gate] = {
    ALPHA_OPTIONS: Gate(alpha=_OLDEST),
    BETA_OPTIONS: Gate(beta=_OLDEST),
    "CPUManagerPolicyOptions": Gate(done=_OLDEST, locked=_OLDEST),
    QUOTA: Gate(beta=_OLDEST, done=Minor.V1_36, locked=Minor.V1_37),
    POD_LEVEL_MANAGERS: Gate(alpha=Minor.V1_36, beta=Minor.V1_37),
    POD_LEVEL: Gate(beta=_OLDEST),
    EMPTY_RESOURCES: Gate(beta=Minor.V1_37),
    FIX_DEFAULTING: Gate(beta=Minor.V1_37),
    "TopologyManagerPolicyAlphaOptions": Gate(alpha=_OLDEST),
    TOPOLOGY_BETA_OPTIONS: Gate(beta=_OLDEST),
    TOPOLOGY_OPTIONS: Gate(done=_OLDEST, locked=Minor.V1_36),
}
_NEEDS_POD_LEVEL: Mapping[str, Minor] = {
    "InPlacePodLevelResourcesVerticalScaling": Minor.V1_36,
    FIX_DEFAULTING: Minor.V1_37,
    EMPTY_RESOURCES: Minor.V1_37,
}
"""Gates that are on by default from this minor on and that the kubelet starts with only beside PodLevelResources."""


def in_force(gates: Mapping[str, bool], answers: Answers, minor: Minor) -> dict[str, bool]:
    """The gates that decisions read, as the file sets them by name or by stage.

    Under `fixed` the newest minor's stages count.
    """
    if answers.mode is Compatibility.FIXED:
        minor = max(Minor)
    found = {}
    for name, gate in GATES.items():
        stage = gate.all_of_stage(minor)
        if name in gates or stage in gates:
            found[name] = gates.get(name, gates.get(stage, False))
    return found


def needed(gate: str) -> bool:
    """Whether some decision depends on a gate."""
    return gate in GATES or gate in (ALL_ALPHA, ALL_BETA)


def too_new(gate: str, minor: Minor) -> str:
    """Why a kubelet of this minor does not know a gate; "" where it does."""
    first = GATES[gate].first if gate in GATES else _OLDEST
    return "" if minor >= first else f"is a gate of kubelet {first} and later, not of {minor}"


def check_gates(gates: Mapping[str, bool], answers: Answers) -> None:
    """Refuse gates with which the kubelet that `compatibility` names does not start.

    Raises:
        SettingsError: names the gate and why.
    """
    if not answers.minor:
        return
    minor = answers.minor
    for gate in sorted(gates):
        why = too_new(gate, minor)
        locked = GATES[gate].locked if gate in GATES else None
        if not why and locked and minor >= locked and not gates[gate]:
            why = f"feature is locked to true in kubelet {minor}"
        if why:
            raise SettingsError(f"featureGates.{gate}", f"{why}; remove it, or change compatibility")
    if not in_force(gates, answers, minor).get(POD_LEVEL, True):
        default = gates.get(ALL_BETA, True)
        on = [gate for gate, first in _NEEDS_POD_LEVEL.items() if minor >= first and gates.get(gate, default)]
        if on:
            raise SettingsError(
                f"featureGates.{POD_LEVEL}",
                f"{', '.join(on)} of kubelet {minor} depend on it; switch them off, too, or leave it on",
            )


def gate_on(gates: Mapping[str, bool], gate: str, answers: Answers, minor: Minor, *, default: bool) -> bool:
    """Whether a gate is on in the kubelet whose answers are given."""
    if answers.mode is Compatibility.KUBELET and too_new(gate, minor):
        return False
    return in_force(gates, answers, minor).get(gate, default)


def switched_off(gates: Mapping[str, bool], gate: str, answers: Answers, minor: Minor | None) -> bool:
    """Whether the file switches off a gate that is on by default, and the kubelet whose answers are given lets it."""
    locked = GATES[gate].locked
    if answers.mode is Compatibility.KUBELET and locked and (minor is None or minor >= locked):
        return False
    return not in_force(gates, answers, minor or max(Minor)).get(gate, True)


def uncounted(gates: Mapping[str, bool], answers: Answers, minor: Minor) -> Iterator[str]:
    """One sentence for each gate that is on in the settings and that the node's older kubelet does not have."""
    if answers.mode is Compatibility.KUBELET:
        for gate in sorted(gates):
            if gates[gate] and (why := too_new(gate, minor)):
                yield f"featureGates.{gate}: does not count on this node: it {why}"
