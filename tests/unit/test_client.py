"""The agent's own writes as the API server sees them: which object, for which pod, and how much it wants back."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from agent.errors import KubeError
from agent.kube.access import LONGEST_TOKEN, ApiAccess
from agent.kube.client import KubeClient
from agent.kube.configz import kubelet_configuration
from agent.node.fault_isolation import sentence


class Server(ThreadingHTTPServer):
    """Takes everything, and remembers the last request."""

    asked: tuple[str, str]
    accepts: str
    authorization: str
    body: dict[str, Any]
    takes = 0.0


class Handler(BaseHTTPRequestHandler):
    """One request."""

    server: Server

    def do_POST(self) -> None:
        self.server.asked = self.command, self.path
        self.server.accepts = str(self.headers["Accept"])
        self.server.authorization = str(self.headers["Authorization"])
        self.server.body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        time.sleep(self.server.takes)
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


PROXIES = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")


def test_no_proxy_of_the_environment_comes_between(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A platform may put a proxy into every pod: writes go where the watch goes, straight to the API server."""
    for name in PROXIES:
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".netrc").write_text("default login somebody password else\n", "utf-8")
    (tmp_path / "token").write_text("x", "utf-8")
    made = KubeClient(ApiAccess(f"http://127.0.0.1:{server.server_port}", tmp_path / "ca", tmp_path / "token"), "n1")
    made.create_event("n", {"kind": "Event"})
    made.close()
    assert server.asked[0] == "POST"
    assert server.authorization == "Bearer x"


def test_a_slow_answer_is_waited_for_as_long_as_silence_may_last(client: KubeClient, server: Server) -> None:
    """The time to connect bounds the connection alone: a loaded API server takes longer to answer."""
    server.takes = 1.5
    client.call("POST", "/slow", {}, within=(1.0, 60.0))
    assert server.asked == ("POST", "/slow")


def test_why_there_was_no_answer_stands_in_the_shortened_sentence(tmp_path: Path) -> None:
    """However long the names in the path are: the log line of a failed request ends with its cause."""
    made = KubeClient(ApiAccess("http://127.0.0.1:1", tmp_path / "ca", tmp_path / "token"), "n1")
    with pytest.raises(KubeError, match=r"no answer: NewConnectionError: Failed .*refused$") as caught:
        made.patch_pod("n" * 63, "p" * 253, "u", {})
    made.close()
    assert sentence(caught.value).endswith("Connection refused")
    assert len(sentence(caught.value)) <= 200


@pytest.mark.parametrize(
    ("written", "sent"),
    [
        (b"next\n", "next"), (b" next\r\n\n", "next"), (b"next\nline", "good"), (b"", "good"), (b"\n", "good"),
        (b"ne\0xt", "good"), (b"n\xffext", "good"), (b"x" * (LONGEST_TOKEN + 1), "good"),
    ],
)  # fmt: skip
def test_whatever_the_token_file_holds_no_request_and_no_log_line_tells_it(
    client: KubeClient, server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture, written: bytes, sent: str
) -> None:
    """The mounted token's newline is left out; what is no token leaves the one before in use."""
    (tmp_path / "token").write_bytes(b"good")
    client.create_event("n", {"kind": "Event"})
    (tmp_path / "token").unlink()
    (tmp_path / "token").write_bytes(written)
    client.create_event("n", {"kind": "Event"})
    assert server.authorization == f"Bearer {sent}"
    (tmp_path / "ca").write_text("none")
    with caplog.at_level("DEBUG"):
        kubelet_configuration(ApiAccess("https://127.0.0.1:1", tmp_path / "ca", tmp_path / "token"), "127.0.0.1", 1)
    assert "next" not in caplog.text
