"""Replicas of the gatekeeper for tests: their logs tell which one leads, and the next one inherits at once."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from agent.forecast.gate.values import GATE
from tests.cluster.api_proxy import ApiProxy
from tests.cluster.control_plane import ApiError, ControlPlane, kubeconfig
from tests.cluster.gate_world import (
    PODS,
    SPACE,
    GateProcess,
    PaperNodes,
    asking,
    condition,
    gates,
    inherit,
    nominated,
    scheduling,
    switched_on,
)
from tests.cluster.nodes import MERGE
from tests.cluster.objects import Object
from tests.patience import until

POLL = 0.1
SKEWED = """
import sys, time
by, real = float(sys.argv.pop(1)), time.time
time.time = lambda: real() + by
from agent.cli import main
main()
"""
"""The same program with another clock: seconds since the epoch are wrong by its first argument."""


class LiveGate:
    """Nodes, servers, and the replicas that a test starts, which speak through the proxy."""

    def __init__(
        self, cluster: ControlPlane, account: Path, folder: Path, nodes: PaperNodes, proxy: ApiProxy
    ) -> None:
        self.cluster, self.account, self.folder = cluster, account, folder
        self.nodes, self.proxy = nodes, proxy
        self.replicas: list[GateProcess] = []

    # ---- replicas

    def replica(self, *arguments: str, program: Iterable[str] = ("-m", "agent")) -> GateProcess:
        """Start one more. Its order of nodes is the opposite of the scheduler's: what it chooses, scores do not."""
        made = GateProcess(
            self.cluster, self.account, self.folder, f"replica-{len(self.replicas)}", "--scoring", "most-allocated",
            *arguments, server=self.proxy.server, program=program,
        )  # fmt: skip
        self.replicas.append(made.__enter__())
        return made

    def skewed(self, seconds: float) -> GateProcess:
        return self.replica(program=("-c", SKEWED, f"{seconds}"))

    @property
    def leaders(self) -> list[GateProcess]:
        """The replicas that live and began to lead."""
        return [each for each in self.replicas if each.lives and each.led_at()]

    def leads(self) -> GateProcess:
        """Wait until a replica decides, and pods that ask are gated; one is started where none lives."""

        def serving() -> bool:
            if not any(each.lives for each in self.replicas):
                inherit(self.cluster)
                self.replica()
            return bool(self.leaders) and self.gating()

        until(serving, "a leader that decides", pause=POLL)
        return self.leaders[0]

    def gating(self) -> bool:
        """Whether a pod that asks is gated."""
        made: Object = self.cluster.call("POST", f"{PODS}?dryRun=All", asking("probe"))
        return switched_on(self.cluster) and gates(made) == [GATE]

    def end(self, *replicas: GateProcess) -> None:
        """End replicas in order; all of them where none is named."""
        for each in replicas or self.replicas:
            each.end()

    # ---- pods

    def ask(self, name: str, cpu: int = 2, **more: Any) -> str:  # noqa: ANN401 - pod's
        """Create a pod that asks for the gate; its name."""
        self.cluster.create(asking(name, cpu, **more))
        return name

    def plain(self, name: str, cpu: int = 2, **more: Any) -> str:  # noqa: ANN401 - pod's
        """Create a pod that did not ask, and wants one NUMA node as well; its name."""
        return self.ask(name, cpu, annotations={"numalign.io/policy": "single-numa-node"}, **more)

    def pod(self, name: str) -> Object:
        """A pod, {} where it is not there."""
        return self.cluster.found(f"{PODS}/{name}") or {}

    def pods(self) -> list[Object]:
        found: list[Object] = self.cluster.call("GET", PODS)["items"]
        return found

    def delete(self, *names: str) -> None:
        for name in names:
            self.cluster.call("DELETE", f"{PODS}/{name}?gracePeriodSeconds=0")

    def node_of(self, name: str) -> str:
        """Where a pod is bound, "" for nowhere."""
        return str(self.pod(name).get("spec", {}).get("nodeName", ""))

    def bound(self, name: str) -> str:
        """Wait until a pod is bound; where."""
        return until(lambda: self.node_of(name), lambda: f"{name} to be bound: {self.pod(name).get('status')}")

    def runs(self, name: str) -> str:
        """Wait until a pod is bound and its node lets it in; where."""
        where = self.bound(name)
        until(lambda: self.nodes.holds(where, f"{SPACE}/{name}"), lambda: f"{name} on {where}: {self.nodes.refused}")
        return where

    def told(self, name: str) -> str:
        """What our condition of a pod says."""
        return str(condition(self.pod(name)).get("message", ""))

    def waits(self, name: str) -> str:
        """Wait until the gatekeeper says why a pod waits; the sentence."""
        return until(lambda: self.told(name), f"a sentence for {name}")

    def gated(self, name: str) -> bool:
        """Whether our gate stands."""
        body = self.pod(name)
        return bool(body) and GATE in gates(body)

    def phantoms(self) -> set[str]:
        """Pods that are nominated behind our gate."""
        return {each["metadata"]["name"] for each in self.pods() if GATE in gates(each) and nominated(each)}

    def abandoned(self) -> set[str]:
        """Phantoms that no later leader has cleared: those that one has may be nominated again at this moment."""
        return {name for name in self.phantoms() if "" not in self.proxy.promised(name)}

    # ---- other parts

    def restart_scheduler(self) -> None:
        """Start it again, and wait until it binds."""
        self.cluster.start_scheduler(scheduling())

    def ungate(self, token: str, *more: str) -> tuple[int, Object, str]:
        """Run the command with a token, through the proxy; exit code, what it said, and its complaints."""
        file = self.folder / "ungate.yaml"
        file.write_text(kubeconfig(self.proxy.server, self.cluster.ca, {"token": token}))
        command = [sys.executable, "-m", "agent", "ungate", "--all", "--kubeconfig", str(file), "-o", "json", *more]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        return done.returncode, json.loads(done.stdout or "{}"), done.stderr

    def clear(self) -> None:
        """Remove pods and nodes of a test."""
        for group, kind in (("apps", "deployments"), ("batch", "jobs"), ("apps", "replicasets")):
            path = f"/apis/{group}/v1/namespaces/{SPACE}/{kind}"
            self.cluster.call("DELETE", f"{path}?propagationPolicy=Background")
        until(self._emptied, "the pods to go")
        for name in [*self.nodes.nodes]:
            self.nodes.remove(name)

    def _emptied(self) -> bool:
        self.cluster.call("DELETE", f"{PODS}?gracePeriodSeconds=0")
        left = self.pods()
        for each in left:
            if each["metadata"].get("finalizers"):
                path = f"{PODS}/{each['metadata']['name']}"
                with suppress(ApiError):  # it is gone
                    self.cluster.call("PATCH", path, {"metadata": {"finalizers": None}}, kind=MERGE)
        return not left
