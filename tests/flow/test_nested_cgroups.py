"""Finding 20: cgroups that a container makes below its own, deep or many, end no thread and cost others nothing."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.core.machines.synthetic import parse_synthetic
from agent.host.cgroups.watching import Changes, Watcher
from agent.host.scratch import Layout, Scratch
from agent.model.cgroup import Level
from tests.flow.world import World, container, manifest
from tests.patience import until

MACHINE = "2 sockets x 1 node x 4 cores x 1 thread"
DEEP, MANY = 1000, 1000
"""Levels in each other, and cgroups beside each other."""
MOST = 400
"""Folders that are watched or read, whatever one pod makes."""


@pytest.fixture
def folder() -> Iterator[Path]:
    """For trees that are deeper than pytest can remove: none of its own, and gone whatever becomes of the test."""
    path = tempfile.mkdtemp(prefix="numalign-deep-")
    try:
        yield Path(path, "tree")
    finally:
        subprocess.run(["rm", "-rf", path], check=True)


@pytest.fixture(params=[1, 2], ids=["v1", "v2"])
def world(request: pytest.FixtureRequest, folder: Path) -> World:
    """A node with one pod that runs and may make cgroups."""
    machine = parse_synthetic(MACHINE)
    Scratch.create(folder, cpus=machine.online, nodes=machine.node_set, setup=Layout(version=request.param))
    made = World(folder, machine=MACHINE)
    made.engine.pods_listed(set())
    made.run(manifest("evil", container(cpu="1"), created=1))
    return made


def home(world: World) -> str:
    """The folder of the evil pod's container."""
    return world.cgroups.mounts.cpuset + world.path("evil", "app")


def nest(folder: str, depth: int) -> None:
    """Folders in each other, beyond PATH_MAX where there are so many."""
    here = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("deeper", dir_fd=here)
        below = os.open("deeper", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)


class Seen:
    """What a watcher told, and the threads that ended by a fault."""

    def __init__(self) -> None:
        self.paths: set[str] = set()
        self.problems: list[str] = []
        self.ended: list[str] = []

    def told(self, changes: Changes) -> None:
        self.paths |= {each.path for each in changes.appeared}


@contextlib.contextmanager
def watching(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Watcher, Seen]]:
    """A watcher of the world's tree."""
    seen = Seen()
    monkeypatch.setattr(threading, "excepthook", lambda args: seen.ended.append(str(args.exc_value)))
    watcher = Watcher(world.cgroups.mounts, seen.told, rescan=0.5, problem=seen.problems.append)
    watcher.start()
    try:
        yield watcher, seen
    finally:
        watcher.close()


def check(world: World, watcher: Watcher, seen: Seen) -> None:
    """Another pod's container is told as it starts, and nothing has grown or ended."""
    kubepods = world.cgroups.kubepods
    path = f"{kubepods}/kubepods-podinnocent.slice/cri-containerd-{'a' * 64}.scope"
    Path(world.cgroups.mounts.cpuset + path).mkdir(parents=True)
    until(lambda: path in seen.paths, "the innocent container is told")
    assert seen.ended == []
    assert watcher.watching <= MOST
    assert len(world.cgroups.observe().cgroups) <= MOST
    assert len(seen.problems) <= 1
    assert world.cgroups.affinities(world.path("evil", "app")) is not None


def test_deep_cgroups_end_no_thread(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand levels, more than a path can name: there before the watcher, or made while it looks."""
    nest(home(world), DEEP)
    with watching(world, monkeypatch) as (watcher, seen):
        check(world, watcher, seen)
        Path(home(world), "later").mkdir()
        nest(f"{home(world)}/later", DEEP)
        watcher.look()
        path = f"{world.cgroups.kubepods}/kubepods-podlast.slice"
        Path(world.cgroups.mounts.cpuset + path).mkdir()
        until(lambda: path in seen.paths, "the last pod is told")
        assert seen.ended == []


def test_many_cgroups_are_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands beside each other: watches, what is known and what one observation holds stay few."""
    where = home(world)
    for number in range(MANY):
        Path(where, str(number)).mkdir()
    with watching(world, monkeypatch) as (watcher, seen):
        check(world, watcher, seen)


def test_inner_cgroups_of_one_pod_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On v1, where every level below a container binds it, so many are read and no more."""
    machine = parse_synthetic("1 socket x 1 node x 4 cores x 1 thread")
    tree = Scratch.create(tmp_path, cpus=machine.online, nodes=machine.node_set, setup=Layout(version=1))
    world = World(tmp_path, machine="1 socket x 1 node x 4 cores x 1 thread")
    world.engine.pods_listed(set())
    world.run(manifest("evil", container(cpu="1"), created=1))
    monkeypatch.setattr("agent.host.cgroups.scanning.MOST_INNER", 20)
    path = world.path("evil", "app")
    for number in range(25):
        tree.rules.mkdir(f"{path}/{number}")
    inner = [each for each in world.cgroups.observe().cgroups if each.level is Level.INNER]
    assert 0 < len(inner) <= 20


def test_cgroups_made_without_end_hold_nobody_up(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """While one container makes and removes cgroups all the time, another one's start is told, and the end ends."""
    over = threading.Event()
    where = home(world)

    def churn() -> None:
        while not over.is_set():
            for number in range(50):
                Path(where, str(number)).mkdir()
                Path(where, str(number)).rmdir()

    with watching(world, monkeypatch) as (watcher, seen):
        thread = threading.Thread(target=churn)
        thread.start()
        try:
            check(world, watcher, seen)
        finally:
            over.set()
            thread.join()
