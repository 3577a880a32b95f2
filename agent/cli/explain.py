"""`numalign explain`: why a pod was refused, where it would fit, what it has. Reads only."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from agent.app.offline.queries import manifests, open_queries
from agent.app.places import DEFAULT_STATE
from agent.cli.where import config_option, root_option
from agent.core.explain.serialize import to_json
from agent.core.explain.values import Verdict
from agent.errors import SettingsError
from agent.model.pod import Pod

REFUSED, WRONG = 1, 2
"""Exit codes when a pod is refused, or would be; when a document of the manifest cannot be read."""
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
@click.option("--strict", is_flag=True,
              help="End with 2 where an annotation cannot be followed, or may be a typing error.")  # fmt: skip
@click.option("--details", "-v", is_flag=True, help="Show requests, hints, merges and grants, too.")
@click.option("--output", "-o", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(
    *, pod: str | None, manifest: Path | None, state_dir: Path | None, config: Path | None, root: str | None,
    strict: bool, details: bool, output: str,
) -> None:  # fmt: skip
    """Say why POD was refused, or where it lies and why there, and what would have let it in.

    Read from the saved ledger, so it works while the agent runs and when it does not. The answer comes from admitting
    the pod again, on a copy; what would have let it in was tried, too. With --manifest the pods need not exist: each
    is asked about alone, beside those that are there.

    Exit codes: 0 it is in, or would be; 1 it is refused, or would be, or requests more than the machine has; 2 wrong
    input (with --strict also what cannot be followed), or no such pod; 3 a fault of this machine, or no ledger.
    """
    if pod is None and manifest is None:
        raise SettingsError("POD", "name a pod, or the --manifest of one; numalign state lists those that are there")
    # a machine that is only named needs no agent of its own
    desk = open_queries(
        state_dir or DEFAULT_STATE, config, root, needs_ledger=manifest is None or state_dir is not None
    )
    notes, wrong = desk.notes, tuple[str, ...]()
    if manifest is None:
        one = desk.find(pod or "")
        found, odd = [desk.explain(one)], desk.unfollowed(one)
    else:
        there, read = desk.pods(), manifests(manifest)
        notes, wrong, asked = (*read.notes, *desk.notes), read.wrong, _named(read.pods, pod)
        found = [desk.explain(each, hypothetical=each.uid not in there, claims=claims) for each, claims in asked]
        odd = bool(read.odd) or any(desk.unfollowed(each) for each, _ in asked)
    if output == "json":
        bodies = [{**to_json(each), "notes": [*each.all_notes, *notes], "wrong": list(wrong)} for each in found]
        click.echo(json.dumps(bodies[0] if pod is not None or len(bodies) == 1 else bodies, indent=2))
    else:
        from agent.cli import explain_show  # noqa: PLC0415 - rich is loaded only where text is shown

        explain_show.show(found, notes, details=details)
    for sentence in wrong:
        click.echo(f"numalign: left out, not explained: {sentence}", err=True)
    refused = any(each.verdict in (Verdict.REFUSED, Verdict.UNSCHEDULABLE) for each in found)
    sys.exit(WRONG if wrong or (strict and odd) else REFUSED if refused else 0)


def _named(pods: tuple[tuple[Pod, bool], ...], name: str | None) -> tuple[tuple[Pod, bool], ...]:
    found = tuple(each for each in pods if name in (None, each[0].uid, each[0].key, each[0].name))
    if not found:
        raise SettingsError(
            "POD", f'the manifest holds no pod "{name}"; it has {", ".join(each.key for each, _ in pods)}'
        )
    return found
