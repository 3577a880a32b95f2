"""Pages for tests that look at them: a small node with a few pods, opened in the browser."""

from __future__ import annotations

from dataclasses import replace

from agent.app.page.values import PageInput
from agent.core.admission.node import Node
from agent.core.machines.synthetic import parse_synthetic
from agent.core.request.annotations import PodSettings
from agent.model.hint import Hint
from agent.model.idset import CpuSet, NodeSet
from agent.model.ledger import Ledger, PodRecord
from agent.model.outcome import Reason, Refusal
from agent.model.pod import Container, Pod, Qos
from agent.node.device_tracker import DeviceTracker
from agent.node.state import State
from agent.node.tracked_pod import TrackedPod
from agent.observe.page.recent import Fault, RecentRepair
from agent.observe.page.server import PageServer
from tests.page.browser import Browser
from tests.page.served import LIVE
from tests.world.nodes import managers_of

HERE = "(document.activeElement.dataset?.key ?? document.activeElement.id ?? '')"
OPEN = "document.getElementById('why').open"
TOLD = f"{OPEN} && document.querySelector('#why table') !== null"
ONE = {"cpu": 1000, "memory": 1000 << 30}
"""One CPU, 1 GiB, in thousandths."""


def two_nodes(name: str = "a machine") -> tuple[Node, Ledger]:
    """Two NUMA nodes of four CPUs, and nobody on them."""
    machine = parse_synthetic("2 sockets x 4 cores, 8G per node, gpu on 1", name)
    node = managers_of(machine, {"systemReserved": {"cpu": "1"}})
    return node, node.start()


def some_pods(*names: str, machine: str = "a machine") -> PageInput:
    """A pod per name on one CPU each, the last one refused; a repair and a fault."""
    node, ledger = two_nodes(machine)
    refusal = Refusal(Reason.UNEXPECTED, f"no room {names[-1]}")
    known, records, held = {}, {}, {}
    for number, name in enumerate(names):
        pod = Pod(
            f"uid-{number}",
            name,
            "default",
            (Container(name, requests=ONE, limits=ONE),),
            Qos.GUARANTEED,
            created=number,
        )
        last = name == names[-1]
        known[pod.uid] = TrackedPod(pod, PodSettings(), refusal=refusal if last else None)
        if not last:
            records[pod.uid] = PodRecord(pod, "best-effort", "container", aligned={name: number % 2 == 0},
                                         affinity={name: Hint(NodeSet.from_ids([0]), preferred=True)},
                                         why={name: f"why {name}"} if number % 2 else {})  # fmt: skip
            held[pod.uid] = {name: CpuSet.from_ids([number + 1])}
    shared = ledger.cpus.shared - CpuSet.from_ids(range(1, len(names)))
    ledger = replace(ledger, cpus=replace(ledger.cpus, assigned=held, shared=shared), pods=records)
    return PageInput(
        State(ledger, node, DeviceTracker(node), known), node_name="node-7",
        repairs=(RecentRepair(4e9, f"/kubepods/{names[0]}", "cpuset.cpus", "drift-foreign", names[0], "1"),),
        faults=(Fault(4e9, names[0], names[0]),), stopped=(names[0],), missing=names[0],
    )  # fmt: skip


def look(browser: Browser, server: PageServer, width: int = 1400, **media: str) -> None:
    """Open it and wait until it is there."""
    browser.size(width, 1000)
    browser.fresh(server.address, **media)
    browser.until(LIVE)
