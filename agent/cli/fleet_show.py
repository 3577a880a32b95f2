"""The answers of a fleet on a terminal: shapes, nodes, largest requests, pods with advice. Nothing decides here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

from agent.cli import show as tables
from agent.cli.grid import GLUE, Below, Cell, TextGrid, fitting
from agent.cli.output import many
from agent.cli.show import size
from agent.forecast.fleet.figures import FleetFigures
from agent.forecast.fleet.questions import GATED, MISALIGNED, REFUSED, RELEASED, Fits, FleetAnswers, Trouble
from agent.forecast.fleet.report import ShapeFigures, by_lack, by_shape

FEW = 20
"""Nodes that have a row each without being asked for."""
MOST_PODS, MOST_NAMES = 50, 5
LEFT_OUT = (
    frozenset[str](), frozenset({"memory", "largest memory"}),
    frozenset({"memory", "largest memory", "exclusive", "CPUs"}),
)  # fmt: skip
"""Columns that go where the terminal is narrow, one set after the other."""
LEFT_OUT_OF_PODS = (
    frozenset[str](), frozenset({"fits now on"}), frozenset({"fits now on", "node"}),
)  # fmt: skip
"""The same; the advice names the nodes, too."""
_STATES = {MISALIGNED: "misaligned", REFUSED: "refused", "waits": "waits there", "unbound": "not bound",
           GATED: "at the gate", RELEASED: "released"}  # fmt: skip


def print_all(found: FleetAnswers, read: float, *, nodes: bool) -> None:
    """Print them; `read` is when the fleet was read, in seconds since the epoch."""
    target = tables.console()
    known = [each for each in found.figures if each.lack is None]
    say = partial(tables.sentences, target)
    say([f"{many(len(found.figures), 'node', ',')}, {len(known):,} with a summary that can be decided by"])
    if known:
        shapes = by_shape(found.figures)
        fitting(target.width, [partial(_shapes, shapes, out) for out in LEFT_OUT]).print(target)
        if nodes or len(known) <= FEW:
            fitting(target.width, [partial(_nodes, known, out) for out in LEFT_OUT]).print(target)
        say(_largest(found))
    say(_refused(found.troubles))
    say(_at_the_gate(found, read))
    if found.troubles:
        alike = _alike(found.troubles)
        shown = alike[:MOST_PODS]
        fitting(target.width, [partial(_pods, shown, read, out) for out in LEFT_OUT_OF_PODS]).print(target)
        left = len(found.troubles) - sum(map(len, shown))
        say([f"and {many(left, 'pod', ',')} more: --output json has all"] if left else [])
    elif known:
        say(["no pod waits for room or lies misaligned, and none is refused, as far as pods are listed"])
    say(_lacks(found.figures), style="yellow")
    say([f"note: {each}" for each in found.notes], style="dim")


def _glued(shape: str) -> str:
    """Broken after commas only."""
    return shape.replace(" ", GLUE).replace(f",{GLUE}", ", ")


def _share(share: float) -> str:
    return f"{round(100 * share)}{GLUE}%"


def _shapes(shapes: Iterable[ShapeFigures], out: frozenset[str]) -> TextGrid:
    names = (
        "nodes",
        "shape",
        "policy",
        "CPUs",
        "exclusive",
        "requested",
        "memory",
        "fragmented",
        "largest",
        "waiting",
    )
    rows = [
        (str(each.nodes), _glued(each.shape), each.policy, str(each.cpus), str(each.held), _share(each.fill),
         _share(each.memory_fill), _share(each.fragmentation), str(each.largest), str(each.waiting))
        for each in shapes
    ]  # fmt: skip
    return _grid(names, rows, left={"shape", "policy"}, out=out)


def _nodes(figures: Iterable[FleetFigures], out: frozenset[str]) -> TextGrid:
    names = ("node", "CPUs", "exclusive", "requested", "memory", "fragmented", "largest", "largest memory", "waiting")
    rows = [
        (each.name, str(each.cpus), str(each.held), _share(each.fill), _share(each.memory_fill),
         _share(each.fragmentation), str(each.largest), size(each.memory_largest), str(each.waiting))
        for each in figures
    ]  # fmt: skip
    return _grid(names, rows, left={"node"}, out=out)


def _grid(
    names: tuple[str, ...], rows: Iterable[tuple[str, ...]], *, left: set[str], out: frozenset[str]
) -> TextGrid:
    shown = tuple(name for name in names if name not in out)
    return TextGrid(
        shown,
        tuple(tuple(Cell(cell) for name, cell in zip(names, row, strict=True) if name not in out) for row in rows),
        frozenset(place for place, name in enumerate(shown) if name not in left),
    )


def _largest(found: FleetAnswers) -> Iterator[str]:
    for each in found.largest:
        least = "" if each.exact else "at least "
        if each.cpus:
            yield f"largest aligned request under {each.policy} now: {least}{many(each.cpus, 'CPU')}, on {each.node}"
        else:
            yield (
                f"largest aligned request under {each.policy} now: {least}none (the column counts CPUs of NUMA nodes "
                "alone; here the scheduler's sums count, too)"
            )


def _refused(troubles: Iterable[Trouble]) -> Iterator[str]:
    """How many pods are refused, with the first names; the table below says why."""
    names = [each.key for each in troubles if each.kind == REFUSED]
    if names:
        more = f" and {len(names) - MOST_NAMES:,} more" if len(names) > MOST_NAMES else ""
        told = ", ".join(names[:MOST_NAMES])
        yield f"{many(len(names), 'pod', ',')} {'is' if len(names) == 1 else 'are'} refused: {told}{more}"


def _at_the_gate(found: FleetAnswers, read: float) -> Iterator[str]:
    """How many pods the gatekeeper holds, and which it released to a node where they did not land."""
    gated = sorted((each for each in found.troubles if each.kind == GATED), key=lambda each: each.since)
    if gated:
        first = gated[0]
        yield (
            f"{many(len(gated), 'pod', ',')} {'waits' if len(gated) == 1 else 'wait'} at the gate, the longest for "
            f"{_age(read - first.since)}: {first.key}"
        )
    if found.elsewhere:
        told = ", ".join(
            f"{each.key} ({each.promised}: bound to {each.node})" for each in found.elsewhere[:MOST_NAMES]
        )
        left = len(found.elsewhere) - MOST_NAMES
        more = f" and {left:,} more" if left > 0 else ""
        yield f"released to one node and bound to another: {told}{more}"


def _alike(troubles: Iterable[Trouble]) -> list[list[Trouble]]:
    """Those of which the same is to be said stand together, each group where its first one stands."""
    groups: dict[tuple[object, ...], list[Trouble]] = {}
    for each in troubles:
        why = each.why if each.kind in (MISALIGNED, REFUSED) else ""
        groups.setdefault((each.kind, each.cpus, why, each.advice), []).append(each)
    return list(groups.values())


def _pods(groups: Iterable[list[Trouble]], read: float, out: frozenset[str]) -> TextGrid:
    names = ("pod", "state", "node", "for", "CPUs", "fits now on")
    rows: list[tuple[Cell, ...] | Below] = []
    for each, *others in groups:
        more = len({one.node for one in others} - {each.node})
        where = f"{each.node}{f' and {more} more' if more else ''}" or "-"
        cells = (
            Cell(f"{each.key}{f' and {len(others)} more' if others else ''}", "bold"),
            Cell(_STATES[each.kind].replace(" ", GLUE)), Cell(where),
            Cell(_age(read - each.since) if each.since else "-"), Cell(f"{each.cpus / 1000:g}"),
            Cell(_fits(each.fits)),
        )  # fmt: skip
        rows.append(tuple(cell for name, cell in zip(names, cells, strict=True) if name not in out))
        told = f"on {where}: {each.why}" if "node" in out and each.node else each.why
        rows += [Below(told, "dim"), Below(f"advice: {each.advice}")]
    return TextGrid(tuple(name for name in names if name not in out), tuple(rows))


def _fits(found: Fits | None) -> str:
    if found is None:
        return "not asked"
    if not found.nodes:
        return "none"
    left = len(found.nodes) - 2
    more = f", {left}{'+' if found.more else ''} more" if left > 0 else ""
    return f"{', '.join(found.nodes[:2])}{more}"


def _age(seconds: float) -> str:
    """Return an age in the largest unit that is whole; seconds below 0 (a clock that is behind) count as 0."""
    for unit, name in ((86_400, "d"), (3600, "h"), (60, "m")):
        if seconds >= unit:
            return f"{int(seconds // unit)}{name}"
    return f"{max(0, int(seconds))}s"


def _lacks(figures: Iterable[FleetFigures]) -> Iterator[str]:
    for lack, group in by_lack(figures).items():
        names = ", ".join(each.name for each in group[:MOST_NAMES])
        more = len(group) - MOST_NAMES
        told = f"{names} and {more:,} more" if more > 0 else names
        yield f"no usable summary ({lack.value}) on {many(len(group), 'node', ',')}: {told}; {group[0].why}"
