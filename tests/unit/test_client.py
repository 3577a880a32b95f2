"""The agent's own writes as the API server sees them: which object, for which pod, and how much it wants back."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from agent.kube.access import ApiAccess
from agent.kube.client import KubeClient


class Server(ThreadingHTTPServer):
    """Takes everything, and remembers the last request."""

    asked: tuple[str, str]
    accepts: str
    body: dict[str, Any]


class Handler(BaseHTTPRequestHandler):
    """One request."""

    server: Server

    def do_POST(self) -> None:
        self.server.asked = self.command, self.path
        self.server.accepts = str(self.headers["Accept"])
        self.server.body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    do_PATCH = do_DELETE = do_POST  # noqa: N815 - http.server's names

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name
        """Nobody reads it."""


@pytest.fixture
def server() -> Iterator[Server]:
    """On loopback."""
    with Server(("127.0.0.1", 0), Handler) as made:
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        yield made
        made.shutdown()
        thread.join()


@pytest.fixture
def client(server: Server, tmp_path: Path) -> Iterator[KubeClient]:
    """An agent's, of that server."""
    (tmp_path / "token").write_text("x", "utf-8")
    made = KubeClient(ApiAccess(f"http://127.0.0.1:{server.server_port}", tmp_path / "ca", tmp_path / "token"), "n1")
    yield made
    made.close()


def test_an_eviction_is_one_of_that_pod_alone(client: KubeClient, server: Server) -> None:
    """The server refuses any other kind there, and without the uid the next pod of a StatefulSet would be evicted."""
    client.evict("shop", "db-0", "u")
    assert server.asked == ("POST", "/api/v1/namespaces/shop/pods/db-0/eviction")
    assert server.body == {
        "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "db-0", "namespace": "shop"},
        "deleteOptions": {"preconditions": {"uid": "u"}},
    }  # fmt: skip


WRITES: dict[str, Callable[[KubeClient], object]] = {
    "patch": lambda client: client.patch_pod("n", "p", "u", {}),
    "delete": lambda client: client.delete_pod("n", "p", "u"),
    "event": lambda client: client.create_event("n", {"kind": "Event"}),
}


@pytest.mark.parametrize("name", WRITES)
def test_of_what_is_written_the_metadata_alone_is_asked_back(name: str, client: KubeClient, server: Server) -> None:
    """A server that sends whole objects to the agents of thousands of nodes sends twice the bytes for nothing."""
    WRITES[name](client)
    assert server.accepts.startswith("application/json;as=PartialObjectMetadata;")
