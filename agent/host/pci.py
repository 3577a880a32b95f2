"""PCI functions from sysfs, and what pyudev adds on the live machine: hot-plug events and a second opinion.

Called by `agent.host.sysfs.discovery` (read_pci) and by the run loop (Hotplug, cross_check). Files:
https://www.kernel.org/doc/Documentation/ABI/testing/sysfs-bus-pci. numa_node is -1 where firmware says nothing: then
the bridges above are asked, then local_cpulist; that says nothing either when it names every CPU.

pyudev reads the live /sys only (its path is fixed), so it never answers for a recorded tree. It is imported when
needed: it loads libudev, which a container without it must survive.
"""

from __future__ import annotations

import errno
import re
from dataclasses import dataclass
from typing import Any

from agent.errors import HostError, SysfsMalformedError
from agent.host.sysfs.read import SysfsReader
from agent.model.idset import CpuSet, NodeSet
from agent.model.machine import NumaNode, PciDevice

DEVICES = "sys/bus/pci/devices"
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_HEX = re.compile(r"0x([0-9a-f]{4,6})")
MOST_EVENTS = 1000
"""Hot-plug events that are taken at once."""
MAX_BRIDGES = 32
"""Deeper chains of bridges are a loop in a bad tree."""


@dataclass(frozen=True)
class _PciPlace:
    """Nodes that are local to a device, and the file that told."""

    nodes: NodeSet = NodeSet()
    source: str = ""


def read_pci(reader: SysfsReader, nodes: tuple[NumaNode, ...], online: CpuSet) -> tuple[PciDevice, ...]:
    """Every PCI function, sorted by address; an entry that is no address is left out with a warning."""
    found: list[PciDevice] = []
    places: dict[str, _PciPlace] = {}
    for name in reader.names(DEVICES):
        if not _ADDRESS.fullmatch(name):
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
        physfn=physfn if _ADDRESS.fullmatch(physfn) else "",
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
    parts = [part for part in real.split("/")[:-1] if _ADDRESS.fullmatch(part)]
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


SUBSYSTEMS = ("cpu", "memory", "node", "pci")


@dataclass(frozen=True, slots=True)
class Uevent:
    """One hot-plug event of the kernel: what happened to which device."""

    action: str  # add, remove, online, offline, change, bind, ...; "lost" when the kernel dropped events
    subsystem: str
    path: str  # below /sys


class Hotplug:
    """The kernel's own events for CPUs, memory, nodes and PCI devices: a reason to read the machine again.

    source="kernel" works without udevd and in a pod's network namespace, but not in a user namespace of its own
    (hostUsers: false). So an event means "look again soon", and none means nothing: look again now and then anyway.
    Use: register fileno() with the event loop, call drain() when it is readable.
    """

    def __init__(self) -> None:
        """Start to listen; raises HostError when libudev is missing or the socket is refused."""
        pyudev = _pyudev()
        try:
            self._monitor = pyudev.Monitor.from_netlink(pyudev.Context(), source="kernel")
            for subsystem in SUBSYSTEMS:
                self._monitor.filter_by(subsystem)
            self._monitor.start()
        except (OSError, ImportError) as error:
            raise HostError("udev", f"cannot listen for hot-plug events: {error}") from error

    def fileno(self) -> int:
        """The socket, for an event loop."""
        return int(self._monitor.fileno())

    def drain(self) -> tuple[Uevent, ...]:
        """The events that wait, MOST_EVENTS of them at most, without blocking; raises HostError."""
        found: list[Uevent] = []
        while len(found) < MOST_EVENTS:
            try:
                device = self._monitor.poll(timeout=0)
            except OSError as error:
                if error.errno != errno.ENOBUFS:  # the kernel dropped events
                    raise HostError("udev", f"no longer tells hot-plug events: {error}") from error
                return (*found, Uevent("lost", "", ""))
            if device is None:
                break
            found.append(Uevent(str(device.action), str(device.subsystem), str(device.device_path)))
        return tuple(found)


def cross_check(devices: tuple[PciDevice, ...]) -> tuple[str, ...]:
    """Sentences about what libudev sees differently on the live machine; none when both agree.

    Raises HostError when libudev is missing.
    """
    pyudev = _pyudev()
    ours = {device.address: device for device in devices}
    found: list[str] = []
    seen: set[str] = set()
    for entry in pyudev.Context().list_devices(subsystem="pci"):
        address = str(entry.sys_name)
        seen.add(address)
        device = ours.get(address)
        if device is None:
            found.append(f"{address}: udev lists it, sysfs did not")
            continue
        theirs = {
            "class": _udev_hex(entry, "class", 6),
            "vendor": _udev_hex(entry, "vendor", 4),
            "device": _udev_hex(entry, "device", 4),
            "driver": str(entry.driver or ""),
        }
        mine = {"class": device.class_code, "vendor": device.vendor, "device": device.device, "driver": device.driver}
        found += [f"{address}: {k} is {mine[k]}, udev says {v}" for k, v in theirs.items() if v != mine[k]]
        node = int(entry.attributes.get("numa_node", b"-1"))
        if node >= 0 and node not in device.numa_nodes:
            found.append(f"{address}: local to nodes {device.numa_nodes or '-'}, udev says {node}")
    found += [f"{address}: sysfs lists it, udev does not" for address in sorted(set(ours) - seen)]
    return tuple(found)


def _udev_hex(entry: Any, name: str, digits: int) -> str:  # noqa: ANN401 - because pyudev ships no types
    text = bytes(entry.attributes.get(name, b"")).decode("ascii", "replace").strip()
    return text.removeprefix("0x").rjust(digits, "0")


def _pyudev() -> Any:  # noqa: ANN401 - because pyudev ships no types
    try:
        import pyudev  # noqa: PLC0415 - because it loads libudev, which discovery must not need
    except ImportError as error:
        raise HostError("libudev", f"cannot be loaded: {error}; install libudev1, or run without hot-plug") from error
    return pyudev
