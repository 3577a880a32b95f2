"""Finding 27: a kubelet's root that is left over from another cgroup driver hides no pod and frees no grant."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from agent.core.machines.synthetic import parse_synthetic
from agent.errors import HostError
from agent.host.cgroups import Cgroups
from agent.host.scratch import Layout, Scratch
from tests.flow.world import World, container, manifest

MACHINE = "1 socket x 2 nodes x 4 cores x 1 thread"


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


def test_pods_of_the_living_root_are_seen(tmp_path: Path) -> None:
    """The pod below the root that came later is pinned."""
    world = left_over(tmp_path)
    world.run(manifest("db", container(cpu="2"), created=1))
    assert world.effective("db") == world.holds("db") != ""


def test_s13_nothing_is_freed_while_its_processes_run(tmp_path: Path) -> None:
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


def test_two_roots_with_processes_are_refused_with_the_remedy(tmp_path: Path) -> None:
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


@pytest.mark.parametrize("version", [1, 2])
def test_a_root_above_that_is_left_over_hides_no_pod(tmp_path: Path, version: int) -> None:
    """The cgroupRoot was changed: the root with processes counts, however deep, and /kubepods is left over."""
    machine = parse_synthetic(MACHINE)
    tree = Scratch.create(tmp_path, cpus=machine.online, nodes=machine.node_set, setup=Layout(version=version))
    cgroups, inside = Cgroups(tmp_path, kernel=tree.kernel), "/kubelet.slice/kubelet-kubepods.slice"
    root = Path(cgroups.mounts.cpuset)
    for each in root.glob("kubepods*"):
        shutil.rmtree(each)
    new = f"{inside}/kubelet-kubepods-podnew.slice"
    for path in ("/kubepods", "/kubepods/podold", "/kubelet.slice", inside, new):
        tree.rules.mkdir(path)
        if version == 1:
            tree.kernel_write(path, "cpuset.cpus", "0-3")
            tree.kernel_write(path, "cpuset.mems", "0")
    assert {each.pod_uid for each in cgroups.observe().cgroups} == {"", "old"}
    tree.spawn(new)
    assert {each.pod_uid for each in cgroups.observe().cgroups} == {"", "new"}
    tree.spawn("/kubepods/podold")
    assert {each.pod_uid for each in cgroups.observe().cgroups} == {"", "old"}, "of two that live, the upper one"


def test_s13_a_root_below_that_is_empty_for_a_while_is_kept(tmp_path: Path) -> None:
    """Nothing runs on the node for a moment: the root that was found stays the one."""
    world = World(tmp_path)
    for each in Path(world.cgroups.mounts.cpuset).glob("kubepods*"):
        shutil.rmtree(each)
    inside = "/kubelet.slice/kubelet-kubepods.slice"
    for path in ("/kubepods", "/kubelet.slice", inside, f"{inside}/kubelet-kubepods-podnew.slice"):
        world.tree.rules.mkdir(path)
    world.tree.spawn(f"{inside}/kubelet-kubepods-podnew.slice")
    assert world.cgroups.observe().cgroups[0].path == inside
    world.tree.remove(f"{inside}/kubelet-kubepods-podnew.slice")
    assert world.cgroups.observe().cgroups[0].path == inside
