"""The real program, as a process of its own: what it says, what it answers, what it costs."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests import scraped
from tests.flow.serving import MACHINE
from tests.patience import PATIENCE, until


class Program:
    """`numalign run --pods`, serving."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process, self.log = process, log
        self.port = int(self.says(r"serving metrics.*?127\.0\.0\.1:(\d+)")[1])

    def says(self, pattern: str) -> re.Match[str]:
        """The first line of its log that has a pattern, waited for."""
        read = self.log.read_text
        found = until(lambda: re.search(f"{pattern}.*\n", read()), lambda: f"{pattern!r} in {read()}")
        assert found
        return found

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
    log = folder / "program.log"
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=file)
    try:
        yield Program(process, log)
    finally:
        process.kill()
        process.wait()
