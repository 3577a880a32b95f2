"""The command line. Each sub-command is a module beside this one with a click command called `command`.

They are imported when they are used: `numalign --help` stays quick, and `numalign topology` loads no client.

Exit codes: 0 done; 1 done, and the answer is no (a pod was refused, drift was found); 2 the input is wrong; 3 a fault
of this machine, told in one sentence.
"""

from __future__ import annotations

import importlib
import sys
from difflib import get_close_matches
from typing import NoReturn

import click

from agent import __version__
from agent.cli.output import ReaderGoneError, guard
from agent.errors import MalformedError, NumalignError, SettingsError

BAD_INPUT, FAULT = 2, 3

COMMANDS = {
    "run": "Serve this node: place pods, write cpusets, keep them so.",
    "topology": "Show a machine: nodes, caches, cores, memory, devices.",
    "simulate": "Forecast where pods would go, under one or several policies.",
    "fleet": "Show all nodes of a cluster, which pods wait, and where they would fit now.",
    "explain": "Say why a pod was refused, where it would fit, and what it has.",
    "plan": "Tell what another policy, or a repack, would do to the running pods.",
    "state": "Show what each pod holds, from the saved ledger.",
    "verify": "Compare the kernel's cgroups with the saved ledger.",
    "release": "Put cgroups back as far as the kernel lets it.",
    "gatekeeper": "Decide for gated pods of a cluster before kube-scheduler binds them.",
    "ungate": "Take the gate from every pod, when no gatekeeper lives.",
    "record": "Pack a machine's description for a bug report or a test.",
    "config": "Check a configuration file.",
}
"""Name -> one line, in the order of the help; a module of that name exists for each (a test shows it)."""


class _Lazy(click.Group):
    """A group that imports a sub-command only when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - as above
        if cmd_name not in COMMANDS:
            return None
        command = importlib.import_module(f"agent.cli.{cmd_name}").command
        return command if isinstance(command, click.Command) else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] == "help":  # as other programs have it; `numalign help run` is `numalign run --help`
            if args[1:]:
                return self.resolve_command(ctx, [args[1], "--help"])
            click.echo(ctx.get_help())
            ctx.exit()
        near = get_close_matches(args[0], COMMANDS)
        if args[0] not in COMMANDS and near and not args[0].startswith("-"):
            ctx.fail(f"No such command '{args[0]}'. Did you mean {' or '.join(near)}?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - as above
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(
    cls=_Lazy,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Each command has its own --help with examples.",
)
@click.version_option(__version__, prog_name="numalign")
def group() -> None:
    """Align pods' CPUs, memory and devices on NUMA nodes, and keep them so.

    \b
    Start here, on any Linux machine and without a cluster:
      numalign topology                        what this machine is
      numalign run --pods deploy/examples/pods --once
                                               where example pods would go on it
    """  # noqa: D301 - click's mark for text that is not folded is this very character


def main() -> NoReturn:
    """The entry point: every fault of our own tree is one sentence and an exit code."""
    code: object = 0
    try:
        guard()
        try:
            code = group.main(prog_name="numalign", standalone_mode=False)
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except (click.exceptions.Abort, KeyboardInterrupt):
        code = 130
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except ReaderGoneError:
        code = 0
    except NumalignError as error:
        click.echo(f"numalign: {error}", err=True)
        code = BAD_INPUT if isinstance(error, SettingsError | MalformedError) else FAULT
    sys.exit(code if isinstance(code, int) else 0)
