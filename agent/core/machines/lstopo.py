"""A machine from the XML that hwloc's lstopo writes (`lstopo machine.xml`), formats of hwloc 1 and 2.

Called by `agent.host.lstopo`, which makes the elements. What the elements mean:
https://www.open-mpi.org/projects/hwloc/doc/ ("Importing and exporting topologies from/to XML files"; objects and
their attributes). Two things differ between the formats: in 1 a NUMANode is an ancestor of its cores, in 2 it hangs
beside them and memory of several kinds may have the same CPUs; and matrices of distances look different.

What such a file does not say is not invented: which CPUs the kernel isolates, drivers, virtual functions, IOMMU
groups. A PCI class has four of its six digits there; the last two become 00.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from agent.core.machines.lstopo_element import Element
from agent.core.machines.lstopo_nodes import SOURCE, Memory, nodes_of
from agent.core.machines.uncore import UNCORE_LEVEL, uncore_of
from agent.model.idset import MAX_ID, CpuSet, NodeSet
from agent.model.machine import PCI_ADDRESS, Cache, Cpu, KernelCpu, KernelFacts, Machine, PciDevice

_CACHE = re.compile(r"L(\d)d?Cache")
_PCI_TYPE = re.compile(r"([0-9a-f]{4}) \[([0-9a-f]{4}):([0-9a-f]{4})\]", re.ASCII | re.IGNORECASE)
_PACKAGES = ("Package", "Socket")
_INSTRUCTIONS = "2"
_KINDS = {"IntelAtom": "efficiency", "IntelCore": "performance"}


@dataclass(frozen=True)
class XmlMachine:
    """All objects of a file.

    Attributes:
        top: the Machine (or System) object.
        objects: (object, the objects around it, outermost first), in order.
        root: the topology element.
    """

    root: Element
    top: Element
    objects: tuple[tuple[Element, tuple[Element, ...]], ...]

    @cached_property
    def online(self) -> CpuSet:
        """The CPUs that are there and may be used."""
        listed = self.top.bits("online_cpuset") or self.top.bits("cpuset")
        known = CpuSet.from_ids(each.number("os_index", most=MAX_ID) for each, _ in self.of("PU"))
        return known & CpuSet(listed) if listed else known

    def of(self, *kinds: str) -> Iterator[tuple[Element, tuple[Element, ...]]]:
        """The objects of some types."""
        return ((each, around) for each, around in self.objects if each.get("type") in kinds)

    def cpus(self, each: Element) -> CpuSet:
        """The online CPUs of an object."""
        return CpuSet(each.bits("cpuset")) & self.online

    def numbers(self, *kinds: str) -> dict[int, int]:
        """Online CPU -> the system's number of the object of these types that holds it, as far as there is one."""
        found: dict[int, int] = {}
        for each, _ in self.of(*kinds):
            if each.get("os_index"):
                found.update(dict.fromkeys(self.cpus(each), each.number("os_index", most=2**31)))
        return found

    def groups(self, *kinds: str) -> dict[int, int]:
        """Online CPU -> lowest CPU of the object of these types that holds it; itself where none does."""
        found = {cpu: cpu for cpu in self.online}
        for each, _ in self.of(*kinds):
            cpus = self.cpus(each)
            found.update(dict.fromkeys(cpus, cpus.first if cpus else 0))
        return found


def machine_from(root: Element, name: str = "") -> Machine:
    """The machine that a file describes.

    Raises:
        MalformedError: naming line and element.
    """
    tree = _tree(root)
    if not tree.online:
        raise tree.top.wrong("has no PU objects that are online: no machine")
    memory = nodes_of(tree.root, [each for each, _ in tree.objects], tree.online)
    core = _cut(tree.groups("Core"), memory)
    package = _packages(tree)
    lowest = {number: min(cpu for cpu, mine in package.items() if mine == number) for number in set(package.values())}
    die = tree.groups("Die") if any(tree.of("Die")) else {cpu: lowest[package[cpu]] for cpu in package}
    caches, ids = _caches(tree)
    uncore = uncore_of(caches, ids, core, memory.owner)
    kinds = _kinds(tree)
    hidden = CpuSet(tree.top.bits("complete_cpuset")) - tree.online
    disallowed = hidden & CpuSet(tree.top.bits("online_cpuset"))
    return Machine(
        cpus=tuple(
            Cpu(cpu, memory.owner[cpu], core[cpu], package[cpu], die[cpu], uncore.get(cpu), kinds.get(cpu, ""))
            for cpu in tree.online
        ),
        nodes=memory.nodes,
        offline=hidden - disallowed,
        disallowed=disallowed,
        caches=caches,
        devices=_devices(tree, memory),
        kernel=_kernel(tree, memory, caches, ids),
        name=name,
        warnings=(*_of_hidden(tree, hidden, disallowed), *memory.warnings),
    )


def _of_hidden(tree: XmlMachine, hidden: CpuSet, disallowed: CpuSet) -> Iterator[str]:
    """What is to be said of CPUs that are not in the file: format 1 tells why they are not, format 2 does not."""
    if disallowed:
        yield f"CPUs {disallowed} are online, and not allowed to lstopo: write the file with --disallowed"
    if hidden - disallowed and not tree.top.get("online_cpuset"):
        yield f"CPUs {hidden} are offline, or not allowed to lstopo: with --disallowed the file tells which"


def _kernel(
    tree: XmlMachine, memory: Memory, caches: tuple[Cache, ...], ids: dict[tuple[int, int], int]
) -> KernelFacts | None:
    """The kernel's own numbers: lstopo keeps those of cores and packages; None where it does not for every CPU.

    Whether a cache has an id only later versions write; where none is written, each cache is taken to have one.
    """
    number = {kind: tree.numbers(*names) for kind, names in (("core", ("Core",)), ("package", _PACKAGES))}
    if any(each.keys() != set(tree.online) for each in number.values()):
        return None
    outer = [cache for cache in caches if cache.level >= UNCORE_LEVEL]
    found = {
        cpu: KernelCpu(
            number["core"][cpu], number["package"][cpu],
            tuple(
                (ids.get((each.level, each.cpus.first), each.cpus.first), len(each.cpus))
                for each in outer if cpu in each.cpus
            ),
        )
        for cpu in tree.online
    }  # fmt: skip
    nodes = {node.id: node.cpus for node in memory.nodes if node.online}
    return KernelFacts(found, len(set(number["package"].values())), len(found), nodes)


def _tree(root: Element) -> XmlMachine:
    if root.tag != "topology":
        raise root.wrong("is not what lstopo writes, whose root is <topology>")
    top = next(root.all("object"), None)
    if top is None or top.get("type") not in {"Machine", "System"}:
        raise (top or root).wrong("is no Machine; write the file with `lstopo machine.xml`")
    found: list[tuple[Element, tuple[Element, ...]]] = []
    left: list[tuple[Element, tuple[Element, ...]]] = [(top, ())]
    while left:
        each, around = left.pop()
        found.append((each, around))
        inside = (*around, each)
        left += [(child, inside) for child in reversed(each.children) if child.tag == "object"]
    return XmlMachine(root, top, tuple(found))


def _cut(core: dict[int, int], memory: Memory) -> dict[int, int]:
    """Cores cut at the borders of NUMA nodes, as discovery does."""
    first: dict[tuple[int, int], int] = {}
    return {cpu: first.setdefault((core[cpu], memory.owner[cpu]), cpu) for cpu in sorted(core)}


def _packages(tree: XmlMachine) -> dict[int, int]:
    """CPU -> package: the system's number where each package has one of its own, else its lowest CPU."""
    found = [(each, tree.cpus(each)) for each, _ in tree.of(*_PACKAGES)]
    found = [(each, cpus) for each, cpus in found if cpus]
    numbers = [each.get("os_index") for each, _ in found]
    named = all(numbers) and len(set(numbers)) == len(numbers)
    package = dict.fromkeys(tree.online, tree.online.first)
    for each, cpus in found:
        package.update(dict.fromkeys(cpus, each.number("os_index", most=2**31) if named else cpus.first))
    return package


def _caches(tree: XmlMachine) -> tuple[tuple[Cache, ...], dict[tuple[int, int], int]]:
    caches: dict[tuple[int, int], Cache] = {}
    elements: dict[tuple[int, int], Element] = {}
    ids: dict[tuple[int, int], int] = {}
    for each, _ in tree.objects:
        kind = _CACHE.fullmatch(each.get("type"))
        plain = each.get("type") == "Cache" and each.get("cache_type") != _INSTRUCTIONS
        cpus = tree.cpus(each) if kind or plain else CpuSet()
        if not cpus:
            continue
        level = int(kind[1]) if kind else each.number("depth", most=9)
        caches[level, cpus.first] = Cache(level, cpus, each.number("cache_size", 0))
        elements[level, cpus.first] = each
        if level >= UNCORE_LEVEL and each.get("os_index"):
            ids[level, cpus.first] = each.number("os_index", most=2**32)
    taken: dict[int, CpuSet] = {}
    for level, first in sorted(caches):
        cpus, others = caches[level, first].cpus, taken.get(level, CpuSet())
        if not cpus.isdisjoint(others):
            raise elements[level, first].wrong("shares CPUs with another cache of its level")
        taken[level] = cpus | others
    return tuple(caches[key] for key in sorted(caches)), ids


def _kinds(tree: XmlMachine) -> dict[int, str]:
    """CPU -> performance or efficiency, where lstopo knows the kind of core."""
    found: dict[int, str] = {}
    for each in tree.root.all("cpukind"):
        told = {info.get("value") for info in each.all("info") if info.get("name") == "CoreType"}
        for kind in told & set(_KINDS):
            found.update(dict.fromkeys(CpuSet(each.bits("cpuset")) & tree.online, _KINDS[kind]))
    return found if len(set(found.values())) > 1 else {}


def _devices(tree: XmlMachine, memory: Memory) -> tuple[PciDevice, ...]:
    found: dict[str, PciDevice] = {}
    for each, around in tree.of("PCIDev", "Bridge"):
        address, bridge = each.get("pci_busid").lower(), each.get("type") == "Bridge"
        if bridge and not address:
            continue  # the host's own
        what = _PCI_TYPE.match(each.get("pci_type"))
        if not PCI_ADDRESS.fullmatch(address) or what is None:
            raise each.wrong(
                f'has pci_busid="{address[:40]}" and pci_type="{each.get("pci_type")[:40]}": no PCI function'
            )
        place = next((one for one in reversed(around) if one.get("cpuset")), tree.top)
        nodes = memory.owners(tree.cpus(place))
        hosts = len(set(memory.owner.values()))
        told = nodes if len(nodes) < hosts or hosts == 1 else NodeSet()  # on all of several nodes: nothing says where
        parent = next((one.get("pci_busid").lower() for one in reversed(around) if one.get("pci_busid")), "")
        found[address] = PciDevice(
            address, what[1].lower() + "00", what[2].lower(), what[3].lower(), parent=parent, numa_nodes=told,
            numa_source=SOURCE if told else "",
        )  # fmt: skip
    return tuple(found[address] for address in sorted(found))
