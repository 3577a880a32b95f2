"""The outcome of an admission: Admitted or Refused. A refusal is a value, and carries its cause; edges render both.

`Reason` values are the kubelet's own reasons of a refusal (kubelet rule 2.2) plus ours; they are used verbatim in the
pod's condition, in Events, as a metric label and in logs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from agent.model.idset import NodeSet
from agent.model.ledger import Ledger
from agent.model.valuejson import value_to_json


class Reason(StrEnum):
    """Why a pod was refused."""

    TOPOLOGY = "TopologyAffinityError"
    SMT = "SMTAlignmentError"
    EMPTY_POOL = "EmptyPodSharedPoolError"
    UNEXPECTED = "UnexpectedAdmissionError"
    SHARED_POOL = "SharedPoolWouldBeEmpty"  # ours: the shared pool is never empty (safety rule S5)
    CEILING = "NamespaceCPUCeiling"  # ours: exclusiveCPUs, how many a namespace may hold on a node
    MEMORY = "InsufficientMemory"  # ours: none fits (defect D7), or it may not be bound (safety rule S7)
    BEHIND = "BehindWaitingPods"  # ours: it fits, and would delay a pod that came before it (safety rule S11)


UNSAVED = "unsaved"
"""The fact of a refusal that the agent's own disk makes: it holds the pod until the ledger can be saved, and never
ends it."""
HOLDER = "holder"
"""The fact of a refusal that says which pod holds the room that is about to leave it."""
NAMED = "holderNamed"
"""The same with the names of pods of other namespaces: for operators alone."""
FOREIGN = "foreign"
"""The fact of a refusal that a pod of another namespace is in the way: name and amounts are for operators alone."""
FOREIGN_FIRST = "it fits now, and would delay a pod of another namespace that came before"
AS_OF = "as of this decision: "
"""Before what the last word says of a holder, which may have left since."""
COUNTED = "counted"
"""The same: which CPUs count, where the pod asks for some of them alone."""
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class UnmetRequest:
    """One thing that a refused pod asks for, and that keeps it out.

    Attributes:
        resource: "cpu", "memory", huge pages of a size, or a device's name.
        amount: what is asked for: CPUs, bytes or pieces.
        free: NUMA node -> what is free there.
        fits: sets of NUMA nodes that would do for this alone; empty where none does.
    """

    resource: str
    amount: int
    free: Mapping[int, int] = field(default_factory=dict)
    fits: tuple[NodeSet, ...] = ()


@dataclass(frozen=True, slots=True)
class RefusalCause:
    """What is in a refused pod's way. It is made once, when the pod is refused (`agent.core.explain.cause`).

    Attributes:
        text: one sentence, with the numbers of the moment; "" where nothing is known but the message.
        lacks: the same for programs, where a merge of hints refused the pod.
        never: an empty node would refuse the pod, too.
    """

    text: str = ""
    lacks: tuple[UnmetRequest, ...] = ()
    never: bool = False


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why one step said no.

    Attributes:
        reason: the machine-readable reason.
        message: the sentence, the kubelet's own where it has one.
        container: whose step it was, "" for the pod as a whole.
        facts: numbers behind it, for people and for explain.
        cause: what is in the pod's way.
    """

    reason: Reason
    message: str
    container: str = ""
    facts: Mapping[str, object] = field(default_factory=dict)
    cause: RefusalCause = RefusalCause()

    @property
    def holder(self) -> str:
        """Which pod holds the room that is about to leave it; "" for none."""
        return str(self.facts.get(HOLDER, ""))

    @property
    def details(self) -> str:
        """What follows the message: the cause, unless the managers' sentence has its numbers, and the holder.

        A pod of another namespace is not named: a pod's condition and Events are read by its own tenant.
        """
        if FOREIGN in self.facts:
            return FOREIGN_FIRST
        numbers, known = _NUMBER.findall(self.cause.text), _NUMBER.findall(self.message)
        told = self.reason is not Reason.TOPOLOGY and set(numbers) <= set(known)
        return "; ".join(filter(None, ("" if told else self.cause.text, self.holder)))

    @property
    def text(self) -> str:
        """The message, which programs look for, and the details: for Events, conditions and the runtime."""
        return with_details(self.message, self.details)

    @property
    def plain(self) -> str:
        """What it means, for tables and pages of operators: the cause, else the message, and the holder."""
        said, holder = self.cause.text or self.message, str(self.facts.get(NAMED, self.holder))
        return said if holder in said else f"{said}; {holder}"

    def as_of(self) -> Refusal:
        """Name the holder as of this decision, for the last word; itself where no holder is named."""
        holder = self.holder
        if not holder or holder.startswith(AS_OF):
            return self
        names = self.facts.keys() & {HOLDER, NAMED}
        return replace(self, facts={**self.facts, **{name: f"{AS_OF}{self.facts[name]}" for name in names}})

    def to_json(self) -> dict[str, object]:
        """The refusal for programs."""
        return {
            "reason": self.reason.value, "message": self.message, "container": self.container,
            "facts": json.loads(json.dumps(dict(self.facts))), "cause": value_to_json(self.cause),
        }  # fmt: skip


def with_details(message: str, details: str) -> str:
    """Join a message and what follows it; either may be empty."""
    return ": ".join(filter(None, (message, details)))


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
