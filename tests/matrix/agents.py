"""Starts agents, each as a process of its own.

    agent = Agents().start({...});  agent.alive;  agent.kill();  agent.wait()

`Agents` forks them from a process that has paid for the imports: two seconds once, not for each of hundreds of lives.
What a life does is the function `live` of a module: `tests.matrix.life`, or `tests.crash.life`.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from tests import patience
from tests.matrix.journal import Journal

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["tests.matrix.loaded"])
"""Where processes of the tests come from."""
PR_SET_PDEATHSIG = 1
_ONE = threading.Lock()
"""Of `multiprocessing`, whose processes look after each other's ends."""


class Agent:
    """One process of the agent."""

    def __init__(self, order: dict[str, Any], process: BaseProcess | subprocess.Popen[bytes]) -> None:
        self.log, self._journal = Path(order["log"]), Journal(Path(order["tree"]))
        self._process, self.pid = process, process.pid or 0

    @property
    def code(self) -> int | None:
        """Exit code, or minus the signal that ended it; None while it runs."""
        with _ONE:
            return self._process.poll() if isinstance(self._process, subprocess.Popen) else self._process.exitcode

    @property
    def alive(self) -> bool:
        return self.code is None

    def words(self) -> str:
        return self.log.read_text("utf-8", "replace") if self.log.exists() else ""

    def kill(self) -> None:
        """SIGKILL, never in the middle of one write of the kernel's: a kernel finishes what it began."""
        with self._journal.alone():
            self._journal.append({"by": "test", "do": "killed"})
            self.signal(signal.SIGKILL)
        self.wait()

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def wait(self) -> int:
        """Until it ended; the exit code."""
        patience.until(lambda: not self.alive, lambda: f"the agent's end\n{self.words()[-4000:]}")
        assert self.code is not None
        return self.code

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, if it runs."""
        if self.alive:
            with contextlib.suppress(ProcessLookupError):  # it ended by itself
                os.kill(self.pid, number)


class Agents:
    """Forks agents; `life` is the module of what they do. Thread-safe."""

    def __init__(self, life: str = "tests.matrix.life") -> None:
        self._life = life

    def start(self, order: dict[str, Any]) -> Agent:
        """Begin one life; see `live` of its module."""
        process = FORKS.Process(target=_begin, args=(self._life, order), daemon=True)
        with _ONE:
            process.start()
        return Agent(order, process)


def _begin(life: str, order: dict[str, Any]) -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # the fork server ends with the tests
    log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for each in (1, 2):
        os.dup2(log, each)
    sys.exit(importlib.import_module(life).live(order))


class Programs(Agents):
    """Starts each agent as a Python of its own, which shares no memory with the tests: what it takes is its own.

    Args:
        path: folders that come first where it looks for packages.
    """

    def __init__(self, *path: str) -> None:
        super().__init__()
        here = f"import json, sys; sys.path[:0] = {[*path, str(Path.cwd())]!r}"
        life = f"from {self._life} import live; sys.exit(live(json.loads(sys.argv[1])))"
        self._command = [sys.executable, "-P", "-c", f"{here}; {life}"]

    def start(self, order: dict[str, Any]) -> Agent:
        with open(order["log"], "ab") as log:  # noqa: PTH123 - a name in an order
            return Agent(order, subprocess.Popen([*self._command, json.dumps(order)], stdout=log, stderr=log))
