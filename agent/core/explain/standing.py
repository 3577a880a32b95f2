"""What an explanation is told of a pod beside the ledger. Apart from the explainer, which loads slowly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from agent.core.devices.kubelet import Given
from agent.model.outcome import Refusal


@dataclass(frozen=True, slots=True)
class PodStanding:
    """What is known of a pod beside the ledger.

    Attributes:
        refusal: why it was refused, as decided last; None when it was not, or for unknown.
        exempt: why it is left alone (safety rule S2), "" when it is not.
        given: devices that the kubelet gave it.
        hypothetical: no agent has seen the pod yet: "would be refused" instead of "is refused".
        room: what the machine has for pods, even when empty, resource -> thousandths; None where it is not asked.
        claims: it uses DRA claims that are not followed.
    """

    refusal: Refusal | None = None
    exempt: str = ""
    given: Given = field(default_factory=dict)
    hypothetical: bool = False
    room: Mapping[str, int] | None = None
    claims: bool = False
