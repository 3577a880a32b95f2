"""The machines to record, as arguments of QEMU: nothing about them is written anywhere else.

https://www.qemu.org/docs/master/system/invocation.html (-smp, -numa, -device pxb-pcie). QEMU counts CPUs threads
first, then cores, dies, sockets; Linux numbers nodes in the order in which the firmware's tables name them, which is
QEMU's own order as long as each node's first CPU comes after those of the nodes before it, memory-only nodes last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import chain

INTEL = ("-cpu", "Skylake-Server,check=off")
"""A model that shows threads of a core and an L3 per die when emulated too; check=off: TCG lacks some features."""


@dataclass(frozen=True)
class Shape:
    """A machine to record.

    Attributes:
        name: of its recording.
        why: what it is good for.
        arguments: of QEMU, without what every guest has (kernel, serial ports).
        append: further words on the kernel's command line.
    """

    name: str
    why: str
    arguments: tuple[str, ...]
    append: str = ""


def _memory(*megabytes: int) -> Iterable[str]:
    """A backend per node, called m0, m1, ...; the sum is the machine's memory."""
    yield from ("-m", f"{sum(megabytes)}M")
    for node, size in enumerate(megabytes):
        if size:
            yield from ("-object", f"memory-backend-ram,id=m{node},size={size}M")


def _nodes(cpus: Iterable[str], memoryless: Iterable[int] = ()) -> Iterable[str]:
    """A node per text of CPUs; an empty text is a node without CPUs."""
    for node, text in enumerate(cpus):
        parts = [f"node,nodeid={node}"]
        parts += [] if node in memoryless else [f"memdev=m{node}"]
        parts += [f"cpus={each}" for each in text.split(",") if each]
        yield from ("-numa", ",".join(parts))


def _distances(count: int, between: Callable[[int, int], int]) -> Iterable[str]:
    """Every distance between two nodes, once."""
    for src in range(count):
        for dst in range(src + 1, count):
            yield from ("-numa", f"dist,src={src},dst={dst},val={between(src, dst)}")


def _host_bridge(node: int, bus: int) -> tuple[str, ...]:
    """A PCI host bridge of a node with one port."""
    return (
        "-device", f"pxb-pcie,id=pxb{node},bus_nr={bus},numa_node={node},bus=pcie.0",
        "-device", f"pcie-root-port,id=port{node},bus=pxb{node},chassis={node + 1},slot={node + 1}",
    )  # fmt: skip


def _bridge(name: str, node: int, bus: int) -> tuple[str, ...]:
    """A PCI host bridge of a node, without ports."""
    return ("-device", f"pxb-pcie,id={name},bus_nr={bus},numa_node={node},bus=pcie.0")


def _port(name: str, bus: str, number: int) -> tuple[str, ...]:
    """A root port of Intel's: one that a hypervisor made up tells numalign nothing."""
    return ("-device", f"ioh3420,id={name},bus={bus},chassis={number},slot={number}")


def _switch(name: str, bus: str, number: int, ports: int) -> tuple[str, ...]:
    """A PCIe switch below a port: one port upward, and some downward, NAME-0, NAME-1."""
    down = (f"id={name}-{n},bus={name},chassis={number + n},slot={number + n}" for n in range(ports))
    below = (("-device", f"xio3130-downstream,{each}") for each in down)
    return ("-device", f"x3130-upstream,id={name},bus={bus}", *chain.from_iterable(below))


def switches(megabytes: int, cpu: Iterable[str] = INTEL) -> tuple[str, ...]:
    """A machine of two nodes of so much memory each, and of such a CPU, with PCIe switches.

    Six devices, in the order in which they are named: two below one switch, one below a switch of that, one at
    another port of their host bridge, one below the other host bridge of the node, one on the other node.
    """
    return (
        "-machine", "q35", *cpu, "-smp", "4,sockets=2,cores=2", *_memory(megabytes, megabytes),
        *_nodes(("0-1", "2-3")), *_distances(2, lambda _a, _b: 21),
        *_bridge("first", 0, 32), *_port("a", "first", 1), *_port("b", "first", 2),
        *_switch("near", "a", 11, 3), *_switch("deep", "near-2", 21, 1),
        *_bridge("second", 0, 96), *_port("c", "second", 3), *_bridge("far", 1, 160), *_port("d", "far", 4),
        *chain.from_iterable(
            ("-device", f"virtio-rng-pci,bus={bus}") for bus in ("near-0", "near-1", "deep-0", "b", "c", "d")
        ),
    )  # fmt: skip


SWITCHED = {"PIX": 1, "PXB": 2, "PHB": 3, "NODE": 4, "SYS": 5}
"""How near the six are to each other, as `nvidia-smi topo` calls it: fifteen pairs, counted by hand."""
SHAPES = (
    Shape(
        "guest-4n-smt-pci",
        "two sockets of two dies, a node per die, two threads per core, huge pages, NICs and an NVMe behind bridges",
        (
            "-machine", "q35", *INTEL, "-smp", "16,sockets=2,dies=2,cores=2,threads=2",
            *_memory(384, 256, 256, 256), *_nodes(("0-3", "4-7", "8-11", "12-15")),
            *_distances(4, lambda a, b: 12 if a // 2 == b // 2 else 32),
            *_host_bridge(0, 32), "-device", "e1000e,bus=port0",
            *_host_bridge(2, 64), "-device", "e1000e,bus=port2",
            *_host_bridge(3, 96), "-drive", "file=null-co://,format=raw,if=none,id=disk",
            "-device", "nvme,serial=a,drive=disk,bus=port3",
        ),
        "numalign.pages=1:2048:16,3:2048:8",
    ),
    Shape(
        "guest-2n-pci-switches",
        "PCIe switches below three host bridges of two nodes: devices as near as any two can be, and as far",
        switches(256),
    ),
    Shape(
        "guest-8n",
        "eight nodes of two cores in two groups: three distances",
        (
            "-machine", "q35", *INTEL, "-smp", "16,sockets=8,cores=2",
            *_memory(320, *[128] * 7), *_nodes(f"{2 * n}-{2 * n + 1}" for n in range(8)),
            *_distances(8, lambda a, b: 16 if a // 4 == b // 4 else 28),
        ),
    ),
    Shape(
        "guest-16n",
        "sixteen nodes of one core with two threads, on a ring: eight distances",
        (
            "-machine", "q35", *INTEL, "-smp", "32,sockets=16,cores=1,threads=2",
            *_memory(320, *[64] * 15), *_nodes(f"{2 * n}-{2 * n + 1}" for n in range(16)),
            *_distances(16, lambda a, b: 10 + 4 * min(b - a, 16 - b + a)),
        ),
    ),
    Shape(
        "guest-memory-only",
        "two nodes with CPUs, two without: one near each, told by the firmware (HMAT), as CXL memory is",
        (
            "-machine", "q35,hmat=on", *INTEL, "-smp", "4,sockets=2,cores=2",
            *_memory(256, 256, 128, 128),
            "-numa", "node,nodeid=0,memdev=m0,initiator=0,cpus=0-1",
            "-numa", "node,nodeid=1,memdev=m1,initiator=1,cpus=2-3",
            "-numa", "node,nodeid=2,memdev=m2,initiator=0", "-numa", "node,nodeid=3,memdev=m3,initiator=1",
            *_distances(4, lambda a, b: {(0, 1): 21, (0, 2): 17, (1, 3): 17}.get((a, b), 28)),
        ),
    ),
    Shape(
        "guest-no-memory",
        "a node with CPUs and without memory between two that have some",
        (
            "-machine", "q35", *INTEL, "-smp", "6,sockets=3,cores=2",
            *_memory(256, 0, 256), *_nodes(("0-1", "2-3", "4-5"), memoryless=(1,)),
            *_distances(3, lambda a, b: 20 + b - a),
        ),
    ),
    Shape(
        "guest-offline",
        "one thread of a core, a whole core and all CPUs of a node offline; isolated CPUs",
        (
            "-machine", "q35", *INTEL, "-smp", "16,sockets=4,cores=2,threads=2",
            *_memory(320, 128, 128, 128), *_nodes(("0-3", "4-7", "8-11", "12-15")),
            *_distances(4, lambda a, b: 10 + 10 * (b - a)),
        ),
        "numalign.offline=1,6-7,8-11 isolcpus=14-15",
    ),
    Shape(
        "guest-holes",
        "CPUs of node 2 can be plugged in later: until then its id is missing between 1 and 3",
        (
            "-machine", "q35", *INTEL, "-smp", "4,maxcpus=6,sockets=3,cores=2",
            *_memory(256, 128, 0, 128), *_nodes(("0-1", "2-3", "4-5", ""), memoryless=(2,)),
            *_distances(4, lambda a, b: 11 * (b - a) + 10),
        ),
    ),
    Shape(
        "guest-plain-vm",
        "what many clouds give: no NUMA tables, an old chipset, two sockets",
        ("-machine", "pc", *INTEL, "-smp", "4,sockets=2,cores=1,threads=2", "-m", "320M", "-device", "e1000"),
    ),
)  # fmt: skip

ARM = Shape(
    "arm-4n",
    "64-bit ARM: two sockets of four cores, two nodes per socket",
    (
        "-machine", "virt,gic-version=3", "-cpu", "neoverse-n1", "-smp", "8,sockets=2,cores=4",
        *_memory(512, 512, 512, 512), *_nodes(("0-1", "2-3", "4-5", "6-7")),
        *_distances(4, lambda a, b: 12 if a // 2 == b // 2 else 20),
    ),
)  # fmt: skip
"""Booted by tests/arm; it is not recorded."""
BY_NAME = {shape.name: shape for shape in SHAPES}
