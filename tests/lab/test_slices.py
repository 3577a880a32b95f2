"""What CI takes of the lab: every file is in the core or in a slice, and each run fits into its time."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from tests.lab import __main__ as command
from tests.lab import places, slices
from tests.lab.cells import CELLS
from tests.lab.places import HERE, ROOT
from tests.lab.slices import BEFORE, BY_HAND, CORE, ENDS, FILES, HOUR, SLICES, of_this_run

SLOWER, AFTER = 1.2, 2.0
"""How much longer the tests may take than they did when they were measured; minutes for the report and the end."""


def test_every_run_fits_into_its_time() -> None:
    """Where all is kept there are minutes for the core and any slice, and for what follows them."""
    assert BEFORE + (CORE.minutes + max(each.minutes for each in SLICES.values())) * SLOWER + AFTER <= ENDS


def test_every_test_of_the_lab_is_run_by_some_run() -> None:
    """A file with tests that need the lab is in the core or in a slice, or is asked of a cell; by hand all are."""
    known = {*FILES, *(test.partition("::")[0] for each in CELLS for test in each.tests)}
    assert all((ROOT / file).is_file() for file in known)
    asking = {
        str(path.relative_to(ROOT))
        for path in HERE.rglob("test_*.py")
        if path.name != Path(__file__).name
        and any(word in path.read_text() for word in ("stage: Stage", "lab: Lab", "clean: Lab", "grounds:"))
    }
    assert not asking - known
    assert {*FILES} <= {*command.PARTS}


def test_a_run_takes_the_slice_of_its_hour_or_those_that_are_named() -> None:
    """All have their turn in a week of hourly runs, and in some weeks of runs at one hour; a name takes its own."""
    for every, runs in ((1, 24 * 14), (24, 365)):
        assert {of_this_run("", run * every * HOUR)[0] for run in range(runs)} == {*SLICES}
    assert of_this_run("rules-2", 0.0) == ("rules-2", SLICES["rules-2"].tests)
    names, tests = of_this_run("rules", 0.0)
    assert names == "rules-1, rules-2, rules-3, rules-4, rules-5"
    assert tests == tuple(test for each in names.split(", ") for test in SLICES[each].tests)
    with pytest.raises(SystemExit, match="there are chart"):
        of_this_run("nonsense", 0.0)


@pytest.mark.parametrize("code", [0, 1])
def test_a_run_says_which_slice_it_takes_and_runs_it_after_the_core(
    monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """The log's first line says it, so that a list can be asked for again; the exit code is the run's."""
    started, said = list[Any](), Mock()

    def run(_progress: object, drawn: Any, *, keep: bool) -> int:  # noqa: ANN401 - a function of nothing
        started.append((drawn(), keep))
        return code

    monkeypatch.setattr(command, "_run", run)
    monkeypatch.setenv("NUMALIGN_LAB_REFEREE", "1")
    monkeypatch.setenv(slices.CHOICE, "kernel")
    assert command._ci(said) == code
    assert said.call_args_list[0].args == ("the core and the slice kernel",)
    assert started == [([*CORE.tests, *SLICES["kernel"].tests], False)]


def test_a_part_that_passed_at_this_commit_is_not_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`make lab-all` ended by hand goes on where it was; what is red is named, turns the run red and stays due."""
    first, second, third, *_ = command.PARTS
    ran, codes = list[str](), {second: 1}

    def started(arguments: list[str], **_: object) -> Mock:
        (name,) = (name for name, each in command.PARTS.items() if [*each] == arguments[2:])
        ran.append(name)
        if codes.get(name) is None and name == third:
            raise KeyboardInterrupt
        return Mock(returncode=codes.get(name, 0))

    (tmp_path / "run").mkdir()
    for owner, name, value in (
        (command, "ROOT", tmp_path), (places, "commit", lambda _kept: "abc"), (subprocess, "run", started),
        (command, "_down", lambda: 0),
    ):  # fmt: skip
        monkeypatch.setattr(owner, name, value)
    with pytest.raises(KeyboardInterrupt):
        command._all([])
    assert ran == [first, second, third]
    codes[third] = 0
    assert command._all([]) == 1
    assert ran[3:] == [name for name in command.PARTS if name != first]
    assert capsys.readouterr().out.endswith(f"RED: {second}\n")
    assert json.loads((tmp_path / "run/lab-all.json").read_text()) == {
        name: "" if name == second else "abc" for name in command.PARTS
    }
    monkeypatch.setattr(places, "commit", lambda _kept: "another")
    codes[second] = 0
    assert (command._all([]), command._all([first])) == (0, 0)
    assert ran[3 + len(command.PARTS) - 1 :] == [*command.PARTS, first]


def test_no_test_is_named_twice() -> None:
    """By two slices, or by one and by those that are run by hand."""
    names = [test for tests in (CORE.tests, *(each.tests for each in SLICES.values()), BY_HAND) for test in tests]
    assert len(set(names)) == len(names)
