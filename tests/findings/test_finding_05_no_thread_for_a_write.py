"""Finding 5, at its other end: where no thread can be had, a write of memory nodes is refused and told."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from agent.model.cgroup import Cause, Write
from tests.flow.world import World, container, manifest


def test_finding_05_a_write_without_a_thread_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process limit is reached: the answer is the kernel's word, and the next write goes through again."""
    world = World(tmp_path)
    world.engine.pods_listed(set())
    world.run(manifest("db", container(cpu="2"), created=1))

    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    write = Write(world.path("db", "app"), "cpuset.mems", "0", "", Cause.GRANT)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        (written,) = world.cgroups.apply((write,))
    assert written.error == "EAGAIN"
    (written,) = world.cgroups.apply((write,))
    assert (written.error, written.read_back) == ("", "0")
