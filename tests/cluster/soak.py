"""Pods come and go for minutes while the control plane fails; at the end everything agrees and nothing is lost.

`make soak` is the long run of tests/cluster/test_soak.py, which runs for some seconds otherwise. Kubelet and runtime
are played: a pod's cgroups appear when it was created, and go before it leaves the API, after it (forced deletion),
or when it has completed. Faults, again and again: the API server is killed and started again, etcd stands still, the
agent's connections are cut; once the agent itself is killed.
"""

from __future__ import annotations

import contextlib
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent.model.cgroup import Level
from agent.model.idset import CpuSet
from tests import patience, scraped
from tests.cluster.control_plane import ApiError, ControlPlane
from tests.cluster.nodes import Agent, Place
from tests.cluster.objects import Object
from tests.lab import agreement
from tools.bench.relay import Relay

MACHINE = "synthetic:2 sockets x 2 nodes x 16 cores x 2 threads, 32G per node"
ALIVE = 60
SEED = 7


@dataclass
class Churn:
    """Creates, starts and ends pods.

    Attributes:
        uids: alive pods, name -> uid.
        created, ended: how many.
        faults: what was done to the control plane.
    """

    place: Place
    random: random.Random = field(default_factory=lambda: random.Random(SEED))
    uids: dict[str, str] = field(default_factory=dict)
    created: int = 0
    ended: dict[str, int] = field(default_factory=dict)
    faults: dict[str, int] = field(default_factory=dict)

    def one(self) -> None:
        """One more pod; when enough are alive, an old one ends before."""
        if len(self.uids) >= ALIVE:
            self.end(self.random.choice(sorted(self.uids)))
        name = f"p{self.created}"
        cpu = self.random.choice(("1", "2", "2", "4", "500m", "1500m"))
        note = {"policy": self.random.choice(("best-effort", "restricted", "single-numa-node"))}
        body = self._asked(
            lambda: self.place.create(name, cpu=cpu, annotations=note),
            done=lambda: self.place.cluster.found(self.place.path(name)),
        )
        self.created += 1
        self.uids[name] = body["metadata"]["uid"]
        self._asked(lambda: self.place.start(name))

    def end(self, name: str) -> None:
        """End a pod in one of the ways in which pods end."""
        uid, how = self.uids.pop(name), self.random.choice(("graceful", "forced", "completed"))
        self.ended[how] = self.ended.get(how, 0) + 1
        if how == "completed":
            self._asked(lambda: self.place.patch(name, {"status": {"phase": "Succeeded"}}, "/status"))
        if how == "forced":
            self._asked(lambda: self.place.delete(name), done=lambda: not self.place.there(name))
            self.place.tree.remove_pod(uid)
        else:
            self.place.tree.remove_pod(uid)
            self._asked(lambda: self.place.delete(name), done=lambda: not self.place.there(name))

    def _asked(self, call: Callable[[], Any], done: Callable[[], Any] = lambda: None) -> Any:  # noqa: ANN401 - JSON
        """Ask until the API answers; what was done though nobody said so counts."""
        deadline = time.monotonic() + 120
        while True:
            try:
                return call()
            except (ApiError, OSError) as error:
                if isinstance(error, ApiError) and error.status in (404, 409):
                    found = done()
                    if found:
                        return found
                    if error.status == 404:
                        return None
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.3)


def faults(churn: Churn, cluster: ControlPlane, relay: Relay, pause: float) -> Iterator[Callable[[], None]]:
    """One fault after the other, for ever."""

    def apiserver() -> None:
        cluster.kill("kube-apiserver")
        time.sleep(pause / 2)
        cluster.start_apiserver()
        cluster.wait_ready()

    def etcd() -> None:
        cluster.kill("etcd", signal.SIGSTOP)
        time.sleep(pause)
        cluster.kill("etcd", signal.SIGCONT)

    while True:
        for name, fault in (("connections", relay.cut), ("etcd", etcd), ("apiserver", apiserver)):
            churn.faults[name] = churn.faults.get(name, 0) + 1
            yield fault


def disagreements(place: Place) -> list[str]:
    """Where ledger, cgroups, annotations and API differ now; empty when they agree."""
    pods: list[Object] = place.cluster.call("GET", f"/api/v1/namespaces/{place.name}/pods")["items"]
    ledger = place.ledger()
    found = tuple(
        agreement.Container(each.pod_uid, each.container_id, each.effective_cpus, each.effective_mems)
        for each in place.cgroups.observe().cgroups
        if each.level is Level.CONTAINER
    )
    seen, pool = agreement.Look(place.machine.online, ledger, found), ledger.cpus.shared
    shared = (each for each in found if not ledger.grant(each.uid, "c").cpus)
    return [
        *agreement.disagreements(seen, pods, CpuSet(), space=place.name),
        *(f"{each.uid} runs on {each.cpus}, not on {pool}" for each in shared if each.cpus != pool),
    ]


def soak(cluster: ControlPlane, folder: Path, pods: int, seconds: float, *, pause: float = 5.0) -> dict[str, Any]:
    """Run it; figures. Raises AssertionError where something does not agree in the end."""
    place = Place(cluster, "soak", folder, machine=MACHINE, keeps="2")
    churn = Churn(place)
    patches = 0.0
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        relay = stack.enter_context(Relay(cluster.port))
        server = f"https://127.0.0.1:{relay.port}"
        agent = stack.enter_context(Agent(place, server=server))
        over, trouble = threading.Event(), list[BaseException]()

        def fail() -> None:
            try:
                for fault in faults(churn, cluster, relay, pause):
                    if over.wait(max(pause, seconds / 15)):
                        return
                    fault()
            except BaseException as error:  # noqa: BLE001 - told by the other thread
                trouble.append(error)

        thread = threading.Thread(target=fail, daemon=True)
        thread.start()
        killed = False
        for number in range(pods):
            churn.one()
            if number > pods * 2 // 3 and not killed:
                patches += agent.patches()
                killed = True
                agent.end(signal.SIGKILL)
                dead, agent = agent, stack.enter_context(Agent(place, server=server))
                dead.process = agent.process  # which is ended once, and whose exit code counts for both
            time.sleep(max(0.0, began + seconds * number / pods - time.monotonic()))
        over.set()
        thread.join(180)
        assert not trouble, trouble
        lasted = time.monotonic() - began
        settled = time.monotonic()
        while (left := disagreements(place)) and time.monotonic() - settled < 2 * patience.PATIENCE:
            time.sleep(0.2)
        assert not left, "\n".join(left)
        settle = time.monotonic() - settled
        assert agent.process is not None
        figures = {
            "seconds": round(lasted, 1), "created": churn.created, "ended": churn.ended, "alive": len(churn.uids),
            "faults": churn.faults, "agreed after": round(settle, 2), "errors logged": agent.words().count('"error"'),
            "resident MiB": scraped.status(agent.process.pid, "VmRSS") // 1024, "patches": patches + agent.patches(),
        }  # fmt: skip
        assert "Traceback" not in agent.log.read_text(), agent.log.read_text()[-3000:]
    assert disagreements(place) == [], "after the end of the agent, too"
    return figures
