"""In-place resize of a pod that is managed as a whole (PodLevelResourceManagers; kubelet rules 4.12 and 5.12).

It gives back what it does not request any more, and gets no more than it was admitted with. Nothing of it moves:

    exclusive    a container with CPUs that no other one of its pod uses keeps these, or as many as it requests
    init         an init container that has CPUs of its own keeps them: it may run, and may share them with none
    the rest     goes back, of the CPUs that the pod's other containers share; one of these is left for them
    no whole     (a pod that requests a fraction) all of its CPUs go back, and it shares the pool
    memory       its nodes hold less of it

Called by `agent.core.admission.resize`. Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from agent.core.cpus.provider import CpuManager
from agent.core.memory.books import Draft
from agent.core.request.amounts import AS_WHOLE, exclusive_count, pod_exclusive_count, pod_memory_requests
from agent.model.idset import CpuSet
from agent.model.ledger import Block, Ledger
from agent.model.pod import ContainerKind, Pod

Part = Callable[[CpuSet, int], CpuSet]
"""(CPUs, how many of them to keep) -> these."""


def as_a_whole(ledger: Ledger, uid: str) -> bool:
    """Say whether a pod was admitted as a whole."""
    return uid in ledger.cpus.pools or uid in ledger.memory.pools


def differs(ledger: Ledger, pod: Pod) -> bool:
    """Say whether it holds something else than it asks for, in its pool or in the shares of its containers."""
    uid, cpus, memory = pod.uid, ledger.cpus, ledger.memory
    if uid in cpus.pools and len(cpus.pools[uid]) != pod_exclusive_count(pod, AS_WHOLE):
        return True
    for container in pod.containers:
        count = exclusive_count(pod, container, AS_WHOLE)
        if uid in cpus.pools and count and count != len(cpus.assigned.get(uid, {}).get(container.name, ())):
            return True
    wanted = pod_memory_requests(pod, AS_WHOLE)
    return any(block.size != wanted.get(block.resource, 0) for block in memory.pools.get(uid, ()))


def given_back(ledger: Ledger, pod: Pod, cpus: CpuManager, part: Part, *, exact: bool) -> Ledger:
    """Take out of the ledger what the pod does not request any more.

    Args:
        ledger: where the pod is.
        pod: as it asks now.
        cpus: the CPU manager under the pod's options.
        part: chooses what a container keeps.
        exact: the memory books remember from which node each byte came (Compatibility.FIXED).
    """
    own = ledger.cpus.pools.get(pod.uid)
    count = pod_exclusive_count(pod, AS_WHOLE)
    if own and not count:
        ledger = cpus.release(ledger, pod.uid)
    elif own and count < len(own):
        ledger = _fewer_cpus(ledger, pod, cpus, part, count)
    return _less_memory(ledger, pod, exact=exact)


def _fewer_cpus(ledger: Ledger, pod: Pod, cpus: CpuManager, part: Part, count: int) -> Ledger:
    own, shares = ledger.cpus.pools[pod.uid], ledger.cpus.assigned.get(pod.uid, {})
    lasting = [each for each in pod.containers if each.kind is not ContainerKind.INIT]
    kept, spare = dict[str, CpuSet](), own
    for each in pod.containers:
        mine, wants = shares.get(each.name, CpuSet()), exclusive_count(pod, each, AS_WHOLE)
        beside = CpuSet.union(shares.get(other.name, CpuSet()) for other in lasting if other is not each)
        if wants and mine and (each not in lasting or mine.isdisjoint(beside)):
            kept[each.name] = part(mine, min(wants, len(mine)))
            spare -= mine
    firm, alone = (CpuSet.union(kept[each.name] for each in some if each.name in kept) for some in (
        pod.containers, lasting
    ))  # fmt: skip
    least = max(count, len(alone) + any(each.name not in kept for each in lasting))
    left = firm
    for some in (spare, own - firm - spare):
        left |= part(some - left, min(len(some - left), max(0, least - len(left))))
    common = left - alone
    after = {
        name: kept.get(name) or (common if any(each.name == name for each in lasting) else mine & left) or left
        for name, mine in shares.items()
    }
    return cpus.regranted_pod(ledger, pod.uid, left, after) if left != own else ledger


def _less_memory(ledger: Ledger, pod: Pod, *, exact: bool) -> Ledger:
    wanted, books = pod_memory_requests(pod, AS_WHOLE), ledger.memory
    draft, pool = Draft(books.nodes, exact=exact), list[Block]()
    for block in books.pools.get(pod.uid, ()):
        size = wanted.get(block.resource, block.size)
        if size >= block.size:
            pool.append(block)
            continue
        draft.give(block)
        entered = draft.enter(replace(block, size=size, split=()))
        if entered is None:
            return ledger
        pool.append(entered)
    if not pool or tuple(pool) == books.pools[pod.uid]:
        return ledger
    most = {block.resource: block.size for block in pool}
    blocks = {
        name: tuple(replace(each, size=min(each.size, most.get(each.resource, each.size))) for each in mine)
        for name, mine in books.blocks.get(pod.uid, {}).items()
    }
    return replace(
        ledger,
        memory=replace(
            books, nodes=draft.nodes, blocks={**books.blocks, pod.uid: blocks},
            pools={**books.pools, pod.uid: tuple(pool)},
        ),
    )  # fmt: skip
