"""`numalign state`: what each pod holds, from the saved ledger. Works while the agent runs, and when it does not."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

from agent.app.offline.folder import as_it_was, saved_in, setup_of
from agent.app.page.views import as_json, view_of
from agent.app.statedir import node_allocatable as kept
from agent.app.statedir import recovery_report
from agent.app.statedir import unplaced_pods as unplaced
from agent.cli.where import config_option, root_option, state_dir_option
from agent.core.cgroups.enforced import note
from agent.core.machines.identity import differs
from agent.errors import NumalignError, SettingsError
from agent.host.checkpoint import Checkpoint
from agent.model.ledgerjson import ledger_to_json
from agent.node.recover import ANSWERS
from agent.observe.drawing import draw

EXAMPLES = """\b
Examples:
  numalign state
  numalign state --state-dir run/here -o json | jq '.containers[].cpus'
  numalign state --output svg > node.svg
  numalign state --root two-sockets --state-dir run/two-sockets
"""


@click.command("state", epilog=EXAMPLES)
@state_dir_option
@config_option
@root_option
@click.option("--output", "-o", type=click.Choice(["table", "json", "svg", "ledger"]), default="table",
              show_default=True)  # fmt: skip
def command(*, state_dir: Path, config: Path | None, root: str | None, output: str) -> None:
    """Show what each pod holds, from the saved ledger.

    NUMA nodes are shown where the ledger is of the machine at hand (or of --root). `--output svg` draws the machine
    and what each pod holds on it; `--output ledger` prints the ledger itself, as it is saved.
    """
    store = Checkpoint(state_dir / "checkpoint.json")
    saved = saved_in(store)
    if output == "ledger":
        click.echo(json.dumps(ledger_to_json(saved.ledger), indent=2))
        return
    reserved, different, limits = list[str](), None, ""
    try:
        found = as_it_was(saved, setup_of(state_dir, config, root))
        different = differs(saved.ledger, saved.extra, found.machine)
        node = found.node if different is not None else None
        reserved = list(kept.sentences(found.settings, found.node, kept.load(state_dir))) if node else []
        limits = node.barred() if node else ""
    except NumalignError:
        if config or root:
            raise
        node = None
    if output == "svg":
        if node is None:
            raise SettingsError("--root", f"must name machine {saved.ledger.machine}, of which the ledger is")
        click.echo(draw(node.machine, saved.ledger, reserved=node.reserved, rules=node.rules), nl=False)
        return
    outside, report = unplaced.load(state_dir), recovery_report.load(state_dir)
    view = view_of(saved.ledger, node, unplaced.tracked(outside))
    lacking = {uid: why for uid, why in sorted(outside.unenforced.items()) if uid in saved.ledger.pods}
    if output == "json":
        click.echo(
            json.dumps(
                {
                    **as_json(view),
                    "unenforced": lacking,
                    "reserved": reserved,
                    "barred": limits,
                    "answers": saved.extra.get(ANSWERS),
                    "lastStart": asdict(report) if report else None,
                },
                indent=2,
            )
        )
        return
    from agent.cli import show  # noqa: PLC0415 - rich is loaded only where a table is shown

    target = show.console()
    show.pods_grid(view, target.width).print(target)
    show.sentences(target, [f"pod {saved.ledger.pods[uid].pod.key}: {note(why)}" for uid, why in lacking.items()])
    if node is None:
        text = f"the ledger is of machine {saved.ledger.machine}, not of this one; --root names the one to show"
        show.sentences(target, [text])
    else:
        show.nodes_grid(view, target.width).print(target)
        show.sentences(target, [*reserved, *(each for each in (different, limits) if each)])
    show.sentences(target, recovery_report.sentences(report) if report else ())
    answers = f"; compatibility: {saved.extra[ANSWERS]}" if saved.extra.get(ANSWERS) else ""
    show.sentences(target, [f"saved by numalign {saved.by or '(unknown)'} in {store.path}{answers}"])
