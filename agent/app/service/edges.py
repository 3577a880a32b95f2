"""The edges of a node with a kubelet and a runtime: NRI and podresources, started where their sockets are.

    podresources   which devices the kubelet gave (`agent.host.podresources.lookup`); nothing is asked of us
    NRI            containers pinned and refused before they start (`agent.host.nri`)

The engine is made first, since both need it; it reports to `Reporters`, to which the edges are added. Order of
starting: devices first, then NRI, so that the first pods are decided with their devices. Order of stopping: NRI
first, since the runtime needs no answer from a node that is going down (it goes on without us, and cgroups stay as
they are); then the requests that it sent are carried out; then the rest.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from agent.app.reporters import Reporters
from agent.engine.engine import Engine
from agent.host.cpu_files import CpuFiles
from agent.host.device_nodes import DeviceFiles, Usable
from agent.host.files import HostFiles
from agent.host.nri.decisions import EngineDecisions
from agent.host.nri.driver import NriDriver
from agent.host.nri.plugin import DEFAULT_SOCKET as NRI_SOCKET
from agent.host.nri.plugin import Plugin
from agent.host.nri.session import Identity
from agent.host.nri.values import Sandbox
from agent.host.podresources.client import DEFAULT_SOCKET as PODRESOURCES_SOCKET
from agent.host.podresources.client import PodResources
from agent.host.podresources.lookup import Lookup
from agent.model.pod import Pod
from agent.model.rules import Enforcement, NriFailurePolicy
from agent.observe.logs import LOG
from agent.settings.model import NriSettings

AUTO, OFF = "auto", "off"
CONNECTED_WITHIN = 10.0
"""Seconds after which a runtime that has not synchronized us counts as one without NRI."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sockets:
    """Which sockets to use: a path, "off", or "auto": the usual one, if its folder is there.

    Attributes:
        nri: the runtime's.
        podresources: the kubelet's.
    """

    nri: str = AUTO
    podresources: str = AUTO

    def nri_path(self, enforcement: Enforcement) -> str:
        """The runtime's socket, "" for none: enforcement through cgroups alone needs none."""
        return "" if enforcement is Enforcement.CGROUP else _path(self.nri, NRI_SOCKET)

    def podresources_path(self) -> str:
        """The kubelet's socket, "" for none."""
        return _path(self.podresources, PODRESOURCES_SOCKET)


def _path(choice: str, usual: str) -> str:
    if choice == OFF:
        return ""
    if choice != AUTO:
        return choice
    return usual if Path(usual).parent.is_dir() else ""  # the folder, since a daemon that restarts has no socket


class DeviceHints:
    """Devices handed out by numalign that a container cannot use through a file, and why (safety rule S22).

    Args:
        engine: decides on the pods.
        files: the machine, for device files.
        plugin: the plugin that answers the runtime's requests now; `NodeEdges` sets it.
    """

    def __init__(self, engine: Engine, files: HostFiles | None = None) -> None:
        self._engine, self._files = engine, files or HostFiles("/")
        self._plugin: Plugin | None = None
        self._since = 0.0

    def __call__(self, uid: str, container: str) -> dict[str, str]:
        """Address -> why."""
        if self._plugin is None or self._silent(self._plugin):
            own = self._self_handed(uid, container)
            return dict.fromkeys(own, "without NRI no device file can be added to the container: a hint only")
        return EngineDecisions(self._engine, self.usable).hints(uid, container)

    def take_part(self, plugin: Plugin | None) -> None:
        """From now on, containers get their devices through this one, or get none."""
        self._since, self._plugin = time.monotonic(), plugin

    def usable(self, address: str) -> Usable:
        """How a PCI function gets usable in a container."""
        self._files.forget()  # a driver may have been bound since
        return DeviceFiles(self._files).of(address)

    def _silent(self, plugin: Plugin) -> bool:
        """Return True if the runtime does not take part; False while it is being connected to, as after a start."""
        return time.monotonic() - self._since > CONNECTED_WITHIN and not plugin.connected

    def _self_handed(self, uid: str, container: str) -> list[str]:
        snapshot = self._engine.snapshot
        inventory = snapshot.node.inventory
        held = snapshot.ledger.devices.held.get(uid, {}).get(container, {})
        return [each for name in sorted(held) if name not in inventory.reported for each in held[name]]


@dataclass(kw_only=True)
class NodeEdges:
    """Both edges, as far as they are there.

    Attributes:
        engine: decides on the pods.
        reporters: the engine's reporter.
        sockets: see Sockets.
        hints: learns whether the runtime takes part.
        enforcement: now; how grants reach the kernel.
        find: (namespace, name, uid) of a pod that the runtime starts before it was seen -> the pod, None where it is
            not found; answers within some 50 ms.
        name_of: a pod's name as the kubelet has it.
        agreed: the settings of what is agreed with the runtime, now.
        count: called with the outcome of each request of the runtime (`agent.host.nri.driver`).
        timed: called for each request: method, outcome, seconds.
        files: what tells mixed containers which CPUs are theirs.
        podresources: the client of the kubelet, where another part shares it and closes it; else one is made.
        identity: how we register with the runtime.
    """

    engine: Engine
    reporters: Reporters
    sockets: Sockets
    hints: DeviceHints
    enforcement: Callable[[], Enforcement] = lambda: Enforcement.AUTO
    find: Callable[[str, str, str], Pod | None] = lambda _namespace, _name, _uid: None
    name_of: Callable[[Pod], str] = lambda pod: pod.name
    agreed: Callable[[], NriSettings] = NriSettings
    count: Callable[[str], None] = lambda _what: None
    timed: Callable[[str, str, float], None] = lambda _method, _outcome, _seconds: None
    identity: Identity | None = None
    files: CpuFiles | None = None
    podresources: PodResources | None = None
    lookup: Lookup | None = None
    plugin: Plugin | None = None
    decisions: EngineDecisions | None = None
    driver: NriDriver | None = None
    _untaken: str = ""
    _policy: NriFailurePolicy = NriFailurePolicy.DROP
    _parting: ExitStack = field(default_factory=ExitStack)
    _closing: ExitStack = field(default_factory=ExitStack)

    def start(self) -> None:
        """Start what is there; what is not is said once."""
        podresources, nri = self.sockets.podresources_path(), self.sockets.nri_path(self.enforcement())
        if podresources:
            client = self.podresources
            if client is None:
                self.podresources = client = PodResources(podresources)
                self._closing.callback(client.close)
            self.lookup = Lookup(
                client,
                self.engine,
                name_of=self.name_of,
                problem=lambda text: self.reporters.problem("podresources", text),
            )
            self.reporters.add(self.lookup)
            self.lookup.start()
            self._closing.callback(self.lookup.stop)
        self.follow()
        facts = {"podresources": podresources or OFF, "nri": nri or OFF}
        LOG.info("edges", extra={"facts": facts})

    def follow(self) -> None:
        """The settings may have changed: take part in the runtime's requests, or leave it alone, as they say now."""
        path = self.sockets.nri_path(self.enforcement())
        self._untaken = ""
        if self.plugin is not None and self.agreed().failure_policy is not self._policy:
            self._part()  # it is agreed when the agent registers
        if path and self.plugin is None:
            self._take_part(path)
        elif not path and self.plugin is not None:
            self._part()
            LOG.info("NRI is left: enforcement is %s", self.enforcement().value)
        if not path and self.enforcement() is Enforcement.NRI:
            self.reporters.problem(
                "nri", f"enforcement is nri, and there is no {NRI_SOCKET}: containers start unpinned"
            )

    def again(self) -> None:
        """Take part in the runtime's requests where no thread could be had for it."""
        if self._untaken:
            self.follow()

    def _take_part(self, path: str) -> None:
        self.decisions = EngineDecisions(self.engine, self.hints.usable, files=self.files)
        self.driver = NriDriver(
            self.decisions, find=self._found, enforcing=self.enforcing, count=self.count,
            starting=self.lookup.starting if self.lookup is not None else lambda _uid: None,
            refuse_always=lambda: self.agreed().refuse_on_leaking_containerd,
            problem=lambda text: self.reporters.problem("nri", text),
        )  # fmt: skip
        self._policy = self.agreed().failure_policy
        identity = replace(self.identity or Identity(), failure_policy=self._policy)
        self.plugin = Plugin(path, self.driver, identity=identity, count=self._answered)
        self.hints.take_part(self.plugin)
        try:
            self.decisions.start()
            self._parting.callback(self.decisions.stop)
            self.plugin.start()
            self._parting.callback(self.plugin.stop)
        except RuntimeError as error:  # the limit of processes is reached: see `again`
            self._part()
            self._untaken = f"containers start unpinned, since NRI has no thread: {error}"
            self.reporters.problem("threads", self._untaken)

    def _part(self) -> None:
        self._parting.close()
        self.plugin = self.driver = self.decisions = None
        self.hints.take_part(None)

    def stop(self) -> None:
        """Stop both; nothing is written or released."""
        self._parting.close()
        self._closing.close()

    @property
    def sandboxes(self) -> tuple[Sandbox, ...]:
        """The runtime's sandboxes; none while it is away."""
        return self.driver.sandboxes if self.driver is not None else ()

    @property
    def runtime(self) -> str:
        """Name and version of the runtime that asks by NRI, "" for none."""
        return self.driver.runtime if self.driver is not None else ""

    def enforcing(self) -> bool:
        """Return True if grants may go through the runtime: the settings, the switch (S3) and rule S10 allow it."""
        if self.enforcement() in (Enforcement.DRY_RUN, Enforcement.CGROUP):
            return False
        return self.engine.acting

    def _answered(self, method: str, outcome: str, seconds: float) -> None:
        """A request of the runtime got its answer; one that was given without the decision is counted as such."""
        if outcome == "late":
            self.count(outcome)
        self.timed(method, outcome, seconds)

    def _found(self, namespace: str, name: str, uid: str) -> bool:
        """A pod that is found is decided while the runtime waits, as long as it may (safety.md S9)."""
        pod = self.find(namespace, name, uid)
        return pod is not None and self.decisions is not None and self.decisions.decide(pod)
