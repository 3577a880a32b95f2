"""Measures the time from a container's cgroup to its first written CPUs: so long it may run unpinned without NRI.

`agent.app` feeds both ends: the watcher of cgroup folders brings new containers, the engine's reporter what was
written. Containers without CPUs of their own, and those that NRI had pinned, are not measured here.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

from agent.model.cgroup import Cause, Written

_PATIENCE = 120.0
"""Seconds after which a container without a write counts as one that needs none."""


class Windows:
    """Open windows by path. Safe to call from several threads.

    Args:
        closed: called with the seconds of every window.
        clock: the clock that `appeared` is measured by.
    """

    def __init__(self, closed: Callable[[float], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._closed, self._clock = closed, clock
        self._lock = threading.Lock()
        self._open: dict[str, float] = {}

    def appeared(self, folders: Iterable[tuple[str, float]]) -> None:
        """Containers' folders appeared: (path, time of `clock`); one that is open already keeps its first time."""
        now = self._clock()
        with self._lock:
            self._open = {path: since for path, since in self._open.items() if now - since <= _PATIENCE}
            for path, at in folders:
                self._open.setdefault(path, at)

    def gone(self, paths: Iterable[str]) -> None:
        """Folders are gone: whatever was not written never will be."""
        with self._lock:
            for path in paths:
                self._open.pop(path, None)

    def written(self, results: Iterable[Written]) -> None:
        """Sets were written: the first grant that the kernel took closes its container's window."""
        now = self._clock()
        with self._lock:
            closed = [
                self._open.pop(each.write.path)
                for each in results
                if not each.error and each.write.cause is Cause.GRANT and each.write.path in self._open
            ]
        for since in closed:
            self._closed(max(0.0, now - since))

    @property
    def waiting(self) -> int:
        """Containers that appeared and were not written yet."""
        with self._lock:
            return len(self._open)
