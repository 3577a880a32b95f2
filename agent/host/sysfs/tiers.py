"""What a NUMA node's memory is: DRAM, HBM, CXL or persistent memory, a GPU's; and whose CPUs reach it best.

Called by `agent.host.sysfs.nodes`. No single file says it, so the sources are asked in this order, and the one that
answered is kept as `kind_source`:
  1. /proc/driver/nvidia/gpus/*/numa_status: the driver put that GPU's memory on the node.
  2. /sys/bus/dax/devices/*/target_node: hot-plugged as memory by the kmem driver; a device below an NVDIMM bus
     (ndbus) or a CXL root is far.
  3. /sys/devices/virtual/memory_tiering: a lower tier number is faster
     (https://www.kernel.org/doc/Documentation/ABI/testing/sysfs-kernel-mm-memory-tiers).
  4. nodeN/access1/initiators: bandwidth and latency from firmware's HMAT
     (https://docs.kernel.org/admin-guide/mm/numaperf.html), against the memory of the node that the initiator is on.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from agent.host.sysfs.read import SysfsReader, ids_in
from agent.model.idset import CpuSet, NodeSet
from agent.model.machine import PCI_ADDRESS, MemoryKind

NODES = "sys/devices/system/node"
TIERS = "sys/devices/virtual/memory_tiering"
GPUS = "proc/driver/nvidia/gpus"
DAX = "sys/bus/dax/devices"
CLEARLY = 1.5
"""Bandwidth this many times another node's is another kind of memory: DRAM generations differ by less."""

_GPU_NODE = re.compile(r"^Node:\s*(\d{1,5})\s*$", re.MULTILINE)


@dataclass(frozen=True)
class MemoryClass:
    """What is known about one node's memory beyond its size."""

    kind: MemoryKind = MemoryKind.DRAM
    source: str = ""
    initiators: NodeSet = NodeSet()
    tier: int | None = None


@dataclass(frozen=True)
class MemoryAccess:
    """The performance that one node's memory has for its best initiators; 0 where firmware says nothing."""

    initiators: NodeSet = NodeSet()
    bandwidth: int = 0
    latency: int = 0
    source: str = ""


@dataclass
class _Sources:
    gpus: dict[int, str] = field(default_factory=dict)  # node -> PCI address
    dax: dict[int, str] = field(default_factory=dict)  # node -> real path of the device
    tiers: dict[int, int] = field(default_factory=dict)
    access: dict[int, MemoryAccess] = field(default_factory=dict)


def read_classes(
    reader: SysfsReader, nodes: dict[int, CpuSet], memory: dict[int, int], cpu_nodes: dict[int, int]
) -> dict[int, MemoryClass]:
    """Node id -> class, for every node.

    Args:
        reader: the tree.
        nodes: node id -> its online CPUs.
        memory: node id -> bytes.
        cpu_nodes: online CPU -> node id.
    """
    sources = _Sources(
        gpus=_read_gpus(reader),
        dax=_read_dax(reader),
        tiers=_read_tiers(reader),
        access={node: _read_access(reader, node, nodes) for node in nodes},
    )
    return {node: _classify(reader, node, nodes, memory, cpu_nodes, sources) for node in nodes}


def _classify(
    reader: SysfsReader,
    node: int,
    nodes: dict[int, CpuSet],
    memory: dict[int, int],
    cpu_nodes: dict[int, int],
    sources: _Sources,
) -> MemoryClass:
    tier, access = sources.tiers.get(node), sources.access[node]
    initiators = access.initiators
    if node in sources.gpus:
        address = sources.gpus[node]
        near = reader.cpu_bits(*(f"sys/bus/pci/devices/{address}/{f}" for f in ("local_cpus", "local_cpulist"))) or 0
        near_nodes = NodeSet.from_ids(cpu_nodes[cpu] for cpu in CpuSet(near) if cpu in cpu_nodes)
        source = f"{GPUS}/{address}/numa_status"
        return MemoryClass(MemoryKind.GPU, source, near_nodes or initiators, tier)
    if not memory[node]:
        return MemoryClass(MemoryKind.NONE, f"{NODES}/node{node}/meminfo", initiators, tier)
    if node in sources.dax and re.search(r"/ndbus\d|/cxl|/ACPI0017", sources.dax[node]):
        return MemoryClass(MemoryKind.FAR, sources.dax[node] + "/target_node", initiators, tier)
    bases = [n for n in nodes if nodes[n] and memory[n] and n not in sources.dax]
    usual = min((sources.tiers[n] for n in bases if n in sources.tiers), default=None)
    if tier is not None and usual is not None and tier != usual:
        kind = MemoryKind.HBM if tier < usual else MemoryKind.FAR
        return MemoryClass(kind, f"{TIERS}/memory_tier{tier}/nodelist", initiators, tier)
    return MemoryClass(_by_access(node, bases, sources), access.source, initiators, tier)


def _by_access(node: int, bases: list[int], sources: _Sources) -> MemoryKind:
    """Compare with the slowest-bandwidth ordinary node; DRAM where nothing can be compared."""
    mine = sources.access[node].bandwidth
    others = [sources.access[n].bandwidth for n in bases if n != node and sources.access[n].bandwidth]
    if not mine or not others:
        return MemoryKind.DRAM
    if mine >= CLEARLY * min(others):
        return MemoryKind.HBM
    return MemoryKind.FAR if mine * CLEARLY <= min(others) else MemoryKind.DRAM


def _read_gpus(reader: SysfsReader) -> dict[int, str]:
    found: dict[int, str] = {}
    for address in reader.names(GPUS):
        text = reader.text(f"{GPUS}/{address}/numa_status") if PCI_ADDRESS.fullmatch(address.lower()) else None
        match = _GPU_NODE.search(text or "")
        if match:
            found[int(match[1])] = address.lower()
    return found


def _read_dax(reader: SysfsReader) -> dict[int, str]:
    """Node -> real path of a device whose memory the kernel uses as that node (driver kmem)."""
    found: dict[int, str] = {}
    for name in reader.names(DAX):
        if not re.fullmatch(r"dax\d+\.\d+", name) or reader.files.link(f"{DAX}/{name}/driver") != "kmem":
            continue
        node = reader.number(f"{DAX}/{name}/target_node")
        if node is not None and node >= 0:
            found.setdefault(node, reader.files.resolve(f"{DAX}/{name}"))
    return found


def _read_tiers(reader: SysfsReader) -> dict[int, int]:
    found: dict[int, int] = {}
    for tier in ids_in(reader.names(TIERS), "memory_tier"):
        bits = reader.ids(f"{TIERS}/memory_tier{tier}/nodelist")
        found.update(dict.fromkeys(NodeSet(bits or 0), tier))
    return found


def _read_access(reader: SysfsReader, node: int, nodes: dict[int, CpuSet]) -> MemoryAccess:
    """Class 1 counts CPUs only, class 0 also initiators like GPUs; nodes without CPUs are no initiators to us."""
    for access in ("access1", "access0"):
        folder = f"{NODES}/node{node}/{access}/initiators"
        names = reader.names(folder)
        near = NodeSet.from_ids(n for n in ids_in(names, "node") if nodes.get(n))
        if near:
            bandwidth, latency = (
                reader.number(f"{folder}/{name}") or 0 if name in names else 0
                for name in ("read_bandwidth", "read_latency")
            )
            return MemoryAccess(near, bandwidth, latency, folder)
    return MemoryAccess()
