"""Where the lab keeps things: what is built, outside the work tree; what runs, in run/lab."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Iterable
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
RUN = Path(os.environ.get("NUMALIGN_LAB") or ROOT / "run" / "lab")
"""State, sockets and logs of the lab that runs; NUMALIGN_LAB names another place for a second one."""
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "numalign" / "lab"


def logs() -> Path:
    """The folder with a log per part."""
    folder = RUN / "logs"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def commit(kept: str) -> str:
    """The last one that changed more than documentation and a file of results, with a "+" where files differ."""
    paths = [".", ":!deploy/docs", f":!{kept}"]
    found, changed = (
        subprocess.run(["git", *command, "--", *paths], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        for command in (("log", "-1", "--abbrev=10", "--format=%h"), ("diff", "--name-only", "HEAD"))
    )
    return found.strip() + ("+" if changed.strip() else "")


def digest(*parts: str | bytes | Path) -> str:
    """A short name of contents: texts, files and folders of files."""
    told = hashlib.sha256()
    for part in parts:
        for name, data in _contents(part):
            told.update(name.encode() + b"\0" + data + b"\0")
    return told.hexdigest()[:16]


def _contents(part: str | bytes | Path) -> Iterable[tuple[str, bytes]]:
    if isinstance(part, Path):
        files = sorted(path for path in part.rglob("*") if path.is_file()) if part.is_dir() else [part]
        for path in files:
            if "__pycache__" not in path.parts:
                yield path.name, path.read_bytes()
    else:
        yield "", part.encode() if isinstance(part, str) else part
