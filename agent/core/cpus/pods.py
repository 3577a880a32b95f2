"""Pods with pod-level resources that are managed as a whole (gate PodLevelResourceManagers, scope pod; rule 4.12).

The pod gets CPUs of its own, and its containers get theirs out of these: those that ask for whole CPUs exclusive
ones, all others what is left over, which they share. Used by `agent.core.cpus.provider`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from agent.core.request.amounts import AS_WHOLE, exclusive_count, pod_exclusive_count
from agent.model.idset import CpuSet
from agent.model.outcome import Refusal
from agent.model.pod import ContainerKind, Pod

NO_ROOM_FOR_INITS = "pod rejected, pod has shared init containers but no cpus available for them"
NO_ROOM_FOR_SHARED = (
    "pod rejected, sum of exclusive container cpu requests equals pod budget, leaving no cpus for shared containers"
)

Take = Callable[[CpuSet, int], CpuSet | Refusal]
NOTHING: Mapping[str, CpuSet] = {}


def empty_pool(pod: Pod) -> str:
    """Why containers that share would be left without a CPU; "" when they would not."""
    budget = pod_exclusive_count(pod, AS_WHOLE)
    sharing = False
    lasting = 0  # exclusive CPUs of sidecars and app containers so far
    for container in pod.containers:
        count = exclusive_count(pod, container, AS_WHOLE)
        if container.kind is ContainerKind.INIT:
            if count == 0 and lasting >= budget:
                return NO_ROOM_FOR_INITS
        elif count:
            lasting += count
        else:
            sharing = True
    return NO_ROOM_FOR_SHARED if sharing and lasting >= budget else ""


def is_prefix(pod: Pod, named: Mapping[str, CpuSet]) -> bool:
    """Say whether the containers named are the first of the pod, and no others (kubelet rule 4.12)."""
    return {container.name for container in pod.containers[: len(named)]} == set(named)


def partition(pod: Pod, own: CpuSet, take: Take, kept: Mapping[str, CpuSet] = NOTHING) -> dict[str, CpuSet] | Refusal:
    """Container name -> CPUs out of the pod's own.

    Init containers take from all that no sidecar before them holds; app containers take one after the other. What is
    kept from before stays, but for containers that share what is left.
    """
    shares: dict[str, CpuSet] = {}
    sidecars = CpuSet()
    left = own
    for container in pod.containers:
        count = exclusive_count(pod, container, AS_WHOLE)
        app = container.kind is ContainerKind.APP
        left = left if app else own - sidecars
        if not count:
            if container.kind is ContainerKind.INIT:
                shares[container.name] = kept.get(container.name, left)
            continue
        taken = kept[container.name] if container.name in kept else take(left, count)
        if isinstance(taken, Refusal):
            return taken
        shares[container.name] = taken
        if app:
            left -= taken
        elif container.kind is ContainerKind.SIDECAR:
            sidecars |= taken
            left = own - sidecars
    return {container.name: shares.get(container.name, left) for container in pod.containers}
