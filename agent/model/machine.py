"""Machine: everything discovered about a node, one immutable value.

Built by `agent.host.sysfs.discovery` (live or recorded trees), `agent.core.machines.synthetic` (a description) or a
test; read by every decision. Identity of cores, packages, dies and L3 caches is *which CPUs they hold*; the ids kept
on `Cpu` are unique on the machine (see each field), never the kernel's own ids where those repeat.

Sources: https://docs.kernel.org/admin-guide/cputopology.html, https://docs.kernel.org/admin-guide/mm/numaperf.html,
https://www.kernel.org/doc/Documentation/ABI/stable/sysfs-devices-node, .../ABI/testing/sysfs-bus-pci.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from functools import cached_property

from agent.model.idset import CpuSet, NodeSet
from agent.model.quantity import show_bytes

PCI_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
"""domain:bus:device.function, as sysfs spells it."""


@dataclass(frozen=True, slots=True)
class Cpu:
    """One online logical CPU and the units it belongs to.

    Attributes:
        id: the kernel's CPU number.
        node: NUMA node id; 0 on a kernel without NUMA (no node folders), the only one that such a kernel accepts in
            cpuset.mems.
        core: the lowest online CPU of its core.
        package: physical_package_id where that id names one set of CPUs, else the lowest CPU of the set.
        die: the lowest online CPU of its die.
        uncore: what the kubelet calls the uncore cache: id of the L3 (or higher) cache where it is smaller than the
            NUMA node, else None. Unique on the machine, but for a kubelet's view, which has the kernel's ids.
        kind: "performance", "middle" or "efficiency" on hybrid machines, else "".
    """

    id: int
    node: int
    core: int
    package: int
    die: int
    uncore: int | None = None
    kind: str = ""


class MemoryKind(StrEnum):
    """What a NUMA node's memory is."""

    DRAM = "dram"
    HBM = "hbm"
    FAR = "far"  # CXL, persistent memory: slower than DRAM
    GPU = "gpu"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class NumaNode:
    """One NUMA node.

    Attributes:
        id: the kernel's node id; ids may have holes.
        cpus: its online CPUs; empty for a memory-only node.
        memory: MemTotal of the node in bytes, huge pages included.
        hugepages: (page size in bytes, number of pages) per size the node has, ascending, zeros included.
        distances: to every node of the machine, in the order of Machine.nodes; empty where the kernel gives none.
        kind: what its memory is, and `kind_source` the file that says so.
        initiators: the nodes whose CPUs reach its memory best (numaperf), empty where the kernel gives none.
        tier: memory tier id (/sys/devices/virtual/memory_tiering), None where the kernel gives none.
        movable: whether all of its memory is movable, as memory that was plugged in is most often (Optane, CXL, HBM):
            the kernel puts nothing of its own there.
        online: whether the kernel lists the node as online. A CPU may name a node that is not (no memory there at
            boot); such a node has no memory and must never be written to cpuset.mems.
    """

    id: int
    cpus: CpuSet
    memory: int
    hugepages: tuple[tuple[int, int], ...] = ()
    distances: tuple[int, ...] = ()
    kind: MemoryKind = MemoryKind.DRAM
    kind_source: str = ""
    initiators: NodeSet = NodeSet()
    tier: int | None = None
    movable: bool = False
    online: bool = True

    @property
    def resources(self) -> dict[str, int]:
        """Bytes per memory resource: "memory" without the huge pages, and "hugepages-<size>" each."""
        pages = {f"hugepages-{show_bytes(size)}": size * count for size, count in self.hugepages}
        return {"memory": self.memory - sum(pages.values()), **pages}


@dataclass(frozen=True, slots=True)
class PciDevice:
    """One PCI function.

    Attributes:
        address: as `PCI_ADDRESS` says.
        class_code: six hex digits without 0x, e.g. "020000".
        vendor, device: four hex digits without 0x.
        driver: name of the bound driver, or "".
        iommu_group: number, or None.
        physfn: address of the SR-IOV parent of a virtual function, or "".
        parent: address of the bridge it hangs below, or "".
        numa_nodes: nodes local to it; empty when nothing says so.
        numa_source: the sysfs file that told numa_nodes, "" when nothing did.
    """

    address: str
    class_code: str
    vendor: str
    device: str
    driver: str = ""
    iommu_group: int | None = None
    physfn: str = ""
    parent: str = ""
    numa_nodes: NodeSet = NodeSet()
    numa_source: str = ""


@dataclass(frozen=True, slots=True)
class Cache:
    """One cache of level 3 or higher, or any cache worth drawing."""

    level: int
    cpus: CpuSet
    size: int = 0  # bytes; 0 where the kernel does not say


@dataclass(frozen=True, slots=True)
class KernelCpu:
    """The kernel's own words about one CPU, which repeat, contradict the sets or are missing on some machines.

    Attributes:
        core: core_id; None where the file is missing.
        package: physical_package_id, which may be negative; None where the file is missing.
        outer: (id, number of CPUs that share it) of each cache above level 2, in the order of its folders; None where
            a file that the kubelet's reader needs is missing for any cache of this CPU.
    """

    core: int | None
    package: int | None
    outer: tuple[tuple[int, int], ...] | None = None


@dataclass(frozen=True, slots=True)
class KernelFacts:
    """What the kubelet's reader makes its machine of (kubelet rule 1.1), as far as it differs from units by sets.

    Attributes:
        cpus: online CPU -> the kernel's words about it.
        sockets: distinct "physical id" of /proc/cpuinfo, else distinct package ids, a missing one counted as 0.
        folders: number of CPU folders, those of offline CPUs too.
        nodes: NUMA node that has a folder -> CPUs that this folder links to, all empty in recordings that lack the
            links; empty on a kernel without NUMA.
    """

    cpus: Mapping[int, KernelCpu]
    sockets: int
    folders: int
    nodes: Mapping[int, CpuSet]


@dataclass(frozen=True)
class Machine:
    """A node's hardware. See the attribute docs of its parts; every tuple is sorted by id (or lowest CPU).

    Attributes:
        disallowed: CPUs that are online, and that a cgroup hid from lstopo; neither in `cpus` nor in `offline`.
        barred, barred_nodes: CPUs that are online and NUMA nodes with memory that the kubelet's own cgroup does not
            have in force: nothing is placed there (`agent.core.machines.in_force`).
        kernel: the kernel's own numbers; None for a machine that was described.
        sockets, counted: sockets and CPUs as the kubelet counts them, where that is not the number of packages and of
            online CPUs (`agent.core.machines.kubelet_view`).
    """

    cpus: tuple[Cpu, ...]
    nodes: tuple[NumaNode, ...]
    offline: CpuSet = CpuSet()
    isolated: CpuSet = CpuSet()
    caches: tuple[Cache, ...] = ()
    devices: tuple[PciDevice, ...] = ()
    disallowed: CpuSet = CpuSet()
    barred: CpuSet = CpuSet()
    barred_nodes: NodeSet = NodeSet()
    kernel: KernelFacts | None = field(default=None, compare=False)
    sockets: int | None = None
    counted: int | None = None
    name: str = ""
    warnings: tuple[str, ...] = field(default=(), compare=False)  # facts that contradict or are missing

    @cached_property
    def online(self) -> CpuSet:
        """All online CPUs."""
        return CpuSet.from_ids(cpu.id for cpu in self.cpus)

    @cached_property
    def usable(self) -> CpuSet:
        """The online CPUs that pods can run on: those that the kubelet's own cgroup has in force."""
        return self.online - self.barred

    @cached_property
    def node_set(self) -> NodeSet:
        """All NUMA node ids, memory-only ones too."""
        return NodeSet.from_ids(node.id for node in self.nodes)

    @cached_property
    def kernel_nodes(self) -> bool:
        """Whether any NUMA node is one that the kernel knows; those of a kubelet's view may be packages."""
        return any(node.online for node in self.nodes)

    @cached_property
    def by_node(self) -> dict[int, NumaNode]:
        """NUMA node by id."""
        return {node.id: node for node in self.nodes}

    @cached_property
    def cores(self) -> tuple[CpuSet, ...]:
        """The sets of CPUs that share a core."""
        return self._sets("core")

    @cached_property
    def packages(self) -> tuple[CpuSet, ...]:
        """The sets of CPUs that share a package (socket)."""
        return self._sets("package")

    @cached_property
    def dies(self) -> tuple[CpuSet, ...]:
        """The sets of CPUs that share a die."""
        return self._sets("die")

    @cached_property
    def l3(self) -> tuple[CpuSet, ...]:
        """The sets of CPUs that share an L3 cache; empty on a machine without one."""
        return tuple(cache.cpus for cache in self.caches if cache.level == 3)  # noqa: PLR2004 - the third level

    @cached_property
    def digest(self) -> str:
        """Sixteen hex digits over all facts that grants depend on: CPUs, nodes, memory, devices. Not the name."""
        facts: dict[str, object] = {
            "cpus": [asdict(cpu) for cpu in self.cpus],
            "nodes": [
                [n.id, str(n.cpus), n.memory, n.hugepages, n.distances, n.kind, str(n.initiators)] for n in self.nodes
            ],
            "isolated": str(self.isolated),
            "devices": [[d.address, d.class_code, d.vendor, d.device, str(d.numa_nodes)] for d in self.devices],
        }
        if movable := [node.id for node in self.nodes if node.movable]:
            facts["movable"] = movable
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]

    @cached_property
    def shape(self) -> str:
        """The same over what stays when memory or devices come and go: CPUs, NUMA nodes, caches."""
        facts = {
            "cpus": [asdict(cpu) for cpu in self.cpus],
            "nodes": [[n.id, str(n.cpus), n.distances, n.kind, str(n.initiators)] for n in self.nodes],
            "caches": [[cache.level, str(cache.cpus), cache.size] for cache in self.caches],
        }
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]

    def nodes_of(self, cpus: CpuSet) -> NodeSet:
        """The NUMA nodes that a set of CPUs touches."""
        return NodeSet.from_ids(node.id for node in self.nodes if not node.cpus.isdisjoint(cpus))

    def cpus_of(self, nodes: NodeSet) -> CpuSet:
        """The online CPUs of a set of NUMA nodes."""
        return CpuSet.union(node.cpus for node in self.nodes if node.id in nodes)

    def _sets(self, unit: str) -> tuple[CpuSet, ...]:
        bits: dict[int, int] = {}
        for cpu in self.cpus:
            key = getattr(cpu, unit)
            bits[key] = bits.get(key, 0) | 1 << cpu.id
        return tuple(sorted((CpuSet(b) for b in bits.values()), key=lambda cpus: cpus.first))
