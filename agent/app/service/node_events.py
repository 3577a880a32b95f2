"""New cgroup folders as they appear, and sets that other programs write.

`wake` is called when there is work to do; `take` and `rewritten` return True after such a change since the last call,
and then the engine reconciles. The time from a folder to its set is measured on the way
(`agent.observe.windows`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from agent.host.cgroups import Cgroups
from agent.host.cgroups.watching import Changes, Watcher
from agent.model.cgroup import Level
from agent.observe.logs import LOG
from agent.observe.metrics import Metrics
from agent.observe.windows import Windows

SETTLE_V1 = 0.002
"""Seconds from an event to its consequences on v1. There runc reads the parent's set and writes it into the folder
that it has just made; if the parent shrinks in between, that fails (EACCES) and the container with it. Two
milliseconds let it finish. On v2 nothing is copied."""


class NodeEvents:
    """Follows the kubelet's tree.

    Args:
        cgroups: the tree.
        open_windows: notes containers that appear; the engine's reporter closes them.
        metrics: problems are counted.
        wake: called on the watcher's thread after every change.
    """

    def __init__(self, cgroups: Cgroups, open_windows: Windows, metrics: Metrics, wake: Callable[[], None]) -> None:
        self._windows = open_windows
        self._metrics = metrics
        self._wake = wake
        self._changed, self._rewritten = threading.Event(), threading.Event()
        self._settle = SETTLE_V1 if cgroups.version == 1 else 0.0
        self._watcher = Watcher(
            cgroups.mounts, self._told, kubepods=cgroups.kubepods, problem=self._problem, ours=cgroups.ours
        )

    def start(self) -> None:
        """Begin to follow."""
        self._watcher.start()

    def stop(self) -> None:
        """End."""
        self._watcher.close()

    def take(self) -> bool:
        """Return True if cgroups came or went since the last call."""
        changed = self._changed.is_set()
        self._changed.clear()
        return changed

    def rewritten(self) -> bool:
        """Return True if another program wrote a set since the last call."""
        written = self._rewritten.is_set()
        self._rewritten.clear()
        return written

    def _told(self, changes: Changes) -> None:
        self._windows.gone(changes.gone)
        self._windows.appeared(
            (each.path, each.seen) for each in changes.appeared if each.fresh and each.level is Level.CONTAINER
        )
        if changes.rewritten:
            self._rewritten.set()
        if changes.appeared or changes.gone:
            self._changed.set()
        if self._settle:
            time.sleep(self._settle)
        self._wake()

    def _problem(self, text: str) -> None:
        self._metrics.count("problems_total", "watch")
        LOG.warning("%s", text)
