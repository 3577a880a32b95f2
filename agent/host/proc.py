"""A second opinion from psutil on the live machine: number of CPUs and cores, memory.

Called by the run loop after discovery and by `numalign topology`. psutil counts in its own way (sysconf, /proc), so a
difference means that the reader, the kernel or the container's view of /sys is wrong; it is only reported.
"""

from __future__ import annotations

import psutil

from agent.model.machine import Machine
from agent.model.quantity import show_bytes

TOLERANCE = 0.02
"""Memory sums differ by this much at most: nodes count their own reserved pages."""


def cross_check(machine: Machine) -> tuple[str, ...]:
    """Sentences about what psutil sees differently on this machine; none when both agree."""
    found: list[str] = []
    logical, cores = psutil.cpu_count(logical=True), psutil.cpu_count(logical=False)
    if logical is not None and logical != len(machine.cpus):
        found.append(
            f"the kernel counts {logical} CPUs elsewhere, /sys lists {len(machine.cpus)}; the answers go by /sys"
        )
    if cores is not None and cores != len(machine.cores):
        found.append(
            f"the kernel counts {cores} cores elsewhere, /sys lists {len(machine.cores)}; the answers go by /sys"
        )
    total, nodes = psutil.virtual_memory().total, sum(node.memory for node in machine.nodes)
    if abs(total - nodes) > total * TOLERANCE:
        found.append(
            f"/proc/meminfo has {show_bytes(total)} of memory, the NUMA nodes have {show_bytes(nodes)}: memory came "
            "or went while it was read, or a VM's balloon moves; the answers go by the NUMA nodes"
        )
    return tuple(found)
