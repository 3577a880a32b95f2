"""Writes a machine as the folders and files that a kernel would show: the reverse of discovery.

Two kernels: a modern one (6.x: lists and bitmaps, ids, memory tiers), an old one (2.6: bitmaps only, no cpu/online).
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from agent.model.idset import CpuSet
from agent.model.machine import Cache, Machine, MemoryKind, NumaNode, PciDevice

TIER = {MemoryKind.HBM: 2, MemoryKind.DRAM: 4, MemoryKind.FAR: 9}
OWN = Path(__file__).resolve().parents[2] / "deploy" / "machines"
RECORDINGS = OWN, Path(__file__).with_name("machines"), Path(__file__).with_name("odd")
"""Where recordings lie that come with the project."""


def mask(cpus: CpuSet, words: int = 2) -> str:
    """A bitmap as the kernel prints it, with at least so many words."""
    digits = f"{cpus.bits:x}".rjust(8 * words, "0")
    digits = digits.rjust(-(-len(digits) // 8) * 8, "0")
    return ",".join(digits[at : at + 8] for at in range(0, len(digits), 8))


def put(folder: Path, path: str, text: object) -> None:
    """Write a file with a newline, making its folders."""
    place = folder / path
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(f"{text}\n", encoding="utf-8")


def link(folder: Path, path: str, to: str) -> None:
    """A relative link from one path of the tree to another, as sysfs makes them."""
    place = folder / path
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(os.path.relpath(folder / to, place.parent))


def write_tree(folder: Path, machine: Machine, *, old: bool = False) -> Path:
    """Write a machine; returns the folder."""
    cpu = "sys/devices/system/cpu"
    every = machine.online | machine.offline
    for number in every:
        (folder / f"{cpu}/cpu{number}").mkdir(parents=True)
        if number:  # CPU 0 cannot go offline on most machines and has no such file
            put(folder, f"{cpu}/cpu{number}/online", int(number in machine.online))
    if not old:
        for name, cpus in (
            ("online", machine.online),
            ("present", every),
            ("possible", every),
            ("offline", machine.offline),
            ("isolated", machine.isolated),
        ):
            put(folder, f"{cpu}/{name}", cpus)
    if not old or 0 in machine.offline:
        put(folder, f"{cpu}/cpu0/online", int(0 in machine.online))
    _write_topology(folder, machine, old=old)
    for index, cache in enumerate(machine.caches):
        _write_cache(folder, machine, cache, index, old=old)
    for node in machine.nodes:
        _write_node(folder, node, old=old)
    if not old:
        put(folder, "sys/devices/system/node/online", machine.node_set)
        _write_tiers(folder, machine.nodes)
    for device in machine.devices:
        _write_device(folder, machine, device)
    put(folder, "proc/meminfo", f"MemTotal:  {sum(node.memory for node in machine.nodes) // 1024} kB")
    return folder


_NAMES: dict[str, tuple[str, ...]] = {
    "core": ("thread_siblings", "core_cpus"),
    "package": ("core_siblings", "package_cpus"),
    "die": ("die_cpus",),
}


def _write_topology(folder: Path, machine: Machine, *, old: bool) -> None:
    units = {"core": machine.cores, "package": machine.packages, "die": machine.dies}
    for unit in ("core", "package") if old else tuple(units):
        for number, cpus in enumerate(units[unit]):
            for cpu in cpus:
                place = f"sys/devices/system/cpu/cpu{cpu}/topology"
                _write_siblings(folder, place, cpus, _NAMES[unit][:1] if old else _NAMES[unit], old=old)
                if unit == "die":
                    put(folder, f"{place}/die_id", number)
    _write_ids(folder, machine, old=old)


def _write_siblings(folder: Path, place: str, cpus: CpuSet, names: tuple[str, ...], *, old: bool) -> None:
    for name in names:
        put(folder, f"{place}/{name}", mask(cpus))
        if not old:
            put(folder, f"{place}/{name}_list", cpus)


def _write_ids(folder: Path, machine: Machine, *, old: bool) -> None:
    inside: dict[int, list[int]] = {}
    for cpu in machine.cpus:  # core ids repeat in every package, as on real machines
        cores = inside.setdefault(cpu.package, [])
        if cpu.core not in cores:
            cores.append(cpu.core)
        place = f"sys/devices/system/cpu/cpu{cpu.id}"
        put(folder, f"{place}/topology/core_id", cores.index(cpu.core))
        put(folder, f"{place}/topology/physical_package_id", cpu.package)
        if not old:
            link(folder, f"{place}/node{cpu.node}", f"sys/devices/system/node/node{cpu.node}")
        link(folder, f"sys/devices/system/node/node{cpu.node}/cpu{cpu.id}", place)
    kinds = {k: CpuSet.from_ids(c.id for c in machine.cpus if c.kind == k) for k in ("performance", "efficiency")}
    if kinds["efficiency"]:
        put(folder, "sys/devices/cpu_core/cpus", kinds["performance"])
        put(folder, "sys/devices/cpu_atom/cpus", kinds["efficiency"])


def _write_cache(folder: Path, machine: Machine, cache: Cache, index: int, *, old: bool) -> None:
    uncore = sorted({cpu.uncore for cpu in machine.cpus if cpu.id in cache.cpus and cpu.uncore is not None})
    for cpu in cache.cpus:
        place = f"sys/devices/system/cpu/cpu{cpu}/cache/index{cache.level}"
        put(folder, f"{place}/level", cache.level)
        put(folder, f"{place}/type", "Unified")
        put(folder, f"{place}/shared_cpu_map", mask(cache.cpus))
        put(folder, f"{place}/size", f"{cache.size // 1024}K")
        if not old:
            put(folder, f"{place}/shared_cpu_list", cache.cpus)
            put(folder, f"{place}/id", uncore[0] if uncore else 10_000 + index)


def _write_node(folder: Path, node: NumaNode, *, old: bool) -> None:
    place = f"sys/devices/system/node/node{node.id}"
    put(folder, f"{place}/cpumap", mask(node.cpus))
    put(folder, f"{place}/meminfo", f"Node {node.id} MemTotal:       {node.memory // 1024} kB")
    if node.distances:
        put(folder, f"{place}/distance", " ".join(map(str, node.distances)))
    for size, count in node.hugepages:
        put(folder, f"{place}/hugepages/hugepages-{size // 1024}kB/nr_hugepages", count)
    if not old:
        put(folder, f"{place}/cpulist", node.cpus)
        for near in node.initiators:
            link(folder, f"{place}/access1/initiators/node{near}", f"sys/devices/system/node/node{near}")


def _write_tiers(folder: Path, nodes: Iterable[NumaNode]) -> None:
    tiers: dict[int, list[int]] = {}
    for number, node in enumerate(nodes):
        if node.kind in TIER:
            tiers.setdefault(TIER[node.kind], []).append(node.id)
        if node.kind is MemoryKind.GPU:
            put(
                folder,
                f"proc/driver/nvidia/gpus/00ff:{number & 255:02x}:00.0/numa_status",
                f"Node:  {node.id}\nStatus: online",
            )
    for tier, ids in tiers.items():
        put(folder, f"sys/devices/virtual/memory_tiering/memory_tier{tier}/nodelist", CpuSet.from_ids(ids))


def _write_device(folder: Path, machine: Machine, device: PciDevice) -> None:
    domain, bus, _ = device.address.split(":")
    place = f"sys/devices/pci{domain}:{bus}/{device.address}"
    near = sorted(device.numa_nodes)
    put(folder, f"{place}/class", f"0x{device.class_code}")
    put(folder, f"{place}/vendor", f"0x{device.vendor}")
    put(folder, f"{place}/device", f"0x{device.device}")
    put(folder, f"{place}/numa_node", near[0] if len(near) == 1 else -1)
    put(folder, f"{place}/local_cpus", mask(machine.cpus_of(device.numa_nodes) or machine.online))
    link(folder, f"sys/bus/pci/devices/{device.address}", place)
    if device.physfn:
        parent = device.physfn.split(":")
        link(folder, f"{place}/physfn", f"sys/devices/pci{parent[0]}:{parent[1]}/{device.physfn}")
