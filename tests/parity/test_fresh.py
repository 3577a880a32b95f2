"""Merges that nobody has recorded: made by the Go oracle now, where it can be built, and answered by both."""

from __future__ import annotations

import pytest

from tests.parity.reading import vectors_of
from tests.parity.running import check
from tests.peers.oracle import NoOracleError, generate, oracle


@pytest.mark.go
def test_fresh_merges_are_answered_alike() -> None:
    """Another seed than that of the recorded ones."""
    try:
        program = oracle()
    except NoOracleError as why:
        pytest.skip(str(why))
    made = generate(program, "merge", seed=20_260_101, count=150)
    assert len(made) > 100
    check(vectors_of(made))
