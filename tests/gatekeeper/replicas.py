"""A fleet on paper under a stand-in API server, and replicas of the gatekeeper."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from agent.app.gatekeeper.gatekeeper import Gatekeeper
from agent.app.gatekeeper.leader import Core
from agent.app.gatekeeper.options import GatekeeperOptions
from agent.errors import LeaseLostError
from agent.forecast.dry_run import DryRun
from agent.forecast.gate.step import step
from agent.forecast.gate.values import GATE, GateOptions
from agent.kube.gate.lease import DURATION
from agent.model.podspec import pod_from
from tests.gatekeeper.standin import Object, StandIn
from tests.patience import until
from tests.world.fleets import node, pod, summary_of, topology
from tests.world.nodes import managers_of

SPACE, NAME, SWITCH = "numalign-system", "numalign-gatekeeper", "numalign-gate"
MACHINE = "1 socket x 2 nodes x 4 cores x 1 thread, 8G per node"
STRICT = {"numalign.io/policy": "single-numa-node"}
SETTINGS = {"topologyManagerPolicy": "single-numa-node", "reservedSystemCPUs": "0"}
LABELS = {"app.kubernetes.io/name": "numalign", "app.kubernetes.io/component": "agent"}


class Cluster:
    """The server, its nodes, and replicas."""

    def __init__(self, folder: Path) -> None:
        self.api = StandIn(folder)
        self.runs: dict[str, DryRun] = {}
        self.replicas: list[Replica] = []
        self.api.put("namespaces", {"metadata": {"name": "shop"}})
        self.api.put("deployments", {"metadata": {"name": NAME, "namespace": SPACE, "uid": "uid-deployment"}})
        for name in ("a", "b"):
            self.node(name)

    def node(self, name: str) -> None:
        """Add a node with its agent and its summary."""
        self.runs[name] = DryRun(managers_of(MACHINE, SETTINGS))
        self.api.put("nodes", node(name, cpu="7"))
        status = {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}
        self.api.put("pods", {
            "metadata": {"name": f"agent-{name}", "namespace": SPACE, "labels": LABELS},
            "spec": {"nodeName": name, "containers": [{"name": "agent"}]}, "status": status,
        })  # fmt: skip
        self.publish(name)

    def publish(self, name: str) -> None:
        self.api.put("noderesourcetopologies", topology(name, summary_of(self.runs[name], time.time())))

    def fill(self, name: str, *cpus: int) -> None:
        """Let pods of so many CPUs run on a node, and publish."""
        for number, each in enumerate(cpus):
            self.runs[name].see(pod_from(pod(f"on-{name}-{number}-{each}", name, cpu=f"{each}")), float(number + 1))
        self.publish(name)

    def gated(self, name: str, cpu: int = 2, *, gates: tuple[str, ...] = (GATE,), **more: Any) -> str:  # noqa: ANN401 - pod's
        """Create a gated pod that asks for one NUMA node; its key."""
        notes = {**STRICT, **more.pop("notes", {})}
        body = pod(name, cpu=f"{cpu}", notes=notes, schedulingGates=[{"name": each} for each in gates], **more)
        self.api.put("pods", body)
        return f"shop/{name}"

    def replica(self, *, between: Callable[[], None] = lambda: None, decide: Core = step, **more: Any) -> Replica:  # noqa: ANN401 - of GateOptions
        options = GatekeeperOptions(
            access=self.api.access, namespace=SPACE, name=NAME, switch=SWITCH,
            identity=f"replica-{len(self.replicas)}", lease_seconds=more.pop("lease_seconds", DURATION),
            decisions=replace(GateOptions(own=SPACE), **more),
        )  # fmt: skip
        made = Replica(options, between, decide)
        self.replicas.append(made)
        made.start()
        return made

    def released(self, key: str) -> bool:
        """Tell whether our gate is lifted."""
        return GATE not in self.api.gates(key)

    @property
    def switched_on(self) -> bool:
        """Tell whether pods that ask are gated."""
        return bool(self.api.get("configmaps", f"{SPACE}/{SWITCH}"))

    def serving(self) -> None:
        until(lambda: self.switched_on, "the switch")

    def close(self) -> None:
        for each in self.replicas:
            each.stop()
        self.api.close()


class Replica:
    """One replica on a thread."""

    def __init__(self, options: GatekeeperOptions, between: Callable[[], None], decide: Core) -> None:
        self.gatekeeper = Gatekeeper(options, between, decide)
        self.lost = False
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _serve(self) -> None:
        with suppress(KilledError):  # as a killed process says nothing
            try:
                self.gatekeeper.serve()
            except LeaseLostError:
                self.lost = True

    def stop(self) -> None:
        """End it in order, as SIGTERM does."""
        self.gatekeeper.stop()
        if self._thread.is_alive():
            self._thread.join(20)

    @property
    def ended(self) -> bool:
        return not self._thread.is_alive()


class KilledError(BaseException):
    """What a test raises where a process would be killed."""


def terms_of(body: Object) -> list[Object]:
    """Return the required node terms of a pod."""
    affinity = body["spec"].get("affinity", {}).get("nodeAffinity", {})
    found: list[Object] = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get(
        "nodeSelectorTerms", []
    )
    return found
