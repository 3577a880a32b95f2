"""`numalign release`: put cgroups back as far as the kernel lets it. For uninstalling, and in trouble."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from agent.app.offline.offline import Locations, open_leftovers
from agent.app.offline.releasing import release as put_back
from agent.app.statedir import beside
from agent.cli.release_cluster import ReleaseOptions, cluster_options, release_cluster
from agent.cli.where import where_options
from agent.core.cgroups.page_policies import kept
from agent.core.cgroups.remains import Released
from agent.errors import AnotherAgentError
from agent.model.cgroup import VANISHED

CONFINED = 1
"""Exit code when a cgroup still has less than it had before numalign."""
_MOST = 20
"""Cgroups of one reason that are named; JSON has all."""


@click.command("release")
@click.option("--cluster", is_flag=True, help="Ask every node's agent to release its node, and wait for its word.")
@cluster_options
@where_options
@click.option("--force", is_flag=True, help="Even while an agent runs: it will pin again unless it only observes.")
@click.option("--forget", is_flag=True, help="Remove the saved ledger and all that is kept beside it, too.")
@click.option("--output", "-o", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(
    *, where: Locations, cluster: bool, asking: ReleaseOptions, force: bool, forget: bool, output: str
) -> None:
    """Give every pod all CPUs and nodes again, restore CFS quotas, and say what remains and why.

    On a node: stop the agent first, its lock is respected. Processes go on running; they are only not confined any
    more.

    With --cluster, in a pod of the agents' namespace: every agent does that on its node, takes its words back from
    the pods, enforces nothing any more, and answers. Nothing is removed; the chart does so afterwards. To take it
    back: kubectl annotate pod ... numalign.io/release-

    \b
    Examples:
      numalign release
      numalign release --state-dir /var/lib/numalign --forget
      numalign release --cluster --namespace numalign-system --within 120

    Exit codes: 0 no pod is confined; 1 some cgroup or node still is; 2 wrong input; 3 a fault of this machine, or an
    agent runs.
    """  # noqa: D301 - click's mark for text that is not folded is this very character
    if cluster:
        sys.exit(0 if release_cluster(asking, output) else CONFINED)
    left = open_leftovers(where, needs_ledger=False)
    if where.state.is_dir():
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
            beside.forget(left.store)
    finally:
        left.store.unlock()
    forgotten = forget and released.clean
    notes = (*left.notes, *filter(None, [kept(left.ledger)]))
    if output == "json":
        click.echo(json.dumps(_as_json(released, notes, forgotten=forgotten), indent=2))
    else:
        for line in (*notes, *_text(released)):
            click.echo(line)
        if forget:
            click.echo(f"{left.store.path}: {'removed' if forgotten else 'kept, since some pods are still confined'}")
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
    lines.append("no pod is confined any more" if released.clean else "some pods are still confined, see above")
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
