"""Runs the real agent in a forked process, and kills it as told. Started by `tests.crash.killing`.

Every order is one line of JSON on standard input, every answer one on standard output. The imports are paid once,
so that hundreds of kills take seconds; what is forked is `agent.app.standalone.build`, as `numalign run` uses
it.

    {"options": {...}, "at": 7}       SIGKILL before the seventh effect
    {"options": {...}, "after": 0.02} SIGKILL after so many seconds
    {"options": {...}}                let it finish
    "coarse": 1                       effects are the engine's and the save's only: a kernel's write is one piece
"""

from __future__ import annotations

import json
import mmap
import os
import signal
import struct
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from agent.app.standalone.build import StandaloneOptions, standalone_node
from agent.host.scratch.store import TreeFolder
from agent.observe import logs

_COUNT = mmap.mmap(-1, 8)


class Steps:
    """Counts effects where the parent can see it; dies before number `at`."""

    def __init__(self, at: int) -> None:
        self._at, self._count = at, 0

    def __call__(self, _name: str) -> None:
        self._count += 1
        _COUNT[:8] = struct.pack("q", self._count)
        if self._count == self._at:
            os.kill(os.getpid(), signal.SIGKILL)


def child(order: dict[str, Any]) -> None:
    """The agent's process."""
    steps = Steps(order.get("at", 0))
    # Boundaries inside effects: within the save (write, sync, rename, sync), and between the files of a cgroup.
    for name in ("fsync",) if order.get("coarse") else ("fsync", "replace"):
        setattr(os, name, _announced(getattr(os, name), steps, name))
    for name in () if order.get("coarse") else ("make", "put", "remove"):
        setattr(TreeFolder, name, _announced(getattr(TreeFolder, name), steps, name))
    options: dict[str, Any] = {key: Path(value) if key in {"pods", "state", "config"} else value
               for key, value in order["options"].items()}  # fmt: skip
    logs.setup("text", "error")
    with standalone_node(StandaloneOptions(**options), steps=steps) as node:
        node.once()


def _announced(function: Any, steps: Steps, name: str) -> Any:  # noqa: ANN401 - any function
    def announced(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - as above
        steps(name)
        return function(*arguments, **named)

    return announced


def main() -> None:
    """Take orders until there are none."""
    for line in sys.stdin:
        order = json.loads(line)
        _COUNT[:8] = struct.pack("q", 0)
        began = time.monotonic()
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                child(order)
                code = 0
            except BaseException:  # noqa: BLE001 - told, and the exit code says so
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(code)
        if "after" in order:
            time.sleep(order["after"])
            os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        (count,) = struct.unpack("q", _COUNT[:8])
        answer = {"status": os.waitstatus_to_exitcode(status), "steps": count, "seconds": time.monotonic() - began}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
