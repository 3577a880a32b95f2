"""Tables for people: what each container got, and what each NUMA node has left. Values: `agent.app.page.views`.

Colours and box characters only where a terminal shows them; a pipe gets plain text, wide enough not to be folded.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import groupby

from rich.console import Console
from rich.markup import escape

from agent.app.page.views import NodeView, Row
from agent.cli.grid import GLUE, Below, Cell, TextGrid, fitting, folded
from agent.core.accounting.usage import MemoryUse
from agent.model.idset import CpuSet

PIPE_WIDTH = 160
_COLOUR = {"aligned": "green", "not aligned": "yellow", "shared": "", "refused": "red", "left alone": "dim"}
_KIND = {"init": f"{GLUE}(init)", "sidecar": f"{GLUE}(sidecar)", "app": ""}


def console(*, record: bool = False, width: int | None = None) -> Console:
    """Where people read: standard output. A pipe may ask for a width (COLUMNS), as a terminal does."""
    made = Console(highlight=False, record=record, width=width)
    if width is None and not made.is_terminal:
        asked = os.environ.get("COLUMNS", "")
        made = Console(highlight=False, record=record, width=int(asked) if asked.isdecimal() else PIPE_WIDTH)
    return made


def pods_grid(view: NodeView, width: int) -> TextGrid:
    """One row per container; a pod's name only on its first, and below the pod what there is to say of it.

    Where the terminal is narrow the QoS class goes, then the memory moves below the pod, then what the kernel says.
    """
    heard = any(row.allowed for row in view.rows)
    memory = any(row.memory for row in view.rows)
    choices = [(True, memory, heard), (False, memory, heard), (False, False, heard), (False, False, False)]
    return fitting(width, [partial(_pods_grid, view, *choice) for choice in choices])


def _pods_grid(view: NodeView, qos: bool, memory: bool, heard: bool) -> TextGrid:  # noqa: FBT001 - which columns
    optional = (("QoS", qos), ("memory per node", memory), ("kernel says", heard))
    left_out = {name for name, shown in optional if not shown}
    names = ("pod", "container", "QoS", "CPUs", "NUMA", "memory per node", "kernel says", "aligned?")
    rows: list[tuple[Cell, ...] | Below] = []
    for _, group in groupby(view.rows, key=lambda row: row.uid):
        mine = list(group)
        for place, row in enumerate(mine):
            cells = (
                Cell("" if place else row.pod),
                Cell(row.container + _KIND[row.kind]),
                Cell("" if place else row.qos),
                _cpus(row, view.shared),
                Cell(str(row.nodes) or "-"),
                Cell(_memory(row.memory)),
                Cell(counted(row.allowed.cpus) if row.allowed else "-"),
                _verdict(row),
            )
            rows.append(tuple(cell for name, cell in zip(names, cells, strict=True) if name not in left_out))
        rows += _said(mine, memory="memory per node" in left_out, heard="kernel says" in left_out)
    return TextGrid(tuple(name for name in names if name not in left_out), tuple(rows))


def _said(mine: list[Row], *, memory: bool, heard: bool) -> Iterator[Below]:
    """What stands below a pod: what its columns have no room for, its devices, and why it is as it is."""
    for row in mine:
        whose = f"{row.container}: " if len(mine) > 1 else ""
        if memory and row.memory:
            yield Below(
                f"{whose}memory on node {_memory(row.memory).replace(chr(10), '; node ').replace(GLUE, ' ')}", "dim"
            )
        if heard and row.allowed:
            yield Below(f"{whose}the kernel says CPUs {row.allowed.cpus}", "dim")
        for name, ids in sorted(row.devices.items()):
            yield Below(f"{whose}{name} {', '.join(ids)}", "dim")
    reasons = dict.fromkeys(row.why for row in mine if row.why)
    for why in reasons:
        containers = [row.container for row in mine if row.why == why]
        whose = f"{', '.join(containers)}: " if len(containers) < len(mine) else ""
        yield Below(whose + why, next(_colour(row) for row in mine if row.why == why))


def _cpus(row: Row, shared: CpuSet) -> Cell:
    if row.state == "refused":
        return Cell("-")
    if row.cpus:
        return Cell(counted(row.cpus), "bold")
    # the pool is the same for all, and shown by NUMA node; a confined pod's part of it is its own
    return Cell("shared" if row.pool == shared else f"shared, on {row.pool}", "dim")


def counted(cpus: CpuSet) -> str:
    """A list of ids, and how many they are: a lone id would read as a number of CPUs."""
    return f"{cpus}{GLUE}({len(cpus)})" if cpus else "-"


def _memory(memory: Mapping[int, Mapping[str, int]]) -> str:
    lines = []
    for node, per in memory.items():
        parts = [f"{size(part)}{_page(name)}" for name, part in sorted(per.items(), reverse=True) if part]
        lines.append(f"{node}:{GLUE}{', '.join(part.replace(' ', GLUE) for part in parts)}")
    return "\n".join(lines) or "-"


def _page(resource: str) -> str:
    return "" if resource == "memory" else f" in {resource.removeprefix('hugepages-')} pages"


def _verdict(row: Row) -> Cell:
    word = {"aligned": "yes", "not aligned": "no", "shared": "no" if row.why else "-"}.get(row.state, row.state)
    return Cell(word, _colour(row))


def _colour(row: Row) -> str:
    return "yellow" if row.state == "shared" and row.why else _COLOUR[row.state]


def nodes_grid(view: NodeView, width: int) -> TextGrid:
    """One row per NUMA node: its CPUs by use, its memory; in a narrow terminal the memory below."""
    return fitting(width, [partial(_nodes_grid, view, beside=True), partial(_nodes_grid, view, beside=False)])


def _nodes_grid(view: NodeView, *, beside: bool) -> TextGrid:
    rows: list[tuple[Cell, ...] | Below] = []
    for node in view.nodes:
        sets = ((node.exclusive, "bold"), (node.shared, ""), (node.reserved, ""), (node.free, "green"))
        cells = (Cell(str(node.id)), *(Cell(counted(cpus), style) for cpus, style in sets))
        lines = _uses(node.memory)
        rows.append((*cells, Cell("\n".join(lines))) if beside else cells)
        rows += [] if beside else [Below(line) for line in lines]
    names = ("NUMA node", "exclusive CPUs", "shared CPUs", "reserved CPUs", "free CPUs")
    return TextGrid((*names, "memory") if beside else names, tuple(rows))


def _uses(memory: Mapping[str, MemoryUse]) -> list[str]:
    lines = []
    for name, use in sorted(memory.items(), reverse=True):
        if use.total:
            parts = [
                f"{size(use.granted)} granted" if use.granted else "",
                f"{size(use.system)} reserved" if use.system else "",
            ]
            said = ", ".join(part for part in (*parts, f"{size(use.free)} free") if part)
            lines.append(f"{size(use.total)}{_page(name)}: {said}".replace(" ", GLUE).replace(f",{GLUE}", ", "))
    return lines or ["none"]


def size(amount: int) -> str:
    """Bytes for people: three digits and a binary suffix."""
    value, suffixes = float(amount), ["", "Ki", "Mi", "Gi", "Ti", "Pi"]
    while value >= 1024 and len(suffixes) > 1:  # noqa: PLR2004 - binary prefixes
        value, suffixes = value / 1024, suffixes[1:]
    return f"{value:.3g}{suffixes[0]}" if value < 1000 else f"{value:.0f}{suffixes[0]}"  # noqa: PLR2004 - three digits


def sentences(target: Console, lines: Iterable[str], style: str = "") -> None:
    """Lines of text, not interpreted: folded between words for people, whole in a pipe that names no width."""
    people = target.is_terminal or target.record or "COLUMNS" in os.environ
    for line in lines:
        first, *further = (folded(line, target.width) if people else ()) or [line]
        for part in (first, *folded(" ".join(further), target.width, "  ")):
            target.print(escape(part), style=style or None, soft_wrap=True)
