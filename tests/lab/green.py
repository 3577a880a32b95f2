"""The commit at which each test of the lab, and each slice, passed last on this machine.

A red run names it: whoever looks for the cause begins there. A machine that never ran the lab knows none.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path

from tests.lab.places import CACHE, ROOT

FILE = Path(os.environ.get("NUMALIGN_LAB_GREEN") or CACHE / "green.json")


def keep(names: Iterable[str]) -> None:
    """These passed at this commit, today."""
    now = {name: f"{_commit()} of {datetime.now(UTC):%Y-%m-%d %H:%M} UTC" for name in names}
    if now:
        FILE.parent.mkdir(parents=True, exist_ok=True)
        spare = FILE.with_suffix(".new")
        spare.write_text(json.dumps({**_known(), **now}, indent=1) + "\n")
        spare.replace(FILE)


def last(name: str) -> str:
    """When it passed last, in words."""
    found = _known().get(name)
    return f"it passed last at {found}" if found else "this machine has not seen it pass"


def _known() -> Mapping[str, str]:
    with contextlib.suppress(OSError, ValueError):  # nothing was written yet
        found = json.loads(FILE.read_text())
        return found if isinstance(found, dict) else {}
    return {}


def _commit() -> str:
    """Short, with a "+" where files differ from it."""
    done = subprocess.run(
        ["git", "describe", "--always", "--abbrev=10", "--dirty=+", "--exclude=*"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.stdout.strip() or "no commit"
