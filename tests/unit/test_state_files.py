"""Finding 32: small files of the state folder are their owner's alone, and nothing in their place hangs anybody."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from agent.app.statedir import node_allocatable as kept
from agent.app.statedir import recovery_report, state_file
from agent.app.statedir import unplaced_pods as unplaced
from agent.errors import CheckpointError
from agent.host.checkpoint import Checkpoint
from tests.flow.serving import serving


def test_small_files_are_private(tmp_path: Path) -> None:
    """Names of pods and their annotations are for nobody else on the node to read."""
    with serving(tmp_path):
        pass
    files = [each for each in (tmp_path / "state").iterdir() if each.is_file()]
    assert state_file.FILE in {each.name for each in files}
    assert {stat.S_IMODE(each.stat().st_mode) for each in files} == {0o600}


def test_small_files_outlive_a_power_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The new file is synced before it takes the old one's name, and its folder afterwards."""
    done, sync, rename = list[str](), os.fsync, os.replace

    def synced(handle: int) -> None:
        done.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file")
        sync(handle)

    def renamed(*arguments: Any, **named: Any) -> None:  # noqa: ANN401 - os.replace's
        done.append("name")
        rename(*arguments, **named)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", renamed)
    kept.save(tmp_path, kept.NodeAllocatable(1000, 0, known=True))
    assert done == ["file", "name", "folder"]


def test_a_link_in_the_way_is_not_followed(tmp_path: Path) -> None:
    """Neither where the new file is written first, nor where it is read."""
    aim = tmp_path / "aim"
    aim.write_text('{"cpuMilli": 7000, "memoryBytes": 0}', "utf-8")
    before = aim.read_text("utf-8")
    (tmp_path / f".{state_file.FILE}.new").symlink_to(aim)
    with pytest.raises(OSError, match="symbolic links"):
        kept.save(tmp_path, kept.NodeAllocatable(1000, 0, known=True))
    assert aim.read_text("utf-8") == before
    (tmp_path / "aim.json").mkdir()
    kept.save(tmp_path / "aim.json", kept.NodeAllocatable(7000, 0, known=True))
    (tmp_path / state_file.FILE).symlink_to(tmp_path / "aim.json" / state_file.FILE)
    (tmp_path / "node.json").symlink_to(aim)
    assert kept.load(tmp_path) == kept.NodeAllocatable()


@pytest.mark.parametrize("kind", ["fifo", "folder", "device"])
def test_what_is_no_file_says_nothing(kind: str, tmp_path: Path) -> None:
    """A FIFO, a folder or a device under one of the names: nothing is remembered, and nobody waits."""
    state = tmp_path / "state"
    state.mkdir()
    for name in (state_file.FILE, *state_file.EARLIER, "checkpoint.json"):
        if kind == "fifo":
            os.mkfifo(state / name)
        elif kind == "folder":
            (state / name).mkdir()
        else:
            (state / name).symlink_to("/dev/zero")
    assert kept.load(state) == kept.NodeAllocatable()
    assert unplaced.load(state) == unplaced.Unplaced()
    assert recovery_report.load(state) is None
    with pytest.raises(CheckpointError):
        Checkpoint(state / "checkpoint.json").load()
