"""New and removed folders of the kubelet's tree are told as they happen: scratch trees and the real hierarchy."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import asyncinotify
import pytest

from agent.host.cgroups import Cgroups, watching
from agent.host.cgroups.layout import place
from agent.host.cgroups.mounts import find_mounts
from agent.host.cgroups.scanning import find_kubepods
from agent.host.cgroups.watching import Changes, NewFolder, Watcher
from agent.model.cgroup import Cause, Level, Write
from tests.contract.trees import Tree, write
from tests.patience import PATIENCE

UID = "0f5c1a2e-0000-4000-8000-000000000001"


class Seen:
    """What a watcher told."""

    def __init__(self) -> None:
        self.appeared: dict[str, NewFolder] = {}
        self.gone: list[str] = []
        self.batches = 0
        self.rewritten = 0
        self._changed = threading.Condition()

    def __call__(self, changes: Changes) -> None:
        with self._changed:
            self.batches += 1
            self.gone += changes.gone
            self.rewritten += changes.rewritten
            self.appeared |= {each.path: each for each in changes.appeared}
            self._changed.notify_all()

    def until(self, true: Callable[[], bool], seconds: float = PATIENCE) -> bool:
        """Whether it became true in time."""
        with self._changed:
            return self._changed.wait_for(true, seconds)

    def until_told(self, path: str) -> bool:
        """Whether a folder was told to be there in time."""
        return self.until(lambda: path in self.appeared)

    def until_gone(self, path: str) -> bool:
        """Whether a folder was told to be gone in time."""
        return self.until(lambda: path in self.gone)


@contextlib.contextmanager
def watched(
    tree: Tree,
    *,
    rescan: float = 30.0,
    problem: Callable[[str], None] = lambda _text: None,
    ours: Callable[[str, str], bool] = lambda _path, _file: False,
) -> Iterator[tuple[Watcher, Seen]]:
    """A watcher of the tree's own kubepods, running."""
    seen = Seen()
    watcher = Watcher(
        find_mounts(tree.root), seen, kubepods=f"{tree.base}/kubepods", rescan=rescan, problem=problem, ours=ours
    )
    watcher.start()
    try:
        yield watcher, seen
    finally:
        watcher.close()


def test_pods_and_containers_are_told_when_others_make_them(tree: Tree) -> None:
    """Folders at every level, made by anyone after the start, come as events and not by looking; so do removals."""
    top = tree.make("/kubepods")
    tree.make("/kubepods/burstable")
    with watched(tree, rescan=600) as (watcher, seen):
        before = time.monotonic()
        made = [tree.make(f"/kubepods/pod{UID}"), tree.make(f"/kubepods/pod{UID}/abc")]
        made += [tree.make(f"/kubepods/pod{UID}/abc/container"), tree.make("/kubepods/burstable/podb")]
        made += [tree.make("/kubepods/burstable/podb/def")]
        assert seen.until(lambda: set(seen.appeared) == set(made)), seen.appeared
        kinds = {
            each.path.removeprefix(top): (each.level, each.pod_uid, each.container_id)
            for each in seen.appeared.values()
        }
        assert kinds == {
            f"/pod{UID}": (Level.POD, UID, ""),
            f"/pod{UID}/abc": (Level.CONTAINER, UID, "abc"),
            f"/pod{UID}/abc/container": (Level.INNER, UID, "abc"),
            "/burstable/podb": (Level.POD, "b", ""),
            "/burstable/podb/def": (Level.CONTAINER, "b", "def"),
        }
        assert all(each.fresh and before <= each.seen <= time.monotonic() for each in seen.appeared.values())
        for path in reversed(made):
            assert tree.drop(path) == "ok"
        assert seen.until(lambda: set(seen.gone) == set(made)), seen.gone
        assert seen.until(lambda: watcher.watching == 2)  # kubepods and burstable


def test_what_is_there_at_the_start_is_told_as_old(tree: Tree) -> None:
    """A restart is no event: containers that ran before have no window to measure."""
    for path in ("/kubepods", "/kubepods/poda", "/kubepods/poda/c"):
        tree.make(path)
    with watched(tree) as (_, seen):
        assert seen.until(lambda: len(seen.appeared) == 2)
        assert {each.path.removeprefix(tree.base): each.fresh for each in seen.appeared.values()} == {
            "/kubepods/poda": False,
            "/kubepods/poda/c": False,
        }


def test_kubepods_may_come_go_and_come_back(tree: Tree) -> None:
    """A kubelet that starts after the agent, and one whose root is made anew, are followed all the same."""
    with watched(tree, rescan=0.05) as (_, seen):
        for number in range(2):
            top = tree.make("/kubepods")
            pod = tree.make(f"/kubepods/pod{number}")
            assert seen.until_told(pod)
            container = tree.make(f"/kubepods/pod{number}/c")
            assert seen.until_told(container)
            for path in (container, pod, top):
                assert tree.drop(path) == "ok"
            assert seen.until_gone(pod)


def test_folders_that_vanish_at_once_do_no_harm(tree: Tree) -> None:
    """Containers that live for less than a reading leave nothing behind, and the watch goes on."""
    tree.make("/kubepods")
    tree.make("/kubepods/poda")
    with watched(tree, rescan=600) as (watcher, seen):
        for number in range(100):
            path = tree.make(f"/kubepods/poda/{number}")
            assert tree.drop(path) == "ok"
        last = tree.make("/kubepods/poda/last")
        assert seen.until(lambda: last in seen.appeared)
        assert seen.until(lambda: watcher.watching == 3)
        assert set(watcher._known) == {f"{tree.base}/kubepods", f"{tree.base}/kubepods/poda", last}


@pytest.fixture
def pod(tree: Tree) -> str:
    """A pod's cgroup with CPUs 0-1 and node 0, as all above it."""
    made = [tree.make(path) for path in ("/kubepods", "/kubepods/poda")]
    for path in made:
        assert write(tree, path, "cpuset.cpus", "0-1") == write(tree, path, "cpuset.mems", "0") == "ok"
    return made[-1]


@pytest.mark.parametrize(("file", "value"), [("cpuset.cpus", "1"), ("cpuset.cpus", ""), ("cpuset.mems", "0")])
def test_a_set_that_another_program_writes_is_told_at_once(tree: Tree, pod: str, file: str, value: str) -> None:
    """Whatever is written: a rescan would take ten minutes. Files that are no sets are not told."""
    with watched(tree, rescan=600) as (_, seen):
        assert write(tree, pod, "cgroup.procs", str(tree.spawn())) == "ok"
        assert write(tree, pod, "cpu.cfs_quota_us" if tree.version == 1 else "cpu.max", "50000") == "ok"
        time.sleep(0.1)
        assert seen.rewritten == 0
        told = write(tree, pod, file, value)
        if told != "ok":
            assert (told, value) == ("ENOSPC", "")
            return
        assert seen.until(lambda: seen.rewritten == 1)


def test_what_this_agent_writes_is_not_told(tree: Tree, pod: str) -> None:
    """Else each repair would be followed by another look. The same text by another program is no news, either."""
    cgroups = Cgroups(tree.root, kernel=tree.kernel, kubepods=f"{tree.base}/kubepods")
    cgroups.observe()
    with watched(tree, rescan=600, ours=cgroups.ours) as (_, seen):
        for cpus in ("0", "1", "0"):
            done = cgroups.apply((
                Write(pod, "cpuset.cpus", cpus, "0-1", Cause.POOL), Write(pod, "cpuset.mems", "0", "0", Cause.POOL),
            ))  # fmt: skip
            assert {each.error for each in done} == {""}
            cgroups.observe()
        assert write(tree, pod, "cpuset.cpus", "0,") == "ok"
        time.sleep(0.2)
        assert seen.rewritten == 0
        assert write(tree, pod, "cpuset.cpus", "0-1") == "ok"
        assert seen.until(lambda: seen.rewritten == 1)


def test_a_program_that_writes_without_end_is_told_now_and_then(tree: Tree, pod: str) -> None:
    """Each telling costs a look at the whole tree: so many at once, and two a second; the last write is told, too."""
    with watched(tree, rescan=600) as (_, seen):
        began, writes = time.monotonic(), 0
        while time.monotonic() < began + 3:
            assert write(tree, pod, "cpuset.cpus", str(writes % 2)) == "ok"
            writes += 1
        most = 10 + 2 * (time.monotonic() - began) + 1
        assert 0 < seen.rewritten <= most < writes
        before = seen.rewritten
        time.sleep(1.5)  # what was held back came, at most
        assert seen.rewritten <= before + 1
        before = seen.rewritten
        assert write(tree, pod, "cpuset.cpus", "0-1") == "ok"
        assert seen.until(lambda: seen.rewritten == before + 1)


def test_a_container_that_writes_its_own_files_without_end_costs_a_tenth_of_a_thread(tree: Tree, pod: str) -> None:
    """A cgroup's files may be written a million times: the thread then pauses, and follows all the same."""
    stopped, go, paused = threading.Event(), threading.Event(), list[float]()

    class Over(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            paused.append(timeout or 0.0)
            return self.is_set()

    other, value = ("cpuset.mems", "0") if tree.version == 1 else ("cpu.max", "50000")  # of one file alone: one event
    with watched(tree, rescan=600) as (watcher, seen):

        def busy(changes: Changes) -> None:
            stopped.set()
            assert go.wait(PATIENCE)
            seen(changes)

        watcher.on_changes, watcher._over = busy, Over()
        tree.make("/kubepods/podb")
        assert stopped.wait(PATIENCE)
        for number in range(300):
            assert write(tree, pod, "cpuset.cpus", str(number % 2)) == "ok"
            assert write(tree, pod, other, value) == "ok"
        go.set()
        last = tree.make("/kubepods/podc")
        assert seen.until(lambda: last in seen.appeared)
        assert seen.until(lambda: bool(paused))
        assert 0 < paused[0] <= 0.5


@pytest.mark.timeout(1800)
def test_an_overflowing_queue_is_made_good_by_looking(tree: Tree) -> None:
    """More events than the kernel keeps (16384 by default): the overflow itself asks for a look at the rest."""
    limit = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text("ascii"))
    if limit > 20_000:
        pytest.skip(f"this kernel keeps {limit} events: too many to overflow here")
    top = tree.make("/kubepods")
    stopped, go = threading.Event(), threading.Event()
    with watched(tree, rescan=600) as (watcher, seen):

        def busy(changes: Changes) -> None:
            stopped.set()
            assert go.wait(1700)
            seen(changes)

        watcher.on_changes = busy
        first = tree.make("/kubepods/podfirst")
        assert stopped.wait(PATIENCE)
        noise = f"{watcher.mounts.cpuset}{top}/noise"
        for _ in range(limit // 2 + 1):
            os.mkdir(noise)  # noqa: PTH102 - because thousands of them are made
            os.rmdir(noise)  # noqa: PTH106 - as above
        lost = tree.make("/kubepods/podlost")
        go.set()
        assert seen.until(lambda: set(seen.appeared) == {first, lost})
        assert seen.until(lambda: seen.rewritten > 0), "a set may have been written meanwhile"
        watcher.on_changes = seen
        later = tree.make("/kubepods/podlost/c")
        assert seen.until(lambda: later in seen.appeared)


def test_without_watches_folders_are_found_by_looking(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    """fs.inotify.max_user_watches is used up: told once with the remedy, and nothing is missed for long."""
    told: list[str] = []

    def refuse(_self: object, path: str, _mask: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    monkeypatch.setattr(asyncinotify.Inotify, "add_watch", refuse)
    monkeypatch.setattr(watching, "_SOON", 0.05)
    tree.make("/kubepods")
    with watched(tree, rescan=600, problem=told.append) as (_, seen):
        path = tree.make("/kubepods/poda")
        assert seen.until(lambda: path in seen.appeared)
        assert tree.drop(path) == "ok"
        assert seen.until(lambda: path in seen.gone)
    assert told
    assert len(told) == len(set(told))
    assert all("max_user_watches" in text for text in told)


def test_without_inotify_folders_are_found_by_looking(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    """No inotify instance can be had (fs.inotify.max_user_instances): the same."""

    def refuse(**_: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    told: list[str] = []
    monkeypatch.setattr(watching, "Inotify", refuse)
    monkeypatch.setattr(watching, "_SOON", 0.05)
    tree.make("/kubepods")
    with watched(tree, rescan=600, problem=told.append) as (_, seen):
        path = tree.make("/kubepods/poda")
        assert seen.until(lambda: path in seen.appeared)
    assert len(told) == 1
    assert "no inotify" in told[0]


def test_what_is_watched_is_not_looked_at_too(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    """Looking reads every folder of the node's pods: while watches stand, that is for every half minute."""
    looks: list[str] = []

    def find(*where: Any) -> str:  # noqa: ANN401 - find_kubepods' own
        looks.append("")
        return find_kubepods(*where)

    monkeypatch.setattr(watching, "find_kubepods", find)
    monkeypatch.setattr(watching, "_SOON", 0.02)
    tree.make("/kubepods")
    with watched(tree, rescan=600) as (_, seen):
        assert seen.until_told(tree.make("/kubepods/poda"))
        time.sleep(0.2)
        assert len(looks) == 1


def test_asking_for_a_look_is_answered_at_once(tree: Tree) -> None:
    """`look` wakes the thread; a hierarchy that is swapped under it (a remount) is seen then."""
    if tree.root == "/sys/fs/cgroup":
        pytest.skip("only a scratch folder can be swapped")
    tree.make("/kubepods")
    made = tree.make("/kubepods/poda")
    with watched(tree, rescan=600) as (watcher, seen):
        folder = Path(find_mounts(tree.root).cpuset + made)
        shutil.rmtree(folder)
        watcher.look()
        assert seen.until(lambda: made in seen.gone)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/kubepods.slice/kubepods-pod1_2.slice", (Level.POD, "1-2", "")),
        ("/kubepods.slice/kubepods-burstable.slice", None),
        ("/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podx.slice", (Level.POD, "x", "")),
        ("/kubepods.slice/kubepods-podx.slice/cri-containerd-ab.scope", (Level.CONTAINER, "x", "ab")),
        ("/kubepods.slice/kubepods-podx.slice/cri-containerd-ab.scope/container", (Level.INNER, "x", "ab")),
        ("/kubepods.slice/other", None),
        ("/kubepods.slice", None),
    ],
)
def test_places_are_told_by_name(path: str, expected: object) -> None:
    """Level, uid and id of a folder come from its name alone: the event says no more."""
    assert place("/kubepods.slice", path) == expected
