"""The real program, as a process of its own: what it says, what it answers, what it costs."""

from __future__ import annotations

import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests import scraped
from tests.flow.serving import MACHINE
from tests.patience import PATIENCE


class Program:
    """`numalign run --pods`, serving."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process, self.lines = process, list[str]()
        self._said: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()
        found = self.says(r"serving metrics.*?127\.0\.0\.1:(\d+)")
        self.port = int(found[1])

    def _listen(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self._said.put(line)

    def says(self, pattern: str) -> re.Match[str]:
        """The first line of its log that has a pattern, waited for."""
        until = time.monotonic() + PATIENCE
        place = 0
        while True:
            for line in self.lines[place:]:
                found = re.search(pattern, line)
                if found:
                    return found
            place = len(self.lines)
            try:
                self.lines.append(self._said.get(timeout=max(0.01, until - time.monotonic())))
            except queue.Empty:
                raise AssertionError(f"{pattern!r} was never said in {''.join(self.lines)}") from None

    def get(self, page: str) -> tuple[int, str]:
        return scraped.page(f"127.0.0.1:{self.port}", page)

    def figure(self, name: str) -> int:
        """A number of /proc/<pid>/status: Threads, VmHWM (KiB)."""
        return scraped.status(self.process.pid, name)

    def end(self) -> int:
        """SIGTERM; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE)


@contextmanager
def running(folder: Path, *extra: str) -> Iterator[Program]:
    """The program over folder/pods, ended with the block if it still runs."""
    (folder / "pods").mkdir(exist_ok=True)
    command = [
        sys.executable, "-m", "agent", "run", "--pods", f"{folder}/pods", "--state-dir", f"{folder}/state",
        "--root", MACHINE, "--metrics-address", "127.0.0.1:0", *extra,
    ]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        yield Program(process)
    finally:
        process.kill()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()
