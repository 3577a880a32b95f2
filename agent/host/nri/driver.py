"""The agent as an NRI plugin: pinned before the first instruction, refused before it. A Handler of `plugin`.

The runtime is answered from what the engine has decided. The decision is made when the watch brings the pod, usually
before its sandbox; where the runtime is quicker, RunPodSandbox asks for the pod once. A pod that cannot be decided in
time starts unpinned, which is counted, and the cgroup path pins it a moment later.

Nothing in here calls the runtime, and no answer waits for a write to cgroups: the runtime holds one lock around all
plugins (safety.md S9). Names of containers are handed to the engine, which enforces them on its own thread.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Protocol

from agent.core.cgroups.desired import DesiredSets
from agent.core.request.memory_policy import PagePolicy
from agent.errors import SandboxRefused
from agent.host.device_nodes import DeviceNode
from agent.host.nri.runtimes import hangs_at_registration, keeps_refused_sandboxes
from agent.host.nri.values import Adjustment, RuntimeContainer, Sandbox
from agent.model.idset import CpuSet, NodeSet
from agent.node.fault_isolation import Isolated

_log = logging.getLogger(__name__)


class Decisions(Protocol):
    """The engine's decisions, asked on the runtime's thread for each request: every method returns at once."""

    def knows(self, uid: str) -> bool:
        """Whether the pod was decided on."""

    def verdict(self, uid: str) -> str:
        """The sentence that keeps a pod from starting, "" when it may start."""

    def cleared(self, uid: str, container: str) -> bool:
        """Say whether all other containers have left a container's CPUs, or leave them within a moment."""

    def desired(self, uid: str, container: str) -> DesiredSets:
        """Return the container's cpuset, minus CPUs that other containers still use."""

    def running(self, uid: str, container: str) -> DesiredSets:
        """Return the cpuset of a running container; no CPUs while other containers still use all of its own."""

    def quota_lifted(self, uid: str, container: str) -> bool:
        """Whether a container runs without a CFS quota (safety.md S16); a fractional one keeps its limit."""

    def mixed(self, uid: str, container: str) -> Mapping[str, str]:
        """Environment variables of a container with own and shared CPUs (numalign.io/mixed)."""

    def folders(self, uid: str, container: str) -> tuple[tuple[str, str], ...]:
        """Folders to mount, where a container follows its CPUs (numalign.io/mixed)."""

    def pages(self, uid: str, container: str, mems: NodeSet | None) -> PagePolicy | None:
        """The memory policy that a container asks for, over nodes that are among `mems`; None for none."""

    def devices(self, uid: str, container: str) -> tuple[Mapping[str, str], tuple[DeviceNode, ...]]:
        """Environment variables and device files of the devices that numalign hands out itself (safety.md S22)."""

    def containers_named(self, names: Mapping[str, tuple[str, str]]) -> None:
        """Container id -> (pod uid, container name); enforced soon, on another thread."""

    def container_gone(self, container_id: str) -> None:
        """A container was removed."""

    def pods_live(self, uids: frozenset[str]) -> bool:
        """The pods that the runtime has sandboxes of; all their containers have been named before this.

        Whether the engine has gone through all of it, within a moment.
        """


Find = Callable[[str, str, str], bool]
"""(namespace, name, uid): look a pod up once and have it decided; whether it could be. Must answer in time."""


class NriDriver:
    """Answers the runtime from the engine's decisions.

    Args:
        decisions: the engine.
        find: for pods that the watch has not brought yet.
        starting: called with each pod's uid when its sandbox is about to run; must return at once.
        enforcing: False while only observing, which one switch brings about (safety rule S3): nothing is refused and
            nothing adjusted.
        count: told of what became of each: "pinned", "shared", "late" (without its CPUs), "unknown", "refused",
            "unrefused" (let in, since the runtime would keep the remains of its sandbox), "observed".
        refuse_always: whether sandboxes are refused also where the runtime keeps the remains of each.
        problem: called with a sentence on what is wrong with the runtime.
    """

    def __init__(
        self,
        decisions: Decisions,
        *,
        find: Find = lambda _namespace, _name, _uid: False,
        starting: Callable[[str], None] = lambda _uid: None,
        enforcing: Callable[[], bool] = lambda: True,
        count: Callable[[str], None] = lambda _what: None,
        refuse_always: Callable[[], bool] = lambda: False,
        problem: Callable[[str], None] = lambda _text: None,
    ) -> None:
        self._decisions = decisions
        self._find = find
        self._enforcing = enforcing
        self._count = count
        self._starting = starting
        self._refuse_always, self._problem = refuse_always, problem
        self._keeps_refused = False
        self._lock = threading.Lock()
        self._sandboxes: dict[str, Sandbox] = {}
        self._away = ""  # why it is away, as reported last
        self.runtime = ""
        """Name and version of the runtime, "" while it is away."""

    @property
    def sandboxes(self) -> tuple[Sandbox, ...]:
        """The pods that the runtime has sandboxes of, in the order of its reports; none while it is away."""
        with self._lock:
            return tuple(self._sandboxes.values()) if self.runtime else ()

    def configured(self, runtime: str, version: str) -> None:
        """The runtime took us in."""
        with self._lock:
            self._sandboxes = {}
        self.runtime, self._away = f"{runtime} {version}".strip(), ""
        self._keeps_refused = keeps_refused_sandboxes(runtime, version)
        _log.info("NRI: taken in by %s, which synchronizes next", self.runtime)
        if hangs_at_registration(runtime, version):
            self._problem(
                f"{self.runtime} can hang when a plugin registers (containerd#10085): update it to 1.7.26 or later"
            )
        if self._keeps_refused and not self._refuse_always():
            self._problem(
                f"{self.runtime} keeps the remains of every refused sandbox and may not survive its next restart "
                "(containerd#13355): wait and fail hold no pod back here, as without NRI; containerd 2.2.6, 2.3.3 "
                "and 2.4 are mended; nri.refuseOnLeakingContainerd refuses all the same"
            )

    def unsynchronized(self, seconds: float) -> None:
        """The runtime took us in and asks nothing: it may hang, and the cgroup path goes on alone."""
        self._problem(
            f"taken in by {self.runtime or 'the runtime'}, not synchronized for {seconds:g} s: containers are pinned "
            "through their cgroups; containerd before 1.7.16 can hang here and then starts no container: restart it"
        )

    def disconnected(self, why: str) -> None:
        """Note that there is no connection: the cgroup path goes on alone. The same cause is logged once."""
        self.runtime = ""
        level = logging.DEBUG if why == self._away else logging.WARNING
        self._away = why
        _log.log(level, "NRI: %s; containers are pinned through their cgroups until it is back", why)

    def synchronize(
        self, sandboxes: tuple[Sandbox, ...], containers: tuple[RuntimeContainer, ...]
    ) -> Mapping[str, Adjustment]:
        """Take in what runs; return the sets of the containers whose sets in the runtime differ from their grants.

        Return none before the engine has enforced them all: the runtime would put a container on CPUs that another
        container has not left. The engine then writes the sets itself, in order.
        """
        _log.info("NRI: connected to %s", self.runtime)
        with self._lock:
            self._sandboxes = {each.id: each for each in sandboxes}
        names = {
            each.id: (self._sandboxes[each.sandbox_id].uid, each.name)
            for each in containers
            if each.sandbox_id in self._sandboxes and not each.ended
        }
        self._decisions.containers_named(names)
        in_force = self._decisions.pods_live(frozenset(each.uid for each in sandboxes))
        changes: dict[str, Adjustment] = {}
        if in_force and self._enforcing():
            for each in containers:
                if each.id in names:
                    with Isolated(lambda _error: _log.exception("a container that runs could not be looked at")):
                        change = self._update_of(*names[each.id], each)
                        if change is not None:
                            changes[each.id] = change
        return changes

    def run_sandbox(self, sandbox: Sandbox) -> None:
        """Refuse a pod that must not run: every later request is too late for that."""
        with self._lock:
            self._sandboxes[sandbox.id] = sandbox
        self._starting(sandbox.uid)
        if not self._enforcing():
            self._count("observed")
            return
        if not self._decisions.knows(sandbox.uid):
            self._find(sandbox.namespace, sandbox.name, sandbox.uid)
        verdict = self._decisions.verdict(sandbox.uid)
        if verdict and self._keeps_refused and not self._refuse_always():
            self._count("unrefused")
        elif verdict:
            self._count("refused")
            raise SandboxRefused(f"numalign: {verdict}")

    def create_container(self, sandbox: Sandbox, container: RuntimeContainer) -> Adjustment:
        """Put the granted sets into the container before it exists."""
        self._decisions.containers_named({container.id: (sandbox.uid, container.name)})
        if not self._enforcing():
            self._count("observed")
            return Adjustment()
        if not self._decisions.knows(sandbox.uid):
            self._count("unknown")
            _log.warning(
                "NRI: container %s of pod %s/%s starts without its sets: numalign has not decided on the pod yet",
                container.name, sandbox.namespace, sandbox.name,
            )  # fmt: skip
            return Adjustment()
        cleared = self._decisions.cleared(sandbox.uid, container.name)
        desired = self._decisions.desired(sandbox.uid, container.name)
        env, devices = self._decisions.devices(sandbox.uid, container.name)
        env = {**env, **self._decisions.mixed(sandbox.uid, container.name)}
        if not cleared:
            _log.warning(
                "NRI: container %s of pod %s/%s starts without its CPUs: others have not left them yet",
                container.name, sandbox.namespace, sandbox.name,
            )  # fmt: skip
        self._count("late" if not cleared else "pinned" if desired.exclusive else "shared")
        lifted = desired.exclusive and self._decisions.quota_lifted(sandbox.uid, container.name)
        folders = self._decisions.folders(sandbox.uid, container.name)
        return Adjustment(
            cpus=desired.cpus, mems=desired.mems, quota=-1 if lifted else None,
            env=env, devices=devices, folders=folders,
            pages=self._decisions.pages(sandbox.uid, container.name, desired.mems),
        )  # fmt: skip

    def update_container(self, sandbox: Sandbox, container: RuntimeContainer) -> Adjustment:
        """The kubelet resizes: our sets go on top, or its own would come back."""
        if not self._enforcing() or not self._decisions.knows(sandbox.uid):
            return Adjustment()
        desired = self._decisions.running(sandbox.uid, container.name)
        lifted = desired.exclusive and self._decisions.quota_lifted(sandbox.uid, container.name)
        return Adjustment(cpus=desired.cpus, mems=desired.mems, quota=-1 if lifted else None)

    def event(self, name: str, sandbox: Sandbox, container: RuntimeContainer | None) -> None:
        """Note ends; what they held is freed when no process is left in the cgroups."""
        if name == "RemovePodSandbox":
            with self._lock:
                self._sandboxes.pop(sandbox.id, None)
        elif name == "RemoveContainer" and container is not None:
            self._decisions.container_gone(container.id)

    def _update_of(self, uid: str, name: str, container: RuntimeContainer) -> Adjustment | None:
        """What differs between the runtime's record of an exclusive container and what it holds."""
        if not self._decisions.knows(uid):
            return None
        desired = self._decisions.desired(uid, name)
        if not desired.exclusive:
            return None  # the pool is written to slices; a set of its own would have to be updated (S9: no wait)
        cpus = desired.cpus if _differs(container.cpus, desired.cpus) else None
        mems = desired.mems if _differs(container.mems, desired.mems) else None
        return Adjustment(cpus=cpus, mems=mems) if cpus is not None or mems is not None else None


def _differs(recorded: str, wanted: CpuSet | NodeSet | None) -> bool:
    """Whether a set on record, as text, is another than the wanted one."""
    if wanted is None:
        return False
    try:
        return type(wanted).parse(recorded).bits != wanted.bits
    except ValueError:
        return True
