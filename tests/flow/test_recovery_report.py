"""What a start adopted, dropped and put aside is shown: in `numalign state`, and as data."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from agent.app.statedir import node_allocatable, recovery_report, state_file
from agent.app.statedir.node_allocatable import NodeAllocatable
from agent.cli import group
from agent.model.idset import CpuSet
from agent.model.ledger import CpuBooks, Ledger
from agent.node.recover import Recovered
from tests.flow.serving import MACHINE, write
from tests.flow.world import container


def _run(folder: Path, *more: str, machine: str = MACHINE) -> None:
    arguments = ["run", "--pods", str(folder / "pods"), "--once", "--state-dir", str(folder / "state")]
    found = CliRunner().invoke(group, [*arguments, "--root", machine, *more])
    assert found.exit_code == 0, found.output


def _state(folder: Path, *more: str) -> str:
    found = CliRunner().invoke(group, ["state", "--state-dir", str(folder / "state"), "--root", MACHINE, *more])
    assert found.exit_code == 0, found.output
    return " ".join(found.output.split())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A node that served one pod with two exclusive CPUs."""
    (tmp_path / "pods").mkdir()
    write(tmp_path / "pods", "db", container(cpu="2"))
    _run(tmp_path)
    return tmp_path


def test_a_first_start_and_a_second_one_are_told(folder: Path) -> None:
    """Nothing was saved before the first; the second kept the pod."""
    assert "there was no checkpoint, and no pod ran: a first start" in _state(folder)
    assert "last start 20" in _state(folder)
    assert "; compatibility: fixed" in _state(folder)
    _run(folder)
    assert "kept 1, adopted 0 from their cgroups, dropped 0, quarantined 0" in _state(folder)
    body = json.loads(_state(folder, "--output", "json"))
    assert len(body["lastStart"]["kept"]) == 1


def test_a_damaged_checkpoint_is_told_with_its_new_name_and_the_pod_is_adopted(folder: Path) -> None:
    """The grant comes back from the cgroups; what was put aside is named."""
    place = folder / "state" / "checkpoint.json"
    place.write_text(place.read_text("utf-8")[:-20], "utf-8")
    _run(folder)
    said = _state(folder)
    assert "kept 0, adopted 1 from their cgroups, dropped 0, quarantined 1" in said
    assert "adopted as they ran: pods" in said
    aside = next(each.name for each in (folder / "state").iterdir() if each.name.startswith("checkpoint.json."))
    assert f"put aside as {aside}" in said


def test_what_a_smaller_machine_cannot_hold_is_told(folder: Path) -> None:
    """The CPUs of a grant went away while the agent did not run: dropped, by pod."""
    _run(folder, machine=MACHINE + ", offline 2")
    report = recovery_report.load(folder / "state")
    assert report is not None
    assert report.dropped
    assert all(each.startswith("pod ") for each in report.dropped)


@pytest.mark.parametrize("text", ["", "{", '{"version": 2}', "[]", '"x"', '{"numalign": 1, "at": "x"}'])
def test_a_report_that_cannot_be_read_is_no_report(folder: Path, text: str) -> None:
    """A newer version's or a damaged one: `state` says what it can."""
    (folder / "state" / state_file.FILE).write_text(text, "utf-8")
    assert "last start" not in _state(folder)


@pytest.mark.parametrize("part", [[], "x", {"at": "x"}, {"at": 1.0, "moons": 3}, {}])
def test_a_part_that_cannot_be_read_costs_no_other_one(folder: Path, part: object) -> None:
    """A newer version's report is none, and what the Node said is known all the same, also after the next save."""
    state, node = folder / "state", NodeAllocatable(1000, 1 << 30, known=True)
    state_file.keep(state, start=part, node=node)
    assert "last start" not in _state(folder)
    assert node_allocatable.load(state) == node
    state_file.keep(state, node=replace(node, memory=7))
    assert (state_file.raw(state, "start"), node_allocatable.load(state).memory) == (part, 7)


def test_a_start_logs_how_many_pods_it_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Figures by name, for who collects logs: a start that lost pods would look like one that kept all."""
    gone = tuple("def")
    found = Recovered(Ledger("", CpuBooks(CpuSet())), as_saved=False, kept=("a", "b"), adopted=("c",), unknown=gone)
    with caplog.at_level("INFO"):
        recovery_report.tell(tmp_path, found)
    (line,) = [each for each in caplog.records if each.getMessage() == "recovered"]
    assert vars(line)["facts"] == {"kept": 2, "adopted": 1, "unknown": 3, "as_saved": False}


def test_a_report_of_a_full_node_is_read(tmp_path: Path) -> None:
    """Two hundred and fifty pods are some kilobytes of names: all of them are there."""
    uids = tuple(f"{number:08x}-0000-4000-8000-000000000000" for number in range(250))
    recovery_report.tell(tmp_path, Recovered(Ledger("", CpuBooks(CpuSet())), as_saved=True, kept=uids))
    found = recovery_report.load(tmp_path)
    assert found is not None
    assert found.kept == uids
