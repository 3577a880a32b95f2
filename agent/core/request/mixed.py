"""Which containers have shared CPUs beside their own: the annotation numalign.io/mixed. Pure.

    NAME,...    these containers: of each, one cpuset that holds its own CPUs and shared ones

Its own are for the work that must not be disturbed, the shared ones for the threads beside it. Only a container that
has CPUs of its own can be named, of a pod that is not managed as a whole. Which are shared is the node's setting:

    mixedSharedCPUs   reserved: the reserved CPUs, as they were when the pod was admitted
                      pool: the shared pool as it is
                      none: no annotation is followed

The first kind never changes while the container lives: it is kept in the books (`CpuBooks.mixed`), and these CPUs are
granted to no container, whatever becomes of the settings.

On its shared CPUs such a container may use more time than its limit (it has no quota: decision 28). So only CPUs on
which every pod may run are open to all: where strict-cpu-reservation keeps pods off the reserved ones, "*" in
exclusiveNamespaces does not open them. The administrator names the namespace itself.

Used by `agent.core.cpus.provider`, which takes them, and by the reports on what came of it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from agent.core.request import exclusive
from agent.core.request.amounts import exclusive_count
from agent.model.exclusive import NO_CONTAINER, parsed
from agent.model.idset import CpuSet
from agent.model.ledger import CpuBooks, Ledger
from agent.model.ledgerjson import POOL
from agent.model.notes import PREFIX, longest
from agent.model.pod import Container, Pod
from agent.model.rules import MixedCpus, Rules

MIXED = f"{PREFIX}mixed"
SETTING = "mixedSharedCPUs"


OWN_CPUS, SHARED_CPUS = "NUMALIGN_EXCLUSIVE_CPUS", "NUMALIGN_SHARED_CPUS"
"""What tells an application which CPUs are its own: environment variables, and lines of a file."""


def assigned(own: CpuSet, shared: CpuSet) -> dict[str, str]:
    """What a mixed container is told, in the kernel's list format."""
    return {OWN_CPUS: str(own), SHARED_CPUS: str(shared)}


def names_of(pod: Pod) -> frozenset[str]:
    """The containers that a pod names; none where it says nothing that can be read."""
    text = pod.annotations.get(MIXED)
    wish = None if text is None or exclusive.too_long(text) else parsed(text)
    return frozenset() if wish is None or wish.auto else wish.names


def takes_part(pod: Pod, container: Container, rules: Rules) -> bool:
    """Whether a container that gets CPUs of its own gets shared ones with them."""
    return not _barred(pod, rules) and container.name in names_of(pod)


def part(books: CpuBooks, rules: Rules, reserved: CpuSet, held: CpuSet) -> CpuSet | None:
    """The shared CPUs of a container that is admitted now, as the books have them; None where there are none.

    Args:
        books: before it.
        rules: the node's.
        reserved: what the system keeps.
        held: what anybody holds for itself: under other settings some of it may have been reserved later.
    """
    if rules.mixed is MixedCpus.POOL:
        return CpuSet() if books.shared else None
    return (reserved - held) or None


def problem(pod: Pod, rules: Rules) -> str:
    """Why a pod's annotation cannot be followed, or not all of it; "" where it can."""
    if MIXED not in pod.annotations:
        return ""
    if exclusive.too_long(pod.annotations[MIXED]):
        return f"goes on beyond {longest(MIXED)} characters"
    wish = parsed(pod.annotations[MIXED])
    if wish is None or wish.auto or wish == NO_CONTAINER:
        return "is no list of names of containers"
    return _barred(pod, rules) or _unmet(pod, wish.names, rules)


def _barred(pod: Pod, rules: Rules) -> str:
    if rules.mixed is MixedCpus.NONE:
        return f"is switched off on this node ({SETTING}: none)"
    if pod.pod_level:
        return "cannot be followed: the pod has pod-level resources, which the kubelet's own rules divide"
    if not exclusive.may_request(pod, rules):
        return f"is not for pods of namespace {pod.namespace} (exclusiveNamespaces in numalign's settings)"
    kept_off = rules.mixed is MixedCpus.RESERVED and rules.cpu.options.strict_reservation
    if kept_off and pod.namespace not in rules.exclusive_namespaces:
        return (
            f"is not for pods of namespace {pod.namespace}: strict-cpu-reservation keeps pods off the reserved CPUs, "
            "unless exclusiveNamespaces in numalign's settings names the namespace itself"
        )
    return ""


def _unmet(pod: Pod, names: frozenset[str], rules: Rules) -> str:
    there = {each.name: each for each in pod.containers}
    lost = sorted(names - there.keys())
    if lost:
        return f"names {lost[0]}, which is no container of the pod ({', '.join(there)[:200]})"
    alone = next((there[name] for name in sorted(names) if not _has_own(pod, there[name], rules)), None)
    return f"names {alone.name}, which has no CPUs of its own: {_why(pod, alone, rules)}" if alone else ""


def _has_own(pod: Pod, container: Container, rules: Rules) -> bool:
    return rules.cpu.static and bool(exclusive_count(pod, container, rules))


def _why(pod: Pod, container: Container, rules: Rules) -> str:
    if not rules.cpu.static:
        return "the CPU manager is off on this node (cpuManagerPolicy: none)"
    return exclusive.why_loose(container) or exclusive.left_out(pod, container, rules)


def parts_of(ledger: Ledger, uid: str) -> dict[str, str]:
    """What a pod's containers share beside their own CPUs, for people: container -> CPUs, or POOL."""
    own = ledger.cpus.assigned.get(uid, {})
    return {name: str(part) or POOL for name, part in ledger.cpus.mixed.get(uid, {}).items() if name in own}


def note(pod: Pod, rules: Rules, parts: Mapping[str, str], own: Collection[str]) -> str:
    """What is to be said of a pod's mixed containers: one sentence without an end; "" for none.

    The pool has no numbers here: it changes with every other pod, and this sentence would not be told again.

    Args:
        pod: it.
        rules: the node's.
        parts: see `parts_of`.
        own: its containers that have CPUs of their own.
    """
    late = sorted(names_of(pod) & set(own) - parts.keys())
    why = problem(pod, rules)
    if late and not why:
        why = f"{late[0]} has no shared CPUs beside its own: they are given when a pod is admitted, and not later"
    if why:
        return f"{MIXED}: {why}"
    return "; ".join(
        f"{name} may also run on the shared {'pool' if cpus == POOL else f'CPUs {cpus}'}"
        for name, cpus in sorted(parts.items())
    )
