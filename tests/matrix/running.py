"""Runs many pairs in a few processes, and hands out what became of each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.matrix.pairs import Result

WORKERS, THREADS = 2, 12
"""Processes, and pairs at a time in each: they mostly wait, so there are many more than cores."""


class Run:
    """Runs pairs from the beginning of its context on.

    Args:
        names: of the pairs, in the order in which they begin.
        folder: for their files; those of pairs that went wrong stay.
    """

    def __init__(self, names: Iterable[str], folder: Path) -> None:
        self._names, self._folder = list(names), folder
        self._results: dict[str, Result] = {}
        self._news = threading.Condition()
        self._over = 0

    def __enter__(self) -> Self:
        self._workers = [self._worker(number) for number in range(min(WORKERS, len(self._names)))]
        for number, name in enumerate(self._names):
            pipe = self._workers[number % len(self._workers)].stdin
            assert pipe is not None
            pipe.write(f"{name}\n")
        for each in self._workers:
            assert each.stdin is not None
            each.stdin.close()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self._workers:
            if kind is not None:
                worker.terminate()
            worker.wait(600)
        for reader in self._readers:
            reader.join(60)

    def result(self, name: str, within: float = 600.0) -> Result:
        """What became of a pair, when it has ended."""
        with self._news:
            ready = self._news.wait_for(lambda: name in self._results or self._over == len(self._workers), within)
            found = self._results.get(name)
        assert found is not None, f"{name} {'was not run: a worker ended' if ready else 'does not end'}"
        return found

    _readers: list[threading.Thread]

    def _worker(self, number: int) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "tests.matrix.worker", str(THREADS), os.fspath(self._folder / str(number))]
        worker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._readers = [*getattr(self, "_readers", []), threading.Thread(target=self._read, args=(worker,))]
        self._readers[-1].start()
        return worker

    def _read(self, worker: subprocess.Popen[str]) -> None:
        assert worker.stdout is not None
        with worker.stdout as lines:
            for line in lines:
                result = Result(**json.loads(line))
                with self._news:
                    self._results[result.pair] = result
                    self._news.notify_all()
        with self._news:
            self._over += 1
            self._news.notify_all()
