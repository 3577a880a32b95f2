"""Cgroups that an application makes below its container, on cgroup v1: cut with the pool, and given back."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.core.machines.synthetic import parse_synthetic
from tests.flow.test_in_force import MACHINE, node
from tests.flow.world import MemoryStore, World, container, manifest


def dind(world: World, inner: str) -> tuple[str, str]:
    """A container on the shared pool that made a cgroup with a set of its own, and one below that: their paths."""
    world.run(manifest("dind", {"name": "app", "image": "x"}, created=1))
    paths = world.path("dind", "app") + "/t1", world.path("dind", "app") + "/t1/t2"
    for path in paths:
        world.tree._make(path, leaf=path == paths[-1])
        world.tree.kernel_write(path, "cpuset.cpus", inner)
    world.tree.spawn(paths[-1])
    return paths


def cpus(world: World, path: str) -> str:
    """What a cgroup asks for."""
    return world.tree._store.get(path, "cpuset.cpus")


def end(world: World, *uids: str) -> None:
    """Pods end, and what they held is released."""
    for uid in uids:
        world.end(uid)
    world.engine.pods_gone(uids)
    world.engine.reconcile()


@pytest.mark.parametrize(
    ("inner", "cut", "again"), [("0-7", "0-3", "0,3"), ("2-7", "2-3", "3"), ("4-7", "0-3", "0,3"), ("2", "2", "0,3")]
)
@pytest.mark.parametrize("restart", [False, True])
def test_a_cut_is_undone(tmp_path: Path, inner: str, cut: str, again: str, *, restart: bool) -> None:
    """Pods come, are pinned and go: the application's cgroups have what they had, over a restart, too."""
    store = MemoryStore()
    world = node(tmp_path / "tree", 1, store=store)
    paths = dind(world, inner)
    world.run(manifest("a", container(cpu="4"), created=2))
    assert [cpus(world, path) for path in paths] == [cut] * 2
    world.run(manifest("b", container(cpu="2"), created=3))
    assert [cpus(world, path) for path in paths] == [again] * 2
    world.check()
    if restart:
        world.engine.keep_names()
        world = node(tmp_path / "tree", store=store, pods=world.pods.values())
        world.engine.pods_seen(world.pods.values())
    end(world, "b")
    assert [cpus(world, path) for path in paths] == [cut] * 2
    end(world, "a")
    assert (world.effective("dind"), [cpus(world, path) for path in paths]) == ("0-7", [inner] * 2)
    world.engine.keep_names()
    assert "cuts" not in store.extra


def test_a_set_that_the_application_wrote_since_is_its_own(tmp_path: Path) -> None:
    """What it chose after the cut stays as it is, and is not made wider than that."""
    world = node(tmp_path / "tree", 1)
    outer, _ = paths = dind(world, "0-7")
    world.run(manifest("a", container(cpu="4"), created=2))
    for path in reversed(paths):
        world.tree.kernel_write(path, "cpuset.cpus", "1-2")
    world.engine.reconcile()
    end(world, "a")
    assert (cpus(world, outer), world.effective("dind")) == ("1-2", "0-7")


def test_a_cut_outlives_a_cpu_that_goes_offline(tmp_path: Path) -> None:
    """The kernel takes an offline CPU out of every set: that is no choice of the application."""
    world = node(tmp_path / "tree", 1)
    outer, _ = dind(world, "0-7")
    world.run(manifest("a", container(cpu="4"), created=2))
    for machine in (parse_synthetic("2 sockets x 1 node x 4 cores x 1 thread, 8G per node, offline 3"), MACHINE):
        world.tree.online(machine.online, MACHINE.node_set)
        world.engine.changed(world.node(machine))
    end(world, "a")
    assert cpus(world, outer) == "0-2,4-7", "the kubelet's own cgroup has lost CPU 3 for good"
    world.tree.kernel_write(world.tree.kubepods, "cpuset.cpus", "0-7")
    world.engine.reconcile()
    assert (cpus(world, outer), world.effective("dind")) == ("0-7", "0-7")


def test_release_gives_back_what_was_cut(tmp_path: Path) -> None:
    """Where numalign is taken off the node, the application's cgroups have again what they had."""
    world = node(tmp_path / "tree", 1)
    outer, inner = dind(world, "2-7")
    world.run(manifest("a", container(cpu="4"), created=2))
    world.engine.release()
    assert (cpus(world, outer), cpus(world, inner)) == ("2-7", "2-7")


def test_what_is_remembered_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of more cgroups than are remembered the rest stay cut, and nothing fails."""
    monkeypatch.setattr("agent.core.cgroups.cuts.MOST", 1)
    world = node(tmp_path / "tree", 1)
    outer, inner = dind(world, "0-7")
    world.run(manifest("a", container(cpu="4"), created=2))
    end(world, "a")
    assert sorted([cpus(world, outer), cpus(world, inner)]) in (["0-3", "0-7"], ["0-3", "0-3"])
