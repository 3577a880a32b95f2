"""A node of a cluster whose API server is played: pods come in as the watch brings them, requests are kept.

The intake, the engine, the reporter and the publisher are the product's own, with their threads. `Api` answers what
the test wants it to.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from agent.errors import KubeError
from agent.kube.client import KubeClient
from agent.kube.pod_report import CONDITION, PodReport, carried
from agent.kube.publishing.pod_reporter import PodReporter
from agent.kube.publishing.publisher import Publisher, Regarding
from agent.kube.watch.intake import Intake
from agent.observe.health import Health
from agent.observe.threads import watched
from tests.flow.world import World
from tests.patience import PATIENCE, until

Request = tuple[str, str, Any]
"""Method, path, body."""
Answer = Callable[[str, str, Any], Mapping[str, Any] | None]


class Api(KubeClient):
    """A client whose API server answers as the test wants."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.answer: Answer = lambda _method, _path, _body: {}
        self._lock = threading.Lock()

    def call(self, method: str, path: str, body: object = None, **_: object) -> dict[str, Any]:
        with self._lock:
            self.requests.append((method, path, body))
        return dict(self.answer(method, path, body) or {})

    # ---- what was asked

    def events(self, about: str = "") -> list[dict[str, Any]]:
        """Events about the object of this name, or all."""
        found = [body for method, path, body in list(self.requests) if method == "POST" and path.endswith("/events")]
        return [each for each in found if about in ("", each["involvedObject"]["name"])]

    def condition(self, name: str) -> dict[str, Any]:
        """The condition that a pod was given last, {} before any."""
        found: dict[str, Any] = {}
        for method, path, body in list(self.requests):
            if method == "PATCH" and path.endswith(f"/pods/{name}/status"):
                found = next(each for each in body["status"]["conditions"] if each["type"] == CONDITION)
        return found

    def deadlines(self, name: str) -> list[dict[str, Any]]:
        """The requests that have a pod ended by its deadline."""
        return [
            body for method, path, body in list(self.requests)
            if method == "PATCH" and path.endswith(f"/pods/{name}")
        ]  # fmt: skip


class Desk:
    """A publisher whose thread and clock are the test's; `refused` and `dropped` are what it counts."""

    def __init__(self, answer: Answer = lambda _method, _path, _body: {}) -> None:
        self.api, self.now, self.refused, self.dropped = Api(), 1000.0, Counter[str](), Counter[str]()
        self.api.answer = answer
        self.publisher = Publisher(
            self.api, "n1", clock=lambda: self.now, refused=lambda what: self.refused.update([what]),
            dropped=lambda why: self.dropped.update([why]),
        )  # fmt: skip

    def until(self, end: float) -> None:
        """Time passes; what is due in it is sent."""
        while self.now < end:
            wait = self.publisher.turn()
            self.now = min(end, self.now + (wait if wait is not None else end))

    def run(self, seconds: float) -> None:
        self.until(self.now + seconds)

    def seen(self, report: PodReport) -> None:
        """The watch shows the pod with the words of a report."""
        condition = {"type": CONDITION, "status": report.status, "reason": report.reason, "message": report.message}
        body = {"metadata": {"annotations": dict(report.annotations)}, "status": {"conditions": [condition]}}
        self.publisher.seen(report.uid, lambda told: carried(body, told))

    @property
    def patches(self) -> int:
        """How many were sent."""
        return sum(method == "PATCH" for method, _, _ in self.api.requests)


class Told:
    """The node. `world` has what is held; `api` what was told."""

    def __init__(self, folder: Path, *, defaults: Mapping[str, str] | None = None, **options: Any) -> None:  # noqa: ANN401 - the World's
        self.api, self.health = Api(), Health()
        self.publisher = Publisher(self.api, "n1")
        self.asked: dict[str, int] = {}  # pod -> requests that were sent before its first word was handed over
        self._note_words()
        about = Regarding("Node", "", "n1", "n1")
        self.counted: list[tuple[str, str]] = []
        self.failures: list[str] = []
        self.reporter = PodReporter(
            self.publisher, about, lambda: (self.world.machine, self.world.engine.node.rules),
            count=lambda what, label: self.counted.append((what, label)),
        )  # fmt: skip
        self.world = World(folder, reporters=[self.reporter], **options)
        self.intake = Intake(
            self.world.engine, self.reporter, lambda _name: defaults or {}, failed=self.failures.append
        )  # fmt: skip

    def _note_words(self) -> None:
        publish = self.publisher.publish

        def noted(report: PodReport) -> None:
            with self.publisher._wake:  # one request may be under way
                self.asked.setdefault(report.name, len(self.api.requests))
                publish(report)

        self.publisher.publish = noted  # type: ignore[method-assign]  # it listens, and passes on

    def see(self, *bodies: Mapping[str, Any]) -> None:
        for body in bodies:
            self.intake.pod_changed(body)

    def list(self, *bodies: Mapping[str, Any]) -> None:
        """A whole list is read: it comes before its pods, and has been decided on when this returns."""
        self.intake.synced.clear()
        self.intake.pods_listed(frozenset(each["metadata"]["uid"] for each in bodies))
        self.see(*bodies)
        until(lambda: self.intake.synced.is_set() and not self.intake.waiting)

    def settled(self) -> None:
        """All that came in is decided, and all of it is told."""
        until(lambda: not self.intake.waiting and not self.publisher.waiting)

    @property
    def alive(self) -> bool:
        """No thread ended by a fault."""
        return self.health.live()[0]


@contextmanager
def telling(folder: Path, **options: Any) -> Iterator[Told]:  # noqa: ANN401 - fields of Told
    """A node that is told of pods, until the end of the block."""
    told = Told(folder, **options)
    with watched(told.health, lambda: None):
        told.publisher.start()
        told.intake.start()
        try:
            yield told
        finally:
            told.intake.stop(PATIENCE)
            told.publisher.stop(PATIENCE)


def refusing(status: int, message: str, *, paths: Iterable[str]) -> Callable[[str, str, Any], Mapping[str, Any]]:
    """An answer that refuses writes to paths that end like this, and takes everything else."""
    ends = tuple(paths)

    def answer(method: str, path: str, _body: object) -> Mapping[str, Any]:
        if method != "GET" and path.endswith(ends):
            raise KubeError(status, f"{method} {path}: {message}")
        return {}

    return answer
