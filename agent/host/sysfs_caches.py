"""Caches from sysfs, as sets of CPUs.

Called by `agent.host.sysfs`. Files: cpu/cpuN/cache/indexM/{level,type,size,id,shared_cpu_map}
(https://www.kernel.org/doc/Documentation/ABI/testing/sysfs-devices-system-cpu). Instruction caches are left out.
"""

from __future__ import annotations

from dataclasses import dataclass

from agent.core.uncore import UNCORE_LEVEL
from agent.errors import MalformedError
from agent.host.sysfs_cpus import CPUS
from agent.host.sysfs_read import Reader, ids_in, parse_size
from agent.model.idset import CpuSet
from agent.model.machine import Cache

MAX_LEVEL = 10


@dataclass(frozen=True)
class CacheFacts:
    """Caches, and the kernel's numbers of the outer ones.

    Attributes:
        caches: sorted by level, then lowest CPU; the sets of one level are disjoint.
        kernel_id: (level, lowest CPU) -> the kernel's own id of that cache, where it has one.
    """

    caches: tuple[Cache, ...]
    kernel_id: dict[tuple[int, int], int]


def read_caches(reader: Reader, online: CpuSet) -> CacheFacts:
    """Read every data and unified cache of the online CPUs; a cache without a set of CPUs is its CPU's own."""
    claims: dict[int, dict[int, int]] = {}
    source: dict[tuple[int, int], str] = {}
    for cpu in online:
        folder = f"{CPUS}/cpu{cpu}/cache"
        for index in ids_in(reader.names(folder), "index"):
            place = f"{folder}/index{index}"
            level = reader.number(f"{place}/level")
            if level is None or not 1 <= level <= MAX_LEVEL or reader.text(f"{place}/type") == "Instruction":
                continue
            bits = reader.cpu_bits(f"{place}/shared_cpu_map", f"{place}/shared_cpu_list") or 0
            claims.setdefault(level, {})[cpu] = bits & online.bits | 1 << cpu
            source[level, cpu] = place
    caches = tuple(
        Cache(level, cpus, _size(reader, source[level, cpus.first]))
        for level in sorted(claims)
        for cpus in _agreed(reader, claims[level], source, level)
    )
    outer = [(cache.level, cache.cpus.first) for cache in caches if cache.level >= UNCORE_LEVEL]
    ids = {key: reader.number(f"{source[key]}/id") for key in outer}
    return CacheFacts(caches, {key: number for key, number in ids.items() if number is not None})


def _agreed(reader: Reader, claims: dict[int, int], source: dict[tuple[int, int], str], level: int) -> list[CpuSet]:
    """The sets of one level: CPUs that claim the same set share a cache; contradictions are told."""
    members: dict[int, int] = {}
    for cpu, bits in claims.items():
        members[bits] = members.get(bits, 0) | 1 << cpu
    for bits, agreeing in members.items():
        if bits != agreeing:
            place = source[level, CpuSet(agreeing).first]
            reader.warn(place, f"is shared by {CpuSet(bits)}, but only {CpuSet(agreeing)} agree: taken as their own")
    return sorted((CpuSet(bits) for bits in members.values()), key=lambda cpus: cpus.first)


def _size(reader: Reader, place: str) -> int:
    text = reader.text(f"{place}/size")
    if not text:
        return 0
    try:
        return parse_size(text)
    except MalformedError as error:
        reader.warn(f"{place}/size", str(error))
        return 0
