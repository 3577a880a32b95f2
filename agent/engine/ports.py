"""What the engine needs of the world: Protocols that the edges implement. The engine names no edge.

    CgroupTree  the kubelet's tree           agent.host.cgroups
    Store       the saved ledger             agent.host.checkpoint
    Reporter    takes the reports            agent.app passes them to logs, metrics and agent.kube.publishing

All methods are called under the engine's lock, so that a slow one delays every event. They may block on the disk or
the kernel, never on a network. `Steps` is called between every two effects: tests kill the process there.
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
"""Called with the name of the next effect: "save", "write <path> <file>", "tell", "release"."""


class CgroupTree(Protocol):
    """The kubelet's cgroups."""

    def observe(self) -> Observed:
        """Read the whole tree; raises HostError. Called for each event that enforces, or that frees ended pods."""

    def in_force(self) -> InForce:
        """Read what the kubelet's own cgroup has in force; raises HostError. Called before decisions."""

    def apply(self, writes: tuple[Write, ...], go_on: Callable[[], bool] = ...) -> tuple[Written, ...]:
        """Make the writes in order and read each back; a refusal is a value in the result.

        Called for each write of a plan, and once for all writes of memory nodes, which may hang. `go_on` is asked
        before each write; after a False no write is made.
        """

    def pages(self, path: str) -> Mapping[int, int]:
        """Read how many bytes a cgroup has on each node: node id -> bytes; raises HostError.

        Called at each look for each container whose memory is to be bound and is not yet.
        """

    def touched(self, path: str) -> Mapping[int, int]:
        """Read how many bytes of anonymous and shared memory a cgroup has on each node; raises HostError.

        Called for each pod with bound memory when a decision needs the nodes' real memory (safety.md S7).
        """


class Store(Protocol):
    """Keeps the ledger over restarts."""

    def save(self, ledger: Ledger, extra: Mapping[str, object] | None = None) -> object:
        """Make the ledger durable before returning; raises CheckpointUnwritableError, the old one is then intact.

        Called for each event that changes a grant, and on a timer for new names: a sync of the disk. `extra` is what
        the next start needs beside the ledger; see `agent.node.recover.LISTED`.
        """


class Reporter(Protocol):
    """Takes the reports. Each method hands its report over and returns."""

    def admitted(self, pod: Pod, ledger: Ledger, settings: PodSettings, unenforced: Unenforced) -> None:
        """Report that a pod holds its grant, which may be nothing exclusive; all but `unenforced` is in force.

        Called after a decision was saved, written and read back. While no container of the pod exists, nothing is
        known of the kernel.
        """

    def enforced(self, pod: Pod, ledger: Ledger, settings: PodSettings, unenforced: Unenforced) -> None:
        """Report that another part of a pod's grant is in force: all but `unenforced`.

        Called when that changes, as often as `agent.node.unenforced_pods` allows.
        """

    def refused(self, pod: Pod, refusal: Refusal, settings: PodSettings) -> OnMisalignment | None:
        """Report a refusal, and carry out the pod's wish; called when a refusal is new or says something new.

        Returns a milder wish if too many pods of the pod's owner were refused (safety rule S12), else None.
        """

    def released(self, uid: str) -> None:
        """Report that a pod has ended and its grant is released; called once for each pod."""

    def written(self, results: tuple[Written, ...]) -> None:
        """Report the results of writes; called after each look that wrote."""

    def problem(self, what: str, text: str) -> None:
        """Report a problem of the node, which is no pod's doing; called when it is new.

        Args:
            what: its kind: "checkpoint", "cgroups", "devices", "in-force", "lost", "machine", "meminfo", "memory",
                "set-aside", "standing", "unlisted", "writers".
            text: the sentence.
        """
