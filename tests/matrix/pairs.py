"""One pair of faults, from a healthy node to a healthy node."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from agent.kube.pod_report import ASSIGNMENT
from agent.model.idset import CpuSet
from tests import in_memory
from tests.flow.claims import claim, device, result, slices
from tests.matrix.agents import Agents
from tests.matrix.faults import MOST, Pair, named
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


def run(name: str) -> None:
    """Run a pair. Raises AssertionError with all that went wrong, and what the agents logged as a note."""
    pair = named(name)
    settings = {**FOLLOWING, **pair.row.settings, **pair.column.settings}
    skew = pair.row.skew or pair.column.skew
    with in_memory.folder("pair-") as folder:
        home = folder / "node"
        home.mkdir()
        with Node(home, Agents(), settings=settings, skew=skew) as node:
            try:
                _live(node, pair)
            except AssertionError as error:
                wrong = AssertionError("\n".join([str(error), node.untrue(), *node.faults()]))
                wrong.add_note(node.words())
                raise wrong from error


def _live(node: Node, pair: Pair) -> None:
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
    lost = "checkpoint lost" in {row.name, column.name}
    if row.keeping and column.keeping:
        _judged(node, lambda: _off(node, before), "containers to be where they were", lost=lost)
    elif row.name not in {"daemon-reload", "node rebooted"}:
        assert not _off(node, before), _off(node, before)
    if row.telling and column.telling:
        _judged(node, node.untrue, "the truth", lost=lost)

    row.end(node)
    column.end(node)
    if not column.cluster:
        node.run("late")
    node.settle()
    node.judge()
    assert not elsewhere(node, "old"), elsewhere(node, "old")


def _judged(node: Node, wrong: Callable[[], str], what: str, *, lost: bool) -> None:
    """Wait for what the agent has to bring about within MOST looks at its node.

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

    node.wait(right, lambda: f"{what}: {last}")
    assert looks <= MOST, f"{what}, after {looks} looks of the agent: {last}"


def _off(node: Node, before: dict[tuple[str, str], str]) -> str:
    """A container that ran from the first and is not on all of its CPUs that are online, "" for none."""
    online = node.online
    for key in PINNED:
        was, runs = CpuSet.parse(before[key, "c"]), CpuSet.parse(node.kernel(key))
        if key in node.kubelet.pods and not (was & online).issubset(runs):
            return f"{key} ran on {was}, and runs on {runs}"
    return ""
