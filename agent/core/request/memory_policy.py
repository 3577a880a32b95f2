"""Which memory policy a pod asks for: the annotation numalign.io/memory-policy. Pure.

    interleave   pages come in turn from each NUMA node of the container's memory
    preferred    pages come from the nodes of its own CPUs; from its other nodes while those are full
    bind         pages come from its nodes alone, as its cpuset has it, and automatic NUMA balancing leaves them there

Only a container whose memory is bound to several NUMA nodes gets one (`agent.core.cgroups.page_policies`). The
runtime sets it when it creates the container, by NRI: no program can change the policy of another one that runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from agent.model.idset import NodeSet
from agent.model.notes import PREFIX, longest
from agent.model.pod import Pod
from agent.model.rules import Rules

MEMORY_POLICY = f"{PREFIX}memory-policy"
SETTING = "nri.memoryPolicy"


class MemoryPolicyWish(StrEnum):
    """What the annotation may say."""

    INTERLEAVE = "interleave"
    PREFERRED = "preferred"
    BIND = "bind"


_KERNEL = {MemoryPolicyWish.PREFERRED: "prefer (many)"}
"""Where the kernel has another name than the annotation."""


@dataclass(frozen=True, slots=True)
class PagePolicy:
    """A policy over NUMA nodes. Its text is the one of /proc/PID/numa_maps."""

    wish: MemoryPolicyWish
    nodes: NodeSet

    def __str__(self) -> str:
        return f"{_KERNEL.get(self.wish, self.wish)}:{self.nodes}"


def wish_in(pod: Pod) -> MemoryPolicyWish | None:
    """Read what a pod asks for, whatever the node's settings are; None where it says nothing that can be read."""
    value = pod.annotations.get(MEMORY_POLICY, "")
    word = value.strip() if len(value) <= longest(MEMORY_POLICY) else ""
    return MemoryPolicyWish(word) if word in set(MemoryPolicyWish) else None


def wish_of(pod: Pod, rules: Rules) -> MemoryPolicyWish | None:
    """Read what a pod asks for; None where it says nothing that can be followed."""
    return wish_in(pod) if rules.memory_policies else None


def problem(pod: Pod, rules: Rules) -> str:
    """Say why a pod's annotation is not followed though it can be read; "" where it is."""
    if rules.memory_policies or wish_in(pod) is None:
        return ""
    return f"is switched off on this node ({SETTING}: false)"
