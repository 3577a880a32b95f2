"""The scenario of `tools.bench.api`: what agents cost the API server, phase by phase, and what others' pods add.

start       all agents at once: discovery, lists, watches, and the first reports about the pods that are there
idle        nothing changes
others      pods and nodes of others change all the time
own         pods come, run and go on the agents' nodes; at later levels while others change too
restart     all agents again: nothing may be written
alone-*     the same without agents, to know what the cluster costs by itself
"""

from __future__ import annotations

import itertools
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import yaml

from agent.kube.topology_crd import PATH
from tests.cluster.control_plane import ControlPlane, cpu_seconds
from tests.cluster.objects import namespace, pod
from tools.bench import crowd as c
from tools.bench.edges import Place, Report
from tools.bench.fleet import Fleet
from tools.bench.phases import Phase, Plan
from tools.bench.relay import Relay, Traffic

DEPLOY = Path(__file__).parents[2] / "deploy"
OTHERS_MIX = 6
"""Of so many changes of others one is a node's status, the rest are pods."""
BRIEF = 110
"""After so many changes a new pod of others is deleted: long enough for its creation to be answered."""


@dataclass(frozen=True, slots=True)
class _Reading:
    at: float
    traffic: Traffic
    report: Report
    server_cpu: float
    etcd_cpu: float
    etcd_written: int


class Scenario:
    """A cluster, a crowd and a fleet; `with Scenario(...) as scenario: phases = scenario.run()`."""

    def __init__(
        self, program: Path, folder: Path, plan: Plan, say: Callable[[str], None] = lambda _text: None
    ) -> None:
        self.plan, self.say = plan, say
        self.phases: list[Phase] = []
        self.version = ""
        self.object = ""
        """One agent's NodeResourceTopology, as the server sends it."""
        self._folder = folder
        self._cluster = ControlPlane(program, folder)
        self._exit = ExitStack()
        self._others = self._turn = 0

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self._cluster)
            self._relay = stack.enter_context(Relay(self._cluster.port))
            self._crowd, self._owners = c.Crowd(self._cluster), c.Crowd(self._cluster, 4)
            stack.callback(self._owners.stop)
            stack.callback(self._crowd.stop)
            self._furnish()
            self.fleet = Fleet(
                f"https://127.0.0.1:{self._relay.port}", self._cluster.ca, self._places(), self.plan.processes
            )
            stack.callback(lambda: self.fleet.stop() if self.fleet.pipes else None)
            self._exit = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._exit.close()

    def run(self) -> list[Phase]:
        """All phases, in order."""
        plan = self.plan
        self._phase("start", self._start)
        for level in plan.levels:
            self._grow(level)
            if level:
                self._phase("others", self._change_others)
                self._phase("own", lambda: self._own(others=True))
            else:
                self._phase("idle", lambda: time.sleep(plan.quiet))
                self._phase("own", self._own)
        self.object = self._cluster.call("GET", f"{PATH}/{c.served_name(0)}", raw=True)
        self._phase("restart", self._restart)
        self.fleet.stop()
        self._phase("alone-idle", lambda: time.sleep(plan.quiet / 2))
        if plan.levels[-1]:
            self._phase("alone-others", self._change_others)
        self._phase("alone-own", self._own)
        return self.phases

    # ---- the cluster

    def _furnish(self) -> None:
        """CRD, rights, nodes, and the pods of the served nodes."""
        plan, cluster = self.plan, self._cluster
        self.version = cluster.call("GET", "/version")["gitVersion"]
        cluster.create(*(namespace(name) for name in ("numalign-system", c.OTHERS, c.SERVED)))
        for name in ("crds/noderesourcetopologies", "access/rbac", "access/admission-policy"):
            cluster.create(*yaml.safe_load_all((DEPLOY / f"{name}.yaml").read_text()))
        served = [c.served_name(number) for number in range(plan.agents)]
        self.strange = [c.other_name(number) for number in range(plan.nodes - plan.agents)]
        self._crowd.all(c.add_node(name) for name in [*served, *self.strange])
        self._crowd.all(
            c.add_pod(c.SERVED, f"{name}-{number}", name) for name in served for number in range(plan.present)
        )
        self.say(f"{plan.nodes} nodes, {plan.agents * plan.present} pods on {plan.agents} nodes with an agent")

    def _places(self) -> list[Place]:
        """Per agent a token bound to its pod, and so to its node, as the kubelet would mount it."""
        folder = self._folder / "tokens"
        folder.mkdir()
        line, places = c.Line(self._cluster), []
        for number in range(self.plan.agents):
            name = c.served_name(number)
            body = pod(f"agent-{name}", name, space="numalign-system", serviceAccountName="numalign")
            agent = line.call("POST", c.PODS.format("numalign-system"), body)
            bound = {"kind": "Pod", "apiVersion": "v1", "name": f"agent-{name}", "uid": agent["metadata"]["uid"]}
            answer = line.call(
                "POST", "/api/v1/namespaces/numalign-system/serviceaccounts/numalign/token",
                {
                    "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
                    "spec": {"expirationSeconds": 7200, "boundObjectRef": bound},
                },
            )  # fmt: skip
            (folder / name).write_text(answer["status"]["token"])
            uid = line.call("GET", f"/api/v1/nodes/{name}")["metadata"]["uid"]
            places.append(Place(name, uid, folder / name, self.plan.summaries))
        line.close()
        return places

    def _grow(self, level: int) -> None:
        first, self._others = self._others, level
        if level > first:
            self._crowd.all(
                c.add_pod(c.OTHERS, f"p-{number}", self.strange[number % len(self.strange)])
                for number in range(first, level)
            )
        time.sleep(self.plan.settle)

    # ---- what happens in phases; each returns (others' changes, own pods)

    def _start(self) -> None:
        self.fleet.start()
        self.fleet.wait()

    def _restart(self) -> None:
        self.fleet.stop()
        self._start()

    def _change_others(self) -> tuple[int, int]:
        many = int(self.plan.rate * self.plan.quiet)  # and not what a machine can do meanwhile
        return self._crowd.at(self.plan.rate, itertools.islice(self._changes(), many)), 0

    def _own(self, *, others: bool = False) -> tuple[int, int]:
        over, changes = threading.Event(), [0]

        def busy() -> None:
            changes[0] = self._crowd.at(
                self.plan.rate, itertools.takewhile(lambda _: not over.is_set(), self._changes())
            )

        thread = threading.Thread(target=busy)
        if others:
            thread.start()
        try:
            for part in self._steps() if self.plan.steps else (self._lives(),):
                self._owners.at(self.plan.own_rate, part)
                if self.fleet.pipes:
                    self.fleet.wait()
        finally:
            over.set()
            if others:
                thread.join()
        return changes[0], self.plan.own

    def _changes(self) -> Iterator[c.Job]:
        """Of every twenty changes of others' pods one is a new pod and one the end of it."""
        first = self._turn
        for turn in itertools.count(first):
            self._turn = turn + 1
            if turn % OTHERS_MIX == 0:
                yield c.beat(self.strange[turn % len(self.strange)], turn)
            elif turn % 20 == 1:
                yield c.add_pod(c.OTHERS, f"brief-{turn}", self.strange[turn % len(self.strange)])
            elif turn % 20 == 11 and turn - BRIEF >= first and (turn - BRIEF) % OTHERS_MIX:
                yield c.drop_pod(c.OTHERS, f"brief-{turn - BRIEF}")
            else:
                yield c.mark_pod(c.OTHERS, f"p-{turn * 7919 % max(1, self._others)}", turn)

    def _steps(self) -> Iterator[list[c.Job]]:
        """Own pods: all are created, all run, all go."""
        self._turn += 1
        names = [f"step-{self._turn}-{number}" for number in range(self.plan.own)]
        yield [
            c.add_pod(c.SERVED, each, c.served_name(number % self.plan.agents)) for number, each in enumerate(names)
        ]
        yield [c.run_pod(c.SERVED, each) for each in names]
        yield [c.drop_pod(c.SERVED, each) for each in names]

    def _lives(self) -> Iterator[c.Job]:
        """Own pods: created, running a while later, gone a while later."""
        self._turn += 1
        names = [f"life-{self._turn}-{number}" for number in range(self.plan.own)]
        lag = min(20, self.plan.own)
        for number in range(self.plan.own + 2 * lag):
            if number < self.plan.own:
                yield c.add_pod(c.SERVED, names[number], c.served_name(number % self.plan.agents))
            if 0 <= number - lag < self.plan.own:
                yield c.run_pod(c.SERVED, names[number - lag])
            if number >= 2 * lag:
                yield c.drop_pod(c.SERVED, names[number - 2 * lag])

    # ---- measuring

    def _phase(self, name: str, work: Callable[[], tuple[int, int] | None]) -> None:
        counted = self._metrics()
        before = self._reading()
        changes, pods = work() or (0, 0)
        after = self._reading()
        served, sent, watches = self._metrics()
        requests = Counter(after.report.requests)
        requests.subtract(before.report.requests)
        found = Phase(
            name, self._others, after.at - before.at, changes, pods, after.traffic.since(before.traffic),
            {verb: number for verb, number in sorted(requests.items()) if number},
            _less(served, counted[0]), _less(sent, counted[1]), dict(watches),
            after.report.events - before.report.events, after.report.strangers - before.report.strangers,
            after.server_cpu - before.server_cpu, after.etcd_cpu - before.etcd_cpu,
            after.report.cpu - before.report.cpu, self._memory(), after.etcd_written - before.etcd_written,
        )  # fmt: skip
        self.phases.append(found)
        asked = ", ".join(f"{number} {verb}" for verb, number in found.requests.items()) or "no request"
        asked = ", ".join(f"{number} {verb}" for verb, number in found.requests.items()) or "no request"
        received, used = found.traffic.received, found.server_cpu
        self.say(f"{name}: {found.seconds:.0f} s, {received:,} B in, {used:.1f} s of the server's CPU; {asked}")

    def _reading(self) -> _Reading:
        report = self.fleet.report()
        servers = self._cluster.processes
        return _Reading(
            time.monotonic(), self._relay.traffic, report,
            cpu_seconds(servers["kube-apiserver"]), cpu_seconds(servers["etcd"]), self._cluster.etcd_written(),
        )  # fmt: skip

    def _memory(self) -> int:
        status = Path(f"/proc/{self._cluster.processes['kube-apiserver'].pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+) kB", status)
        return int(found[1]) * 1024 if found else 0

    def _metrics(self) -> tuple[Counter[str], Counter[str], Counter[str]]:
        """The server's own counts: requests, watch events sent, watches open."""
        text = self._cluster.call("GET", "/metrics", raw=True, timeout=60)
        served: Counter[str] = Counter()
        sent: Counter[str] = Counter()
        watches: Counter[str] = Counter()
        for line in text.splitlines():
            name, _, rest = line.partition("{")
            if name not in {
                "apiserver_request_total",
                "apiserver_watch_events_total",
                "apiserver_longrunning_requests",
            }:
                continue
            labels, _, value = rest.rpartition("} ")
            found = dict(re.findall(r'(\w+)="([^"]*)"', labels))
            resource = found.get("resource") or found.get("kind", "")
            if name == "apiserver_request_total":
                part = f"/{found['subresource']}" if found.get("subresource") else ""
                served[f"{found['verb']} {resource}{part}"] += int(float(value))
            elif name == "apiserver_watch_events_total":
                sent[resource] += int(float(value))
            elif found.get("verb") == "WATCH":
                watches[resource] += int(float(value))
        return served, sent, watches


def _less(after: Counter[str], before: Counter[str]) -> dict[str, int]:
    return {key: after[key] - before[key] for key in sorted(after) if after[key] != before[key]}
