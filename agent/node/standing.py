"""What a pod holds, where, in which state, and why: the one answer that every surface renders. Pure.

Page, tables, gauges and simulations ask here and translate `PodState` into their own documented words.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from agent.core.admission.node import Node
from agent.core.admission.waiting import FINAL
from agent.core.cgroups.enforced import IN_FORCE, Unenforced
from agent.core.cgroups.enforced import sentence as not_in_force
from agent.core.explain.grants import holdings_of
from agent.core.explain.values import Holding
from agent.model.ledger import Ledger, PodRecord
from agent.model.pod import Pod
from agent.node.state import State
from agent.node.tracked_pod import TrackedPod
from agent.node.wait_queue import waits

UNDECIDED = (
    "its spec names this node, no scheduler bound it, and the kubelet has not accepted it yet: it holds nothing, and "
    "is decided on as soon as the kubelet has"
)
GONE = "it ended; what it held is freed when no process is left in its cgroups"


class PodState(StrEnum):
    """What is true of a pod, in one word."""

    ALIGNED = "aligned"  # it holds something, and that lies as its policy wants
    NOT_ALIGNED = "not-aligned"  # it holds something that does not
    SHARED = "shared"  # it holds nothing of its own: it runs on the shared pool
    OVERRULED = "runs-unaligned"  # its policy refused it, and it runs all the same (onMisalignment: run)
    LEFT_ALONE = "left-alone"  # numalign does not touch it (safety.md S2)
    WAITING = "waiting"  # refused, and in the line
    REFUSED = "refused"
    UNSCHEDULABLE = "unschedulable"  # of a simulation: no node has the sums for it
    ENDED = "ended"
    UNDECIDED = "undecided"  # nothing has bound it, or accepted it, so nothing is decided
    NOT_ENFORCED = "not-enforced"  # the kernel does not have what the ledger says


@dataclass(frozen=True, slots=True)
class StandingPod:
    """One pod.

    Attributes:
        pod: as admitted, else as last seen.
        state: in one word.
        why: one sentence where there is something to say.
        record: of the ledger, None where it is not in.
        known: what is remembered beside the ledger, None where nothing is.
        unenforced: container -> what of its grant is not in force.
        ledger, node: where `holdings` are read; the node is None where the machine is not known.
    """

    pod: Pod
    state: PodState
    why: str
    record: PodRecord | None
    known: TrackedPod | None
    unenforced: Unenforced
    ledger: Ledger = field(repr=False)
    node: Node | None = field(repr=False)

    @property
    def holdings(self) -> tuple[Holding, ...]:
        """What each container holds, or shares."""
        return holdings_of(self.node, self.ledger, self.pod)


def standing_of(state: State, uid: str) -> StandingPod | None:
    """The standing of a pod in a state; None for a pod that is not known."""
    return standing_in(state.shown, state.node, state.pods, uid, state.unenforced.get(uid, IN_FORCE))


def standing_in(
    ledger: Ledger, node: Node | None, pods: Mapping[str, TrackedPod], uid: str, unenforced: Unenforced = IN_FORCE
) -> StandingPod | None:
    """The same of the parts of a state, as they are saved.

    Args:
        ledger: the grants.
        node: the managers; None where the machine is not known.
        pods: every known pod.
        uid: of the pod.
        unenforced: what of its grant is not in force.
    """
    known, record = pods.get(uid), ledger.pods.get(uid)
    pod = record.pod if record else known.pod if known else None
    if pod is None:
        return None
    state, why = _state(ledger, node, known, record, uid)
    if unenforced and state in (PodState.ALIGNED, PodState.NOT_ALIGNED, PodState.SHARED):
        state, why = PodState.NOT_ENFORCED, not_in_force(unenforced)
    return StandingPod(pod, state, why, record, known, unenforced, ledger, node)


def _state(
    ledger: Ledger, node: Node | None, known: TrackedPod | None, record: PodRecord | None, uid: str
) -> tuple[PodState, str]:
    said = _remembered(known, node, inside=record is not None) if known else None
    if said is not None or record is None:
        return said or (PodState.SHARED, "")
    why = next(filter(None, (record.why_of(each.name) for each in record.pod.containers)), "")
    if not ledger.holds(uid):
        return PodState.SHARED, why
    return PodState.ALIGNED if record.is_aligned else PodState.NOT_ALIGNED, why


def _remembered(known: TrackedPod, node: Node | None, *, inside: bool) -> tuple[PodState, str] | None:
    """What counts more than the ledger's entry; None where that entry says all."""
    if known.ended:
        return PodState.ENDED, GONE
    if known.exempt:
        return PodState.LEFT_ALONE, known.exempt
    if not known.decided:
        return PodState.UNDECIDED, UNDECIDED
    if known.refusal is None:
        return None
    waiting = node and FINAL not in known.refusal.facts and not known.unsaved and waits(known, node.rules)
    state = PodState.OVERRULED if inside else PodState.WAITING if waiting else PodState.REFUSED
    return state, known.refusal.plain
