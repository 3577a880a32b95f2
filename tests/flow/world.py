"""A world for the engine: a machine in words, a scratch tree whose kernel behaves, a store in memory, ears.

State-transition tests: build a world, let one thing happen, look at the world after it. `check` holds in every world
and is called after every event: the ledger is coherent and saved, and no two containers run on one exclusive CPU.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent.app.reporters import Reporters
from agent.core.accounting import invariants
from agent.core.admission.node import Node
from agent.core.cgroups.cuts import saved_in
from agent.core.cgroups.desired import mixed_part
from agent.core.cgroups.enforced import Unenforced
from agent.core.machines.in_force import within
from agent.core.machines.synthetic import parse_synthetic
from agent.core.request.annotations import PodSettings
from agent.engine.engine import Engine
from agent.engine.memory_pressure import Room
from agent.engine.ports import Reporter
from agent.errors import CheckpointUnwritableError
from agent.host.cgroups import Cgroups, Kernel
from agent.host.scratch import Scratch
from agent.host.standin import container_id, containers_in
from agent.kube import pod_report as pod_reports
from agent.kube.objects.pod_objects import seen
from agent.kube.pod_report import PodReport
from agent.model.cgroup import Level, Written
from agent.model.idset import CpuSet
from agent.model.ledger import Ledger
from agent.model.machine import Machine
from agent.model.outcome import Refusal
from agent.model.pod import Pod
from agent.model.podspec import pod_from
from agent.node.adopt import AnnotatedGrant
from agent.node.recover import LISTED, Recovered, names_in, recover
from agent.node.tracked_pod import Switches
from tests.world.manifests import container, manifest
from tests.world.nodes import managers_of

__all__ = ["Ears", "MemoryStore", "Moody", "World", "container", "manifest"]


@dataclass
class MemoryStore:
    """Keeps the last ledger; refuses while `full`."""

    saved: Ledger | None = None
    extra: Mapping[str, object] = field(default_factory=dict)
    full: str = ""
    saves: int = 0

    def save(self, ledger: Ledger, extra: Mapping[str, object] | None = None) -> None:
        if self.full:
            raise CheckpointUnwritableError("/state/checkpoint.json", self.full)
        self.saved, self.extra, self.saves = ledger, extra or {}, self.saves + 1


@dataclass
class Ears:
    """Hears what the engine tells."""

    admitted_: list[str] = field(default_factory=list)
    refused_: dict[str, Refusal] = field(default_factory=dict)
    released_: list[str] = field(default_factory=list)
    written_: list[Written] = field(default_factory=list)
    problems: list[tuple[str, str]] = field(default_factory=list)
    unenforced: dict[str, dict[str, str]] = field(default_factory=dict)
    """What was told last of each pod: container -> why it does not have what it was granted; empty when it has."""
    words: list[str] = field(default_factory=list)
    """Uids of pods, once for each time that something was told of them."""
    told: dict[str, str] = field(default_factory=dict)
    """The CPUs that each pod was told last, of all its containers."""

    def admitted(self, pod: Pod, ledger: Ledger, settings: PodSettings, unenforced: Unenforced) -> None:
        self.admitted_.append(pod.uid)
        self.enforced(pod, ledger, settings, unenforced)

    def enforced(self, pod: Pod, ledger: Ledger, settings: PodSettings, unenforced: Unenforced) -> None:
        self.unenforced[pod.uid] = dict(unenforced)
        self.words.append(pod.uid)
        self.told[pod.uid] = str(CpuSet.union(ledger.cpus.assigned.get(pod.uid, {}).values()))

    def refused(self, pod: Pod, refusal: Refusal, settings: PodSettings) -> None:
        self.refused_[pod.uid] = refusal

    def released(self, uid: str) -> None:
        self.released_.append(uid)

    def written(self, results: tuple[Written, ...]) -> None:
        self.written_ += results

    def problem(self, what: str, text: str) -> None:
        self.problems.append((what, text))


class Moody:
    """A kernel that refuses writes for as long as it is told to."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._refused: dict[tuple[str, str], int] = {}
        self.refusals = 0
        """How many writes were refused."""
        self.before: Callable[[str, str, str], None] = lambda _path, _file, _value: None
        """Told of each write before it is made: path, file, value."""

    def refuse(self, error: int, file: str = "cpuset.cpus", path: str = "") -> None:
        """From now on, writes to a file of cgroups whose path has this text in it end with an errno."""
        self._refused[file, path] = error

    def mend(self) -> None:
        """From now on it takes every write."""
        self._refused.clear()

    @property
    def moody(self) -> bool:
        return bool(self._refused)

    def write(self, hierarchy: str, path: str, file: str, value: str) -> None:
        self.before(path, file, value)
        for (each, part), error in self._refused.items():
            if file == each and part in path:
                self.refusals += 1
                raise OSError(error, os.strerror(error))
        self._kernel.write(hierarchy, path, file, value)


class World:
    """One node. `folder` holds its scratch tree; a second World on the same folder is the node after a restart."""

    def __init__(
        self, folder: Path, *, machine: str | Machine = "2 sockets x 1 node x 4 cores x 1 thread",
        settings: Mapping[str, Any] | None = None, store: MemoryStore | None = None, pods: Iterable[Pod] = (),
        exempt: Callable[[Pod], str] = lambda _pod: "", room: Room | None = None, reporters: Iterable[Reporter] = (),
        words: Mapping[str, AnnotatedGrant] | None = None, clock: Callable[[], float] = lambda: time.monotonic(),  # noqa: PLW0108 - a test may turn it
        **switches: Any,  # noqa: ANN401 - of several types
    ) -> None:  # fmt: skip
        self.settings = {"kubeReserved": {"cpu": "1"}, **(settings or {})}
        self.machine = parse_synthetic(machine) if isinstance(machine, str) else machine
        self.store, self.ears, self.steps = store or MemoryStore(), Ears(), list[str]()
        self.reporters = Reporters(self.ears, *reporters)
        try:
            self.tree = Scratch(folder)
        except Exception:  # noqa: BLE001 - no tree there yet
            self.tree = Scratch.create(folder, cpus=self.machine.online, nodes=self.machine.node_set)
        self.kernel = Moody(self.tree.kernel)
        self.cgroups = Cgroups(folder, kernel=self.kernel)
        self.pods = {pod.uid: pod for pod in pods}
        names = {**names_in(self.store.extra), **self.names()}
        node = self.node().on(within(self.machine, self.cgroups.in_force()))
        self.recovered: Recovered = recover(
            node, self.store.saved, self.cgroups.observe(), names, self.pods.values(),
            complete=bool(self.store.extra.get(LISTED, True)), words=words,
        )  # fmt: skip
        self.engine = Engine(
            node, self.recovered.ledger, cgroups=self.cgroups, store=self.store,
            reporter=self.reporters, exempt=exempt, switches=Switches(**switches), steps=self.steps.append,
            saved=self.recovered.as_saved, complete=self.recovered.complete, room=room, clock=clock,
        )  # fmt: skip
        stood = {each.path for each in self.recovered.standing if not each.sandbox}
        self.engine.names_at_start(names, stood, saved_in(self.store.extra))
        self.engine.inherit(self.recovered.before)
        self.engine.keep()

    def node(self, machine: Machine | None = None, **settings: Any) -> Node:  # noqa: ANN401 - a document's values
        """The managers, with other settings if any are named."""
        self.settings |= settings
        return managers_of(machine or self.machine, self.settings)

    def names(self) -> dict[str, tuple[str, str]]:
        there = set().union(*containers_in(self.cgroups).values())
        return {
            container_id(pod.uid, each.name): (pod.uid, each.name)
            for pod in self.pods.values()
            for each in pod.containers
            if container_id(pod.uid, each.name) in there
        }

    # ---- events

    def see(self, *bodies: Mapping[str, Any], ran: Iterable[str] = ()) -> None:
        pods = [pod_from(body) for body in bodies]
        self.pods |= {pod.uid: pod for pod in pods}
        self.engine.pods_seen(pods, ran=set(ran))
        self.check()

    def heard(self, *bodies: Mapping[str, Any]) -> None:
        """Pods are listed by the API with their status: what the kubelet says of them counts."""
        pods = [seen(body).pod for body in bodies]
        self.pods |= {pod.uid: pod for pod in pods}
        self.engine.pods_seen(pods)
        self.check()

    def start(self, uid: str, *names: str) -> None:
        """The runtime starts containers of a pod, all when none is named."""
        pod = self.pods[uid]
        self.tree.add_pod(uid, pod.qos)
        for each in pod.containers:
            if not names or each.name in names:
                number = container_id(uid, each.name)
                self.tree.add_container(uid, number)
                self.engine.containers_seen({number: (uid, each.name)})
        self.check()

    def end(self, uid: str) -> None:
        self.tree.remove_pod(uid)

    def run(self, body: Mapping[str, Any]) -> None:
        """A pod is listed, admitted and started."""
        self.see(body)
        self.start(body["metadata"]["uid"])

    # ---- what is

    def path(self, uid: str, name: str) -> str:
        number = container_id(uid, name)
        return next(each.path for each in self.cgroups.observe().cgroups if each.container_id == number)

    def effective(self, uid: str, name: str = "app") -> str:
        number = container_id(uid, name)
        return next(
            str(each.effective_cpus) for each in self.cgroups.observe().cgroups if each.container_id == number
        )

    def holds(self, uid: str, name: str = "app") -> str:
        """Its exclusive CPUs, "" for none."""
        return str(self.engine.ledger.grant(uid, name).cpus or "")

    def report(self, uid: str) -> PodReport:
        """What the pod carries: what was told of it last, as annotations and a condition."""
        refusal = self.ears.refused_.get(uid)
        if refusal is not None and uid not in self.engine.ledger.pods:
            return pod_reports.refused(uid, "default", uid, refusal, policy="", scope="")
        return pod_reports.admitted(
            uid, self.engine.ledger, self.engine.node.machine, unenforced=self.ears.unenforced[uid]
        )

    def condition(self, uid: str) -> str:
        report = self.report(uid)
        return f"{report.status} {report.reason}"

    def check(self) -> None:
        """What is true in every world."""
        ledger = self.engine.ledger
        invariants.check(ledger, self.engine.node, earlier=tuple(ledger.pods))
        assert self.store.saved in (ledger, None) or self.engine.snapshot.unwritable, "what holds was not saved"
        if (
            self.engine.switches.observe_only
            or not self.engine.snapshot.listening
            or self.kernel.moody
            or self.engine.snapshot.broken
        ):
            return
        ledger, names = self.engine.snapshot.in_effect, self.names()
        everyone = CpuSet.union(cpus for each in ledger.cpus.assigned.values() for cpus in each.values())
        for cgroup in self.cgroups.observe().cgroups:
            if cgroup.level is not Level.CONTAINER:
                continue
            uid, name = names.get(cgroup.container_id, (cgroup.pod_uid, ""))
            own = ledger.grant(uid, name).cpus
            own = own and own - self.engine.node.machine.barred  # nothing is left: it runs on the pool until it ends
            allowed = (own or ledger.cpus.shared) | mixed_part(ledger, uid, name, self.engine.node.machine)
            assert cgroup.effective_cpus.issubset(allowed or everyone), (
                f"{uid}/{name} runs on {cgroup.effective_cpus}"
            )
