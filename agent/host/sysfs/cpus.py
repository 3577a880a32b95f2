"""CPUs from sysfs: which are online, and the sets that share a core, a die, a package.

Called by `agent.host.sysfs.discovery`. Files: https://docs.kernel.org/admin-guide/cputopology.html; kernels before
5.3 have only thread_siblings and core_siblings, kernels before 2.6.26 only the bitmaps. Bitmaps are read before
lists: both print the same kernel bitmap, and the oldest recordings have nothing else. /proc/cpuinfo stands in where
sysfs has no topology.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from agent.errors import SysfsMalformedError, SysfsMissingError
from agent.host.files import PROC_LIMIT
from agent.host.sysfs.read import SysfsReader, agreed, ids_in
from agent.model.idset import MAX_ID, CpuSet

CPUS = "sys/devices/system/cpu"
_UNITS = {
    "core": ("core_cpus", "core_cpus_list", "thread_siblings", "thread_siblings_list"),
    "die": ("die_cpus", "die_cpus_list"),
    "package": ("package_cpus", "package_cpus_list", "core_siblings", "core_siblings_list"),
}
_X86 = re.compile(r"^vendor_id\s*:\s*(GenuineIntel|AuthenticAMD|HygonGenuine|CentaurHauls|.*Shanghai)", re.MULTILINE)
_CPUINFO = re.compile(r"^(processor|physical id|core id)(?:\s*:\s*(\d{1,9})\s*$| (\d{1,9}):)", re.MULTILINE)


@dataclass(frozen=True)
class CpuFacts:
    """What sysfs says about the online CPUs; every map has each of them as a key and its unit's lowest CPU as value.

    Attributes:
        online, offline, isolated: sets; offline ones are there but not online.
        core, die, package: CPU -> lowest online CPU of its unit.
        package_id: CPU -> the kernel's physical_package_id, -1 where it has none.
        told: CPU -> core_id and physical_package_id as the files have them, None where one is missing.
        sockets, folders: see `agent.model.machine.KernelFacts`.
    """

    online: CpuSet
    offline: CpuSet
    isolated: CpuSet
    core: dict[int, int]
    die: dict[int, int]
    package: dict[int, int]
    package_id: dict[int, int]
    told: dict[int, tuple[int | None, int | None]]
    sockets: int
    folders: int


@dataclass(frozen=True)
class CpuInfo:
    """/proc/cpuinfo: CPU -> ids, where it has them."""

    cpus: tuple[int, ...] = ()
    package_id: dict[int, int] = field(default_factory=dict)
    core_id: dict[int, int] = field(default_factory=dict)
    x86: bool = False


def parse_cpuinfo(text: str) -> CpuInfo:
    """Read the fields that architectures spell alike ("processor : 0", s390's "processor 0:", "physical id")."""
    cpus: list[int] = []
    ids: dict[str, dict[int, int]] = {"physical id": {}, "core id": {}}
    for match in _CPUINFO.finditer(text):
        number = int(match[2] or match[3])
        if match[1] == "processor":
            if number <= MAX_ID:
                cpus.append(number)
        elif cpus:
            ids[match[1]][cpus[-1]] = number
    return CpuInfo(tuple(cpus), ids["physical id"], ids["core id"], x86=bool(_X86.search(text)))


def read_cpuinfo(reader: SysfsReader) -> CpuInfo:
    """Read /proc/cpuinfo of the tree; empty where there is none."""
    return parse_cpuinfo(reader.text("proc/cpuinfo", PROC_LIMIT) or "")


def read_cpus(reader: SysfsReader, info: CpuInfo) -> CpuFacts:
    """Read all of it; raises SysfsMissingError when there is no CPU, SysfsMalformedError for a bad set of CPUs."""
    online, offline, topology = _read_online(reader, info)
    ids = tuple(CpuSet(online))
    told = {cpu: (_told(reader, cpu, "core_id"), _told(reader, cpu, "physical_package_id")) for cpu in ids}
    core_id = {cpu: _known(core, info.core_id.get(cpu, -1)) for cpu, (core, _) in told.items()}
    package_id = {cpu: _known(package, info.package_id.get(cpu, -1)) for cpu, (_, package) in told.items()}
    claims = {unit: _read_sets(reader, unit, ids, topology) for unit in _UNITS}
    claims["die"] = {c: bits for c, bits in claims["die"].items() if _known(_told(reader, c, "die_id"), -1) >= 0}
    package = _packages(reader, ids, claims["package"], package_id, x86=info.x86)
    core = _cores(reader, ids, claims["core"], core_id, package)
    package = _whole_cores(reader, package, core, package_id)
    die = _dies(reader, ids, claims["die"], core, package)
    return CpuFacts(
        online=CpuSet(online),
        offline=CpuSet(offline),
        isolated=CpuSet((reader.ids(f"{CPUS}/isolated") or 0) & online),
        core=core,
        die=die,
        package=package,
        package_id=package_id,
        told=told,
        sockets=_sockets(reader, info, told),
        folders=len(ids_in(reader.names(CPUS), "cpu")),
    )


def _sockets(reader: SysfsReader, info: CpuInfo, told: dict[int, tuple[int | None, int | None]]) -> int:
    """As the kubelet's reader counts them (rule 1.1): a CPU of cpu/online without package id is of package 0."""
    if info.package_id:
        return len(set(info.package_id.values()))
    folders, listed = ids_in(reader.names(CPUS), "cpu"), reader.ids(f"{CPUS}/online")
    there = [cpu for cpu in folders if listed is None or listed >> cpu & 1]
    return len({told[cpu][1] or 0 if cpu in told else 0 for cpu in there})


def _read_online(reader: SysfsReader, info: CpuInfo) -> tuple[int, int, set[int]]:
    """Bits of the online and offline CPUs, and the CPUs that have a topology folder.

    A CPU is online when cpu/online lists it, its own cpuN/online is not 0, and it has a topology folder where others
    have one (the kernel removes it with the CPU); recordings of old kernels have only the last two.
    """
    folders = ids_in(reader.names(CPUS), "cpu")
    listed, present = reader.ids(f"{CPUS}/online"), reader.ids(f"{CPUS}/present")
    known = CpuSet.from_ids(folders).bits or listed or CpuSet.from_ids(info.cpus).bits
    topology = {cpu for cpu in folders if reader.files.is_dir(f"{CPUS}/cpu{cpu}/topology")}
    online = known & listed if listed else known
    online &= CpuSet.from_ids(topology).bits or online
    for cpu in folders:
        if online >> cpu & 1 and reader.text(f"{CPUS}/cpu{cpu}/online") == "0":
            online &= ~(1 << cpu)
    if listed is not None and listed & ~online:
        odd = CpuSet(listed & ~online)
        reader.warn(f"{CPUS}/online", f"lists {odd}, which have no folder or say that they are offline")
    if not online:
        if known:
            raise SysfsMalformedError(reader.files.where(f"{CPUS}/online"), "no CPU is online according to this tree")
        raise SysfsMissingError(reader.files.where(CPUS), "no CPU here, and none in proc/cpuinfo: not a machine")
    return online, (present or known) & ~online, topology


def _told(reader: SysfsReader, cpu: int, name: str) -> int | None:
    """An id of the CPU's topology folder."""
    return reader.number(f"{CPUS}/cpu{cpu}/topology/{name}")


def _known(number: int | None, fallback: int) -> int:
    """The id, else the fallback; the kernel writes a negative id for unknown."""
    return fallback if number is None or number < 0 else number


def _read_sets(reader: SysfsReader, unit: str, ids: tuple[int, ...], topology: set[int]) -> dict[int, int]:
    """CPU -> the bits of the CPUs that it shares a unit with, by the kernel; CPUs without the file are left out."""
    names = _UNITS[unit]
    claims: dict[int, int] = {}
    for cpu in ids:
        if cpu not in topology:
            continue
        bits = reader.cpu_bits(*(f"{CPUS}/cpu{cpu}/topology/{name}" for name in names))
        if bits:
            claims[cpu] = bits
    return claims


def partition(reader: SysfsReader, unit: str, ids: tuple[int, ...], claims: dict[int, int]) -> dict[int, int]:
    """CPU -> lowest CPU of its unit, from what each CPU claims; a contradiction is reported, see `agreed`."""
    online = CpuSet.from_ids(ids).bits
    lowest = {cpu: cpu for cpu in ids}
    for claim, bits in agreed({cpu: bits & online | 1 << cpu for cpu, bits in claims.items()}):
        group = CpuSet(bits)
        if claim != bits:
            reader.warn(
                f"{CPUS}/cpu{group.first}/topology",
                f"shares a {unit} with {CpuSet(claim)}, but only {group} agree: taken as a {unit} of their own",
            )
        lowest.update(dict.fromkeys(group, group.first))
    return lowest


def _grouped(ids: tuple[int, ...], key: Callable[[int], object]) -> dict[int, int]:
    """CPU -> lowest CPU with the same key; ids are ascending."""
    first: dict[object, int] = {}
    return {cpu: first.setdefault(key(cpu), cpu) for cpu in ids}


def _inside(unit: dict[int, int], outer: dict[int, int]) -> dict[int, int]:
    """The unit, cut where it reaches over the border of the outer unit."""
    return _grouped(tuple(unit), lambda cpu: (unit[cpu], outer[cpu]))


def _dies(
    reader: SysfsReader, ids: tuple[int, ...], claims: dict[int, int], core: dict[int, int], package: dict[int, int]
) -> dict[int, int]:
    """CPU -> lowest CPU of its die; the package where nothing is said, or where what is said would cut a core."""
    if not claims:
        return package
    found = _inside(partition(reader, "die", ids, claims), package)
    if any(found[cpu] != found[core[cpu]] for cpu in ids):
        reader.warn(f"{CPUS}/cpu*/topology/die_cpus", "cuts cores apart: the packages are taken as the dies")
        return package
    return found


def _packages(
    reader: SysfsReader, ids: tuple[int, ...], claims: dict[int, int], package_id: dict[int, int], *, x86: bool
) -> dict[int, int]:
    """CPU -> lowest CPU of its package.

    The sets decide, as ids repeat on some machines. Two exceptions: without sets the ids are all there is; and on
    x86, where the id comes from the APIC id and cannot repeat, CPUs of one id that claim different sets are one
    package (some kernels cut core_siblings to the cluster on Intel's Cluster-on-Die machines).
    """
    if not claims:
        return _grouped(ids, package_id.__getitem__)
    quiet = SysfsReader(reader.files)
    sets = partition(quiet, "package", ids, claims)
    by_id = _grouped(ids, lambda cpu: package_id[cpu] if package_id[cpu] >= 0 else (-1, sets[cpu]))
    split = len(set(by_id.values())) < len(set(sets.values()))
    if x86 and split:
        reader.warn(
            f"{CPUS}/cpu*/topology/core_siblings", "cuts packages apart: physical_package_id is believed instead"
        )
        return by_id
    for warning in quiet.warnings:
        reader.warnings.append(warning)
    return sets


def _cores(
    reader: SysfsReader,
    ids: tuple[int, ...],
    claims: dict[int, int],
    core_id: dict[int, int],
    package: dict[int, int],
) -> dict[int, int]:
    """CPU -> lowest CPU of its core.

    Siblings with different core ids are no threads of one core: AMD's family 15h lists the two cores of a compute
    unit in thread_siblings. Without sibling files, CPUs of one package with one core id (from cpuinfo) are one core.
    """
    if claims:
        siblings = partition(reader, "core", ids, claims)
        return _grouped(ids, lambda cpu: (siblings[cpu], core_id[cpu]))
    return _grouped(ids, lambda cpu: (package[cpu], core_id[cpu]) if core_id[cpu] >= 0 else (cpu, -1))


def _whole_cores(
    reader: SysfsReader, package: dict[int, int], core: dict[int, int], package_id: dict[int, int]
) -> dict[int, int]:
    """Packages that cut no core: those that share a core are joined.

    Splitting a core would hand its threads to two pods; joining packages only loses a preference. Kernels for
    machines without package information say that each CPU is a package (id -1): then all CPUs are one.
    """
    if all(package[cpu] == package[core[cpu]] for cpu in core):
        return package
    reader.warn(
        f"{CPUS}/cpu*/topology/core_siblings", "cuts cores apart: packages that share a core are taken as one"
    )
    if all(number < 0 for number in package_id.values()):
        return dict.fromkeys(package, min(package))
    joined = dict(package)
    for cpu in sorted(core):
        one, two = joined[cpu], joined[core[cpu]]
        if one != two:
            joined = {c: min(one, two) if p in (one, two) else p for c, p in joined.items()}
    return joined
