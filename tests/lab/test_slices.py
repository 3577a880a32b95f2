"""What CI takes of the lab: every file is in the core or in a slice, and each run fits into its time."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab.cells import CELLS
from tests.lab.places import HERE, ROOT
from tests.lab.slices import BEFORE, CORE, HOUR, PAGE, SLICES, chosen, least, page

LONGEST = 85
"""Minutes of a whole run; CI ends one after 90."""


def test_every_run_fits_into_its_time() -> None:
    """From a bare machine every run has room for the core and any part of its slice within 85 minutes."""
    before = sum(minutes for _, minutes in BEFORE)
    assert max(before + least(each) for each in SLICES) <= LONGEST


def test_every_test_of_the_lab_is_run_by_some_run() -> None:
    """A file with tests that need the lab is in the core or in a slice, or is asked of a cell (make lab-all)."""
    asked = [*(each.tests for each in (CORE, *SLICES)), *(each.tests for each in CELLS)]
    known = {test.partition("::")[0] for tests in asked for test in tests}
    assert all((ROOT / file).is_file() for file in known)
    asking = {
        str(path.relative_to(ROOT))
        for path in HERE.rglob("test_*.py")
        if path.name != Path(__file__).name
        and any(word in path.read_text() for word in ("stage: Stage", "lab: Lab", "clean: Lab", "grounds:"))
    }
    assert not asking - known


def test_a_day_takes_all_slices_in_turn() -> None:
    """Hours that follow each other take slices that follow each other, and a wish takes its own."""
    assert [chosen("", hour * HOUR) for hour in range(len(SLICES))] == list(SLICES)
    assert chosen("machines", 0.0).name == chosen("1", 0.0).name == "machines"
    with pytest.raises(SystemExit, match="there are sequences"):
        chosen("nonsense", 0.0)


def test_the_table_of_minutes_is_as_written() -> None:
    """The developers' page says what is here."""
    assert PAGE.read_text() == page(), "python -m tests.lab.slices --write"
