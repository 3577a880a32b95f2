"""What the gatekeeper knows of pods and nodes, as the API tells it, and its settings. Values alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from agent.forecast.node_summary import NodeSummary
from agent.forecast.placing import ANYWHERE, OWN_KIND, BindingFacts, Placing, Term
from agent.forecast.scheduling import Strategy
from agent.model.pod import Pod

GATE = "numalign.io/fit"
"""The scheduling gate, and the type of the condition beside it."""
ASKS = "numalign.io/gate"
"""The annotation that asks for the gate; "false" takes a pod out."""
HOSTNAME = "kubernetes.io/hostname"
"""The label that NotIn names nodes by."""
EVERY = "0.0.0.0"  # noqa: S104 - what the API server takes an absent hostIP for
"""All addresses of a node."""


class Autoscaler(StrEnum):
    """What makes new nodes for pods that fit nowhere."""

    NONE = "none"  # a pod that fits nowhere stays gated
    CLUSTER_AUTOSCALER = "cluster-autoscaler"  # it is released with NotIn, so that the autoscaler sees it
    KARPENTER = "karpenter"  # it is released where no node takes it by sums; NotIn is never written


@dataclass(frozen=True, slots=True)
class GateOptions:
    """The settings.

    Attributes:
        most_names: names of a NotIn at most.
        strategy: how kube-scheduler scores nodes; pods go to the nodes that it would choose.
        autoscaler: what makes new nodes.
        wait: seconds that a pod is held at most.
        margin: seconds before an owner's clock runs out at which a pod is let go.
        summary_age: seconds without a sign of life of its agent after which a node's summary counts for nothing.
        look_up: seconds after a release at which an unseen pod is looked up, and a standing nomination is cleared.
        prefer_nodes: a pod that may not be nominated prefers its node in clusters of at most so many nodes.
        asks: decisions of nodes in one step at most to find places; the rest is asked in the next step.
        beside: decisions beside these, for the names of NotIn and for pods that may come.
        sentences: patches of pods that wait, beyond which no further pod gets its sentence until one is answered.
        gang_wait: seconds that the visible members of a gang wait for the missing ones.
        autoscaler_after: seconds that a pod that fits nowhere waits before the autoscaler may see it.
        own: namespace of the gatekeeper, whose pods are never gated.
        schedulers: whose pods may be gated.
    """

    most_names: int = 32
    strategy: Strategy = Strategy.LEAST_ALLOCATED
    autoscaler: Autoscaler = Autoscaler.NONE
    wait: float = 600.0
    margin: float = 5.0
    summary_age: float = 120.0
    look_up: float = 5.0
    prefer_nodes: int = 100
    asks: int = 400
    beside: int = 100
    sentences: int = 50
    gang_wait: float = 10.0
    autoscaler_after: float = 30.0
    own: str = ""
    schedulers: tuple[str, ...] = (OWN_KIND,)


@dataclass(frozen=True, slots=True)
class VolumeClaim:
    """A PersistentVolumeClaim that a pod mounts.

    Attributes:
        name: of the claim.
        exists: it is there.
        bound: a volume is bound to it.
        waits: its class binds with the first consumer (WaitForFirstConsumer).
        terms: node rules of its volume or its class: one must hold; None where every node will do.
    """

    name: str
    exists: bool = True
    bound: bool = True
    waits: bool = False
    terms: tuple[Term, ...] | None = None


@dataclass(frozen=True, slots=True)
class HostPort:
    """A port of the node that a container takes; the address is EVERY where the pod names none."""

    port: int
    protocol: str = "TCP"
    address: str = EVERY

    def clashes(self, other: HostPort) -> bool:
        """Tell whether two pods with these ports exclude each other on a node."""
        meets = self.address == other.address or EVERY in (self.address, other.address)
        return (self.port, self.protocol) == (other.port, other.protocol) and meets


@dataclass(frozen=True, slots=True)
class Gang:
    """Pods that start together.

    Attributes:
        key: the same for all of them: namespace, kind and name of the Job or the scheduling group.
        size: how many start together.
    """

    key: str
    size: int


@dataclass(frozen=True, slots=True)
class OwnerClock:
    """A clock of a pod's owner that runs while the pod is gated.

    Attributes:
        what: its name for people: "activeDeadlineSeconds of Job shop/train".
        ends: seconds since the epoch at which it runs out.
    """

    what: str
    ends: float


@dataclass(frozen=True, slots=True)
class FitCondition:
    """The condition `numalign.io/fit` of a pod, written by the gatekeeper alone.

    Attributes:
        fits: its status.
        reason: one word.
        message: one sentence; of a nominated pod it begins with the node's name and a colon.
    """

    fits: bool
    reason: str
    message: str

    @property
    def node(self) -> str:
        """Return the node that the condition names; "" for none."""
        name, colon, _ = self.message.partition(": ")
        return name if self.fits and colon else ""


TAKEN_BACK = FitCondition(fits=False, reason="Cleared", message="its nomination was taken back")
"""The condition of a pod whose nomination was cleared: it names no node, so that a later nomination is not ours."""


@dataclass(frozen=True, slots=True)
class UnboundPod:
    """A pod without a node, as the API tells it: gated by us or not.

    Attributes:
        pod: uid, names, priority, creation, requests and annotations, defaults of the namespace applied.
        version: metadata.resourceVersion.
        gates: spec.schedulingGates.
        nominated: status.nominatedNodeName, "" for none.
        condition: ours, None where it has none.
        told: seconds since the epoch of that condition's last change, 0 for none: where it is False, a new leader
            counts the wait from there.
        placing: selector, required affinity, tolerations, and what else decides and is unseen.
        claims: of volumes.
        ports: of the host.
        never_preempts: preemptionPolicy is Never.
        owner: "kind name" of its controller, "" for none.
        gang: None for a pod that starts alone.
        clocks: of its owner.
        deleting: it has a deletion timestamp.
        unschedulable: kube-scheduler tried it, and no node passed.
    """

    pod: Pod
    version: str = ""
    gates: tuple[str, ...] = (GATE,)
    nominated: str = ""
    condition: FitCondition | None = None
    told: float = 0.0
    placing: Placing = ANYWHERE
    claims: tuple[VolumeClaim, ...] = ()
    ports: tuple[HostPort, ...] = ()
    never_preempts: bool = False
    owner: str = ""
    gang: Gang | None = None
    clocks: tuple[OwnerClock, ...] = ()
    deleting: bool = False
    unschedulable: bool = False

    @property
    def gated(self) -> bool:
        """Tell whether our gate stands."""
        return GATE in self.gates

    @property
    def nominated_by_another(self) -> bool:
        """Tell whether it is nominated and our condition does not name that node: kube-scheduler, or the like."""
        return bool(self.nominated) and (self.condition is None or self.condition.node != self.nominated)


@dataclass(frozen=True, slots=True)
class SchedulerNode:
    """A Node object as the scheduler reads it.

    Attributes:
        facts: name, labels, taints, cordon.
        allocatable: resource -> thousandths.
        ready: its condition Ready.
        ports: of the host that its pods take, as far as they are seen.
    """

    facts: BindingFacts
    allocatable: Mapping[str, int] = field(default_factory=dict, hash=False)
    ready: bool = True
    ports: tuple[HostPort, ...] = ()

    @property
    def name(self) -> str:
        """Return its name."""
        return self.facts.name

    @property
    def hostname(self) -> str:
        """Return the value of the label that NotIn names nodes by; "" without one."""
        return self.facts.labels.get(HOSTNAME, "")


@dataclass(frozen=True, slots=True)
class PublishedSummary:
    """What the agent of a node published last.

    Attributes:
        digest: of the annotation's text: equal digests are equal summaries.
        summary: None where it cannot be decided by.
        alive: seconds since the epoch of the agent's last sign of life that the reader knows: the summary's own
            `changed`, a heartbeat of the agent's pod, or the like.
        why: one sentence where there is no summary.
    """

    digest: str
    summary: NodeSummary | None
    alive: float = 0.0
    why: str = ""
