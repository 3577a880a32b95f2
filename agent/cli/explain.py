"""`numalign explain`: why a pod was refused, where it would fit, what it has. Reads only."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from agent.app.offline.queries import manifests, open_queries
from agent.cli.run import DEFAULT_STATE
from agent.cli.where import config_option, root_option
from agent.core.explain.serialize import to_json
from agent.core.explain.values import Verdict
from agent.errors import SettingsError
from agent.model.pod import Pod

REFUSED = 1
"""Exit code when a pod is refused, or would be."""
EXAMPLES = """\b
Examples:
  numalign explain shop/checkout              a pod of this node, or its uid
  numalign explain checkout -v                with every provider's hints
  numalign explain --manifest checkout.yaml   where would it fit?
  numalign explain --manifest checkout.yaml --root two-sockets
                                              the same on a described machine
  numalign explain shop/checkout -o json | jq -r '.remedies[].sentence'
"""


@click.command("explain", epilog=EXAMPLES)
@click.argument("pod", required=False, metavar="[POD]")
@click.option(
    "--manifest",
    type=click.Path(path_type=Path, allow_dash=True),
    help="Pods that are not there yet: a manifest of pods or workloads, a folder, or - for standard input.",
)
@click.option(
    "--state-dir", type=click.Path(path_type=Path, file_okay=False), default=None,
    help=f"Where the agent saves its ledger.  [default: {DEFAULT_STATE}]",
)  # fmt: skip
@config_option
@root_option
@click.option("--details", "-v", is_flag=True, help="Show requests, hints, merges and grants, too.")
@click.option("--output", "-o", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(
    *, pod: str | None, manifest: Path | None, state_dir: Path | None, config: Path | None, root: str | None,
    details: bool, output: str,
) -> None:  # fmt: skip
    """Say why POD was refused, or where it lies and why there, and what would have let it in.

    Read from the saved ledger, so it works while the agent runs and when it does not. The answer comes from admitting
    the pod again, on a copy; what would have let it in was tried, too. With --manifest the pods need not exist: each
    is asked about alone, beside those that are there.

    Exit codes: 0 it is in, or would be; 1 it is refused, or would be; 2 wrong input, or no such pod; 3 a fault of
    this machine, or no ledger.
    """
    if pod is None and manifest is None:
        raise SettingsError("POD", "name a pod, or the --manifest of one; numalign state lists those that are there")
    # a machine that is only named needs no agent of its own
    desk = open_queries(
        state_dir or DEFAULT_STATE, config, root, needs_ledger=manifest is None or state_dir is not None
    )
    if manifest is None:
        found = [desk.explain(desk.find(pod or ""))]
    else:
        there = desk.pods()
        found = [desk.explain(each, hypothetical=each.uid not in there) for each in _named(manifests(manifest), pod)]
    if output == "json":
        bodies = [{**to_json(each), "notes": [*each.notes, *desk.notes]} for each in found]
        click.echo(json.dumps(bodies[0] if pod is not None or len(bodies) == 1 else bodies, indent=2))
    else:
        from agent.cli import explain_show  # noqa: PLC0415 - rich is loaded only where text is shown

        explain_show.show(found, desk.notes, details=details)
    sys.exit(REFUSED if any(each.verdict is Verdict.REFUSED for each in found) else 0)


def _named(pods: tuple[Pod, ...], name: str | None) -> tuple[Pod, ...]:
    found = tuple(each for each in pods if name in (None, each.uid, each.key, each.name))
    if not found:
        raise SettingsError(
            "POD", f'the manifest holds no pod "{name}"; it has {", ".join(each.key for each in pods)}'
        )
    return found
