"""Machines of the lab, as arguments of QEMU (see tests/guests/shapes.py for what those mean)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import chain

from tests.guests.shapes import INTEL, _distances, _host_bridge, _memory, _nodes


@dataclass(frozen=True)
class Machine:
    """A machine with a kubelet on it.

    Attributes:
        name: for people.
        cpus: how many.
        nodes: memory nodes.
        arguments: of QEMU: machine, CPUs, memory, NUMA, devices besides disk and network.
        append: further words on the kernel's command line.
    """

    name: str
    cpus: int
    nodes: int
    arguments: tuple[str, ...] = field(repr=False)
    append: str = ""


def _even(name: str, smp: str, *, cpus: int, sizes: Iterable[int], more: tuple[str, ...] = ()) -> Machine:
    """A machine whose nodes have the same number of CPUs each."""
    megabytes = tuple(sizes)
    share = cpus // len(megabytes)
    lists = [f"{n * share}-{(n + 1) * share - 1}" for n in range(len(megabytes))]
    near: Callable[[int, int], int] = lambda a, b: 12 if a // 2 == b // 2 else 32  # noqa: E731 - used once, below
    arguments = (
        "-machine", "q35", *INTEL, "-smp", f"{cpus},{smp}", *_memory(*megabytes), *_nodes(lists),
        *_distances(len(megabytes), near), *more,
    )  # fmt: skip
    return Machine(name, cpus, len(megabytes), arguments)


STANDARD = _even(
    "standard", "sockets=2,dies=2,cores=2,threads=2", cpus=16, sizes=(1024, 1024, 1024, 1024),
    more=(*_host_bridge(0, 32), "-device", "e1000e,bus=port0", *_host_bridge(2, 64), "-device", "e1000e,bus=port2"),
)  # fmt: skip
"""Two sockets of two dies, a node per die, two threads per core, NICs near nodes 0 and 2."""
EIGHT = _even("eight", "sockets=8,cores=1,threads=2", cpus=16, sizes=(1024, *[320] * 7))
SIXTEEN = _even("sixteen", "sockets=16,cores=1,threads=1", cpus=16, sizes=(1024, *[192] * 15))
FAR = Machine(
    "far", 4, 3,
    (
        "-machine", "q35", *INTEL, "-smp", "4,sockets=2,cores=2", *_memory(1024, 1024, 512),
        *_nodes(("0-1", "2-3", "")), *_distances(3, lambda a, b: {(0, 1): 21, (0, 2): 17}.get((a, b), 28)),
    ),
)  # fmt: skip
"""A node that has memory and no CPUs."""


def _port(name: str, bus: str, number: int) -> tuple[str, ...]:
    """A root port of Intel's: one that a hypervisor made up tells numalign nothing."""
    return ("-device", f"ioh3420,id={name},bus={bus},chassis={number},slot={number}")


def _switch(name: str, bus: str, number: int, ports: int) -> tuple[str, ...]:
    """A PCIe switch below a port: one port upward, and some downward, NAME-0, NAME-1."""
    down = (f"id={name}-{n},bus={name},chassis={number + n},slot={number + n}" for n in range(ports))
    below = (("-device", f"xio3130-downstream,{each}") for each in down)
    return ("-device", f"x3130-upstream,id={name},bus={bus}", *chain.from_iterable(below))


def _bridge(name: str, node: int, bus: int) -> tuple[str, ...]:
    """A PCI host bridge of a node, without ports."""
    return ("-device", f"pxb-pcie,id={name},bus_nr={bus},numa_node={node},bus=pcie.0")


SWITCHES = Machine(
    "switches", 4, 2,
    (
        "-machine", "q35", *INTEL, "-smp", "4,sockets=2,cores=2", *_memory(1024, 1024), *_nodes(("0-1", "2-3")),
        *_distances(2, lambda _a, _b: 21),
        *_bridge("first", 0, 32), *_port("a", "first", 1), *_port("b", "first", 2),
        *_switch("near", "a", 11, 3), *_switch("deep", "near-2", 21, 1),
        *_bridge("second", 0, 96), *_port("c", "second", 3), *_bridge("far", 1, 160), *_port("d", "far", 4),
        *chain.from_iterable(
            ("-device", f"virtio-rng-pci,bus={bus}") for bus in ("near-0", "near-1", "deep-0", "b", "c", "d")
        ),
    ),
)  # fmt: skip
"""Two devices below one switch, one below a switch of that, one at another port of their host bridge, one below the
other host bridge of the node, one on the other node: PIX, PXB, PHB, NODE and SYS."""
MACHINES = {machine.name: machine for machine in (STANDARD, EIGHT, SIXTEEN, FAR, SWITCHES)}
