"""`numalign release`: put cgroups back as far as the kernel lets it. For uninstalling, and in trouble."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from agent.app.offline import Where, open_left
from agent.app.releasing import Released
from agent.app.releasing import release as put_back
from agent.cli.run import DEFAULT_STATE
from agent.errors import AnotherAgentError
from agent.model.cgroup import VANISHED

CONFINED = 1
"""Exit code when a cgroup still has less than it had before numalign."""
_MOST = 20
"""Cgroups of one reason that are named; JSON has all."""


@click.command("release")
@click.option(
    "--state-dir", type=click.Path(path_type=Path, file_okay=False), default=DEFAULT_STATE, show_default=True
)
@click.option("--config", type=click.Path(path_type=Path), help="The agent's configuration file.")
@click.option("--root", metavar="MACHINE", help="The machine that it served, if not this one.")
@click.option(
    "--cgroup-root", metavar="auto|scratch|PATH", default="auto", show_default=True, help="The tree that it served."
)
@click.option(
    "--kubepods", default="", metavar="CGROUP", help="The kubelet's root in that tree, where there are several."
)
@click.option("--log-dir", type=click.Path(path_type=Path), default=Path("/var/log"), show_default=True, hidden=True)
@click.option("--force", is_flag=True, help="Even while an agent runs: it will pin again unless it only observes.")
@click.option("--forget", is_flag=True, help="Remove the saved ledger, too.")
@click.option("--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(
    *, state_dir: Path, config: Path | None, root: str | None, cgroup_root: str, kubepods: str, log_dir: Path,
    force: bool, forget: bool, output: str,
) -> None:  # fmt: skip
    """Give every pod all CPUs and nodes again, restore CFS quotas, and say what remains and why.

    Stop the agent first: its lock is respected. Processes go on running; they are only not confined any more.

    \b
    Exit codes: 0 nobody is confined; 1 some cgroup still is; 2 wrong input; 3 a fault of this machine, or an agent
    runs.
    """  # noqa: D301 - click's mark for text that is not folded is this very character
    where = Where(
        state=state_dir, config=config, root=root, cgroup_root=cgroup_root, kubepods=kubepods, log_dir=log_dir
    )  # fmt: skip
    left = open_left(where, needs_ledger=False)
    if state_dir.is_dir():
        try:
            left.store.lock()
        except AnotherAgentError as error:
            if not force:
                raise AnotherAgentError(
                    error.path, f"{str(error).removeprefix(error.path + ': ')}, or --force"
                ) from None
    try:
        released = put_back(left)
        if forget and released.clean:
            left.store.forget()
    finally:
        left.store.unlock()
    forgotten = forget and released.clean
    if output == "json":
        click.echo(json.dumps(_as_json(released, left.notes, forgotten=forgotten), indent=2))
    else:
        for line in (*left.notes, *_text(released)):
            click.echo(line)
        if forget:
            click.echo(f"{left.store.path}: {'removed' if forgotten else 'kept, since somebody is still confined'}")
    sys.exit(0 if released.clean else CONFINED)


def _text(released: Released) -> list[str]:
    done = [each for each in released.written if not each.error]
    gone = sum(each.error == VANISHED for each in released.written)
    cgroups = len({each.write.path for each in done})
    lines = [f"{len(done)} writes to {cgroups} cgroups" + (f"; {gone} ended meanwhile" if gone else "")]
    reasons: dict[str, list[str]] = {}
    for each in released.remains:
        reasons.setdefault(each.why, []).append(f"  {each.path} {each.file} = {each.value or '(inherited)'}")
    for why, paths in reasons.items():
        lines += [f"remains: {why}", *paths[:_MOST]]
        if len(paths) > _MOST:
            lines.append(f"  and {len(paths) - _MOST} more")
    lines.append("nobody is confined any more" if released.clean else "some pods are still confined, see above")
    return lines


def _as_json(released: Released, notes: tuple[str, ...], *, forgotten: bool) -> dict[str, Any]:
    return {
        "clean": released.clean,
        "written": sum(not each.error for each in released.written),
        "refused": [
            {"path": each.write.path, "file": each.write.file, "value": each.write.value, "error": each.error}
            for each in released.written
            if each.error
        ],
        "remains": [
            {"path": each.path, "file": each.file, "value": each.value, "why": each.why, "confines": each.confines}
            for each in released.remains
        ],
        "forgotten": forgotten,
        "notes": list(notes),
    }
