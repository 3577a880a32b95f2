"""One node, served: the loop and the pages that every node has. Where its pods come from is a `NodeSource`'s.

`agent.app.cluster.build` and `agent.app.standalone.build` make it, of finished parts. The loop has what needs a
clock: settings and machine, new cgroup folders, repairs, and what its source has to do; no thread waits for the
network but those that tell the API. Nothing is released at the end: an upgrade keeps every grant (safety
rule S18).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import ClassVar, Generic, Protocol, Self, TypeVar

from agent.app.page.server import NodePage
from agent.app.reporters import Reporters
from agent.app.service.edges import NodeEdges
from agent.app.service.followed_setup import FollowedSetup
from agent.app.service.gauges import Locality, shown
from agent.app.service.machine_watch import second_opinion
from agent.app.service.node_events import NodeEvents
from agent.app.statedir.loading import tell_answers
from agent.app.statedir.node_allocatable import kept_by_pods
from agent.app.statedir.unplaced_pods import UnplacedPods
from agent.core.machines.changes import changes
from agent.engine.engine import Engine
from agent.errors import NumalignError
from agent.host.cgroups import Cgroups
from agent.host.cpu_files import CpuFiles
from agent.host.node_memory import NodeMemory
from agent.node.fault_isolation import Isolated, sentence
from agent.observe.health import RECOVERY, Health, Server
from agent.observe.logs import LOG
from agent.observe.metrics import Metrics, MetricValues, Shown
from agent.observe.threads import watched
from agent.operation import operation

TICK = 0.25
"""Seconds between looks at settings, machine and Node: the kill switch works within a second (safety rule S3)."""
READINESS = {
    "pods": "a complete list of pods has been decided on",
    "names": "the API server or the runtime has named all containers",
}
"""What `State.missing` may name -> the sentence once it is there."""


class Part(Protocol):
    """Something with a thread of its own."""

    def start(self) -> None:
        """Begin."""

    def stop(self) -> object:
        """End."""


class NodeSource(Protocol):
    """Where a node's pods come from, and where reports of them go. The loop calls it, but for `values`.

    Attributes:
        at_once: the first reconciliation by the clock comes at once: `first` brought no cgroup about.
    """

    at_once: ClassVar[bool]

    def begin(self) -> None:
        """Prepare; called once, before the first part starts. Must not hang on the kernel or on the network."""

    def first(self) -> None:
        """Do the first work; called once, after all parts started and before the node counts as started."""

    def turn(self, *, woken: bool, changed: bool) -> Iterable[Callable[[], None]]:
        """Yield the pieces of work that are due; called about once a second and after each `wake`.

        Args:
            woken: something called `wake` since the last turn.
            changed: cgroups came or went.
        """

    def configured(self) -> None:
        """Follow other settings or another machine; called before the engine follows them."""

    def followed(self, *, lost: bool) -> None:
        """Finish that; called after the engine has followed. `lost`: some grant could not be carried over."""

    def on_the_clock(self) -> None:
        """Do slow checks; called with each reconciliation by the clock."""

    def ended(self) -> None:
        """Finish; called once, after all parts have stopped. A released node removes its files then."""

    def unready(self) -> str:
        """Return why the source keeps the node from being ready; "" for no reason. Called often, returns at once."""

    def values(self) -> MetricValues:
        """Return the gauges that the source alone knows; called on the thread of a scrape."""


Source = TypeVar("Source", bound=NodeSource)


class Pulse:
    """Wakes the loop, and ends it. Any thread may call, and a signal handler."""

    def __init__(self) -> None:
        self._woken, self._ended = threading.Event(), threading.Event()

    def ended(self) -> bool:
        """Return True once the loop is to end."""
        return self._ended.is_set()

    def wake(self) -> None:
        """There is work."""
        self._woken.set()

    def stop(self) -> None:
        """End."""
        self._ended.set()
        self._woken.set()

    def wait(self, seconds: float) -> bool:
        """Sleep until there is work, for `seconds` at most; return True if there is."""
        woken = self._woken.wait(seconds)
        self._woken.clear()
        return woken


@dataclass(frozen=True, kw_only=True)
class NodeParts:
    """What the service of any node consists of.

    Attributes:
        setup: settings and machine as they are in force.
        edges, events: None where no kubelet makes the cgroups.
        memory: what NUMA nodes could still give; None where that cannot be read.
        unplaced: keeps refused, waiting and exempt pods, for `numalign explain`.
        cpu_files: the files by which mixed containers know their own CPUs.
        metrics_address: where metrics and health are served, "" for nowhere.
        looks: at what containers have, for the conditions of pods; done on the clock.
        threads: in the order of starting; stopped in the reverse one: no new pods, then the last ones are reported.
    """

    pulse: Pulse
    health: Health
    metrics: Metrics
    reporters: Reporters
    setup: FollowedSetup
    cgroups: Cgroups
    engine: Engine
    edges: NodeEdges | None
    events: NodeEvents | None
    page: NodePage
    memory: NodeMemory | None
    unplaced: UnplacedPods
    cpu_files: CpuFiles
    metrics_address: str
    threads: Sequence[Part]
    looks: Sequence[Callable[[Engine], None]] = ()


class NodeService(Generic[Source]):
    """A context manager: leaving it ends what was made for it.

    Args:
        parts: see NodeParts.
        source: where the pods come from.
        closing: ends what was made.

    Attributes:
        address: where the pages are served, "" when they are not.
    """

    def __init__(self, parts: NodeParts, source: Source, closing: ExitStack) -> None:
        self.parts = parts
        self.source = source
        self._closing = closing
        self.pulse = parts.pulse
        self.health = parts.health
        self.metrics = parts.metrics
        self.engine = parts.engine
        self.setup = parts.setup
        self.cgroups = parts.cgroups
        self.page = parts.page
        self.address = ""
        self._locality = Locality(parts.cgroups)
        self._missing: dict[str, str] = {}
        self._kept: tuple[str, ...] = ()
        self._barred = False
        self._tell_machine()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.close()

    # ---- running

    def once(self) -> None:
        """Have the source do what it does first, and end."""
        self.source.first()
        self._show()

    def serve(self, started: Callable[[], None] = lambda: None) -> None:
        """Serve until `stop` is called.

        Args:
            started: called when everything runs.
        """
        with self._pages() as running:
            self.source.begin()
            running.callback(self.page.close)
            self._serve_page()
            for part in self.parts.threads:
                part.start()
                running.callback(part.stop)
            self._turn(self.source.first)
            started()
            self._loop()
        self.engine.keep_names()
        LOG.info("stopped; the ledger is saved, nothing was released")
        self.source.ended()

    def stop(self) -> None:
        """End `serve` after what it does now; safe to call from a signal handler."""
        self.pulse.stop()

    def values(self) -> MetricValues:
        """What the gauges show."""
        found = shown(self.engine, self.parts.memory)
        if self._locality.ratio is not None:
            found["local_memory_ratio"] = self._locality.ratio
        return {
            **found,
            "ready": self.health.ready()[0],
            "observe_only": not self.engine.acting,
            "hanging_writes": len(self.cgroups.hanging),
            **self.source.values(),
        }

    @contextmanager
    def _pages(self) -> Iterator[ExitStack]:
        """Threads are watched and the pages served; what is given to the stack ends first."""
        with ExitStack() as running:
            running.enter_context(watched(self.health, lambda: self.metrics.count("problems_total", "thread")))
            if self.parts.metrics_address:
                text = Shown(lambda kind: self.metrics.page(self.values(), kind))
                pages = {**self.health.pages(), "/metrics": lambda accept: (200, *text(accept))}
                server = Server(self.parts.metrics_address, pages)
                running.callback(server.close)
                self.address = server.address
                LOG.info("serving metrics", extra={"facts": {"address": self.address}})
            yield running

    def _loop(self) -> None:
        period = self.setup.now.settings.reconcile_seconds
        due = time.monotonic() + (0.0 if self.source.at_once else period)
        while not self.pulse.ended():
            woken = self.pulse.wait(min(TICK, self.engine.repair_in() or TICK))
            if self.pulse.ended():
                return
            events = self.parts.events
            if events is not None and events.rewritten():  # first: processes may run on another pod's CPUs
                self._turn(lambda: self._reconcile(again=False))
            changed = events is not None and events.take()
            self._turn(self._follow)
            for work in self.source.turn(woken=woken, changed=changed):
                self._turn(work)
            if changed or self.engine.repair_in() == 0:
                self._turn(lambda: self._reconcile(again=False))
            if time.monotonic() >= due:
                self._turn(self._on_the_clock)
                due = time.monotonic() + self.setup.now.settings.reconcile_seconds
            self.health.beat()

    # ---- pieces of work

    def _turn(self, work: Callable[[], None]) -> None:
        """Do one piece of work; a fault is reported, and the next turn tries again."""
        with Isolated(self._on_fault):
            work()
        with Isolated(self._on_fault):
            self._show()

    def _reconcile(self, *, again: bool = True) -> None:
        began = time.monotonic()
        with operation("reconcile", level=logging.DEBUG):
            self.engine.reconcile(again=again)
        self.metrics.time("operation_seconds", "reconcile", seconds=time.monotonic() - began)

    def _on_the_clock(self) -> None:
        self.setup.again()
        self._reconcile()
        self.engine.keep_names()
        self.source.on_the_clock()
        if self.parts.edges is not None:
            self.parts.edges.again()
        self._serve_page()
        self._locality.look(self.engine.ledger, self.engine.names, self.engine.snapshot.node.machine)
        for each in self.parts.looks:
            each(self.engine)

    def _follow(self) -> None:
        """Follow a change of the settings, the machine or the Node's allocatable."""
        before = self.setup.follow(self.parts.reporters)
        if before is None:
            return
        now = self.setup.now
        self._serve_page()
        with Isolated(self._on_fault):
            self.source.configured()
        with operation("setup"):
            for change in changes(before.machine, now.machine):
                LOG.warning("machine: %s", change)
            lost = bool(self.engine.changed(now.node, now.switches).losses)
            tell_answers(before.node.rules.answers, now.node.rules.answers)
            if self.parts.edges is not None:
                self.parts.edges.follow()
            self._tell_machine()
            self.source.followed(lost=lost)

    def _serve_page(self) -> None:
        """Serve the page as the settings say; a fault of the page stops nothing else."""
        with Isolated(self._on_fault):
            self.page.follow(self.setup.now.settings.page)

    # ---- reporting

    def _tell_machine(self) -> None:
        now = self.setup.now
        for text in now.ignored:
            LOG.info("%s", text)
        for text in now.remarks:
            LOG.warning("%s", text)
        for text in second_opinion(now.machine, self.setup.root):
            LOG.warning("cross-check: %s", text)
        kept, before = kept_by_pods(self.engine.snapshot.node, self.engine.snapshot.ledger), self._kept
        self._kept = kept
        for text in kept:
            if text not in before:
                self.parts.reporters.problem("reservation", text)

    def _on_fault(self, error: Exception) -> None:
        """Report that a piece of work failed; the loop goes on, and tries it again."""
        self.metrics.count("problems_total", "host")
        expected = isinstance(error, NumalignError | OSError)
        LOG.error("%s", error if expected else sentence(error), exc_info=None if expected else error)

    def _show(self) -> None:
        """Bring health, the file of unplaced pods and the files of mixed containers up to the engine's state."""
        state = self.engine.snapshot
        self.health.set(RECOVERY, "")
        self.health.set("checkpoint", state.unwritable)
        self.health.set("cgroups", state.broken)
        self.health.set("settings", self.setup.now.wrong)
        self.health.set("publisher", self.source.unready())
        self._tell_missing(state.missing)
        barred = bool(state.node.barred())
        if self._barred and not barred:
            LOG.info("the kubelet's own cgroup has all CPUs and NUMA nodes that pods are granted")
        self._barred = barred
        self.parts.unplaced.follow(state)
        self.parts.cpu_files.follow(state, self.engine.at_rest)

    def _tell_missing(self, missing: Mapping[str, str]) -> None:
        """Log what a new agent still lacks, and when it is there: once each."""
        for name, known in READINESS.items():
            text, before = missing.get(name, ""), self._missing.get(name, "")
            self.health.set(name, text)
            if text and not before:
                LOG.info("%s", text)
            elif before and not text:
                LOG.info("%s", known)
        self._missing = dict(missing)
