"""One pair of faults, from a healthy node to a healthy node. Run by `tests.matrix.worker`."""

from __future__ import annotations

import json
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from agent.kube.pod_report import ASSIGNMENT
from agent.model.idset import CpuSet
from tests.flow.claims import claim, device, result, slices
from tests.matrix.agents import Agents
from tests.matrix.faults import MOST, Pair
from tests.matrix.node import HARDWARE, Node

FOLLOWING = {"dra": {"enabled": True}}
"""Settings that follow claims."""


def run_beside(node: Node, name: str, **more: Any) -> None:  # noqa: ANN401 - as `Node.create` takes them
    """Publish a device, allocate it to a claim of the pod's name, and start the pod once the agent knows all that."""
    published = slices(device(name, 1))
    published["spec"]["nodeName"] = node.name
    node.api.put("resourceslices", {**published, "metadata": {"name": f"{node.name}-{name}"}})
    metadata = {"namespace": node.key(name).partition("/")[0], "name": name}
    node.api.put("resourceclaims", {**claim(result(name)), "metadata": metadata})
    node.create(name, spec={"resourceClaims": [{"name": "gpu", "resourceClaimName": name}]}, **more)

    def using(body: dict[str, Any]) -> None:
        body["spec"]["containers"][0]["resources"]["claims"] = [{"name": "gpu"}]

    node.api.change("pods", node.key(name), using)
    node.wait(lambda: "claims" in _assignment(node, name), f"the claim of {name} to be followed")
    node.kubelet.run(node.key(name))


def elsewhere(node: Node, name: str) -> str:
    """A pod that runs, and not beside its claim's device, "" for none."""
    runs = node.kernel(name)
    return f"{name} runs on {runs}, its device is on NUMA node 1" if str(_nodes(runs)) != "1" else ""


def _nodes(cpus: str) -> object:
    return HARDWARE.nodes_of(CpuSet.parse(cpus))


def _assignment(node: Node, name: str) -> dict[str, Any]:
    notes = node.api.get("pods", node.key(name))["metadata"]["annotations"]
    found: dict[str, Any] = json.loads(notes.get(ASSIGNMENT, "{}")).get("containers", {}).get("c", {})
    return found


PINNED = ("space/old", "space/db", "space/mesh")
"""Pods whose containers run from first to last; those of web are started again under the faults."""


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a pair.

    Attributes:
        pair: its name.
        wrong: what went wrong, "" for nothing.
        log: what its agents logged, where something went wrong.
        seconds, cpu: how long it took, and the CPU time of its agents.
        looks: how often the agent looked at its node, at most, until what the fault allowed it was in order.
    """

    pair: str
    wrong: str
    log: str
    seconds: float
    cpu: float
    looks: int = 0

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def run(pair: Pair, folder: Path, agents: Agents) -> Result:
    """Never raises: a pair that cannot be run is one that went wrong."""
    began, wrong, log, looks = time.monotonic(), "", "", 0
    lives = []
    try:
        settings = {**FOLLOWING, **pair.row.settings, **pair.column.settings}
        folder.mkdir()
        skew = pair.row.skew or pair.column.skew
        with Node(folder, agents, settings=settings, skew=skew, broken=pair.broken) as node:
            lives = node.lives
            try:
                looks = _live(node, pair)
            except AssertionError as error:
                wrong = "\n".join([str(error), node.untrue(), *node.faults()])
            finally:
                log = node.words()
    except Exception:  # noqa: BLE001 - whatever it is, it is this pair's, and the others go on
        wrong = traceback.format_exc()
    cpu = sum(each.cpu for each in lives)
    return Result(pair.name, wrong, log if wrong else "", time.monotonic() - began, cpu, looks)


def _live(node: Node, pair: Pair) -> int:
    row, column = pair.row, pair.column
    node.start()
    node.wait(lambda: node.runtime is None or node.runtime.connected, "NRI")
    run_beside(node, "old", cpu="1", created="2026-01-01T00:00:01Z")
    node.run("db", created="2026-01-01T00:00:02Z")
    node.run("web", created="2026-01-01T00:00:03Z", also={"side": "500m"})
    node.run("batch", cpu="1", requests="500m", created="2026-01-01T00:00:04Z")
    notes = {"numalign.io/exclusive": "auto", "numalign.io/mixed": "c"}
    mesh = {"annotations": notes, "also": {"proxy": ""}}  # Burstable, with a CPU of its own and shared ones beside it
    node.run("mesh", cpu="1", created="2026-01-01T00:00:05Z", **mesh)
    node.settle()
    assert not elsewhere(node, "old"), elsewhere(node, "old")
    before = node.pinned()

    column.begin(node)
    row.begin(node)
    if not node.kubelet.down:
        node.kubelet.restart("space/web", "c")
    if column.cluster:
        node.run("late")
    node.turns(1)
    row.amid(node)
    column.amid(node)
    node.turns(2)
    if node.agent is not None and not node.agent.alive:
        node.start()
    looks, lost = 0, "checkpoint lost" in {row.name, column.name}
    if row.keeping and column.keeping:
        looks = _judged(node, lambda: _off(node, before), "containers to be where they were", lost=lost)
    elif row.name not in {"daemon-reload", "node rebooted"}:
        assert not _off(node, before), _off(node, before)
    if row.telling and column.telling:
        looks = max(looks, _judged(node, node.untrue, "the truth", lost=lost))

    row.end(node)
    column.end(node)
    if not column.cluster:
        node.run("late")
    node.settle()
    node.judge()
    assert not elsewhere(node, "old"), elsewhere(node, "old")
    return looks


def _judged(node: Node, wrong: Callable[[], str], what: str, *, lost: bool) -> int:
    """Wait for what the agent has to bring about within MOST looks at its node; how many it took.

    Those of an agent whose ledger is `lost` count from its first complete list of pods on: it writes nothing before.
    """
    since, looks, last = node.journal.file.stat().st_size, 0, ""

    def right() -> bool:
        nonlocal since, looks, last
        if lost and not node.listed:
            since = node.journal.file.stat().st_size
        before = node.looks(since)  # it had looked so often, and it is wrong all the same
        found = wrong()
        if found:
            looks, last = before, found
        return not found

    node.wait(right, lambda: f"{what}: {last}", judging=True)
    assert looks <= MOST, f"{what}, after {looks} looks of the agent: {last}"
    return looks


def _off(node: Node, before: dict[tuple[str, str], str]) -> str:
    """A container that ran from the first and is not on all of its CPUs that are online, "" for none."""
    online = node.online
    for key in PINNED:
        was, runs = CpuSet.parse(before[key, "c"]), CpuSet.parse(node.kernel(key))
        if key in node.kubelet.pods and not (was & online).issubset(runs):
            return f"{key} ran on {was}, and runs on {runs}"
    return ""
