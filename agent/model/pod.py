"""Pod and Container: what the managers need to know of a pod, already checked and normalised.

Made from untrusted manifests by `agent.model.podspec`. Resources map a name ("cpu", "memory", "hugepages-2Mi",
"vendor.com/gpu") to thousandths of a unit (`agent.model.quantity`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from agent.model.notes import PREFIX

Resources = Mapping[str, int]
UNSAVED: Mapping[str, object] = {"saved": False}
"""Metadata of a field of a value that is never saved or published."""


class Qos(StrEnum):
    """Quality of service class (kubelet rule 8.1)."""

    GUARANTEED = "Guaranteed"
    BURSTABLE = "Burstable"
    BEST_EFFORT = "BestEffort"


class Stage(StrEnum):
    """How far a pod has come, by what the cluster said of it."""

    NAMED = "named"  # its spec names the node: neither a scheduler nor the kubelet has said anything of it
    BOUND = "bound"  # a scheduler bound it, and the kubelet has said nothing of it yet
    ACCEPTED = "accepted"  # the kubelet has: it runs, or is about to
    LEAVING = "leaving"  # it has a deletion timestamp, and has not ended


class ContainerKind(StrEnum):
    """A sidecar is an init container whose own restartPolicy is Always."""

    INIT = "init"
    SIDECAR = "sidecar"
    APP = "app"


@dataclass(frozen=True, slots=True)
class Container:
    """One container of a pod; ephemeral containers take no part in admission and are not listed."""

    name: str
    kind: ContainerKind = ContainerKind.APP
    requests: Resources = field(default_factory=dict)
    limits: Resources = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod.

    Attributes:
        uid: identity; for a static pod the kubelet's config hash, since its cgroup carries that.
        containers: init containers and sidecars in spec order, then app containers in spec order: the order of
            admission everywhere.
        qos: status.qosClass where set, else computed.
        requests, limits: pod-level resources (spec.resources), None when the field is absent. An empty mapping is
            not None: it makes a computed QoS class BestEffort.
        overhead: spec.overhead; never part of what the managers grant.
        created: creationTimestamp in seconds since the epoch; order of admission is (created, uid).
        priority: spec.priority, 0 when unset.
        static: made by the kubelet from a file, not by the API.
        annotations: those of numalign.io/ only, the namespace's defaults already below them.
        filled_in: of `requests` those that the manifest lacks, and that the API server fills in. Not kept.
        untold: containers ("" for the pod's own resources) of which the kubelet's status says no amounts: theirs are
            the specification's (`agent.model.allocated`).
        stage: of a pod that no API server shows: ACCEPTED. No part of what is saved.
    """

    uid: str
    name: str
    namespace: str
    containers: tuple[Container, ...]
    qos: Qos
    requests: Resources | None = None
    limits: Resources | None = None
    overhead: Resources = field(default_factory=dict)
    created: float = 0.0
    priority: int = 0
    static: bool = False
    annotations: Mapping[str, str] = field(default_factory=dict)
    filled_in: frozenset[str] = field(default=frozenset(), compare=False, metadata=UNSAVED)
    untold: frozenset[str] = field(default=frozenset(), compare=False, metadata=UNSAVED)
    stage: Stage = field(default=Stage.ACCEPTED, compare=False, metadata=UNSAVED)

    @property
    def key(self) -> str:
        """namespace/name, for people."""
        return f"{self.namespace}/{self.name}"

    @property
    def pod_level(self) -> bool:
        """Whether pod-level resources are set in the managers' sense (rule 8.1): cpu, memory or hugepages-*."""
        if not self.requests and not self.limits:
            return False
        named = [*(self.requests or ()), *(self.limits or ())]
        return any(name in {"cpu", "memory"} or name.startswith("hugepages-") for name in named)


def weight(pod: Pod) -> int:
    """Bytes that a pod may cost in the checkpoint, about: what it says, and what is noted for each of its containers.

    A container with whole CPUs of its own counts nothing, nor do devices: the machine has only so many.
    """
    total = _PLAIN + sum(len(name) + len(text) + _QUOTES for name, text in pod.annotations.items())
    for resources in (pod.requests or {}, pod.limits or {}, pod.overhead):
        total += _amounts(resources)
    for each in pod.containers:
        milli = each.requests.get("cpu", 0)
        total += _amounts(each.requests) + _amounts(each.limits)
        if pod.qos is Qos.GUARANTEED and milli and not milli % 1000:
            continue
        total += _CONTAINER + 3 * len(each.name)
        if (
            pod.qos is Qos.GUARANTEED or f"{PREFIX}align" in pod.annotations
        ):  # it may hold memory, or a share of nodes: its id is noted
            total += _ID + len(pod.uid) + len(each.name)
            total += sum(_BLOCK + len(each.name) + len(name) for name in each.requests if name.startswith(_MEMORY))
    return total


_PLAIN, _CONTAINER, _BLOCK, _ID, _QUOTES = 900, 80, 80, 80, 6
_MEMORY = ("memory", "hugepages-")


def _amounts(resources: Resources) -> int:
    return sum(len(name) + len(str(milli)) + _QUOTES for name, milli in resources.items())


def at_once(amounts: Iterable[tuple[ContainerKind, int]]) -> int:
    """The most that a pod's containers use at once, of something that each has an amount of (kubelet rule 8.2).

    Args:
        amounts: kind and amount of each container, in the order of `Pod.containers`.

    Returns:
        What the long-running containers have together, or an init container beside the sidecars listed before it.
    """
    apps = beside = peak = 0
    for kind, amount in amounts:
        if kind is ContainerKind.APP:
            apps += amount
        elif kind is ContainerKind.SIDECAR:
            beside += amount
        else:
            peak = max(peak, beside + amount)
    return max(apps + beside, peak)
