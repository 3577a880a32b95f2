"""How near PCI functions are to each other: the words of `nvidia-smi topo` and NCCL, and hops to choose by. Pure.

    PIX      below one switch or one port: one bridge at most on either side of the nearest that they share
    PXB      more bridges than that, and no host bridge between them
    PHB      through the host bridge that they share
    NODE     through two host bridges of one NUMA node
    SYS      through two NUMA nodes
    unknown  the tree cannot tell

A virtual machine has the tree that its hypervisor made up: often every device hangs on the root bus, or below a port
of its own that stands for nothing. So without a shared bridge, of a function that has none above it or whose topmost
bridge is a hypervisor's, only the NUMA nodes are believed, and only where they differ. None of these words promises
that two devices reach each other directly: ACS and the IOMMU decide that.

The tree is what `agent.host.sysfs.pci` reads: every function names the bridge it hangs below; what hangs below none
lies on the root bus of its host bridge. Used by `agent.core.devices`, `agent.core.explain` and the edges that tell
of pods.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations

from agent.model.machine import Machine, PciDevice

HYPERVISORS = frozenset({"1b36", "1af4", "15ad", "80ee", "1ab8"})
"""PCI vendors whose bridges are made up: Red Hat (QEMU), virtio, VMware, VirtualBox, Parallels."""
MOST_BRIDGES = 64
"""A longer way up is a loop in a bad tree."""
FAR = 1000
"""Hops that no way within one tree has: for each step beyond a host bridge."""


class Distance(StrEnum):
    """How near two PCI functions are, nearest first."""

    PIX = "PIX"
    PXB = "PXB"
    PHB = "PHB"
    NODE = "NODE"
    SYS = "SYS"
    UNKNOWN = "unknown"


MEANING: Mapping[Distance, str] = {
    Distance.PIX: "one PCIe switch or port between them",
    Distance.PXB: "several PCIe bridges between them, no host bridge",
    Distance.PHB: "the PCIe host bridge between them",
    Distance.NODE: "two host bridges of one NUMA node between them",
    Distance.SYS: "the way between NUMA nodes between them",
    Distance.UNKNOWN: "the PCI tree of this machine does not tell",
}


@dataclass(frozen=True, slots=True)
class Pair:
    """Two functions of one pod, and how near they are."""

    one: str
    other: str
    distance: Distance


class PciTree:
    """The bridges of one machine.

    Args:
        machine: its PCI functions.
    """

    def __init__(self, machine: Machine) -> None:
        self._functions = {each.address: each for each in machine.devices}
        self._above: dict[str, tuple[str, ...]] = {}

    def knows(self, address: str) -> bool:
        """Whether the machine has this function."""
        return address in self._functions

    def distance(self, one: str, other: str) -> Distance:
        """How near two functions are; UNKNOWN where the machine does not have one of them."""
        mine, theirs = self._functions.get(one), self._functions.get(other)
        if mine is None or theirs is None:
            return Distance.UNKNOWN
        up, across = self._bridges(mine), self._bridges(theirs)
        steps = _to_the_nearest(up, across)
        if steps is not None:
            return Distance.PIX if max(steps) <= 1 else Distance.PXB
        known = bool(mine.numa_nodes and theirs.numa_nodes)
        if known and mine.numa_nodes.isdisjoint(theirs.numa_nodes) and _root(mine, up) != _root(theirs, across):
            return Distance.SYS
        if self._made_up(up) or self._made_up(across):
            return Distance.UNKNOWN
        if _root(mine, up) == _root(theirs, across):
            return Distance.PHB
        return Distance.NODE if known else Distance.UNKNOWN

    def hops(self, one: str, other: str) -> int:
        """How long the way between two functions is: fewer is nearer.

        The bridges on the way, the one that both share once; through the host bridge those of both sides, and FAR for
        each of the words PHB, NODE, SYS and unknown that it is beyond PXB. 0 for a function and itself.
        """
        if one == other:
            return 0
        distance = self.distance(one, other)
        if distance is Distance.UNKNOWN:
            return FAR * _BEYOND[distance]
        up, across = (self._bridges(self._functions[each]) for each in (one, other))
        steps = _to_the_nearest(up, across)
        return sum(steps) + 1 if steps is not None else FAR * _BEYOND[distance] + len(up) + len(across)

    def pairs(self, addresses: Iterable[str]) -> tuple[Pair, ...]:
        """All pairs of the functions that the machine has, by address."""
        mine = sorted(each for each in set(addresses) if each in self._functions)
        return tuple(Pair(one, other, self.distance(one, other)) for one, other in combinations(mine, 2))

    def _bridges(self, function: PciDevice) -> tuple[str, ...]:
        """Those above a function, nearest first."""
        found = self._above.get(function.address)
        if found is None:
            chain: list[str] = []
            at = function.parent
            while at and at not in chain and len(chain) < MOST_BRIDGES:
                chain.append(at)
                above = self._functions.get(at)
                at = above.parent if above is not None else ""
            found = self._above[function.address] = tuple(chain)
        return found

    def _made_up(self, bridges: tuple[str, ...]) -> bool:
        top = self._functions.get(bridges[-1]) if bridges else None
        return top is None or top.vendor in HYPERVISORS


_BEYOND = {Distance.PHB: 1, Distance.NODE: 2, Distance.SYS: 3, Distance.UNKNOWN: 4}


def _to_the_nearest(up: tuple[str, ...], across: tuple[str, ...]) -> tuple[int, int] | None:
    """How many bridges lie below the nearest that both share, on either side; None where they share none."""
    for steps, each in enumerate(up):
        if each in across:
            return steps, across.index(each)
    return None


def _root(function: PciDevice, bridges: tuple[str, ...]) -> str:
    """The root bus: that of whatever lies topmost."""
    return (bridges[-1] if bridges else function.address).rpartition(":")[0]
