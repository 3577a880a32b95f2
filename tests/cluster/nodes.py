"""A node for the agent to serve: a Node object, a scratch tree with kubelet and runtime played, the real process.

`Place` has everything that outlives an agent: the state folder, the tree, the token of the agent's own pod. `Agent`
is one process of `numalign run` on it. The kubelet's part (cgroups, the pod's status) is played through the admin.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Self

import yaml

from agent.core.admission.node import Node
from agent.core.machines.synthetic import parse_synthetic
from agent.host.cgroups import Cgroups
from agent.host.checkpoint import Checkpoint
from agent.host.scratch import Scratch
from agent.host.standin import container_id
from agent.kube.pod_report import ASSIGNMENT, CONDITION
from agent.kube.topology_crd import PATH
from agent.model.ledger import Ledger
from agent.model.pod import Qos
from agent.observe.metrics import FRESH
from tests import patience, scraped
from tests.cluster.control_plane import ControlPlane
from tests.cluster.objects import SCHEDULED, Object, namespace, node, pod
from tests.flow.serving import replaced

DEPLOY = Path(__file__).parents[2] / "deploy"
SYSTEM = "numalign-system"
MACHINE = "synthetic:2 sockets x 1 node x 4 cores x 2 threads, 8G per node"
MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"

FAIL = {"on_misalignment": "fail", "policy": "single-numa-node"}
"""Annotations of a pod that shall fail where it does not fit on one node."""
Make = Callable[..., "Place"]
"""Makes a node; see the fixture `place` of the conftest."""


CHART = "access/rbac", "access/rbac-eviction", "access/admission-policy"


def install(cluster: ControlPlane, *files: str) -> None:
    """What the chart installs, once per cluster: namespace, these files of deploy, CRD."""
    cluster.ensure(namespace(SYSTEM))
    for file in (*files, "crds/noderesourcetopologies"):
        cluster.ensure(*yaml.safe_load_all((DEPLOY / f"{file}.yaml").read_text()))
    cluster.wait_served(PATH)


def wait_policy(refused: Callable[[Object], bool]) -> None:
    """Wait until a patch of a pod's labels is refused: the server takes a moment to compile a new policy."""
    patience.until(
        lambda: refused({"metadata": {"labels": {"x": str(time.monotonic_ns())}}}), "the policy", pause=0.2
    )


def register(
    cluster: ControlPlane, name: str, node_: Node, *, labels: Mapping[str, str] | None = None,
    memory: int = 0, pods: int = 250,
) -> str:  # fmt: skip
    """A Node on paper, Ready, with what its managers leave to so many pods, less so much memory; its uid."""
    (stored,) = cluster.create(node(name, **{"kubernetes.io/hostname": name, **(labels or {})}))
    cpus, total = len(node_.machine.online) - len(node_.reserved), sum(each.memory for each in node_.machine.nodes)
    sizes = {"cpu": str(cpus), "memory": str(total - memory), "pods": f"{pods}"}
    status = {"capacity": sizes, "allocatable": sizes, "conditions": ready(now=True)}
    cluster.call("PATCH", f"/api/v1/nodes/{name}/status", {"status": status}, kind=MERGE)
    cluster.call("PATCH", f"/api/v1/nodes/{name}", {"spec": {"taints": None}}, kind=MERGE)
    return str(stored["metadata"]["uid"])


def ready(*, now: bool, since: float = 0.0) -> list[Object]:
    """The condition Ready, as it is now and since when."""
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(since or time.time()))
    return [{"type": "Ready", "status": "True" if now else "False", "reason": "OnPaper", "message": "",
             "lastTransitionTime": stamp}]  # fmt: skip


class Place:
    """One node.

    Args:
        cluster: the control plane, installed.
        name: of the Node; also of the pods' namespace.
        folder: for state and tree.
        settings: the configuration file.
        machine: as --root.
        keeps: CPUs that the kubelet keeps from pods: capacity less allocatable.
    """

    def __init__(
        self, cluster: ControlPlane, name: str, folder: Path, *, settings: Mapping[str, Any] | None = None,
        machine: str = MACHINE, keeps: str = "1",
    ) -> None:  # fmt: skip
        self.cluster, self.name, self.folder, self.machine_spec = cluster, name, folder, machine
        self.machine = parse_synthetic(machine.removeprefix("synthetic:"))
        self.state, self.config = folder / "state", folder / "config.yaml"
        self.tree = Scratch.create(folder / "cgroup", cpus=self.machine.online, nodes=self.machine.node_set)
        self.cgroups = Cgroups(self.tree.folder, kernel=self.tree.kernel)
        self.configure(settings or {})
        install(cluster, *CHART)
        cluster.create(node(name), namespace(name))
        count = len(self.machine.online)
        sizes = {"capacity": {"cpu": str(count), "memory": "16Gi", "pods": "500"}}
        sizes["allocatable"] = {**sizes["capacity"], "cpu": str(count - int(keeps)), "memory": "15Gi"}
        cluster.call("PATCH", f"/api/v1/nodes/{name}/status", {"status": sizes}, kind=MERGE)
        (own,) = cluster.create(pod(f"agent-{name}", name, space=SYSTEM, serviceAccountName="numalign"))
        self.own_uid = own["metadata"]["uid"]
        self.account = folder / "account"
        self.account.mkdir()
        (self.account / "token").write_text(cluster.token(SYSTEM, "numalign", own))
        (self.account / "ca.crt").write_bytes(cluster.ca.read_bytes())

    # ---- the admin's part

    def configure(self, settings: Mapping[str, Any]) -> None:
        """Replace the configuration file as the kubelet replaces a mounted one."""
        replaced(self.config, yaml.safe_dump(dict(settings)))

    def path(self, name: str) -> str:
        return f"/api/v1/namespaces/{self.name}/pods/{name}"

    def create(self, name: str, *, cpu: str = "2", space: str = "", **more: Any) -> Object:  # noqa: ANN401 - JSON
        """A pod on this node; `annotations` by their short names, the rest is its spec's."""
        notes = {f"numalign.io/{key.replace('_', '-')}": value for key, value in more.pop("annotations", {}).items()}
        others = more.pop("others", {})
        body = pod(name, self.name, space=space or self.name, cpu=cpu, **more)
        body["metadata"]["annotations"] = {**notes, **others}
        return self.bound(body)

    def bound(self, body: Object) -> Object:
        """A pod on this node, which it has from a scheduler."""
        (stored,) = self.cluster.create(body)
        metadata = stored["metadata"]
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/status"
        return self.cluster.call("PATCH", path, SCHEDULED, kind=STRATEGIC)  # type: ignore[no-any-return]  # JSON

    def there(self, name: str) -> bool:
        """Whether the API has a pod of this name."""
        pods = self.cluster.call("GET", f"/api/v1/namespaces/{self.name}/pods")["items"]
        return name in {each["metadata"]["name"] for each in pods}

    def pod(self, name: str) -> Object:
        return self.cluster.call("GET", self.path(name))  # type: ignore[no-any-return]  # JSON

    def patch(self, name: str, body: Object, part: str = "", kind: str = STRATEGIC) -> Object:
        return self.cluster.call("PATCH", self.path(name) + part, body, kind=kind)  # type: ignore[no-any-return]  # JSON

    def delete(self, name: str, grace: int = 0) -> None:
        self.cluster.call("DELETE", f"{self.path(name)}?gracePeriodSeconds={grace}")

    # ---- the kubelet's and the runtime's part

    def start(self, name: str, *containers: str, attempt: int = 0, uid: str = "") -> str:
        """Make the cgroups of a pod and report its containers as running; the uid of its cgroup."""
        body = self.pod(name)
        uid = uid or body["metadata"]["uid"]
        with contextlib.suppress(Exception):  # a pod of before that is gone already
            self.tree.pod_path(uid)
        self.tree.add_pod(uid, Qos(body["status"]["qosClass"]))
        names = containers or tuple(each["name"] for each in body["spec"]["containers"])
        statuses = [each for each in body["status"].get("containerStatuses", []) if each["name"] not in names]
        for each in names:
            number = self.number(uid, each, attempt)
            self.tree.add_container(uid, number)
            statuses.append({**_status(each, number, attempt), "resources": _resources(body, each)})
        self.patch(name, {"status": {"phase": "Running", "containerStatuses": statuses}}, "/status")
        return uid

    def resize(self, name: str, cpu: str, *, refused: str = "") -> None:
        """Somebody resizes the container c; the kubelet follows, or says why not ("Infeasible", "Deferred")."""
        amounts = {"cpu": cpu, "memory": "64Mi"}
        spec = {"containers": [{"name": "c", "resources": {"requests": amounts, "limits": amounts}}]}
        self.patch(name, {"spec": spec}, "/resize")
        if refused:
            condition = {"type": "PodResizePending", "status": "True", "reason": refused, "message": "no"}
            self.patch(name, {"status": {"conditions": [condition]}}, "/status")
            return
        body = self.pod(name)
        statuses = [
            {**each, "resources": _resources(body, each["name"])} for each in body["status"]["containerStatuses"]
        ]
        self.patch(name, {"status": {"containerStatuses": statuses}}, "/status")

    def number(self, uid: str, container: str, attempt: int = 0) -> str:
        return container_id(uid, f"{container}/{attempt}" if attempt else container)

    def effective(self, uid: str, container: str = "c", attempt: int = 0) -> str:
        """The CPUs that a container may use now, "" where it is not there."""
        number = self.number(uid, container, attempt)
        found = (each for each in self.cgroups.observe().cgroups if each.container_id == number)
        return next((str(each.effective_cpus) for each in found), "")

    # ---- what is

    def ledger(self) -> Ledger:
        saved = Checkpoint(self.state / "checkpoint.json").load()
        assert saved is not None, "nothing was saved"
        return saved.ledger

    def held(self, uid: str, container: str = "c") -> str:
        """Exclusive CPUs in the saved ledger, "" for none."""
        return (
            str(self.ledger().grant(uid, container).cpus or "") if (self.state / "checkpoint.json").exists() else ""
        )

    def assignment(self, name: str) -> Object:
        """What a pod carries, {} before."""
        notes = self.pod(name)["metadata"].get("annotations", {})
        return json.loads(notes.get(ASSIGNMENT, "{}"))  # type: ignore[no-any-return]  # JSON

    def condition(self, name: str) -> Object:
        """Our condition of a pod, {} before."""
        found = self.pod(name).get("status", {}).get("conditions", [])
        return next((each for each in found if each["type"] == CONDITION), {})

    def events(self, reason: str, name: str = "") -> list[Object]:
        """Events of a reason about a pod of this node, or about the Node."""
        space = self.name if name else "default"
        items = self.cluster.call("GET", f"/api/v1/namespaces/{space}/events")["items"]
        about = name or self.name
        return [each for each in items if (each["reason"], each["involvedObject"]["name"]) == (reason, about)]

    def topology(self) -> Object:
        """This node's NodeResourceTopology, {} before."""
        return self.cluster.found(f"{PATH}/{self.name}") or {}


class Process:
    """A program with a log of JSON lines, which a file may have from several of them."""

    def __init__(self, log: Path) -> None:
        self.log, self._from = log, 0
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, command: Iterable[str | os.PathLike[str]], **environment: str) -> None:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self._from = log.tell()
            self.process = subprocess.Popen([*command], stdout=log, stderr=log, env={**os.environ, **environment})

    @property
    def lives(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def end(self, how: signal.Signals = signal.SIGTERM) -> int:
        """End the process; its exit code."""
        assert self.process is not None
        if self.lives:
            self.process.send_signal(how)
        return self.process.wait(patience.PATIENCE)

    def words(self) -> str:
        with self.log.open() as file:
            file.seek(self._from)
            return file.read()

    def said(self, message: str) -> Mapping[str, Any]:
        """The first line with a message, {} before."""
        for line in self.words().splitlines():
            with contextlib.suppress(ValueError):  # a line that is no JSON
                found = json.loads(line)
                if found.get("message", found.get("msg")) == message:
                    return found  # type: ignore[no-any-return]  # JSON
        return {}


class Agent(Process):
    """One process of the agent: `with Agent(place) as agent: ...`."""

    def __init__(self, place: Place, *arguments: str, server: str = "") -> None:
        super().__init__(place.folder / "agent.log")
        self.place, self._arguments, self._server = place, arguments, server or place.cluster.server
        self.address = ""
        self._scraped = -FRESH

    def __enter__(self) -> Self:
        place = self.place
        command: list[str | os.PathLike[str]] = [
            sys.executable, "-m", "agent", "run", "--root", place.machine_spec, "--state-dir", place.state,
            "--config", place.config, "--cgroup-root", place.tree.folder, "--api-server", self._server,
            "--api-account", place.account, "--metrics-address", "127.0.0.1:0", "--log-format", "json",
            "--nri-socket", "off", "--podresources-socket", "off", "--host-root", place.folder, *self._arguments,
        ]  # fmt: skip
        self.start(command, NODE_NAME=place.name, POD_UID=place.own_uid, POD_NAMESPACE=SYSTEM)
        try:
            patience.until(lambda: self.said("serving") or not self.lives, what="the agent")
            assert self.lives, self.words()
        except BaseException:
            self.end(signal.SIGKILL)
            raise
        self.address = str(self.said("serving metrics").get("address"))
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        code = self.end()
        if kind is None:
            assert code == 0, self.words()
            assert "Traceback" not in self.words(), self.words()

    def settled(self) -> None:
        """Wait until nothing waits to be decided or told."""
        queues = [f'numalign_queue_length{{queue="{queue}"}}' for queue in ("intake", "publisher")]
        patience.until(lambda: not any(map(self.metrics().get, queues)), what="the queues")
        time.sleep(0.5)

    def get(self, path: str) -> str:
        """A page of its server; /metrics as it is now, not as it was when somebody asked a moment ago."""
        if path == "/metrics":  # the agent serves one text to all who ask within this time
            time.sleep(max(0.0, self._scraped + FRESH - time.monotonic()))
        code, text = scraped.page(self.address, path)
        assert code == 200, text
        if path == "/metrics":
            self._scraped = time.monotonic()
        return text

    def metrics(self) -> dict[str, float]:
        return scraped.values(self.get("/metrics"))

    def metric(self, line: str) -> float:
        """The value of a line of /metrics, 0 where it is not there."""
        return self.metrics().get(line, 0.0)

    def patches(self) -> float:
        """Requests about what pods carry that the server answered."""
        return sum(
            value
            for name, value in self.metrics().items()
            if name.startswith("numalign_api_requests_total")
            and 'verb="PATCH pods' in name
            and 'code="0"' not in name
        )


def _resources(body: Object, name: str) -> Object:
    found = next(each for each in body["spec"]["containers"] if each["name"] == name)
    return found.get("resources", {})  # type: ignore[no-any-return]  # JSON


def _status(name: str, number: str, attempt: int) -> Object:
    return {
        "name": name, "containerID": f"containerd://{number}", "ready": True, "started": True, "image": "none",
        "imageID": "none", "restartCount": attempt, "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
    }  # fmt: skip
