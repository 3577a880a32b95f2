"""Finding 27: a kubelet's root that is left over from another cgroup driver hides no pod and frees no grant."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from agent.errors import HostError
from agent.host.cgroups import Cgroups
from tests.flow.world import World, container, manifest


def left_over(folder: Path) -> World:
    """A node whose /kubepods is left over, and whose /kubepods.slice has not been made yet."""
    world = World(folder)
    root = Path(world.cgroups.mounts.cpuset)
    for each in root.glob("kubepods*"):
        shutil.rmtree(each)
    world.tree.rules.mkdir("/kubepods")
    world.tree.rules.mkdir("/kubepods/podold")
    assert {each.path for each in world.cgroups.observe().cgroups} == {"/kubepods", "/kubepods/podold"}
    world.engine.pods_listed({"db"})
    return world


def test_finding_27_pods_of_the_living_root_are_seen(tmp_path: Path) -> None:
    """The pod below the root that came later is pinned."""
    world = left_over(tmp_path)
    world.run(manifest("db", container(cpu="2"), created=1))
    assert world.effective("db") == world.holds("db") != ""


def test_finding_27_s13_nothing_is_freed_while_its_processes_run(tmp_path: Path) -> None:
    """A pod that left the API keeps its CPUs as long as its cgroup lives, and not longer."""
    world = left_over(tmp_path)
    world.run(manifest("db", container(cpu="2"), created=1))
    held = world.holds("db")
    world.engine.pods_gone(["db"])
    world.engine.reconcile()
    assert world.holds("db") == held
    world.end("db")
    world.engine.reconcile()
    assert world.holds("db") == ""


def test_finding_27_two_roots_with_processes_are_refused_with_the_remedy(tmp_path: Path) -> None:
    """Two kubelets live here: nobody but the settings can say which is meant, and nothing is freed meanwhile."""
    world = left_over(tmp_path)
    world.run(manifest("db", container(cpu="2"), created=1))
    world.tree.spawn("/kubepods/podold")
    with pytest.raises(HostError, match="several kubelets' roots"):
        Cgroups(tmp_path, kernel=world.tree.kernel).observe()
    held = world.holds("db")
    world.engine.pods_gone(["db"])
    world.engine.reconcile()
    assert world.holds("db") == held
