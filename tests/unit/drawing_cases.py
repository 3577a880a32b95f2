"""Machines and ledgers to draw, and a reader of what was drawn. Used by test_drawing* and test_topology_view."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from xml.etree import ElementTree as ET

from agent.core.machines.synthetic import parse_synthetic
from agent.model.idset import CpuSet, NodeSet
from agent.model.ledger import Block, Confinement, CpuBooks, DeviceBooks, Ledger, MemoryBooks, NodeBook, PodRecord
from agent.model.machine import Cpu, Machine, NumaNode
from agent.model.pod import Container, Pod, Qos
from agent.observe.drawing.text import width

GIB = 1 << 30
SVG = "{http://www.w3.org/2000/svg}"
FAR_MEMORY = (
    "2 sockets x 8 cores x 2 threads, node ids 0,8, memory node 16G hbm near 0, memory node 128G far near 0 and 8, "
    "offline 7,23, isolated 14-15"
)
TWO_SOCKETS = (
    "2 sockets x 2 nodes x 8 cores x 2 threads, 64G per node, 1024 2Mi pages, 4 1Gi pages on 0, gpu on 1 and 3, "
    "4 vfs on 0, nvme on 2"
)
DESCRIPTIONS = (
    "1 socket x 2 cores",
    TWO_SOCKETS,
    "1 socket x 32 cores x 2 threads, 8 CPUs per L3, nic on 0",
    FAR_MEMORY,
    "1 socket x 6 cores x 8 threads",
    "1 socket x 20 cores, efficiency 8-19, 4 CPUs per L3",
    "4 sockets x 2 dies x 1 node x 4 cores, 6 nics on 0",
    "32 sockets x 4 cores x 2 threads, gpu on 7",
)


def two_sockets() -> Machine:
    """Four nodes of 16 CPUs with huge pages, GPUs and virtual functions."""
    return parse_synthetic(DESCRIPTIONS[1], "two-sockets")


def interleaved() -> Machine:
    """Two sockets whose CPUs take turns, as on many old servers: no list of CPUs is short."""
    cpus = tuple(Cpu(number, number % 2, number, number % 2, number % 2) for number in range(48))
    halves = [CpuSet.from_ids(range(node, 48, 2)) for node in (0, 1)]
    nodes = tuple(NumaNode(node, half, GIB, distances=(10, 21)[:: 1 - 2 * node]) for node, half in enumerate(halves))
    return Machine(cpus, nodes, name="interleaved")


def record(uid: str, key: str, created: float, *, aligned: bool = True) -> PodRecord:
    """A pod with one container as the ledger knows it."""
    namespace, name = key.split("/")
    pod = Pod(uid, name, namespace, (Container("app"),), Qos.GUARANTEED, created=created)
    return PodRecord(pod, "single-numa-node", "container", aligned={"app": aligned})


def grants(machine: Machine) -> Ledger:
    """Six pods on `two_sockets`: CPUs, memory, huge pages, devices, a confined one, one that is not aligned."""
    held = {
        "u1": {"app": CpuSet.parse("1-3,33-35")},
        "u2": {"app": CpuSet.parse("8-11,40-43")},
        "u3": {"app": CpuSet.parse("16-19,48-51"), "sidecar": CpuSet.parse("20-23,52-55")},
        "u4": {"app": CpuSet.parse("24")},
        "u5": {"app": CpuSet.parse("4-5")},
    }
    reserved = CpuSet.parse("0,32")
    taken = CpuSet.union(cpus for by_name in held.values() for cpus in by_name.values())
    used: dict[int, dict[str, int]] = {
        0: {"memory": 24 * GIB},
        1: {"memory": 10 * GIB, "hugepages-2Mi": GIB},
        2: {"memory": 40 * GIB},
        3: {},
    }
    books = tuple(
        NodeBook(n.id, 1, NodeSet.of(n.id), n.resources, {"memory": 2 * GIB if n.id == 0 else 0}, used[n.id])
        for n in machine.nodes
    )
    blocks: dict[str, dict[str, tuple[Block, ...]]] = {
        "u1": {"app": (Block("memory", 20 * GIB, NodeSet.of(0)),)},
        "u2": {"app": (Block("hugepages-2Mi", GIB, NodeSet.of(1)), Block("memory", 10 * GIB, NodeSet.of(1)))},
        "u3": {
            "app": (Block("memory", 30 * GIB, NodeSet.of(2)),),
            "sidecar": (Block("memory", 10 * GIB, NodeSet.of(2)),),
        },
        "u5": {"app": (Block("memory", 4 * GIB, NodeSet.of(0, 1), ((0, 4 * GIB),)),)},
    }
    devices = {"u2": {"app": {"vendor.com/gpu": ("0000:01:00.0",)}}, "u1": {"app": {"x/vf": ("0000:03:00.1",)}}}
    keys = ("telco/upf-0", "ml/train-7d9f", "db/postgres-0", "web/frontend-5c7b9-x2x", "batch/etl", "web/cache-0")
    return Ledger(
        machine.digest,
        CpuBooks(
            machine.online - taken - reserved, held,
            confined={"u6": Confinement(NodeSet.of(3), ((3, 1500),), memory=True, limit=((3, 2 * GIB),))},
        ),
        MemoryBooks(books, blocks),
        DeviceBooks(devices),
        {f"u{n}": record(f"u{n}", key, float(n), aligned=n != 5) for n, key in enumerate(keys, 1)},
    )  # fmt: skip


def crowd(machine: Machine, number: int) -> Ledger:
    """So many pods of one CPU each, with long names."""
    uids = [f"uid-{n:03}" for n in range(number)]
    held = {uid: {"app": CpuSet.of(cpu)} for uid, cpu in zip(uids, machine.online, strict=False)}
    taken = CpuSet.union(cpus for by_name in held.values() for cpus in by_name.values())
    pods = {uid: record(uid, f"a-rather-long-namespace-{n}/and-a-{'long-' * 9}name", n) for n, uid in enumerate(held)}
    return Ledger(machine.digest, CpuBooks(machine.online - taken, held), pods=pods)


@dataclass(frozen=True)
class Rect:
    """Where something was drawn."""

    x: float
    y: float
    w: float
    h: float
    what: str = ""

    def inside(self, other: Rect, slack: float = 0.1) -> bool:
        return (
            self.x >= other.x - slack and self.y >= other.y - slack
            and self.x + self.w <= other.x + other.w + slack and self.y + self.h <= other.y + other.h + slack
        )  # fmt: skip

    def overlaps(self, other: Rect, slack: float = 0.1) -> bool:
        return (
            self.x + self.w > other.x + slack and other.x + other.w > self.x + slack
            and self.y + self.h > other.y + slack and other.y + other.h > self.y + slack
        )  # fmt: skip


@dataclass
class Group:
    """A <g> of the picture: its outline, if it has one, its texts, and what is in it."""

    outline: Rect | None
    texts: list[Rect]
    inner: list[Group]

    def every(self) -> Iterator[Group]:
        yield self
        for group in self.inner:
            yield from group.every()


def read_groups(svg: str) -> tuple[Rect, Group]:
    """The page and its groups, from the text of the picture alone."""
    root = ET.fromstring(svg)  # noqa: S314 - because the picture is our own
    x, y, w, h = (float(number) for number in root.attrib["viewBox"].split())
    return Rect(x, y, w, h), _group(next(child for child in root if child.tag == f"{SVG}g"))


def _group(element: ET.Element) -> Group:
    rects = [_rect(child) for child in element if child.tag == f"{SVG}rect"]
    texts = [_text(child) for child in element if child.tag == f"{SVG}text"]
    return Group(rects[0] if rects else None, texts, [_group(child) for child in element if child.tag == f"{SVG}g"])


def _rect(element: ET.Element) -> Rect:
    x, y, w, h = (float(element.attrib[name]) for name in ("x", "y", "width", "height"))
    return Rect(x, y, w, h, element.attrib["class"])


def _text(element: ET.Element) -> Rect:
    """The room that a text takes: its width by the table of widths, the height of its capitals."""
    size, kinds = float(element.attrib["font-size"]), element.attrib["class"].split()
    text = element.text or ""
    wide = width(text, size, bold="b" in kinds)
    x = float(element.attrib["x"]) - (wide / 2 if "m" in kinds else wide if "e" in kinds else 0)
    return Rect(x, float(element.attrib["y"]) - 0.75 * size, wide, 0.95 * size, text)


def references(svg: str) -> list[str]:
    """What the picture refers to: url(...), href, src, @import."""
    found = re.findall(r"""url\(([^)]*)\)|(?:href|src)=["']([^"']*)["']|(@import)""", svg)
    return ["".join(parts) for parts in found]
