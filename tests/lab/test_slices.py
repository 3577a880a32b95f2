"""What CI takes of the lab: every file is in the core or in a slice, and each run fits into its time."""

from __future__ import annotations

import json
import os
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock, Mock

import pytest

from tests.lab import __main__ as command
from tests.lab import builds, cells, cluster, green, outcomes, report, slices, whole
from tests.lab.broken import KINDS
from tests.lab.cells import BOOT, BY_NAME, CELLS, MINUTES, building, of_turn
from tests.lab.cluster import CELL, PLANS, plans
from tests.lab.places import HERE, ROOT
from tests.lab.slices import (
    BARE,
    BY_HAND,
    CORE,
    GROUPS,
    HOUR,
    KEPT,
    LAB_ENDS,
    LEAST,
    LONGEST,
    PAGE,
    SLICES,
    chosen,
    least,
    page,
)  # fmt: skip
from tests.peers import kubelets

MOST = 6
"""Slices: so many runs take all of them."""


def test_every_run_fits_into_its_time() -> None:
    """45 minutes are enough on a bare machine; where all is kept, for the least of the core and any part, too."""
    bare, kept = (sum(minutes for _, minutes in steps) for steps in (BARE, KEPT))
    assert bare <= LONGEST
    assert max(kept + least(each) for each in SLICES) <= LAB_ENDS


def test_every_test_of_the_lab_is_run_by_some_run() -> None:
    """A file with tests that need the lab is in the core or in a slice, or is asked of a cell (make lab-all)."""
    asked = [*(each.tests for each in (CORE, BY_HAND, *SLICES)), *(each.tests for each in CELLS)]
    known = {test.partition("::")[0] for tests in asked for test in tests}
    assert all((ROOT / file).is_file() for file in known)
    asking = {
        str(path.relative_to(ROOT))
        for path in HERE.rglob("test_*.py")
        if path.name != Path(__file__).name
        and any(word in path.read_text() for word in ("stage: Stage", "lab: Lab", "clean: Lab", "grounds:"))
    }
    assert not asking - known


def test_ci_runs_what_each_product_that_is_broken_on_purpose_fails() -> None:
    """Its test is on some list: on every one if it frees early, does not start or does not write."""
    always = {test for part in CORE.parts[:LEAST] for test in part.tests}
    assert {each.test for each in KINDS.values()} <= {test for each in (CORE, *SLICES) for test in each.tests}
    assert {"dead", "mute", "early"} == {name for name, each in KINDS.items() if each.test in always}
    assert {name for name, each in KINDS.items() if each.test not in CORE.tests} == {"swapped"}


def test_a_day_takes_all_slices_in_turn() -> None:
    """Hours that follow each other take slices that follow each other, six in all; a wish takes its own."""
    assert [chosen("", hour * HOUR) for hour in range(len(SLICES))] == list(SLICES)
    assert len(SLICES) <= MOST
    together = [part for each in SLICES if each is not slices.CELL for part in each.parts]
    assert sorted(together, key=str) == sorted((part for each in GROUPS for part in each.parts), key=str)
    assert chosen("machines+release", 0.0) is chosen("1", 0.0) is SLICES[1]
    assert chosen("machines", 0.0) in GROUPS
    with pytest.raises(SystemExit, match="there are sequences"):
        chosen("nonsense", 0.0)


@pytest.mark.parametrize(("every", "runs"), [(1, 7), (2, 16), (3, 19), (4, 11), (6, 21), (8, 7), (12, 11), (24, 6)])
def test_so_many_runs_that_follow_each_other_take_all_slices(every: int, runs: int) -> None:
    """Whatever hour the first one begins at; no smaller number is enough for each of them."""
    rounds = 24 * len(SLICES)  # hours after which the rotation begins again

    def fewest(first: int) -> int:
        missing = {each.name for each in SLICES}
        for run in range(rounds):
            missing.discard(chosen("", (first + run * every) * HOUR).name)
            if not missing:
                return run + 1
        raise AssertionError(f"{missing} have no turn")

    assert all(chosen("", hour * HOUR) is chosen("", (hour + rounds) * HOUR) for hour in range(rounds))
    assert max(fewest(first) for first in range(rounds)) == runs
    assert every * runs <= rounds
    assert len({chosen("", 48 * HOUR * run).name for run in range(100)}) == len(SLICES) / 2


def test_the_table_of_minutes_is_as_written() -> None:
    """The developers' page says what is here."""
    assert PAGE.read_text() == page(), "python -m tests.lab.slices --write"


PASSED: Any = {"commit": "abc", "red": []}
KNOWN: Any = {
    "1.34-v1-cgroupfs": PASSED, "1.35-v1-systemd": {**PASSED, "red": ["test_a"]}, "1.36-v1-cgroupfs-crio": PASSED,
    "1.37-v2-systemd": PASSED,
}  # fmt: skip


def test_a_cell_that_passed_has_its_turn_and_leaves_it_where_there_is_no_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that is red or not tried has none; a cell that must be built first gives way, if it can."""
    monkeypatch.setattr(cells, "building", lambda cell: 10.0 * (cell.minor != kubelets.OWN))
    ready = BOOT + MINUTES
    names = ["1.34-v1-cgroupfs", "1.36-v1-cgroupfs-crio", "1.37-v2-systemd", "1.34-v1-cgroupfs"]
    assert [of_turn(KNOWN, turn, ready + 10) for turn in range(4)] == [BY_NAME[each] for each in names]
    assert {of_turn(KNOWN, turn, ready) for turn in range(4)} == {BY_NAME["1.36-v1-cgroupfs-crio"]}
    assert [of_turn(known, 0, minutes) for known, minutes in ((KNOWN, ready - 1), ({}, 1000.0))] == [None, None]


def test_what_a_machine_keeps_of_a_cell_takes_no_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a bare machine the system, control plane, kubelet and CRI-O count; each counts no more once it is there."""
    for module in (builds, kubelets):
        monkeypatch.setattr(module, "CACHE", tmp_path)
    cell, own = BY_NAME["1.35-v2-cgroupfs-crio-6.12"], BY_NAME["1.36-v2-systemd"]
    assert (building(own), building(cell)) == (7 + 10, 7 + 10 + 10 + 8)
    (tmp_path / "tools").mkdir()
    for path, left in (
        (kubelets.place(kubelets.NEWEST), 25), (builds.root_place("6.12", "crio"), 18),
        (kubelets.place(35), 8), (builds.crio_places()["crio"], 8), (builds.crio_places()["pinns"], 0),
    ):  # fmt: skip
        path.touch()
        assert building(cell) == left


@pytest.mark.parametrize("code", [0, 1])
def test_the_slice_of_cells_starts_a_lab_of_the_cell_and_is_red_when_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """Its nodes are the cell's, its list has the cell's tests and nothing else, and its exit code is the run's."""
    started, kept, quiet = list[Any](), list[str](), Mock()

    def run(_progress: object, drawn: Any, *, keep: bool) -> int:  # noqa: ANN401 - a function of nothing
        started.append((drawn(), {(each.minor, each.cgroups, each.driver) for each in plans().values()}, keep))
        return code

    monkeypatch.setattr(command, "_run", run)
    monkeypatch.setattr(command, "_versions", Mock())
    monkeypatch.setattr(report, "RUN", tmp_path)
    monkeypatch.setattr(green, "keep", kept.extend)
    monkeypatch.setenv(slices.CHOICE, "cell")
    monkeypatch.setenv(CELL, "1.36-v1-cgroupfs-crio")
    monkeypatch.setenv("NUMALIGN_LAB_REFEREE", os.environ.get("NUMALIGN_LAB_REFEREE", "1"))
    assert command._ci(quiet, 30.0) == code
    assert started == [([*BY_NAME["1.36-v1-cgroupfs-crio"].tests], {(36, 1, "cgroupfs")}, False)]
    assert kept == ([] if code else ["slice cell"])
    monkeypatch.setenv(CELL, "1.20-v1")
    with pytest.raises(SystemExit, match=re.escape("there is no cell 1.20-v1")):
        command._ci(quiet, 30.0)


def test_without_time_for_any_cell_the_core_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a bare machine a cell may take longer than there is: that is told, and is no failure of what was built."""
    started, kept = list[Any](), list[str]()

    def run(_progress: object, drawn: Any, *, keep: bool) -> int:  # noqa: ANN401 - a function of nothing
        started.append((drawn(), plans() == PLANS, keep))
        return 0

    monkeypatch.setattr(command, "_run", run)
    monkeypatch.setattr(green, "keep", kept.extend)
    monkeypatch.setattr(report, "LEFT_OUT", tmp_path / "left-out.json")
    monkeypatch.setattr(cluster, "TIMES", tmp_path / "times.json")  # a lab that ran here, slowly, has another list
    monkeypatch.setattr(report, "RUN", tmp_path)
    monkeypatch.setenv(slices.CHOICE, "cell")
    monkeypatch.delenv(CELL, raising=False)
    monkeypatch.setenv("NUMALIGN_LAB_REFEREE", os.environ.get("NUMALIGN_LAB_REFEREE", "1"))
    monkeypatch.setattr(cells, "building", lambda _cell: 1000.0)
    assert command._ci(Mock(), 39.0) == 0
    assert started == [([*CORE.tests], True, False)]
    assert (kept, json.loads(report.LEFT_OUT.read_text())) == (["core"], ["a cell"])


@pytest.mark.parametrize(
    ("wish", "says"),
    [("rules", f"rules, by {slices.CHOICE}=rules"), ("", "exclusive, by the rotation, whose counter is 27")],
)
def test_a_run_says_at_its_beginning_which_slice_it_takes_and_what_chose_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wish: str, says: str
) -> None:
    """The first line of the log says it, and the report does: a list can be asked for again by that name."""

    def run(_progress: object, drawn: Any, *, keep: bool) -> int:  # noqa: ANN401 - a function of nothing
        drawn()
        return int(keep)

    said = Mock()
    for module, name, value in (
        (command, "_run", run), (green, "keep", Mock()), (time, "time", lambda: 28.5 * HOUR),
        (report, "LEFT_OUT", tmp_path / "left-out.json"), (report, "RUN", tmp_path),
        (command, "AHEAD", MagicMock(**{"need.return_value": ""})), (report, "qemu_version", Mock()),
        (outcomes, "read", list),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, value)
    monkeypatch.setenv(slices.CHOICE, wish)
    monkeypatch.setenv("NUMALIGN_LAB_REFEREE", os.environ.get("NUMALIGN_LAB_REFEREE", "1"))
    assert command._ci(said, 60.0) == 0
    assert said.call_args_list[0].args == (f"slice {says}",)
    assert f"| slice | {says} |" in report.write(None, 0.0).read_text()


ABC = whole.Result("abc", "2026-11-28 08:30", 14.0, 0, {"a.py::test_one": "passed", "a.py::test_two": "failed"}, "")
UNSEEN = "this machine has not seen it pass"


@pytest.mark.parametrize(
    ("here", "kept", "says"),
    [
        (
            {"slice rules": "def of 2026-11-29 10:00 UTC"},
            {"rules": ABC},
            "it passed last at def of 2026-11-29 10:00 UTC",
        ),
        ({}, {"rules": ABC}, f"{UNSEEN}; make lab-all did, at abc of 2026-11-28 08:30 UTC"),
        ({}, {"rules": replace(ABC, code=1), "kernel": ABC}, UNSEEN),
    ],
    ids=["this machine", "make lab-all", "nobody"],
)
def test_a_red_slice_names_the_commit_at_which_it_passed_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    here: dict[str, str], kept: dict[str, whole.Result], says: str,
) -> None:  # fmt: skip
    """Here, or else in `make lab-all`, whose results every machine has; one that was red there has none."""
    monkeypatch.setattr(command, "_run", lambda *_, **__: 1)
    monkeypatch.setattr(green, "FILE", tmp_path / "green.json")
    monkeypatch.setattr(whole, "read", lambda: kept)
    monkeypatch.setenv(slices.CHOICE, "rules")
    monkeypatch.setenv("NUMALIGN_LAB_REFEREE", os.environ.get("NUMALIGN_LAB_REFEREE", "1"))
    green.FILE.write_text(json.dumps(here))
    assert command._ci(Mock(), 60.0) == 1
    assert capsys.readouterr().err == f"RED: slice rules: {says}\n"


def test_a_red_test_that_this_machine_has_not_seen_pass_names_that_of_make_lab_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest of the parts in which it passed; one that was red in all of them has none."""
    monkeypatch.setattr(green, "FILE", tmp_path / "green.json")
    newer = replace(ABC, commit="def", date="2026-11-29 01:00")
    monkeypatch.setattr(whole, "read", lambda: {"rules": newer, "kernel": ABC})
    found = [outcomes.Outcome(f"a.py::test_{name}", outcomes.FAILED, 1.0, "why") for name in ("one", "two")]
    assert [*outcomes.red(found, (), 1, green.last)] == [
        f"a.py::test_one failed: why\n({UNSEEN}; make lab-all did, at def of 2026-11-29 01:00 UTC)",
        f"a.py::test_two failed: why\n({UNSEEN})",
    ]
