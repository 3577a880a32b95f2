"""A cluster as the source of a node's pods: reads the API server's watch, reports to the API server.

Threads: kopf's (the watch), the intake's (decides), the publisher's (sends) and the topology's. Work that needs a
clock is a turn of the service's loop.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import ClassVar

from agent.app.cluster.decommission import Decommission
from agent.app.cluster.kill_switch import KillSwitch
from agent.app.cluster.kubelet_questions import KubeletQuestions
from agent.app.cluster.remembered_node import RememberedNode
from agent.app.cluster.topology_loop import TopologyLoop
from agent.app.reporters import Reporters
from agent.app.service.followed_setup import FollowedSetup
from agent.app.service.gauges import of_mismatch
from agent.app.service.other_writers import (
    MOST_NAMED,
    SLICES,
    mind_kubelet,
    mind_other_writers,
    mind_pods,
    writing_pods,
)
from agent.app.statedir import node_allocatable
from agent.engine.engine import Engine
from agent.host.cgroups import Cgroups
from agent.host.checkpoint import Checkpoint
from agent.kube.access import ApiAccess
from agent.kube.client import KubeClient
from agent.kube.configz import kubelet_configuration
from agent.kube.publishing.cleanup import Cleanup
from agent.kube.publishing.pod_reporter import PodReporter
from agent.kube.publishing.publisher import Publisher
from agent.kube.resource_slices import AGAIN, SELDOM, cpu_slices
from agent.kube.watch.handlers import PodSource
from agent.kube.watch.intake import Intake
from agent.model.rules import OnMisalignment
from agent.node.fault_isolation import Isolated, sentence
from agent.node.tracked_pod import TrackedPod
from agent.observe.logs import LOG
from agent.observe.metrics import MetricValues


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the agent of a node looks for what the API does not have.

    Attributes:
        node_name: this Node.
        access: the API server.
        host: where the host's file system is seen, for traces of other writers.
        kubelet_dir: the kubelet's folder.
        host_ip: the address of the kubelet's configuration; "" to not ask for it.
    """

    node_name: str
    access: ApiAccess
    host: Path
    kubelet_dir: Path
    host_ip: str


@dataclass(kw_only=True)
class ApiPods:
    """A `agent.app.service.service.NodeSource`.

    Attributes:
        slices_at: when the API is asked next whether a DRA driver hands out this node's CPUs.
        retold: the pods of the first complete list carry what they hold.
    """

    at_once: ClassVar[bool] = True
    place: Place
    engine: Engine
    cgroups: Cgroups
    store: Checkpoint
    setup: FollowedSetup
    reporters: Reporters
    node: RememberedNode
    client: KubeClient
    publisher: Publisher
    pod_reporter: PodReporter
    decommission: Decommission
    kill_switch: KillSwitch
    intake: Intake
    pods: PodSource
    topology: TopologyLoop
    cleanup: Cleanup
    questions: KubeletQuestions
    slices_at: float = field(default=0.0, init=False)
    retold: bool = field(default=False, init=False)

    # ---- of NodeSource

    def begin(self) -> None:
        """See NodeSource."""
        self._tell_reserved()
        self._mind_others()

    def first(self) -> None:
        """Do nothing: the watch brings the pods. No thread waits here, as a write may hang (safety rule S8)."""

    def turn(self, *, woken: bool, changed: bool) -> Iterator[Callable[[], None]]:  # noqa: ARG002 - of the protocol
        """See NodeSource."""
        yield self._hear_node
        yield self._leave
        if not self.retold and self.intake.synced.is_set():
            self.retold = True
            yield self._mind_pods
            yield self._retell

    def configured(self) -> None:
        """See NodeSource."""
        self.kill_switch.turn()
        refusals = self.setup.now.settings.refusals
        self.pod_reporter.configure(refusals.per_owner_per_hour, OnMisalignment(refusals.fallback.value))

    def followed(self, *, lost: bool) -> None:
        """See NodeSource."""
        if lost:  # what a pod carries is what it has now, and why
            self._retell()
        self._tell_reserved()

    def on_the_clock(self) -> None:
        """See NodeSource."""
        self._mind_others()
        self.cleanup.turn()

    def ended(self) -> None:
        """See NodeSource."""
        self.decommission.sweep(self.store)

    def unready(self) -> str:
        """See NodeSource."""
        return self.publisher.failing()

    def values(self) -> MetricValues:
        """See NodeSource."""
        heard = self.pods.last_contact
        return {
            "queue_length": {"intake": self.intake.waiting, "publisher": self.publisher.waiting},
            "manifest_errors": 0,
            **of_mismatch(node_allocatable.mismatch(self.engine.snapshot.node, self.node.remembered)),
            **({"api_silent_seconds": time.monotonic() - heard} if heard else {}),
        }

    # ---- pieces of work

    def _hear_node(self) -> None:
        if self.node.follow():
            self.kill_switch.turn()

    def _leave(self) -> None:
        """Follow a request to release the node, or its withdrawal."""
        if self.decommission.turn(self.engine, self.cgroups, self.topology.leave):
            self.kill_switch.turn()
            self._retell()
            self._each(self._refused_again)

    def _refused_again(self, known: TrackedPod) -> None:
        if known.refusal is not None and not known.ended:
            milder = self.pod_reporter.refused(known.pod, known.refusal, known.settings)
            if milder is not None:
                self.engine.soften(known.pod.uid, milder)

    def _retell(self) -> None:
        """Report the pods of the ledger after the first complete list: the agent before may have been killed."""
        state = self.engine.snapshot

        def retell(known: TrackedPod) -> None:
            uid = known.pod.uid
            if uid in state.shown.pods and not known.ended and known.refusal is None:
                self.pod_reporter.retold(known.pod, state.shown, known.settings, state.unenforced.get(uid, {}))

        self._each(retell)

    def _each(self, work: Callable[[TrackedPod], None]) -> None:
        """Do the work for each known pod; a fault of one pod stays with that pod."""
        for known in self.engine.snapshot.pods.values():
            with Isolated(partial(_untold, known)):
                work(known)

    def _tell_reserved(self) -> None:
        node = self.engine.snapshot.node
        for text in node_allocatable.sentences(self.setup.now.settings, node, self.node.remembered):
            LOG.info("%s", text)
        text = node_allocatable.mismatch_sentence(node, self.node.remembered)
        if text:
            self.reporters.problem("reservation", text)

    # ---- other writers of cpusets: there are never two (safety rule S10)

    def _mind_others(self) -> None:
        """Look for traces on this node; now and then also ask the kubelet and the API."""
        mind_other_writers(self.engine, self.place.host, self.place.kubelet_dir)
        self._mind_pods()
        if self.place.host_ip and self.questions.due(time.monotonic()):
            configuration = kubelet_configuration(self.place.access, self.place.host_ip)
            self.questions.record(time.monotonic(), answered=configuration is not None)
            if configuration is not None:
                mind_kubelet(self.engine, configuration)
        if time.monotonic() >= self.slices_at:
            found = cpu_slices(self.client, self.place.node_name)
            self.slices_at = time.monotonic() + (AGAIN if found is None else SELDOM)
            if found is not None:
                self.engine.switch(observe_only=bool(found), why=found, source=SLICES)

    def _mind_pods(self) -> None:
        """Follow the pods that write cpusets; before the first complete list those of the start count."""
        if self.intake.synced.is_set():
            found = writing_pods(self.pod_reporter.bodies())
            mind_pods(self.engine, found)
            kept = replace(self.node.remembered, writers=found[:MOST_NAMED])  # for a start without the API server
            self.node.keep(kept)


def _untold(known: TrackedPod, error: Exception) -> None:
    LOG.error("pod %s is not told of: %s", known.pod.key, sentence(error), exc_info=error)
