"""The control plane that the tests of this folder share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import peers
from tests.cluster.control_plane import ControlPlane


@pytest.fixture(scope="session")
def kube() -> Path:
    """The built Kubernetes components; without them these tests are skipped, except in CI."""
    try:
        return peers.kube()
    except peers.PeerMissingError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"no real kube-apiserver here: {error}")


@pytest.fixture(scope="session")
def cluster(kube: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A running etcd and kube-apiserver."""
    with ControlPlane(kube, tmp_path_factory.mktemp("cluster")) as control_plane:
        yield control_plane
