"""Many agents' edges to the API server in one process, for `tests.bench.api`.

Each agent is the real `PodSource`, `Intake`, `Namespaces`, `ClusterTeller`, `Publisher` and `TopologyPublisher` with
its own token, connections and threads, as on its own node. Two things are stand-ins, and only these:

    * the engine: `AdmitsAtOnce` gives every pod the next whole CPUs of a machine of two NUMA nodes and tells the
      teller, without a decision, a disk or a cgroup. What is measured is the API server, which sees no difference;
    * the composition: publishing the topology is done by one thread per process for its agents, at most once a second
      per agent.
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

from agent.core.asks import Ask
from agent.errors import KubeError
from agent.kube.access import Access
from agent.kube.bodies import Raw
from agent.kube.client import KubeClient
from agent.kube.handlers import PodSource
from agent.kube.intake import Intake
from agent.kube.namespaces import Namespaces
from agent.kube.publish import Publisher, Regarding
from agent.kube.teller import ClusterTeller
from agent.kube.topology_crd import TopologyPublisher, topology_object
from agent.model.idset import CpuSet
from agent.model.ledger import CpuBooks, Ledger, PodRecord
from agent.model.machine import Cpu, Machine, NumaNode
from agent.model.pod import Pod
from agent.model.rules import Policy, Rules, TopologyRules

WIDTH, GIB = 64, 1 << 30
TOPOLOGY_GAP = 1.0
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


@dataclass(frozen=True, slots=True)
class Place:
    """One agent to run: its node, the node's uid, its token."""

    node: str
    uid: str
    token: Path


@dataclass(frozen=True, slots=True)
class Report:
    """What the agents of a process have done since their start, and how they are.

    Attributes:
        requests: "verb" or "verb status" (where the status is not of success) -> number, by the clients' own count.
        events: pods' events that reached the agents.
        strangers: events of pods of other nodes among them; must stay 0.
        synced: agents whose first list has been decided on.
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
        self.teller: ClusterTeller | None = None
        self.ledger = Ledger(machine="", cpus=CpuBooks(shared=CpuSet.from_ids(range(WIDTH))))
        self.changed = True
        self.lock = threading.Lock()

    def pods_seen(self, pods: list[Pod], *, ran: frozenset[str]) -> None:
        """Admit the new ones; those that are known are told again, as the teller must bear."""
        for pod in pods:
            with self.lock:
                if pod.uid not in self.ledger.pods:
                    self._admit(pod, adopted=pod.uid in ran)
                ledger = self.ledger
            if self.teller is not None:
                self.teller.admitted(pod, ledger, Ask())

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
                self.changed = True
            if self.teller is not None:
                self.teller.released(uid)

    def pods_listed(self, uids: frozenset[str]) -> None:
        """Whoever is not listed is gone."""
        self.pods_gone(sorted(set(self.ledger.pods) - uids))

    def container_seen(self, container_id: str, uid: str, name: str) -> None:
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
        self.changed = True


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
        access = Access(server, ca, place.token, check_name=False)
        self.client = KubeClient(access, place.node, self._count)
        self.publisher = Publisher(self.client, place.node)
        self.engine = AdmitsAtOnce(place.node)
        about = Regarding("Node", "", place.node, place.uid)
        self.engine.teller = ClusterTeller(self.publisher, about, lambda: (MACHINE, RULES))
        self.intake = Counting(self.engine, self.engine.teller, Namespaces(self._read_namespace).annotations)
        self.intake.node_name = place.node
        self.source = PodSource(access, place.node, self.intake, self._count)
        self.topology = TopologyPublisher(self.client)
        self.due = 0.0

    def start(self) -> None:
        """Start the threads."""
        self.publisher.start()
        self.intake.start()
        self.source.start()

    def publish_topology(self) -> None:
        """When something changed and the last time is a second ago."""
        if time.monotonic() < self.due or not self.intake.synced.is_set():
            return
        with self.engine.lock:
            if not self.engine.changed:
                return
            self.engine.changed, ledger = False, self.engine.ledger
        self.due = time.monotonic() + TOPOLOGY_GAP
        pods = [record.pod for record in ledger.pods.values()]
        body = topology_object(
            MACHINE, ledger, RULES, reserved=CpuSet(), node=self.place.node, node_uid=self.place.uid, pods=pods
        )
        try:
            self.topology.publish(body)
        except KubeError:
            logging.getLogger(__name__).exception("the topology of %s", self.place.node)
            self.engine.changed = True

    @property
    def waiting(self) -> int:
        """What is not done yet."""
        return self.intake.waiting + self.publisher.waiting + int(self.engine.changed)

    def stop(self) -> None:
        """End the threads."""
        self.source.stop()
        self.intake.stop()
        self.publisher.stop()
        self.client.close()

    def _count(self, verb: str, status: int, _seconds: float) -> None:
        self.requests[verb if 200 <= status < 300 else f"{verb} {status}"] += 1

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
        if pipe.poll(0.2):
            if pipe.recv() != "report":
                break
            pipe.send(_report(agents))
        for agent in agents:
            agent.publish_topology()
    enders = [threading.Thread(target=agent.stop) for agent in agents]
    for ender in enders:
        ender.start()
    for ender in enders:
        ender.join(30)
    with contextlib.suppress(OSError):
        pipe.send(_report(agents))


def _report(agents: list[Agent]) -> Report:
    total: Counter[str] = Counter()
    for agent in agents:
        total.update(dict(agent.requests))
    return Report(
        requests=dict(total),
        events=sum(agent.intake.events for agent in agents),
        strangers=sum(agent.intake.strangers for agent in agents),
        synced=sum(agent.intake.synced.is_set() for agent in agents),
        waiting=sum(agent.waiting for agent in agents),
        restarts=sum(agent.source.restarts for agent in agents),
        cpu=time.process_time(),
        threads=threading.active_count(),
    )
