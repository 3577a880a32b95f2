"""What happens around the gatekeeper, and what it wants done. Values alone.

Effects of one step are carried out in order; what the API answers comes back as an event (`PatchAnswered`,
`LookedUp`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from agent.forecast.gate.values import FitCondition, PublishedSummary, SchedulerNode, UnboundPod

# ---- events


@dataclass(frozen=True, slots=True)
class PodSeen:
    """The watch on pods without a node named this one: it is new, or has changed."""

    pod: UnboundPod


@dataclass(frozen=True, slots=True)
class PodGone:
    """A pod left the watch: it was bound or deleted, and the event does not tell which."""

    uid: str


@dataclass(frozen=True, slots=True)
class PodBound:
    """A pod was bound before the gatekeeper began, and has not started: its node's summary may be older than that.

    Attributes:
        pod: without gate and nomination.
        node: where it is bound.
        at: seconds since the epoch of the binding, as the API rounds it down.
    """

    pod: UnboundPod
    node: str
    at: float


@dataclass(frozen=True, slots=True)
class LookedUp:
    """Answer of a `LookUp`.

    Attributes:
        uid: of the pod.
        node: where it is bound; "" for a pod without a node.
        gone: it does not exist any more.
        refused: its node refused it, or lets it wait (its condition of the agent).
        undecided: its node's agent has told nothing of it yet, and it has not started.
        unanswered: the API server gave no good answer: it is to be asked again.
    """

    uid: str
    node: str = ""
    gone: bool = False
    refused: bool = False
    undecided: bool = False
    unanswered: bool = False


@dataclass(frozen=True, slots=True)
class NodeSeen:
    """A Node is new, or has changed in what `SchedulerNode` has."""

    node: SchedulerNode


@dataclass(frozen=True, slots=True)
class NodeGone:
    """A Node was deleted."""

    name: str


@dataclass(frozen=True, slots=True)
class SummarySeen:
    """The agent of a node published a summary, or gave a sign of life.

    Attributes:
        node: its name.
        published: None where the object is gone.
    """

    node: str
    published: PublishedSummary | None


class Answer(StrEnum):
    """What the API server said to a patch."""

    DONE = "done"
    CONFLICT = "conflict"  # another writer was first: the watch brings the pod as it is now
    GONE = "gone"  # the pod is not there any more
    FAILED = "failed"  # it may be tried again


@dataclass(frozen=True, slots=True)
class PatchAnswered:
    """A patch was answered.

    Attributes:
        effect: that asked for it.
        answer: of the server; of a `Nominate` that of the last patch that was sent.
        nominated: of a `Nominate`: its first patch was done.
        version: the resourceVersion that the server named.
    """

    effect: Nominate | Release | ClearNomination | LiftUndecided | Tell
    answer: Answer
    nominated: bool = False
    version: str = ""


Event = PodSeen | PodGone | PodBound | LookedUp | NodeSeen | NodeGone | SummarySeen | PatchAnswered

# ---- effects


@dataclass(frozen=True, slots=True)
class Release:
    """Patch a pod: test that our gate stands, remove it, and add node affinity, all in one request.

    Attributes:
        uid, key: of the pod.
        version: resourceVersion that the patch requires; "" after `Nominate`: the one that its answer named.
        not_in: values of the hostname label for one NotIn requirement in every required term; () for none.
        prefer: hostname of the node that a preferred affinity of weight 100 names; "" for none.
    """

    uid: str
    key: str
    version: str
    not_in: tuple[str, ...] = ()
    prefer: str = ""


@dataclass(frozen=True, slots=True)
class Nominate:
    """Patch a pod's status with the node and the condition; then release it at once.

    Attributes:
        uid, key: of the pod.
        node: status.nominatedNodeName.
        version: resourceVersion that the patch requires.
        condition: written by the same patch; it names the node.
        release: to send as soon as the first patch is done. Where it is refused, the nomination is cleared.
    """

    uid: str
    key: str
    node: str
    version: str
    condition: FitCondition
    release: Release


@dataclass(frozen=True, slots=True)
class ClearNomination:
    """Patch a pod's status: nominatedNodeName is emptied.

    Attributes:
        uid, key: of the pod.
        node: that the field names now.
        version: resourceVersion that the patch requires.
        why: for the log.
    """

    uid: str
    key: str
    node: str
    version: str
    why: str


@dataclass(frozen=True, slots=True)
class LiftUndecided:
    """Patch a pod: our gate is removed, and nothing else; kube-scheduler and the node decide as ever.

    Attributes:
        uid, key: of the pod.
        version: resourceVersion that the patch requires.
        why: one sentence, for an Event and the log.
    """

    uid: str
    key: str
    version: str
    why: str


@dataclass(frozen=True, slots=True)
class Tell:
    """Patch a pod's status with our condition; sent only where the sentence differs from the one that stands.

    Attributes:
        uid, key: of the pod.
        version: resourceVersion that the patch requires.
        condition: False, with the sentence.
        since: seconds since the epoch at which its wait began; the condition carries it to the next leader.
    """

    uid: str
    key: str
    version: str
    condition: FitCondition
    since: float


@dataclass(frozen=True, slots=True)
class LookUp:
    """GET a pod that left the watch and that no summary shows; answered by `LookedUp`."""

    uid: str
    key: str


Effect = Nominate | Release | ClearNomination | LiftUndecided | Tell | LookUp
