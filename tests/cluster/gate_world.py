"""The gatekeeper among real servers: nodes on paper that decide and publish as agents do, and its own process.

The nodes have the real managers and no cgroups. A thread plays the kubelet and the agent of each: it lets a node
decide on every pod that is bound to it, reports what came of it, and publishes the node's summary by the agent's own
loop, at most once in PERIOD.
"""

from __future__ import annotations

import contextlib
import queue
import sys
import threading
import time
import urllib.request
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Self

from agent.app.cluster.summary import SummaryText, says_the_same
from agent.app.cluster.topology_loop import EVERY, TopologyLoop
from agent.errors import KubeError
from agent.forecast.dry_run import DryRun
from agent.forecast.gate.values import GATE
from agent.kube.access import ApiAccess
from agent.kube.client import KubeClient
from agent.kube.gate.list_watch import Arrived, Left, ListWatch, News
from agent.kube.objects.pod_objects import seen
from agent.kube.pod_report import CONDITION
from agent.kube.topology_crd import PATH, TopologyPublisher
from agent.settings import parse
from tests import scraped
from tests.cluster import nodes
from tests.cluster.control_plane import ADMIN, ApiError, ControlPlane, free_port
from tests.cluster.nodes import MERGE, STRATEGIC, SYSTEM
from tests.cluster.objects import Object, namespace, pod
from tests.cluster.paper_fleet import PLAIN, fit
from tests.patience import until
from tests.world.nodes import managers_of

SPACE, NAME, SWITCH = "gated", "numalign-gatekeeper", "numalign-gate"
SWITCH_PATH = f"/api/v1/namespaces/{SYSTEM}/configmaps/{SWITCH}"
LEASE_PATH = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases/{NAME}"
PODS = f"/api/v1/namespaces/{SPACE}/pods"
MACHINE = "1 socket x 2 nodes x 4 cores x 1 thread, 8G per node"
SETTINGS: Mapping[str, Any] = {
    "topologyManagerPolicy": "single-numa-node", "reservedSystemCPUs": "0", "onMisalignment": "fail",
    "fleet": {"publish": True},
}  # fmt: skip
"""Of a node: three CPUs are left on its first NUMA node, four on the second."""
ASKS = {"numalign.io/gate": "true", "numalign.io/policy": "single-numa-node"}
"""Annotations of a pod that asks for the gate."""
LABELS = {"app.kubernetes.io/name": "numalign", "app.kubernetes.io/component": "agent"}
"""Of the agents' pods."""
PERIOD = EVERY
DONE = ("Succeeded", "Failed")


def scheduling(strategy: str = "LeastAllocated", **limits: float) -> Object:
    """The stock scheduler with another order of NodeResourcesFit.

    Args:
        strategy: LeastAllocated, which is the default, or MostAllocated.
        limits: qps and burst of its client; without them the tests' own, with `qps=50, burst=100` the stock ones.
    """
    profile = {"schedulerName": "default-scheduler", "pluginConfig": [fit(strategy)]}
    return {**PLAIN, "profiles": [profile], **({"clientConnection": limits} if limits else {})}


def install(cluster: ControlPlane, folder: Path) -> Path:
    """Install what the chart does, and wait until it is in force; returns the folder of the gatekeeper's account."""
    nodes.install(cluster, "access/gatekeeper")
    cluster.ensure(namespace(SPACE))
    found = account(cluster, folder, NAME)
    token = (found / "token").read_text()
    cluster.wait_allowed(token, "patch", "pods", subresource="status")
    body = asking("in-force", nodeName="nowhere", annotations={})
    cluster.create(body)
    path = f"{PODS}/in-force"

    def refused(labels: Object) -> bool:
        try:
            cluster.call("PATCH", path, labels, kind=STRATEGIC, token=token)
        except ApiError as error:
            return "may not change" in str(error)
        return False

    nodes.wait_policy(refused)
    cluster.call("DELETE", f"{path}?gracePeriodSeconds=0")
    return found


def account(cluster: ControlPlane, folder: Path, name: str) -> Path:
    """Write the token and the certificate of a service account, as a pod finds them."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "token").write_text(cluster.token(SYSTEM, name))
    (folder / "ca.crt").write_bytes(cluster.ca.read_bytes())
    return folder


def asking(name: str, cpu: int | str = 2, *, memory: str = "64Mi", **more: Any) -> Object:  # noqa: ANN401 - JSON
    """A pod without a node that asks for the gate; `annotations` in place of ASKS, the rest is its spec's."""
    notes = more.pop("annotations", ASKS)
    body = pod(name, more.pop("nodeName", ""), space=more.pop("space", SPACE), cpu=f"{cpu}", memory=memory, **more)
    if not body["spec"]["nodeName"]:
        del body["spec"]["nodeName"]
    body["metadata"]["annotations"] = {**notes}
    return body


def path_to(body: Object) -> str:
    """The path of a pod."""
    return f"/api/v1/namespaces/{body['metadata']['namespace']}/pods/{body['metadata']['name']}"


def gates(body: Object) -> list[str]:
    """The gates of a pod."""
    return [each["name"] for each in body["spec"].get("schedulingGates", ())]


def nominated(body: Object) -> str:
    """The nomination of a pod."""
    return str(body.get("status", {}).get("nominatedNodeName", ""))


def condition(body: Object, kind: str = GATE) -> Object:
    """A condition of a pod, {} for none."""
    found = body.get("status", {}).get("conditions", ())
    return next((each for each in found if each["type"] == kind), {})


@dataclass
class PaperNode:
    """A node: what it decides by, and what publishes it."""

    run: DryRun
    loop: TopologyLoop
    uid: str
    publishing: threading.Lock = field(default_factory=threading.Lock)


class PaperNodes:
    """Nodes, and the thread that plays their kubelets and agents: `with PaperNodes(cluster, folder) as nodes:`.

    Args:
        cluster: the control plane, installed.
        folder: for the admin's credentials.
        period: seconds between two publishings.
        reports: write the status of bound pods; a refused pod is Failed in any case.
    """

    def __init__(self, cluster: ControlPlane, folder: Path, *, period: float = PERIOD, reports: bool = True) -> None:
        self.cluster, self._period, self._reports = cluster, period, reports
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "token").write_text(ADMIN)
        access = ApiAccess(cluster.server, cluster.ca, folder / "token", check_name=False)
        self._client = KubeClient(access, "paper")
        self.nodes: dict[str, PaperNode] = {}
        self.refused: dict[str, str] = {}
        """Pods that their node refused, "namespace/name" -> node."""
        self.landed: dict[str, str] = {}
        """All pods that were bound, "namespace/name" -> node; also those that are gone."""
        self._where: dict[str, tuple[str, str]] = {}
        self._settings = parse(dict(SETTINGS))[0]
        self._lock = threading.RLock()
        self._news: queue.SimpleQueue[News] = queue.SimpleQueue()
        self._over = threading.Event()
        self._threads = [threading.Thread(target=each, daemon=True) for each in (self._play, self._publish)]
        query = (("fieldSelector", "spec.nodeName!="),)
        self._watch = ListWatch[Object](self._client, "pods", "/api/v1/pods", _bound, self._news.put, query=query)

    def __enter__(self) -> Self:
        self._watch.start()
        for each in self._threads:
            each.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._watch.stop()
        for each in self._threads:
            each.join(20)

    # ---- what a test does

    def add(
        self, name: str, machine: str = MACHINE, settings: Mapping[str, Any] = SETTINGS, *, old: float = 0.0,
        **labels: str,
    ) -> None:  # fmt: skip
        """Add a node with its agent, Ready both, and publish it; what it says is `old` seconds old."""
        run = DryRun(managers_of(machine, settings))
        uid = nodes.register(self.cluster, name, run.node, labels=labels)
        loop = TopologyLoop(
            TopologyPublisher(self._client, says_the_same), name, snapshot=lambda: run.state, node_uid=lambda: uid,
            enforcing=lambda: True, problem=print,
            summary=SummaryText(lambda: self._settings, wall=lambda: time.time() - old).of,
        )  # fmt: skip
        with self._lock:
            self.nodes[name] = PaperNode(run, loop, uid)
        agent = pod(f"agent-{name}", name, space=SYSTEM, tolerations=[{"operator": "Exists"}])
        agent["metadata"]["labels"] = LABELS
        del agent["spec"]["containers"][0]["resources"]
        self.cluster.create(agent)
        self.agent_ready(name)
        self.publish(name)

    def remove(self, name: str) -> None:
        """Delete a node with its agent, its summary and its pods."""
        with self._lock:
            self.nodes.pop(name, None)
        pods = self.cluster.call("GET", f"/api/v1/pods?fieldSelector=spec.nodeName={name}")["items"]
        paths = [path_to(each) for each in pods]
        for path in (*(f"{each}?gracePeriodSeconds=0" for each in paths), f"{PATH}/{name}", f"/api/v1/nodes/{name}"):
            with contextlib.suppress(ApiError):  # a test deleted it, or a controller did
                self.cluster.call("DELETE", path)

    def agent_ready(self, name: str, *, ready: bool = True, since: float = 0.0) -> None:
        """Say whether the agent's pod is Ready, and since when."""
        status = {"phase": "Running", "conditions": nodes.ready(now=ready, since=since)}
        self.cluster.call("PATCH", f"/api/v1/namespaces/{SYSTEM}/pods/agent-{name}/status", {"status": status},
                          kind=STRATEGIC)  # fmt: skip

    def ready(self, name: str, *, ready: bool) -> None:
        """Say whether a node is Ready."""
        status = {"status": {"conditions": nodes.ready(now=ready)}}
        self.cluster.call("PATCH", f"/api/v1/nodes/{name}/status", status, kind=MERGE)

    def taint(self, name: str, *keys: str) -> None:
        """Give a node these NoSchedule taints, in place of those that it has."""
        taints = [{"key": each, "effect": "NoSchedule"} for each in keys]
        self.cluster.call("PATCH", f"/api/v1/nodes/{name}", {"spec": {"taints": taints or None}}, kind=MERGE)

    def fill(self, name: str, *cpus: int, **more: Any) -> list[str]:  # noqa: ANN401 - pod's
        """Let pods of so many CPUs run on a node, one after the other; their names. The node has published them."""
        names = [f"on-{name}-{number}-{cpu}" for number, cpu in enumerate(cpus)]
        for each, cpu in zip(names, cpus, strict=True):
            (stored,) = self.cluster.create(asking(each, cpu, nodeName=name, annotations={}, **more))
            self._see(f"{SPACE}/{each}", stored)
        self.publish(name)
        return names

    def publish(self, name: str) -> None:
        until(partial(self._stepped, self.nodes[name]), f"the summary of {name}")

    def holds(self, name: str, key: str) -> bool:
        """Whether a node lets a pod run: "namespace/name"."""
        with self._lock:
            where, uid = self._where.get(key, ("", ""))
            return where == name and self.nodes[name].run.runs(uid)

    # ---- the thread

    def _play(self) -> None:
        while not self._over.is_set():
            with contextlib.suppress(queue.Empty):  # it only waits, to see the end
                news = self._news.get(timeout=0.5)
                if isinstance(news, Arrived):
                    self._see(news.key, news.value)
                elif isinstance(news, Left):
                    self._gone(news.key)

    def _publish(self) -> None:
        while not self._over.wait(self._period):
            with self._lock:
                there = [*self.nodes.values()]
            for each in there:
                self._stepped(each)

    def _stepped(self, there: PaperNode) -> bool:
        """As the agent's loop: what fails is tried in the next period. No other node waits for it."""
        with there.publishing:
            try:
                there.loop.step()
            except KubeError:
                return False
        return True

    def _see(self, key: str, body: Object) -> None:
        uid, name = body["metadata"]["uid"], body["spec"]["nodeName"]
        with self._lock:
            known = self._where.get(key, ("", ""))[1]
            if body.get("status", {}).get("phase") in DONE or known not in ("", uid):
                self._gone(key)
            there = self.nodes.get(name)
            if known == uid or there is None or body.get("status", {}).get("phase") in DONE:
                return
            self._where[key], self.landed[key] = (name, uid), name
            there.run.see(seen(body).pod, time.monotonic())
            refusal = there.run.pods[uid].refusal
        if refusal is None:
            if self._reports:
                self._status(key, {"phase": "Running", "conditions": nodes.ready(now=True)})
            return
        self.refused[key] = name
        told = {"type": CONDITION, "status": "False", "reason": refusal.reason.value, "message": refusal.plain}
        self._status(key, {"phase": "Failed", "conditions": [told]})

    def _gone(self, key: str) -> None:
        with self._lock:
            name, uid = self._where.pop(key, ("", ""))
            if name in self.nodes:
                self.nodes[name].run.end([uid], time.monotonic())

    def _status(self, key: str, status: Object) -> None:
        space, _, name = key.partition("/")
        path = f"/api/v1/namespaces/{space}/pods/{name}/status"
        with contextlib.suppress(KubeError):  # it is gone already
            self._client.call("PATCH", path, {"status": status}, kind=STRATEGIC, brief=True)


def _bound(body: Mapping[str, Any], _known: bool) -> Object | None:  # noqa: FBT001 - a `list_watch.Reader`
    own = body["metadata"].get("namespace") == SYSTEM
    return None if own or not body["spec"].get("nodeName") else dict(body)


class GateProcess(nodes.Process):
    """One process of `numalign gatekeeper` with the account of `install`: `with GateProcess(...) as gatekeeper:`."""

    def __init__(
        self, cluster: ControlPlane, account: Path, folder: Path, name: str, *arguments: str, server: str = "",
        program: Iterable[str] = ("-m", "agent"),
    ) -> None:  # fmt: skip
        super().__init__(folder / f"{name}.log")
        self.name, self.port = name, free_port()
        self.command = [
            sys.executable, *program, "gatekeeper", "--namespace", SYSTEM, "--api-server", server or cluster.server,
            "--api-account", str(account), "--metrics-address", f"127.0.0.1:{self.port}", "--log-format", "json",
            *arguments,
        ]  # fmt: skip

    def __enter__(self) -> Self:
        self.start(self.command, POD_NAME=self.name)
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def led_at(self) -> float:
        """When it began to lead, in seconds since the epoch; 0 before."""
        found = self.said("this replica leads")
        return datetime.fromisoformat(found["time"]).timestamp() if found else 0.0

    def metrics(self) -> dict[str, float]:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=30) as answer:
            return scraped.values(answer.read().decode())

    def counted(self, what: str) -> float:
        """A value of numalign_gate_events_total."""
        return self.metrics().get(f'numalign_gate_events_total{{what="{what}"}}', 0.0)


def switched_on(cluster: ControlPlane) -> bool:
    """Whether pods that ask are gated: the leader can decide."""
    return cluster.found(SWITCH_PATH) is not None


def inherit(cluster: ControlPlane) -> None:
    """Let the lease of a killed replica run out at once: a test needs not wait for its 15 seconds."""
    with contextlib.suppress(ApiError):  # there is no lease yet
        cluster.call("PATCH", LEASE_PATH, {"spec": {"leaseDurationSeconds": 1}}, kind=MERGE)
