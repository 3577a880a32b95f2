"""The nodes of the tests of this folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cluster.control_plane import ControlPlane
from tests.cluster.nodes import Make, Place


@pytest.fixture
def place(cluster: ControlPlane, tmp_path: Path, request: pytest.FixtureRequest) -> Make:
    """Makes a node named after the test."""
    name = request.node.name.removeprefix("test_").split("[")[0].replace("_", "-")[:50].strip("-")

    def make(**options: Any) -> Place:  # noqa: ANN401 - Place's
        return Place(cluster, name, tmp_path, **options)

    return make
