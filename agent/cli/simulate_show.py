"""What `numalign simulate` prints: variants side by side, then nodes and pods where they are asked for.

Colours and folding only on a terminal (or where COLUMNS says how wide it is); figures come from
`agent.app.simulate.figures`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TextIO

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from agent.app.simulate.figures import Figures, Fill
from agent.app.simulate.simulate import Outcome, Prepared
from agent.cli.grid import GLUE, Below, Cell, TextGrid
from agent.cli.output import many
from agent.cli.show import PIPE_WIDTH, counted, sentences, size
from agent.core.explain.grants import holdings_of
from agent.forecast.simulation import Fate, Result
from agent.model.idset import CpuSet, NodeSet
from agent.node.standing import PodState

Found = Mapping[str, tuple[Outcome, Figures]]
_STATES = (
    (PodState.ALIGNED, "aligned", "green"),
    (PodState.NOT_ALIGNED, "not aligned", "yellow"),
    (PodState.OVERRULED, "refused, but runs", "yellow"),
    (PodState.SHARED, "on the shared pool", ""),
    (PodState.LEFT_ALONE, "left alone", "dim"),
    (PodState.WAITING, "waiting for room", "red"),
    (PodState.REFUSED, "refused", "red"),
    (PodState.UNSCHEDULABLE, "unschedulable", "red"),
    (PodState.ENDED, "ended", "dim"),
)
_GAP = 3
"""Columns between two of a table."""
_NONE = frozenset({"0", "-"})
_WORDS = {state: (text, colour) for state, text, colour in _STATES}


def print_all(prepared: Prepared, found: Found, *, nodes: bool, pods: bool, stream: TextIO) -> None:
    """Print it all."""
    bound = stream.isatty() or "COLUMNS" in os.environ
    console = Console(file=stream, width=None if bound else PIPE_WIDTH, highlight=False, emoji=False)
    sentences(console, [_head(prepared, found)], "bold")
    for table in _summaries(found, console.width):
        console.print()
        console.print(table)
    console.print()
    for label, (outcome, figures) in found.items():
        if nodes:
            sentences(console, [f"{label}: nodes"] if len(found) > 1 else ["nodes"], "bold")
            _nodes(figures).print(console)
        if pods:
            sentences(console, [f"{label}: pods"] if len(found) > 1 else ["pods"], "bold")
            pods_grid(outcome.result, [site.name for site in outcome.sites]).print(console)
    notes = dict.fromkeys([*prepared.notes, *(note for outcome, _ in found.values() for note in _own_notes(outcome))])
    sentences(console, (f"note: {note}" for note in notes), "dim")


def _own_notes(outcome: Outcome) -> tuple[str, ...]:
    return (*outcome.variant.ignored, *outcome.notes)


def _head(prepared: Prepared, found: Found) -> str:
    pods = max(len(outcome.result.fates) for outcome, _ in found.values())
    kinds: dict[str, int] = {}
    for _, machine in prepared.machines:
        kinds[machine.name] = kinds.get(machine.name, 0) + 1
    named = ", ".join(f"{count} × {name}" if count > 1 else name for name, count in kinds.items())
    return f"{many(pods, 'pod', ',')} on {many(len(prepared.machines), 'node', ',')}: {named}"


def _summaries(found: Found, width: int) -> Iterator[Table]:
    """All variants beside each other; where they are too wide for that, in several tables."""
    labels, every = list(found), [figures for _, figures in found.values()]
    rows = [row for section in _SECTIONS for row in section(every)]
    first = max(len(name) for name, _, _ in rows)
    widths = [
        max(len(text) for text in (*label.split(), *(cells[number] for _, cells, _ in rows)))
        for number, label in enumerate(labels)
    ]
    begin = 0
    while begin < len(labels):
        end = begin + 1
        while end < len(labels) and first + sum(_GAP + each for each in widths[begin : end + 1]) <= width:
            end += 1
        yield _summary(labels[begin:end], every[begin:end], widths[begin:end])
        begin = end


def _table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
    for name in columns:
        table.add_column(name, no_wrap=True)
    return table


def _summary(labels: list[str], every: list[Figures], widths: list[int]) -> Table:
    table = _table("")
    for label, width in zip(labels, widths, strict=True):
        table.add_column(escape(label), justify="right", width=width)
    for number, section in enumerate(_SECTIONS):
        rows = list(section(every))
        if number and rows:
            table.add_row(*[""] * (len(every) + 1))
        for name, cells, colour in rows:
            table.add_row(name, *(f"[{colour}]{cell}[/]" if colour and cell not in _NONE else cell for cell in cells))
    return table


Row = tuple[str, list[str], str]


def _state_rows(every: list[Figures]) -> Iterator[Row]:
    yield "pods", [f"{sum(each.states.values()):,}" for each in every], "bold"
    for state, text, colour in _STATES:
        if any(each.states.get(state) for each in every):
            yield f"  {text}", [f"{each.states.get(state, 0):,}" for each in every], colour
        for reason in sorted({reason for each in every for reason in each.reasons.get(state, ())}):
            counts = [each.reasons.get(state, {}).get(reason, 0) for each in every]
            yield f"    {reason}", [f"{count:,}" for count in counts], "dim"
        if state is PodState.UNSCHEDULABLE:
            for name in sorted({name for each in every for name in each.lacking}):
                lacking = ["yes" if name in each.lacking else "-" for each in every]
                yield f"    too little {escape(name)}", lacking, "dim"
    if any(each.retried for each in every):
        yield "  made again after a refusal", [f"{each.retried:,}" for each in every], ""


def _span_rows(every: list[Figures]) -> Iterator[Row]:
    for count in sorted({count for each in every for count in each.spanned}):
        name = f"pods within {count} NUMA node{'s' if count > 1 else ''}"
        yield name, [f"{each.spanned.get(count, 0):,}" for each in every], ""


def _fill_rows(every: list[Figures]) -> Iterator[Row]:
    names = {name for each in every for name, fill in each.fills.items() if fill.requested or fill.granted}
    for name in sorted(names):
        if name == "pods":
            continue
        fills = [each.fills.get(name, Fill()) for each in every]
        wholes = [_amount(name, fill.allocatable) for fill in fills]
        of = f", of {wholes[0]}" if len(set(wholes)) == 1 else ""
        yield f"{escape(name)} requested{of}", [_share(fill.requested, fill.allocatable) for fill in fills], ""
        if not of:
            yield "  of", wholes, "dim"
        if any(fill.granted for fill in fills):
            word = "exclusive" if name == "cpu" else "granted"
            yield f"  {word}", [_amount(name, fill.granted) for fill in fills], ""


def _room_rows(every: list[Figures]) -> Iterator[Row]:
    """How fragmented: what one NUMA node can still give, on the best, the middle and the worst node."""
    asked = {name for each in every for name, fill in each.fills.items() if fill.requested or name == "cpu"}
    for name in sorted({name for each in every for name in each.largest} & asked):
        found = [each.largest.get(name, (0, 0, 0)) for each in every]
        unit = (lambda amount: f"{amount:,}") if name == "cpu" else size
        if not any(best for best, _, _ in found):
            continue
        word = "CPUs" if name == "cpu" else escape(name)
        yield f"largest aligned: {word}", [unit(best) for best, _, _ in found], ""
        if any(len(each.nodes) > 1 for each in every):
            yield "  on the middle node", [unit(median) for _, median, _ in found], "dim"
            yield "  on the fullest node", [unit(worst) for _, _, worst in found], "dim"


_SECTIONS = (_state_rows, _span_rows, _fill_rows, _room_rows)


def _amount(name: str, amount: int) -> str:
    if name == "cpu":
        return f"{amount / 1000:,.1f}".removesuffix(".0")
    return size(amount) if name == "memory" or name.startswith("hugepages-") else f"{amount:,}"


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f}%" if whole else "-"


def _nodes(figures: Figures) -> TextGrid:
    rows = []
    for node in figures.nodes:
        fills = (node.fills.get(name, Fill()) for name in ("cpu", "memory"))
        pods = [
            f"{node.pods[state]}{GLUE}{_word(state).replace(' ', GLUE)}"
            for state, _, _ in _STATES
            if node.pods.get(state)
        ]
        texts = (
            node.name, ", ".join(pods) or "-", *(_share(fill.requested, fill.allocatable) for fill in fills),
            f"{node.largest['cpu']}{GLUE}CPUs", " ".join(str(len(use.free)) for use in node.numa),
        )  # fmt: skip
        rows.append(tuple(map(Cell, texts)))
    names = ("node", "pods", "CPU", "memory", "largest aligned", "free CPUs of NUMA nodes")
    return TextGrid(names, tuple(rows), right=frozenset({2, 3, 4}))


def _word(state: PodState) -> str:
    return state.value.replace("-", " ")


def pods_grid(result: Result, sites: Sequence[str]) -> TextGrid:
    """A row per pod, on nodes of these names."""
    several = len(sites) > 1
    rows: list[tuple[Cell, ...] | Below] = []
    for fate in result.fates:
        place = [Cell(sites[fate.site] if fate.site is not None else "-")] if several else []
        cpus, nodes = _held(result, fate)
        colour = _WORDS[fate.state][1]
        rows.append((Cell(fate.item.pod.key), *place, Cell(_word(fate.state), colour), Cell(nodes), Cell(cpus)))
        said = why(fate, len(sites))
        if said:
            rows.append(Below(said, colour))
    return TextGrid(("pod", *(("node",) if several else ()), "result", "NUMA", "CPUs"), tuple(rows))


def _held(result: Result, fate: Fate) -> tuple[str, str]:
    if fate.site is None or fate.record is None:
        return "-", "-"
    dry_run = result.nodes[fate.site]
    found = holdings_of(dry_run.node, dry_run.ledger, fate.record.pod)
    cpus = CpuSet.union(got.cpus for got in found if got.cpus)
    return counted(cpus) if cpus else "shared", str(NodeSet.union(got.nodes for got in found)) or "-"


def why(fate: Fate, sites: int) -> str:
    """Why a pod ended as it did, of so many nodes; "" where there is nothing to say."""
    if fate.state is PodState.UNSCHEDULABLE:
        lacks = ", ".join(f"{name} on {count}" for name, count in fate.lacking.items())
        barred = [f"{word} on {count}" for word, count in fate.barred.items()]
        return f"of {many(sites, 'node', ',')}, {'; '.join([*([f'too little {lacks}'] if lacks else []), *barred])}"
    if fate.refusal is not None:
        return fate.refusal.plain
    if fate.record is not None and fate.record.why:
        return "; ".join(dict.fromkeys(fate.record.why[name] for name in sorted(fate.record.why)))
    return ""
