"""The soak, shortened; `make soak` gives NUMALIGN_SOAK, the number of pods and the seconds of the long one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cluster.control_plane import ControlPlane
from tests.cluster.soak import soak

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(3600)]
PODS, SECONDS = map(int, os.environ.get("NUMALIGN_SOAK", "90 16").split())


def test_pods_come_and_go_while_the_control_plane_fails(kube: Path, tmp_path: Path) -> None:
    """Connections cut, etcd still, API server and agent killed: in the end everything agrees and nothing is lost."""
    (tmp_path / "node").mkdir()
    with ControlPlane(kube, tmp_path / "cluster") as cluster:
        figures = soak(cluster, tmp_path / "node", PODS, SECONDS, pause=max(2, SECONDS / 60))
    print(figures)
    assert figures["created"] == PODS
    assert set(figures["faults"]) == {"connections", "etcd", "apiserver"}
