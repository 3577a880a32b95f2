"""The largest aligned request that still fits: what fragmentation leaves of a node. Pure; for metrics and views."""

from __future__ import annotations

from collections.abc import Iterable

from agent.core.accounting.usage import NodeUse
from agent.model.machine import Machine


def largest_aligned(nodes: Iterable[NodeUse], machine: Machine, *, whole_cores: bool) -> dict[str, int]:
    """The largest request of each resource that one NUMA node could still meet.

    Args:
        nodes: the use of every node.
        machine: for its cores.
        whole_cores: full-pcpus-only is on: a CPU whose sibling is taken does not count.

    Returns:
        "cpu" -> CPUs, memory resources -> bytes.
    """
    found = {"cpu": 0}
    for node in nodes:
        free = node.free
        count = sum(len(core) for core in machine.cores if core.issubset(free)) if whole_cores else len(free)
        found["cpu"] = max(found["cpu"], count)
        for name, use in node.memory.items():
            found[name] = max(found.get(name, 0), use.free)
    return found
