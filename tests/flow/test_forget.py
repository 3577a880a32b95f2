"""`numalign release --forget` leaves nothing of ours in the state folder, and all that is somebody else's."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from agent.app.statedir import last_settings
from agent.app.statedir import node_allocatable as kept
from agent.app.statedir.state_file import EARLIER, FILE
from agent.cli import group
from agent.errors import CheckpointUnwritableError
from agent.host.checkpoint import Checkpoint
from agent.settings import Settings
from tests.flow.serving import MACHINE, write
from tests.flow.world import container


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """The state folder of an agent that served a pod, refused one, and put a damaged checkpoint aside."""
    (tmp_path / "pods").mkdir()
    write(tmp_path / "pods", "db", container(cpu="2"))
    write(tmp_path / "pods", "huge", container(cpu="64"))
    for _ in range(2):
        _run(tmp_path, "run", "--pods", str(tmp_path / "pods"), "--once")
        place = tmp_path / "state" / "checkpoint.json"
        place.write_bytes(place.read_bytes()[:-20])
    _run(tmp_path, "run", "--pods", str(tmp_path / "pods"), "--once")
    kept.save(tmp_path / "state", kept.NodeAllocatable(1000, 1 << 30, known=True))
    last_settings.save(tmp_path / "state", Settings())
    return tmp_path / "state"


def _run(folder: Path, command: str, *more: str) -> Result:
    options = ["--state-dir", str(folder / "state"), "--root", MACHINE]
    return CliRunner().invoke(group, [command, *options, *more])


def _files(state: Path) -> set[str]:
    return {path.name for path in state.iterdir() if path.is_file()}


def test_nothing_of_ours_stays_and_all_of_others(state: Path) -> None:
    """Every file that an agent made goes, those of a killed save and the lock, too; other files and folders stay."""
    before = _files(state)
    assert before >= {FILE, "checkpoint.json", "lock"}
    assert any(name.startswith("checkpoint.json.corrupt-") for name in before)
    spare = (f".{name}.new" for name in ("checkpoint.json", FILE, "node.json"))
    for name in (*spare, *EARLIER, "notes.txt", "checkpoint.json.bak"):
        (state / name).write_text("x", "utf-8")
    done = _run(state.parent, "release", "--forget")
    assert done.exit_code == 0, (done.output, done.exception)
    assert _files(state) == {"notes.txt", "checkpoint.json.bak"}
    assert (state / "cgroup").is_dir()


def test_without_forget_everything_stays(state: Path) -> None:
    """A release alone removes nothing: the next agent goes on from the ledger."""
    before = _files(state)
    assert _run(state.parent, "release").exit_code == 0
    assert _files(state) == before


def test_a_running_agents_lock_stays(state: Path) -> None:
    """With --force beside an agent its lock is kept, or a second agent could start beside it."""
    agent = Checkpoint(state / "checkpoint.json")
    agent.lock()
    try:
        assert _run(state.parent, "release", "--forget", "--force").exit_code == 0
    finally:
        agent.unlock()
    assert _files(state) == {"lock"}


def test_a_folder_that_is_not_there_is_forgotten_already(tmp_path: Path) -> None:
    """Nothing to remove is no error, and makes no folder."""
    Checkpoint(tmp_path / "none" / "checkpoint.json").forget("node.json")
    assert not (tmp_path / "none").exists()


def test_what_cannot_be_removed_is_named(state: Path) -> None:
    """A folder in the place of one of our files is not ours: it stays, and the error names it."""
    (state / FILE).unlink()
    (state / FILE).mkdir()
    done = _run(state.parent, "release", "--forget")
    assert isinstance(done.exception, CheckpointUnwritableError)
    assert f"{FILE}: cannot be removed" in str(done.exception)
    assert not (state / "checkpoint.json").exists()
