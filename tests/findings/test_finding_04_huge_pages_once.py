"""Preallocated huge pages are no reservation: they are taken off the memory once, whatever their number and place.

Finding 4.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from agent.app import setup
from agent.app.setup import Setup
from agent.app.statedir.node_allocatable import NodeAllocatable
from agent.core.machines.synthetic import parse_synthetic
from agent.errors import SettingsError
from agent.kube.nodes import node_facts
from agent.model.machine import Machine
from agent.model.outcome import Admitted
from agent.model.podspec import pod_from
from agent.settings import parse
from tests.flow.world import Ears, container, manifest

GI = 1 << 30
PLAIN = "2 sockets x 1 node x 8 cores x 1 thread, 32G per node"
STATIC = {"memoryManagerPolicy": "Static"}


def node(keeps: int = 1, **huge: int) -> dict[str, Any]:
    """A Node of 64Gi whose kubelet keeps some of it for the system, with preallocated pages, in GiB by size."""
    pages = {f"hugepages-{size}": f"{amount}Gi" for size, amount in huge.items()}
    left = max(0, 64 - keeps - sum(huge.values()))
    capacity = {"cpu": "16", "memory": "64Gi", **pages}
    allocatable = {"cpu": "15", "memory": f"{left}Gi", **pages}
    return {"metadata": {"uid": "n"}, "status": {"capacity": capacity, "allocatable": allocatable}}


def made(body: Mapping[str, Any], machine: str, settings: Mapping[str, Any] | None = None) -> Setup:
    """What the agent makes of a Node, a machine and its settings at its start."""
    facts = node_facts(body)
    kept = NodeAllocatable(facts.cpu_milli or 0, facts.memory or 0, known=True)
    return setup.made(parse({**STATIC, **(settings or {})})[0], parse_synthetic(machine), (), kept)


def free(found: Setup) -> list[int]:
    """Bytes of ordinary memory that pods can be granted, by NUMA node."""
    return [book.free("memory") for book in found.node.start().memory.nodes]


@pytest.mark.parametrize("pages", [0, 8, 16, 20, 30])
def test_finding_04_what_is_left_is_what_the_kubelet_leaves(pages: int) -> None:
    """64Gi less 1Gi less the pages, whatever their number, also beyond half of the memory."""
    machine = PLAIN + (f", {pages} 1G pages" if pages else "")
    found = made(node(**({"1Gi": 2 * pages} if pages else {})), machine)
    assert sum(free(found)) == (64 - 1 - 2 * pages) * GI
    pod = pod_from(manifest("p", container(cpu="2", memory="1Gi")))
    assert isinstance(found.node.admit(found.node.start(), pod), Admitted)


def test_finding_04_two_sizes_count_both() -> None:
    """Pages of 2Mi and of 1Gi."""
    found = made(node(**{"1Gi": 16, "2Mi": 8}), f"{PLAIN}, 8 1G pages, 2048 2M pages")
    assert sum(free(found)) == (64 - 1 - 24) * GI


def test_finding_04_uneven_pages_leave_each_node_its_own() -> None:
    """All pages on one node: the system's share is taken in proportion to what is left, and each node's fits."""
    found = made(node(**{"1Gi": 31}), uneven(31))
    assert sum(free(found)) == (64 - 1 - 31) * GI
    assert all(0 <= each <= 32 * GI for each in free(found))
    assert free(found)[0] < 1 * GI


def test_finding_04_all_memory_but_little_is_huge_pages() -> None:
    """With one GiB left that is what pods get; with none the kubelet says zero, and all that is ordinary is kept."""
    assert sum(free(made(node(**{"1Gi": 62}), f"{PLAIN}, 31 1G pages"))) == 1 * GI
    assert free(made(node(keeps=4, **{"1Gi": 62}), f"{PLAIN}, 31 1G pages")) == [0, 0]


def uneven(pages: int) -> str:
    """Pages of 1Gi on the first node only."""
    return f"{PLAIN}, {pages} 1G pages on 0"


class Places:
    """A machine that changes, and one configuration file."""

    def __init__(self, folder: Path, settings: str) -> None:
        self.config, self.ears = folder / "config.yaml", Ears()
        self.config.write_text(settings)
        self.now = setup.read_setup(self.config, f"synthetic:{PLAIN}")

    def becomes(self, machine: str) -> Machine:
        """The machine that is in force after a change."""
        self.now = setup.again(self.config, f"synthetic:{machine}", self.now, self.ears)
        return self.now.machine


FOUR = "{memoryManagerPolicy: Static, kubeReserved: {cpu: 1, memory: 3996Mi}, reservedMemory: [%s]}"
SPREAD = FOUR % "{numaNode: 0, limits: {memory: 2Gi}}, {numaNode: 1, limits: {memory: 2Gi}}"


def test_finding_04_pages_allocated_later_are_followed(tmp_path: Path) -> None:
    """A node has less left than the settings keep there: the machine is followed, the other keeps it."""
    place = Places(tmp_path, SPREAD)
    assert place.becomes(uneven(31)).by_node[0].resources["memory"] == GI
    assert free(place.now) == [0, 32 * GI - 3 * GI]
    assert [what for what, _ in place.ears.problems] == ["hardware"]
    assert "NUMA node 0 has 1Gi of memory and shall keep 2Gi" in place.ears.problems[0][1]
    assert place.becomes(PLAIN).by_node[0].resources["memory"] == 32 * GI
    assert free(place.now) == [30 * GI, 30 * GI]
    assert len(place.ears.problems) == 1


def test_finding_04_the_next_start_comes_up_too(tmp_path: Path) -> None:
    """The same settings on the machine with its pages: no crash loop, and the same word."""
    (tmp_path / "c.yaml").write_text(SPREAD)
    found = setup.read_setup(tmp_path / "c.yaml", f"synthetic:{uneven(31)}")
    assert free(found) == [0, 29 * GI]
    assert len(found.missed) == 1


@pytest.mark.parametrize(
    "reserved",
    [
        "{numaNode: 0, limits: {memory: 4Gi}}, {numaNode: 7, limits: {memory: 0}}",
        "{numaNode: 1, limits: {memory: 5Gi}}",
    ],
)
def test_finding_04_what_no_machine_could_give_stays_an_error(tmp_path: Path, reserved: str) -> None:
    """A NUMA node that never was, and sums that disagree, are mistakes in the text."""
    (tmp_path / "c.yaml").write_text(FOUR % reserved)
    with pytest.raises(SettingsError):
        setup.read_setup(tmp_path / "c.yaml", f"synthetic:{PLAIN}")
