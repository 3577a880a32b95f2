"""Every pair of faults: 17 x 16, and a kill beside each other one of the first. See README.md of this folder."""

from __future__ import annotations

import pytest

from tests.matrix.__main__ import PAGE, page
from tests.matrix.conftest import Run
from tests.matrix.faults import COLUMNS, ROWS, pairs

NAMES = [pair.name for pair in pairs()]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", NAMES)
def test_pair(run: Run, name: str) -> None:
    """Two faults at once, and nothing that must never happen did; once they are over, all is as it should be."""
    run(name)


def test_every_pair_is_there() -> None:
    """The table is whole: 261 pairs, and 15 with a kill."""
    assert (len(ROWS), len(COLUMNS), len(NAMES), len(set(NAMES))) == (17, 16, 276, 276)


def test_the_page_is_fresh() -> None:
    """The developers' page is made of the table of faults: python -m tests.matrix."""
    assert PAGE.read_text("utf-8") == page()
