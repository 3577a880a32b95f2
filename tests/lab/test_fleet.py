"""What a node publishes of itself decides as the node: a forecast from the lab's API, and then the pods come."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from agent.app.fleet.reading import read_fleet
from agent.app.fleet.source import ApiSource
from agent.forecast.node_summary import NodeSummary
from agent.forecast.scheduling import Strategy
from agent.kube.caller import Caller
from agent.kube.topology_crd import PATH, SUMMARY
from tests.cluster.paper_fleet import Lot, lot_of
from tests.cluster.test_forecast import forecast_of, told
from tests.lab import agent
from tests.lab.cluster import Lab, Object
from tests.lab.needs import PromiseError
from tests.lab.node import KIND, Node
from tests.lab.pods import container, pod, resources
from tests.lab.report import record

WITHIN = 90.0
"""Seconds in which what the agent knows is in its object: it publishes within seconds, on a machine without load."""
SELECTED = {KIND: "numalign"}
BURSTABLE = resources("500m", "32Mi", limits={"cpu": "1", "memory": "64Mi"})
PODS = (
    pod("own-2", cpu="2"),
    pod("too-wide", cpu="5"),
    pod("sides", container("app", "1", "100Mi"), container("side", "1")),
    pod("shares", container(resources=BURSTABLE)),
    pod("own-3", cpu="3", memory="200Mi"),
    pod("heavy", cpu="1", memory="600Mi"),
    pod("together", container("a", "1"), container("b", "1"), annotations={"numalign.io/scope": "pod"}),
    pod("spread", cpu="2", annotations={"numalign.io/policy": "best-effort"}),
    pod("free", container(resources={})),
    pod("no-sum", cpu="8"),
    pod("own-1", cpu="1"),
)
"""In the order in which they come: some are refused, or find no room by sums."""


def summary_where(lab: Lab, until: Callable[[NodeSummary], object], what: str) -> NodeSummary:
    """The node's summary, read from the API as the command reads it, once it tells what is expected."""
    deadline, last = time.monotonic() + WITHIN, ""
    while time.monotonic() < deadline:
        found = read_fleet(ApiSource(Caller(lab.plane.kubeconfig))).node(lab.numalign.name)
        if found is not None and found.usable_summary is not None and until(found.usable_summary):
            return found.usable_summary
        last = found.why if found is not None else "there is no such node"
        time.sleep(0.5)
    raise PromiseError(f"the summary of {lab.numalign.name} does not tell {what} after {WITHIN:.0f} s: {last}")


def happened(lab: Lab, node: Node, body: Object) -> Lot:
    """Let the scheduler and the node do it; what the node's saved ledger then says."""
    made = lab.create(body, node, scheduled=True)
    name = made["metadata"]["name"]
    found = lab.wait_pod(name, lambda each: each["spec"].get("nodeName") or _unschedulable(each))
    if not found["spec"].get("nodeName"):
        lab.delete(name, grace=0)  # else it comes when there is room
        return Lot()
    if lab.wait_pod(name, _settled)["status"]["phase"] == "Failed":
        return Lot(node.name)
    lab.wait_running(name)
    lab.wait_enforced(node, name)
    ledger = agent.ledger(node)
    assert ledger is not None
    return lot_of(node.name, ledger, made["metadata"]["uid"])


def _settled(body: Object) -> bool:
    status = body["status"]
    started = [each.get("started") for each in status.get("containerStatuses", ())]
    return status.get("phase") == "Failed" or (bool(started) and all(started))


def _unschedulable(body: Object) -> bool:
    conditions = body["status"].get("conditions", ())
    return any((each["type"], each.get("reason")) == ("PodScheduled", "Unschedulable") for each in conditions)


def test_what_is_forecast_happens(publishing: Lab, tmp_path: Path) -> None:
    """A dozen pods on a node with holes: the same CPUs and memory, the same refusals, the same that find no room."""
    lab: Lab = publishing
    node = lab.numalign
    before = [lab.create(pod(f"before-{cpu}", cpu=cpu), node, wait=True) for cpu in ("1", "2", "3")]
    lab.wait_enforced(node, *(each["metadata"]["name"] for each in before))
    lab.delete("before-2")
    lab.wait_gone(before[1])
    summary_where(lab, lambda each: len(each.ledger.cpus.assigned) == 2, "the two pods that are left")
    manifests = [{**each, "spec": {**each["spec"], "nodeSelector": SELECTED}} for each in PODS]
    found = told(lab.plane.kubeconfig, tmp_path, manifests, Strategy.LEAST_ALLOCATED)
    assert [each.name for each in found.answer.sites] == [node.name], found.left_out
    kinds = Counter[str]()
    for fate, body in zip(found.answer.fates, PODS, strict=True):
        said, real = forecast_of(found, fate), happened(lab, node, body)
        kinds["in" if real.runs else "refused" if real.node else "unschedulable"] += 1
        assert asdict(said) == asdict(real), f"{fate.item.pod.name}: said {said}, happened {real}"
    assert kinds["in"] >= 6
    assert kinds["refused"]
    record("the fleet: pods of the lab's node forecast, 0 differences", dict(kinds))


def test_it_comes_and_goes_with_the_setting(publishing: Lab) -> None:
    """A restart of the agent writes nothing where nothing changed; switched off, the annotation is removed."""
    lab: Lab = publishing
    node = lab.numalign
    lab.clear(node)
    first = summary_where(lab, lambda each: not each.ledger.cpus.assigned, "a node without pods that pin")
    agent.kill(node)
    time.sleep(5)
    agent.wait_ready(node)
    again = summary_where(lab, lambda each: not each.ledger.cpus.assigned, "the same")
    assert again.machine == first.machine
    assert again.generation >= first.generation
    agent.configure(node, {})
    deadline = time.monotonic() + WITHIN
    while SUMMARY in lab.plane.call("GET", f"{PATH}/{node.name}")["metadata"]["annotations"]:
        assert time.monotonic() < deadline, "the annotation is still there"
        time.sleep(0.5)
    left = lab.plane.call("GET", f"{PATH}/{node.name}")
    assert not [each for each in left["attributes"] if each["name"] == SUMMARY]
    agent.configure(node, agent.PUBLISHED)
    summary_where(lab, lambda _: True, "anything after it was switched on again")
