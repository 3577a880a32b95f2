"""Which uncore cache a CPU has, by the kubelet's rule.

Called by `agent.host.sysfs.discovery` and `agent.core.machines.synthetic`, so that both kinds of machine follow one
rule.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agent.model.machine import Cache

UNCORE_LEVEL = 3


def uncore_of(
    caches: Sequence[Cache], ids: Mapping[tuple[int, int], int], cores: Mapping[int, int], node_of: Mapping[int, int]
) -> dict[int, int]:
    """CPU -> id of its uncore cache; CPUs without one are left out.

    By cAdvisor's rule (rule 1.1): the first cache above level 2 seen from the core's first thread, unless it has as
    many CPUs as the NUMA node.

    Args:
        caches: sorted by level.
        ids: (level, lowest CPU) -> the kernel's id of the cache. Used when every such cache has one and all differ;
            else the cache's lowest CPU is its id.
        cores: CPU -> lowest CPU of its core.
        node_of: CPU -> NUMA node.
    """
    size: dict[int, int] = {}
    for node in node_of.values():
        size[node] = size.get(node, 0) + 1
    outer = [cache for cache in caches if cache.level >= UNCORE_LEVEL]
    numbers = {(cache.level, cache.cpus.first): ids.get((cache.level, cache.cpus.first)) for cache in outer}
    unique = None not in numbers.values() and len(set(numbers.values())) == len(outer)
    found: dict[int, int] = {}
    for cache in outer:
        number = numbers[cache.level, cache.cpus.first] if unique else None
        for cpu in cache.cpus:
            if len(cache.cpus) != size[node_of[cpu]]:
                found.setdefault(cpu, cache.cpus.first if number is None else number)
    return {cpu: found[core] for cpu, core in cores.items() if core in found}
