"""The real tools of the chart's tests."""

from __future__ import annotations

import os

import pytest

from tests import peers
from tests.chart import schemas
from tests.peers import tools


@pytest.fixture(scope="session")
def charting() -> None:
    """Helm and its companions; without them these tests are skipped, except in CI."""
    try:
        for tool in (tools.helm, tools.kubeconform, tools.helm_docs, tools.unittest):
            tool()
        for version in schemas.MODULES:
            schemas.folder(version)
    except peers.PeerMissingError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"no Helm here: {error}")
