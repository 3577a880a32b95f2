"""Makes the service of a node of a cluster: clients, engine with its recovered ledger, reporters, edges, threads.

Everything is finished when it is made, and nothing runs yet. At the start the Node and this node's pods are read once
if the API answers within ten seconds; the ledger is put together from checkpoint, cgroups and pods; the watch begins
when the service does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from agent import __version__
from agent.app import setup as setups
from agent.app.cluster.api_pods import ApiPods, Place
from agent.app.cluster.claim_lookup import ClaimLookup, PodListeners
from agent.app.cluster.decommission import Decommission
from agent.app.cluster.find_pod import PodFinder
from agent.app.cluster.kill_switch import KillSwitch
from agent.app.cluster.kubelet_questions import KubeletQuestions
from agent.app.cluster.remembered_node import RememberedNode
from agent.app.cluster.start import PATIENCE, Start, read_start
from agent.app.cluster.summary import SummaryText, says_the_same
from agent.app.cluster.topology_loop import TopologyLoop
from agent.app.page.server import NodePage
from agent.app.places import open_cgroups
from agent.app.reporters import Measured, Reporters
from agent.app.service.affinities import Affinities
from agent.app.service.begin import Begun, StartFacts, begin
from agent.app.service.edges import DeviceHints, NodeEdges, Sockets
from agent.app.service.followed_setup import FollowedSetup
from agent.app.service.machine_watch import MachineWatch
from agent.app.service.memory_policies import MemoryPolicies
from agent.app.service.node_events import NodeEvents
from agent.app.service.other_writers import mind_pods
from agent.app.service.service import NodeParts, NodeService, Pulse
from agent.app.statedir.unplaced_pods import UnplacedPods
from agent.core.request.exempt import Exemptions
from agent.engine.engine import Engine
from agent.engine.ports import Steps
from agent.host.checkpoint import Checkpoint
from agent.host.cpu_files import CpuFiles
from agent.host.node_memory import NodeMemory
from agent.host.podresources.client import PodResources
from agent.kube.access import ApiAccess
from agent.kube.client import KubeClient
from agent.kube.objects.mirrors import Mirrors
from agent.kube.objects.pod_objects import SeenPod
from agent.kube.publishing.cleanup import Cleanup, CleanupRule
from agent.kube.publishing.pod_reporter import PodReporter
from agent.kube.publishing.publisher import Publisher, Regarding
from agent.kube.topology_crd import TopologyPublisher
from agent.kube.watch.handlers import PodSource
from agent.kube.watch.intake import Intake
from agent.kube.watch.namespaces import Namespaces
from agent.model.pod import Pod
from agent.model.rules import OnMisalignment
from agent.node.adopt import AnnotatedGrant
from agent.observe.health import Health
from agent.observe.logs import LOG
from agent.observe.metrics import Metrics
from agent.observe.windows import Windows

ClusterService = NodeService[ApiPods]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOptions:
    """What to serve; see `numalign run --help`.

    Attributes:
        node_name: this Node (spec.nodeName of our own pod).
        patience: seconds that a start waits for the API server.
        state_on_host: the state folder as the host names it, "" where it has the same name.
        own_uid, own_namespace: of our own pod, "" where the agent runs in none.
        host: where the host's file system is seen, for traces of other writers.
        host_ip: this node's address, for the kubelet's configuration; "" to not ask for it.
    """

    node_name: str
    access: ApiAccess
    state: Path
    state_on_host: str = ""
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


def cluster_node(options: ClusterOptions, *, steps: Steps = lambda _name: None) -> ClusterService:
    """The service of a node of a cluster.

    Args:
        options: what to serve.
        steps: called between every two effects; tests kill there.

    Raises:
        SettingsError, MalformedError: the input is wrong.
        HostError: the machine, the state folder or the cgroups cannot be used; or another agent runs.
    """
    with ExitStack() as closing:
        pulse, health, metrics, reporters, mirrors = Pulse(), Health(), Metrics(), Reporters(), Mirrors()
        client = KubeClient(options.access, options.node_name, _api_counter(metrics))
        closing.callback(client.close)
        namespaces = Namespaces(client.get)
        store = Checkpoint(options.state / "checkpoint.json", by=__version__)
        store.lock()
        closing.callback(store.unlock)
        start = read_start(client, options.node_name, namespaces.annotations, options.patience, mirrors)
        node = RememberedNode(options.state, start.node)
        hotplug = MachineWatch(options.root, pulse.wake, lambda text: reporters.problem("hot-plug", text))
        setup = FollowedSetup(options.config, options.root, options.state, hotplug, lambda: node.remembered)
        cgroups = open_cgroups(options.cgroup_root, options.kubepods)
        memory = None if options.root else NodeMemory()

        def exemptions() -> Exemptions:
            settings = setup.now.settings
            spaces = {*settings.excluded_namespaces, options.own_namespace or "numalign-system"}
            return Exemptions(spaces, settings.included_pods, options.own_uid)

        def exempt(pod: Pod) -> str:
            return exemptions().why(pod)

        known = StartFacts(pods=[pod for pod in start.pods if not exempt(pod)], names=start.names, words=start.words)
        begun = begin(
            setup.now, known, state=options.state, config=options.config, store=store, cgroups=cgroups,
            reporters=reporters, metrics=metrics, memory=memory, exempt=exempt, steps=steps,
        )  # fmt: skip
        engine = begun.engine
        cpu_files = CpuFiles(options.state, options.state_on_host)
        hints, affinities, policies = DeviceHints(engine), Affinities(cgroups), MemoryPolicies(cgroups)
        publisher = Publisher(
            client, options.node_name,
            dropped=lambda why: metrics.count("events_dropped_total", why),
            refused=lambda what: metrics.count("api_refused_total", what),
        )  # fmt: skip
        refusals, count = setup.now.settings.refusals, _action_counter(metrics)
        pod_reporter = PodReporter(
            publisher, Regarding("Node", "", options.node_name, options.node_name),
            lambda: (engine.snapshot.node.seen, engine.snapshot.node.rules), ran=begun.ran.__contains__,
            most_refusals=refusals.per_owner_per_hour, fallback=OnMisalignment(refusals.fallback.value),
            acting=lambda: engine.acting, count=count, exempt=exempt, hints=hints,
            note=lambda uid: "; ".join(filter(None, (affinities.note(uid), policies.note(uid)))),
        )  # fmt: skip
        windows = Windows(lambda seconds: metrics.time("start_to_pin_seconds", seconds=seconds))
        reporters.add(Measured(metrics, windows, lambda: engine.snapshot.node.rules.topology.policy))
        reporters.add(pod_reporter)
        page = NodePage.of(options.node_name, engine, cgroups, health, reporters)
        decommission = Decommission(options.own_uid, client, pod_reporter, publisher, pulse.wake)
        decommission.begin(start.pods)
        kill_switch = KillSwitch(engine, setup, node, decommission, reporters, pulse.wake)
        _tell_start(begun, start)
        mind_pods(engine, start.writers if start.listed else node.remembered.writers)
        kill_switch.turn()
        setups.tell_wrong(setup.now, reporters)

        kubelet = _kubelet(options.sockets, closing)
        claims = ClaimLookup(
            client, options.node_name, engine, lambda: engine.snapshot.node.machine,
            enabled=lambda: setup.now.settings.dra.enabled,
            attributes=lambda: setup.now.settings.dra.numa_attributes, kubelet=lambda: kubelet,
        )  # fmt: skip
        listeners = PodListeners(pod_reporter, claims)
        intake = Intake(
            engine, listeners, namespaces.annotations, begun.ran.__contains__, kill_switch.node_changed,
            lambda text: reporters.problem("intake", text), kill_switch.pod_changed,
            waits=lambda: not engine.snapshot.listening, adopt=_adopter(engine, begun.ran), mirrors=mirrors,
        )  # fmt: skip
        finder = PodFinder(
            client, namespaces, engine, listeners.pod_seen, lambda text: reporters.problem("threads", text), mirrors
        )
        closing.callback(finder.close)
        edges = NodeEdges(
            engine=engine, reporters=reporters, sockets=options.sockets, hints=hints, find=finder, files=cpu_files,
            podresources=kubelet,
            enforcement=lambda: setup.now.settings.enforcement,
            agreed=lambda: setup.now.settings.nri,
            count=lambda what: metrics.count("nri_answers_total", what),
            timed=lambda method, _outcome, seconds: metrics.time("operation_seconds", method, seconds=seconds),
        )  # fmt: skip
        events = NodeEvents(cgroups, windows, metrics, pulse.wake)
        topology = TopologyLoop(
            TopologyPublisher(client, says_the_same), options.node_name, snapshot=lambda: engine.snapshot,
            node_uid=lambda: node.facts.uid, enforcing=lambda: engine.acting,
            problem=lambda text: reporters.problem("topology", text),
            summary=SummaryText(lambda: setup.now.settings).of,
            placement=lambda: setup.now.settings.fleet.placement,
        )  # fmt: skip
        pods = PodSource(options.access, options.node_name, intake, _api_counter(metrics))
        source = ApiPods(
            place=Place(
                node_name=options.node_name, access=options.access, host=options.host,
                kubelet_dir=options.kubelet_dir, host_ip=options.host_ip,
            ),
            engine=engine, cgroups=cgroups, store=store, setup=setup, reporters=reporters, node=node, client=client,
            publisher=publisher, pod_reporter=pod_reporter, decommission=decommission, kill_switch=kill_switch,
            intake=intake, pods=pods, topology=topology,
            cleanup=Cleanup(
                client, publisher, pod_reporter.bodies,
                lambda: _cleanup_rule(options, setup, engine, exemptions()),
                count=lambda: count("action", "delete"),
                problem=lambda text: reporters.problem("cleanup", text),
            ),
            questions=KubeletQuestions(options.sockets.podresources_path),
        )  # fmt: skip
        parts = NodeParts(
            pulse=pulse, health=health, metrics=metrics, reporters=reporters, setup=setup, cgroups=cgroups,
            engine=engine, edges=edges, events=events, page=page, memory=memory,
            unplaced=UnplacedPods(options.state), cpu_files=cpu_files, metrics_address=options.metrics_address,
            looks=(affinities.look, lambda engine: policies.look(engine, edges.runtime)),
            threads=(publisher, topology, claims, intake, edges, events, hotplug, pods),
        )  # fmt: skip
        return NodeService(parts, source, closing.pop_all())


def _kubelet(sockets: Sockets, closing: ExitStack) -> PodResources | None:
    """Make the podresources client of edges and claims; it is closed after their threads."""
    socket = sockets.podresources_path()
    if not socket:
        return None
    client = PodResources(socket)
    closing.callback(client.close)
    return client


def _cleanup_rule(
    options: ClusterOptions, setup: FollowedSetup, engine: Engine, exemptions: Exemptions
) -> CleanupRule | None:
    """Return which Failed pods are deleted now, None for none: refusals make no storm (safety rule S12)."""
    after = setup.now.settings.refusals.delete_after
    if after is None or not engine.acting:
        return None
    return CleanupRule(options.node_name, after, exemptions)


def _tell_start(begun: Begun, start: Start) -> None:
    if not start.listed:
        facts = {"pods": len(begun.recovered.kept), "names": len(begun.engine.names)}
        LOG.warning("pods and containers are known from the saved ledger alone", extra={"facts": facts})
    begun.tell()


def _adopter(engine: Engine, ran: frozenset[str]) -> Callable[[list[SeenPod], Mapping[str, AnnotatedGrant]], None]:
    """The first list of pods, where there was neither a ledger nor the API server at the start."""

    def adopt(found: list[SeenPod], words: Mapping[str, AnnotatedGrant]) -> None:
        names = {each: (of.pod.uid, name) for of in found for each, name in of.containers.items()}
        there = {of.pod.uid for of in found}
        engine.adopt([of.pod for of in found if of.pod.uid in ran], names, words, there)

    return adopt


def _api_counter(metrics: Metrics) -> Callable[[str, int, float], None]:
    def count(verb: str, status: int, seconds: float) -> None:
        metrics.count("api_requests_total", verb, str(status))
        metrics.time("api_request_seconds", verb, seconds=seconds)

    return count


def _action_counter(metrics: Metrics) -> Callable[[str, str], None]:
    def count(what: str, label: str) -> None:
        if what == "malformed":
            metrics.count("malformed_total", label)
        else:
            metrics.count("pod_actions_total", label if what == "action" else f"{what}-{label}")

    return count
