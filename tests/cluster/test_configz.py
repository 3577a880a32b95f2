"""Asking the kubelet for its configuration: over TLS with a certificate of the cluster's, or not at all."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from agent.core.cgroups.writers import kubelet_writes
from agent.kube import configz
from agent.kube.access import ApiAccess
from agent.kube.configz import kubelet_configuration
from tests.cluster.control_plane import ControlPlane, free_port
from tests.patience import PATIENCE

pytestmark = pytest.mark.cluster
STATIC = {"kubeletconfig": {"cpuManagerPolicy": "static", "memoryManagerPolicy": "None"}}


class Kubelet:
    """A server with the certificate that the control plane made for itself; answers what the test wants."""

    def __init__(self, certs: Path) -> None:
        self.status, self.body = 200, json.dumps(STATIC).encode()
        self.seen: list[tuple[str, str]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.seen.append((self.path, self.headers.get("Authorization", "")))
                self.send_response(outer.status)
                self.send_header("Content-Length", str(len(outer.body)))
                self.end_headers()
                self.wfile.write(outer.body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certs / "apiserver.crt", certs / "apiserver.key")
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.port = int(self._server.server_address[1])
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        """End it."""
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def kubelet(cluster: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kubelet]:
    """A running one."""
    server = Kubelet(cluster.folder / "certs")
    monkeypatch.setattr(configz, "SECONDS", PATIENCE)
    yield server
    server.stop()


@pytest.fixture
def access(cluster: ControlPlane, tmp_path: Path) -> ApiAccess:
    """A token, and the cluster's CA."""
    token = tmp_path / "token"
    token.write_text("t0ken")
    return ApiAccess(cluster.server, cluster.ca, token, check_name=False)


def test_s10_static_policies_are_found_through_configz_alone(kubelet: Kubelet, access: ApiAccess) -> None:
    """S10, S19: one GET of /configz with our token; what it says names the other writer."""
    found = kubelet_configuration(access, "127.0.0.1", kubelet.port)
    assert found == STATIC
    assert "CPU" in kubelet_writes(found)
    assert kubelet.seen == [("/configz", "Bearer t0ken")]


def test_no_token_for_who_cannot_prove_who_it_is(kubelet: Kubelet, access: ApiAccess, tmp_path: Path) -> None:
    """A certificate that the cluster's CA did not sign: nothing is sent, nothing is known."""
    other = tmp_path / "ca.crt"
    other.write_text(Path(ssl.get_default_verify_paths().openssl_cafile or access.ca).read_text())
    if other.read_text() == access.ca.read_text():
        pytest.skip("this machine has no other CA file to distrust the server with")
    stranger = ApiAccess(access.server, other, access.token_file, check_name=False)
    assert kubelet_configuration(stranger, "127.0.0.1", kubelet.port) is None
    assert kubelet.seen == []


@pytest.mark.parametrize(
    ("status", "body"), [(403, b"{}"), (200, b"nonsense"), (200, b"[1]"), (302, b""), (200, b"")]
)
def test_any_other_answer_is_no_answer(kubelet: Kubelet, access: ApiAccess, status: int, body: bytes) -> None:
    """Forbidden, redirected, no JSON, no object: None."""
    kubelet.status, kubelet.body = status, body
    assert kubelet_configuration(access, "127.0.0.1", kubelet.port) is None


def test_a_kubelet_that_is_away_is_no_answer(access: ApiAccess) -> None:
    """Nobody listens: None."""
    assert kubelet_configuration(access, "127.0.0.1", free_port()) is None
