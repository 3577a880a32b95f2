"""Makes what a node of a cluster is served with: clients, reporters, engine with its recovered ledger, threads.

Nothing runs yet when it is made; `agent.app.cluster.cluster.Cluster` starts and feeds it. Also here: the small
questions that its parts ask of each other, and the kill switch, which waits for nobody (safety.md S3).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from agent import __version__
from agent.app import setup
from agent.app.cluster.claim_lookup import ClaimLookup, PodListeners
from agent.app.cluster.decommission import Decommission
from agent.app.cluster.start import FIND_WITHIN, PATIENCE, Start, find_pod, read_start
from agent.app.cluster.topology_loop import TopologyLoop
from agent.app.page.server import NodePage
from agent.app.service.edges import NodeEdges, Reporters, Sockets
from agent.app.service.file_switch import FileSwitch
from agent.app.service.gauges import Locality, shown
from agent.app.service.machine_watch import MachineWatch, second_opinion
from agent.app.service.node_events import Measured, NodeEvents, mind_pods, windows
from agent.app.service.service import Service
from agent.app.statedir import node_allocatable as keeping
from agent.app.statedir import recovery_report
from agent.app.statedir.loading import load
from agent.app.statedir.metered_store import CountedStore
from agent.app.statedir.unplaced_pods import UnplacedPods
from agent.core.admission.node import Node
from agent.core.request.exempt import Exemptions
from agent.engine.adopt import AnnotatedGrant
from agent.engine.engine import Engine
from agent.engine.ports import Steps
from agent.engine.recover import Recovered, recover
from agent.errors import HostError
from agent.host.cgroups import Cgroups
from agent.host.checkpoint import Checkpoint
from agent.host.node_memory import NodeMemory
from agent.host.scratch import Scratch, is_scratch
from agent.kube.access import ApiAccess
from agent.kube.client import KubeClient
from agent.kube.nodes import NodeFacts, node_facts
from agent.kube.objects.pod_objects import SeenPod
from agent.kube.publishing.pod_reporter import PodReporter
from agent.kube.publishing.publisher import Publisher, Regarding
from agent.kube.topology_crd import TopologyPublisher
from agent.kube.watch.handlers import PodSource
from agent.kube.watch.intake import Intake
from agent.kube.watch.namespaces import Namespaces
from agent.model.cgroup import Level
from agent.model.pod import Pod
from agent.model.rules import OnMisalignment
from agent.observe.logs import LOG
from agent.observe.metrics import MetricValues


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOptions:
    """What to serve; see `numalign run --help`.

    Attributes:
        node_name: this Node (spec.nodeName of our own pod).
        patience: seconds that a start waits for the API server.
        own_uid, own_namespace: of our own pod, "" where the agent runs in none.
        host: where the host's file system is seen, for traces of other writers.
        host_ip: this node's address, where the kubelet is asked for its configuration; "" for not at all.
    """

    node_name: str
    access: ApiAccess
    state: Path
    config: Path | None = None
    root: str | None = None
    cgroup_root: str = "/sys/fs/cgroup"
    kubepods: str = ""
    kubelet_dir: Path = Path("/var/lib/kubelet")
    host: Path = Path("/")
    patience: float = PATIENCE
    metrics_address: str = ""
    host_ip: str = ""
    own_uid: str = ""
    own_namespace: str = ""
    sockets: Sockets = field(default_factory=Sockets)


class ClusterParts(Service):
    """One node of a cluster, made and not yet served: see `agent.app.cluster.cluster.Cluster`."""

    def __init__(self, options: ClusterOptions, *, steps: Steps = lambda _name: None) -> None:
        super().__init__(steps)
        self.options = options
        self.unplaced = UnplacedPods(options.state)
        self.engine: Engine | None = None
        self.source: PodSource | None = None
        self._news = False
        self._facts, self._halted_told = NodeFacts(), False
        self._asking = ThreadPoolExecutor(max_workers=1, thread_name_prefix="find")
        self._closing.callback(self._asking.shutdown, wait=False, cancel_futures=True)
        self._open_or_close()

    # ---- making it

    def _open(self) -> None:
        options, count = self.options, self._count_request
        self.client = KubeClient(options.access, options.node_name, count)
        self._closing.callback(self.client.close)
        self.namespaces = Namespaces(self.client.get)
        self.store = Checkpoint(options.state / "checkpoint.json", by=__version__)
        self.store.lock()
        self._closing.callback(self.store.unlock)
        start = read_start(self.client, options.node_name, self.namespaces.annotations, options.patience)
        self.kept = keeping.load(options.state)
        if start.node is not None:
            self._facts = start.node
            self._remember(start.node)
        self.hotplug = MachineWatch(
            options.root, self._wake.set, lambda text: self.reporters.problem("hot-plug", text)
        )
        self._prints: tuple[object, ...] = self._fingerprints()
        self._slices_at = 0.0
        """When the API is asked next whether a DRA driver hands out this node's CPUs."""
        self._behind = False  # what changed could not be read: tried again by the clock
        self.setup = setup.begin(options.config, options.root, options.state, self.kept)
        setup.remember(self.setup, options.state)
        self.cgroups = _cgroups(options)
        there = self.cgroups.observe().cgroups
        self._there = frozenset(each.pod_uid for each in there if each.level is Level.CONTAINER)
        self._make_tellers()
        self.decommission = Decommission(
            options.own_uid, self.client, self.pod_reporter, self.publisher, self._wake.set
        )
        self.decommission.begin(start.pods)
        self.memory = None if options.root else NodeMemory()
        self.engine = engine = self._make_engine(start)
        mind_pods(engine, start.writers if start.listed else self.kept.writers)
        self.claims = ClaimLookup(
            self.client, options.node_name, engine, lambda: engine.snapshot.node.machine,
            enabled=lambda: self.setup.settings.dra.enabled,
            attributes=lambda: self.setup.settings.dra.numa_attributes,
            kubelet=lambda: self.edges.podresources,
        )  # fmt: skip
        self.listeners = PodListeners(self.pod_reporter, self.claims)
        self.intake = Intake(
            engine, self.listeners, self.namespaces.annotations, self._there.__contains__, self._node_changed,
            lambda text: self.reporters.problem("intake", text),
            lambda body: self.decommission.seen(body, self._halt),
            waits=lambda: not engine.snapshot.listening, adopt=self._adopt,
        )  # fmt: skip
        self.source = PodSource(options.access, options.node_name, self.intake, count)
        self.edges = NodeEdges(
            engine=engine, reporters=self.reporters, sockets=options.sockets, find=self._find,
            enforcement=lambda: self.setup.settings.enforcement,
            count=lambda what: self.metrics.count("nri_answers_total", what),
            timed=lambda method, _outcome, seconds: self.metrics.time("operation_seconds", method, seconds=seconds),
        )  # fmt: skip
        self.events = NodeEvents(self.cgroups, self.windows, self.metrics, self._wake.set)
        self.locality = Locality(self.cgroups)
        self.page = NodePage.of(options.node_name, engine, self.cgroups, self.health, self.reporters)
        self.topology = TopologyLoop(
            TopologyPublisher(self.client), options.node_name, snapshot=lambda: engine.snapshot,
            node_uid=lambda: self._facts.uid, enforcing=self._acting,
            problem=lambda text: self.reporters.problem("topology", text),
        )  # fmt: skip
        self._switch()
        self._tell_start()
        setup.tell_wrong(self.setup, self.reporters)

    def _make_tellers(self) -> None:
        options, settings = self.options, self.setup.settings
        about = Regarding("Node", "", options.node_name, options.node_name)
        self.publisher = Publisher(
            self.client, options.node_name,
            dropped=lambda why: self.metrics.count("events_dropped_total", why),
            refused=lambda what: self.metrics.count("api_refused_total", what),
        )  # fmt: skip
        self.pod_reporter = PodReporter(
            self.publisher, about, lambda: (self._node().machine, self._node().rules), ran=self._there.__contains__,
            most_refusals=settings.refusals.per_owner_per_hour, fallback=self._fallback(), acting=self._acting,
            count=self._count_told, exempt=self._exempt,
            hints=lambda uid, name: self.edges.hints(uid, name),  # noqa: PLW0108 - the edges are made after this
        )  # fmt: skip
        self.windows = windows(self.metrics)
        measured = Measured(self.metrics, lambda: self._node().rules.topology.policy)
        measured.windows = self.windows
        self.reporters = Reporters(measured, self.pod_reporter)

    def _make_engine(self, start: Start) -> Engine:
        recovered = self._recover(start)
        engine = Engine(
            self.setup.node, recovered.ledger, cgroups=self.cgroups, store=CountedStore(self.store, self.metrics),
            reporter=self.reporters, exempt=self._exempt, switches=self.setup.switches, steps=self._steps,
            saved=recovered.as_saved, complete=recovered.complete, room=self.memory.room if self.memory else None,
            halting=FileSwitch(self.options.config),
        )  # fmt: skip
        engine.names_known(self._names)
        engine.inherit(recovered.before)
        if not start.listed:
            facts = {"pods": len(recovered.kept), "names": len(self._names)}
            LOG.warning("pods and containers are known from the saved ledger alone", extra={"facts": facts})
        engine.keep()
        return engine

    def _recover(self, start: Start) -> Recovered:
        pods = [pod for pod in start.pods if not self._exempt(pod)]
        observed = self.cgroups.observe()
        loaded = load(self.store, self.setup.node, observed, pods)
        if loaded.aside:
            self.reporters.problem("checkpoint", loaded.aside)
        self._names = {**loaded.names, **start.names}
        found = recover(
            self.setup.node, loaded.ledger, observed, self._names, pods, complete=loaded.complete, words=start.words
        )
        for text in found.untold:
            self.reporters.problem("devices", text)
        told = recovery_report.tell(self.options.state, found, loaded.aside, since=self.cgroups.since)
        for text in told.standing:
            self.reporters.problem("standing", text)
        return found

    def _adopt(self, found: list[SeenPod], words: Mapping[str, AnnotatedGrant]) -> None:
        """The first list of pods, where there was neither a ledger nor the API server at the start."""
        names = {each: (of.pod.uid, name) for of in found for each, name in of.containers.items()}
        there = {of.pod.uid for of in found}
        self._engine.adopt([of.pod for of in found if of.pod.uid in self._there], names, words, there)

    def _tell_start(self) -> None:
        for text in (*self.setup.ignored, *keeping.sentences(self.setup.settings, self._node(), self.kept)):
            LOG.info("%s", text)
        for text in second_opinion(self.setup.machine, self.options.root):
            LOG.warning("cross-check: %s", text)
        text = keeping.mismatch_sentence(self._node(), self.kept)
        if text:
            self.reporters.problem("reservation", text)

    # ---- the kill switch

    def _node_changed(self, body: Mapping[str, Any]) -> None:
        """On kopf's thread. Switching off waits for nobody; switching on again is the loop's."""
        self._facts = facts = node_facts(body)
        if facts.observe_only:
            self._halt()
        self._news = True
        self._wake.set()

    def _halt(self) -> None:
        self._engine.halted = True

    def _switch(self) -> None:
        """Bring the engine to what Node and settings say of the kill switch (safety.md S3)."""
        was, self._engine.halted = self._engine.halted, self._stops()
        if self._stops():  # heard of since it was asked, and undone by the line above
            self._engine.halted = True
        halted = self._engine.halted
        if halted and not self._halted_told and not self.decommission.asked:
            self.reporters.problem("observe-only", "the kill switch is on: nothing is written, refused or held")
        if was and not halted:
            LOG.info("the kill switch is off")
            self._engine.reconcile()
        self._halted_told = halted

    def _stops(self) -> bool:
        kept, heard, settings = self.kept.observe_only, self._facts.observe_only, self.setup.switches.observe_only
        return bool(kept or heard or settings or self.decommission.asked)

    def _remember(self, facts: NodeFacts) -> None:
        found = replace(self.kept, observe_only=facts.observe_only, resources=facts.resources)
        if facts.cpu_milli is not None and facts.memory is not None:
            found = replace(found, cpu_milli=facts.cpu_milli, memory=facts.memory, known=True)
        self._keep(found)

    def _keep(self, found: keeping.NodeAllocatable) -> None:
        if found != self.kept:
            self.kept = found
            try:
                keeping.save(self.options.state, found)
            except OSError as error:
                LOG.warning("what the Node says is not remembered: %s", error)

    # ---- small questions

    @property
    def _engine(self) -> Engine:
        if self.engine is None:
            raise HostError(str(self.options.state), "the engine is not made yet")
        return self.engine

    def _node(self) -> Node:
        return self.engine.snapshot.node if self.engine else self.setup.node

    def _acting(self) -> bool:
        """Whether anything is done to pods and cgroups; asked without the engine's lock."""
        engine = self._engine
        return not (engine.halted or engine.snapshot.yields or engine.snapshot.switches.observe_only)

    def _fallback(self) -> OnMisalignment:
        return OnMisalignment(self.setup.settings.refusals.fallback.value)

    def _exemptions(self) -> Exemptions:
        settings = self.setup.settings
        namespaces = {*settings.excluded_namespaces, self.options.own_namespace or "numalign-system"}
        return Exemptions(namespaces, settings.included_pods, self.options.own_uid)

    def _exempt(self, pod: Pod) -> str:
        return self._exemptions().why(pod)

    def _find(self, namespace: str, name: str, uid: str) -> Pod | None:
        """A pod that the runtime starts before the watch brought it: one GET, as long as the runtime can wait."""
        if not self._engine.snapshot.listening:
            return None  # who runs comes first
        known = self.listeners.pod_known
        try:
            asked = self._asking.submit(
                find_pod, self.client, self.namespaces.annotations, namespace, name, uid, known
            )  # fmt: skip
        except RuntimeError as error:  # no thread can be had: the watch brings the pod
            self.reporters.problem("threads", f"a pod that the runtime starts is not asked for: {error}")
            return None
        try:
            return asked.result(FIND_WITHIN)
        except TimeoutError:
            asked.cancel()  # one that waits for its turn is wanted by nobody any more
            return None

    def _count_request(self, verb: str, status: int, seconds: float) -> None:
        self.metrics.count("api_requests_total", verb, str(status))
        self.metrics.time("api_request_seconds", verb, seconds=seconds)

    def _count_told(self, what: str, label: str) -> None:
        if what == "malformed":
            self.metrics.count("malformed_total", label)
        else:
            self.metrics.count("pod_actions_total", label if what == "action" else f"{what}-{label}")

    def _fingerprints(self) -> tuple[object, ...]:
        options = self.options
        return setup.config_print(options.config), setup.machine_print(options.root), self.hotplug.seen

    def snapshot(self) -> MetricValues:
        """What the gauges show."""
        engine, source = self.engine, self.source
        if engine is None or source is None:
            return MetricValues()
        ready, mismatch = self.health.ready()[0], keeping.mismatch(self._node(), self.kept)
        silent = time.monotonic() - source.last_contact if source.last_contact else None
        queues = {"intake": self.intake.waiting, "publisher": self.publisher.waiting}
        return replace(
            shown(engine, self.memory), ready=ready, observe_only=not self._acting(), queues=queues,
            locality=self.locality.ratio, mismatch=mismatch, silent=silent, hanging=len(self.cgroups.hanging),
        )  # fmt: skip


def _cgroups(options: ClusterOptions) -> Cgroups:
    if is_scratch(options.cgroup_root):
        return Cgroups(options.cgroup_root, kernel=Scratch(options.cgroup_root).kernel, kubepods=options.kubepods)
    return Cgroups(options.cgroup_root, kubepods=options.kubepods)
