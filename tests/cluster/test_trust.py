"""The API server's certificate is checked by authority and by name, as a pod in a real cluster does."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.errors import KubeError
from agent.kube.access import ApiAccess
from agent.kube.client import KubeClient
from tests.cluster.control_plane import ADMIN, ControlPlane

pytestmark = pytest.mark.cluster


def _version(cluster: ControlPlane, folder: Path, host: str) -> str:
    token = folder / "token"
    token.write_text(ADMIN)
    access = ApiAccess(f"https://{host}:{cluster.port}", cluster.ca, token)
    client = KubeClient(access, "n1")
    try:
        return str(client.get("/version")["gitVersion"])
    finally:
        client.close()


def test_a_server_whose_certificate_names_it_is_asked(cluster: ControlPlane, tmp_path: Path) -> None:
    """With the check of names on, which is the default in a cluster, requests get through."""
    assert _version(cluster, tmp_path, "127.0.0.1").startswith("v1.")


def test_a_server_of_another_name_gets_no_token(cluster: ControlPlane, tmp_path: Path) -> None:
    """The same server under a name that its certificate does not have (127.1 leads to 127.0.0.1) is not asked."""
    with pytest.raises(KubeError, match=r"(?i)certificate"):
        _version(cluster, tmp_path, "127.1")
