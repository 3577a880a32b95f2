"""Discovery: a machine from its /sys (and a little of its /proc), live or recorded.

Called by `agent.host.machines`, the run loop and every test. One reader serves all trees; nothing outside the given
files is opened. Parts: cpus, caches, nodes, tiers, kinds, pci.
"""

from __future__ import annotations

from agent.core.machines.uncore import uncore_of
from agent.host.files import HostFiles
from agent.host.sysfs.caches import CacheFacts, read_caches
from agent.host.sysfs.cpus import CpuFacts, read_cpuinfo, read_cpus
from agent.host.sysfs.kinds import read_kinds
from agent.host.sysfs.nodes import read_nodes
from agent.host.sysfs.pci import read_pci
from agent.host.sysfs.read import SysfsReader, ids_in
from agent.host.sysfs.tiers import NODES
from agent.model.idset import CpuSet
from agent.model.machine import Cpu, KernelCpu, KernelFacts, Machine


def discover(files: HostFiles, name: str = "") -> Machine:
    """Read a machine.

    Args:
        files: the root that holds sys/ and proc/.
        name: what to call it.

    Raises SysfsMissingError when there is no machine at all, and SysfsMalformedError when a file that placements rest
    on says something that cannot be, naming the file. Anything less is a sentence in `Machine.warnings`.
    """
    files.forget()
    reader = SysfsReader(files)
    facts = read_cpus(reader, read_cpuinfo(reader))
    nodes = read_nodes(reader, facts.online)
    caches = read_caches(reader, facts.online)
    node_of = {cpu: node.id for node in nodes for cpu in node.cpus}
    core = _cores_in_nodes(reader, facts.core, node_of)
    uncore = uncore_of(caches.caches, caches.kernel_id, core, node_of)
    package = _package_ids(facts)
    kinds = read_kinds(reader, facts.online)
    cpus = tuple(
        Cpu(cpu, node_of[cpu], core[cpu], package[cpu], facts.die[cpu], uncore.get(cpu), kinds.get(cpu, ""))
        for cpu in facts.online
    )
    return Machine(
        cpus=cpus,
        nodes=nodes,
        offline=facts.offline,
        isolated=facts.isolated,
        caches=caches.caches,
        devices=read_pci(reader, nodes, facts.online),
        kernel=_kernel(reader, facts, caches),
        name=name,
        warnings=tuple(reader.warnings),
    )


def _kernel(reader: SysfsReader, facts: CpuFacts, caches: CacheFacts) -> KernelFacts:
    """The kernel's own numbers."""
    return KernelFacts(
        cpus={cpu: KernelCpu(core, package, caches.outer[cpu]) for cpu, (core, package) in facts.told.items()},
        sockets=facts.sockets,
        folders=facts.folders,
        nodes={node: _linked(reader, node) & facts.online for node in ids_in(reader.names(NODES), "node")},
    )


def _linked(reader: SysfsReader, node: int) -> CpuSet:
    return CpuSet.from_ids(ids_in(reader.names(f"{NODES}/node{node}"), "cpu"))


def _package_ids(facts: CpuFacts) -> dict[int, int]:
    """CPU -> package: physical_package_id where each id names one set of CPUs, else the lowest CPU of the set."""
    pairs = {(facts.package_id[cpu], facts.package[cpu]) for cpu in facts.online}
    unique = len(pairs) == len({i for i, _ in pairs}) == len({p for _, p in pairs}) and all(i >= 0 for i, _ in pairs)
    return dict(facts.package_id) if unique else dict(facts.package)


def _cores_in_nodes(reader: SysfsReader, core: dict[int, int], node_of: dict[int, int]) -> dict[int, int]:
    """Cores cut at the borders of NUMA nodes, as cAdvisor groups inside a node (kubelet rule 1.1)."""
    first: dict[tuple[int, int], int] = {}
    cut = {cpu: first.setdefault((core[cpu], node_of[cpu]), cpu) for cpu in sorted(core)}
    for cpu in sorted(core):
        if cut[cpu] != core[cpu] and cut[cpu] == cpu:
            reader.warn(
                f"sys/devices/system/cpu/cpu{cpu}", f"shares a core with CPU {core[cpu]} of another NUMA node: cut"
            )
    return cut
