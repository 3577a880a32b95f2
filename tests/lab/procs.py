"""Programs that outlive the command that started them: by name, with a log each, ended by exactly who they are.

A process is known by its id and the time it started (field 22 of /proc/<pid>/stat), so that a later process with the
same id is never mistaken for it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

from tests.lab.places import RUN, logs

PATIENCE = 20.0
"""Seconds between SIGTERM and SIGKILL."""
_children: dict[int, subprocess.Popen[bytes]] = {}


def _file(name: str) -> Path:
    folder = RUN / "pids"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{name}.json"


def _born(pid: int) -> str:
    """When a process started, "" when it is gone or a zombie."""
    with contextlib.suppress(OSError):  # gone is ""
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        if fields[0] not in "ZX":
            return fields[19]
    return ""


def start(name: str, command: Iterable[str | Path]) -> int:
    """Start a program in a session of its own; its words go to logs/NAME.log. Returns its id."""
    stop(name)
    with (logs() / f"{name}.log").open("ab") as log:
        process = subprocess.Popen(
            [str(part) for part in command], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    _children[process.pid] = process
    _file(name).write_text(json.dumps({"pid": process.pid, "born": _born(process.pid)}))
    return process.pid


def pid(name: str) -> int:
    """The id of a program that runs, 0 when it does not."""
    for child in tuple(_children.values()):  # two nodes are started at once, by a thread each
        child.poll()
    try:
        told = json.loads(_file(name).read_text())
    except (OSError, ValueError):
        return 0
    number = int(told["pid"])
    return number if told["born"] and _born(number) == told["born"] else 0


def alive(name: str) -> bool:
    """Whether it runs."""
    return pid(name) != 0


def tell(name: str, how: signal.Signals) -> None:
    """Send a signal, if it runs."""
    number = pid(name)
    if number:
        os.kill(number, how)


def stop(name: str, how: signal.Signals = signal.SIGTERM) -> None:
    """End it, kindly first; returns when it is gone."""
    deadline = time.monotonic() + PATIENCE
    tell(name, signal.SIGCONT)
    tell(name, how)
    while alive(name):
        if time.monotonic() > deadline:
            tell(name, signal.SIGKILL)
        time.sleep(0.05)
    _file(name).unlink(missing_ok=True)


def names() -> list[str]:
    """Everything that was started and not ended."""
    return sorted(path.stem for path in _file("x").parent.glob("*.json"))


def end_of_log(name: str, lines: int = 15) -> str:
    """The last lines of a part's log."""
    path = logs() / f"{name}.log"
    text = path.read_text("utf-8", "replace") if path.exists() else ""
    return "\n".join(text.splitlines()[-lines:])
