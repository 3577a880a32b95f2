"""Serves a node of a cluster: the same engine as everywhere, fed by the API's watch, telling the API.

Called by `agent.cli.run`. Threads: kopf's (the watch), the intake's (decides), the publisher's (tells), the
topology's, those of NRI, podresources and the cgroup watcher, and one loop here for what has a clock: settings and
machine, the Node, repairs. No thread waits for the API but those that tell it.

Start: the Node and this node's pods are read once if the API answers within ten seconds; the ledger is put together
from checkpoint, cgroups and pods; then the watch begins. Nothing is released at the end (safety.md S18).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Any

from agent.app import setup
from agent.app.cluster.build import ClusterOptions, ClusterParts
from agent.app.cluster.kubelet_questions import KubeletQuestions
from agent.app.service.node_events import (
    MOST_NAMED,
    SLICES,
    mind_kubelet,
    mind_other_writers,
    mind_pods,
    writing_pods,
)
from agent.core.machines.changes import changes
from agent.engine.fault_isolation import Isolated
from agent.kube.configz import kubelet_configuration
from agent.kube.publishing.cleanup import Cleanup, CleanupRule
from agent.kube.resource_slices import AGAIN, SELDOM, cpu_slices
from agent.observe.logs import LOG
from agent.operation import operation

TICK = 0.25
"""Seconds between looks at settings, machine and Node: the kill switch works within a second (safety.md S3)."""


class Cluster(ClusterParts):
    """One node of a cluster. A context manager: leaving it ends its threads.

    Args:
        options: what to serve.
        steps: told between every two effects; tests kill there.

    Raises:
        SettingsError, MalformedError: the input is wrong.
        HostError: the machine, the state folder or the cgroups cannot be used; or another agent runs.
    """

    # ---- running

    def serve(self, started: Callable[[], None] = lambda: None) -> None:
        """Serve until `stop` is called.

        Args:
            started: called when everything runs.
        """
        with self._serving(self.options.metrics_address) as open_now:
            self._mind_others()
            open_now.callback(self.page.close)
            self.page.follow(self.setup.settings.page)
            for part, stop in self._parts():
                part.start()
                open_now.callback(stop)
            started()
            self._loop()
        self._engine.keep_names()
        LOG.info("stopped; nothing was released by that")
        self.decommission.sweep(self.store)

    @cached_property
    def questions(self) -> KubeletQuestions:
        """When the kubelet is asked for its configuration."""
        return KubeletQuestions(self.options.sockets.podresources_path)

    @cached_property
    def cleanup(self) -> Cleanup:
        """Deletes Failed pods that we refused, where that is wanted (safety.md S12)."""
        return Cleanup(
            self.client, self.publisher, self.pod_reporter.bodies, self._cleanup_rule,
            count=lambda: self._count_told("action", "delete"),
            problem=lambda text: self.reporters.problem("cleanup", text),
        )  # fmt: skip

    def _cleanup_rule(self) -> CleanupRule | None:
        after = self.setup.settings.refusals.delete_after
        if after is None or not self._acting():
            return None
        return CleanupRule(self.options.node_name, after, self._exemptions())

    def _parts(self) -> list[tuple[Any, Callable[[], object]]]:
        """In the order of starting; stopped in the reverse one: no new pods, then the last ones are told."""
        source = self.source
        return [
            (self.publisher, self.publisher.stop), (self.topology, self.topology.stop),
            (self.claims, self.claims.stop), (self.intake, self.intake.stop), (self.edges, self.edges.stop),
            (self.events, self.events.close),
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
            self._turn(self._leave)
            if self.events.take() or self._engine.repair_in() == 0:
                self._turn(lambda: self._reconcile(again=False))
            if not retold and self.intake.synced.is_set():
                retold = True
                self._turn(self._mind_pods)
                self._turn(self._retell)
            if time.monotonic() >= due:
                self._turn(self._on_the_clock)
                due = time.monotonic() + self.setup.settings.cpu_manager_reconcile_period
            self.health.beat()

    def _turn(self, work: Callable[[], None]) -> None:
        """One piece of work; a fault is told, and tried again with the next turn."""
        with Isolated(self._stumbled):
            work()
        with Isolated(self._stumbled):
            self._show(self._engine)

    # ---- pieces of work

    def _reconcile(self, *, again: bool = True) -> None:
        began = time.monotonic()
        with operation("reconcile", level=logging.DEBUG):
            self._engine.reconcile(again=again)
        self.metrics.time("operation_seconds", "reconcile", seconds=time.monotonic() - began)

    def _on_the_clock(self) -> None:
        if self._behind:
            self._prints = ()
        self._reconcile()
        self._engine.keep_names()
        self._mind_others()
        self.edges.again()
        self.cleanup.turn()
        self.page.follow(self.setup.settings.page)
        self.locality.look(self._engine.ledger, self._engine.names, self._node().machine)

    def _mind_others(self) -> None:
        """Who else writes cpusets (S10): traces on this node, and at times the kubelet's own word and the API's."""
        mind_other_writers(self._engine, self.options.host, self.options.kubelet_dir)
        self._mind_pods()
        if self.options.host_ip and self.questions.due(time.monotonic()):
            configuration = kubelet_configuration(self.options.access, self.options.host_ip)
            self.questions.asked(time.monotonic(), answered=configuration is not None)
            if configuration is not None:
                mind_kubelet(self._engine, configuration)
        if time.monotonic() >= self._slices_at:
            found = cpu_slices(self.client, self.options.node_name)
            self._slices_at = time.monotonic() + (AGAIN if found is None else SELDOM)
            if found is not None:
                self._engine.switch(observe_only=bool(found), why=found, source=SLICES)

    def _mind_pods(self) -> None:
        """Pods that write cpusets (S10); before the first complete list, those that the start has read count."""
        if self.intake.synced.is_set():
            found = writing_pods(self.pod_reporter.bodies())
            mind_pods(self._engine, found)
            self._keep(replace(self.kept, writers=found[:MOST_NAMED]))  # for a start without the API server

    def _leave(self) -> None:
        """Asked to release the node, or asked no more."""
        if self.decommission.turn(self._engine, self.cgroups, self.topology.leave):
            self._switch()
            self._retell()
            for each in self._engine.snapshot.known.values():
                if each.refusal is not None and not each.ended:
                    with Isolated(self._stumbled):
                        milder = self.pod_reporter.refused(each.pod, each.refusal, each.ask)
                        if milder is not None:
                            self._engine.soften(each.pod.uid, milder)

    def _retell(self) -> None:
        """The first complete list came: pods of the saved ledger carry what they hold, whoever was killed before."""
        snapshot = self._engine.snapshot
        for uid, known in snapshot.known.items():
            if uid in snapshot.shown.pods and not known.ended and known.refusal is None:
                lacking = snapshot.unenforced.get(uid, {})
                with Isolated(self._stumbled):  # one pod's fault is its own
                    self.pod_reporter.retold(known.pod, snapshot.shown, known.ask, lacking)

    def _follow(self) -> None:
        """The Node, the settings or the machine changed: read again; wrong settings are told once, the old stay."""
        before_kept = self.kept
        if self._news:
            self._news = False
            self._remember(self._facts)
            self._switch()
        now = self._fingerprints()
        if now == self._prints and self.kept == before_kept:
            return
        self._prints, self._behind, before = now, True, self.setup
        self.setup = setup.again(self.options.config, self.options.root, before, self.reporters, kept=self.kept)
        setup.remember(self.setup, self.options.state)
        self._behind = False
        same = (before.settings, before.machine.digest, before.node.rules)
        if same == (self.setup.settings, self.setup.machine.digest, self.setup.node.rules):
            return
        self.page.follow(self.setup.settings.page)
        self._switch()
        with operation("setup"):
            for change in changes(before.machine, self.setup.machine):
                LOG.warning("machine: %s", change.text)
            self.pod_reporter.configure(self.setup.settings.refusals.per_owner_per_hour, self._fallback())
            lost = self._engine.changed(self.setup.node, self.setup.switches).losses
            self.edges.follow()
            if lost:  # what a pod carries is what it has now, and why
                self._retell()
            self._tell_start()


__all__ = ["Cluster", "ClusterOptions"]
