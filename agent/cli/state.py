"""`numalign state`: who holds what, from the saved ledger. Works while the agent runs, and when it does not."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

from agent.app import kept, recovery_report, setup
from agent.app.views import as_json, view_of
from agent.cli.run import DEFAULT_STATE
from agent.errors import HostError, NumalignError
from agent.host.checkpoint import Checkpoint
from agent.model.ledgerjson import ledger_to_json


@click.command("state")
@click.option(
    "--state-dir", type=click.Path(path_type=Path, file_okay=False), default=DEFAULT_STATE, show_default=True
)
@click.option("--config", type=click.Path(path_type=Path), help="The agent's configuration file.")
@click.option("--root", metavar="MACHINE", help="The machine that it served, if not this one.")
@click.option("--output", type=click.Choice(["table", "json", "ledger"]), default="table", show_default=True)
def command(*, state_dir: Path, config: Path | None, root: str | None, output: str) -> None:
    """Show who holds what, from the saved ledger.

    NUMA nodes are shown where the ledger is of the machine at hand (or of --root). `--output ledger` prints the
    ledger itself, as it is saved.
    """
    store = Checkpoint(state_dir / "checkpoint.json")
    saved = store.load()
    if saved is None:
        raise HostError(str(store.path), "is not there: no agent has saved anything in this --state-dir")
    if output == "ledger":
        click.echo(json.dumps(ledger_to_json(saved.ledger), indent=2))
        return
    known, reserved = kept.load(state_dir), list[str]()
    try:
        found = setup.read_setup(config, root, known if known.known else None)
        node = found.node if found.machine.digest == saved.ledger.machine else None
        reserved = list(kept.sentences(found.settings, found.node, known)) if node else []
    except NumalignError:
        if config or root:
            raise
        node = None
    view = view_of(saved.ledger, node)
    report = recovery_report.load(state_dir)
    if output == "json":
        click.echo(
            json.dumps(
                {**as_json(view), "reserved": reserved, "lastStart": asdict(report) if report else None}, indent=2
            )
        )
        return
    from agent.cli import show  # noqa: PLC0415 - rich is loaded only where a table is shown

    target = show.console()
    target.print(show.pods_table(view))
    if node is None:
        text = f"the ledger is of machine {saved.ledger.machine}, not of this one; --root names the one to show"
        show.sentences(target, [text])
    else:
        target.print(show.nodes_table(view))
        show.sentences(target, reserved)
    show.sentences(target, recovery_report.sentences(report) if report else ())
    show.sentences(target, [f"saved by numalign {saved.by or '(unknown)'} in {store.path}"])
