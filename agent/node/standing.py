"""What a pod holds, where, in which state, and why: the one answer that every surface renders. Pure.

Page, tables, gauges and simulations ask here and translate `PodState` into their own documented terms.
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
    """The state of a pod."""

    ALIGNED = "aligned"  # it holds something, and that lies as its policy wants
    NOT_ALIGNED = "not-aligned"  # it holds something that lies otherwise
    SHARED = "shared"  # it holds nothing of its own: it runs on the shared pool
    OVERRULED = "runs-unaligned"  # its policy refused it, and it runs all the same (onMisalignment: run)
    LEFT_ALONE = "left-alone"  # numalign does not touch it (safety.md S2)
    WAITING = "waiting"  # refused, and in the queue for room
    REFUSED = "refused"
    UNSCHEDULABLE = "unschedulable"  # of a simulation: no node has enough left in sum
    ENDED = "ended"
    UNDECIDED = "undecided"  # neither bound by a scheduler nor accepted by the kubelet: no decision yet
    NOT_ENFORCED = "not-enforced"  # its cgroups differ from the ledger


@dataclass(frozen=True, slots=True)
class StandingPod:
    """What is true of one pod.

    Attributes:
        pod: as admitted, else as last seen.
        state: its state.
        why: one sentence on the state; "" where the state says all.
        record: its entry in the ledger; None for a pod without one.
        known: what is remembered beside the ledger; None for a pod of the ledger alone.
        unenforced: container -> what of its grant is not in force.
        ledger, node: the sources of `holdings`; the node is None where the machine is not known.
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
    """Say what a state knows of a pod; None for an unknown pod."""
    return standing_in(state.shown, state.node, state.pods, uid, state.unenforced.get(uid, IN_FORCE))


def standing_in(
    ledger: Ledger, node: Node | None, pods: Mapping[str, TrackedPod], uid: str, unenforced: Unenforced = IN_FORCE
) -> StandingPod | None:
    """Say what the saved parts of a state know of a pod; None for an unknown pod.

    Args:
        ledger: the grants.
        node: the managers; None where the machine is not known.
        pods: every known pod.
        uid: the pod.
        unenforced: container -> what of its grant is not in force.
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
    """Return the state that goes before the ledger's entry; None where that entry decides."""
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
