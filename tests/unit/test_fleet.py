"""What a fleet is asked, on paper nodes: figures, who waits and where it would fit now, pictures, JSON."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.app.fleet.reading import read_fleet
from agent.app.fleet.source import FileSource
from agent.forecast.dry_run import DryRun
from agent.forecast.fleet.figures import figures_of, fragmentation
from agent.forecast.fleet.questions import (
    GATED,
    MISALIGNED,
    REFUSED,
    RELEASED,
    WAITS_ON_NODE,
    WAITS_TO_BE_BOUND,
    Desk,
    FleetAnswers,
    LandedElsewhere,
    answers,
    in_order,
)
from agent.forecast.fleet.report import as_json, by_shape
from agent.forecast.fleet.values import Fleet, FleetNode, Lack
from agent.forecast.node_summary import Decoder, decode, summarize
from agent.kube.objects.pod_objects import seen
from agent.observe.drawing.fleet import FleetTile, draw_fleet, word_of
from tests.examples import examples
from tests.world import strategies
from tests.world.fleets import BEGAN, asking, node, pod, summary_of, topology
from tests.world.nodes import managers_of

MACHINE = "1 socket x 2 nodes x 4 cores, 4G per node"
CONFIG = {"reservedSystemCPUs": "0", "onMisalignment": "wait"}


def served(*cpus: int, policy: str = "single-numa-node", ended: tuple[int, ...] = ()) -> DryRun:
    """A node with pods of so many CPUs, in order; some have left."""
    run = DryRun(managers_of(MACHINE, {**CONFIG, "topologyManagerPolicy": policy}))
    for number, count in enumerate(cpus):
        run.see(asking(f"p{number}", count, created=BEGAN + number), number + 1.0)
    run.end([f"p{number}" for number in ended], 50.0)
    return run


def asked(tmp_path: Path, nodes: dict[str, DryRun], *more: dict[str, Any]) -> tuple[Fleet, FleetAnswers]:
    """The answers of a fleet, by way of a file."""
    bodies = [topology(name, summary_of(run)) for name, run in nodes.items()]
    bodies += [node(name) for name in nodes] + list(more)
    (tmp_path / "fleet.json").write_text(json.dumps({"items": bodies}))
    fleet = read_fleet(FileSource([str(tmp_path / "fleet.json")]), clock=lambda: BEGAN + 100)
    return fleet, answers(fleet, in_order(map(figures_of, fleet.nodes)))


def test_the_figures_of_a_node() -> None:
    """Seven CPUs may be had, of which three and two are; what is free lies on two NUMA nodes, one CPU and one."""
    run = served(2, 3)
    found = figures_of(FleetNode("n", decode(summary_of(run))))
    assert (found.cpus, found.held, found.largest, found.policy) == (7, 5, 1, "single-numa-node")
    assert (found.fill, round(found.fragmentation, 2)) == (5 / 7, 0.5)
    assert found.shape == "1 socket, 2 NUMA nodes, 8 CPUs, 8Gi"


def test_who_waits_and_where_it_would_fit_now(tmp_path: Path) -> None:
    """A pod in a node's line, one that no node has, a node that is tainted: the real decision names the room."""
    nodes = {"full": served(3, 4, 2), "half": served(3), "kept": served()}
    taints = node("kept", taints=[{"key": "gpu", "value": "", "effect": "NoSchedule"}])
    line = pod("p2", "full", cpu="2", notes={})
    line["metadata"]["creationTimestamp"] = "2023-11-14T22:13:22Z"
    _, found = asked(tmp_path, nodes, taints, line, pod("four", cpu="4"), pod("five", cpu="5"))
    told = {each.key: each for each in found.troubles}
    assert set(told) == {"shop/p2", "shop/four", "shop/five"}
    waits, four, five = (told[f"shop/{name}"] for name in ("p2", "four", "five"))
    assert (waits.kind, waits.node, four.kind) == (WAITS_ON_NODE, "full", WAITS_TO_BE_BOUND)
    assert waits.fits is not None
    assert waits.fits.nodes == ("half",)
    assert waits.advice == "delete it, so that its owner creates it again: half would take it aligned now"
    assert four.fits is not None
    assert (four.fits.nodes, four.fits.barred) == (("half",), {"requested cpu": 1, "taint gpu": 1})
    assert five.fits is not None
    assert (five.fits.nodes, five.fits.refusals) == ((), {"TopologyAffinityError": 1})
    assert "TopologyAffinityError" in five.advice
    (largest,) = found.largest
    assert (largest.cpus, largest.node, largest.exact) == (4, "half", True) or largest.node == "kept"


def at_the_gate(
    name: str,
    *,
    fits: str = "False",
    message: str = "",
    since: str = "2023-11-14T22:20:00Z",
    **more: Any,  # noqa: ANN401 - of a pod
) -> dict[str, Any]:
    """A pod that the gatekeeper told of; without a message it did not."""
    body = pod(name, **more)
    body["metadata"]["creationTimestamp"] = "2023-11-14T22:13:22Z"
    if message:
        told = {"type": "numalign.io/fit", "status": fits, "message": message, "lastTransitionTime": since}
        body["status"]["conditions"].append(told)
    return body


def test_pods_at_the_gate_and_what_became_of_released_ones(tmp_path: Path) -> None:
    """By gate, condition and node: held since when and why, released and not bound yet, bound elsewhere."""
    gates = [{"name": "numalign.io/fit"}]
    nodes = {"full": served(3, 4), "half": served(3)}
    takes = "full: its decision takes the pod"
    _, found = asked(
        tmp_path, nodes,
        at_the_gate("held", message="full comes closest: it lacks 1 CPU", schedulingGates=gates),
        at_the_gate("silent", schedulingGates=gates), at_the_gate("going", fits="True", message=takes),
        at_the_gate("elsewhere", fits="True", message=takes, node="half"),
        at_the_gate("landed", fits="True", message=takes, node="full"),
    )  # fmt: skip
    told = {each.key: each for each in found.troubles}
    held, silent, going = (told[f"shop/{name}"] for name in ("held", "silent", "going"))
    assert (held.kind, held.why, held.since) == (GATED, "full comes closest: it lacks 1 CPU", BEGAN + 400)
    assert held.advice.startswith("half would take it aligned now: the gatekeeper releases it")
    assert (silent.kind, silent.why) == (GATED, "the gatekeeper has not said why")
    assert "ungate --all" in silent.advice
    assert (going.kind, going.node) == (RELEASED, "full")
    assert going.why == "the gatekeeper released it to full, and it is not bound yet"
    assert found.elsewhere == (LandedElsewhere("shop/elsewhere", "full", "half", BEGAN + 400),)
    assert as_json(found, BEGAN)["landedElsewhere"] == [
        {"pod": "shop/elsewhere", "releasedTo": "full", "node": "half", "released": BEGAN + 400}
    ]


@pytest.mark.parametrize(
    ("limits", "told", "barred"),
    [
        ({"hugepages-1Gi": "2Gi"}, None, ""),
        ({"hugepages-1Gi": "3Gi"}, None, "requested hugepages-1Gi"),
        ({"numalign.io/nic": "1"}, None, ""),
        ({"numalign.io/nic": "2"}, None, "requested numalign.io/nic"),
        ({"memory": "7Gi"}, None, "requested memory"),  # 8Gi, of which 2Gi are huge pages
        ({"hugepages-1Gi": "2Gi"}, {"cpu": 8000, "memory": 8 << 40}, "requested hugepages-1Gi"),
        ({}, {"cpu": 0, "memory": 8 << 40}, "requested cpu"),
    ],
)
def test_room_of_a_node_whose_node_object_was_not_read(
    limits: dict[str, str], told: dict[str, int] | None, barred: str
) -> None:
    """Huge pages and devices are room of their own, huge pages no memory; where the Node was read it alone counts."""
    nics = {"devices": [{"resource": "numalign.io/nic", "class": "02"}]}
    run = DryRun(managers_of(f"{MACHINE}, 2 1Gi pages on 1, nic on 0", {**CONFIG, **nics}))
    body = pod("p")
    for resources in body["spec"]["containers"][0]["resources"].values():
        resources.update(limits)
    found = Desk(Fleet((FleetNode("n", decode(summary_of(run)), allocatable=told or {}),))).fits(seen(body).pod)
    assert (found.nodes, found.barred) == (() if barred else ("n",), {barred: 1} if barred else {})


def test_a_line_whose_pods_may_not_be_listed_has_places(tmp_path: Path) -> None:
    """Without the right to list pods, those that wait are told by their place in line."""
    _, found = asked(tmp_path, {"full": served(3, 4, 2)})
    assert [(each.key, each.since) for each in found.troubles] == [("full/#1", BEGAN + 3)]
    assert any("pods" in each for each in found.notes)


def test_a_misaligned_pod_is_named_with_since_when(tmp_path: Path) -> None:
    """Its own condition says so; the advice names the node that would take it aligned."""
    nodes = {"wide": served(3, 2, 2, policy="best-effort", ended=(1,)), "free": served()}
    far = pod("far", "wide", cpu="2", phase="Running", aligned=("NotAligned", "on 2 nodes", "2023-11-14T22:14:00Z"))
    _, found = asked(tmp_path, nodes, far)
    (trouble,) = found.troubles
    assert (trouble.kind, trouble.key, trouble.since, trouble.why) == (
        MISALIGNED, "shop/far", BEGAN + 40, "on 2 nodes",
    )  # fmt: skip
    assert trouble.fits is not None
    assert "free" in trouble.fits.nodes


def test_refused_pods_are_named_whether_they_run_or_not(tmp_path: Path) -> None:
    """One runs on the shared pool, one never starts; one that has ended, and one in the node's line, are left out."""
    nodes = {"full": served(3, 4, 2), "free": served()}
    no = ("TopologyAffinityError", "it asks for 2 CPUs, and 1 is free", "2023-11-14T22:14:00Z")
    line = pod("line", "full", cpu="2", aligned=no)
    line["metadata"]["creationTimestamp"] = "2023-11-14T22:13:22Z"
    _, found = asked(
        tmp_path, nodes, line, pod("runs", "full", cpu="2", phase="Running", aligned=no),
        pod("starts", "full", cpu="4", aligned=no), pod("over", "full", phase="Failed", aligned=no),
        pod("forged", "full", phase="Running", aligned=("Bogus", "", "")),
    )  # fmt: skip
    told = {each.key: each for each in found.troubles}
    kinds = {key: each.kind for key, each in told.items()}
    assert kinds == {"shop/line": WAITS_ON_NODE, "shop/runs": REFUSED, "shop/starts": REFUSED}
    assert told["shop/runs"].why == "it asks for 2 CPUs, and 1 is free"
    assert told["shop/runs"].since == BEGAN + 40
    assert told["shop/runs"].advice == "delete it, so that its owner creates it again: free would take it aligned now"


def test_pods_that_run_although_they_were_refused_are_looked_for() -> None:
    """Their node is one whose pods are listed, though only those that have not started are read at first."""
    run = DryRun(managers_of(MACHINE, {"reservedSystemCPUs": "0", "topologyManagerPolicy": "single-numa-node"}))
    run.see(asking("wide", 5, created=BEGAN), 1.0)
    assert run.runs("wide")
    assert figures_of(FleetNode("n", decode(summary_of(run)))).across


def test_a_pod_whose_wishes_for_nodes_cannot_be_read_costs_no_other_its_answer(tmp_path: Path) -> None:
    """A file may hold any object: it is told that this pod waits, and of the others where they would fit."""
    _, found = asked(tmp_path, {"n": served()}, pod("odd", nodeSelector=["ssd"]), pod("open"))
    fits = {each.key: each.fits for each in found.troubles}
    assert fits["shop/odd"] is None
    assert fits["shop/open"] is not None
    assert fits["shop/open"].nodes == ("n",)


def test_where_every_node_is_kept_from_a_pod_the_most_frequent_reason_is_told(tmp_path: Path) -> None:
    """Who waits for room that no node has learns what is short, and on how many nodes."""
    taints = node("kept", taints=[{"key": "gpu", "value": "", "effect": "NoSchedule"}])
    _, found = asked(tmp_path, {"a": served(3, 4), "b": served(3, 3), "kept": served()}, taints, pod("four", cpu="4"))
    (trouble,) = found.troubles
    assert trouble.fits is not None
    assert trouble.fits.barred == {"requested cpu": 2, "taint gpu": 1}
    assert trouble.advice == "no node has room for it by the scheduler's sums and filters: requested cpu, on 2 nodes"


def test_a_node_that_only_observes_promises_nothing(tmp_path: Path) -> None:
    """Nothing fits there, and that is said."""
    summary = replace(decode(summary_of(served())), enforcing=False)
    fleet = Fleet((FleetNode("n", summary),), read_fleet_of(tmp_path).unbound)
    found = answers(fleet, in_order(map(figures_of, fleet.nodes)))
    assert found.troubles[0].fits is not None
    assert found.troubles[0].fits.barred == {"the agent only observes": 1}
    assert "1 node only observes: it gives no CPUs away, so nothing is said to fit there" in found.notes


def read_fleet_of(tmp_path: Path) -> Fleet:
    """A fleet with one pod that waits to be bound."""
    return asked(tmp_path, {"n": served()}, pod("open"))[0]


@pytest.mark.parametrize("policy", ["single-numa-node", "restricted", "best-effort"])
def test_the_largest_request_is_what_the_node_takes(policy: str, tmp_path: Path) -> None:
    """One more CPU would be refused or misaligned, by the node's own managers."""
    run = served(2, 1, policy=policy)
    _, found = asked(tmp_path, {"n": run})
    most = found.largest[0].cpus
    taken = []
    for count in (most, *range(most + 1, 8)):
        again = served(2, 1, policy=policy)
        again.see(asking("next", count, created=BEGAN + 9), 99.0)
        record = again.ledger.pods.get("next")
        taken.append(record is not None and all(record.aligned.values()) and not record.why)
    assert taken == [True] + [False] * (7 - most)


@settings(max_examples=examples(60), deadline=None)
@given(strategies.nodes(), st.lists(st.tuples(st.integers(0, 20), strategies.pods(0)), max_size=5))
def test_shares_are_shares(managers: Any, pods: list[tuple[int, Any]]) -> None:  # noqa: ANN401 - a strategy's
    """Fill and fragmentation lie between 0 and 1 on any machine, and the JSON survives a trip."""
    run = DryRun(managers)
    for number, (_, each) in enumerate(pods):
        run.see(replace(each, uid=f"u{number}", name=f"u{number}"), number + 1.0)
    found = figures_of(FleetNode("n", summarize(run.state, began=BEGAN, enforcing=True)))
    assert all(0 <= share <= 1 for share in (found.fill, found.fragmentation, found.memory_fill))
    body = as_json(FleetAnswers((found,)), BEGAN)
    assert json.loads(json.dumps(body)) == body
    (shape,) = by_shape([found])
    assert (shape.nodes, shape.fill, shape.largest) == (1, found.fill, found.largest)


@given(st.lists(st.integers(0, 300), max_size=8), st.integers(0, 400), st.integers(0, 300))
def test_fragmentation_is_bounded(free: list[int], largest: int, widest: int) -> None:
    """Whatever figures come, also those that cannot be."""
    assert 0 <= fragmentation(free, largest, widest) <= 1


def test_a_lone_cpu_that_cannot_be_given_is_fragmented_room() -> None:
    """Half a core, where only whole ones are given: what is free is of no use to anybody."""
    assert fragmentation([1, 0], 0, 8) == 1.0
    assert fragmentation([1, 0], 1, 8) == 0.0


@settings(max_examples=examples(30), deadline=None)
@given(st.lists(st.tuples(strategies.nodes(), strategies.pods(0)), min_size=1, max_size=3))
def test_what_is_read_once_is_the_same(worlds: list[Any]) -> None:
    """Parts that summaries share change nothing: one reader of many reads as many readers do."""
    texts = []
    for managers, each in worlds:
        run = DryRun(managers)
        run.see(each, 1.0)
        texts.append(summary_of(run))
    decoder = Decoder()
    assert [decoder.decode(each) for each in (*texts, *texts)] == [decode(each) for each in (*texts, *texts)]
    assert decoder.decode(texts[0]).machine is decoder.decode(texts[0]).machine


@given(st.lists(st.sampled_from(["n1", "n2", "n10", "n9-b", "n9-a", "a", "b-1", "7"]), unique=True))
def test_tiles_come_in_the_order_that_people_count(names: list[str]) -> None:
    """n2 before n10, whatever order they are read in; nodes without a summary last."""
    figures = [figures_of(FleetNode(name, lack=Lack.MISSING)) for name in names]
    found = [each.name for each in in_order(figures)]
    assert found == [each.name for each in in_order(reversed(figures))]
    wanted = ["7", "a", "b-1", "n1", "n2", "n9-a", "n9-b", "n10"]
    assert found == [name for name in wanted if name in names]


@pytest.mark.parametrize("count", [0, 1, 3, 100, 5000])
def test_a_picture_of_any_size(count: int) -> None:
    """One tile a node, within the page, none over another; XML that needs nothing from elsewhere."""
    tiles = [
        FleetTile(f"node-{number}<", f"shape {number % 3}", None if number % 50 == 7 else number % 11 / 10,
                  number % 7 / 6, number % 5 == 0)
        for number in range(count)
    ]  # fmt: skip
    text = draw_fleet(sorted(tiles, key=lambda each: each.group), f"Fleet of {count} nodes", "all of them")
    root = ET.fromstring(text)  # noqa: S314 - our own
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")
    width, height = (float(root.attrib[name]) for name in ("width", "height"))
    places = {
        tuple(float(each.attrib[part]) for part in ("x", "y", "width", "height"))
        for each in root.iter("{http://www.w3.org/2000/svg}rect")
        if each.attrib.get("class") in {"tile", "none"}
    }
    assert len(places) == count + 5  # those of the legend
    assert all(x >= 0 and y >= 0 and x + w <= width and y + h <= height for x, y, w, h in places)
    assert height < 1400
    steps = sorted({(y, x, w) for x, y, w, _ in places})
    assert all(b[1] >= a[1] + a[2] for a, b in pairwise(steps) if a[0] == b[0])


def test_no_meaning_by_colour_alone() -> None:
    """Each level of fragmentation has a pattern of its own, what is unknown a cross, waiting pods a mark."""
    drawn = {
        word: draw_fleet([FleetTile("n", "g", 0.5, share)], "t").split("</style>")[1]
        for word, share in (("whole", 0.1), ("split", 0.4), ("scattered", 0.9))
    }
    counts = {
        word: [len(re.findall(rf"url\(#nlf-{each}\)", text)) for each in ("split", "scattered")]
        for word, text in drawn.items()
    }
    assert counts == {"whole": [1, 1], "split": [2, 1], "scattered": [1, 2]}  # once each in the legend
    assert [word_of(share) for share in (0.0, 0.25, 0.26, 0.5, 0.51, 1.0)] == [
        "whole", "whole", "split", "split", "scattered", "scattered",
    ]  # fmt: skip
    assert draw_fleet([FleetTile("n", "g", None)], "t").count('<path class="none"') == 2
    assert draw_fleet([FleetTile("n", "g", 0.1, waiting=2)], "t").count('class="wait"') == 2


def test_the_legends_samples_are_filled_alike_and_in_part() -> None:
    """They explain colours and patterns: one that is full, or fuller than the next, would say more than that."""
    text = draw_fleet([], "t")
    sides = {float(each) for each in re.findall(r'<rect class="tile"[^>]* height="([\d.]+)"', text)}
    levels = re.findall(r'<rect class="(?:whole|split|scattered)"[^>]* height="([\d.]+)"', text)
    assert len(levels) == 4, "that of a node without a summary is a cross"
    (side,), (level,) = sides, set(map(float, levels))
    assert 0 < level < side


def test_tiles_show_what_tells_nodes_apart() -> None:
    """A domain that all share is left out, and a name that is too long keeps its end; the tip has all of it."""
    names = [f"ip-10-0-0-{number}.eu-central-1.compute.internal" for number in range(100, 200)]
    text = draw_fleet([FleetTile(name, "g", 0.5) for name in names], "t")
    written = re.findall(r'<text class="n halo"[^>]*>(…?[-\w]+)</text>', text)
    assert len(set(written)) == 100
    assert written[17].startswith("…")
    assert written[17].endswith("-117")
    assert all(f"<title>{name}: </title>" in text for name in names)
    few = draw_fleet([FleetTile("a.one", "g", 0.5), FleetTile("a.two", "g", 0.5)], "t")
    assert ">a.one</text>" in few
    assert ">a.two</text>" in few
