"""`numalign verify`: is the kernel as the saved ledger says. Reads only; a running agent is not disturbed."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import click

from agent.app.offline.offline import Leftovers, Locations, open_leftovers
from agent.cli.where import where_options
from agent.core.cgroups.verify import ReportLine, VerifyReport

DRIFT = 1
"""Exit code when a cgroup is not as it should be."""
_MOST_THREADS = 50
"""Threads with an affinity of their own that the table names; JSON has all."""


@click.command("verify")
@where_options
@click.option("--drift-only", is_flag=True, help="Leave out what is as it should be.")
@click.option("--output", "-o", type=click.Choice(["table", "json"]), default="table", show_default=True)
def command(*, where: Locations, drift_only: bool, output: str) -> None:
    """Compare the kernel's cgroups with the saved ledger, and say why they differ. Writes nothing.

    \b
    Examples:
      numalign verify
      numalign verify --drift-only -o json | jq '.drift'

    \b
    Causes: drift-foreign  another program wrote another set
            drift-reset    systemd or the runtime put its own value back
            drift-emptied  its set is empty; no process may use more by that
            drift-undone   its set is empty; processes may use what is not theirs
            drift-parent   the parent has less than the cgroup asks for
            drift-offline  a CPU or a node went away
            quota          a CFS quota came back (resize, daemon-reload)

    A thread with fewer CPUs than its container has is shown, and is no drift: the application chose them, or the
    container was started with them, which is said where no thread of it has more.

    Exit codes: 0 all is as it should be; 1 drift; 2 wrong input; 3 a fault of this machine, or nothing to compare.
    """  # noqa: D301 - click's mark for text that is not folded is this very character
    left = open_leftovers(where, needs_ledger=True)
    report = left.report()
    lines = report.drifted if drift_only else report.lines
    if output == "json":
        click.echo(json.dumps(_as_json(left, report, lines), indent=2))
    else:
        from agent.cli.verify_table import print_report  # noqa: PLC0415 - rich is loaded only where a table is shown

        print_report(left, report, lines, _MOST_THREADS)
    sys.exit(DRIFT if report.drifted else 0)


def _as_json(left: Leftovers, report: VerifyReport, lines: tuple[ReportLine, ...]) -> dict[str, Any]:
    return {
        "ok": not report.drifted,
        "drift": dict(report.by_cause),
        "cgroups": [_row(line) for line in lines],
        "threads": [asdict(each) for each in report.narrow],
        "unnamed": list(report.nameless),
        "notes": list(left.notes),
    }  # fmt: skip


def _row(line: ReportLine) -> Mapping[str, Any]:
    return {
        "path": line.path, "file": line.file, "level": line.level.value, "pod": line.pod,
        "container": line.container, "wanted": line.wanted, "asked": line.asked, "effective": line.effective,
        "exclusive": line.exclusive, "cause": line.cause.value if line.cause else "", "kept": line.kept,
        "barred": line.barred,
    }  # fmt: skip
