"""`numalign topology`: what a machine is, for people, for programs, and as a picture.

Works offline on anything that --root accepts; with --ledger it also shows what each pod holds.
"""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path
from typing import TextIO

import click

from agent.app.service.machine_watch import second_opinion
from agent.cli.output import not_written
from agent.core.machines.facts import to_facts
from agent.core.machines.identity import differs
from agent.errors import CheckpointError, HostError, MalformedError
from agent.host.checkpoint import Checkpoint
from agent.host.machines import open_machine
from agent.model.ledger import Ledger
from agent.model.machine import Machine

UNBOUND = 4096
"""Columns of output that is no terminal: its reader cuts the lines."""
EXAMPLES = """\b
Examples:
  numalign topology
  numalign topology --full | less
  numalign topology -o json | jq '.numa[].memory_bytes'
  numalign topology -o svg -f machine.svg
  numalign topology --ledger /var/lib/numalign/checkpoint.json
  numalign topology --root two-sockets
  numalign topology --root 'synthetic:2 sockets x 2 nodes x 8 cores, gpu on 1'
"""


@click.command("topology", epilog=EXAMPLES)
@click.option("--root", metavar="MACHINE", default=None, help="A machine that is not this one; see below.")
@click.option("--output", "-o", type=click.Choice(["text", "json", "svg"]), default="text", show_default=True)
@click.option("--ledger", metavar="CHECKPOINT", type=click.Path(path_type=Path), default=None,
              help="Show what each pod holds, from this saved ledger.")  # fmt: skip
@click.option("--file", "-f", "target", type=click.Path(dir_okay=False, path_type=Path), default=None,
              help="Write to this file instead of the terminal.")  # fmt: skip
@click.option("--full", is_flag=True, help="Every core and device, and equal nodes one by one.")
def command(root: str | None, output: str, ledger: Path | None, target: Path | None, *, full: bool) -> None:
    """Show sockets, NUMA nodes, caches, cores, memory, devices and distances of a machine.

    MACHINE is a folder with sys/ in it, an archive made by `numalign record` (ARCHIVE/FOLDER where it holds
    several machines), a file that hwloc's `lstopo --disallowed machine.xml` wrote, the name of a machine that
    comes with numalign, or a description after "synthetic:". Without it, this machine is shown.

    \b
    The part after "synthetic:" is made of, with commas between:
      2 sockets x 2 nodes x 8 cores x 2 threads    counts, outermost first
      8 CPUs per L3                                caches
      64G per node, 1000 2Mi pages, 4 1Gi pages on 0
      gpu on 1 and 3, 4 vfs on 0, nvme on 2        devices, and their nodes

    Exit code 0: shown; 2: MACHINE or CHECKPOINT cannot be used, with the reason.
    """  # noqa: D301 - click's mark for text that is not folded is this very character
    machine = _machine(root)
    for difference in second_opinion(machine, root):
        click.echo(f"warning: {difference}", err=True)
    held = _ledger(ledger, machine) if ledger else None
    if target is None:
        if isinstance(sys.stdout, io.TextIOWrapper):  # a terminal that knows no "×" gets a "?"
            sys.stdout.reconfigure(errors="replace")
        _print(sys.stdout, machine, held, output, full=full)
        return
    text = io.StringIO()
    _print(text, machine, held, output, full=full)
    try:
        target.write_text(text.getvalue(), encoding="utf-8")
    except OSError as error:
        raise not_written(target, error) from error


def _machine(root: str | None) -> Machine:
    try:
        return open_machine(root)
    except (HostError, MalformedError) as error:
        if root is None:
            raise
        raise click.BadParameter(str(error), param_hint="--root") from error


def _ledger(path: Path, machine: Machine) -> Ledger:
    try:
        saved = Checkpoint(path, boot="").load()
    except CheckpointError as error:
        raise click.BadParameter(str(error), param_hint="--ledger") from error
    if saved is None:
        raise click.BadParameter(f"{path}: no such file", param_hint="--ledger")
    different = differs(saved.ledger, saved.extra, machine)
    if different:
        click.echo(f"warning: {different}", err=True)
    if different is None:
        click.echo(
            f"warning: {path} is of machine {saved.ledger.machine}, shown is {machine.digest}: what this machine "
            "does not have is left out",
            err=True,
        )
    return saved.ledger


def _print(stream: TextIO, machine: Machine, ledger: Ledger | None, output: str, *, full: bool) -> None:
    if output == "svg":
        from agent.observe.drawing import draw  # noqa: PLC0415 - drawn only where it is asked for

        stream.write(draw(machine, ledger, full=full))
    elif output == "json":
        stream.write(json.dumps(_facts(machine, ledger), indent=2) + "\n")
    else:
        from rich.console import Console  # noqa: PLC0415 - rich is loaded only where a tree is shown

        from agent.observe.tree import tree  # noqa: PLC0415 - as above

        bound = stream.isatty() or "COLUMNS" in os.environ
        console = Console(file=stream, width=None if bound else UNBOUND, highlight=False, emoji=False, markup=False)
        for part in tree(machine, ledger, full=full):
            console.print(part)


def _facts(machine: Machine, ledger: Ledger | None) -> dict[str, object]:
    """The machine's facts; with a ledger also what each pod holds, in the order of admission."""
    facts: dict[str, object] = to_facts(machine)
    if ledger is not None:
        from agent.observe.drawing.holders import holders  # noqa: PLC0415 - loads the drawing, as above

        facts["holders"] = [
            {
                "pod": holder.name,
                "uid": holder.uid,
                "cpus": list(holder.cpus),
                "confined_to": list(holder.confined),
                "memory_bytes": {str(node): dict(found) for node, found in sorted(holder.memory.items())},
                "over_nodes": [[block.resource, block.size, list(block.nodes)] for block in holder.over],
                "devices": list(holder.devices),
                "aligned": holder.aligned,
            }
            for holder in holders(ledger)
        ]
    return facts
