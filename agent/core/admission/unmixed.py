"""Which kind of CPUs each container of a pod is to get, so that none is mixed of isolated and other CPUs. Pure.

The NUMA nodes of a pod are chosen by the number of free CPUs, whatever the kernel isolates. So a node may be chosen
on which a container gets both kinds, while another one that is as good has enough of one. Called by
`agent.core.admission.node` for machines with isolated CPUs: it tries the admission with containers kept to one kind,
and takes that where the pod lies as well as without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from agent.core.request.isolated import IsolatedCpus, is_mixed
from agent.model.idset import CpuSet
from agent.model.ledger import Ledger
from agent.model.pod import Pod

Kinds = Mapping[str, IsolatedCpus]
"""Container -> the kind of CPUs that it is kept to; absent: any."""
NO_KINDS: Kinds = {}
Attempt = Callable[[Kinds], Ledger | None]
"""The ledger with a pod that was admitted so; None where it was refused."""
Quality = Callable[[Ledger], tuple[int, ...]]
"""How well a pod lies; more is better, each number by itself."""
PLACED = 64
"""Containers that the tries for one pod place in all: each try places the whole pod, with a look ahead."""
_BOTH = (IsolatedCpus.REQUIRE, IsolatedCpus.AVOID)


def kinds_for(pod: Pod, isolated: CpuSet, attempt: Attempt, quality: Quality, *, prefers: bool) -> Kinds:
    """Find the kinds by which the fewest containers are mixed, and the pod lies as well as by none.

    Args:
        pod: the newcomer.
        isolated: the machine's.
        attempt: tries an admission.
        quality: of what that gave.
        prefers: the pod prefers isolated CPUs.
    """
    best: Kinds = {}
    found = attempt(best)
    if found is None:
        return best
    first, left = quality(found), _mixed(found, pod, isolated)
    for kinds in _preferred(pod) if prefers else _tries(pod, left):
        again = attempt({**best, **kinds})
        if again is None or any(now < was for now, was in zip(quality(again), first, strict=True)):
            continue
        mixed = _mixed(again, pod, isolated)
        if len(mixed) < len(left) + prefers:
            best, left = {**best, **kinds}, mixed
            if len(kinds) > 1 or not (left or prefers):
                break
    return best


def _tries(pod: Pod, mixed: list[str]) -> Iterator[Kinds]:
    """Keep each container that is mixed to one kind, then all containers; nothing where none is mixed."""
    for name in mixed[: _most(pod)]:
        for kind in _BOTH:
            yield {name: kind}
    for kind in _BOTH if mixed else ():
        yield {each.name: kind for each in pod.containers}


def _preferred(pod: Pod) -> Iterator[Kinds]:
    """Keep all containers to isolated CPUs, or at least some of them."""
    yield {each.name: IsolatedCpus.REQUIRE for each in pod.containers}
    for each in pod.containers[: 2 * _most(pod)] if len(pod.containers) > 1 else ():
        yield {each.name: IsolatedCpus.REQUIRE}


def _most(pod: Pod) -> int:
    """Count the containers for which both kinds can be tried one by one, before those of the pod as a whole."""
    return max(0, PLACED // len(pod.containers) // len(_BOTH) - 1)


def _mixed(ledger: Ledger, pod: Pod, isolated: CpuSet) -> list[str]:
    """Containers that have CPUs of both kinds; "" for the CPUs of a pod that is managed as a whole."""
    own = {**ledger.cpus.assigned.get(pod.uid, {}), "": ledger.cpus.pools.get(pod.uid, CpuSet())}
    return [name for name, cpus in own.items() if is_mixed(cpus, isolated)]
