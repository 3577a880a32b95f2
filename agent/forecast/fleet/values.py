"""What was read of a fleet. A node without a usable summary says why; nothing here is a fault."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from agent.forecast.node_summary import NodeSummary
from agent.model.pod import Pod


class Lack(StrEnum):
    """Why a node's summary cannot be decided by."""

    MISSING = "missing"
    NEWER = "newer version"
    TOO_LARGE = "too large"
    BROKEN = "broken"
    STALE = "stale"
    GONE = "node is gone"


@dataclass(frozen=True, slots=True)
class FleetPod:
    """A pod of the cluster, as far as it is listed.

    Attributes:
        pod: what it asks for; None where it cannot be read.
        key: namespace/name.
        node: where it is bound, "" for nowhere.
        phase: status.phase.
        bound: seconds since the epoch when it was bound, 0 for unknown.
        reason, message, since: of the condition numalign.io/Aligned, "" and 0 for none.
        refused: that condition says that its policy refused it.
        gated: the gatekeeper's gate stands.
        told: seconds since the epoch of the last change of the gatekeeper's condition, 0 for none.
        promised: the node that the gatekeeper released it to, by that condition; "" for none.
        unscheduled: why it is not bound, in the words of kube-scheduler, or of the gatekeeper that holds it.
        spec: the raw specification of a pod that has not started, is misaligned or was refused; {} for others.
        problem: why `pod` is None.
    """

    pod: Pod | None
    key: str
    node: str = ""
    phase: str = ""
    bound: float = 0.0
    reason: str = ""
    message: str = ""
    since: float = 0.0
    refused: bool = False
    gated: bool = False
    told: float = 0.0
    promised: str = ""
    unscheduled: str = ""
    spec: Mapping[str, Any] = field(default_factory=dict, hash=False)
    problem: str = ""

    @property
    def ended(self) -> bool:
        """Its containers will not run again."""
        return self.phase in ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class FleetNode:
    """One node.

    Attributes:
        name: of the Node, and of its NodeResourceTopology.
        summary: what it published last; also where that is stale.
        lack: why it cannot be decided by; None where it can.
        why: the same, one sentence.
        body: of the Node metadata.name and labels, spec.taints and unschedulable; {} where Nodes were not read.
        allocatable: resource -> thousandths; {} where the Node was not read.
        ready: of the condition Ready; None where nothing says.
        pods: those that were listed and are bound here.
    """

    name: str
    summary: NodeSummary | None = None
    lack: Lack | None = None
    why: str = ""
    body: Mapping[str, Any] = field(default_factory=dict, hash=False)
    allocatable: Mapping[str, int] = field(default_factory=dict, hash=False)
    ready: bool | None = None
    pods: tuple[FleetPod, ...] = ()

    @property
    def usable_summary(self) -> NodeSummary | None:
        """The summary where it can be decided by."""
        return None if self.lack else self.summary


@dataclass(frozen=True, slots=True)
class Fleet:
    """All nodes, by name.

    Attributes:
        nodes: in the order of their names.
        unbound: pods that no node has yet, in order of creation.
        defaults: namespace -> annotations that its pods have by default; they are in the pods already.
        read: seconds since the epoch when it was read.
        notes: what could not be read, one sentence each.
    """

    nodes: tuple[FleetNode, ...]
    unbound: tuple[FleetPod, ...] = ()
    defaults: Mapping[str, Mapping[str, str]] = field(default_factory=dict, hash=False)
    read: float = 0.0
    notes: tuple[str, ...] = ()

    def node(self, name: str) -> FleetNode | None:
        """The node of that name."""
        return next((each for each in self.nodes if each.name == name), None)
