"""Reservations that the settings leave open, taken from the Node: capacity less allocatable (safety rule S14).

Used by `agent.app.setup`. CPUs: the number goes to `rules_of`, and the CPU manager's own rule chooses which
(rule 4.1). Memory: the kubelet knows no rule, it wants reservedMemory per NUMA node spelled out (rule 5.1); here the
sum is spread over the nodes with CPUs in proportion to their memory without huge pages, whole pages, the rest on the
lowest node that has room for it.
"""

from __future__ import annotations

from dataclasses import replace

from agent.model.machine import Machine
from agent.model.quantity import units
from agent.model.rules import Compatibility
from agent.settings.kinds import CpuPolicy, MemoryPolicy
from agent.settings.model import NodeReservation, Settings
from agent.settings.to_rules import eviction_memory, reserved_memory, told_memory

_PAGE = 4096
_MEMORY = "memory"


def derives_cpus(settings: Settings) -> bool:
    """Whether the number of reserved CPUs is left to the Node."""
    if settings.cpu_manager_policy is CpuPolicy.NONE or settings.reserved_system_cpus:
        return False
    return not any(part.get("cpu", 0) for part in (settings.kube_reserved, settings.system_reserved))


def derives_memory(settings: Settings) -> bool:
    """Whether the reserved memory is left to the Node."""
    return settings.memory_manager_policy is not MemoryPolicy.NONE and not settings.reserved_memory


def derives_sum(settings: Settings) -> bool:
    """Whether reservedMemory stands without the reservations that it must add up to: the node has them elsewhere."""
    static = settings.memory_manager_policy is not MemoryPolicy.NONE
    return static and bool(settings.reserved_memory) and not told_memory(settings)


def reserved_on_nodes(settings: Settings) -> int:
    """Bytes of memory that reservedMemory comes to."""
    return sum(units(each.limits.get(_MEMORY, 0)) for each in settings.reserved_memory)


def with_node_memory(settings: Settings, machine: Machine, kept: int | None) -> Settings:
    """Settings with what follows from the Node: reservedMemory, or the reservations that it must add up to.

    Args:
        settings: as parsed.
        machine: whose nodes share it.
        kept: bytes that the kubelet keeps from pods; 0 when that is not known yet, so that the sum of the settings'
            own reservations counts; None where there is no Node. Under Compatibility.KUBELET the settings then stay
            as they are, since that kubelet starts with no others.
    """
    kubelet = settings.compatibility.mode is Compatibility.KUBELET
    if kubelet and (kept is None or (not kept and derives_sum(settings))):
        return settings
    if derives_sum(settings):
        total = reserved_on_nodes(settings)
        if kubelet and kept:
            total = kept
        return _adding_up(settings, total, eviction_memory(settings, machine)) if total else settings
    return _spread(settings, machine, kept or 0) if derives_memory(settings) else settings


def _spread(settings: Settings, machine: Machine, kept: int) -> Settings:
    told = told_memory(settings)
    eviction = eviction_memory(settings, machine)
    total = reserved_memory(settings, machine) if told or not kept else max(kept, eviction)
    nodes = [node for node in machine.nodes if node.cpus and node.memory]
    if not total or not nodes:
        return settings
    ordinary = {node.id: max(0, node.resources[_MEMORY]) for node in nodes}
    room = sum(ordinary.values())
    if not told:  # what a Node told may be older than the huge pages: what is not there cannot be kept
        total = min(total, room)
    parts = {number: total * has // max(1, room) // _PAGE * _PAGE for number, has in ordinary.items()}
    for number, has in ordinary.items():
        parts[number] += max(0, min(total - sum(parts.values()), has - parts[number]))
    parts[nodes[0].id] += total - sum(parts.values())
    reserved = tuple(NodeReservation(number, {_MEMORY: 1000 * part}) for number, part in parts.items() if part)
    found = replace(settings, reserved_memory=reserved)
    return found if told else _adding_up(found, total, eviction)


def _adding_up(settings: Settings, total: int, eviction: int) -> Settings:
    """With reservations that come to this sum, as rule 5.1 wants it; `eviction`: bytes of the hard threshold."""
    system = {**settings.system_reserved, _MEMORY: 1000 * (total - min(eviction, total))}
    hard = settings.eviction_hard
    if total < eviction:
        hard = {**(hard or {}), "memory.available": str(total)}
    return replace(settings, system_reserved=system, eviction_hard=hard)
