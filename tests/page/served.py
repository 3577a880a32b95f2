"""A node whose page can be looked at: a real agent on a described machine, serving a folder of manifests."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from agent.app.page.server import Values
from agent.app.page.values import PageInput
from agent.core.machines.synthetic import parse_synthetic
from agent.host.scratch import Scratch
from agent.model.podspec import pod_from
from agent.node.device_tracker import DeviceTracker
from agent.node.state import State
from tests import patience
from tests.flow.serving import replaced, serving
from tests.world.manifests import container, manifest
from tests.world.nodes import managers_of

SETTINGS = {
    "cpuManagerPolicy": "static", "topologyManagerPolicy": "best-effort", "systemReserved": {"cpu": "1"},
    "cpuManagerReconcilePeriod": "1s", "page": {"port": 0},
}  # fmt: skip
LIVE = "document.querySelector('#picture svg') && document.getElementById('live').className === 'chip good'"
"""True once the page shows a picture and hears the agent."""


def pod(
    name: str, cpus: str | None, memory: str = "1Gi", *, namespace: str = "default",
    annotations: dict[str, str] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """A Guaranteed pod of one container; without CPUs it is BestEffort. It has neither a uid nor a time."""
    made = manifest(name, container("main", cpus or "", memory if cpus else ""))
    made["metadata"] = {"name": name, "namespace": namespace, "annotations": annotations or {}}
    return made


class Served:
    """An agent in a thread of its own. A context manager: leaving it ends the agent.

    Args:
        folder: where manifests, configuration and state go; a second one on the same folder goes on from there.
        machine: as `--root` takes it.
        metrics: serve metrics, on a free port.
        named: the node has a name of its own, beside the machine's.
        more: settings beside SETTINGS.
    """

    def __init__(
        self, folder: Path, machine: str = "two-sockets", *, metrics: bool = False, named: bool = True, **more: object
    ) -> None:
        self.manifests, self.config, self.state = folder / "pods", folder / "config.yaml", folder / "state"
        self._settings = {**SETTINGS, **more}
        self.config.write_text(json.dumps(self._settings), "utf-8")
        self._serving = serving(
            folder, config=self.config, root=machine, processes=False, node_name="node-7", named=named,
            metrics_address="127.0.0.1:0" if metrics else "",
        )  # fmt: skip

    def __enter__(self) -> Self:
        self.node = self._serving.__enter__().node
        return self

    def __exit__(self, *_: object) -> None:
        self._serving.__exit__(None, None, None)

    @property
    def url(self) -> str:
        return self.node.page.address

    def add(self, *pods: dict[str, Any]) -> None:
        """Put manifests into the folder; done when all are decided."""
        for each in pods:
            file = self.manifests / f"{each['metadata']['namespace']}-{each['metadata']['name']}.json"
            replaced(file, json.dumps(each))
        names = {f"{each['metadata']['namespace']}/{each['metadata']['name']}" for each in pods}
        engine = self.node.engine
        patience.until(lambda: names <= {each.pod.key for each in engine.snapshot.pods.values()}, "the decisions")

    def remove(self, name: str, namespace: str = "default") -> None:
        (self.manifests / f"{namespace}-{name}.json").unlink()

    def configure(self, **more: object) -> None:
        replaced(self.config, json.dumps({**self._settings, **more}))

    def write(self, name: str, file: str, value: str) -> None:
        """Somebody else writes to the cgroup of a pod's container, once that is there."""
        uid = next(uid for uid, known in self.node.engine.snapshot.pods.items() if known.pod.name == name)

        def path() -> str:
            found = (each for each in self.node.cgroups.observe().cgroups if each.pod_uid == uid)
            return next((each.path for each in found if each.container_id and each.cpus), "")

        Scratch(self.state / "cgroup").kernel_write(patience.until(path, "a container"), file, value)


@dataclass
class Still(Values):
    """A page of values that nobody decided: a source whose `seen` tests set."""

    seen: PageInput

    def look(self) -> PageInput:
        return self.seen


def many_nodes() -> PageInput:
    """256 CPUs in 64 NUMA nodes, and pods of one to four CPUs on all of them, placed by the managers."""
    machine = parse_synthetic("4 sockets x 16 nodes x 4 cores, 16G per node", "many nodes")
    node = managers_of(machine, {"systemReserved": {"cpu": "1"}})
    ledger = node.start()
    for number in range(120):
        body = pod(f"worker-{number}", str((3, 2, 4, 1, 2)[number % 5]), namespace=f"team-{number % 5}")
        body["metadata"]["uid"] = f"uid-{number}"
        ledger = node.admit(ledger, pod_from(body)).ledger
    return PageInput(State(ledger, node, DeviceTracker(node)), node_name="many-nodes")
