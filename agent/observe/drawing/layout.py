"""From units to boxes: the machine itself.

Called by `draw`. One function per kind of unit; `side` makes what stands beside the machine.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from agent.model.machine import NumaNode
from agent.observe.drawing.boxes import Box, Grid, TextLine, columns
from agent.observe.drawing.chips import chips
from agent.observe.drawing.fold import runs, same_as
from agent.observe.drawing.memory import memory_bar
from agent.observe.drawing.scene import Scene
from agent.observe.drawing.text import width
from agent.observe.drawing.units import Unit, UnitKind, units
from agent.observe.drawing.words import MEMORY_WORDS, cores, cpu_list, size

CPU_SIZE = 10
"""Size of the font of a CPU's number."""
KEY_SIZE = 9
"""Size of the font of its holder's letter."""
MOST_WIDE = 860
"""Width that the machine keeps to, where it can."""
MANY_CHIPS = 4
"""From so many on, two devices stand side by side even where that widens their node."""
CORE_STRETCH = 1.45
"""Cores use the room that their node has, without becoming bars."""
_SHAPES = {UnitKind.MACHINE: 1.5, UnitKind.SOCKET: 1.7, UnitKind.DIE: 1.7, UnitKind.NODE: 1.7, UnitKind.CACHE: 2.2}
"""Wanted width / height of what is inside."""


def machine_box(scene: Scene) -> Box:
    """The machine as one measured box."""
    root = units(scene.machine)
    box = Box("plain", grids=list(_inside(scene, root)), pad=0, gap=10)
    apart = [text for text in (_offline(scene), _warnings(scene)) if text]
    if apart:
        lines = [TextLine("", text, size=11) for text in apart]
        box.grids.append(Grid([Box("plain", lines=lines, pad=0)]))
    return box.measure()


def _offline(scene: Scene) -> str:
    machine = scene.machine
    texts = (("offline", machine.offline), ("not allowed to lstopo", machine.disallowed))
    return "; ".join(f"{what}: {cpu_list(cpus)}" for what, cpus in texts if cpus)


def _warnings(scene: Scene) -> str:
    number = len(scene.machine.warnings)
    return f"{number} odd facts were found: numalign topology names them" if number else ""


def _inside(scene: Scene, unit: Unit, room: float = 0) -> Iterator[Grid]:
    """The grids of a unit: units with CPUs by kind, then memory-only nodes, then devices.

    Args:
        scene: what is drawn.
        unit: whose inside it is.
        room: width that its own texts take anyway.
    """
    shape = _SHAPES[unit.kind]
    for group in _groups(unit):
        if group[0].kind is UnitKind.CORE:
            grid = _grid([_core(scene, core) for core in group], shape, room, gap=4, stretch=CORE_STRETCH)
        else:
            boxes = list(_folded(scene, group, room if len(group) == 1 else 0))
            grid = _grid(_agreed(boxes), shape, room)
        yield grid
        room = max(room, grid.size()[0])
    found = [box.measure() for box in chips(scene, unit)]
    if found:
        fitting = int((room + 4) // (max(box.w for box in found) + 4))
        yield Grid(found, max(1 if len(found) < MANY_CHIPS else 2, fitting), gap=4, stretch=1)


def _agreed(boxes: list[Box]) -> list[Box]:
    """Siblings that hold the same number of boxes arrange them in the same number of columns: the most of any.

    What is in them, too: the cores of two nodes' caches stand alike even where one node has a longer line of text.
    """
    most: dict[tuple[str, int, int], int] = {}
    for box in boxes:
        for at, grid in enumerate(box.grids):
            key = (box.kind, at, len(grid.boxes))
            most[key] = max(grid.columns, most.get(key, 1))
    for box in boxes:
        for at, grid in enumerate(box.grids):
            grid.columns = most[box.kind, at, len(grid.boxes)]
    inner = [each for box in boxes for grid in box.grids for each in grid.boxes if each.grids]
    if inner:
        _agreed(inner)
    return boxes


def _groups(unit: Unit) -> list[list[Unit]]:
    """Children side by side that are of a kind."""
    groups: list[list[Unit]] = []
    for child in unit.children:
        if groups and (groups[-1][0].kind, bool(groups[-1][0].cpus)) == (child.kind, bool(child.cpus)):
            groups[-1].append(child)
        else:
            groups.append([child])
    return groups


def _grid(boxes: list[Box], shape: float, room: float, *, gap: float = 8, stretch: float = math.inf) -> Grid:
    """Boxes in columns; cores, which do not stretch to any width, get half the page at most."""
    for box in boxes:
        box.measure()
    area = sum((box.w + gap) * (box.h + gap) for box in boxes)
    most = max(MOST_WIDE, 1.25 * math.sqrt(area)) / (1 if stretch == math.inf else 2)
    return Grid(boxes, columns(boxes, gap, shape, room=room, most=most), gap, stretch=stretch)


def _filled(box: Box, scene: Scene, unit: Unit, room: float, before: list[Grid] | None = None) -> Box:
    """The box with what is in its unit, which uses the room that the box's own texts take."""
    box.grids = before or []
    box.measure()
    room = max(room, box.w) - 2 * box.pad
    box.grids += _inside(scene, unit, room)
    return box


def _folded(scene: Scene, group: list[Unit], room: float) -> Iterator[Box]:
    """The boxes of units; on large machines one for all of a run of equal ones after the first."""
    for run in runs(group, scene.special) if scene.folds else ([unit] for unit in group):
        yield _box(scene, run[0], room)
        if len(run) > 1:
            same = same_as(run)
            texts = [TextLine("", text, size=10) for text in same[1:]]
            yield Box("fold", [TextLine(same[0], bold=True), *texts], tip=", ".join(same))


def _box(scene: Scene, unit: Unit, room: float) -> Box:
    if unit.node:
        return _node(scene, unit, unit.node, room)
    if unit.cache:
        amount = f" {size(unit.cache.size)}" if unit.cache.size else ""
        line = TextLine(f"{unit.label}{amount}", size=10, look="d")
        tip = f"{unit.label} cache{amount}, shared by {cpu_list(unit.cache.cpus)}"
        return _filled(Box("cache", [line], tip=tip, pad=5, gap=4), scene, unit, room)
    line = TextLine(unit.label, cpu_list(unit.cpus), bold=True)
    tip = f"{unit.label}: {cores(scene.machine, unit.cpus)}, {cpu_list(unit.cpus)}"
    return _filled(Box(unit.kind.value, [line], tip=tip, pad=8, gap=8, round=6, grow=True), scene, unit, room)


def _node(scene: Scene, unit: Unit, node: NumaNode, room: float) -> Box:
    where = cpu_list(node.cpus)
    movable = "movable only" if node.movable else ""
    about = [where, size(node.memory), MEMORY_WORDS[node.kind], movable, "" if node.online else "not online"]
    lines = [TextLine(unit.label, where if node.cpus else "", bold=True)]
    if not node.cpus:
        near = f", nearest to node {node.initiators}" if node.initiators else ""
        lines.append(TextLine("no CPUs" + near, look="d", size=10))
    if not node.online:
        lines.append(TextLine("not online: no memory of its own", look="warn", size=10))
    lines += _confined(scene, node)
    far = "" if node.cpus else "far"
    box = Box("node", lines, tip=f"{unit.label}: {', '.join(filter(None, about))}", pad=7, gap=5, marks=far)
    box.key = f"node-{node.id}"
    return _filled(box, scene, unit, room, [Grid([memory_bar(scene, node)])])


def _confined(scene: Scene, node: NumaNode) -> list[TextLine]:
    """Pods that are kept on the shared CPUs of the node."""
    keys = [holder.key for holder in scene.holders if node.id in holder.confined]
    return [TextLine("", f"on its shared CPUs: {', '.join(keys)}", size=10)] if keys else []


def _core(scene: Scene, unit: Unit) -> Box:
    cpus = [_cpu(scene, number) for number in unit.cpus]
    kinds = {scene.kinds.get(number, "") for number in unit.cpus} - {""}
    kind = f" ({' and '.join(sorted(kinds))})" if kinds else ""
    across = min(len(cpus), 4)  # eight threads in one row are too wide
    tip = f"core{kind}: {cpu_list(unit.cpus)}"
    return Box("core", [], [Grid(cpus, across, gap=2)], tip, pad=2, round=4)


def _cpu(scene: Scene, number: int) -> Box:
    holder = scene.of_cpu.get(number)
    lines = [TextLine(str(number), size=CPU_SIZE, centre=True)]
    tip = f"CPU {number}"
    if holder:
        lines.append(TextLine(holder.sign, size=KEY_SIZE, bold=True, centre=True))
        tip += f": {holder.name}" + (", not aligned as its policy wants" if holder.aligned is False else "")
    marks = ["alone"] if number in scene.machine.isolated else []
    kind = "cpu"
    if not holder and number in scene.unpooled:
        kind, tip = "kept", tip + ": reserved"
    if number in scene.pooled:
        marks, tip = [*marks, "pooled"], tip + ": reserved for the system, and in the shared pool"
    if scene.kinds.get(number) == "efficiency":
        marks.append("small")
    tip += ", isolated" if number in scene.machine.isolated else ""
    box = Box(kind, lines, tip=tip, pad=2, round=2, middle=True, marks=" ".join(marks))
    box.key, box.holder = f"cpu-{number}", holder.number if holder else None
    box.wide, box.high = max(width("9" * scene.digits, CPU_SIZE) + 6, 21), 31 if scene.of_cpu else 0
    return box
