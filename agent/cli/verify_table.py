"""The table of `numalign verify`, for people."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.console import Console

from agent.app.offline.offline import Leftovers
from agent.cli import show
from agent.cli.grid import Below, Cell, TextGrid
from agent.core.cgroups.verify import INHERITED, Narrow, ReportLine, VerifyReport
from agent.model.cgroup import Level

_MOST = 10
"""Containers with inherited CPUs that are named; JSON has all."""


def print_report(left: Leftovers, report: VerifyReport, lines: Iterable[ReportLine], threads: int) -> None:
    """Print it to standard output.

    Args:
        left: what was looked at.
        report: what was found.
        lines: those of its lines to show.
        threads: how many threads with an affinity of their own to name.
    """
    target = show.console()
    rows = list(lines)
    if rows:
        _grid(rows).print(target)
    _inherited(target, [each for each in report.narrow if each.inherited])
    own = [each for each in report.narrow if not each.inherited]
    for each in own[:threads]:
        of = f"{each.pod} {each.container}".strip() or each.path
        show.sentences(target, [f"thread {each.thread} of {of} chose CPUs {each.cpus} of {each.of}: its own affair"])
    if len(own) > threads:
        show.sentences(target, [f"and {len(own) - threads} threads more; --output json names them"])
    show.sentences(target, left.notes, "yellow")
    show.sentences(target, _verdict(report))


def _inherited(target: Console, narrow: list[Narrow]) -> None:
    """Containers all of whose threads have a part of its CPUs only: one sentence on what may be the cause."""
    names = ((f"{each.pod} {each.container}".strip() or each.path, each.cpus, each.of) for each in narrow)
    places = list(dict.fromkeys(names))
    if not places:
        return
    here = [f"all threads of {name} may use CPUs {cpus} of {of} only" for name, cpus, of in places[:_MOST]]
    show.sentences(target, here)
    more = f"so do those of {len(places) - _MOST} containers more; " if len(places) > _MOST else ""
    show.sentences(target, [f"{more}{INHERITED}"], "yellow")


def _grid(lines: Iterable[ReportLine]) -> TextGrid:
    rows: list[tuple[Cell, ...] | Below] = []
    for line in lines:
        cause = Cell(line.cause.value if line.cause and not line.kept else "", "red")
        own = Cell(line.wanted or "-", "bold" if line.exclusive else "")
        rows.append(
            (Cell(_name(line)), Cell(line.file), own, Cell(line.asked or "-"), Cell(line.effective or "-"), cause)
        )
        if line.kept:
            rows.append(Below(f"left so: {line.kept}", "dim"))
    return TextGrid(("cgroup", "file", "ledger says", "asked for", "in force", "why it differs"), tuple(rows))


def _name(line: ReportLine) -> str:
    """The pod and container where they are known, else the end of the path."""
    last = line.path.rpartition("/")[2]
    if line.level is Level.POD:
        return f"{line.pod} (pod)" if line.pod else last
    if line.container:
        below = f" /{last}" if line.level is Level.INNER else ""
        return f"{line.pod} {line.container}{below}"
    short = last if len(last) <= 32 else f"{last[:20]}…{last[-8:]}"  # noqa: PLR2004 - what fits a column
    return f"{line.pod} {short}" if line.pod else short


def _verdict(report: VerifyReport) -> Iterator[str]:
    total = len({line.path for line in report.lines})
    if not report.drifted:
        yield f"{total} cgroups are as the ledger says"
        return
    causes = ", ".join(f"{count} {cause}" for cause, count in report.by_cause.items())
    drifted = len({line.path for line in report.drifted})
    barred = len({line.path for line in report.drifted if line.barred})
    mended = "a running agent repairs them"
    if barred:
        but = f"all but {barred}" if barred < drifted else "none of them"
        mended = f"a running agent repairs {but}: those lie in the kubelet's own cgroup, which has less"
    yield f"{drifted} of {total} cgroups are not as the ledger says: {causes}; {mended}"
