"""What every way of serving a node has in common: made as a whole or not at all, served until it is stopped.

`agent.app.cluster.cluster` and `agent.app.standalone.standalone` are the ways.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Self

from agent.app.setup import Setup
from agent.app.statedir.unplaced_pods import UnplacedPods
from agent.engine.engine import Engine
from agent.engine.fault_isolation import sentence
from agent.engine.ports import Steps
from agent.errors import NumalignError
from agent.observe.health import RECOVERY, Health, Server
from agent.observe.logs import LOG
from agent.observe.metrics import Metrics, MetricValues, Shown
from agent.observe.threads import watched

KNOWN = {
    "pods": "a complete list of pods has been decided on",
    "names": "the API server or the runtime has named all containers",
}
"""What `State.missing` may name -> the sentence when it is missing no more."""


class Service(ABC):
    """A context manager: leaving it ends what it made.

    Args:
        steps: told between every two effects; tests kill there.
    """

    setup: Setup
    """Settings and machine as they are in force."""
    unplaced: UnplacedPods
    """Keeps who is refused, waits or is left alone, for `numalign explain`."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._closing = ExitStack()
        self._wake, self._stop = threading.Event(), threading.Event()
        self.health = Health()
        self._missing: dict[str, str] = {}
        self.metrics = Metrics(self.snapshot)
        self.address = ""
        """Where the pages are served, "" when they are not."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.close()

    @abstractmethod
    def snapshot(self) -> MetricValues:
        """What the gauges show."""

    @abstractmethod
    def _open(self) -> None:
        """Make all of it; what is to be ended is given to `_closing`."""

    def _open_or_close(self) -> None:
        """Make all of it, or end what was made and raise."""
        try:
            self._open()
        except BaseException:
            self._closing.close()
            raise

    def stop(self) -> None:
        """End `serve` after what it does now; safe to call from a signal handler."""
        self._stop.set()
        self._wake.set()

    @contextmanager
    def _serving(self, metrics_address: str) -> Iterator[ExitStack]:
        """Threads are watched and the pages served; what is given to the stack ends first."""
        with ExitStack() as open_now:
            open_now.enter_context(watched(self.health, lambda: self.metrics.count("problems_total", "thread")))
            if metrics_address:
                text = Shown(self.metrics.page)
                pages = {**self.health.pages(), "/metrics": lambda accept: (200, *text(accept))}
                server = Server(metrics_address, pages)
                open_now.callback(server.close)
                self.address = server.address
                LOG.info("serving metrics", extra={"facts": {"address": self.address}})
            yield open_now

    def _tell_missing(self, missing: Mapping[str, str]) -> None:
        """What an agent that just began does not know yet, and that it is known now: once each."""
        for name, known in KNOWN.items():
            text, before = missing.get(name, ""), self._missing.get(name, "")
            self.health.set(name, text)
            if text and not before:
                LOG.info("%s", text)
            elif before and not text:
                LOG.info("%s", known)
        self._missing = dict(missing)

    def _stumbled(self, error: Exception) -> None:
        """A piece of work of the loop went wrong: told; the loop goes on, and tries it again."""
        self.metrics.count("problems_total", "host")
        expected = isinstance(error, NumalignError | OSError)
        LOG.error("%s", error if expected else sentence(error), exc_info=None if expected else error)

    def _show(self, engine: Engine) -> None:
        """Health, and the file of those outside, are what the engine says now."""
        self.health.set(RECOVERY, "")
        self.health.set("checkpoint", engine.snapshot.unwritable)
        self.health.set("cgroups", engine.snapshot.broken)
        self.health.set("settings", self.setup.wrong)
        self._tell_missing(engine.snapshot.missing)
        self.unplaced.follow(engine.snapshot)
