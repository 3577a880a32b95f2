"""What is beside the machine: the distances as a heat map, the legend, and what each pod holds.

Called by `draw`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter

from agent.core.machines.pcie import MEANING
from agent.model.idset import NodeSet
from agent.model.machine import NumaNode
from agent.observe.drawing.boxes import LINE, Box, Grid, TextLine
from agent.observe.drawing.holders import Holder
from agent.observe.drawing.scene import Scene
from agent.observe.drawing.text import fit, width, wrap
from agent.observe.drawing.words import size

WIDE = 280
"""Width of the column."""
NAMES_UP_TO = 20
"""Nodes above which the fields of the heat map are too small for the ids of its rows and columns."""
ID_SIZE = 9
"""Size of the font in the heat map."""
WARM, HOT = 0.65, 0.9
"""Shares of the heat from which another ink reads better: in dark themes from the first, in light ones the second."""
SWATCH = 32
"""Room for the sample at the left of a row."""
ROWS_OF_ONE = 4
"""Containers that are listed under a pod."""


def heat_box(scene: Scene) -> Box | None:
    """Distances between nodes, stronger colour is farther; None where the kernel gives none or there is one node."""
    nodes = [node for node in scene.machine.nodes if node.online and node.distances]
    if len(nodes) < 2 or len(nodes) != len(scene.machine.nodes):  # noqa: PLR2004 - because one node is near itself
        return None
    numbers = [number for node in nodes for number in node.distances]
    scale = (min(numbers), max(numbers))
    named = len(nodes) <= NAMES_UP_TO
    lines = [TextLine("Distances between NUMA nodes", bold=True), TextLine(_scale(*scale), size=10, look="d")]
    if not named:
        lines.append(TextLine(fit(f"rows and columns: nodes {scene.machine.node_set}", 10, WIDE), size=10, look="d"))
    return Box("plain", lines, [_with_names(nodes, scale) if named else _rows(nodes, scale)], pad=0)


def _with_names(nodes: list[NumaNode], scale: tuple[int, int]) -> Grid:
    """A field per pair of nodes, with ids and numbers."""
    widest = max(width(str(node.id), ID_SIZE) for node in nodes)
    field = min(28, int((WIDE - widest - 6) / len(nodes)) - 1)
    boxes = [_name(""), *(_name(str(node.id)) for node in nodes)]
    for node in nodes:
        boxes.append(_name(str(node.id)))
        boxes += [
            _field(field, field, f"node {node.id} to node {other.id}", number, scale)
            for other, number in zip(nodes, node.distances, strict=True)
        ]
    return Grid(boxes, len(nodes) + 1, gap=1, fill=False, even=False)


def _rows(nodes: list[NumaNode], scale: tuple[int, int]) -> Grid:
    """Small fields without texts; equal neighbours of a row are one field."""
    field = max(2, WIDE // len(nodes))
    rows = []
    for node in nodes:
        fields = []
        for number, found in groupby(zip(node.distances, nodes, strict=True), key=itemgetter(0)):
            others = NodeSet.from_ids(other.id for _, other in found)
            what = f"node {node.id} to {'node' if len(others) == 1 else 'nodes'} {others}"
            fields.append(_field(field * len(others), field, what, number, scale, round_=0))
        rows.append(Box("plain", grids=[Grid(fields, len(fields), gap=0, fill=False, even=False)], pad=0))
    return Grid(rows, 1, gap=0, fill=False)


def _scale(least: int, most: int) -> str:
    return f"{least} is local; the stronger the colour, the farther" if most > least else f"all {least}"


def _name(text: str) -> Box:
    lines = [TextLine(text, size=ID_SIZE, look="d", centre=True)] if text else []
    return Box("plain", lines, pad=3 if text else 0, middle=True)


def opacity(heat: float) -> float:
    """Of a field's colour, from 0 (nearest) to 1 (farthest)."""
    return 0.06 + 0.9 * heat


def _field(w: float, h: float, way: str, number: int, scale: tuple[int, int], *, round_: float = 1) -> Box:
    least, most = scale
    heat = (number - least) / (most - least) if most > least else 0.0
    shown = width(str(number), ID_SIZE) + 2 <= w and h >= ID_SIZE * LINE
    look = "hot" if heat > HOT else "warm" if heat > WARM else "t"
    lines = [TextLine(str(number), size=ID_SIZE, centre=True, look=look)] if shown else []
    return Box("heat", lines, tip=f"{way}: {number}", pad=0, heat=opacity(heat), wide=w, high=h, round=round_,
               middle=True)  # fmt: skip


def legend_box(scene: Scene) -> Box:
    """What the signs mean that are in the picture; no rows for what is not there."""
    machine = scene.machine
    rows = [_sample("cpu", "CPU, in the box of its core" + (": shared pool" if scene.holders else ""))]
    odd = next((holder for holder in scene.holders if holder.aligned is False), None)
    if odd is not None:
        rows.append(_sample("held", "of a pod that is not aligned as its policy wants", holder=odd))
    if any(cpu.kind == "efficiency" for cpu in machine.cpus):
        rows.append(_sample("cpu", "CPU of an efficiency core", marks="small"))
    if machine.isolated:
        rows.append(_sample("cpu", "isolated by the kernel's command line", marks="alone"))
    if scene.pooled:
        rows.append(_sample("cpu", "reserved for the system, and in the shared pool", marks="pooled"))
    if scene.unpooled or any(book.system.values() for node in machine.nodes if (book := scene.book(node))):
        rows.append(_sample("kept", "reserved for the system"))
    if any(not node.cpus for node in machine.nodes):
        rows.append(_sample("node", "NUMA node without CPUs", marks="far"))
    if any(node.memory for node in machine.nodes):
        rows.append(_sample("bar", "memory of a node"))
    if any(number for node in machine.nodes for _, number in node.hugepages):
        rows.append(_sample("huge", "of it huge pages"))
    return Box("plain", [TextLine("Legend", bold=True)], [Grid(rows, 1, gap=3)], pad=0)


def _sample(kind: str, text: str, marks: str = "", holder: Holder | None = None) -> Box:
    box = Box("plain", [TextLine(text, size=10, inset=SWATCH)], pad=0, swatch=f"{kind} {marks}".strip())
    if holder is not None:
        box.holder, box.letter = holder.number, holder.sign
    return box


def holder_boxes(scene: Scene) -> list[Box]:
    """One box per pod that holds something, in the order of admission."""
    return [_holder(holder, scene) for holder in scene.holders]


def _near(scene: Scene, uid: str) -> Iterator[str]:
    """How near the pod's devices are to each other: pair by pair, or how many of which."""
    pairs = scene.near(uid)
    if len(pairs) <= ROWS_OF_ONE:
        yield from (f"{each.one} and {each.other}: {each.distance.value}" for each in pairs)
        return
    counts = Counter(each.distance for each in pairs)
    yield f"{len(pairs)} pairs of devices: " + ", ".join(
        f"{counts[each]} {each.value}" for each in MEANING if counts[each]
    )


def _holder(holder: Holder, scene: Scene) -> Box:
    name = fit(holder.name, 11, WIDE - SWATCH - 4, bold=True)
    told = list(holder.containers[:ROWS_OF_ONE])
    if len(holder.containers) > len(told):
        left = len(holder.containers) - len(told)
        told.append(f"and {left} more container{'s' if left > 1 else ''}")
    if holder.confined:
        told.append(f"on the shared CPUs of node {holder.confined}")
    told += [f"{size(block.size)} of {block.resource} over nodes {block.nodes}" for block in holder.over]
    told += _near(scene, holder.uid)
    lines = [TextLine(name, size=11, bold=True, inset=SWATCH)]
    lines += [
        TextLine(text, size=10, look="d", inset=SWATCH) for each in told for text in wrap(each, 10, WIDE - SWATCH)
    ]
    if holder.aligned is False:
        lines.append(TextLine("not aligned as its policy wants", size=10, look="warn", inset=SWATCH))
    return Box("plain", lines, tip="; ".join((holder.name, *holder.containers)), pad=0, holder=holder.number,
               letter=holder.sign, swatch="held", wide=WIDE)  # fmt: skip
