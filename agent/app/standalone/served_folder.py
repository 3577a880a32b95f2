"""A folder of manifests on a tree: its pods, their uids, and their containers that exist."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from agent.app.standalone.runtime import names_of
from agent.app.standalone.static_pods import StaticPods
from agent.app.trees import ServedTree
from agent.host.manifests import read_folder
from agent.host.nri.values import Sandbox
from agent.host.podlogs import read_pod_logs
from agent.host.standin import containers_in
from agent.model.pod import Pod


class ServedFolder:
    """The folder; the loop reads it again and again, and `find` is called on the runtime's thread.

    Args:
        path: of the folder.
        tree: where the pods' cgroups are.
        static: names and uids of static pods, where a kubelet makes the cgroups.
        wake: makes the loop turn.

    Attributes:
        path: the same.
        now: as it was read last.
    """

    def __init__(self, path: Path, tree: ServedTree, static: StaticPods, wake: Callable[[], None]) -> None:
        self.path = path
        self._tree = tree
        self._static = static
        self._wake = wake
        self.now = read_folder(path)

    def read(self) -> None:
        """Read it again."""
        self.now = read_folder(self.path).keeping(self.now)

    def pods(self, sandboxes: Iterable[Sandbox] = ()) -> tuple[Pod, ...]:
        """The pods to serve; with a kubelet those that it has started, by the uid that their cgroups carry.

        Args:
            sandboxes: see StaticPods.
        """
        return self.now.pods if self._tree.standin else self._static.running(self.now.pods, sandboxes)

    def names(self) -> Mapping[str, tuple[str, str]]:
        """Container id -> (pod uid, container name) of the containers that are there now."""
        if self._tree.standin is None:
            return read_pod_logs(self._static.log_dir).containers
        there = set().union(*containers_in(self._tree.cgroups).values())
        named = {number: each for pod in self.now.pods for number, each in names_of(pod).items()}
        return {number: each for number, each in named.items() if number in there}

    def find(self, namespace: str, name: str, uid: str) -> Pod | None:
        """A pod of the folder that the runtime is about to start."""
        self._wake()  # a pass over the folder that had begun before would take the pod for one that left
        return self._static.find(self.now.pods, namespace, name, uid)
