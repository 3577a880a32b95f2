"""Hardware that settings name may go: the machine is followed in any case, and what is missed is told.

Finding 11.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.app import setup
from agent.errors import SettingsError
from agent.model.idset import CpuSet
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
