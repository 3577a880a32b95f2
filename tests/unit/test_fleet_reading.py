"""The fleet is read object by object: what is missing, old or broken is a named value, and costs no other node."""

from __future__ import annotations

import io
import json
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.app.fleet.reading import read_fleet
from agent.app.fleet.source import FileSource
from agent.errors import MalformedError, SettingsError
from agent.forecast.dry_run import DryRun
from agent.forecast.fleet.values import Fleet, Lack
from agent.forecast.node_summary import TOO_LARGE, VERSION
from tests.examples import examples
from tests.unit.test_node_summary import packed, unpacked
from tests.world.fleets import BEGAN, asking, node, pod, summary_of, topology
from tests.world.nodes import managers_of

SMALL = "1 socket x 2 nodes x 4 cores, 4G per node"
NOW = BEGAN + 1000


def small() -> DryRun:
    """A node with two CPUs taken."""
    run = DryRun(managers_of(SMALL, {"reservedSystemCPUs": "0"}))
    run.see(asking("a", 2), 1.0)
    return run


GOOD = summary_of(small())


def read(*bodies: Any, tmp_path: Path) -> Fleet:  # noqa: ANN401 - JSON
    """The fleet of these objects, read from a file."""
    file = tmp_path / "fleet.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(bodies)}))
    return read_fleet(FileSource([str(file)]), clock=lambda: NOW)


def test_each_lack_is_named_and_costs_no_other_node(tmp_path: Path) -> None:
    """Seven nodes, one of them whole: every other one says why it cannot be decided by, and is still listed."""
    newer = packed({**unpacked(GOOD), "version": VERSION + 1})
    other = {"ownerReferences": [{"kind": "Node", "name": "again", "uid": "old"}]}
    fleet = read(
        topology("good", GOOD), topology("off", ""), topology("new", newer), topology("cut", GOOD[:-9]),
        topology("big", f"{TOO_LARGE}: 99999 characters, 24576 at most"), topology("gone", GOOD),
        topology("again", GOOD, **other),
        *(node(name) for name in ("good", "off", "new", "cut", "big", "again", "silent")), tmp_path=tmp_path,
    )  # fmt: skip
    lacks = {each.name: each.lack for each in fleet.nodes}
    assert lacks == {
        "again": Lack.STALE, "big": Lack.TOO_LARGE, "cut": Lack.BROKEN, "gone": Lack.GONE, "good": None,
        "new": Lack.NEWER, "off": Lack.MISSING, "silent": Lack.MISSING,
    }  # fmt: skip
    assert all(each.why and each.usable_summary is None for each in fleet.nodes if each.lack)
    good = fleet.node("good")
    assert good is not None
    assert good.usable_summary is not None
    assert good.usable_summary.held["cpu"] == 2000
    assert (good.allocatable["cpu"], good.ready, good.body["spec"]["unschedulable"]) == (8000, True, False)


@pytest.mark.parametrize(
    ("bound", "changed", "lack"),
    [
        ("", BEGAN, None),
        ("2023-11-14T22:13:30Z", BEGAN, None),  # ten seconds after: an agent needs a moment
        ("2023-11-14T22:15:20Z", BEGAN, Lack.STALE),
        ("2023-11-14T22:15:20Z", BEGAN + 150, None),
        ("2023-11-14T22:29:50Z", BEGAN, None),  # ten seconds ago
        ("", NOW + 4000, Lack.STALE),
    ],
)
def test_a_summary_that_does_not_know_a_pod_is_stale(
    bound: str, changed: float, lack: Lack | None, tmp_path: Path
) -> None:
    """Every pod that is bound changes the summary: one that was bound long after its last change was not seen."""
    bodies = [pod("p", "n", bound=bound)] if bound else []
    fleet = read(topology("n", summary_of(small(), changed)), node("n"), *bodies, tmp_path=tmp_path)
    assert fleet.nodes[0].lack == lack
    assert lack is None or fleet.nodes[0].why


def test_pods_stand_on_their_nodes_and_have_their_defaults(tmp_path: Path) -> None:
    """Bound pods belong to nodes, others to none; a namespace's annotations are below the pod's own."""
    space = {
        "kind": "Namespace", "metadata": {"name": "shop", "annotations": {"numalign.io/on-misalignment": "wait"}},
    }  # fmt: skip
    misaligned = ("NotAligned", "CPUs 1,4 lie on 2 nodes", "2023-11-14T22:20:00Z")
    fleet = read(
        pod("far", "n", phase="Running", aligned=misaligned),
        pod("own", notes={"numalign.io/on-misalignment": "run"}),
        pod("open"), pod("bad", cpu="many"), topology("n", GOOD), space, tmp_path=tmp_path,
    )  # fmt: skip
    (far,) = fleet.nodes[0].pods
    assert (far.key, far.reason, far.since - BEGAN) == ("shop/far", "NotAligned", 400)
    found = {each.key: each for each in fleet.unbound}
    wishes = {key: each.pod.annotations["numalign.io/on-misalignment"] for key, each in found.items() if each.pod}
    assert wishes == {"shop/open": "wait", "shop/own": "run"}
    assert found["shop/bad"].pod is None
    assert "cpu" in found["shop/bad"].problem
    assert any("nodes" in each for each in fleet.notes)


def test_standard_input_and_several_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists as the API and as kubectl print them, a single object, and standard input are read alike."""
    raw = topology("raw", GOOD)
    raw.pop("kind")
    (tmp_path / "api.json").write_text(json.dumps({"kind": "NodeResourceTopologyList", "items": [raw]}))
    (tmp_path / "one.json").write_text(json.dumps(topology("one", GOOD)))
    text = json.dumps({"items": [topology("in", GOOD)]}).encode()
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(text)))
    fleet = read_fleet(FileSource([str(tmp_path / "api.json"), str(tmp_path / "one.json"), "-"]))
    assert [(each.name, each.lack) for each in fleet.nodes] == [("in", None), ("one", None), ("raw", None)]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "must be what `kubectl get -o json` prints"), ("kind: List", "kubectl get -o json"),
        ('{"items": [{"kind": "Pod"}]}', "holds no NodeResourceTopology"), ('{"items": [3]}', "kubectl get -o json"),
        ('{"items": [{}', "kubectl get -o json"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_list_says_what_is_wanted(text: str, told: str, tmp_path: Path) -> None:
    """One sentence that names the file and the command that makes a good one."""
    file = tmp_path / "x.json"
    file.write_text(text)
    with pytest.raises(MalformedError, match=told):
        read_fleet(FileSource([str(file)]))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    """The path and what to do; a folder is no file."""
    for path in (tmp_path / "none.json", tmp_path):
        with pytest.raises(SettingsError, match=f"--from: {path} cannot be read"):
            read_fleet(FileSource([str(path)]))


ODD: st.SearchStrategy[Any] = st.sampled_from([None, True, -1, 2**90, 1e300, "", "x" * 999, [], [[1]], {}, {"a": {}}])


@settings(max_examples=examples(200), deadline=None)
@given(st.integers(), ODD)
def test_no_odd_value_is_more_than_a_lack(seed: int, value: object) -> None:
    """Any one value of any object replaced by another: the fleet is read, and the untouched node is whole."""
    rnd = random.Random(seed)
    bodies: list[Any] = [topology("n", GOOD), node("n", taints=[{"key": "a"}]), pod("p", "n"), pod("q")]
    here = rnd.choice(bodies)
    while True:
        key = rnd.choice(sorted(here) if isinstance(here, dict) else range(len(here)))
        if not isinstance(here[key], dict | list) or not here[key] or rnd.random() < 0.2:
            here[key] = value
            break
        here = here[key]

    class Given:
        def load(self, take: Any, progress: Any = None) -> tuple[str, ...]:  # noqa: ANN401 - Source's
            for kind, each in zip(
                ("NodeResourceTopology", "Node", "Pod", "Pod", "NodeResourceTopology", "Node"),
                (*bodies, topology("whole", GOOD), node("whole")), strict=True,
            ):  # fmt: skip
                take[kind](each)
            return ()

        def pods_of(self, nodes: Any, take: Any, progress: Any = None) -> None:  # noqa: ANN401 - Source's
            raise AssertionError

    whole = read_fleet(Given(), clock=lambda: NOW).node("whole")
    assert whole is not None
    assert whole.usable_summary is not None
