"""What `numalign simulate --cluster` forecasts is what then happens: a real kube-scheduler, nodes that decide."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from agent.app.fleet.reading import read_fleet
from agent.app.fleet.source import ApiSource
from agent.app.simulate.cluster import ClusterForecast, forecast
from agent.app.simulate.cluster_options import WhatIfOptions
from agent.forecast.scheduling import Strategy
from agent.forecast.simulation import Fate
from agent.kube.caller import Caller
from agent.model.podspec import pod_from
from tests.cluster.control_plane import ControlPlane
from tests.cluster.objects import Object
from tests.cluster.paper_fleet import PLAIN, Lot, PaperFleet, lot_of, scheduling

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]
full = pytest.mark.skipif(
    not os.environ.get("NUMALIGN_LAB_TESTS"), reason="1,000 pods take minutes: a slice of the lab runs it"
)
CALM = 20
"""Looks in which nobody is bound any more."""
ORDERS = {"LeastAllocated": Strategy.LEAST_ALLOCATED, "MostAllocated": Strategy.MOST_ALLOCATED}


@pytest.fixture
def plane(kube: Path, tmp_path: Path) -> Iterator[ControlPlane]:
    """A control plane whose nodes are all of this test."""
    with ControlPlane(kube, tmp_path / "plane") as found:
        yield found


def begun(
    plane: ControlPlane, folder: Path, nodes: int, before: int, config: dict[str, object], seed: int
) -> PaperFleet:
    """A fleet on which pods came and went, and that has published what it is."""
    fleet = PaperFleet(plane, folder, nodes, seed)
    plane.start_scheduler(config)
    names = [f"before-{number}" for number in range(before)]
    for name in names:
        fleet.place(fleet.manifest(name))
    for name in names[::3]:
        if name in fleet.bodies:
            fleet.end(name)
    time.sleep(1)
    fleet.publish()
    return fleet


def told(kubeconfig: Path, folder: Path, pods: list[Object], strategy: Strategy) -> ClusterForecast:
    """The forecast, as the command makes it."""
    file = folder / "pods.json"
    file.write_text(json.dumps({"kind": "List", "items": pods}))
    options = WhatIfOptions(pods=(file,), strategy=strategy, smallest=False)
    return forecast(ApiSource(Caller(kubeconfig)), options, keep_pods=False)


def forecast_of(found: ClusterForecast, fate: Fate) -> Lot:
    """What a fate says, in the same words as what happened."""
    if fate.site is None:
        return Lot()
    uid = fate.record.pod.uid if fate.record else ""
    return lot_of(found.answer.sites[fate.site].name, found.answer.result.nodes[fate.site].ledger, uid)


def differences(plane: ControlPlane, folder: Path, order: str, *, nodes: int, pods: int, before: int) -> str:
    """Forecast first, then let the scheduler and the nodes do it, one pod after the other; in one line."""
    names = [f"paper-{number:02}" for number in range(nodes)]
    fleet = begun(plane, folder, nodes, before, scheduling(order, names), seed=len(order))
    manifests = [fleet.manifest(f"pod-{number}") for number in range(pods)]
    found = told(plane.kubeconfig, folder, manifests, ORDERS[order])
    assert len(found.answer.sites) == nodes, found.left_out
    wrong, kinds = list[str](), Counter[str]()
    for fate, body in zip(found.answer.fates, manifests, strict=True):
        said, happened = forecast_of(found, fate), fleet.place(body)
        kinds["in" if happened.runs else "refused" if happened.node else "unschedulable"] += 1
        if said != happened:
            wrong.append(f"{fate.item.pod.name}: said {asdict(said)}, happened {asdict(happened)}")
            break  # what comes after it comes to other nodes
    fleet.check()
    print(f"{order}: {pods} pods, {nodes} nodes: {dict(kinds)}, {len(wrong)} differences")
    assert kinds["in"] or wrong
    return "\n".join(wrong)


def as_bound(plane: ControlPlane, folder: Path, *, nodes: int, pods: int, before: int) -> str:
    """The scheduler as it comes, pods at once: each node decides as its summary does on the pods that it gets."""
    fleet = begun(plane, folder, nodes, before, dict(PLAIN), seed=3)
    read = read_fleet(ApiSource(Caller(plane.kubeconfig)))
    runs = {each.name: each.usable_summary.begin() for each in read.nodes if each.usable_summary is not None}
    assert len(runs) == nodes
    manifests = {f"pod-{number}": fleet.manifest(f"pod-{number}") for number in range(pods)}
    plane.create(*manifests.values())
    done, wrong, kinds = set[str](), list[str](), Counter[str]()

    def nobody_new() -> bool:
        new = [body for body in fleet.bound("pod-") if body["metadata"]["name"] not in done]
        for body in new:
            name, where = body["metadata"]["name"], body["spec"]["nodeName"]
            done.add(name)
            pod = pod_from(manifests[name])
            runs[where].see(pod, read.read + len(done))
            happened = fleet.decide(body)
            said = lot_of(where, runs[where].ledger, pod.uid)
            kinds["in" if happened.runs else "refused"] += 1
            if said != happened:
                wrong.append(f"{name}: said {asdict(said)}, happened {asdict(happened)}")
        return not new

    calm = 0
    while calm < CALM:  # nobody was bound for so many looks: the others fit nowhere
        calm = calm + 1 if nobody_new() else 0
        time.sleep(0.5)
    fleet.check()
    print(f"as bound: {pods} pods, {nodes} nodes: {dict(kinds)}, {len(wrong)} differences")
    assert kinds["in"]
    return "\n".join(wrong)


def test_what_is_forecast_happens(plane: ControlPlane, tmp_path: Path) -> None:
    """Eighty pods on eight nodes, one by one: the same node, CPUs and memory, or the same refusal, for each."""
    assert differences(plane, tmp_path, "LeastAllocated", nodes=8, pods=80, before=60) == ""


@full
@pytest.mark.parametrize("order", ORDERS)
def test_a_thousand_pods(plane: ControlPlane, tmp_path: Path, order: str) -> None:
    """A thousand pods on forty nodes, under both orders of kube-scheduler: no difference."""
    assert differences(plane, tmp_path, order, nodes=40, pods=1000, before=90) == ""


@full
def test_a_thousand_pods_as_the_scheduler_binds_them(plane: ControlPlane, tmp_path: Path) -> None:
    """With lots drawn and all scores of kube-scheduler: given its binding, no difference on any node."""
    assert as_bound(plane, tmp_path, nodes=40, pods=1000, before=90) == ""
