"""Tables for people: who got what, and what each NUMA node has left. Values come from `agent.app.page.views`.

Colours and box characters only where a terminal shows them; a pipe gets plain text, wide enough not to be folded.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from agent.app.page.views import NodeView, Row
from agent.core.accounting.usage import MemoryUse
from agent.model.idset import CpuSet

PIPE_WIDTH = 160
_COLOUR = {"aligned": "green", "not aligned": "yellow", "shared": "", "refused": "red", "left alone": "dim"}
_KIND = {"init": " (init)", "sidecar": " (sidecar)", "app": ""}


def console(*, record: bool = False, width: int | None = None) -> Console:
    """Where tables go: standard output."""
    made = Console(highlight=False, record=record, width=width)
    if width is None and not made.is_terminal:
        made = Console(highlight=False, record=record, width=PIPE_WIDTH)
    return made


def for_reading() -> Console:
    """Standard output for text in paragraphs: a pipe may ask for a width (COLUMNS), as a terminal does."""
    asked = os.environ.get("COLUMNS", "")
    return console(width=int(asked) if asked.isdecimal() and not sys.stdout.isatty() else None)


def pods_table(view: NodeView) -> Table:
    """One row per container; a pod's name only on its first."""
    heard = any(row.allowed for row in view.rows)
    memory = any(row.memory for row in view.rows)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    table.add_column("pod", no_wrap=True)
    table.add_column("container", no_wrap=True)
    table.add_column("QoS", no_wrap=True)
    table.add_column("CPUs", overflow="fold")
    table.add_column("NUMA", no_wrap=True)
    if memory:
        table.add_column("memory per node", overflow="fold")
    if heard:
        table.add_column("kernel says", overflow="fold")
    table.add_column("aligned?", ratio=1)
    last, said = "", ""
    for row in view.rows:
        first, last = row.uid != last, row.uid
        said = "" if first else said
        cells = [
            escape(row.pod) if first else "",
            escape(row.container) + f"[dim]{_KIND[row.kind]}[/dim]",
            row.qos if first else "",
            _cpus(row, view.shared),
            str(row.nodes) or "-",
        ]
        if memory:
            cells.append(_memory(row.memory))
        if heard:
            cells.append(str(row.allowed.cpus) if row.allowed else "-")
        table.add_row(*cells, _verdict(row, repeated=bool(row.why) and row.why == said))
        said = row.why
    return table


def _cpus(row: Row, shared: CpuSet) -> str:
    if row.state == "refused":
        return "-"
    own = f"[bold]{row.cpus}[/bold]" if row.cpus else f"[dim]{_pool(row, shared)}[/dim]"
    devices = "".join(f"\n{escape(name)}: {escape(' '.join(ids))}" for name, ids in sorted(row.devices.items()))
    return own + devices


def _pool(row: Row, shared: CpuSet) -> str:
    """The pool is the same for all, and shown by NUMA node; a confined pod's part of it is its own."""
    return "shared" if row.pool == shared else f"shared, on {row.pool}"


def _memory(memory: Mapping[int, Mapping[str, int]]) -> str:
    lines = []
    for node, per in memory.items():
        parts = [f"{size(part)}{_page(name)}" for name, part in sorted(per.items(), reverse=True) if part]
        lines.append(f"{node}: {', '.join(parts)}")
    return "\n".join(lines) or "-"


def _page(resource: str) -> str:
    return "" if resource == "memory" else f" in {resource.removeprefix('hugepages-')} pages"


def _verdict(row: Row, *, repeated: bool) -> str:
    word = {"aligned": "yes", "not aligned": "no", "shared": "-" if not row.why else "no"}.get(row.state, row.state)
    colour = "yellow" if row.state == "shared" and row.why else _COLOUR[row.state]
    text = f"[{colour}]{word}[/{colour}]" if colour else word
    return f"{text}: {escape(row.why)}" if row.why and not repeated else text


def nodes_table(view: NodeView) -> Table:
    """One row per NUMA node: its CPUs by use, its memory."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for name in ("NUMA node", "exclusive", "shared", "reserved", "free"):
        table.add_column(name, no_wrap=name == "NUMA node", overflow="fold")
    table.add_column("memory")
    for node in view.nodes:
        table.add_row(
            str(node.id), f"[bold]{_set(node.exclusive)}[/bold]", _set(node.shared), _set(node.reserved),
            f"[green]{_set(node.free)}[/green]", _uses(node.memory),
        )  # fmt: skip
    return table


def _set(cpus: CpuSet) -> str:
    return f"{cpus} ({len(cpus)})" if len(cpus) > 1 else str(cpus) or "-"


def _uses(memory: Mapping[str, MemoryUse]) -> str:
    lines = []
    for name, use in sorted(memory.items(), reverse=True):
        if use.total:
            parts = [
                f"{size(use.granted)} granted" if use.granted else "",
                f"{size(use.system)} reserved" if use.system else "",
            ]
            said = ", ".join(part for part in (*parts, f"{size(use.free)} free") if part)
            lines.append(f"{size(use.total)}{_page(name)}: {said}")
    return "\n".join(lines) or "none"


def size(amount: int) -> str:
    """Bytes for people: three digits and a binary suffix."""
    value, suffixes = float(amount), ["", "Ki", "Mi", "Gi", "Ti", "Pi"]
    while value >= 1024 and len(suffixes) > 1:  # noqa: PLR2004 - binary prefixes
        value, suffixes = value / 1024, suffixes[1:]
    return f"{value:.3g}{suffixes[0]}" if value < 1000 else f"{value:.0f}{suffixes[0]}"  # noqa: PLR2004 - three digits


def sentences(target: Console, lines: Iterable[str], style: str = "") -> None:
    """Lines of text, not interpreted, and left to the terminal to fold."""
    for line in lines:
        target.print(escape(line), style=style or None, soft_wrap=True)
