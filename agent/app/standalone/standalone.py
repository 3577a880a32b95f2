"""Serves a folder of pod manifests on this machine, without an API server: the same engine as in a cluster.

Called by `agent.cli.run`. `once` goes through the folder one time; `serve` follows it until it is told to stop. One
thread does all the work and sleeps on one event; the watcher of the folder, signals and timers only wake it.

On a node with a kubelet whose cgroups are named (--cgroup-root), the folder is the kubelet's own (staticPodPath):
its pods' uids and containers are found by the names in the kubelet's log folder, and nothing is made, only confined.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path

from agent.app import setup
from agent.app.service.node_events import NodeEvents, mind_other_writers
from agent.app.standalone.build import StandaloneOptions, StandaloneParts
from agent.core.machines.changes import changes
from agent.engine.fault_isolation import Isolated
from agent.host.manifests import Follower, read_folder
from agent.observe.logs import LOG
from agent.operation import operation

TICK = 1.0
"""Seconds between looks at the clock, the configuration file and what is online."""


class Standalone(StandaloneParts):
    """One node, served from a folder. A context manager: leaving it ends processes and threads.

    Args:
        options: what to serve.
        steps: told between every two effects; tests kill there.

    Raises:
        SettingsError, MalformedError: the input is wrong.
        HostError: the machine, the state folder or the cgroups cannot be used; or another agent runs.
    """

    # ---- running

    def once(self) -> None:
        """Go through the folder one time."""
        with operation("sync", pods=len(self.folder.pods)):
            self._apply()
            self._ready()

    def serve(self, started: Callable[[], None] = lambda: None) -> None:
        """Follow the folder until `stop` is called.

        Args:
            started: called when the first pass is done.
        """
        with self._serving(self.options.metrics_address) as open_now:
            for folder in self._followed():
                follower = Follower(folder, self._wake.set)
                open_now.callback(follower.stop)
                follower.start()
            if self.tree.standin is None:
                self.events = NodeEvents(self.tree.cgroups, self.windows, self.metrics, self._wake.set)
                open_now.callback(self.events.close)
                self.events.start()
                self.edges = self._node_edges()
                open_now.callback(self.edges.stop)
                self.edges.start()
            open_now.callback(self.hotplug.stop)
            self.hotplug.start()
            self._turn(self._sync)
            open_now.callback(self.page.close)
            self.page.follow(self.setup.settings.page)
            started()
            self._loop()
        LOG.info("stopped; the ledger is saved, nothing was released")

    def _loop(self) -> None:
        period = self.setup.settings.cpu_manager_reconcile_period
        due = time.monotonic() + period
        while not self._stop.is_set():
            woken = self._wake.wait(min(TICK, self.engine.repair_in() or TICK))
            self._wake.clear()
            if self._stop.is_set():
                return
            self._turn(self._follow_setup)
            if self.events is not None and self.events.take():
                self._turn(self._cgroups_changed)
            if woken:
                self._turn(self._sync)
            if self.engine.repair_in() == 0:
                self._turn(self._repair)
            if time.monotonic() >= due:
                self._turn(self._reconcile)
                due = time.monotonic() + self.setup.settings.cpu_manager_reconcile_period
            self.health.beat()

    def _turn(self, work: Callable[[], None]) -> None:
        """One piece of work; a fault is told, and tried again with the next turn."""
        with Isolated(self._stumbled):
            work()
        with Isolated(self._stumbled):
            self._ready()

    # ---- pieces of work

    def _sync(self) -> None:
        self.folder = read_folder(self.options.pods).keeping(self.folder)
        with operation("sync", pods=len(self.folder.pods)):
            started = time.monotonic()
            self._apply()
            self.metrics.time("operation_seconds", "sync", seconds=time.monotonic() - started)

    def _apply(self) -> None:
        """Bring engine and runtime to what the folder says: first whoever left, then whoever came."""
        for wrong in self.folder.wrong:
            LOG.warning("manifest: %s", wrong)
        pods = self.pods()
        uids = {pod.uid for pod in pods}
        if self.runtime is not None:
            self.runtime.stop(sorted((self.runtime.present() | set(self.runtime.running)) - uids))
        self.engine.pods_listed(uids)
        self.engine.let_in()
        self.engine.pods_seen(pods, ran=self.recovered.running)
        if self.runtime is not None:
            self.runtime.run(pods)
        else:
            self.engine.containers_seen(self._names())

    def _cgroups_changed(self) -> None:
        """Folders came or went where a kubelet makes them: confine at once whatever can be told by name."""
        with operation("cgroups", level=logging.DEBUG):
            self.engine.containers_seen(self._names())
            self.engine.reconcile(again=False)

    def _repair(self) -> None:
        with operation("reconcile", level=logging.DEBUG):
            self.engine.reconcile(again=False)

    def _reconcile(self) -> None:
        started = time.monotonic()
        if self._behind:
            self._prints = ()
        self.page.follow(self.setup.settings.page)
        if self.runtime is None:
            mind_other_writers(self.engine, Path("/"), self.options.kubelet_dir)
            self._sync()
        with operation("reconcile", level=logging.DEBUG):
            self.engine.reconcile()
        self.engine.keep_names()
        if self.edges is not None:
            self.edges.again()
        if self.runtime is not None:
            self.runtime.run(self.pods())
        self.metrics.time("operation_seconds", "reconcile", seconds=time.monotonic() - started)
        self.locality.look(self.engine.ledger, self.engine.names, self.setup.machine)

    def _follow_setup(self) -> None:
        """Settings or machine changed: read again; wrong settings are told once, the old ones stay."""
        now = self._fingerprints()
        if now == self._prints:
            return
        self._prints, self._behind = now, True
        before = self.setup
        self.setup = setup.again(self.options.config, self.options.root, before, self.reporters)
        setup.remember(self.setup, self.options.state)
        self._behind = False
        if (before.settings, before.machine.digest) == (self.setup.settings, self.setup.machine.digest):
            return
        self.page.follow(self.setup.settings.page)
        with operation("setup"):
            for change in changes(before.machine, self.setup.machine):
                LOG.warning("machine: %s", change.text)
            self._cross_check()
            self.engine.changed(self.setup.node, self.setup.switches)
            if self.edges is not None:
                self.edges.follow()
            self._apply()

    def _followed(self) -> tuple[Path, ...]:
        logs = self.options.log_dir / "containers"
        return (self.options.pods, logs) if self.tree.standin is None and logs.is_dir() else (self.options.pods,)

    def _ready(self) -> None:
        self.health.beat()
        self._show(self.engine)


__all__ = ["Standalone", "StandaloneOptions"]
