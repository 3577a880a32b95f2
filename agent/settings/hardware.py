"""Settings that name hardware that went: what is left of them, and what is missed, one sentence each. Pure.

Used by `agent.app.setup` before the rules are made, which refuse what a machine cannot give. A CPU that went offline,
huge pages that were allocated late or a NUMA node that was taken out are no mistakes in the settings:
the machine is followed in any case, at the next start too, and the settings hold again as soon as the hardware is
back. What names hardware that was never there is a mistake; the rules say so.

    reserved CPUs     those that are online; where none is, as many as were asked for, chosen as the CPU manager does
    reserved memory   what a node lacks is kept back on the others, lowest first, so that the sum stays the kubelet's
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from agent.model.idset import CpuSet
from agent.model.machine import Machine
from agent.model.quantity import show_bytes, units
from agent.model.rules import Compatibility
from agent.settings.kinds import CpuPolicy, MemoryPolicy
from agent.settings.model import NodeReservation, Settings
from agent.settings.to_rules import reserved_memory

_MEMORY = "memory"
NodeAllocatable = dict[int, dict[str, int]]
"""Bytes by NUMA node and resource."""


def fitted(settings: Settings, machine: Machine, before: Machine | None = None) -> tuple[Settings, tuple[str, ...]]:
    """Settings for what is left of a machine.

    Args:
        settings: as parsed, with what follows from the Node filled in.
        machine: as it is now.
        before: as it was when the settings last found all that they name; None at a start.

    Returns:
        The settings with what this machine has instead, and what is missed.
    """
    settings, missed = _cpus(settings, machine, before)
    settings, more = _memory(settings, machine, before)
    return settings, (*missed, *more)


def _cpus(settings: Settings, machine: Machine, before: Machine | None) -> tuple[Settings, tuple[str, ...]]:
    asked = settings.reserved_system_cpus or CpuSet()
    there = machine.offline | (before.online | before.offline if before else CpuSet())
    gone, left = asked - machine.online, asked & machine.online
    all_of_it = settings.compatibility.mode is Compatibility.FIXED and asked == machine.online | machine.offline
    if settings.cpu_manager_policy is CpuPolicy.NONE or all_of_it or not gone or not gone.issubset(there):
        return settings, ()
    if left:
        text = f"reservedSystemCPUs: CPUs {gone} are not online; of those named, {left} are reserved until they are"
        return replace(settings, reserved_system_cpus=left), (text,)
    count = min(len(asked), max(1, len(machine.online) - 1))
    counted = replace(
        settings, reserved_system_cpus=None, kube_reserved={**settings.kube_reserved, "cpu": 1000 * count},
        system_reserved={**settings.system_reserved, "cpu": 0},
    )  # fmt: skip
    text = f"reservedSystemCPUs: none of the CPUs {asked} is online; {_others(count)} reserved until they are"
    return counted, (text,)


def _others(count: int) -> str:
    return "1 other is" if count == 1 else f"{count} others are"


def _memory(settings: Settings, machine: Machine, before: Machine | None) -> tuple[Settings, tuple[str, ...]]:
    if settings.memory_manager_policy is MemoryPolicy.NONE or not settings.reserved_memory:
        return settings, ()
    asked: NodeAllocatable = {}
    for entry in settings.reserved_memory:
        mine = asked.setdefault(entry.numa_node, {})
        for name, milli in entry.limits.items():
            mine[name] = mine.get(name, 0) + units(milli)
    total = sum(amounts.get(_MEMORY, 0) for amounts in asked.values())
    right = {reserved_memory(settings, each) for each in (machine, before) if each}
    missing = set(_lacking(asked, machine))
    if total not in right or not all(_was_there(asked, each, machine, before) for each in missing):
        return settings, ()
    if not missing and total == reserved_memory(settings, machine):
        return settings, ()
    kept = _moved(asked, machine)
    total = sum(amounts.get(_MEMORY, 0) for amounts in kept.values())
    moved = replace(
        settings,
        reserved_memory=tuple(
            NodeReservation(number, {name: 1000 * size for name, size in mine.items() if size})
            for number, mine in sorted(kept.items())
        ),
        kube_reserved={**settings.kube_reserved, _MEMORY: 0},
        system_reserved={**settings.system_reserved, _MEMORY: 1000 * total},
        eviction_hard={**(settings.eviction_hard or {}), "memory.available": "0"},
    )
    return moved, tuple(_missed(machine, number, name, asked[number][name]) for number, name in sorted(missing))


def _missed(machine: Machine, number: int, name: str, asked: int) -> str:
    has = _has(machine, number, name)
    what = f"{show_bytes(has)} of {name}" if has else f"no {name}"
    moves = name == _MEMORY and len(machine.nodes) > 1
    rest = "what it lacks is kept on other nodes as far as they have it" if moves else "it keeps what it has"
    return f"reservedMemory: NUMA node {number} has {what} and shall keep {show_bytes(asked)}; {rest}"


def _has(machine: Machine, number: int, name: str) -> int:
    return machine.by_node[number].resources.get(name, 0) if number in machine.by_node else 0


def _lacking(asked: NodeAllocatable, machine: Machine) -> Iterator[tuple[int, str]]:
    for number, amounts in asked.items():
        for name, size in amounts.items():
            if size > _has(machine, number, name) or number not in machine.by_node:
                yield number, name


def _was_there(asked: NodeAllocatable, place: tuple[int, str], machine: Machine, before: Machine | None) -> bool:
    """Whether a node had, or would have without its huge pages, what it lacks: pages come and go at run time."""
    number, name = place
    if before is not None and asked[number][name] <= _has(before, number, name):
        return True
    node = machine.by_node.get(number)
    return node is not None and asked[number][name] <= node.memory


def _moved(asked: NodeAllocatable, machine: Machine) -> NodeAllocatable:
    """What each node can keep, and of memory what others lack, on nodes with CPUs first."""
    kept: NodeAllocatable = {
        number: {name: min(size, _has(machine, number, name)) for name, size in amounts.items()}
        for number, amounts in asked.items()
        if number in machine.by_node
    }
    rest = sum(amounts.get(_MEMORY, 0) for amounts in asked.values())
    rest -= sum(amounts.get(_MEMORY, 0) for amounts in kept.values())
    for node in sorted(machine.nodes, key=lambda each: (not each.cpus, each.id)):
        mine = kept.get(node.id, {}).get(_MEMORY, 0)
        more = min(rest, _has(machine, node.id, _MEMORY) - mine)
        if more > 0:
            kept.setdefault(node.id, {})[_MEMORY] = mine + more
            rest -= more
    return {number: amounts for number, amounts in kept.items() if any(amounts.values())}
