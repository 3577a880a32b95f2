"""What the engine needs of the world: Protocols that the edges implement. The engine names no edge.

    CgroupTree  the kubelet's tree           agent.host.cgroups
    Store       the saved ledger             agent.host.checkpoint
    Reporter    who is told what happened    agent.app hands it to logs, metrics and agent.kube.publishing

`Steps` is called between every two effects, with the name of what comes next: tests kill the process there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from agent.core.cgroups.enforced import Unenforced
from agent.core.request.annotations import PodSettings
from agent.model.cgroup import InForce, Observed, Write, Written
from agent.model.ledger import Ledger
from agent.model.outcome import Refusal
from agent.model.pod import Pod
from agent.model.rules import OnMisalignment

Steps = Callable[[str], None]
"""Told before each effect: "save", "write <path> <file>", "tell", "release"."""


class CgroupTree(Protocol):
    """The kubelet's cgroups."""

    def observe(self) -> Observed:
        """The whole tree now; raises HostError."""

    def in_force(self) -> InForce:
        """What the kubelet's own cgroup has in force now; raises HostError."""

    def apply(self, writes: tuple[Write, ...], go_on: Callable[[], bool] = ...) -> tuple[Written, ...]:
        """Carry out writes in order and read each back; refusals are data. `go_on` is asked before each."""

    def pages(self, path: str) -> Mapping[int, int]:
        """Node id -> bytes that a cgroup holds."""

    def touched(self, path: str) -> Mapping[int, int]:
        """Node id -> bytes of anonymous and shared memory that a cgroup holds; raises HostError."""


class Store(Protocol):
    """Where the ledger is kept."""

    def save(self, ledger: Ledger, extra: Mapping[str, object] | None = None) -> object:
        """Make it durable before returning; raises CheckpointUnwritableError, the old one is then intact.

        `extra` is what the next start needs to know of the ledger; see `agent.node.recover.LISTED`.
        """


class Reporter(Protocol):
    """Who is told. Called under the engine's lock: hand over and return."""

    def admitted(self, pod: Pod, ledger: Ledger, settings: PodSettings, unenforced: Unenforced) -> None:
        """A pod holds what the ledger says (which may be nothing exclusive), in the kernel too but for `unenforced`.

        Of a pod none of whose containers exist yet nothing is known of the kernel.
        """

    def enforced(self, pod: Pod, ledger: Ledger, settings: PodSettings, unenforced: Unenforced) -> None:
        """What the kernel has of a pod's grants changed: all of it, or not what is named."""

    def refused(self, pod: Pod, refusal: Refusal, settings: PodSettings) -> OnMisalignment | None:
        """A pod was refused; what happens to it is for whoever listens.

        Returns something milder than its wish where its owner was refused too often (safety rule S12), else None.
        """

    def released(self, uid: str) -> None:
        """A pod holds nothing any more."""

    def written(self, results: tuple[Written, ...]) -> None:
        """Cgroups were written."""

    def problem(self, what: str, text: str) -> None:
        """Something is wrong that is no pod's doing: "checkpoint", "cgroups", "machine"."""
