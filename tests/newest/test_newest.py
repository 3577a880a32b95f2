"""The oldest Python that is supported runs `make check`; the newest one runs the tiers that need nothing else."""

from __future__ import annotations

import os

import pytest

from tests import newest

pytestmark = [
    pytest.mark.skipif(
        not os.environ.get("NUMALIGN_LAB_TESTS"),
        reason="runs tiers on another Python for minutes: make newest runs it",
    ),
    pytest.mark.timeout(1800),
]


def test_the_newest_python_passes_and_tests_take_the_branches_of_core_and_engine() -> None:
    """Unit, property and flow tests pass there; with others they take 95 % of all branches."""
    root = newest.root(print)
    assert newest.tested(root) == 0
    found = newest.counted(root)
    print(found)
    assert found.percent >= newest.WANTED, str(found)
