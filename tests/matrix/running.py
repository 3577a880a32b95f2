"""Runs many pairs beside each other, and hands out what became of each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Self

from tests.matrix.pairs import Result


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
        self._over = False

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "tests.matrix.worker", os.fspath(self._folder / "pairs")]
        self._worker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._reader = threading.Thread(target=self._read, name="pairs")
        self._reader.start()
        assert self._worker.stdin is not None
        self._worker.stdin.write("".join(f"{name}\n" for name in self._names))
        self._worker.stdin.close()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            self._worker.terminate()
        self._worker.wait(600)
        self._reader.join(60)

    def result(self, name: str, within: float = 600.0) -> Result:
        """What became of a pair, when it has ended."""
        with self._news:
            self._news.wait_for(lambda: name in self._results or self._over, within)
            found = self._results.get(name)
        assert found is not None, f"{name} {'was not run: the worker ended' if self._over else 'does not end'}"
        return found

    def _read(self) -> None:
        assert self._worker.stdout is not None
        with self._worker.stdout as lines:
            for line in lines:
                result = Result(**json.loads(line))
                with self._news:
                    self._results[result.pair] = result
                    self._news.notify_all()
        with self._news:
            self._over = True
            self._news.notify_all()
