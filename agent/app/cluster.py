"""Serves a node of a cluster: the same engine as everywhere, fed by the API's watch, telling the API.

Called by `agent.cli.run`. Threads: kopf's (the watch), the intake's (decides), the publisher's (tells), the
topology's, those of NRI, podresources and the cgroup watcher, and one loop here for what has a clock: settings and
machine, the Node, repairs. No thread waits for the API but those that tell it.

Start: the Node and this node's pods are read once if the API answers within ten seconds; the ledger is put together
from checkpoint, cgroups and pods; then the watch begins. Nothing is released at the end (safety.md S18).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

from agent.app import setup
from agent.app.cluster_made import Made, Options
from agent.app.node_events import mind_kubelet, mind_other_writers
from agent.core.changes import changes
from agent.errors import NumalignError
from agent.kube.configz import kubelet_configuration
from agent.observe.health import Server
from agent.observe.logs import LOG, operation
from agent.observe.metrics import CONTENT_TYPE

ASK_KUBELET = 600.0
"""Seconds between questions to the kubelet: a change of its policies needs its restart and a drain of the node."""
TICK = 0.25
"""Seconds between looks at settings, machine and Node: the kill switch works within a second (safety.md S3)."""


class Cluster(Made):
    """One node of a cluster. A context manager: leaving it ends its threads.

    Args:
        options: what to serve.
        steps: told between every two effects; tests kill there.

    Raises:
        SettingsError, MalformedError: the input is wrong.
        HostError: the machine, the state folder or the cgroups cannot be used; or another agent runs.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.close()

    # ---- running

    def serve(self, started: Callable[[], None] = lambda: None) -> None:
        """Serve until `stop` is called.

        Args:
            started: called when everything runs.
        """
        with ExitStack() as open_now:
            if self.options.metrics_address:
                pages = {**self.health.pages(), "/metrics": lambda: (200, CONTENT_TYPE, self.metrics.page())}
                server = Server(self.options.metrics_address, pages)
                open_now.callback(server.close)
                self.address = server.address
                LOG.info("serving metrics", extra={"facts": {"address": server.address}})
            self._mind_others()
            for part, stop in self._parts():
                part.start()
                open_now.callback(stop)
            started()
            self._loop()
        LOG.info("stopped; the ledger is saved, nothing was released")

    def stop(self) -> None:
        """End `serve` after what it does now; safe to call from a signal handler."""
        self._stop.set()
        self._wake.set()

    def _parts(self) -> list[tuple[Any, Callable[[], object]]]:
        """In the order of starting; stopped in the reverse one: no new pods, then the last ones are told."""
        source = self.source
        return [
            (self.publisher, self.publisher.stop), (self.topology, self.topology.stop),
            (self.intake, self.intake.stop), (self.edges, self.edges.stop), (self.events, self.events.close),
            (self.hotplug, self.hotplug.stop),
            *([(source, source.stop)] if source else []),
        ]  # fmt: skip

    def _loop(self) -> None:
        due, retold = time.monotonic(), False
        while not self._stop.is_set():
            self._wake.wait(min(TICK, self._engine.repair_in() or TICK))
            self._wake.clear()
            if self._stop.is_set():
                return
            self._turn(self._follow)
            if self.events.take() or self._engine.repair_in() == 0:
                self._turn(self._reconcile)
            if not retold and self.intake.synced.is_set():
                retold = True
                self._turn(self._retell)
            if time.monotonic() >= due:
                self._turn(self._on_the_clock)
                due = time.monotonic() + self.setup.settings.cpu_manager_reconcile_period
            self.health.beat()

    def _turn(self, work: Callable[[], None]) -> None:
        """One piece of work; a fault is told, and tried again with the next turn."""
        try:
            work()
        except (NumalignError, OSError) as error:
            self.metrics.count("problems_total", "host")
            LOG.error("%s", error)
        self.health.set("recovery", "")
        self.health.set("checkpoint", self._engine.unwritable)
        self.health.set("cgroups", self._engine.broken)

    # ---- pieces of work

    def _reconcile(self) -> None:
        began = time.monotonic()
        self._engine.reconcile()
        self.metrics.time("operation_seconds", "reconcile", seconds=time.monotonic() - began)

    def _on_the_clock(self) -> None:
        self._reconcile()
        self._mind_others()
        self.locality.look(self._engine.ledger, self._engine.names, self._node().machine)

    def _mind_others(self) -> None:
        """Who else writes cpusets (S10): traces on this node, and now and then the kubelet's own word."""
        mind_other_writers(self._engine, self.options.host, self.options.kubelet_dir)
        if self.options.host_ip and time.monotonic() >= self._ask_kubelet_at:
            self._ask_kubelet_at = time.monotonic() + ASK_KUBELET
            configuration = kubelet_configuration(self.options.access, self.options.host_ip)
            if configuration is not None:
                mind_kubelet(self._engine, configuration)

    def _retell(self) -> None:
        """The first complete list came: pods of the saved ledger carry what they hold, whoever was killed before."""
        snapshot = self._engine.snapshot
        for uid, known in snapshot.known.items():
            if uid in snapshot.ledger.pods and not known.ended and known.refusal is None:
                self.cluster_teller.retold(known.pod, snapshot.ledger, known.ask)

    def _follow(self) -> None:
        """The Node, the settings or the machine changed: read again; what is wrong is told once, the old stay."""
        before_kept = self.kept
        if self._news:
            self._news = False
            self._remember(self._facts)
            self._switch()
        now = self._fingerprints()
        if now == self._prints and self.kept == before_kept:
            return
        self._prints, before = now, self.setup
        try:
            self.setup = setup.read_setup(self.options.config, self.options.root, self.kept)
        except NumalignError as error:
            self.fan.problem("settings", f"the old settings stay: {error}")
            return
        same = (before.settings, before.machine.digest, before.node.rules)
        if same == (self.setup.settings, self.setup.machine.digest, self.setup.node.rules):
            return
        self._switch()
        with operation("setup"):
            for change in changes(before.machine, self.setup.machine):
                LOG.warning("machine: %s", change.text)
            self.cluster_teller.configure(self.setup.settings.refusals.per_owner_per_hour, self._fallback())
            self._engine.changed(self.setup.node, self.setup.switches)
            self._tell_start()


__all__ = ["Cluster", "Options"]
