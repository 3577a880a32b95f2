"""What pyudev adds on the live machine: hot-plug events, and a second opinion on PCI functions.

Used by `agent.app.service.machine_watch`. pyudev reads the live /sys only (its path is fixed): it never answers for
a recorded tree. It is imported when needed: it loads libudev, which a container without it must survive.
"""

from __future__ import annotations

import errno
from ctypes.util import find_library
from dataclasses import dataclass
from typing import Any

from agent.errors import HostError
from agent.model.machine import PciDevice

MOST_EVENTS = 1000
"""Hot-plug events that are taken at once."""
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
        pyudev, context = _pyudev()
        try:
            self._monitor = pyudev.Monitor.from_netlink(context, source="kernel")
            for subsystem in SUBSYSTEMS:
                self._monitor.filter_by(subsystem)
            self._monitor.start()
        except OSError as error:
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
    _, context = _pyudev()
    ours = {device.address: device for device in devices}
    found: list[str] = []
    seen: set[str] = set()
    for entry in context.list_devices(subsystem="pci"):
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


def _pyudev() -> tuple[Any, Any]:  # because pyudev ships no types
    """The module and a context of it; raises HostError when libudev cannot be loaded."""
    try:
        import pyudev  # noqa: PLC0415 - because it loads libudev, which discovery must not need
        from pyudev._ctypeslib import utils  # noqa: PLC0415 - the same

        utils.find_library = _library
        return pyudev, pyudev.Context()
    except (ImportError, OSError) as error:
        raise HostError("libudev", f"cannot be loaded: {error}; install libudev1, or run without hot-plug") from error


def _library(name: str) -> str:
    """The file of a library. pyudev asks ldconfig alone, which images for another architecture do not have."""
    return find_library(name) or f"lib{name}.so.1"
