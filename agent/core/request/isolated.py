"""Which CPUs a pod wants, isolated (isolcpus) or not: the annotation numalign.io/isolated-cpus. Pure.

    prefer     isolated CPUs alone, where these lie as well as ordinary ones would; else as without the annotation
    avoid      none of them: a pod for which the ordinary ones do not suffice is refused
    require    isolated CPUs alone: a pod for which they do not suffice is refused

Without it, isolated CPUs come first within the NUMA nodes that were chosen, alone where they suffice: nothing else
runs there. A container gets both kinds only where one kind alone would lie worse (`agent.core.admission.unmixed`).
The kernel does not move threads between isolated CPUs: a program that does not place its threads itself runs all of
them where the first one started. So each container that has some is told.

The kubelet does not look at isolation; under Compatibility.KUBELET the annotation is not followed, and that is told.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from agent.model.idset import CpuSet
from agent.model.machine import Machine
from agent.model.notes import PREFIX
from agent.model.pod import Pod
from agent.model.rules import Compatibility, Rules

ISOLATED = f"{PREFIX}isolated-cpus"


class IsolatedCpus(StrEnum):
    """What the annotation may say."""

    PREFER = "prefer"
    AVOID = "avoid"
    REQUIRE = "require"


def wish_of(pod: Pod, rules: Rules) -> IsolatedCpus | None:
    """Read what a pod wants; None where it says nothing that can be followed."""
    word = pod.annotations.get(ISOLATED, "").strip()
    if not word or rules.compatibility is not Compatibility.FIXED:
        return None
    return IsolatedCpus(word) if word in set(IsolatedCpus) else None


def of_kind(cpus: CpuSet, isolated: CpuSet, kind: IsolatedCpus | None) -> CpuSet:
    """Leave out of some CPUs those that a wish excludes."""
    if kind is IsolatedCpus.REQUIRE:
        return cpus & isolated
    return cpus - isolated if kind is IsolatedCpus.AVOID else cpus


def is_mixed(cpus: CpuSet, isolated: CpuSet) -> bool:
    """Say whether some of the CPUs are isolated, and some are not."""
    return bool(cpus & isolated) and bool(cpus - isolated)


def counted(pod: Pod, rules: Rules) -> str:
    """Say which CPUs count for a pod; "" for all."""
    kind = wish_of(pod, rules)
    if kind is IsolatedCpus.REQUIRE:
        return f"only isolated CPUs count ({ISOLATED}: {kind})"
    return f"isolated CPUs do not count ({ISOLATED}: {kind})" if kind is IsolatedCpus.AVOID else ""


def problem(pod: Pod, rules: Rules) -> str:
    """Say why a pod's annotation is not followed though it can be read; "" where it is."""
    word = pod.annotations.get(ISOLATED, "").strip()
    if rules.compatibility is Compatibility.FIXED or word not in set(IsolatedCpus):
        return ""
    return f"is not followed: the answers are those of {rules.answers}, which does not look at isolation"


def note(own: Iterable[CpuSet | None], machine: Machine) -> str:
    """Say which of the CPUs of a pod's containers are isolated: one sentence without an end; "" for none."""
    found = CpuSet.union(cpus for cpus in own if cpus) & machine.isolated
    if not found:
        return ""
    which, them = (f"CPUs {found} are", "them") if len(found) > 1 else (f"CPU {found} is", "it")
    return f"{which} isolated: the kernel does not balance threads on {them}"
