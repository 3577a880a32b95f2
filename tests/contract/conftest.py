"""The tree fixture."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.trees import ALL, Tree, open_tree


@pytest.fixture(params=ALL)
def tree(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Tree]:
    """Each kernel in turn, with a folder of our own that has CPUs 0-1 and node 0."""
    found = open_tree(request.param, tmp_path)
    try:
        yield found
    finally:
        found.close()
