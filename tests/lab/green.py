"""The commit at which each test of the lab, and each slice, passed last on this machine.

A red run names it: whoever looks for the cause begins there. A machine that has not seen it, as each bare one of CI,
names what `make lab-all` kept.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path

from tests.lab import outcomes, whole
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
    if found := _known().get(name):
        return f"it passed last at {found}"
    group = name.removeprefix("slice ")
    passed = [
        (each.date, each.commit) for part, each in whole.read().items()
        if each.tests.get(name) == outcomes.PASSED or (part == group and not each.code)
    ]  # fmt: skip
    date, commit = max(passed, default=("", ""))
    return "this machine has not seen it pass" + (f"; make lab-all did, at {commit} of {date} UTC" if commit else "")


def _known() -> Mapping[str, str]:
    with contextlib.suppress(OSError, ValueError):  # nothing was written yet
        found = json.loads(FILE.read_text())
        return found if isinstance(found, dict) else {}
    return {}


def _commit() -> str:
    """Short, with a "+" where files differ from it."""
    with contextlib.suppress(FileNotFoundError):  # git is not installed
        done = subprocess.run(
            ["git", "describe", "--always", "--abbrev=10", "--dirty=+", "--exclude=*"],
            cwd=ROOT, capture_output=True, text=True, check=False,
        )  # fmt: skip
        return done.stdout.strip() or "no commit"
    return "no commit"
