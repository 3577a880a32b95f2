"""Servers and paper nodes for `tools.bench.gate_cluster`: each node decides with the real managers."""

from __future__ import annotations

import os
import platform
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.kube.client import KubeClient
from agent.kube.gate.patches import release_patch
from agent.model.podspec import pod_from
from agent.node.state import State
from tests import peers
from tests.cluster import gate_world as g
from tests.cluster.control_plane import ApiError, ControlPlane, cpu_seconds
from tests.cluster.objects import Object
from tools.bench import crowd as c
from tools.bench.gate import CPUS, MACHINE, SIZES, percentile

SETTINGS = {"topologyManagerPolicy": "single-numa-node", "onMisalignment": "fail"}
STOCK, FAST = {"qps": 50, "burst": 100}, {"qps": 1000, "burst": 2000}
SCORING = {"MostAllocated": "most-allocated", "LeastAllocated": "least-allocated"}
EVENTS = 'numalign_gate_events_total{what="'
Say = Callable[[str], None]
Told = Callable[[str, Object, bool, State], None]


def manifest(name: str, cpus: int, *, asks: bool = True, **spec: Any) -> Object:  # noqa: ANN401 - JSON
    """A pod: one that asks is Guaranteed, one that never asked shares CPUs."""
    body = g.asking(name, cpus, memory=f"{cpus}Gi", **({} if asks else {"annotations": {}}), **spec)
    if not asks:
        del body["spec"]["containers"][0]["resources"]["limits"]
    return body


class Nodes(g.PaperNodes):
    """The nodes, which tell what was decided.

    Args:
        cluster: the control plane.
        folder: for credentials.
        told: takes a bound pod: key, body, whether its node let it in, and the node's state before.
    """

    def __init__(self, cluster: ControlPlane, folder: Path, told: Told) -> None:
        super().__init__(cluster, folder, reports=False)
        self._told = told
        bodies = {cpus: manifest("tried", cpus) for cpus in SIZES}
        for each in bodies.values():
            each["metadata"]["uid"] = "tried"
        self._tried = {cpus: pod_from(each) for cpus, each in bodies.items()}
        self._known: dict[str, tuple[State, int, dict[int, bool]]] = {}

    @property
    def client(self) -> KubeClient:
        """The admin's client."""
        return self._client

    def _see(self, key: str, body: Object) -> None:
        there = self.nodes.get(body["spec"]["nodeName"])
        known, before = key in self.landed, there.run.state if there else None
        super()._see(key, body)
        if not known and key in self.landed and before is not None:
            self._told(key, body, key not in self.refused, before)

    def ended(self, key: str) -> None:
        """A pod's containers have ended."""
        self._gone(key)

    def fits(self, cpus: int) -> tuple[bool, bool]:
        """Whether some node has so many CPUs in all, and whether some node would take such a pod."""
        with self._lock:
            roomy = sorted(((self._free(name), name) for name in self.nodes), reverse=True)
            roomy = [each for each in roomy if each[0] >= cpus]
            return bool(roomy), any(self._takes(name, cpus) for _, name in roomy)

    def _free(self, name: str) -> int:
        state = self.nodes[name].run.state
        if name not in self._known or self._known[name][0] is not state:
            pods = (each.pod for each in state.ledger.pods.values())
            held = sum(each.requests["cpu"] for pod in pods for each in pod.containers)
            self._known[name] = state, CPUS - held // 1000, {}
        return self._known[name][1]

    def _takes(self, name: str, cpus: int) -> bool:
        found = self._known[name][2]
        if cpus not in found:
            trial = self.nodes[name].run.fork()
            trial.see(self._tried[cpus], time.monotonic())
            found[cpus] = trial.runs("tried")
        return found[cpus]


@dataclass
class World:
    """Servers, nodes, and how to start the gatekeeper."""

    cluster: ControlPlane
    nodes: Nodes
    folder: Path
    account: Path
    crowd: c.Crowd
    number: int = 0

    def gatekeeper(self, strategy: str) -> g.GateProcess:
        """Make a process of the gatekeeper."""
        self.number += 1
        name = f"gatekeeper-{self.number}"
        return g.GateProcess(self.cluster, self.account, self.folder, name, "--scoring", SCORING[strategy])

    def gates(self) -> bool:
        """Whether pods that ask are gated now."""
        return bool(g.gates(self.cluster.call("POST", f"{g.PODS}?dryRun=All", manifest("tried", 1))))

    def used(self, gatekeeper: g.GateProcess | None = None) -> dict[str, float]:
        """CPU seconds of each process so far."""
        processes = {**self.cluster.processes, "gatekeeper": gatekeeper.process if gatekeeper else None}
        found = {name: cpu_seconds(each) for name, each in processes.items() if each and each.poll() is None}
        return {**found, "nodes and clients": time.process_time()}

    def about(self, before: Mapping[str, float], gatekeeper: g.GateProcess | None) -> Object:
        """What is told of each run: who used how much, and what the gatekeeper counted."""
        used = {name: round(each - before.get(name, 0.0), 2) for name, each in self.used(gatekeeper).items()}
        metrics = gatekeeper.metrics() if gatekeeper and gatekeeper.lives else {}
        events = {name[len(EVENTS) : -2]: value for name, value in metrics.items() if name.startswith(EVENTS)}
        return {"cpu": used, "events": events, "errors": self.crowd.errors[:5]}


@contextmanager
def world(nodes: int, told: Told, say: Say, strategy: str, limits: Mapping[str, float]) -> Iterator[World]:
    """Start the servers, and the nodes."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="numalign-gate-")))
        cluster = stack.enter_context(ControlPlane(peers.kube(), folder / "cluster"))
        account = g.install(cluster, folder / "account")
        paper = stack.enter_context(Nodes(cluster, folder / "admin", told))
        for number in range(nodes):
            paper.add(f"n{number:04}", MACHINE, SETTINGS)
            if not (number + 1) % 100:
                say(f"{number + 1} nodes")
        cluster.start_scheduler(g.scheduling(strategy, **limits))
        crowd = c.Crowd(cluster, 8)
        stack.callback(crowd.stop)
        yield World(cluster, paper, folder, account, crowd)


def versions(cluster: ControlPlane) -> Object:
    """What is measured, and how busy the machine is."""
    kubernetes, cpus = cluster.call("GET", "/version")["gitVersion"], os.cpu_count()
    return {"kubernetes": kubernetes, "python": platform.python_version(), "load": os.getloadavg(), "cpus": cpus}


# ---- requests and figures


def path(key: str) -> str:
    """The path of "namespace/name"."""
    return f"{g.PODS}/{key.rpartition('/')[2]}"


def posted(body: Object, line: c.Line) -> None:
    """Create a pod."""
    line.call("POST", g.PODS, body)


def deleted(key: str, line: c.Line) -> None:
    """Delete a pod."""
    with suppress(ApiError):  # it is gone
        line.call("DELETE", f"{path(key)}?gracePeriodSeconds=0")


def lifted(key: str, line: c.Line) -> None:
    """Take the gate from a pod."""
    line.call("PATCH", path(key), {"spec": release_patch("", "", {})["spec"]}, c.STRATEGIC)


def waits(found: list[float]) -> Object:
    """Percentiles."""
    p50, p99 = (round(percentile(found, share), 3) for share in (0.5, 0.99))
    return {"pods": len(found), "p50": p50, "p99": p99, "longest": round(max(found, default=0.0), 3)}
