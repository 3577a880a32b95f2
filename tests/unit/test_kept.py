"""Reservations that follow from the Node: told, remembered, and compared with our own (safety.md S14)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agent.app.setup import Setup, made
from agent.app.statedir import state_file
from agent.app.statedir.node_allocatable import NodeAllocatable, load, mismatch, mismatch_sentence, save, sentences
from agent.core.machines.synthetic import parse_synthetic
from agent.kube.nodes import NodeFacts, node_facts
from agent.settings import parse

MACHINE = parse_synthetic("2 sockets x 1 node x 4 cores x 2 threads, 8G per node")


def setup(kept: NodeAllocatable | None, **settings: object) -> Setup:
    """Settings on the machine, with what the Node says."""
    return made(parse(settings)[0], MACHINE, (), kept)


def test_s14_reserved_cpus_follow_from_the_node() -> None:
    """Capacity less allocatable, rounded up, chosen by the CPU manager's own rule: whole cores from the lowest."""
    kept = NodeAllocatable(1500, 1 << 30, known=True)
    found = setup(kept)
    assert str(found.node.reserved) == "0,8"
    assert "1500m CPU" in next(sentences(found.settings, found.node, kept))
    assert (mismatch(found.node, kept), mismatch(found.node, NodeAllocatable(2000, 0, known=True))) == (500, 0)


def test_s14_nothing_reserved_anywhere_is_one_core() -> None:
    """With kubeadm's defaults capacity equals allocatable: one core is kept, and that it is more is told."""
    kept = NodeAllocatable(0, 0, known=True)
    found = setup(kept)
    assert str(found.node.reserved) == "0,8"
    assert "one core" in next(sentences(found.settings, found.node, kept))
    assert "2000m CPU more" in mismatch_sentence(found.node, kept)


def test_the_settings_own_reservation_goes_before_the_nodes() -> None:
    """What the file names stays, whatever the Node says."""
    found = setup(NodeAllocatable(4000, 0, known=True), reservedSystemCPUs="3")
    assert str(found.node.reserved) == "3"


def test_reserved_memory_follows_from_the_node() -> None:
    """Spread over the nodes with CPUs by their memory; without a Node the settings' own sum counts."""
    found = setup(NodeAllocatable(1000, 1 << 30, known=True), memoryManagerPolicy="Static")
    amounts = {number: each["memory"] for number, each in found.node.rules.memory.reserved.items()}
    assert (sum(amounts.values()), amounts[0]) == (1 << 30, 1 << 29)
    without = setup(NodeAllocatable(), memoryManagerPolicy="Static").node.rules.memory.reserved
    assert sum(each["memory"] for each in without.values()) == 100 << 20


def test_what_the_node_said_outlives_the_agent(tmp_path: Path) -> None:
    """Saved and loaded; a damaged file counts as nothing."""
    kept = NodeAllocatable(1500, 7, known=True, observe_only="true")
    save(tmp_path, kept)
    assert load(tmp_path) == kept
    parts: list[object] = [{"cpu_milli": "many"}, {"moons": 3}, [], "x"]
    for part in parts:
        state_file.keep(tmp_path, node=part)
        assert load(tmp_path) == NodeAllocatable()
    (tmp_path / state_file.FILE).write_text('{"cpuMilli": "many"}')
    assert load(tmp_path) == NodeAllocatable()


def test_s18_what_0_1_0_remembered_of_the_node_counts(tmp_path: Path) -> None:
    """S3, S18: kill switch and reservations of its file, after an upgrade, and where it ran again in between."""
    old, now = tmp_path / "node.json", NodeAllocatable(500, 9, known=True)
    old.write_text('{"cpuMilli": 1500, "memoryBytes": 7, "observeOnly": "true"}')
    assert load(tmp_path) == NodeAllocatable(1500, 7, known=True, observe_only="true")
    state_file.keep(tmp_path, start={"at": 1.0})
    assert (old.exists(), load(tmp_path)) == (False, NodeAllocatable(1500, 7, known=True, observe_only="true"))
    save(tmp_path, now)
    old.write_text('{"cpuMilli": 2500, "memoryBytes": 8, "observeOnly": ""}')
    assert load(tmp_path) == NodeAllocatable(2500, 8, known=True), "a downgrade lies between"
    os.utime(old, ns=(0, 0))
    assert load(tmp_path) == now, "a kill between the save and the removal"
    for text in ("", "{", "[" * 9999, '{"cpuMilli": "many"}', "[]"):
        old.write_text(text)
        assert load(tmp_path) in (now, NodeAllocatable(), NodeAllocatable(known=True)), text


@pytest.mark.parametrize(
    ("value", "off"), [("true", False), ("yes", False), ("", True), ("false", True), ("0", True), ("please", False)]
)
def test_s3_any_word_but_a_no_switches_off(value: str, off: bool) -> None:  # noqa: FBT001 - a case's value
    """A mistyped kill switch stops, too."""
    facts = node_facts({"metadata": {"uid": "u", "annotations": {"numalign.io/observe-only": value}}})
    assert (facts.observe_only == "") is off
    assert facts.cpu_milli is None


@pytest.mark.parametrize(
    "status", [None, "x", {"capacity": 3}, {"capacity": {"cpu": "4"}}, {"capacity": {"cpu": "?"}}]
)
def test_a_malformed_node_says_nothing(status: object) -> None:
    """Nothing is derived from what cannot be understood."""
    assert node_facts({"metadata": [], "status": status}) == NodeFacts()
