"""Words for parts of a machine, the same in the terminal and in the picture.

Used by `agent.observe.tree` and the drawing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from agent.model.idset import CpuSet
from agent.model.machine import Machine, MemoryKind, PciDevice

KIB = 1024
_UNITS = (" B", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")

# PCI class codes: https://pci-ids.ucw.cz/read/PD, longest prefix wins; what is not here is part of the chipset.
_CLASSES = {
    "0108": "NVMe",
    "01": "disk",
    "02": "NIC",
    "0207": "InfiniBand",
    "03": "GPU",
    "0502": "CXL memory",
    "0b40": "accelerator",
    "10": "crypto",
    "12": "accelerator",
}
_MANAGEMENT_VGA = ("1a03", "102b")
"""ASPEED and Matrox: the picture of a management controller, no GPU that anyone computes with."""

_UNCOUNTED = ("InfiniBand", "CXL memory", "crypto")

MEMORY_WORDS = {
    MemoryKind.DRAM: "",
    MemoryKind.HBM: "HBM",
    MemoryKind.FAR: "far memory",
    MemoryKind.GPU: "GPU memory",
    MemoryKind.NONE: "",
}


def size(amount: int) -> str:
    """Bytes with three digits, in the units of manifests: "62.8Gi", "512Mi"."""
    value, power = float(amount), 0
    while value >= KIB - 0.5 and power < len(_UNITS) - 1:
        value, power = value / KIB, power + 1
    digits = max(0, 3 - len(str(int(value))))
    text = f"{value:.{digits}f}"
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text}{_UNITS[power]}"


def device_kind(device: PciDevice) -> str:
    """What a device is for people ("NIC", "GPU", ...); "" for bridges and parts of the chipset."""
    if device.class_code.startswith("0300") and device.vendor in _MANAGEMENT_VGA:
        return "VGA"
    code = device.class_code
    for length in (4, 2):
        if code[:length] in _CLASSES:
            return _CLASSES[code[:length]]
    return ""


def short_address(machine: Machine, address: str) -> str:
    """A PCI address without its domain where the whole machine has one only."""
    domains = {device.address.partition(":")[0] for device in machine.devices}
    return address.partition(":")[2] if len(domains) == 1 else address


def count(number: int, word: str) -> str:
    """As "1 core", "2 cores"."""
    same = number == 1 or word in _UNCOUNTED
    return f"{number} {word if same else word + 's'}"


def cpu_list(cpus: CpuSet) -> str:
    """As "CPU 9", "CPUs 0-3,8", "no CPUs"."""
    return f"CPU{'' if len(cpus) == 1 else 's'} {cpus}" if cpus else "no CPUs"


def cores(machine: Machine, cpus: CpuSet) -> str:
    """How many cores and threads a set of CPUs is: "8 cores × 2 threads", "6 cores × 2 + 8 × 1 threads"."""
    sizes = Counter(len(core & cpus) for core in machine.cores if not core.isdisjoint(cpus))
    if set(sizes) <= {1}:
        return count(sizes[1], "core")
    (most, number), *rest = sorted(sizes.items(), reverse=True)
    others = "".join(f" + {amount} × {threads}" for threads, amount in rest)
    return f"{count(number, 'core')} × {most}{others} threads"


def pages(hugepages: Iterable[tuple[int, int]]) -> str:
    """Huge pages that there are: "1024 × 2Mi, 4 × 1Gi"; "" for none."""
    return ", ".join(f"{number} × {size(each)}" for each, number in hugepages if number)


def headline(machine: Machine) -> str:
    """The machine in one line."""
    online = [node for node in machine.nodes if node.online]
    parts = [
        count(len(machine.packages), "socket"),
        count(len(online), "NUMA node"),
        f"{cores(machine, machine.online)}"
        + (f" = {len(machine.cpus)} CPUs" if len(machine.cores) != len(machine.cpus) else ""),
        size(sum(node.memory for node in online)),
    ]
    devices = Counter(filter(None, map(device_kind, machine.devices)))
    parts += [count(number, kind) for kind, number in sorted(devices.items())]
    return ", ".join(parts)
