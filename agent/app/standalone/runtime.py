"""Plays kubelet and runtime for pods from a folder: cgroups, init containers one after the other, a process each.

Used by `agent.app.standalone.folder_pods` where no kubelet is. The order is the real one: the pod is admitted and
saved, its cgroup is made and confined while it is empty, only then a process enters. Init containers run one by one
and end before the others start; sidecars stay. Pods go through this together, round by round, so that a folder of
hundreds costs a few writes of the engine and not one per container.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from agent.app.trees import ServedTree
from agent.engine.engine import Engine
from agent.errors import HostError
from agent.host.processes import Allowed, Key, Processes
from agent.host.standin import StandIn, container_id, containers_in
from agent.model.cgroup import Level
from agent.model.pod import ContainerKind, Pod
from agent.observe.logs import LOG

Round = tuple[tuple[str, ...], bool]
"""Names of the containers that start together, and whether they end before the next round."""


@dataclass
class PlayedRuntime:
    """The runtime's part.

    Attributes:
        tree: where cgroups are made.
        engine: gets every container.
        processes: started in the cgroups; None where none can be (a recorded machine).
        words: what the kernel said of each container's process, of init containers too.
        running: the pods whose containers are up.
    """

    tree: ServedTree
    engine: Engine
    processes: Processes | None
    words: dict[Key, Allowed] = field(default_factory=dict)
    running: dict[str, Pod] = field(default_factory=dict)
    _paths: dict[Key, str] = field(default_factory=dict)

    def stop(self, uids: Iterable[str]) -> None:
        """End pods: processes first, then their cgroups."""
        for uid in uids:
            if self.processes is not None:
                self.processes.stop(uid)
            self._standin.remove_pod(uid)
            self.running.pop(uid, None)
            for key in [key for key in self._paths if key[0] == uid]:
                del self._paths[key]
                self.words.pop(key, None)

    def present(self) -> set[str]:
        """Uids of pods that have cgroups, from an earlier run too."""
        return set(containers_in(self.tree.cgroups))

    def run(self, pods: Iterable[Pod]) -> None:
        """Bring these pods up, those that are in the ledger and not up yet."""
        there = containers_in(self.tree.cgroups)
        rounds = {}
        ledger = self.engine.ledger
        for pod in pods:
            if pod.uid in ledger.pods and pod.uid not in self.running:
                self._standin.add_pod(pod)
                rounds[pod.uid] = pod, _rounds(pod, there.get(pod.uid, set()))
        number = 0
        while any(number < len(each) for _, each in rounds.values()):
            now = [(pod, *each[number]) for pod, each in rounds.values() if number < len(each)]
            self._round(now)
            number += 1
        self.running |= {uid: pod for uid, (pod, _) in rounds.items()}
        self.listen()

    def listen(self) -> None:
        """Ask the kernel about every process; in a scratch tree, first see to it that the tree is followed."""
        if self.processes is None:
            return
        if not self.tree.real:
            self._follow_tree()
        for key in self._paths:
            allowed = self.processes.allowed(key)
            if allowed is not None:
                self.words[key] = allowed

    def close(self) -> None:
        """End all processes; cgroups of ours that are empty then go from a real hierarchy."""
        if self.processes is not None:
            self.processes.close()
        self._standin.close()

    @property
    def _standin(self) -> StandIn:
        if self.tree.standin is None:
            raise ValueError("a kubelet's cgroups are not ours to make")
        return self.tree.standin

    def _round(self, now: list[tuple[Pod, tuple[str, ...], bool]]) -> None:
        seen = {}
        for pod, names, _ in now:
            for name in names:
                self._paths[pod.uid, name] = self._standin.add_container(pod, name)
                seen[container_id(pod.uid, name)] = (pod.uid, name)
        self.engine.containers_seen(seen)
        for pod, names, _ in now:
            for name in names:
                self._start((pod.uid, name))
        ending = [(pod, name) for pod, names, ends in now if ends for name in names]
        if ending:
            self.listen()
        for pod, name in ending:
            if self.processes is not None:
                self.processes.stop(pod.uid, name)
            self._standin.remove_container(pod, name)
            del self._paths[pod.uid, name]

    def _start(self, key: Key) -> None:
        if self.processes is None:
            return
        pid = self.processes.start(key)
        try:
            self._standin.attach(self._paths[key], pid)
        except HostError as error:
            LOG.error("%s", error, extra={"facts": {"container": key[1]}})

    def _follow_tree(self) -> None:
        """No kernel stands behind a scratch tree: each process is put where the tree says, by sched_setaffinity."""
        if self.processes is None:
            return
        found = self.tree.cgroups.observe().cgroups
        sets = {each.path: each.effective_cpus for each in found if each.level is Level.CONTAINER}
        for key, path in self._paths.items():
            if sets.get(path):
                self.processes.confine(key, sets[path])


def names_of(pod: Pod) -> dict[str, tuple[str, str]]:
    """Container ids of a pod, whether they are there or not: id -> (pod uid, container name)."""
    return {container_id(pod.uid, each.name): (pod.uid, each.name) for each in pod.containers}


def _rounds(pod: Pod, there: set[str]) -> list[Round]:
    """What is left to start: nothing that ended already runs again once an app container is there."""
    apps = tuple(each.name for each in pod.containers if each.kind is ContainerKind.APP)
    side = tuple(each.name for each in pod.containers if each.kind is ContainerKind.SIDECAR)
    if any(container_id(pod.uid, name) in there for name in apps):
        return [((*side, *apps), False)]
    before = [each for each in pod.containers if each.kind is not ContainerKind.APP]
    return [*(((each.name,), each.kind is ContainerKind.INIT) for each in before), (apps, False)]
