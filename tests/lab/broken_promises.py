"""Every promise broken once, on edges that are made up: the lab's own functions must raise an assertion each time.

`test_gate.py` puts them through the command that CI runs. No guest is needed: nodes, pods and the control plane are
objects that answer what a broken product would leave behind.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from agent.host.checkpoint import Checkpoint
from agent.model.idset import CpuSet
from agent.model.ledger import CpuBooks, Ledger, PodRecord
from agent.model.pod import Container, Pod, Qos
from tests.lab import agent, steps
from tests.lab.driving import Pods
from tests.lab.node import Plan
from tests.lab.places import RUN
from tests.lab.stage import Stage
from tests.peers import tools

UID = "aaaaaaaa-0000-4000-8000-000000000000"
NUMBER = "a" * 64
LEDGER = Ledger(
    "m", CpuBooks(CpuSet.parse("0-1,4-15"), assigned={UID: {"c": CpuSet.parse("2-3")}}),
    pods={UID: PodRecord(Pod(UID, "p", "default", (Container("c"),), Qos.GUARANTEED), "best-effort", "container")},
)  # fmt: skip
"""One pod with CPUs 2-3."""


def body(phase: str = "Running", **annotations: str) -> dict[str, Any]:
    """The pod as the API has it."""
    states = [{"name": "c", "state": {}, "containerID": f"containerd://{NUMBER}"}]
    return {
        "metadata": {"name": "p", "namespace": "default", "uid": UID, "annotations": annotations},
        "spec": {"nodeName": "numalign", "containers": [{"name": "c"}]},
        "status": {"phase": phase, "containerStatuses": states},
    }  # fmt: skip


class Node:
    """A node whose commands all say the same, and whose agent has saved LEDGER."""

    name, plan = "numalign", Plan()

    def __init__(self, says: str = "") -> None:
        self.says = says
        self.guest = SimpleNamespace(execute=lambda *_, **__: (0, b"", b""))
        self.plane: Any = SimpleNamespace(call=lambda *_, **__: {"items": []})

    def run(self, *_: object, **__: object) -> str:
        return self.says

    def get(self, _path: str) -> bytes:
        (RUN / self.name).mkdir(parents=True, exist_ok=True)
        file = RUN / self.name / "saved.json"
        Checkpoint(file).save(LEDGER)
        return file.read_bytes()


def pods(stored: Mapping[str, Any] | None, node: Node | None = None) -> Pods:
    """A lab of one node whose API has one pod, or none."""

    def call(_method: str, path: str, *_: object, **__: object) -> object:
        return {"items": [stored]} if "fieldSelector" in path else stored

    plane: Any = SimpleNamespace(call=call, found=lambda _path: stored)
    found = Pods(plane)
    found.nodes = {"numalign": node or Node()}  # type: ignore[dict-item]  # all that is asked of it
    return found


def stage(stored: Mapping[str, Any] | None = None, says: str = "") -> Stage:
    """A stage on that node."""
    node: Any = Node(says)
    lab: Any = pods(stored, node)
    return Stage(lab, node)


def look(cpus: str) -> str:
    """What `look.py` says of a node whose container runs on those CPUs."""
    each = {
        "path": f"/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice/cri-containerd-{NUMBER}.scope",
        "cpuset.cpus.effective": cpus, "cpuset.mems.effective": "0", "cpu.max": "max 100000", "pages": [],
        "threads": {"1": cpus},
    }  # fmt: skip
    saved = base64.b64encode(Node().get("")).decode()
    return json.dumps({"online": "0-15", "containers": [each], "checkpoint": saved, "agents": [], "aside": []})


def helm_refuses() -> None:
    """The chart cannot be installed."""
    with patch.object(tools, "helm", lambda: Path("/bin/false")):
        agent.helm(SimpleNamespace(kubeconfig="x"), "upgrade")  # type: ignore[arg-type]  # all that is asked of it


def never_configured() -> None:
    """Other settings are given, and there is no agent that takes them."""
    with patch.object(agent, "install"):
        agent.configure(Node(), {})  # type: ignore[arg-type]  # all that is asked of it


def gives_back() -> None:
    """The CPUs of a pod that was deleted by force go to the pool while its processes live (S13)."""
    made: Any = stage()
    held = iter((CpuSet.parse("2-3"), CpuSet()))
    made.lab = SimpleNamespace(create=_nothing, delete=_nothing, wait_pod=_nothing)
    made.agreed = _nothing
    made.held = lambda *_: next(held)
    steps.forced(made)


def keeps_the_corrupt_file() -> None:
    """A checkpoint that is damaged is not put aside."""
    made: Any = stage(says=look("2-3"))
    made.kill, made.said = lambda *_: 1, _nothing
    steps.damaged("true")(made)


def grants_unsaved() -> None:
    """A pod gets CPUs while nothing can be saved."""
    made: Any = stage()
    told = body(**{"numalign.io/assignment": "{}", "numalign.io/cpus": "2"})
    made.lab = SimpleNamespace(create=_nothing, wait_told=lambda *_: told)
    steps.refused(made, "p")


def _nothing(*_: object, **__: object) -> None:
    """What takes anything and does nothing."""


KERNEL = f"kubepods.slice/cri-containerd-{NUMBER}.scope/cpuset.cpus.effective:"
PROMISES: dict[str, Callable[[], object]] = {
    "the agent becomes Ready": lambda: agent.wait_ready(Node("it crashed"), 0),  # type: ignore[arg-type]  # a stand-in with a log alone
    "the chart can be installed": helm_refuses,
    "settings are followed": never_configured,
    "a pod runs": lambda: pods(body("Failed")).wait_running("p"),
    "a pod runs in time": lambda: pods(body("Pending")).wait_running("p", seconds=0),
    "a pod that does not fit is refused": lambda: pods(body()).wait_refused("p", seconds=0),
    "what a pod had is given back": lambda: pods(None).wait_gone(body(), seconds=0),
    "the kernel gets what was granted": lambda: pods(
        body(**{"numalign.io/assignment": "{}"}), Node(f"{KERNEL}0-15")
    ).wait_enforced(Node(f"{KERNEL}0-15"), "p", seconds=0),  # type: ignore[arg-type]  # a stand-in with a log alone
    "ledger, kernel and annotations agree": lambda: stage(body(), look("0-15")).agreed(0),
    "annotations say what is so": lambda: stage(body(**{"numalign.io/cpus": "4-5"}), look("2-3")).agreed(0),
    "the agent says what it saw": lambda: stage().said("recovered", within=0),
    "an agent runs": lambda: stage().kill(within=0),
    "S13: nothing is freed while it runs": gives_back,
    "a corrupt checkpoint is put aside": keeps_the_corrupt_file,
    "a full disk grants nothing": grants_unsaved,
}
"""What is promised -> a function of the lab that meets it broken, and must raise an assertion."""
