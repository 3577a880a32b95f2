"""Performance, efficiency and middle cores of hybrid machines.

Called by `agent.host.sysfs.discovery`. Sources, the first with a difference wins: the kernel's own lists (Intel:
the PMUs cpu_core and cpu_atom, or cpu/types), the scheduler's cpu_capacity (Arm), the base frequency of intel_pstate.
The maximum frequency is not one: favoured cores of ordinary machines differ there.
"""

from __future__ import annotations

from agent.host.sysfs.cpus import CPUS
from agent.host.sysfs.read import SysfsReader
from agent.model.idset import CpuSet

PERFORMANCE, MIDDLE, EFFICIENCY = "performance", "middle", "efficiency"
_LISTS = (
    ("sys/devices/cpu_core/cpus", "sys/devices/cpu_atom/cpus"),
    (f"{CPUS}/types/intel_core_0/cpulist", f"{CPUS}/types/intel_atom_0/cpulist"),
)
_RANKS = ("cpu_capacity", "cpufreq/base_frequency")
MARGIN = 0.05
"""Ranks that differ by less are noise."""


def read_kinds(reader: SysfsReader, online: CpuSet) -> dict[int, str]:
    """CPU -> "performance", "efficiency" or, between these, "middle"; empty on a machine of one kind."""
    for fast, slow in _LISTS:
        big, small = reader.ids(fast) or 0, reader.ids(slow) or 0
        if big & online.bits and small & online.bits and not big & small:
            return {cpu: PERFORMANCE if big >> cpu & 1 else EFFICIENCY for cpu in online if (big | small) >> cpu & 1}
    for name in _RANKS:
        ranks = {cpu: reader.number(f"{CPUS}/cpu{cpu}/{name}") or 0 for cpu in online}
        top, least = max(ranks.values()), min(ranks.values())
        if all(ranks.values()) and least < top * (1 - MARGIN):
            return {cpu: _kind(rank, top, least) for cpu, rank in ranks.items()}
    return {}


def _kind(rank: int, top: int, least: int) -> str:
    if rank >= top * (1 - MARGIN):
        return PERFORMANCE
    return EFFICIENCY if rank * (1 - MARGIN) <= least else MIDDLE
