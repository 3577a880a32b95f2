"""`make lab-all`: nothing of the lab is left out, a run goes on where it was ended, and what is red stays red."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab import outcomes, whole
from tests.lab.slices import CORE, SLICES
from tests.lab.whole import STAGES, Stage, due, markdown, read, run


def test_every_test_that_ci_takes_by_turns_is_in_the_whole() -> None:
    """Each test of the core and of the slices is asked for by some part: by its id, its function or its file."""
    asked = {each for stage in STAGES for each in stage.arguments}
    tests = {test for slice_ in (CORE, *SLICES) for test in slice_.tests}
    assert all({test, test.partition("[")[0], test.partition("::")[0]} & asked for test in tests)


def test_a_part_is_kept_as_soon_as_it_ended_and_not_run_again_at_its_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second part is ended by hand: the first stays known, and what is due is the rest."""
    monkeypatch.setattr(whole, "commit", lambda: "abc")
    monkeypatch.setattr(outcomes, "read", lambda: [outcomes.Outcome("f.py::test_one", outcomes.PASSED, 1.0)])
    kept = tmp_path / "whole.json"

    def started(part: Stage) -> int:
        if part is STAGES[1]:
            raise KeyboardInterrupt
        return 0

    with pytest.raises(KeyboardInterrupt):
        run(STAGES, started, lambda _text: None, kept)
    assert [(name, each.code, each.tests) for name, each in read(kept).items()] == [
        (STAGES[0].name, 0, {"f.py::test_one": "passed"})
    ]
    assert due(read(kept), "abc", float("inf")) == list(STAGES[1:])
    assert due(read(kept), "another", float("inf")) == list(STAGES)


def test_what_did_not_pass_is_told_and_stays_due(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A red part is named, is red in the report, and is run again though it ran at this commit; the others go on."""
    monkeypatch.setattr(whole, "commit", lambda: "abc")
    kept = tmp_path / "whole.json"
    assert run(STAGES, lambda stage: int(stage is STAGES[2]), lambda _text: None, kept) == [STAGES[2].name]
    assert due(read(kept), "abc", float("inf")) == [STAGES[2]]
    (row,) = (line for line in markdown(read(kept)).splitlines() if line.startswith(f"| {STAGES[2].name} |"))
    assert "**RED**" in row


def test_a_part_that_writes_no_report_is_not_told_by_that_of_an_earlier_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two parts share the name of their report: what the first one wrote says nothing of the second."""
    monkeypatch.setattr(whole, "commit", lambda: "abc")
    monkeypatch.setattr(whole, "RUN", tmp_path)
    first, second = (each for each in STAGES if each.report == "broken.md")

    def started(part: Stage) -> int:
        if part is first:
            (tmp_path / part.report).write_text("| dead | red |")
        return 0

    run((first, second), started, lambda _text: None, tmp_path / "whole.json")
    found = read(tmp_path / "whole.json")
    assert (found[first.name].told, found[second.name].told) == ("| dead | red |", "")


def test_a_limit_leaves_out_what_there_is_no_time_for() -> None:
    """Parts are taken in their order as long as their minutes fit."""
    chosen = due({}, "abc", STAGES[0].minutes + 8)
    assert chosen[0] is STAGES[0]
    assert sum(each.minutes for each in chosen) <= STAGES[0].minutes + 8


def test_the_report_is_as_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--report` runs nothing, and writes what each part of whole.json came to, with its commit."""
    monkeypatch.setattr(whole, "REPORT", tmp_path / "lab" / "whole.md")
    assert whole.main(["--report"]) == 0
    text = (tmp_path / "lab" / "whole.md").read_text()
    assert text == markdown(read())
    assert all(f"| `{result.commit}` | {result.date} |" in text for result in read().values())
