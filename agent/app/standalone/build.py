"""Makes what a folder of manifests is served with: the tree, the engine with its recovered ledger, the edges.

Nothing runs yet when it is made; `agent.app.standalone.standalone.Standalone` starts and feeds it. Also here: what
its parts ask of each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from agent import __version__
from agent.app import setup
from agent.app.page.server import NodePage
from agent.app.service.edges import AUTO, NodeEdges, Reporters, Sockets
from agent.app.service.file_switch import FileSwitch
from agent.app.service.gauges import Locality, shown
from agent.app.service.machine_watch import MachineWatch, second_opinion
from agent.app.service.node_events import Measured, NodeEvents, windows
from agent.app.service.service import Service
from agent.app.standalone.runtime import PlayedRuntime, names_of
from agent.app.standalone.static_pods import StaticPods
from agent.app.statedir import recovery_report, unplaced_pods
from agent.app.statedir.loading import load
from agent.app.statedir.metered_store import CountedStore
from agent.app.statedir.unplaced_pods import UnplacedPods
from agent.app.trees import SCRATCH, ServedTree, open_tree
from agent.engine.engine import Engine
from agent.engine.ports import Steps
from agent.engine.recover import Recovered, recover
from agent.errors import SettingsError
from agent.host.checkpoint import Checkpoint
from agent.host.manifests import ManifestFolder, read_folder
from agent.host.node_memory import NodeMemory
from agent.host.podlogs import read_pod_logs
from agent.host.processes import Processes
from agent.host.standin import containers_in
from agent.model.pod import Pod
from agent.observe.logs import LOG
from agent.observe.metrics import MetricValues


@dataclass(frozen=True, slots=True, kw_only=True)
class StandaloneOptions:
    """What to serve; see `numalign run --help`.

    Attributes:
        lasting: it is served until it is stopped: wrong settings do not keep it from starting when others are known.
        afresh: nothing of an earlier run counts; on a scratch tree only.
    """

    pods: Path
    state: Path
    config: Path | None = None
    root: str | None = None
    cgroup_root: str = SCRATCH
    log_dir: Path = Path("/var/log")
    kubelet_dir: Path = Path("/var/lib/kubelet")
    node_name: str = ""
    nri_socket: str = AUTO
    podresources_socket: str = AUTO
    processes: bool = True
    metrics_address: str = ""
    lasting: bool = True
    afresh: bool = False


class StandaloneParts(Service):
    """One node over a folder, made and not yet served: see `agent.app.standalone.standalone.Standalone`."""

    def __init__(self, options: StandaloneOptions, *, steps: Steps = lambda _name: None) -> None:
        super().__init__(steps)
        self.options = options
        self.windows = windows(self.metrics)
        self.events: NodeEvents | None = None
        self.edges: NodeEdges | None = None
        self.static = StaticPods(
            options.node_name, options.log_dir, lambda: self.edges.sandboxes if self.edges is not None else ()
        )
        self.folder = ManifestFolder()
        self.unplaced = UnplacedPods(options.state)
        self._engine: Engine | None = None
        self.memory = None if options.root else NodeMemory()
        self._open_or_close()

    def _open(self) -> None:
        options = self.options
        self.hotplug = MachineWatch(options.root, self._wake.set, self._no_hotplug)
        self._prints: tuple[object, ...] = self._fingerprints()
        self._behind = False  # what changed could not be read: tried again by the clock
        if options.lasting:
            self.setup = setup.begin(options.config, options.root, options.state)
        else:
            self.setup = setup.read_setup(options.config, options.root)
        self.store = Checkpoint(options.state / "checkpoint.json", by=__version__)
        self.store.lock()
        self._closing.callback(self.store.unlock)
        if options.lasting:
            setup.remember(self.setup, options.state)
        self.tree: ServedTree = open_tree(
            options.cgroup_root, self.setup.machine, options.state, live=options.root is None
        )
        if options.afresh:
            self._forget()
        self.folder = read_folder(options.pods)
        self.recovered = self._recover()
        reporter = Measured(self.metrics)
        reporter.windows = self.windows
        self.reporters = Reporters(reporter)
        self.engine = self._engine = Engine(
            self.setup.node, self.recovered.ledger, cgroups=self.tree.cgroups,
            store=CountedStore(self.store, self.metrics),
            reporter=self.reporters, exempt=self._exempt, switches=self.setup.switches, steps=self._steps,
            saved=self.recovered.as_saved, complete=self.recovered.complete,
            room=self.memory.room if self.memory else None, halting=FileSwitch(options.config),
        )  # fmt: skip
        self.engine.names_known({**self._saved_names, **self._names()})
        self.engine.inherit(self.recovered.before)
        self.engine.keep()
        self.locality = Locality(self.tree.cgroups)
        self.page = NodePage.of(
            options.node_name, self.engine, self.tree.cgroups, self.health, self.reporters, lambda: self.folder.wrong
        )
        self.runtime: PlayedRuntime | None = None
        if self.tree.standin is not None:
            processes = Processes() if options.processes and options.root is None else None
            self.runtime = PlayedRuntime(self.tree, self.engine, processes)
            self._closing.callback(self.runtime.close)
        for ignored in self.setup.ignored:
            LOG.warning("%s", ignored)
        setup.tell_wrong(self.setup, self.reporters)
        self._cross_check()

    def _cross_check(self) -> None:
        for text in second_opinion(self.setup.machine, self.options.root):
            LOG.warning("cross-check: %s", text)

    def _no_hotplug(self, text: str) -> None:
        self.metrics.count("problems_total", "hot-plug")
        LOG.warning("%s", text)

    # ---- what is known

    def pods(self) -> tuple[Pod, ...]:
        """The pods to serve; with a kubelet those that it has started, by the uid that their cgroups carry."""
        if self.tree.standin is not None:
            return self.folder.pods
        return self.static.running(self.folder.pods)

    def snapshot(self) -> MetricValues:
        """What the gauges show."""
        if self._engine is None:
            return MetricValues()
        return replace(
            shown(self._engine, self.memory), manifest_errors=len(self.folder.wrong), ready=self.health.ready()[0],
            observe_only=self._engine.switches.observe_only, locality=self.locality.ratio,
            hanging=len(self.tree.cgroups.hanging),
        )  # fmt: skip

    def _recover(self) -> Recovered:
        observed, pods = self.tree.cgroups.observe(), self.pods()
        loaded = load(self.store, self.setup.node, observed, pods)
        self.quarantined = loaded.aside
        if loaded.aside:
            LOG.error("%s", loaded.aside)
        self._saved_names = loaded.names
        names = {**loaded.names, **self._names()}
        found = recover(self.setup.node, loaded.ledger, observed, names, pods, complete=loaded.complete)
        for text in found.untold:
            LOG.error("%s", text)
        told = recovery_report.tell(self.options.state, found, loaded.aside, since=self.tree.cgroups.since)
        for text in told.standing:
            LOG.warning("%s", text)
        return found

    def _forget(self) -> None:
        """Nothing of an earlier run counts: its cgroups go, and what it saved."""
        if self.tree.standin is None:
            raise SettingsError("--afresh", f"is not for {self.tree.where}: pods that run there keep what they have")
        for uid in containers_in(self.tree.cgroups):
            self.tree.standin.remove_pod(uid)
        for name in (self.store.path.name, unplaced_pods.FILE, recovery_report.FILE):
            (self.options.state / name).unlink(missing_ok=True)
        self.unplaced = UnplacedPods(self.options.state)

    def _names(self) -> Mapping[str, tuple[str, str]]:
        """Container id -> (pod uid, container name) of the containers that are there now."""
        if self.tree.standin is None:
            return read_pod_logs(self.options.log_dir).containers
        there = set().union(*containers_in(self.tree.cgroups).values())
        named = {number: each for pod in self.folder.pods for number, each in names_of(pod).items()}
        return {number: each for number, each in named.items() if number in there}

    def _node_edges(self) -> NodeEdges:
        """NRI and podresources of a node with a kubelet, as far as they are there."""
        return NodeEdges(
            engine=self.engine, reporters=self.reporters,
            sockets=Sockets(nri=self.options.nri_socket, podresources=self.options.podresources_socket),
            enforcement=lambda: self.setup.settings.enforcement,
            find=self._found,
            name_of=self.static.name_of, count=lambda what: self.metrics.count("nri_answers_total", what),
        )  # fmt: skip

    def _found(self, namespace: str, name: str, uid: str) -> Pod | None:
        """A pod of the folder that the runtime is about to start."""
        self._wake.set()  # a pass over the folder that had begun before would take the pod for one that left
        return self.static.find(self.folder.pods, namespace, name, uid)

    def _exempt(self, pod: Pod) -> str:
        return self.setup.exemptions(static=False).why(pod)

    def _fingerprints(self) -> tuple[object, ...]:
        options = self.options
        return setup.config_print(options.config), setup.machine_print(options.root), self.hotplug.seen
