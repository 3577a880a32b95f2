"""One node: the real agent's process, stand-ins for all that it talks to, faults on demand, and what became of it.

    with Node(folder, Agents()) as node:
        node.start();  node.run("db", cpu="2");  node.settle()
        node.api.fault("away");  node.kill();  node.start()
        node.whole()                    every exclusive container is where it was
        node.api.calm();  node.settle() ledger = cgroup = annotation
        node.judge()                    what must never happen did not, at any moment

Names of pods are "name" (in the namespace `space`) or "namespace/name". Nothing here looks into the agent: what is
asked for is read from the API, the cgroups and the checkpoint.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

import certifi
import yaml

from agent.app.service.service import READINESS
from agent.core.machines.synthetic import parse_synthetic
from agent.errors import NumalignError
from agent.host.checkpoint import Checkpoint
from agent.host.scratch import Scratch
from agent.model.idset import CpuSet
from agent.model.ledger import Ledger
from tests import patience, scraped
from tests.flow.serving import replaced
from tests.matrix import judge as judging
from tests.matrix.agents import Agent, Agents
from tests.matrix.api_objects import Object, bound
from tests.matrix.journal import EFFECTIVE, REFUSE, Journal, acting, beside, install
from tests.matrix.judge import Told, told_of
from tests.matrix.kubelet import Kubelet, Running
from tests.matrix.life import CHECKPOINT
from tests.matrix.standin_api import Api
from tests.matrix.standin_devices import Devices
from tests.matrix.standin_nri import Runtime

MACHINE = "2 sockets x 1 node x 4 cores x 2 threads, 8G per node"
HARDWARE = parse_synthetic(MACHINE)
RESERVED = "0,8"
HANGS = 0.5
"""Seconds that pass instead of looks of an agent that hangs."""
SPACE = "space"
SETTINGS: Mapping[str, Any] = {
    "reservedSystemCPUs": RESERVED, "cpuManagerReconcilePeriod": "1s", "page": {"enabled": False},
}  # fmt: skip
UIDS = uuid.UUID("a2f0d6f0-6a43-5f0a-9a52-6e756d616c69")
LIMIT = 240.0
"""Seconds after which something that must come true counts as one that never does."""


class Node:
    """One node. A context manager: leaving it ends the agent and the stand-ins.

    Args:
        folder: for everything that outlives an agent.
        agents: starts the agent's processes.
        machine: in words (`agent.core.machines.synthetic`); `change_machine` adds to it.
        settings: the configuration file, on top of SETTINGS.
        nri, podresources: whether the node has such sockets at all.
        skew: seconds that the API server's clock is ahead of the node's.
        find_within: seconds that the API server has to name a pod that the runtime brings; None for the product's.
    """

    def __init__(
        self, folder: Path, agents: Agents, *, machine: str = MACHINE,
        settings: Mapping[str, Any] | None = None,
        nri: bool = True, podresources: bool = True, skew: float = 0.0, name: str = "n1",
        find_within: float | None = None,
    ) -> None:  # fmt: skip
        install("test")
        self.folder, self.name, self._agents, self._machine = folder, name, agents, machine
        self._find_within = find_within
        self._changes: dict[str, str] = {}
        self.environment: dict[str, str] = {}
        """Of the agents that start from now on."""
        self.hangs = False
        self.state, self.config, self.checkpoint = (
            folder / "state",
            folder / "config.yaml",
            folder / "state" / CHECKPOINT,
        )
        self._sockets = Path(tempfile.mkdtemp(prefix="node-"))
        found = parse_synthetic(machine)
        self.tree = Scratch.create(folder / "cgroup", cpus=found.online | found.offline, nodes=found.node_set)
        self.journal = Journal(self.tree.folder)
        self.journal.begin()
        self.tree.online(found.online | found.offline, found.node_set)  # so that the journal knows them all
        self.tree.online(found.online, found.node_set)
        self.settings: dict[str, Any] = {**SETTINGS, **(settings or {})}
        self.configure()
        self._write_machine()
        self.api = Api(name, heard=self._heard, skew=skew)
        self.runtime = Runtime(self._sockets / "nri.sock", self._update) if nri else None
        self.devices = Devices(self._sockets / "kubelet.sock") if podresources else None
        self.kubelet = Kubelet(self.tree, self.api, self.runtime, self.journal)
        self._saved: tuple[bytes, Ledger | None] = (b"", None)
        self.agent: Agent | None = None
        self.lives: list[Agent] = []
        self._account()
        self._objects()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.agent is not None and self.agent.alive:
            self.kill()
        self.api.close()
        if self.runtime is not None:
            self.runtime.close()
        if self.devices is not None:
            self.devices.stop()
        shutil.rmtree(self._sockets, ignore_errors=True)

    # ---- the agent

    def start(self, *, ready: bool = True) -> Agent:
        """Start the agent; returns when it serves, or has ended by itself (the caller asks `agent.alive`)."""
        assert self.agent is None or not self.agent.alive
        log = self.folder / f"agent-{len(self.lives)}.log"
        self.agent = self._agents.start({
            "tree": str(self.tree.folder), "state": str(self.state), "config": str(self.config), "log": str(log),
            "machine": str(self._machine_file), "host": str(self.folder), "node": self.name,
            "server": self.api.server, "account": str(self.folder / "account"), "own_uid": _uid("agent"),
            "environment": self.environment,
            **({"find_within": self._find_within} if self._find_within else {}),
            "nri": str(self._sockets / "nri.sock") if self.runtime else "off",
            "podresources": str(self._sockets / "kubelet.sock") if self.devices else "off",
        })  # fmt: skip
        self.lives.append(self.agent)
        agent = self.agent
        if ready:
            self.wait(lambda: " serving " in agent.words() or not agent.alive, "the agent to serve")
        return agent

    def kill(self) -> None:
        assert self.agent is not None
        self.agent.kill()

    def restart(self) -> Agent:
        assert self.agent is not None
        self.agent.stop()
        return self.start()

    def ensure(self) -> Agent:
        """As the kubelet does for a container that ended: start it again, as often as it takes, until it serves."""

        def serves() -> bool:
            if self.agent is None or not self.agent.alive:
                self.start()
            return self.agent is not None and self.agent.alive

        self.wait(serves, "an agent that stays")
        assert self.agent is not None
        return self.agent

    def die_after(self, effects: int) -> None:
        """The agent's effect of this number from now is its last, as if the OOM killer came; 0 takes it back."""
        self._switch("die", str(effects or ""))

    def words(self) -> str:
        """What every agent of this node logged, oldest first."""
        return "\n".join(
            f"==== {each.log.name}, pid {each.pid}, ended {each.code}\n{each.words()}" for each in self.lives
        )

    @property
    def listed(self) -> bool:
        """Whether the agent has read a complete list of pods; one that has lost its ledger writes nothing before."""
        words = self.agent.words() if self.agent is not None else ""
        return "no complete list of pods has been read yet" not in words or READINESS["pods"] in words

    # ---- pods

    def create(self, name: str, *, cpu: str = "2", requests: str = "", also: Mapping[str, str] | None = None,
               annotations: Mapping[str, str] | None = None, created: str = "", uid: str = "",
               resources: Mapping[str, str] | None = None,
               spec: Mapping[str, Any] | None = None) -> Object:  # fmt: skip
        """A pod in the API, bound to this node; not started.

        Args:
            name: "name" or "namespace/name".
            cpu: of its container "c", as limit and request; "" for none at all.
            requests: less than that: a Burstable pod.
            also: more containers: name -> cpu.
            annotations: as they stand in the object.
            created: creationTimestamp; now, by the server's clock, where empty.
            uid: another than the name's own.
            resources: more of container "c", as limits and requests: devices.
            spec: more of the spec.
        """
        space, _, short = self.key(name).partition("/")
        if not self.api.get("namespaces", space):
            self.api.put("namespaces", {"metadata": {"name": space}})
        containers = [
            _container("c", cpu, requests),
            *(_container(each, size) for each, size in (also or {}).items()),
        ]
        for amounts in containers[0]["resources"].values():
            amounts.update(resources or {})
        metadata: Object = {
            "name": short, "namespace": space, "uid": uid or _uid(name), "annotations": dict(annotations or {}),
            "generation": 1,
        }  # fmt: skip
        if created:
            metadata["creationTimestamp"] = created
        return self.api.put("pods", bound({
            "apiVersion": "v1", "kind": "Pod", "metadata": metadata,
            "spec": {"containers": containers, **(spec or {})},
            "status": {"phase": "Pending", "conditions": []},
        }, self.name))  # fmt: skip

    def run(self, name: str, **more: Any) -> Running | None:  # noqa: ANN401 - as `create` takes them
        """Create a pod and start it, when the agent has had its say where it is there; None where it is refused."""
        self.create(name, **more)
        return self.kubelet.pods[self.key(name)] if self.kubelet.run(self.key(name)) else None

    def force_delete(self, name: str) -> None:
        """The pod leaves the API at once; its processes run on."""
        self.journal.mark("deleted", uid=self.uid(name))
        self.api.remove("pods", self.key(name))

    def end(self, name: str) -> None:
        """The pod's processes end, and the API has it no more."""
        self.kubelet.end(self.key(name))
        if self.api.get("pods", self.key(name)):
            self.force_delete(name)

    def resize(self, name: str, cpu: str, container: str = "c") -> None:
        """Ask for another number of CPUs; the kubelet has not granted it yet (`kubelet.resize`)."""

        def change(body: Object) -> None:
            body["metadata"]["generation"] = body["metadata"].get("generation", 1) + 1
            for each in body["spec"]["containers"]:
                if each["name"] == container:
                    for amounts in each["resources"].values():
                        amounts["cpu"] = cpu

        self.journal.mark("resized", uid=self.uid(name), container=container)
        self.api.change("pods", self.key(name), change)

    def key(self, name: str) -> str:
        return name if "/" in name else f"{SPACE}/{name}"

    def uid(self, name: str) -> str:
        """Of a pod that is in the API or runs."""
        running = self.kubelet.pods.get(self.key(name))
        return running.uid if running else str(self.api.get("pods", self.key(name))["metadata"]["uid"])

    def pods(self) -> dict[str, Object]:
        """The pods of the API, by "namespace/name"."""
        return {f"{each['metadata']['namespace']}/{each['metadata']['name']}": each for each in self.api.all("pods")}

    # ---- what became of them

    def told(self, name: str) -> Told:
        return told_of(self.api.get("pods", self.key(name)))

    def kernel(self, name: str, container: str = "c") -> str:
        """The CPUs in force for a container that runs, "" where it does not."""
        pod = self.kubelet.pods.get(self.key(name))
        if pod is None or container not in pod.numbers:
            return ""
        with contextlib.suppress(OSError, NumalignError):  # gone, or damaged by the fault of this run
            folder = self.tree.folder / self.kubelet.path(pod.uid, pod.numbers[container]).lstrip("/")
            return (folder / EFFECTIVE).read_text("ascii").strip()
        return ""

    def ledger(self) -> Ledger | None:
        """As saved; None where nothing readable is."""
        with contextlib.suppress(NumalignError, OSError):  # gone, or damaged by the fault of this run
            head = self.checkpoint.read_bytes().partition(b"\n")[0]  # holds the checksum of the rest
            if head != self._saved[0]:
                saved = Checkpoint(self.checkpoint).load()
                self._saved = head, saved.ledger if saved else None
            return self._saved[1]
        return None

    def held(self, name: str, container: str = "c") -> str:
        """A container's exclusive CPUs in the saved ledger, "" for none."""
        ledger = self.ledger()
        return str(ledger.grant(self.uid(name), container).cpus or "") if ledger else ""

    def metric(self, line: str) -> float:
        """A line of /metrics, 0 where it is not there."""
        return scraped.values(self.page("/metrics")).get(line, 0.0)

    def page(self, path: str) -> str:
        """A page of the agent's server: /metrics, /healthz, /readyz."""
        assert self.agent is not None
        found = re.search(r"serving metrics.*?address=(\S+)", self.agent.words())
        assert found, self.agent.words()
        code, text = scraped.page(found[1], path)
        assert code == 200, text
        return text

    def figure(self, name: str) -> int:
        """A number of the agent's /proc/<pid>/status: VmHWM (KiB)."""
        assert self.agent is not None
        return scraped.status(self.agent.pid, name)

    @property
    def online(self) -> CpuSet:
        return parse_synthetic(self._now).online

    # ---- faults of the node

    def disk(self, name: str) -> None:
        """Every write of the state folder fails: "ENOSPC", "EROFS"; or none returns: "HANG"; "" ends it."""
        self.hangs = name == "HANG"
        self._switch("disk", name)

    def refuse(self, name: str) -> None:
        """The kernel refuses every write of the agent: "EBUSY"; "" ends it."""
        self._switch(REFUSE, name)

    def change_machine(self, what: str, part: str) -> None:
        """The machine changed: the kernel first, then the agent is told, as by an event of hot-plug.

        Args:
            what: changed; every other change stays as it is.
            part: of the machine's description from now on; "" takes the change back.
        """
        self._changes[what] = part
        self.kubelet.online(self.online)
        self._write_machine()
        self.configure()  # a recorded machine sends no events: a touched configuration makes the agent read both

    def reboot(self) -> None:
        """Power off and on: no agent, no processes; `kubelet.boot` starts the pods again."""
        if self.agent is not None and self.agent.alive:
            self.kill()
        self.kubelet.reboot()

    def lose(self) -> None:
        self.journal.mark("lost")
        self.checkpoint.unlink(missing_ok=True)

    def configure(self, **settings: Any) -> None:  # noqa: ANN401 - settings
        """Change the configuration file, as the kubelet replaces a mounted one."""
        self.settings |= settings
        replaced(self.config, yaml.safe_dump(self.settings))

    def take(self, capacity: Mapping[str, str], allocatable: Mapping[str, str]) -> None:
        """The Node has these sizes from now on."""

        def change(body: Object) -> None:
            body["status"]["capacity"] |= capacity
            body["status"]["allocatable"] |= allocatable

        self.api.change("nodes", self.name, change)

    # ---- waiting and judging

    def wait(self, true: Callable[[], object], what: str | Callable[[], str], within: float = LIMIT) -> None:
        """Until something is so; fails with the agent's log where it never is.

        Args:
            true: is it?
            what: in words, where it is not.
            within: seconds.
        """
        patience.until(
            true, lambda: f"{what() if callable(what) else what}\n{self.words()[-6000:]}", within=within, pause=0.05
        )

    def turns(self, count: int = 3) -> None:
        """Until the agent has looked at the tree so many times more, or has ended; for a while where it hangs."""
        if self.hangs:
            time.sleep(HANGS)
            return
        at = self.journal.file.stat().st_size

        def looked() -> bool:
            return self.looks(at) >= count or self.agent is None or not self.agent.alive

        self.wait(looked, f"{count} looks of the agent")

    def looks(self, since: int) -> int:
        """How often the agent has looked at the tree since the journal had this length in bytes."""
        with self.journal.file.open("rb") as file:
            file.seek(since)
            return file.read().count(b'"looked"')

    def pinned(self) -> dict[tuple[str, str], str]:
        """(pod, container) -> CPUs in force, of every container that is entitled to exclusive CPUs."""
        return {
            (key, name): self.kernel(key, name) for key, pod in self.kubelet.pods.items() for name in _entitled(pod)
        }

    def settled(self) -> str:
        """Why ledger, cgroups and annotations do not agree yet, "" when they do."""
        return judging.disagreement(
            self.kubelet.pods, self.pods(), self.ledger, self.kernel, lambda cpus: len(HARDWARE.nodes_of(cpus)) > 1
        )

    def settle(self, within: float = LIMIT) -> None:
        """Wait for that; an agent that ended meanwhile is started again, as the kubelet does."""
        why = [""]

        def agreed() -> bool:
            if self.agent is None or not self.agent.alive:
                self.start()
            why[0] = self.settled()
            return not why[0]

        try:
            self.wait(agreed, "ledger = cgroup = annotation", within)
        except AssertionError as error:
            raise AssertionError(f"never settled: {why[0]}\n{error}") from None

    def untrue(self) -> str:
        """A pod that claims CPUs which the kernel does not give it, "" for none."""
        return judging.untrue(self.kubelet.pods, self.pods(), self.kernel)

    def faults(self) -> list[str]:
        """What happened that must never happen, at any moment: see `tests.matrix.judge`."""
        return judging.faults(self.journal.lines())

    def judge(self) -> None:
        found = self.faults()
        assert not found, "\n".join(found)

    # ---- the inside

    @property
    def _now(self) -> str:
        return ", ".join(part for part in (self._machine, *self._changes.values()) if part)

    @property
    def _machine_file(self) -> Path:
        return self.folder / "machine.txt"

    def _write_machine(self) -> None:
        replaced(self._machine_file, self._now)

    def _switch(self, file: str, text: str) -> None:
        path = beside(self.tree.folder, file)
        if text:
            path.write_text(text, "ascii")
        else:
            path.unlink(missing_ok=True)

    def _update(self, number: str, cpus: str, mems: str) -> None:
        self.kubelet.update(number, cpus, mems)

    def _heard(self, verb: str, resource: str, body: Object, late: bool) -> None:  # noqa: FBT001 - as the server calls it
        if resource == "pods/status":
            told = told_of(body)
            facts = {"uid": body["metadata"]["uid"], "name": body["metadata"]["name"], "cpus": dict(told.whole)}
            with acting("agent"):
                self.journal.mark("told", aligned=told.aligned, reason=told.reason, late=late, **facts)

    def _account(self) -> None:
        account = self.folder / "account"
        account.mkdir()
        (account / "token").write_text("token", "ascii")
        first = certifi.contents().split("-----END CERTIFICATE-----")[0].rpartition("-----BEGIN")[2]
        (account / "ca.crt").write_text(f"-----BEGIN{first}-----END CERTIFICATE-----\n", "ascii")

    def _objects(self) -> None:
        machine = parse_synthetic(self._machine)
        count = len(machine.online | machine.offline)
        capacity = {"cpu": str(count), "memory": "16Gi", "pods": "500"}
        self.api.put("namespaces", {"metadata": {"name": SPACE}})
        self.api.put("nodes", {
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": self.name},
            "status": {"capacity": capacity, "allocatable": {**capacity, "cpu": str(count - 2), "memory": "15Gi"}},
        })  # fmt: skip


def _container(name: str, cpu: str, requests: str = "") -> Object:
    if not cpu:
        return {"name": name, "image": "none", "resources": {}}
    limits = {"cpu": cpu, "memory": "64Mi"}
    return {
        "name": name,
        "image": "none",
        "resources": {"limits": limits, "requests": {**limits, "cpu": requests or cpu}},
    }


def _uid(name: str) -> str:
    return str(uuid.uuid5(UIDS, name))


def _entitled(pod: Running) -> list[str]:
    return [name for name, count in judging.entitled(pod.body).items() if count]
