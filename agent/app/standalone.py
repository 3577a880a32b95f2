"""Serves a folder of pod manifests on this machine, without an API server: the same engine as in a cluster.

Called by `agent.cli.run`. `once` goes through the folder one time; `serve` follows it until it is told to stop. One
thread does all the work and sleeps on one event; the watcher of the folder, signals and timers only wake it.

On a node with a kubelet whose cgroups are named (--cgroup-root), the folder is the kubelet's own (staticPodPath):
its pods' uids and containers are found by the names in the kubelet's log folder, and nothing is made, only confined.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from agent import __version__
from agent.app import recovery_report, setup
from agent.app.edges import AUTO, Fan, NodeEdges, Sockets
from agent.app.machine_watch import MachineWatch, second_opinion
from agent.app.node_events import Measured, NodeEvents, mind_other_writers, windows
from agent.app.runtime import Runtime, names_of
from agent.app.static_pods import StaticPods
from agent.app.trees import SCRATCH, Tree, open_tree
from agent.core.changes import changes
from agent.core.usage import usage
from agent.engine.engine import Engine
from agent.engine.known import Known
from agent.engine.ports import Steps
from agent.engine.recover import Recovered, recover
from agent.errors import CheckpointCorruptError, CheckpointTooNewError, HostError, NumalignError
from agent.host.checkpoint import Checkpoint
from agent.host.manifests import Folder, Follower, read_folder
from agent.host.podlogs import read_pod_logs
from agent.host.processes import Processes
from agent.host.standin import containers_in
from agent.model.ledger import Ledger
from agent.model.pod import Pod
from agent.observe.health import Health, Server
from agent.observe.logs import LOG, operation
from agent.observe.metrics import CONTENT_TYPE, Metrics, Snapshot

TICK = 1.0
"""Seconds between looks at the clock, the configuration file and what is online."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What to serve; see `numalign run --help`."""

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


class Standalone:
    """One node, served from a folder. A context manager: leaving it ends processes and threads.

    Args:
        options: what to serve.
        steps: told between every two effects; tests kill there.

    Raises:
        SettingsError, MalformedError: the input is wrong.
        HostError: the machine, the state folder or the cgroups cannot be used; or another agent runs.
    """

    def __init__(self, options: Options, *, steps: Steps = lambda _name: None) -> None:
        self.options, self._steps = options, steps
        self._closing = ExitStack()
        self._wake, self._stop = threading.Event(), threading.Event()
        self.health = Health()
        self.metrics = Metrics(self.snapshot)
        self.windows = windows(self.metrics)
        self.events: NodeEvents | None = None
        self.edges: NodeEdges | None = None
        self.static = StaticPods(
            options.node_name, options.log_dir, lambda: self.edges.sandboxes if self.edges is not None else ()
        )
        self.folder = Folder()
        self._engine: Engine | None = None
        self.address = ""
        """Where the pages are served, "" when they are not."""
        try:
            self._open()
        except BaseException:
            self._closing.close()
            raise

    def _open(self) -> None:
        options = self.options
        self.hotplug = MachineWatch(options.root, self._wake.set, self._no_hotplug)
        self._prints = self._fingerprints()
        self.setup = setup.read_setup(options.config, options.root)
        self.store = Checkpoint(options.state / "checkpoint.json", by=__version__)
        self.store.lock()
        self._closing.callback(self.store.unlock)
        self.tree: Tree = open_tree(options.cgroup_root, self.setup.machine, options.state, live=options.root is None)
        self.folder = read_folder(options.pods)
        self.quarantined = ""
        self.recovered = self._recover()
        teller = Measured(self.metrics)
        teller.windows = self.windows
        self.fan = Fan(teller)
        self.engine = self._engine = Engine(
            self.setup.node, self.recovered.ledger, cgroups=self.tree.cgroups, store=self.store,
            teller=self.fan, exempt=self._exempt, switches=self.setup.switches, steps=self._steps,
            saved=self.recovered.as_saved, complete=self.recovered.saved,
        )  # fmt: skip
        self.engine.names_known(self._names())
        self.runtime: Runtime | None = None
        if self.tree.standin is not None:
            processes = Processes() if options.processes and options.root is None else None
            self.runtime = Runtime(self.tree, self.engine, processes)
            self._closing.callback(self.runtime.close)
        for ignored in self.setup.ignored:
            LOG.warning("%s", ignored)
        self._cross_check()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.close()

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
        with ExitStack() as open_now:
            if self.options.metrics_address:
                pages = {**self.health.pages(), "/metrics": lambda: (200, CONTENT_TYPE, self.metrics.page())}
                server = Server(self.options.metrics_address, pages)
                open_now.callback(server.close)
                self.address = server.address
                LOG.info("serving metrics", extra={"facts": {"address": self.address}})
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
            started()
            self._loop()
        LOG.info("stopped; the ledger is saved, nothing was released")

    def stop(self) -> None:
        """End `serve` after what it does now; safe to call from a signal handler."""
        self._stop.set()
        self._wake.set()

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
        """One piece of work; a fault of the machine is told, and tried again with the next turn."""
        try:
            work()
        except (HostError, OSError) as error:
            self.metrics.count("problems_total", "host")
            LOG.error("%s", error)
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
        self.engine.containers_seen(self._names())
        self.engine.reconcile()

    def _repair(self) -> None:
        self.engine.reconcile()

    def _reconcile(self) -> None:
        started = time.monotonic()
        if self.runtime is None:
            mind_other_writers(self.engine, Path("/"), self.options.kubelet_dir)
            self._sync()
        self.engine.reconcile()
        if self.runtime is not None:
            self.runtime.run(self.pods())
        self.metrics.time("operation_seconds", "reconcile", seconds=time.monotonic() - started)

    def _follow_setup(self) -> None:
        """Settings or machine changed: read again; what is wrong is told once, the old ones stay."""
        now = self._fingerprints()
        if now == self._prints:
            return
        self._prints = now
        before = self.setup
        try:
            self.setup = setup.read_setup(self.options.config, self.options.root)
        except NumalignError as error:
            self.metrics.count("problems_total", "settings")
            LOG.error("the old settings stay: %s", error)
            return
        if (before.settings, before.machine.digest) == (self.setup.settings, self.setup.machine.digest):
            return
        with operation("setup"):
            for change in changes(before.machine, self.setup.machine):
                LOG.warning("machine: %s", change.text)
            self._cross_check()
            self.engine.changed(self.setup.node, self.setup.switches)
            self._apply()

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

    def snapshot(self) -> Snapshot:
        """What the gauges show."""
        if self._engine is None:
            return Snapshot()
        ledger, node, known = self._engine.ledger, self._engine.node, self._engine.known
        pods = dict.fromkeys(("pinned", "shared", "refused", "exempt", "ended"), 0)
        for uid, each in known.items():
            pods[_state(uid, each, ledger)] += 1
        return Snapshot(
            nodes=usage(ledger, node), pods=pods, manifest_errors=len(self.folder.wrong),
            ready=self.health.ready()[0], observe_only=self._engine.switches.observe_only,
        )  # fmt: skip

    def _recover(self) -> Recovered:
        try:
            saved = self.store.load()
        except (CheckpointCorruptError, CheckpointTooNewError) as error:
            aside = self.store.quarantine()
            self.quarantined = f"{error}; it was put aside as {aside.name}, the grants are rebuilt from the cgroups"
            LOG.error("%s", self.quarantined)
            saved = None
        observed = self.tree.cgroups.observe()
        ledger = saved.ledger if saved else None
        found = recover(self.setup.node, ledger, observed, self._names(), self.pods())
        recovery_report.tell(self.options.state, found, self.quarantined)
        return found

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
            engine=self.engine, fan=self.fan,
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

    def _followed(self) -> tuple[Path, ...]:
        logs = self.options.log_dir / "containers"
        return (self.options.pods, logs) if self.tree.standin is None and logs.is_dir() else (self.options.pods,)

    def _fingerprints(self) -> tuple[object, ...]:
        options = self.options
        return setup.config_print(options.config), setup.machine_print(options.root), self.hotplug.seen

    def _ready(self) -> None:
        self.health.set("recovery", "")
        self.health.set("checkpoint", self.engine.unwritable)
        self.health.set("cgroups", self.engine.broken)
        self.health.beat()


def _state(uid: str, known: Known, ledger: Ledger) -> str:
    if known.ended:
        return "ended"
    if known.exempt:
        return "exempt"
    if known.refusal is not None:
        return "refused"
    return "pinned" if uid in ledger.cpus.assigned or uid in ledger.cpus.pools else "shared"
