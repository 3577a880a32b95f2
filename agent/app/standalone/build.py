"""Makes the service of a folder of manifests: the tree, the engine with its recovered ledger, runtime or edges.

Everything is finished when it is made, and nothing runs yet.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from agent import __version__
from agent.app import setup as setups
from agent.app.page.server import NodePage
from agent.app.places import SCRATCH
from agent.app.reporters import Measured, Reporters
from agent.app.service.begin import StartFacts, begin
from agent.app.service.edges import AUTO, DeviceHints, NodeEdges, Sockets
from agent.app.service.followed_setup import FollowedSetup
from agent.app.service.machine_watch import MachineWatch
from agent.app.service.node_events import NodeEvents
from agent.app.service.service import NodeParts, NodeService, Part, Pulse
from agent.app.standalone.folder_pods import FolderPods
from agent.app.standalone.runtime import PlayedRuntime
from agent.app.standalone.served_folder import ServedFolder
from agent.app.standalone.static_pods import StaticPods
from agent.app.statedir import state_file
from agent.app.statedir.unplaced_pods import UnplacedPods
from agent.app.trees import ServedTree, open_tree
from agent.core.explain.remarks import beyond
from agent.engine.ports import Steps
from agent.errors import SettingsError
from agent.host.checkpoint import Checkpoint
from agent.host.cpu_files import CpuFiles
from agent.host.manifests import Follower
from agent.host.node_memory import NodeMemory
from agent.host.processes import Processes
from agent.host.standin import containers_in
from agent.model.pod import Pod
from agent.observe.health import Health
from agent.observe.metrics import Metrics
from agent.observe.windows import Windows

StandaloneService = NodeService[FolderPods]


@dataclass(frozen=True, slots=True, kw_only=True)
class StandaloneOptions:
    """What to serve; see `numalign run --help`.

    Attributes:
        named: whether `node_name` was chosen; else it is the host's, and a machine of `root` has a better one.
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
    named: bool = True
    nri_socket: str = AUTO
    podresources_socket: str = AUTO
    processes: bool = True
    metrics_address: str = ""
    lasting: bool = True
    afresh: bool = False


def standalone_node(options: StandaloneOptions, *, steps: Steps = lambda _name: None) -> StandaloneService:
    """The service of a folder of manifests.

    Args:
        options: what to serve.
        steps: told between every two effects; tests kill there.

    Raises:
        SettingsError, MalformedError: the input is wrong.
        HostError: the machine, the state folder or the cgroups cannot be used; or another agent runs.
    """
    with ExitStack() as closing:
        pulse, health, metrics, reporters = Pulse(), Health(), Metrics(), Reporters()
        store = Checkpoint(options.state / "checkpoint.json", by=__version__)
        store.lock()
        closing.callback(store.unlock)
        hotplug = MachineWatch(options.root, pulse.wake, lambda text: reporters.problem("hot-plug", text))
        setup = FollowedSetup(options.config, options.root, options.state if options.lasting else None, hotplug)
        tree = open_tree(options.cgroup_root, setup.now.machine, options.state, live=options.root is None)
        if options.afresh:
            _forget(tree, options.state, store)
        static = StaticPods(options.node_name, options.log_dir)
        served = ServedFolder(options.pods, tree, static, pulse.wake)
        memory = None if options.root else NodeMemory()

        def exempt(pod: Pod) -> str:
            return setup.now.exemptions(static=False).why(pod)

        begun = begin(
            setup.now, StartFacts(pods=served.pods(), names=served.names()),
            state=options.state, config=options.config, store=store, cgroups=tree.cgroups, reporters=reporters,
            metrics=metrics, memory=memory, exempt=exempt, steps=steps,
        )  # fmt: skip
        engine = begun.engine
        cpu_files = CpuFiles(options.state)
        windows = Windows(lambda seconds: metrics.time("start_to_pin_seconds", seconds=seconds))
        reporters.add(Measured(metrics, windows, lambda: engine.snapshot.node.rules.topology.policy))
        name = setup.now.machine.name if options.root and not options.named else options.node_name
        page = NodePage.of(name, engine, tree.cgroups, health, reporters, lambda: served.now.wrong)
        begun.tell()
        setups.tell_wrong(setup.now, reporters)
        followed = [options.pods]
        runtime = edges = events = None
        beside = list[Part]()
        if tree.standin is not None:
            processes = Processes() if options.processes and options.root is None else None
            runtime = PlayedRuntime(tree, engine, processes)
            closing.callback(runtime.close)
        if tree.standin is None or tree.real:  # other programs write there
            events = NodeEvents(tree.cgroups, windows, metrics, pulse.wake)
            beside.append(events)
        if tree.standin is None:
            edges = NodeEdges(
                engine=engine, reporters=reporters, hints=DeviceHints(engine), files=cpu_files,
                sockets=Sockets(nri=options.nri_socket, podresources=options.podresources_socket),
                enforcement=lambda: setup.now.settings.enforcement, agreed=lambda: setup.now.settings.nri,
                find=served.find, name_of=static.name_of,
                count=lambda what: metrics.count("nri_answers_total", what),
            )  # fmt: skip
            beside.append(edges)
            if (logs := options.log_dir / "containers").is_dir():
                followed.append(logs)
        source = FolderPods(
            served=served, tree=tree, engine=engine, store=store, metrics=metrics, runtime=runtime, edges=edges,
            kubelet_dir=options.kubelet_dir, recovered=begun.recovered, quarantined=begun.quarantined,
            too_large=lambda pod: beyond(pod, setup.now.allocatable()),
        )  # fmt: skip
        parts = NodeParts(
            pulse=pulse, health=health, metrics=metrics, reporters=reporters, setup=setup, cgroups=tree.cgroups,
            engine=engine, edges=edges, events=events, page=page, memory=memory,
            unplaced=UnplacedPods(options.state), cpu_files=cpu_files, metrics_address=options.metrics_address,
            threads=(*(Follower(folder, pulse.wake) for folder in followed), *beside, hotplug),
        )  # fmt: skip
        return NodeService(parts, source, closing.pop_all())


def _forget(tree: ServedTree, state: Path, store: Checkpoint) -> None:
    """Nothing of an earlier run counts: its cgroups go, and what it saved."""
    if tree.standin is None:
        raise SettingsError("--afresh", f"is not for {tree.where}: pods that run there keep what they have")
    for uid in containers_in(tree.cgroups):
        tree.standin.remove_pod(uid)
    store.path.unlink(missing_ok=True)
    if (state / state_file.FILE).exists():
        state_file.keep(state, unplaced=None, start=None)
