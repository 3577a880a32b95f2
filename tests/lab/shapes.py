"""Machines of the lab, as arguments of QEMU (see tests/guests/shapes.py for what those mean)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tests.guests.shapes import INTEL, _distances, _host_bridge, _memory, _nodes, switches

CPU = (INTEL[0], f"{INTEL[1]},-erms")
"""-erms: the kernel and libc then do not copy with `rep movsb`, which TCG emulates byte by byte.

A boot takes 31 s instead of 41, and copying memory a third of the time.
"""


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


def _even(
    name: str, smp: str, *, cpus: int, sizes: Iterable[int], near: int = 2, more: tuple[str, ...] = ()
) -> Machine:
    """A machine whose nodes have the same number of CPUs each, so many of them near to each other."""
    megabytes = tuple(sizes)
    share = cpus // len(megabytes)
    lists = [f"{n * share}-{(n + 1) * share - 1}" for n in range(len(megabytes))]
    between: Callable[[int, int], int] = lambda a, b: 12 if a // near == b // near else 32  # noqa: E731 - used below
    arguments = (
        "-machine", "q35", *CPU, "-smp", f"{cpus},{smp}", *_memory(*megabytes), *_nodes(lists),
        *_distances(len(megabytes), between), *more,
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
        "-machine", "q35", *CPU, "-smp", "4,sockets=2,cores=2", *_memory(1024, 1024, 512),
        *_nodes(("0-1", "2-3", "")), *_distances(3, lambda a, b: {(0, 1): 21, (0, 2): 17}.get((a, b), 28)),
    ),
)  # fmt: skip
"""A node that has memory and no CPUs."""
CACHES = _even("caches", "sockets=1,dies=4,cores=2,threads=2", cpus=16, sizes=(2048,))
HALF = _even("half", "sockets=2,cores=2,threads=2", cpus=8, sizes=[1536] * 2, near=1)
"""For a kernel that QEMU must emulate by one thread, and for a machine that has other things to do."""
WIDE = _even("wide", "sockets=2,dies=2,cores=4,threads=2", cpus=32, sizes=[1024] * 4)
TWO = _even("two", "sockets=2,cores=4,threads=2", cpus=16, sizes=[1024] * 2, near=1)
EIGHT_DIES = _even("eight-dies", "sockets=2,dies=4,cores=1,threads=2", cpus=16, sizes=[1024] * 8, near=4)
"""Those of `tests.referee.shapes` besides the standard one; a die is an L3 cache, too."""
SWITCHES = Machine("switches", 4, 2, switches(1024, CPU))
"""It is recorded, too, with less memory: what is on it is told there."""
MACHINES = {
    machine.name: machine
    for machine in (STANDARD, EIGHT, SIXTEEN, FAR, CACHES, WIDE, TWO, EIGHT_DIES, SWITCHES, HALF)
}
