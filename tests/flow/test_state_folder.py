"""The commands that answer from a state folder read it in one way, and fail in one way."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from agent.app.offline.offline import Locations, open_leftovers
from agent.app.offline.queries import open_queries
from agent.app.standalone.build import StandaloneOptions, standalone_node
from agent.app.statedir import node_allocatable as kept
from agent.cli import group
from agent.errors import HostError, SettingsError
from tests.flow.serving import MACHINE

COMMANDS = [("state",), ("plan", "--policy", "none"), ("explain", "db"), ("verify",)]


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """What an agent left that served nothing yet."""
    (tmp_path / "pods").mkdir()
    with standalone_node(StandaloneOptions(pods=tmp_path / "pods", state=tmp_path / "state", root=MACHINE)):
        return tmp_path / "state"


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_folder_without_a_ledger(tmp_path: Path, command: tuple[str, ...]) -> None:
    """A fault of the machine, told in the same words, with the file that is missing."""
    found = CliRunner().invoke(group, [*command, "--state-dir", str(tmp_path), "--root", MACHINE])
    assert isinstance(found.exception, HostError)
    said = "checkpoint.json: is not there: no agent has saved anything in this --state-dir"
    assert str(found.exception) == f"{tmp_path}/{said}"


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_machine_that_is_none(state: Path, command: tuple[str, ...]) -> None:
    """Wrong input, with the option's name."""
    found = CliRunner().invoke(group, [*command, "--state-dir", str(state), "--root", "/nowhere"])
    assert isinstance(found.exception, SettingsError)
    assert str(found.exception).startswith("--root: ")


def test_what_the_node_said_counts_for_all(state: Path) -> None:
    """Reservations that follow from the Node are the running agent's, for explain and for verify."""
    kept.save(state, kept.NodeAllocatable(2000, 1 << 30, known=True))
    assert str(open_queries(state, None, MACHINE).setup.node.reserved) == "0-1"
    assert str(open_leftovers(Locations(state=state, root=MACHINE), needs_ledger=True).setup.node.reserved) == "0-1"
