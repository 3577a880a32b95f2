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
from agent.host.settings_file import LARGEST, as_yaml, read_file, read_text
from agent.model.machine import Machine
from agent.model.quantity import show_bytes
from agent.settings import Settings, parse
from agent.settings.kinds import CpuPolicy
from agent.settings.parsing import Reading
from agent.settings.remarks import NO_CPUS

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
@click.option("--write", is_flag=True, help="Print it as config: of the chart's values.")
@click.option("--output", "-o", type=click.Choice(["text", "json"]), default="text", show_default=True)
def check(file: Path, *, root: str | None, write: bool, output: str) -> None:
    """Say whether FILE can be used, what is in force with it, and what of it is ignored.

    A KubeletConfiguration can be given as it is, and so can the documents
    in which providers and installers keep one, flags of a kubelet, and the
    chart's values; - reads standard input.

    \b
    Examples:
      numalign config check deploy/examples/config.yaml
      numalign config check /var/lib/kubelet/config.yaml --root two-sockets
      kubectl get --raw /api/v1/nodes/NODE/proxy/configz | numalign config check -
      numalign config check kubeletconfig.yaml --write > values.yaml

    Exit code 0: usable; 2: not, with one sentence that names the key
    and the remedy.
    """  # noqa: D301 - click's mark for text that is not folded is this very character
    name = "standard input" if str(file) == "-" else str(file)
    try:
        read = read_text(sys.stdin.buffer.read(LARGEST + 1), name) if str(file) == "-" else read_file(file)
        found = _tried(read.settings, open_machine(root)) if root is not None else {}
    except SettingsError as error:
        said = str(error) if name in str(error) else f"{name}: {error}"
        if output == "text":
            raise SettingsError("", said) from error
        key = error.key.removeprefix(f"{name}: ") if not _of_file(error.key, name) else ""
        click.echo(json.dumps({"usable": False, "key": key, "error": said}, indent=2, sort_keys=True))
        sys.exit(WRONG)
    answer = {
        "usable": True, "settings": read.settings.shown(), "ignored": list(read.ignored), "machine": found,
        "taken": read.taken, "notes": list(_notes(read)), "untried": [] if found else list(_untried(read.settings)),
    }  # fmt: skip
    if output == "json":
        written = {"config": _written(read)} if write else {}
        click.echo(json.dumps({**answer, **written}, indent=2, sort_keys=True))
        return
    if write:
        for line in (name, *read.sentences):
            click.echo(f"# {line}")
        click.echo(as_yaml({"config": _written(read)}), nl=False)
        return
    click.echo(f"{name}: usable")
    if read.taken:
        click.echo(f"taken: {read.taken}")
    for line in (*_in_force(read.settings), *_sections(read, found)):
        click.echo(line)


def _written(read: Reading) -> dict[str, Any]:
    """What the file names and what differs from the defaults, as a file would write it."""
    defaults = parse({})[0].shown()
    shown = read.settings.shown().items()
    return {key: _sizes(_bare(value)) for key, value in shown if key in read.named or value != defaults[key]}


def _bare(value: Any) -> Any:  # noqa: ANN401 - a part of a JSON document
    """Without keys that have no value."""
    if isinstance(value, list):
        return [_bare(each) for each in value]
    return {key: _bare(each) for key, each in value.items() if each is not None} if isinstance(value, dict) else value


def _of_file(key: str, name: str) -> bool:
    """Whether the fault is the file's, at a line perhaps, and not of one of its settings."""
    return key == name or (key.startswith(f"{name}:") and not key.startswith(f"{name}: "))


def _notes(read: Reading) -> Iterator[str]:
    yield from read.notes
    if read.settings.cpu_manager_policy is CpuPolicy.NONE:
        yield NO_CPUS


def _untried(settings: Settings) -> Iterator[str]:
    """Settings that only a machine can prove wrong, and that no machine was held against."""
    tried = {"reservedMemory": settings.reserved_memory, "reservedSystemCPUs": settings.reserved_system_cpus}
    return (key for key, value in tried.items() if value)


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


def _sections(read: Reading, found: dict[str, Any]) -> Iterator[str]:
    if found:
        yield f"on {found['name']}:"
        for key in ("reservedCpus", "sharedCpus", "reservedMemory"):
            value = found[key]
            yield f"  {key:<34}{_text(value)}"
        yield from (f"  {sentence}" for sentence in found["remarks"])
    untried = () if found else tuple(_untried(read.settings))
    if untried:
        yield f"not tried on a machine: {', '.join(untried)}; --root MACHINE tries it"
    notes = [each for each in _notes(read) if each not in found.get("remarks", ())]
    if notes:
        yield "notes:"
        yield from (f"  {sentence}" for sentence in notes)
    if read.ignored:
        yield "ignored:"
        yield from (f"  {sentence.removeprefix('ignored: ')}" for sentence in read.ignored)
