"""The outcome of an admission: Admitted or Refused. A refusal is a value; its words are made at the edge.

`Reason` values are the kubelet's own reasons of a refusal (kubelet rule 2.2) plus ours; they are used verbatim in the
pod's condition, in Events, as a metric label and in logs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from agent.model.ledger import Ledger


class Reason(StrEnum):
    """Why a pod was refused."""

    TOPOLOGY = "TopologyAffinityError"
    SMT = "SMTAlignmentError"
    EMPTY_POOL = "EmptyPodSharedPoolError"
    UNEXPECTED = "UnexpectedAdmissionError"
    SHARED_POOL = "SharedPoolWouldBeEmpty"  # ours: the shared pool is never empty (safety rule S5)
    CEILING = "NamespaceCPUCeiling"  # ours: exclusiveCPUs, how many a namespace may hold on a node
    MEMORY = "InsufficientMemory"  # ours: none fits (defect D7), or it may not be bound (safety rule S7)


UNSAVED = "unsaved"
"""The fact of a refusal that the agent's own disk makes: it holds the pod until the ledger can be saved, and never
ends it."""
OBSTACLE = "obstacle"
"""The fact of a refusal that says in one sentence, with numbers, what is in the pod's way."""
HOLDER = "holder"
"""The same: which pod holds the room that is about to leave it."""
AS_OF = "as of this decision: "
"""Before what the last word says of a holder, which may have left since."""
COUNTED = "counted"
"""The same: which CPUs count, where the pod asks for some of them alone."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why one step said no.

    Attributes:
        reason: the machine-readable reason.
        message: the sentence, the kubelet's own where it has one.
        container: whose step it was, "" for the pod as a whole.
        facts: numbers behind it, for people and for explain.
    """

    reason: Reason
    message: str
    container: str = ""
    facts: Mapping[str, object] = field(default_factory=dict)

    @property
    def obstacle(self) -> str:
        """What is in the pod's way, with numbers; "" where the message says it, or nothing was looked for."""
        return "; ".join(str(self.facts[name]) for name in (OBSTACLE, HOLDER) if self.facts.get(name))

    def as_of(self) -> Refusal:
        """The same as the last word: a holder is named as of this decision. Itself where nothing changes."""
        holder = str(self.facts.get(HOLDER, ""))
        if not holder or holder.startswith(AS_OF):
            return self
        return replace(self, facts={**self.facts, HOLDER: f"{AS_OF}{holder}"})


@dataclass(frozen=True, slots=True)
class Admitted:
    """The pod is in; `ledger` holds its grants. Callers always go on with `outcome.ledger`, refused or not."""

    ledger: Ledger


@dataclass(frozen=True, slots=True)
class Refused:
    """The pod is not in.

    Attributes:
        refusal: why.
        ledger: what to go on with. Under Compatibility.FIXED it is the ledger as before. Under KUBELET the
            containers before the refused one were allocated and taken back, and taking back is not the exact
            inverse: memory of a group of nodes returns from the lowest node up (kubelet rules 2.3: the order of
            providers, 5.7: release).
    """

    refusal: Refusal
    ledger: Ledger


Outcome = Admitted | Refused
