"""`numalign simulate --cluster` as it is typed, on fleets as kubectl prints them: answers, changes, exit codes."""

from __future__ import annotations

import base64
import json
import re
import zlib
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from agent.cli.simulate import command
from agent.forecast.node_summary import VERSION
from agent.kube.topology_crd import SUMMARY, topology_object
from tests.world.fleets import PaperNode, listed, paper, pod_of, workload

MACHINE = "2 sockets x 1 node x 8 cores x 1 thread, 8G per node"
STRICT = {"reservedSystemCPUs": "0", "topologyManagerPolicy": "single-numa-node", "onMisalignment": "fail"}


def fleet(count: int = 3, *, settings: dict[str, Any] | None = None, **labels: str) -> list[PaperNode]:
    """Nodes of two NUMA nodes with eight CPUs each, one of them reserved."""
    return [paper(f"node-{number}", MACHINE, settings or STRICT, labels=labels) for number in range(count)]


def call(folder: Path, nodes: list[PaperNode], *arguments: str, pods: list[dict[str, Any]] | None = None) -> Result:
    """Run the command on a fleet and these manifests."""
    there = folder / "fleet.json"
    there.write_text(json.dumps(listed(nodes)))
    asked: list[str] = []
    if pods is not None:
        (folder / "pods.json").write_text(json.dumps({"kind": "List", "items": pods}))
        asked = ["--pods", str(folder / "pods.json")]
    return CliRunner().invoke(command, ["--cluster", "--from", str(there), *asked, *arguments])


def answer(result: Result) -> dict[str, Any]:
    """A JSON answer."""
    assert result.exception is None or isinstance(result.exception, SystemExit), result.output
    found: dict[str, Any] = json.loads(result.stdout)
    assert found["version"] == 1
    return found


def places(found: dict[str, Any], part: str = "new") -> dict[str, str | None]:
    """Pod -> the node where it fits."""
    return {
        each["pod"]: each["node"] if each["fits"] else None
        for each in found["placements"] if each["part"] == part
    }  # fmt: skip


def test_a_rollout_goes_on_from_what_the_nodes_hold(tmp_path: Path) -> None:
    """CPUs that running pods hold are not given again; the pod that finds no NUMA node is named with its reason."""
    nodes = fleet(2)
    assert nodes[0].bind(pod_of("old", "6", owner="web"))
    found = answer(call(tmp_path, nodes, "-o", "json", pods=[workload("web", 4, "6")]))
    assert list(places(found).values()) == ["node-1", "node-0", "node-1", None]
    first = found["placements"][0]
    assert (first["state"], first["containers"][0]["cpus"]) == ("aligned", "1-6")
    assert found["placements"][1]["containers"][0]["cpus"] == "8-13"
    assert (found["fits"], found["parts"]["new"]["fit"]) == (False, 3)
    states = found["parts"]["new"]["states"]
    assert {state: count for state, count in states.items() if count} == {"aligned": 3, "unschedulable": 1}
    assert found["placements"][3]["lacking"] == {"cpu": 2}


def test_exit_codes_and_the_table(tmp_path: Path) -> None:
    """0 all fit, 1 some do not, 2 wrong input, 3 no fleet to read; in a pipe no colours."""
    nodes = fleet(2)
    fits = call(tmp_path, nodes, "--show-pods", pods=[workload("web", 2, "6")])
    assert fits.exit_code == 0, fits.output
    assert "all 2 pods fit on 2 nodes, least-allocated" in fits.output
    assert "Deployment default/web" in fits.output
    assert "\x1b" not in fits.output
    refused = call(tmp_path, nodes, pods=[pod_of("wide", "10")])
    assert refused.exit_code == 1
    text = " ".join(refused.output.split())
    assert "1 of 1 pod does not fit" in text
    assert "The smallest change that lets all in: the new pods ask for another policy" in text
    assert "Or: 8 CPUs for the largest container of each new pod." in text
    assert call(tmp_path, nodes, pods=[{"kind": "Pod"}]).exit_code == 2
    assert call(tmp_path, nodes, "--drain", "nowhere").exit_code == 2


@pytest.mark.parametrize(("count", "more"), [(5, ""), (7, "2 more")])
def test_the_table_names_the_nodes_of_a_workload_and_how_many_more_there_are(
    tmp_path: Path, count: int, more: str
) -> None:
    """Five of them, and no word of others where there are none."""
    text = " ".join(call(tmp_path, fleet(count), pods=[workload("web", count, "6")]).output.split())
    assert len(set(re.findall(r"node-\d", text))) == 5
    assert re.findall(r"-?\d+ more\b", text) == ([more] if more else [])


@pytest.mark.parametrize("columns", ["80", "100", "120"])
def test_the_table_holds_in_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: str) -> None:
    """No line is wider than the terminal, and no name is cut."""
    monkeypatch.setenv("COLUMNS", columns)
    scene = [workload("a-workload-with-a-long-name", 9, "6"), pod_of("wide", "10")]
    result = call(tmp_path, fleet(4), "--show-pods", pods=scene)
    lines = result.output.splitlines()
    assert max(map(len, lines)) <= int(columns)
    assert "default/a-workload-with-a-long-name-8" in result.output
    assert "…" not in result.output


def test_a_pod_that_the_scheduler_sends_wrong_is_told_where_it_would_fit(tmp_path: Path) -> None:
    """By sums the emptier node is better, but its NUMA nodes are too full; only a second try reaches the other."""
    split, filled = fleet(2)
    assert all(split.bind(pod_of(name, "4")) for name in ("a", "b"))
    assert filled.bind(pod_of("c", "7"))
    assert filled.bind(pod_of("d", "1", memory="7Gi"))
    web = [workload("web", 1, "6")]
    found = answer(call(tmp_path, [split, filled], "-o", "json", "--retries", "0", pods=web))
    placed = found["placements"][0]
    assert (placed["state"], placed["node"], placed["wouldFitOn"]) == ("refused", "node-0", ["node-1"])
    assert found["allSearched"]
    again = answer(call(tmp_path, [split, filled], "-o", "json", pods=web))
    assert (places(again), again["placements"][0]["tries"]) == ({"default/web-0": "node-1"}, 2)
    assert any("1 pod was made again after a refusal" in note for note in again["notes"])


def test_a_drained_node(tmp_path: Path) -> None:
    """Its pods are made anew elsewhere, those of DaemonSets stay, a bare pod is gone for good."""
    nodes = fleet(2)
    for name, owner in (("web-a", "web"), ("web-b", "web"), ("log", "DaemonSet/log"), ("alone", "")):
        assert nodes[0].bind(pod_of(name, "2", owner=owner))
    found = answer(call(tmp_path, nodes, "-o", "json", "--drain", "node-0"))
    assert places(found, "leaving") == {"default/web-a": "node-1", "default/web-b": "node-1"}
    assert (found["gone"], found["fits"]) == (["default/alone"], False)
    assert "gone for good" in call(tmp_path, nodes, "--drain", "node-0").output


def test_another_policy_without_new_pods(tmp_path: Path) -> None:
    """The pods of the nodes come back to them as after a reboot; who is refused is made anew where it fits."""
    loose = {**STRICT, "topologyManagerPolicy": "best-effort"}
    nodes = [*fleet(1, settings=loose), paper("big", "1 socket x 1 node x 16 cores x 1 thread, 16G per node", STRICT)]
    assert nodes[0].bind(pod_of("wide", "10", owner="solver"))
    assert nodes[0].bind(pod_of("small", "2", owner="web"))
    found = answer(call(tmp_path, nodes, "-o", "json", "--policy", "single-numa-node", "--nodes", "node-0"))
    assert places(found, "returning") == {"default/wide": None, "default/small": "node-0"}
    assert places(found, "leaving") == {"default/wide": "big"}
    assert found["fits"]


def test_another_policy_for_new_pods(tmp_path: Path) -> None:
    """Running pods stay; the nodes that were named by a label decide by the other policy."""
    nodes = [*fleet(1, pool="batch"), *fleet(2)[1:]]
    wide = [workload("wide", 1, "10")]
    assert not answer(call(tmp_path, nodes, "-o", "json", pods=wide))["fits"]
    found = answer(call(tmp_path, nodes, "-o", "json", "--policy", "restricted", "--nodes", "pool=batch", pods=wide))
    assert places(found) == {"default/wide-0": "node-0"}


def test_another_policy_on_a_node_of_that_name_and_on_no_other(tmp_path: Path) -> None:
    """Two pods would fit if both nodes changed: the answer would promise room that the named node does not have."""
    found = answer(
        call(tmp_path, fleet(2), "-o", "json", "--policy", "restricted", "--nodes", "node-1",
             pods=[workload("wide", 2, "10")])
    )  # fmt: skip
    assert places(found) == {"default/wide-0": "node-1", "default/wide-1": None}


def test_pods_of_a_count_have_names_of_their_own(tmp_path: Path) -> None:
    """As a controller numbers them: who reads which of them fits could not tell three pods of one name apart."""
    found = answer(call(tmp_path, fleet(2), "-o", "json", "--replicas", "3", pods=[workload("web", 1, "6")]))
    assert sorted(places(found)) == ["default/web-0", "default/web-1", "default/web-2"]


def test_more_nodes_and_replicas(tmp_path: Path) -> None:
    """--replicas counts instead of the manifest, --add brings nodes without pods; one too few says how many more."""
    nodes = fleet(1)
    web = [workload("web", 1, "6")]
    assert nodes[0].bind(pod_of("old", "6", owner="old"))
    found = answer(call(tmp_path, nodes, "-o", "json", "--replicas", "5", "--add", "1:node-0", pods=web))
    assert found["parts"]["new"]["fit"] == 3
    assert {"kind": "nodes", "count": 1, "like": "node-0", "exact": True} in found["changes"]
    assert {"kind": "replicas", "replicas": 3} in found["changes"]
    assert answer(call(tmp_path, nodes, "-o", "json", "--replicas", "5", "--add", "2:node-0", pods=web))["fits"]


@pytest.mark.parametrize(("pods", "more"), [(1001, [1000]), (1002, [])])
def test_a_thousand_new_nodes_are_tried_and_no_more(tmp_path: Path, pods: int, more: list[int]) -> None:
    """A node holds one of the pods: nobody is told to add thousands, and the note says that not all was tried."""
    found = answer(call(tmp_path, fleet(1), "-o", "json", "--replicas", str(pods), pods=[workload("web", 1, "8")]))
    assert [each["count"] for each in found["changes"] if each["kind"] == "nodes"] == more
    assert any(note.startswith("not all changes of the list were tried") for note in found["notes"])


def test_a_number_of_nodes_that_was_not_found_to_be_the_least_is_told_as_such(tmp_path: Path) -> None:
    """Four pods fit on a node, so that fewer nodes would do, but a thousand pods are not placed a dozen times."""
    words = (tmp_path, fleet(1), "--replicas", "1004")
    found = answer(call(*words, "-o", "json", pods=[workload("web", 1, "3")]))
    (nodes,) = (each for each in found["changes"] if each["kind"] == "nodes")
    assert nodes == {"kind": "nodes", "count": 1000, "like": "node-0", "exact": False}
    assert "1000 more nodes like node-0, or fewer." in call(*words, pods=[workload("web", 1, "3")]).output


def test_one_pod_that_moves_makes_room(tmp_path: Path) -> None:
    """The change that costs least beside another policy: which pod, from where, to where."""
    nodes = fleet(2)
    for name in ("a", "b"):
        assert nodes[0].bind(pod_of(name, "4", owner="web"))
    for name, cpu in (("c", "7"), ("d", "2")):
        assert nodes[1].bind(pod_of(name, cpu, owner="web"))
    found = answer(call(tmp_path, nodes, "-o", "json", pods=[workload("big", 1, "7")]))
    assert not found["fits"]
    assert [each for each in found["changes"] if each["kind"] == "move"] == [
        {"kind": "move", "node": "node-0", "pod": "0", "goes": "node-1"}
    ]
    assert "the pod that holds CPUs 1-4 leaves node-0" in call(tmp_path, nodes, pods=[workload("big", 1, "7")]).output


def test_beside_a_drain_the_pod_that_moves_is_told_where_it_goes(tmp_path: Path) -> None:
    """Of the pods that have to go elsewhere the drained ones come first, and go where the moved one leaves."""
    nodes = fleet(3)
    for number, name, cpu in ((0, "d", "1"), (1, "a", "6"), (1, "b", "4"), (2, "c", "6"), (2, "e", "4")):
        assert nodes[number].bind(pod_of(name, cpu, owner="web"))
    found = answer(call(tmp_path, nodes, "-o", "json", "--drain", "node-0", pods=[workload("big", 1, "8")]))
    assert not found["fits"]
    (move,) = (each for each in found["changes"] if each["kind"] == "move")
    assert (move["node"], move["goes"]) == ("node-1", "node-2")


def test_selectors_taints_and_cordons_count(tmp_path: Path) -> None:
    """The scheduler's filters beside sums; what is not looked at is said."""
    nodes = [
        paper("tainted", MACHINE, STRICT, spec={"taints": [{"key": "gpu", "effect": "NoSchedule"}]}),
        paper("cordoned", MACHINE, STRICT, spec={"unschedulable": True}),
        paper("other", MACHINE, STRICT, labels={"zone": "b"}),
    ]
    spread = [{"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}]
    pods = [pod_of("here", nodeSelector={"zone": "a"}), pod_of("there", topologySpreadConstraints=spread)]
    found = answer(call(tmp_path, nodes, "-o", "json", pods=pods))
    assert found["placements"][0]["barred"] == {"cordoned": 1, "nodeSelector": 1, "taint gpu": 1}
    assert places(found)["default/there"] == "other"
    assert any(note.startswith("topology spreading: not looked at, 1 pod asks for it") for note in found["notes"])


def test_what_is_not_looked_at_is_told_in_the_same_order(tmp_path: Path) -> None:
    """Whoever compares two answers sees what changed, and not in which order the pods came."""
    spread = [{"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}]
    pods = [pod_of("a", topologySpreadConstraints=spread), pod_of("b", schedulerName="other")]
    told = [answer(call(tmp_path, fleet(), "-o", "json", pods=each))["notes"] for each in (pods, pods[::-1])]
    assert told[0] == told[1]
    assert sum("not looked at" in note for note in told[0]) == 2


def left_out(folder: Path, body: dict[str, Any]) -> dict[str, int]:
    """Why nodes are not in the answer, with a pod that fits on any."""
    (folder / "f.json").write_text(json.dumps(body))
    (folder / "p.json").write_text(json.dumps(pod_of("p")))
    arguments = ["--from", str(folder / "f.json"), "--pods", str(folder / "p.json"), "-o", "json"]
    found = answer(CliRunner().invoke(command, arguments))
    assert found["fits"]
    assert found["nodes"]["asked"] + sum(found["nodes"]["leftOut"].values()) == 3
    return dict(found["nodes"]["leftOut"])


def topology_of(body: dict[str, Any], name: str) -> dict[str, Any]:
    """A node's NodeResourceTopology in a list."""
    objects = (each for each in body["items"] if each["kind"] == "NodeResourceTopology")
    return next(each for each in objects if each["metadata"]["name"] == name)


def test_an_old_and_a_newer_agent_in_one_fleet(tmp_path: Path) -> None:
    """A node that publishes nothing yet, and one with a summary that this command cannot read: left out, and said."""
    body = listed(fleet(3))
    del topology_of(body, "node-0")["metadata"]["annotations"][SUMMARY]
    newer = topology_of(body, "node-1")
    text = newer["metadata"]["annotations"][SUMMARY]
    inside = {**json.loads(zlib.decompress(base64.b64decode(text))), "version": VERSION + 1, "moons": 3}
    text = base64.b64encode(zlib.compress(json.dumps(inside).encode())).decode()
    newer["metadata"]["annotations"][SUMMARY] = text
    assert left_out(tmp_path, body) == {"missing": 1, "newer version": 1}


def test_a_summary_from_before_a_downgrade_is_not_believed(tmp_path: Path) -> None:
    """An older agent patches what it knows of the object, and leaves the annotation: it speaks of a time before."""
    nodes = fleet(3)
    body = listed(nodes)
    stored = topology_of(body, "node-2")
    nodes[2].bind(pod_of("later", "4"))
    state = nodes[2].run.state
    older = topology_object(
        state.node.machine, state.ledger, state.node.rules, reserved=state.node.reserved, node="node-2",
        node_uid="uid-node-2", pods=(),
    )  # fmt: skip
    stored.update({key: older[key] for key in ("topologyPolicies", "attributes", "zones")})
    assert SUMMARY in stored["metadata"]["annotations"]
    assert left_out(tmp_path, body) == {"stale": 1}


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "nothing is asked"),
        (["--root", "two-sockets"], "--root asks machines"),
        (["--add", "x:node-0"], "is no number of nodes"),
        (["--add", "0001000000:node-0"], "at most 1000"),
        (["--add", "2:none", "--drain", "node-0"], "--add 2:none: no node of that name"),
        (["--drain", "none"], "--drain none: there is no such node"),
        (["--policy", "restricted", "--nodes", "none"], "no node named none can be decided by"),
        (["--policy", "restricted", "--nodes", "a=b"], "no node has the labels a=b"),
        (["--nodes", "node-0", "--drain", "node-0"], "--nodes says where"),
        (["--gatekeeper", "--policy", "restricted"], "--gatekeeper asks about pods that come"),
    ],
)
def test_wrong_questions_end_with_2(tmp_path: Path, arguments: list[str], text: str) -> None:
    """One sentence that says what to do."""
    result = call(tmp_path, fleet(1), *arguments)
    assert result.exit_code == 2
    assert text in " ".join(result.output.split())


def test_what_asks_a_cluster_needs_one() -> None:
    """Options of a cluster without --cluster are a mistake, and not left out in silence."""
    result = CliRunner().invoke(command, ["--pods", "x", "--drain", "a"])
    assert result.exit_code == 2
    assert "add --cluster" in result.output


def fragmented() -> list[PaperNode]:
    """Two nodes: one with three CPUs free on each NUMA node, six by sum, and one with seven and eight."""
    nodes = fleet(2)
    assert nodes[0].bind(pod_of("four", "4"))
    assert nodes[0].bind(pod_of("five", "5"))
    return nodes


def test_a_gatekeeper_holds_the_pod_that_a_node_would_refuse(tmp_path: Path) -> None:
    """Without it the sums lead the third pod to a node that refuses it; with it the pod waits, and is told why."""
    pods = [workload("web", 3, "6")]
    asked = ("--gatekeeper", "--retries", "0", "-o", "json")
    found = answer(call(tmp_path, fragmented(), *asked, pods=pods))["gatekeeper"]
    assert {name: found["without"][name] for name in ("bound", "refused", "waits")} == {
        "bound": 2, "refused": 1, "waits": 0,
    }  # fmt: skip
    assert {name: found["with"][name] for name in ("bound", "refused", "waits")} == {
        "bound": 2, "refused": 0, "waits": 1,
    }  # fmt: skip
    assert (found["refusalsWithout"], found["counts"]["nominated"]) == (1, 2)
    (last,) = [each for each in found["pods"] if each["with"]["state"] == "waits"]
    assert last["without"] == {**last["without"], "state": "refused", "node": "node-0"}
    assert last["with"]["node"] is None
    assert "node-0 comes closest" in last["with"]["why"]
    assert "it waits" not in last["with"]["why"]


def test_the_forecasts_stand_beside_each_other(tmp_path: Path) -> None:
    """The table has both; --show-pods has a row for each pod; the exit code is that of the gatekeeper's forecast."""
    arguments = ("--gatekeeper", "--scheduler", "most-allocated", "--retries", "0", "--show-pods")
    result = call(tmp_path, fragmented(), *arguments, pods=[workload("web", 2, "6")])
    assert re.search(r"refused by their node +2 +0\b", result.stdout)
    assert re.search(r"bound +0 +2\b", result.stdout)
    assert re.search(r"default/web-0 +node-0.\(refused\) +node-1", result.stdout)
    assert result.exit_code == 0
    assert call(tmp_path, fragmented(), "--gatekeeper", pods=[workload("web", 3, "6")]).exit_code == 1


def test_pods_that_are_never_gated_come_first_and_daemons_go_to_their_nodes(tmp_path: Path) -> None:
    """A pod whose annotation takes it out is bound by sums alone."""
    out, log = workload("out", 1, "7"), workload("log", 1, "1")
    out["spec"]["template"]["metadata"]["annotations"] = {"numalign.io/gate": "false"}
    pods = [workload("web", 1, "7"), out, {**log, "kind": "DaemonSet"}]
    found = answer(call(tmp_path, fleet(2), "--gatekeeper", "-o", "json", pods=pods))["gatekeeper"]
    assert found["with"]["bound"] == found["with"]["pods"] == 4
    assert found["counts"]["nominated"] == 1
