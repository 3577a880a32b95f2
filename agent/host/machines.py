"""Which machine a command is about: this one, a folder, an archive, XML of lstopo, a name, or a description.

Called by every command line that takes --root. Names are looked up among the machines that come with numalign
(deploy/machines).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from agent.core.machines.synthetic import EXAMPLE, parse_synthetic
from agent.errors import HostError, MalformedError
from agent.host import bounded
from agent.host.archives import archive_of, open_root
from agent.host.lstopo import is_lstopo, read_lstopo
from agent.host.sysfs.discovery import discover
from agent.model.likely import likely
from agent.model.machine import Machine

SYNTHETIC = "synthetic:"
SUFFIXES = ("", ".tar.xz", ".tar.bz2", ".tar.gz", ".tar", ".xml", ".txt")
TEXT_LIMIT = 4096


def folders() -> tuple[Path, ...]:
    """Where named machines are looked for, in this order."""
    own = Path(__file__).resolve().parents[2] / "deploy" / "machines"
    return own, Path("deploy/machines")


_DESCRIPTION = re.compile(r" *\d+ *(socket|package|die|(numa )?node|l3|core|cpu|thread)s?\b", re.IGNORECASE)
"""The beginning of a description of a machine in words."""


def names() -> list[str]:
    """Names of the machines that can be given to --root."""
    found = {
        path.name.removesuffix(suffix)
        for folder in folders()
        if folder.is_dir()
        for path in folder.iterdir()
        for suffix in SUFFIXES[1:]
        if path.name.endswith(suffix)
    }
    return sorted(found)


def open_machine(spec: str | None) -> Machine:
    """The machine that a specification names.

    Args:
        spec: None for this machine; a folder or an archive; an archive and a folder in it (FILE/PATH); a file that
            lstopo wrote; a name; "synthetic:" and a description (`agent.core.machines.synthetic`).

    Raises HostError naming the path, MalformedError for a bad description and for what is not there.
    """
    if spec and spec.startswith(SYNTHETIC):
        return parse_synthetic(spec.removeprefix(SYNTHETIC))
    path = None if spec is None else find(spec)
    if path and path.suffix == ".txt" and path.is_file():
        return parse_synthetic(_description(path), name=path.stem)
    if path and is_lstopo(path):
        return read_lstopo(path, plain_name(path))
    with open_root(str(path) if path else None) as files:
        return discover(files, plain_name(path) if path else "this machine")


def find(spec: str) -> Path:
    """Find the folder or file that a name or path means; raises MalformedError when there is none."""
    if not spec:
        raise MalformedError("an empty text names no machine; write a folder, an archive, a name or synthetic:...")
    for path in _candidates(spec):
        if path.exists() or archive_of(path):
            return path
    known = ", ".join(names()) or "none is known"
    why = f"{spec[:200]}: no such folder or archive, nor a known machine; known: {known}"
    if _DESCRIPTION.match(spec):
        raise MalformedError(f"{why}; a description begins with {SYNTHETIC} ({SYNTHETIC}{EXAMPLE})")
    meant = likely(spec, names())
    raise MalformedError(f"{why}{f'; did you mean {meant}?' if meant else ''}")


def _candidates(spec: str) -> Iterator[Path]:
    yield Path(spec)
    if "/" not in spec:
        for suffix in SUFFIXES[1:]:  # a recording anywhere is better than a description in words
            for folder in folders():
                yield folder / (spec + suffix)


def plain_name(path: Path) -> str:
    """What to call the machine that a folder or archive holds."""
    name = path.resolve().name or "root"
    for suffix in SUFFIXES[1:]:
        name = name.removesuffix(suffix)
    return name


def _description(path: Path) -> str:
    """The description in a text file: lines that start with # are comments."""
    try:
        lines = bounded.text(path, TEXT_LIMIT).splitlines()
    except OSError as error:
        raise HostError(str(path), f"cannot be read: {error.strerror}") from None
    return ", ".join(line for line in map(str.strip, lines) if line and not line.startswith("#"))
