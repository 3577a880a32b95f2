"""PCI functions from sysfs.

Called by `agent.host.sysfs.discovery`. Files: https://www.kernel.org/doc/Documentation/ABI/testing/sysfs-bus-pci.
numa_node is -1 where firmware says nothing: then the bridges above are asked, then local_cpulist; that says nothing
either when it names every CPU.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from agent.errors import SysfsMalformedError
from agent.host.sysfs.read import SysfsReader
from agent.model.idset import CpuSet, NodeSet
from agent.model.machine import PCI_ADDRESS, NumaNode, PciDevice

DEVICES = "sys/bus/pci/devices"
_HEX = re.compile(r"0x([0-9a-f]{4,6})")
MAX_BRIDGES = 32
"""Deeper chains of bridges are a loop in a bad tree."""


@dataclass(frozen=True)
class _PciPlace:
    """Nodes that are local to a device, and the file that has them."""

    nodes: NodeSet = NodeSet()
    source: str = ""


def read_pci(reader: SysfsReader, nodes: tuple[NumaNode, ...], online: CpuSet) -> tuple[PciDevice, ...]:
    """Every PCI function, sorted by address; an entry that is no address is left out with a warning."""
    found: list[PciDevice] = []
    places: dict[str, _PciPlace] = {}
    for name in reader.names(DEVICES):
        if not PCI_ADDRESS.fullmatch(name):
            reader.warn(f"{DEVICES}/{name[:80]}", "is no PCI address")
            continue
        found.append(_read_device(reader, name, nodes, online, places))
    return tuple(sorted(found, key=lambda device: address_key(device.address)))


def address_key(address: str) -> tuple[int, int, int, int]:
    """Sort key of a PCI address: by number, as domains have four digits or more."""
    domain, bus, rest = address.split(":")
    device, function = rest.split(".")
    return int(domain, 16), int(bus, 16), int(device, 16), int(function, 16)


def _read_device(
    reader: SysfsReader, address: str, nodes: tuple[NumaNode, ...], online: CpuSet, places: dict[str, _PciPlace]
) -> PciDevice:
    folder = f"{DEVICES}/{address}"
    group = reader.files.link(f"{folder}/iommu_group")
    physfn = reader.files.link(f"{folder}/physfn")
    above = _bridges(reader, address)
    place = _place(reader, address, above, nodes, online, places)
    return PciDevice(
        address=address,
        class_code=_hex(reader, f"{folder}/class", 6),
        vendor=_hex(reader, f"{folder}/vendor", 4),
        device=_hex(reader, f"{folder}/device", 4),
        driver=reader.files.link(f"{folder}/driver"),
        iommu_group=int(group) if group.isascii() and group.isdigit() else None,
        physfn=physfn if PCI_ADDRESS.fullmatch(physfn) else "",
        parent=above[0] if above else "",
        numa_nodes=place.nodes,
        numa_source=place.source,
    )


def _hex(reader: SysfsReader, path: str, digits: int) -> str:
    """A number like 0x8086 without its 0x; zeros where it is missing or, with a warning, malformed."""
    text = reader.text(path)
    match = _HEX.fullmatch((text or "").lower())
    if match and len(match[1].lstrip("0")) > digits:
        match = None  # of another file, or torn
    if text and not match:
        reader.warn(path, f'"{text[:40]}" is no identifier like 0x8086')
    return match[1].lstrip("0").rjust(digits, "0") if match else "0" * digits


def _bridges(reader: SysfsReader, address: str) -> list[str]:
    """Addresses of the bridges above, nearest first: the folders that the device's real path goes through."""
    try:
        real = reader.files.resolve(f"{DEVICES}/{address}")
    except SysfsMalformedError as error:
        reader.warn(f"{DEVICES}/{address}", str(error))
        return []
    parts = [part for part in real.split("/")[:-1] if PCI_ADDRESS.fullmatch(part)]
    return parts[::-1][:MAX_BRIDGES]


def _place(
    reader: SysfsReader,
    address: str,
    above: list[str],
    nodes: tuple[NumaNode, ...],
    online: CpuSet,
    places: dict[str, _PciPlace],
) -> _PciPlace:
    """Where it is: its own numa_node, the nearest bridge's, its own CPUs, the nearest bridge's; else unknown."""
    chain = [address, *above]
    for read in (_by_node, _by_cpus):
        for one in chain:
            key = f"{read.__name__} {one}"
            if key not in places:
                places[key] = read(reader, one, nodes, online)
            if places[key].nodes:
                return places[key]
    return _PciPlace()


def _by_node(reader: SysfsReader, address: str, nodes: tuple[NumaNode, ...], online: CpuSet) -> _PciPlace:
    del online
    path = f"{DEVICES}/{address}/numa_node"
    number = reader.number(path)
    if number is None or number < 0:
        return _PciPlace()
    if number not in {node.id for node in nodes}:
        reader.warn(path, f"names node {number}, which this machine does not have")
        return _PciPlace()
    return _PciPlace(NodeSet.of(number), path)


def _by_cpus(reader: SysfsReader, address: str, nodes: tuple[NumaNode, ...], online: CpuSet) -> _PciPlace:
    for name in ("local_cpus", "local_cpulist"):
        path = f"{DEVICES}/{address}/{name}"
        try:
            bits = reader.cpu_bits(path)
        except SysfsMalformedError as error:
            reader.warn(path, str(error).removeprefix(f"{error.path}: "))
            continue
        near = CpuSet((bits or 0) & online.bits)
        if near and (near != online or len([node for node in nodes if node.cpus]) == 1):
            return _PciPlace(NodeSet.from_ids(node.id for node in nodes if not node.cpus.isdisjoint(near)), path)
        if bits is not None:
            return _PciPlace()
    return _PciPlace()
