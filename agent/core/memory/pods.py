"""Memory of pods that are managed as a whole: PodLevelResourceManagers, scope pod (kubelet rule 5.12).

Used by `agent.core.memory.provider`. The pod's memory is taken once, as its *pool*; containers get shares of it, or
use what is left together. Nothing is accounted for the shares.
"""

from __future__ import annotations

from collections.abc import Mapping

from agent.core.request.amounts import AS_WHOLE, memory_requests, pod_memory_requests
from agent.model.idset import NodeSet
from agent.model.ledger import Block
from agent.model.outcome import Reason, Refusal
from agent.model.pod import ContainerKind, Pod

NO_ROOM_FOR_INIT = "pod rejected, pod has shared init containers but no {} available for them"
NO_ROOM_FOR_SHARED = (
    "pod rejected, sum of exclusive container {} requests equals pod budget, leaving no memory for shared containers"
)


def empty_pool(pod: Pod) -> Refusal | None:
    """A refusal if the containers with requests of their own leave nothing to those without."""
    total = pod_memory_requests(pod, AS_WHOLE)
    taken: dict[str, int] = {}
    shared = False

    def used_up(sentence: str) -> Refusal | None:
        for name, budget in total.items():
            if taken.get(name, 0) >= budget:
                return Refusal(Reason.EMPTY_POOL, sentence.format(name))
        return None

    for container in pod.containers:
        own = memory_requests(pod, container, AS_WHOLE)
        if container.kind is ContainerKind.INIT:
            refusal = None if own else used_up(NO_ROOM_FOR_INIT)
            if refusal:
                return refusal
            continue
        shared = shared or not own
        _add(taken, own)
    return used_up(NO_ROOM_FOR_SHARED) if shared else None


def shares(pod: Pod, nodes: NodeSet) -> dict[str, tuple[Block, ...]]:
    """The blocks of each container of a pod whose pool lies on these nodes."""
    total = pod_memory_requests(pod, AS_WHOLE)
    sidecars: dict[str, int] = {}
    apps: dict[str, int] = {}
    found: dict[str, tuple[Block, ...]] = {}
    sharing: list[str] = []
    for container in pod.containers:
        own = memory_requests(pod, container, AS_WHOLE)
        if own:
            found[container.name] = _blocks(own, nodes)
            if container.kind is not ContainerKind.INIT:
                _add(apps if container.kind is ContainerKind.APP else sidecars, own)
        elif container.kind is ContainerKind.INIT:  # alone but for the sidecars listed before it
            found[container.name] = _blocks(_less(total, sidecars), nodes)
        else:
            sharing.append(container.name)
    rest = _blocks(_less(_less(total, sidecars), apps), nodes)
    found.update(dict.fromkeys(sharing, rest))
    return {container.name: found[container.name] for container in pod.containers}


def pool_blocks(pod: Pod, nodes: NodeSet) -> tuple[Block, ...]:
    """The blocks of the pod as a whole."""
    total = pod_memory_requests(pod, AS_WHOLE)
    return tuple(Block(name, amount, nodes) for name, amount in total.items())


def _add(sums: dict[str, int], own: Mapping[str, int]) -> None:
    for name, amount in own.items():
        sums[name] = sums.get(name, 0) + amount


def _less(amounts: Mapping[str, int], taken: Mapping[str, int]) -> dict[str, int]:
    return {name: amount - taken.get(name, 0) for name, amount in amounts.items()}


def _blocks(amounts: Mapping[str, int], nodes: NodeSet) -> tuple[Block, ...]:
    return tuple(Block(name, amounts[name], nodes) for name in sorted(amounts) if amounts[name] > 0)
