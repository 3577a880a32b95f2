"""The soak, shortened; the long one is `make soak`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.control_plane import ControlPlane
from tests.cluster.soak import soak

pytestmark = pytest.mark.cluster


def test_pods_come_and_go_while_the_control_plane_fails(kube: Path, tmp_path: Path) -> None:
    """Connections cut, etcd still, API server and agent killed: in the end everything agrees and nothing is lost."""
    (tmp_path / "node").mkdir()
    with ControlPlane(kube, tmp_path / "cluster") as cluster:
        figures = soak(cluster, tmp_path / "node", 90, 16, pause=2)
    assert figures["created"] == 90
    assert set(figures["faults"]) == {"connections", "etcd", "apiserver"}
