"""A stand-in server with a fleet on paper, and replicas of the gatekeeper beside it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gatekeeper.replicas import Cluster


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Two nodes of two NUMA nodes with four CPUs each, and no gatekeeper yet."""
    made = Cluster(tmp_path)
    try:
        yield made
    finally:
        made.close()
