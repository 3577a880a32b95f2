"""What an NRI handler sees and answers: plain values, no protobuf. Used by `session` and by its handlers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from agent.core.request.memory_policy import PagePolicy
from agent.host.device_nodes import DeviceNode
from agent.model.idset import CpuSet, NodeSet


@dataclass(frozen=True, slots=True)
class Sandbox:
    """A pod as the runtime knows it; it carries no resource requests. Its labels and annotations are not kept.

    Attributes:
        id: the sandbox's container id.
        uid: the pod's uid; for static pods the kubelet's config hash.
        cgroup_parent: the pod's cgroup, as the kubelet asked for it (a slice name or a path).
    """

    id: str
    name: str
    namespace: str
    uid: str
    cgroup_parent: str = ""


@dataclass(frozen=True, slots=True)
class RuntimeContainer:
    """A container as the runtime knows it.

    Attributes:
        ended: whether it has stopped, and is only not removed yet.
        cgroups_path: OCI cgroupsPath, "slice:prefix:id" or a path.
        cpus, mems: the cpuset that the runtime has on record for it, as text; "" when none.
        quota: CFS quota in microseconds, None when not set.
    """

    id: str
    sandbox_id: str
    name: str
    ended: bool = False
    cgroups_path: str = ""
    cpus: str = ""
    mems: str = ""
    quota: int | None = None


@dataclass(frozen=True, slots=True)
class Adjustment:
    """What to change about a container that is being created (or, the cpuset and quota part, updated).

    Attributes:
        cpus, mems: sets to confine it to; None leaves what the runtime would do.
        quota: CFS quota in microseconds, -1 for none; None leaves it.
        env: environment variables to add.
        devices: device files to add, with their cgroup rules.
        folders: (folder of the host, where the container sees it) to mount, read-only.
        pages: the memory policy of its process; None leaves it.
    """

    cpus: CpuSet | None = None
    mems: NodeSet | None = None
    quota: int | None = None
    env: Mapping[str, str] = field(default_factory=dict, hash=False)
    devices: tuple[DeviceNode, ...] = ()
    folders: tuple[tuple[str, str], ...] = ()
    pages: PagePolicy | None = None


NO_ADJUSTMENT = Adjustment()


class NriHandler(Protocol):
    """What the runtime's events become. Called one after the other in a worker thread, never from the event loop.

    Each must return within `plugin.ANSWER_WITHIN` seconds and must call neither the runtime nor the API server: the
    runtime holds one lock around all plugins (safety.md S9).
    """

    def configured(self, runtime: str, version: str) -> None:
        """The runtime took us in."""

    def unsynchronized(self, seconds: float) -> None:
        """The runtime took us in that long ago, and has not synchronized us: it asks nothing of us until then."""

    def synchronize(
        self, sandboxes: tuple[Sandbox, ...], containers: tuple[RuntimeContainer, ...]
    ) -> Mapping[str, Adjustment]:
        """All pods and containers that run now; returns changes by container id."""

    def run_sandbox(self, sandbox: Sandbox) -> None:
        """A pod is about to start; raise SandboxRefused to keep it from starting."""

    def create_container(self, sandbox: Sandbox, container: RuntimeContainer) -> Adjustment:
        """A container is about to be created."""

    def update_container(self, sandbox: Sandbox, container: RuntimeContainer) -> Adjustment:
        """The kubelet changes a container's resources; the answer goes on top."""

    def event(self, name: str, sandbox: Sandbox, container: RuntimeContainer | None) -> None:
        """Anything else, by its NRI name: StopContainer, RemoveContainer, StopPodSandbox, RemovePodSandbox, ..."""

    def disconnected(self, why: str) -> None:
        """The connection is gone; containers now start without us until the next synchronize."""
