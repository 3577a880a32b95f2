"""Device files of a PCI function that numalign hands out itself, from its sysfs folder (safety.md S22).

    vfio-pci          /dev/vfio/<iommu group> and /dev/vfio/vfio, or /dev/vfio/devices/vfio<n> and /dev/iommu
                      (https://docs.kernel.org/driver-api/vfio.html)
    drm, accel        /dev/dri/card<n>, /dev/dri/renderD<n>, /dev/accel/accel<n>
    nvme              the controller and its namespaces
    infiniband_verbs  /dev/infiniband/uverbs<n> and rdma_cm
    uio               /dev/uio<n>
    net               none: an interface is moved by a CNI plugin, and known by the address in the environment

Where no file is found the device is a hint: the container knows its address and lies near it, no more. Numbers come
from `dev`, names from `uevent`, as devtmpfs takes them. Read when a container is created, since a driver may be bound
at any time; a few small files of the kernel's memory. Called by `agent.host.nri.decisions`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from agent.errors import SysfsMalformedError, SysfsMissingError
from agent.host.files import HostFiles
from agent.model.machine import PCI_ADDRESS

PCI = "sys/bus/pci/devices"
CLASSES = {"drm": "dri/", "accel": "accel/", "nvme": "", "infiniband_verbs": "infiniband/", "uio": ""}
"""Folders below a device that hold the devices of its driver -> where their files lie below /dev."""
COMPANIONS = {"infiniband_verbs": "rdma_cm"}
"""A misc device that is needed as well."""
MOST = 64
"""Files of one device; an NVMe controller may have many namespaces."""
_NUMBERS = re.compile(r"([0-9]{1,6}):([0-9]{1,7})")
_NAME = re.compile(r"[A-Za-z0-9_-]+(?:/[A-Za-z0-9_-]+)*")


@dataclass(frozen=True, slots=True)
class DeviceNode:
    """A device file to make usable in a container: a path, "c" or "b", its numbers, and the access allowed."""

    path: str
    kind: str
    major: int
    minor: int
    access: str = "rw"


@dataclass(frozen=True, slots=True)
class Usable:
    """How a device is made usable.

    Attributes:
        nodes: device files, sorted by path.
        hint: why there is none, one sentence; "" where there are some.
    """

    nodes: tuple[DeviceNode, ...]
    hint: str = ""


class DeviceFiles:
    """Finds device files.

    Args:
        files: the machine.
    """

    def __init__(self, files: HostFiles) -> None:
        self._files = files

    def of(self, address: str) -> Usable:
        """The device files of a PCI function; never raises, what cannot be read is a hint."""
        folder = f"{PCI}/{address}"
        if not PCI_ADDRESS.fullmatch(address) or not self._files.is_dir(folder):
            return Usable((), f"{address} is no PCI function of this machine now")
        driver = self._files.link(f"{folder}/driver")
        if not driver:
            return Usable((), f"no driver is bound to {address}, so it has no device file")
        nodes = self._vfio(folder) if "vfio" in driver else tuple(self._driven(folder))
        if nodes:
            return Usable(tuple(sorted(set(nodes), key=lambda node: node.path)))
        interfaces = self._names(f"{folder}/net")
        if interfaces:
            moved = "a CNI plugin has to move it into the pod"
            return Usable((), f"its network interface {', '.join(interfaces)} has no device file; {moved}")
        return Usable((), f"the driver {driver} of {address} shows no device file in sysfs")

    def _vfio(self, folder: str) -> tuple[DeviceNode, ...]:
        """The group's file with the container's, or both of the newer interface; none unless both are there."""
        group = self._files.link(f"{folder}/iommu_group")
        for name in (group, f"noiommu-{group}"):
            mine = self._node(f"sys/class/vfio/{name}", f"vfio/{name}") if group else None
            container = self._node("sys/class/misc/vfio", "vfio/vfio")
            if mine and container:
                return mine, container
        iommu = self._node("sys/class/misc/iommu", "iommu")
        for name in self._names(f"{folder}/vfio-dev"):
            mine = self._node(f"{folder}/vfio-dev/{name}", f"vfio/devices/{name}")
            if mine and iommu:
                return mine, iommu
        return ()

    def _driven(self, folder: str) -> Iterator[DeviceNode]:
        """What the bound driver made."""
        for kind, below in CLASSES.items():
            for name in self._names(f"{folder}/{kind}"):
                here = f"{folder}/{kind}/{name}"
                mine = self._node(here, f"{below}{name}")
                if mine is None:
                    continue
                yield mine
                if kind in COMPANIONS:
                    other = COMPANIONS[kind]
                    companion = self._node(f"sys/class/misc/{other}", f"{below}{other}")
                    if companion:
                        yield companion
                if kind == "nvme":
                    for part in self._names(here):  # its namespaces: block devices, and characters for passthrough
                        space = self._node(f"{here}/{part}", part) if re.match(r"n(?:vme|g)\d", part) else None
                        if space:
                            yield space

    def _node(self, folder: str, usual: str) -> DeviceNode | None:
        """One device file; None for a folder that is none."""
        numbers = _NUMBERS.fullmatch(self._text(f"{folder}/dev"))
        if not numbers:
            return None
        named = re.search(r"^DEVNAME=(.*)$", self._text(f"{folder}/uevent"), re.MULTILINE)
        name = named[1] if named and _NAME.fullmatch(named[1]) else usual
        kind = "b" if self._files.link(f"{folder}/subsystem") == "block" else "c"
        return DeviceNode(f"/dev/{name}", kind, int(numbers[1]), int(numbers[2]))

    def _text(self, path: str) -> str:
        try:
            return self._files.read_text(path)
        except (SysfsMissingError, SysfsMalformedError):
            return ""

    def _names(self, folder: str) -> list[str]:
        try:
            return self._files.list_dir(folder)[:MOST]
        except SysfsMalformedError:
            return []


def variable(resource: str) -> str:
    """The environment variable with the addresses of a resource, as the SR-IOV device plugin names it.

    https://github.com/k8snetworkplumbingwg/sriov-network-device-plugin: PCIDEVICE_, then the resource in capitals
    with "_" for everything that no variable's name may hold.
    """
    return "PCIDEVICE_" + re.sub(r"[^A-Z0-9]", "_", resource.upper())
