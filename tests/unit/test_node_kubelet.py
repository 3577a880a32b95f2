"""`compatibility: kubelet` follows the node's own kubelet: which minor answers, what is said and kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent.app.setup import Setup, again, made, tell_wrong
from agent.app.statedir.node_allocatable import NodeAllocatable, load, save
from agent.core.machines.synthetic import parse_synthetic
from agent.errors import SettingsError
from agent.kube.nodes import LONGEST_VERSION, node_facts
from agent.kube.topology_crd import topology_object
from agent.model.rules import Minor
from agent.settings import parse

MACHINE = parse_synthetic("2 sockets x 1 node x 4 cores x 1 thread, 8G per node")
LEAST: dict[str, Any] = {"compatibility": "kubelet", "reservedSystemCPUs": "0"}


class Told:
    """Who hears of problems."""

    def __init__(self) -> None:
        self.problems: list[tuple[str, str]] = []

    def problem(self, what: str, text: str) -> None:
        self.problems.append((what, text))


def setup(kubelet: str, **settings: object) -> Setup:
    """Settings on a node whose kubelet has this version."""
    return made(parse({**LEAST, **settings})[0], MACHINE, (), NodeAllocatable(known=True, kubelet=kubelet))


@pytest.mark.parametrize(
    ("version", "minor"),
    [
        *((f"v{minor}.2", minor) for minor in Minor),
        ("v1.36.3-gke.1234", Minor.V1_36),
        ("1.35.0+k3s1", Minor.V1_35),
        ("v1.37", Minor.V1_37),
        ("v1.38.0-beta.0", Minor.V1_38),
    ],
)
def test_a_known_minor_names_its_rules(version: str, minor: Minor) -> None:
    """Whatever a distribution hangs on the version; nothing has to be said."""
    found = setup(version)
    assert (found.node.rules.minor, found.node.rules.answers) == (minor, f"kubelet-{minor}")
    assert found.doubts == ()


@pytest.mark.parametrize(
    ("version", "minor", "said"),
    [
        ("v1.39.0", Minor.V1_38, "newer than any"),
        ("v2.0.0", Minor.V1_38, "newer than any"),
        ("v1.33.9", Minor.V1_34, "older than any"),
        ("v0.99.0", Minor.V1_34, "older than any"),
        ("", Minor.V1_36, "is not known yet"),
        ("kubernetes", Minor.V1_36, "cannot be read"),
        ("v1.9999999999", Minor.V1_36, "cannot be read"),
    ],
)
def test_another_one_takes_the_nearest_rules_and_that_is_said(version: str, minor: Minor, said: str) -> None:
    """A kubelet beyond the known minors: the newest or the oldest; unknown: 1.36. One sentence names both."""
    found = setup(version)
    assert found.node.rules.minor is minor
    assert [f"kubelet {minor}" in each and said in each for each in found.doubts] == [True]
    told = Told()
    tell_wrong(found, told)
    assert told.problems == [("kubelet", found.doubts[0])]


@pytest.mark.parametrize("answers", ["fixed", "kubelet-1.35"])
def test_who_does_not_follow_is_not_told_of_the_nodes_kubelet(answers: str) -> None:
    """With the default, and where a minor is named, the node's version changes and says nothing."""
    for version in ("", "v1.34.1", "v1.99.0"):
        found = setup(version, compatibility=answers)
        assert (found.node.rules.answers, found.doubts) == (answers, ())


def test_a_kubelet_upgraded_beyond_what_is_known_is_told_once(tmp_path: Path) -> None:
    """The sentence comes with the version that it is about, and not with each look at the settings."""
    file = tmp_path / "config.yaml"
    file.write_text("{compatibility: kubelet, reservedSystemCPUs: '0'}", "utf-8")
    told, now = Told(), setup("v1.37.0")
    root = "synthetic:2 sockets x 1 node x 4 cores x 1 thread, 8G per node"
    for version in ("v1.39.0", "v1.39.0", "v1.38.0"):
        now = again(file, root, now, told, kept=NodeAllocatable(known=True, kubelet=version))
    assert [what for what, _ in told.problems] == ["kubelet"]
    assert now.doubts == ()


def test_the_node_says_its_kubelets_version() -> None:
    """Read from status.nodeInfo, bounded, and printable whatever is written there."""

    def told(version: object) -> str:
        return node_facts({"status": {"nodeInfo": {"kubeletVersion": version}}}).kubelet

    assert told("v1.37.2") == "v1.37.2"
    assert told("v1.37\n\x1b[31m") == "v1.37??[31m"
    assert len(told("v1." + "9" * 10_000)) == LONGEST_VERSION
    assert [told(each) for each in (None, 7, ["v1.36.0"], "")] == [""] * 4
    bodies: list[dict[str, Any]] = [{}, {"status": {"nodeInfo": []}}]
    assert [node_facts(each).kubelet for each in bodies] == ["", ""]


def test_the_version_outlives_the_agent(tmp_path: Path) -> None:
    """A start without the API server answers as the one before; a file of an older agent has no version."""
    kept = NodeAllocatable(1500, 7, known=True, kubelet="v1.35.1")
    save(tmp_path, kept)
    assert load(tmp_path) == kept
    (tmp_path / "node.json").write_text('{"cpuMilli": 1, "memoryBytes": 2}', "utf-8")
    assert load(tmp_path).kubelet == ""


def test_schedulers_are_told_whose_answers_pods_get() -> None:
    """NodeResourceTopology has it as an attribute."""
    node = setup("v1.37.2").node
    body = topology_object(
        MACHINE, node.start(), node.rules, reserved=node.reserved, node="n", node_uid="u", pods=()
    )  # fmt: skip
    assert {"name": "numalign.io/answers", "value": "kubelet-1.37"} in body["attributes"]


@pytest.mark.parametrize(
    ("minor", "gate", "first"),
    [
        ("1.34", "PodLevelResourceManagers", "1.36"),
        ("1.35", "PodLevelResourceManagers", "1.36"),
        ("1.36", "PodLevelResourcesFixKubeletQOSClass", "1.37"),
    ],
)
def test_a_gate_of_a_later_minor_is_refused(minor: str, gate: str, first: str) -> None:
    """One sentence names the gate, and the minor that has it first; from that one on it is taken."""
    with pytest.raises(SettingsError, match=rf"^featureGates.{gate}: is a gate of kubelet {first} and later, not of"):
        parse({**LEAST, "compatibility": f"kubelet-{minor}", "featureGates": {gate: True}})
    settings, ignored = parse({**LEAST, "compatibility": f"kubelet-{first}", "featureGates": {gate: True}})
    assert (settings.feature_gates, ignored) == ({gate: True}, ())


def test_a_gate_that_the_nodes_kubelet_does_not_have_does_not_count_there() -> None:
    """One file for nodes of several minors: an older one goes without the gate, and says so."""
    gates = {"featureGates": {"PodLevelResourceManagers": True}}
    older, newer = setup("v1.35.4", **gates), setup("v1.36.3", **gates)
    assert [each.node.rules.pod_level_managers for each in (older, newer)] == [False, True]
    assert [each.partition(": ")[0] for each in older.doubts] == ["featureGates.PodLevelResourceManagers"]
    assert newer.doubts == ()
    assert setup("v1.35.4", compatibility="fixed", **gates).node.rules.pod_level_managers
