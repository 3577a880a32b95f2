"""Equal neighbours, so that a large machine stays readable: "node 3-17: same as node 2".

Used by the drawing and by `agent.observe.tree`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from agent.model.idset import CpuSet, IdSet
from agent.model.machine import NumaNode
from agent.observe.drawing.units import Unit
from agent.observe.drawing.words import cpu_list, device_kind, size

FEWEST = 3
"""Shorter runs are shown one by one: folding two saves nothing."""
MEMORY_SLACK = 0.05
"""Nodes are alike although the kernel keeps some of the memory of one of them for itself."""

Special = Callable[[Unit], bool]


def runs(units: Iterable[Unit], special: Special) -> list[list[Unit]]:
    """Split neighbours into runs that look the same; a unit with something special is a run of its own.

    Args:
        units: siblings in order.
        special: whether a unit has something of its own to show (a grant, an isolated CPU).
    """
    found: list[list[Unit]] = []
    lonely = True
    for unit in units:
        odd = special(unit)
        if found and not odd and not lonely and alike(found[-1][0], unit):
            found[-1].append(unit)
        else:
            found.append([unit])
        lonely = odd
    return [part for run in found for part in ([run] if len(run) >= FEWEST else [[unit] for unit in run])]


def alike(one: Unit, other: Unit) -> bool:
    """Return True if two units differ only in ids, and in memory by a few percent."""
    return (
        one.kind is other.kind
        and len(one.cpus) == len(other.cpus)
        and len(one.children) == len(other.children)
        and one.part == other.part
        and _same_cache(one, other)
        and _same_memory(one.node, other.node)
        and Counter(map(device_kind, one.devices)) == Counter(map(device_kind, other.devices))
        and all(alike(a, b) for a, b in zip(one.children, other.children, strict=True))
    )


def same_as(run: list[Unit]) -> list[str]:
    """Return the line for all but the first of a run: which ones, like which one, their CPUs, their memory."""
    first, rest = run[0], run[1:]
    ids, cpus = IdSet.from_ids(unit.id for unit in rest), CpuSet.union(unit.cpus for unit in rest)
    if first.cache:
        found = [f"{len(rest)} more {first.label}", "same as this one"]
    else:
        found = [f"{first.label.rpartition(' ')[0]}s {ids}", f"same as {first.label}"]
    if cpus:
        found.append(cpu_list(cpus))
    amounts = sorted(unit.node.memory for unit in rest if unit.node)
    if amounts and {size(each) for each in amounts} != {size(first.node.memory) if first.node else ""}:
        least, most = size(amounts[0]), size(amounts[-1])
        found.append(f"{least} each" if least == most else f"{least} to {most} each")
    return found


def _same_cache(one: Unit, other: Unit) -> bool:
    return (one.cache and (one.cache.level, one.cache.size)) == (
        other.cache and (other.cache.level, other.cache.size)
    )


def _same_memory(one: NumaNode | None, other: NumaNode | None) -> bool:
    if one is None or other is None:
        return one is other
    return (
        (one.kind, one.movable, one.online, one.hugepages)
        == (other.kind, other.movable, other.online, other.hugepages)
        and len(one.initiators) == len(other.initiators)
        and abs(one.memory - other.memory) <= MEMORY_SLACK * max(one.memory, other.memory)
    )
