"""What could not be read back is not told as in force, and a fault on the way to the kernel leaves nobody untold.

Finding 10.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.core.machines.synthetic import parse_synthetic
from agent.errors import HostError
from agent.model.cgroup import Observed
from tests.flow.world import World, container, manifest

MACHINE = "2 sockets x 1 node x 4 cores x 1 thread, 8G per node"


@pytest.mark.parametrize("fault", [HostError("/sys/fs/cgroup", "cannot be read"), RuntimeError("anything")], ids=str)
def test_finding_10_cgroups_that_cannot_be_read_are_not_told_as_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    """A pod is granted CPUs while nobody can look: it is told that, and is told the rest when somebody can."""
    world = World(tmp_path / "tree", machine=MACHINE)
    world.engine.pods_listed({"db", "web"})
    world.run(manifest("db", container(cpu="2"), created=1))

    def observe() -> Observed:
        raise fault

    with monkeypatch.context() as patched:
        patched.setattr(world.cgroups, "observe", observe)
        world.engine.pods_seen([world.pods["db"]])
        other = manifest("other", container(cpu="2"), created=2)
        patched.setattr(world, "check", lambda: None)
        world.see(other)
        assert world.condition("other") == "False NotEnforced"
        assert "not read back" in world.report("other").message
        assert world.condition("db") == "True Aligned", "of whom nothing else is known"
    world.engine.reconcile()
    assert world.condition("other") == "True Aligned"


def test_finding_10_pages_that_nobody_can_count_cost_nobody_else(tmp_path: Path) -> None:
    """One container's memory.numa_stat cannot be read: it stays where it is, the others are enforced and told."""
    settings = {
        "memoryManagerPolicy": "Static", "kubeReserved": {"cpu": 1, "memory": "1948Mi"},
        "reservedMemory": [{"numaNode": node, "limits": {"memory": "1Gi"}} for node in (0, 1)],
    }  # fmt: skip
    world = World(tmp_path / "tree", machine=MACHINE, settings=settings)
    world.engine.pods_listed({"odd", "db"})
    world.see(manifest("odd", container(cpu="2"), created=1))
    path = world.tree.add_pod("odd", world.pods["odd"].qos)
    world.tree.remove(path)
    world.start("odd")
    world.tree.kernel_write(world.path("odd", "app"), "cpuset.mems", "0-1")
    stat = Path(f"{world.tree.folder}{world.path('odd', 'app')}/memory.numa_stat")
    stat.write_text("anon what=ever\n")
    world.engine.reconcile()
    world.run(manifest("db", container(cpu="2"), created=2))
    assert world.effective("db") == world.holds("db")
    assert world.condition("db") == "True Aligned"


def test_finding_11_who_lost_a_cpu_is_told_whenever_that_is_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A CPU goes offline while a fault keeps that from being followed: when it is, the pod is told what it has.

    Finding 11.
    """
    world = World(tmp_path / "tree", machine=MACHINE)
    world.engine.pods_listed({"db"})
    world.run(manifest("db", container(cpu="4"), created=1))
    less = parse_synthetic(f"{MACHINE}, offline 7")

    def fails(*_: object) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patched:
        patched.setattr(world.store, "save", fails)
        world.engine.changed(world.node(less))
    world.tree.online(less.online)
    world.machine = less
    world.engine.reconcile()
    assert (world.holds("db"), world.condition("db")) == ("4-6", "False NotAligned")
    assert world.ears.words[-1] == "db"
    assert "it lost CPUs 7" in world.report("db").message
    assert world.ears.told["db"] == "4-6"


def test_finding_09_a_resize_under_policy_none_is_not_ignored_in_silence(tmp_path: Path) -> None:
    """The pod keeps its CPUs and is told why; back to static, the resize is followed (finding 9)."""
    world = World(tmp_path / "tree", machine=MACHINE)
    world.engine.pods_listed({"db"})
    world.run(manifest("db", container(cpu="2"), created=1))
    held = world.holds("db")
    world.engine.changed(world.node(cpuManagerPolicy="none"))
    world.see(manifest("db", container(cpu="3"), created=1))
    assert (world.holds("db"), world.condition("db")) == (held, "False NotAligned")
    assert "resize not followed from 2 to 3 CPUs: cpuManagerPolicy is none" in world.report("db").message
    world.engine.changed(world.node(cpuManagerPolicy="static"))
    world.engine.reconcile()
    assert len(world.engine.ledger.grant("db", "app").cpus or ()) == 3
    assert world.effective("db") == world.holds("db")
    assert world.condition("db") == "True Aligned"
