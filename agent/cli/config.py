"""`numalign config check FILE`: is a configuration right, what is in force, and what of it is ignored.

Works offline; with --root it is also tried on that machine, as the agent would at its start.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from agent.app.setup import made
from agent.core.request.amounts import is_memory
from agent.errors import SettingsError
from agent.host.machines import open_machine
from agent.host.settings_file import read_settings
from agent.model.machine import Machine
from agent.model.quantity import show_bytes
from agent.settings import Settings, parse

WRONG = 2
"""Exit code of a configuration that cannot be used."""


@click.group("config")
def command() -> None:
    """Look at configurations.

    \b
    Examples:
      numalign config check deploy/examples/config.yaml
    """  # noqa: D301 - as below


@command.command("check")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--root", metavar="MACHINE", default=None, help="Try it on this machine too: a folder, an archive, or a name."
)
@click.option("--output", "-o", type=click.Choice(["text", "json"]), default="text", show_default=True)
def check(file: Path, root: str | None, output: str) -> None:
    """Say whether FILE can be used, what is in force with it, and what of it is ignored.

    A KubeletConfiguration can be given as it is.

    \b
    Examples:
      numalign config check deploy/examples/config.yaml
      numalign config check /var/lib/kubelet/config.yaml --root two-sockets

    Exit code 0: usable; 2: not, with one sentence that names the key
    and the remedy.
    """  # noqa: D301 - click's mark for text that is not folded is this very character
    try:
        settings, ignored = read_settings(file)
        found = _tried(settings, open_machine(root)) if root is not None else {}
    except SettingsError as error:
        if output == "text":
            said = str(error)
            raise SettingsError("", said if str(file) in said else f"{file}: {said}") from error
        click.echo(json.dumps({"usable": False, "key": error.key, "error": str(error)}, indent=2, sort_keys=True))
        sys.exit(WRONG)
    answer = {"usable": True, "settings": settings.shown(), "ignored": list(ignored), "machine": found}
    if output == "json":
        click.echo(json.dumps(answer, indent=2, sort_keys=True))
        return
    click.echo(f"{file}: usable")
    for line in (*_in_force(settings), *_sections(ignored, found)):
        click.echo(line)


def _tried(settings: Settings, machine: Machine) -> dict[str, Any]:
    """What the reservations come to on a machine; raises SettingsError for what it cannot give."""
    found = made(settings, machine)
    node, ledger = found.node, found.node.start()
    return {
        "remarks": list(found.remarks),
        "name": machine.name,
        "reservedCpus": str(node.reserved),
        "sharedCpus": str(ledger.cpus.shared),
        "reservedMemory": {
            str(book.id): {name: size for name, size in sorted(book.system.items()) if size}
            for book in ledger.memory.nodes
            if any(book.system.values())
        },
    }


def _in_force(settings: Settings) -> Iterator[str]:
    defaults = parse({})[0].shown()
    yield "in force:"
    for key, value in settings.shown().items():
        mark = "" if value != defaults[key] else "  (default)"
        yield f"  {key:<34}{_text(value)}{mark}"


def _text(value: object) -> str:
    if value in (None, "", [], {}):
        return "-"
    return value if isinstance(value, str) else json.dumps(_sizes(value))


def _sizes(value: Any) -> Any:  # noqa: ANN401 - a part of a JSON document
    """Bytes of memory as manifests write them; all else as it is."""
    if isinstance(value, list):
        return [_sizes(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        name: show_bytes(int(part)) if is_memory(name) and str(part).isdecimal() else _sizes(part)
        for name, part in value.items()
    }


def _sections(ignored: tuple[str, ...], found: dict[str, Any]) -> Iterator[str]:
    if found:
        yield f"on {found['name']}:"
        for key in ("reservedCpus", "sharedCpus", "reservedMemory"):
            value = found[key]
            yield f"  {key:<34}{_text(value)}"
        yield from (f"  {sentence}" for sentence in found["remarks"])
    if ignored:
        yield "ignored:"
        yield from (f"  {sentence}" for sentence in ignored)
