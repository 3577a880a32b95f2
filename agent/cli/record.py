"""`numalign record`: pack this machine, or a recorded one, into an archive that --root accepts.

What a user attaches to a bug report, and how the project's own fixtures are made.
"""

from __future__ import annotations

from pathlib import Path

import click

from agent.app.statedir import node_allocatable as kept
from agent.cli.output import many, not_written
from agent.cli.where import state_dir_option
from agent.errors import MalformedError
from agent.host.archives import open_root
from agent.host.machines import find
from agent.host.record import check
from agent.host.record import record as pack

SUFFIX = ".tar.xz"


EXAMPLES = """\b
Examples:
  numalign record                           this machine, into machine.tar.xz
  numalign record --name rack7 rack7.tar.xz
  numalign topology --root machine.tar.xz
"""


@click.command("record", epilog=EXAMPLES)
@click.option(
    "--root", metavar="MACHINE", default=None, help="A folder or archive to record instead of this machine."
)
@click.option("--name", default="machine", show_default=True, help="Name of the folder in the archive.")
@click.option("--force", is_flag=True, help="Replace the file if it is there.")
@click.argument("output", required=False, type=click.Path(dir_okay=False, path_type=Path))
@state_dir_option
def record(root: str | None, name: str, output: Path | None, *, state_dir: Path, force: bool) -> None:
    """Pack what discovery reads of a machine into OUTPUT (NAME.tar.xz without it).

    The archive holds sysfs topology, memory and PCI facts, the kernel's version, the CPU's model and the version of
    the kubelet (from --state-dir); no serial numbers, MAC addresses or host names. `numalign topology --root FILE`
    reads it.
    """
    target = output or Path(name + SUFFIX)
    if Path(name).name != name or name in ("", ".", ".."):
        raise click.BadParameter(f'"{name}" is no name of a folder; write one without "/"', param_hint="--name")
    try:
        place = str(find(root)) if root is not None else None
    except MalformedError as error:
        raise click.BadParameter(str(error), param_hint="--root") from error
    with open_root(place) as files:
        made = pack(files, name, live=root is None, kubelet="" if root else kept.load(state_dir).kubelet)
    try:
        with target.open("wb" if force else "xb") as handle:
            handle.write(made.archive)
    except FileExistsError:
        raise click.BadParameter(f"{target} is there already; choose another name, or --force") from None
    except OSError as error:
        raise not_written(target, error, "OUTPUT") from error
    check(str(target), made.machine)
    machine = made.machine
    click.echo(
        f"{target}: {len(made.archive)} bytes, {made.members} files; machine {machine.digest}: "
        f"{many(len(machine.cpus), 'CPU')}, {many(len(machine.nodes), 'NUMA node')}, "
        f"{many(len(machine.devices), 'PCI function')}"
    )
    for warning in machine.warnings:
        click.echo(f"warning: {warning}", err=True)


command = record
"""What `agent.cli` looks for."""
