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
from agent.host.scratch import Scratch
from tests.flow.serving import MACHINE, write
from tests.flow.world import container

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


def said(command: list[str], code: int = 0) -> str:
    """What a command prints, on one line."""
    result = CliRunner().invoke(group, command)
    assert result.exit_code == code, (result.output, result.exception)
    return " ".join(result.output.split())


def test_what_the_kubelets_own_cgroup_lacks_is_told_by_all(tmp_path: Path) -> None:
    """`run` places within it; `state`, `explain` and `plan` say it from the ledger, and `verify` from the cgroups."""
    pods, common = tmp_path / "pods", ["--state-dir", str(tmp_path), "--root", MACHINE]
    pods.mkdir()
    for name, cpus in (("db", "2"), ("next", "3")):
        write(pods, name, container(cpu=cpus))
        said(["run", "--once", "--no-processes", "--pods", str(pods), *common])
        tree = Scratch(tmp_path / "cgroup")
        tree.kernel_write(tree.kubepods, "cpuset.cpus", "2-7")
    ledger = open_queries(tmp_path, None, MACHINE).ledger
    held = {record.pod.name: str(ledger.grant(uid, "app").cpus) for uid, record in ledger.pods.items()}
    assert held == {"db": "1-2", "next": "4-6"}
    text = "has CPUs 2-7 of 0-7, and no pod is granted the rest: set reservedSystemCPUs: 0-1"
    for command in (["state"], ["explain", "db"], ["plan", "--policy", "none"]):
        assert text in said([*command, *common]), command
    report = said(["verify", *common], 1)
    assert text in report
    assert "a running agent repairs none of them: those lie in the kubelet's own cgroup, which has less" in report
