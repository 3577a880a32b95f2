"""What the node itself tells: new cgroup folders, as they appear, and traces of other writers of cpusets.

Owned by whoever runs the engine (`agent.app.standalone.standalone`, the cluster's loop): `wake` is called when there
is work to do, `take` says whether cgroups came or went since the last time, and then the engine reconciles. The time
from a folder to its set is measured on the way (`agent.observe.windows`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from agent.core.cgroups.writers import kubelet_writes, pod_writes
from agent.engine.engine import Engine
from agent.host.cgroups import Cgroups
from agent.host.cgroups.watching import Changes, Watcher
from agent.host.writers import look
from agent.model.cgroup import Level, Written
from agent.observe.event_log import EventLog
from agent.observe.logs import LOG
from agent.observe.metrics import Metrics
from agent.observe.windows import Windows

MOST_NAMED = 3
"""Pods that a sentence names."""
SETTLE_V1 = 0.002
"""Seconds from an event to its consequences on v1. There runc reads the parent's set and writes it into the folder
that it has just made; if the parent shrinks in between, that fails (EACCES) and the container with it. Two
milliseconds let it finish. On v2 nothing is copied."""
SOURCE, CONFIGZ, PODS, SLICES = "files", "configz", "pods", "slices"
"""Whose word stops and resumes the engine here (`Engine.switch`)."""
SOURCES = (SOURCE, CONFIGZ, PODS, SLICES, "flapping")
"""All of them; the last is the engine's own: sets that change back and forth."""


def windows(metrics: Metrics) -> Windows:
    """Windows that end in the histogram."""
    return Windows(lambda seconds: metrics.time("start_to_pin_seconds", seconds=seconds))


class Measured(EventLog):
    """Logs and counts, and ends the windows of containers that were pinned.

    Attributes:
        windows: None where nobody opens any.
    """

    windows: Windows | None = None

    def written(self, results: tuple[Written, ...]) -> None:
        """See Reporter."""
        if self.windows is not None:
            self.windows.written(results)
        super().written(results)


class NodeEvents:
    """Follows the kubelet's tree.

    Args:
        cgroups: the tree.
        open_windows: told of containers that appear; the engine's reporter closes them.
        metrics: problems are counted.
        wake: called on the watcher's thread after every change.
    """

    def __init__(self, cgroups: Cgroups, open_windows: Windows, metrics: Metrics, wake: Callable[[], None]) -> None:
        self._windows, self._metrics, self._wake = open_windows, metrics, wake
        self._changed = threading.Event()
        self._settle = SETTLE_V1 if cgroups.version == 1 else 0.0
        self._watcher = Watcher(cgroups.mounts, self._told, kubepods=cgroups.kubepods, problem=self._problem)

    def start(self) -> None:
        """Begin to follow."""
        self._watcher.start()

    def close(self) -> None:
        """End."""
        self._watcher.close()

    def take(self) -> bool:
        """Whether cgroups came or went since the last time that this was asked."""
        changed = self._changed.is_set()
        self._changed.clear()
        return changed

    def _told(self, changes: Changes) -> None:
        self._windows.gone(changes.gone)
        self._windows.appeared(
            (each.path, each.seen) for each in changes.appeared if each.fresh and each.level is Level.CONTAINER
        )
        self._changed.set()
        if self._settle:
            time.sleep(self._settle)
        self._wake()

    def _problem(self, text: str) -> None:
        self._metrics.count("problems_total", "watch")
        LOG.warning("%s", text)


def mind_other_writers(engine: Engine, root: Path, kubelet: Path) -> None:
    """Look for whoever else writes cpusets here; while there is one, the engine observes only (safety.md S10).

    Args:
        engine: the engine.
        root: where the host's file system is seen.
        kubelet: the kubelet's folder, --root-dir.

    """
    found = look(root, kubelet)
    engine.switch(observe_only=bool(found), why="; ".join(found), source=SOURCE)


def mind_kubelet(engine: Engine, configuration: Mapping[str, object]) -> None:
    """The kubelet told its configuration (nodes/configz, S19): with a static policy, observe only.

    Args:
        engine: the engine.
        configuration: {"kubeletconfig": {...}}, or a KubeletConfiguration.

    """
    why = kubelet_writes(configuration)
    engine.switch(observe_only=bool(why), why=why, source=CONFIGZ)


def writing_pods(bodies: Iterable[object]) -> tuple[str, ...]:
    """Sentences on the pods of this node that write cpusets."""
    return tuple(sorted({found for body in bodies if (found := pod_writes(body))}))


def mind_pods(engine: Engine, found: tuple[str, ...]) -> None:
    """What runs on this node, as the API tells it: while a pod writes cpusets, observe only (safety.md S10).

    Args:
        engine: the engine.
        found: of `writing_pods`.

    """
    engine.switch(observe_only=bool(found), why="; ".join(found[:MOST_NAMED]), source=PODS)
