"""Hardware that settings name may go, or be taken by huge pages: the machine is followed, what is missed is told.

Finding 11.
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
from agent.model.idset import CpuSet
from agent.model.machine import Machine
from agent.model.outcome import Admitted
from agent.model.podspec import pod_from
from agent.settings import parse
from tests.flow.world import Ears, World, container, manifest

EIGHT = "2 sockets x 1 node x 4 cores x 1 thread, 8G per node"


class Watched:
    """A world whose machine and configuration file change, read as the agent reads them.

    Attributes:
        told: what was wrong, by kind.
    """

    def __init__(self, folder: Path, settings: str) -> None:
        self.config, ears = folder / "config.yaml", Ears()
        self._ears, self.told = ears, ears.problems
        self.config.write_text(settings)
        self.now = setup.read_setup(self.config, f"synthetic:{EIGHT}")
        self.world = World(folder / "tree", machine=EIGHT)
        self.world.engine.pods_listed(set())
        self.world.engine.changed(self.now.node)

    def becomes(self, machine: str = EIGHT) -> None:
        """The machine, or the file, changed."""
        self.now = setup.again(self.config, f"synthetic:{machine}", self.now, self._ears)
        self.world.engine.changed(self.now.node)

    def granted(self, name: str, cpu: str) -> CpuSet:
        """What a new pod gets."""
        self.world.engine.pods_seen([])
        self.world.see(manifest(name, container(cpu=cpu), created=len(self.world.pods)))
        return self.world.engine.ledger.grant(name, "app").cpus or CpuSet()


def test_a_reserved_cpu_goes_offline(tmp_path: Path) -> None:
    """A socket goes with one of two reserved CPUs: nobody is granted an offline CPU; it is told once."""
    node = Watched(tmp_path, "reservedSystemCPUs: '0,4'\n")
    node.becomes(f"{EIGHT}, offline 4-7")
    assert str(node.world.engine.node.machine.online) == "0-3"
    assert [what for what, _ in node.told] == ["hardware"]
    assert "CPUs 4 are not online; of those named, 0 are reserved" in node.told[0][1]
    assert (str(node.granted("a", "3")), str(node.granted("b", "1"))) == ("1-3", "")
    node.becomes()
    assert str(node.world.engine.node.reserved) == "0,4"
    assert str(node.granted("c", "2")) == "5-6"
    assert len(node.told) == 1


def test_the_next_start_comes_up(tmp_path: Path) -> None:
    """Started while it is offline, the agent serves what is there and says what it misses."""
    (tmp_path / "c.yaml").write_text("reservedSystemCPUs: '0,4'\n")
    found = setup.read_setup(tmp_path / "c.yaml", f"synthetic:{EIGHT}, offline 4-7")
    assert str(found.node.reserved) == "0"
    assert len(found.missed) == 1


@pytest.mark.parametrize("compatibility", ["fixed", "kubelet"])
def test_all_reserved_cpus_go_offline(tmp_path: Path, compatibility: str) -> None:
    """As many others are reserved until they are back: the system is never left without a CPU."""
    node = Watched(tmp_path, f"reservedSystemCPUs: '4-5'\ncompatibility: {compatibility}\n")
    node.becomes(f"{EIGHT}, offline 4-7")
    assert str(node.world.engine.node.reserved) == "0-1"
    assert "none of the CPUs 4-5 is online; 2 others are reserved" in node.told[0][1]
    node.becomes()
    assert str(node.world.engine.node.reserved) == "4-5"


def test_only_the_reserved_cpus_are_left(tmp_path: Path) -> None:
    """Then nothing can be granted, and that is no fault of the settings."""
    node = Watched(tmp_path, "reservedSystemCPUs: '0-3'\n")
    node.becomes(f"{EIGHT}, offline 4-7")
    assert (str(node.world.engine.node.reserved), node.told) == ("0-3", [])
    assert not node.granted("a", "1")


def test_one_cpu_is_left(tmp_path: Path) -> None:
    """Then nothing is reserved and nothing pinned; when the other CPUs are back, pods get CPUs of their own again."""
    node = Watched(tmp_path, "{}\n")
    assert str(node.granted("a", "2")) == "1-2"
    node.becomes(f"{EIGHT}, offline 1-7")
    assert (str(node.world.engine.node.reserved), str(node.granted("b", "1"))) == ("", "")
    node.becomes()
    assert (str(node.world.engine.node.reserved), str(node.granted("c", "2"))) == ("0", "1-2")


def test_more_are_reserved_by_number_than_are_left(tmp_path: Path) -> None:
    """A kubeReserved of six CPUs on a machine of eight of which four are online: all four are reserved."""
    node = Watched(tmp_path, "kubeReserved: {cpu: 6}\n")
    node.becomes(f"{EIGHT}, offline 4-7")
    assert len(node.world.engine.node.reserved) == 4
    assert str(node.world.engine.node.machine.online) == "0-3"


def test_a_numa_node_with_reserved_memory_vanishes(tmp_path: Path) -> None:
    """Its part is kept back on the others, so that the sum stays the kubelet's."""
    both = "[{numaNode: 0, limits: {memory: 1Gi}}, {numaNode: 1, limits: {memory: 1Gi}}]"
    kept = "{memoryManagerPolicy: Static, kubeReserved: {cpu: 1, memory: 1948Mi}, reservedMemory: %s}"
    node = Watched(tmp_path, kept % both)
    node.becomes("1 socket x 1 node x 4 cores x 1 thread, 8G per node")
    assert [book.system["memory"] for book in node.world.engine.ledger.memory.nodes] == [2 << 30]
    assert [what for what, _ in node.told] == ["hardware"]


def test_wrong_settings_keep_no_old_machine(tmp_path: Path) -> None:
    """The file becomes wrong while a socket goes: the old settings stay, on the machine as it is."""
    node = Watched(tmp_path, "reservedSystemCPUs: '0'\n")
    node.config.write_text("reservedSystemCPUs: '99'\n")
    node.becomes(f"{EIGHT}, offline 4-7")
    assert [what for what, _ in node.told] == ["settings"]
    assert str(node.world.engine.node.machine.online) == "0-3"
    assert str(node.world.engine.node.reserved) == "0"
    assert str(node.granted("a", "3")) == "1-3"


@pytest.mark.parametrize(
    "text", ["reservedSystemCPUs: '0,99'", "reservedSystemCPUs: '0-7'", "kubeReserved: {cpu: 8}"]
)
def test_a_mistake_in_the_text_stays_one_clear_error(tmp_path: Path, text: str) -> None:
    """CPUs that never were, and a reservation of all that the machine has, are refused as before."""
    (tmp_path / "c.yaml").write_text(text)
    for machine in (EIGHT, f"{EIGHT}, offline 7"):
        with pytest.raises(SettingsError):
            setup.read_setup(tmp_path / "c.yaml", f"synthetic:{machine}")


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
def test_what_is_left_is_what_the_kubelet_leaves(pages: int) -> None:
    """64Gi less 1Gi less the pages, whatever their number, also beyond half of the memory (finding 4)."""
    machine = PLAIN + (f", {pages} 1G pages" if pages else "")
    found = made(node(**({"1Gi": 2 * pages} if pages else {})), machine)
    assert sum(free(found)) == (64 - 1 - 2 * pages) * GI
    pod = pod_from(manifest("p", container(cpu="2", memory="1Gi")))
    assert isinstance(found.node.admit(found.node.start(), pod), Admitted)


def test_two_sizes_count_both() -> None:
    """Pages of 2Mi and of 1Gi (finding 4)."""
    found = made(node(**{"1Gi": 16, "2Mi": 8}), f"{PLAIN}, 8 1G pages, 2048 2M pages")
    assert sum(free(found)) == (64 - 1 - 24) * GI


def test_uneven_pages_leave_each_node_its_own() -> None:
    """All pages on one node: the system's share is taken in proportion to what is left, and each node's fits.

    Finding 4.
    """
    found = made(node(**{"1Gi": 31}), uneven(31))
    assert sum(free(found)) == (64 - 1 - 31) * GI
    assert all(0 <= each <= 32 * GI for each in free(found))
    assert free(found)[0] < 1 * GI


def test_all_memory_but_little_is_huge_pages() -> None:
    """With one GiB left that is what pods get; with none the kubelet says zero, and all that is ordinary is kept.

    Finding 4.
    """
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


def test_pages_allocated_later_are_followed(tmp_path: Path) -> None:
    """A node has less left than the settings keep there: the machine is followed, the other keeps it (finding 4)."""
    place = Places(tmp_path, SPREAD)
    assert place.becomes(uneven(31)).by_node[0].resources["memory"] == GI
    assert free(place.now) == [0, 32 * GI - 3 * GI]
    assert [what for what, _ in place.ears.problems] == ["hardware"]
    assert "NUMA node 0 has 1Gi of memory and shall keep 2Gi" in place.ears.problems[0][1]
    assert place.becomes(PLAIN).by_node[0].resources["memory"] == 32 * GI
    assert free(place.now) == [30 * GI, 30 * GI]
    assert len(place.ears.problems) == 1


def test_the_next_start_comes_up_too(tmp_path: Path) -> None:
    """The same settings on the machine with its pages: no crash loop, and the same word (finding 4)."""
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
def test_what_no_machine_could_give_stays_an_error(tmp_path: Path, reserved: str) -> None:
    """A NUMA node that never was, and sums that disagree, are mistakes in the text (finding 4)."""
    (tmp_path / "c.yaml").write_text(FOUR % reserved)
    with pytest.raises(SettingsError):
        setup.read_setup(tmp_path / "c.yaml", f"synthetic:{PLAIN}")
