"""Many agents' edges to the API server in one process, for `tools.bench.api`.

Each agent is the real `PodSource`, `Intake`, `Namespaces`, `PodReporter`, `Publisher`, `TopologyLoop` and
`read_start` with its own token, connections and threads, as on its own node. Two things are stand-ins, no others:

    * the engine: `AdmitsAtOnce` gives every pod the next whole CPUs of a machine of two NUMA nodes and tells the
      reporter, without a decision, a disk or a cgroup. What is measured is the API server, which sees no difference;
    * the composition: `Agent` starts these in the order that `agent.app.cluster.build` does, and nothing of the
    host. A
      real agent knows its pods from its saved ledger when it starts again; here its topology waits for the first
      list instead.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from agent.app.cluster.start import read_start
from agent.app.cluster.summary import SummaryText, says_the_same
from agent.app.cluster.topology_loop import TopologyLoop
from agent.core.admission.node import Node
from agent.core.request.annotations import PodSettings
from agent.kube.access import ApiAccess
from agent.kube.client import KubeClient
from agent.kube.objects.pod_objects import Raw
from agent.kube.publishing.pod_reporter import PodReporter
from agent.kube.publishing.publisher import Publisher, Regarding
from agent.kube.topology_crd import TopologyPublisher
from agent.kube.watch.handlers import PodSource
from agent.kube.watch.intake import Intake
from agent.kube.watch.namespaces import Namespaces
from agent.model.devices import DeviceInventory
from agent.model.idset import CpuSet
from agent.model.ledger import CpuBooks, Ledger, PodRecord
from agent.model.machine import Cpu, Machine, NumaNode
from agent.model.pod import Pod
from agent.model.rules import Policy, Rules, TopologyRules
from agent.node.device_tracker import DeviceTracker
from agent.node.state import State
from agent.node.tracked_pod import TrackedPod
from agent.settings import parse

WIDTH, GIB = 64, 1 << 30
RULES = Rules(topology=TopologyRules(policy=Policy.SINGLE_NUMA_NODE))
MACHINE = Machine(
    cpus=tuple(Cpu(id=each, node=each // 32, core=each, package=each // 32, die=0) for each in range(WIDTH)),
    nodes=tuple(
        NumaNode(
            number,
            CpuSet.from_ids(range(number * 32, number * 32 + 32)),
            128 * GIB,
            (),
            (10, 20) if not number else (20, 10),
        )
        for number in range(2)
    ),
)
NODE = Node(MACHINE, RULES, DeviceInventory())


@dataclass(frozen=True, slots=True)
class Place:
    """One agent to run: its node, the node's uid, its token; whether it publishes summaries."""

    node: str
    uid: str
    token: Path
    summaries: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    """What the agents of a process have done since their start, and how they are.

    Attributes:
        requests: "verb" or "verb status" (where the status is not of success) -> number, by the clients' own count.
        events: pods' events that reached the agents.
        strangers: events of pods of other nodes among them; must stay 0.
        synced: agents whose first list has been decided on and whose watches are open.
        waiting: things that are not decided or not told yet.
        restarts: watches that ended and were started again by the supervisor.
        cpu: seconds of this process.
        threads: of this process.
    """

    requests: Mapping[str, int]
    events: int
    strangers: int
    synced: int
    waiting: int
    restarts: int
    cpu: float
    threads: int


class AdmitsAtOnce:
    """Stands in for the engine: every pod gets the next CPUs."""

    def __init__(self, node: str) -> None:
        self.node = node
        self.reporter: PodReporter | None = None
        self.ledger = Ledger(machine="", cpus=CpuBooks(shared=CpuSet.from_ids(range(WIDTH))))
        self.shown = State(self.ledger, NODE, DeviceTracker(NODE))
        self.lock = threading.Lock()

    @property
    def changed(self) -> bool:
        """Whether there is more than was shown."""
        return self.shown.ledger is not self.ledger

    def snapshot(self) -> State:
        """What the topology's loop reads; the same object while nothing changes."""
        with self.lock:
            if self.shown.ledger is not self.ledger:
                known = {uid: TrackedPod(record.pod, PodSettings()) for uid, record in self.ledger.pods.items()}
                self.shown = State(self.ledger, NODE, DeviceTracker(NODE), known)
            return self.shown

    def pods_seen(self, pods: list[Pod], *, ran: frozenset[str]) -> None:
        """Admit the new ones; those that are known are told again, as the reporter must bear."""
        for pod in pods:
            with self.lock:
                if pod.uid not in self.ledger.pods:
                    self._admit(pod, adopted=pod.uid in ran)
                ledger = self.ledger
            if self.reporter is not None:
                self.reporter.admitted(pod, ledger, PodSettings())

    def pods_gone(self, uids: list[str]) -> None:
        """Free what they hold."""
        for uid in uids:
            with self.lock:
                if uid not in self.ledger.pods:
                    continue
                cpus = self.ledger.cpus
                assigned = {key: value for key, value in cpus.assigned.items() if key != uid}
                shared = cpus.shared | CpuSet.union(cpus.assigned[uid].values())
                pods = {key: value for key, value in self.ledger.pods.items() if key != uid}
                self.ledger = replace(self.ledger, cpus=CpuBooks(shared, assigned), pods=pods)
            if self.reporter is not None:
                self.reporter.released(uid)

    def pods_listed(self, uids: frozenset[str]) -> None:
        """Whoever is not listed is gone."""
        self.pods_gone(sorted(set(self.ledger.pods) - uids))

    def containers_announced(self, names: Mapping[str, tuple[str, str]]) -> None:
        """See the intake's Engine."""

    def containers_seen(self, names: Mapping[str, tuple[str, str]]) -> None:
        """No cgroup here follows from it."""

    def _admit(self, pod: Pod, *, adopted: bool) -> None:
        cpus = self.ledger.cpus
        mine: dict[str, CpuSet] = {}
        shared = cpus.shared
        for container in pod.containers:
            wanted = max(1, container.requests.get("cpu", 1000) // 1000)
            mine[container.name] = CpuSet.from_ids(sorted(shared)[:wanted])
            shared -= mine[container.name]
        record = PodRecord(pod, RULES.topology.policy.value, RULES.topology.scope.value, adopted=adopted)
        self.ledger = replace(
            self.ledger,
            cpus=CpuBooks(shared, {**cpus.assigned, pod.uid: mine}),
            pods={**self.ledger.pods, pod.uid: record},
        )


class Counting(Intake):
    """The intake, with a count of what comes in."""

    events = strangers = 0
    node_name = ""

    def pod_changed(self, body: Raw) -> None:
        """Count, then as usual."""
        self._counted(body)
        super().pod_changed(body)

    def pod_deleted(self, body: Raw) -> None:
        """Count, then as usual."""
        self._counted(body)
        super().pod_deleted(body)

    def _counted(self, body: Raw) -> None:
        self.events += 1
        self.strangers += body["spec"].get("nodeName") != self.node_name


class Agent:
    """One node's edges."""

    def __init__(self, server: str, ca: Path, place: Place) -> None:
        self.place = place
        self.requests: Counter[str] = Counter()
        access = ApiAccess(server, ca, place.token, check_name=False)
        self.client = KubeClient(access, place.node, self._count)
        self.publisher = Publisher(self.client, place.node)
        self.engine = AdmitsAtOnce(place.node)
        about = Regarding("Node", "", place.node, place.uid)
        self.engine.reporter = PodReporter(self.publisher, about, lambda: (MACHINE, RULES))
        self._spaces = Namespaces(self._read_namespace)
        self.intake = Counting(self.engine, self.engine.reporter, self._spaces.annotations)
        self.intake.node_name = place.node
        self._shown: State | None = None
        self._looks = 0
        self.source = PodSource(access, place.node, self.intake, self._count)
        chosen = parse({"fleet": {"publish": place.summaries}})[0]
        self.topology = TopologyLoop(
            TopologyPublisher(self.client, says_the_same), place.node, snapshot=self.engine.snapshot,
            node_uid=self._uid, enforcing=lambda: True, problem=logging.getLogger(__name__).error,
            summary=SummaryText(lambda: chosen).of,
        )  # fmt: skip

    def start(self) -> None:
        """What is asked at start, then the threads."""
        read_start(self.client, self.place.node, self._spaces.annotations)
        self.publisher.start()
        self.topology.start()
        self.intake.start()
        self.source.start()

    @property
    def synced(self) -> bool:
        """Whether it is up: listed, decided, watching."""
        watches = self.requests["WATCH pods"] and self.requests["WATCH nodes"]
        return bool(watches) and self.intake.synced.is_set()

    @property
    def waiting(self) -> int:
        """What is not done yet. A topology is published when its loop comes again and finds what it found before."""
        behind = self.engine.changed or self._looks < 2
        return self.intake.waiting + self.publisher.waiting + behind

    def stop(self) -> None:
        """End the threads."""
        self.source.stop()
        self.intake.stop()
        self.topology.stop()
        self.publisher.stop()
        self.client.close()

    def _count(self, verb: str, status: int, _seconds: float) -> None:
        self.requests[verb if 200 <= status < 300 else f"{verb} {status}"] += 1

    def _uid(self) -> str:
        """Of the Node, asked after the snapshot; "" keeps the topology back until the pods are known."""
        if not self.intake.synced.is_set():
            return ""
        before, self._shown = self._shown, self.engine.shown
        self._looks = self._looks + 1 if self._shown is before else 1
        return self.place.uid

    def _read_namespace(self, path: str) -> Mapping[str, Any]:
        return self.client.call("GET", path, verb="GET namespaces")


def run(server: str, ca: Path, places: list[Place], pipe: Connection) -> None:
    """The whole life of a process: start the agents, answer "report" with a Report, end at "stop"."""
    logging.basicConfig(level=logging.ERROR, format="%(asctime)s %(name)s %(message)s")
    logging.getLogger("agent").setLevel(logging.WARNING)
    agents = [Agent(server, ca, place) for place in places]
    for agent in agents:
        agent.start()
    while True:
        if pipe.recv() != "report":
            break
        pipe.send(_report(agents))
    enders = [threading.Thread(target=agent.stop) for agent in agents]
    for ender in enders:
        ender.start()
    for ender in enders:
        ender.join(30)
    with contextlib.suppress(OSError):  # the parent ended first
        pipe.send(_report(agents))


def _report(agents: list[Agent]) -> Report:
    total: Counter[str] = Counter()
    for agent in agents:
        total.update(dict(agent.requests))
    return Report(
        requests=dict(total),
        events=sum(agent.intake.events for agent in agents),
        strangers=sum(agent.intake.strangers for agent in agents),
        synced=sum(agent.synced for agent in agents),
        waiting=sum(agent.waiting for agent in agents),
        restarts=sum(agent.source.restarts for agent in agents),
        cpu=time.process_time(),
        threads=threading.active_count(),
    )
