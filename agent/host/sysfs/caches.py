"""Caches from sysfs, as sets of CPUs.

Called by `agent.host.sysfs.discovery`. Files: cpu/cpuN/cache/indexM/{level,type,size,id,shared_cpu_map}
(https://www.kernel.org/doc/Documentation/ABI/testing/sysfs-devices-system-cpu). Instruction caches are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from agent.core.machines.uncore import UNCORE_LEVEL
from agent.errors import MalformedError
from agent.host.sysfs.cpus import CPUS
from agent.host.sysfs.read import SysfsReader, agreed, ids_in, parse_size
from agent.model.idset import CpuSet
from agent.model.machine import Cache

MAX_LEVEL = 10
Outer = tuple[tuple[int, int], ...] | None
"""See `agent.model.machine.KernelCpu`."""
_KIB = re.compile(r"\d{1,19}K")


@dataclass(frozen=True)
class CacheFacts:
    """Caches, and the kernel's numbers of the outer ones.

    Attributes:
        caches: sorted by level, then lowest CPU; the sets of one level are disjoint.
        kernel_id: (level, lowest CPU) -> the kernel's own id of that cache, where it has one.
        outer: online CPU -> see `agent.model.machine.KernelCpu`.
    """

    caches: tuple[Cache, ...]
    kernel_id: dict[tuple[int, int], int]
    outer: dict[int, Outer]


def read_caches(reader: SysfsReader, online: CpuSet) -> CacheFacts:
    """Read every data and unified cache of the online CPUs; a cache without a set of CPUs is its CPU's own."""
    levels: dict[int, dict[int, tuple[int, str]]] = {}  # level -> CPU -> bits of the CPUs that share it, its folder
    outer: dict[int, Outer] = {}
    for cpu in online:
        folder = f"{CPUS}/cpu{cpu}/cache"
        indexes = ids_in(reader.names(folder), "index")
        outer[cpu] = _outer(reader, [f"{folder}/index{index}" for index in sorted(indexes, key=str)])
        for index in indexes:
            place = f"{folder}/index{index}"
            level = reader.number(f"{place}/level")
            if level is None or not 1 <= level <= MAX_LEVEL or reader.text(f"{place}/type") == "Instruction":
                continue
            bits = reader.cpu_bits(f"{place}/shared_cpu_map", f"{place}/shared_cpu_list") or 0
            levels.setdefault(level, {})[cpu] = bits & online.bits | 1 << cpu, place
    caches: list[Cache] = []
    ids: dict[tuple[int, int], int] = {}
    for level in sorted(levels):
        for cpus, place in _units(reader, levels[level]):
            caches.append(Cache(level, cpus, _size(reader, place)))
            number = reader.number(f"{place}/id") if level >= UNCORE_LEVEL else None
            if number is not None:
                ids[level, cpus.first] = number
    if reader.is_sparse():
        outer = {cpu: _as_if_whole(caches, ids, cpu) for cpu in online}
    return CacheFacts(tuple(caches), ids, outer)


def _as_if_whole(caches: list[Cache], ids: Mapping[tuple[int, int], int], cpu: int) -> Outer:
    """The same in a recording that has ids once for each cache, and none of inner ones."""
    mine = [cache for cache in caches if cache.level >= UNCORE_LEVEL and cpu in cache.cpus]
    numbers = [ids.get((cache.level, cache.cpus.first)) for cache in mine]
    found = [(number, len(cache.cpus)) for number, cache in zip(numbers, mine, strict=True) if number is not None]
    return tuple(found) if len(found) == len(mine) else None


def _outer(reader: SysfsReader, places: list[str]) -> Outer:
    """(id, number of CPUs that share it) of the caches above level 2, as the kubelet's reader has them (rule 1.1).

    It reads five files of every cache and gives up where one is missing, or is no number where it shall be one. None
    then, and for a CPU without cache folders.
    """
    found: list[tuple[int, int]] = []
    for place in places:
        number, level = reader.number(f"{place}/id"), None
        if number is not None:
            level = reader.number(f"{place}/level")
        if number is None or level is None or not _KIB.match(reader.text(f"{place}/size") or ""):
            return None
        shared = reader.text(f"{place}/shared_cpu_map")
        if shared is None or reader.text(f"{place}/type") is None:
            return None
        if level >= UNCORE_LEVEL:
            found.append((number, (reader.cpu_bits(f"{place}/shared_cpu_map") or 0).bit_count()))
    return tuple(found) if places else None


def _units(reader: SysfsReader, claims: dict[int, tuple[int, str]]) -> Iterator[tuple[CpuSet, str]]:
    """The caches of one level, each with the folder of the first CPU that has one; contradictions are reported."""
    for claim, bits in agreed({cpu: shared for cpu, (shared, _) in claims.items()}):
        cpus = CpuSet(bits)
        place = next(claims[cpu][1] for cpu in cpus if cpu in claims)
        if claim != bits:
            reader.warn(place, f"is shared by {CpuSet(claim)}, but only {cpus} agree: taken as their own")
        yield cpus, place


def _size(reader: SysfsReader, place: str) -> int:
    text = reader.text(f"{place}/size")
    if not text:
        return 0
    try:
        return parse_size(text)
    except MalformedError as error:
        reader.warn(f"{place}/size", str(error))
        return 0
