"""Lists page by page, from a server that expires tokens, breaks off, or answers nonsense."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml

from agent.app.fleet.objects import NODE, TOPOLOGY
from agent.app.fleet.source import FEW, ApiSource
from agent.errors import KubeError, SettingsError
from agent.kube.caller import ATTEMPTS, Caller
from agent.kube.objects.listing import ListItem

Answer = tuple[int, bytes]


class Server(ThreadingHTTPServer):
    """Answers what the test put into `answers`, in order, and remembers what it was asked."""

    answers: list[Answer]
    asked: list[dict[str, list[str]]]
    tokens: list[str]


class Handler(BaseHTTPRequestHandler):
    """One request."""

    server: Server

    def do_GET(self) -> None:
        self.server.asked.append(parse_qs(urlsplit(self.path).query))
        self.server.tokens.append(str(self.headers["Authorization"]))
        status, body = self.server.answers.pop(0)
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as above
        """Nobody reads it."""


@pytest.fixture
def server() -> Iterator[Server]:
    """On loopback."""
    with Server(("127.0.0.1", 0), Handler) as made:
        made.answers, made.asked, made.tokens = [], [], []
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def caller(port: int, tmp_path: Path, **user: str) -> Caller:
    """Of a kubeconfig."""
    context = {"cluster": "c", "user": "u"}
    body = {
        "apiVersion": "v1", "kind": "Config", "current-context": "x",
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "u", "user": user or {"token": "t"}}], "contexts": [{"name": "x", "context": context}],
    }  # fmt: skip
    (tmp_path / "config").write_text(yaml.safe_dump(body))
    return Caller(tmp_path / "config", page=2)


def page(*names: str, after: str = "", left: int | None = None) -> Answer:
    """A page of a list."""
    metadata: dict[str, Any] = {"continue": after} | ({} if left is None else {"remainingItemCount": left})
    items = [{"metadata": {"name": name}} for name in names]
    return 200, json.dumps({"kind": "NodeList", "metadata": metadata, "items": items}).encode()


GONE = (410, json.dumps({"kind": "Status", "message": "the continue parameter is too old"}).encode())


def name(item: ListItem) -> str:
    """Of an object."""
    found: str = json.loads(item.raw)["metadata"]["name"]
    return found


def test_pages_follow_each_other(server: Server, tmp_path: Path) -> None:
    """Each page asks with the token of the last; how many are left is told."""
    server.answers = [page("a", "b", after="1", left=1), page("c")]
    assert list(caller(server.server_port, tmp_path).pages("/api/v1/nodes", name)) == [(["a", "b"], 1), (["c"], 0)]
    assert server.asked == [{"limit": ["2"]}, {"limit": ["2"], "continue": ["1"]}]


def test_a_token_that_expired_begins_the_list_anew(server: Server, tmp_path: Path) -> None:
    """After 410 everything is told again; a server that expires all of them is told as it is."""
    server.answers = [page("a", "b", after="1"), GONE, page("a", "b", after="2"), page("c")]
    found = [each for names, _ in caller(server.server_port, tmp_path).pages("/api/v1/nodes", name) for each in names]
    assert found == ["a", "b", "a", "b", "c"]
    server.answers = [page("a", after="1"), GONE] * ATTEMPTS
    with pytest.raises(KubeError, match=r"410 .*the continue parameter is too old"):
        list(caller(server.server_port, tmp_path).pages("/api/v1/nodes", name))


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ((200, b'{"items": [{"metadata": {"name": "a"}}, {'), "the list ended in the middle"),
        ((200, b"<html>"), "no list"), ((200, b'{"items": [1]}'), "no object"),
        ((503, b"busy"), "503 GET /api/v1/nodes: busy"), ((302, b""), "302"),
    ],
)  # fmt: skip
def test_what_is_no_whole_list_is_an_error(server: Server, tmp_path: Path, answer: Answer, told: str) -> None:
    """A part of a list never counts as all of it."""
    server.answers = [answer]
    with pytest.raises(KubeError, match=told):
        list(caller(server.server_port, tmp_path).pages("/api/v1/nodes", name))


def test_a_server_that_says_nothing_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asked learns after a time of silence how long that was, and nothing of the client's own words."""
    monkeypatch.setattr("agent.kube.caller.WITHIN", (2.0, 1.0))
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        asked = caller(deaf.getsockname()[1], tmp_path)
        with pytest.raises(KubeError, match=r"^API server: GET /x: nothing came for 1 s$"):
            list(asked.pages("/x", name))
    with pytest.raises(KubeError, match=r"^API server: GET /x: no answer: [^()]*refused$"):
        list(asked.pages("/x", name))


def test_a_server_that_is_away_is_told(server: Server, tmp_path: Path) -> None:
    """One sentence, with the path that was asked for."""
    asking = caller(server.server_port, tmp_path)
    server.server_close()
    with pytest.raises(KubeError, match="GET /api/v1/nodes: no answer"):
        list(asking.pages("/api/v1/nodes", name))


@pytest.mark.parametrize("text", ["", "a: [", "apiVersion: v1\nkind: Config\n", "3", "clusters: 7\ncontexts: x\n"])
def test_a_kubeconfig_that_is_none_is_told(text: str, tmp_path: Path) -> None:
    """Whatever stands in the file."""
    (tmp_path / "config").write_text(text)
    with pytest.raises(SettingsError, match="--kubeconfig: no cluster can be asked"):
        Caller(tmp_path / "config")


@pytest.mark.parametrize(("count", "requests"), [(3, 3), (FEW, FEW), (FEW + 1, 1)])
def test_the_pods_of_many_nodes_are_one_list(count: int, requests: int, server: Server, tmp_path: Path) -> None:
    """A few nodes are asked one by one; of all pods only those on the nodes in question are told."""
    names = [f"n{number}" for number in range(count)]
    pods = [{"metadata": {"name": f"p-{each}"}, "spec": {"nodeName": each}} for each in ("n0", "elsewhere")]
    every = (200, json.dumps({"items": pods}).encode())
    one = (200, json.dumps({"items": pods[:1]}).encode())
    none = (200, b'{"items": []}')
    server.answers = [every] if requests == 1 else [one, *[none] * (count - 1)]
    told: list[Any] = []
    ApiSource(caller(server.server_port, tmp_path)).pods_of(names, told.append)
    assert [each["metadata"]["name"] for each in told] == ["p-n0"]
    selectors = [each.get("fieldSelector") for each in server.asked]
    assert selectors == ([None] if requests == 1 else [[f"spec.nodeName={each}"] for each in names])


@pytest.mark.parametrize(("kind", "status", "told"), [(TOPOLOGY, 404, 1), (TOPOLOGY, 500, 0), (NODE, 404, 0)])
def test_a_missing_crd_is_told_where_topologies_are_not_found_and_nowhere_else(
    kind: str, status: int, told: int, server: Server, tmp_path: Path
) -> None:
    """Nodes are no CRD: who asks a server that has none is not sent to install one."""
    server.answers = [(status, b'{"kind": "Status", "message": "no such path"}')]
    with pytest.raises(KubeError, match="no such path") as raised:
        ApiSource(caller(server.server_port, tmp_path)).load({kind: lambda _: None})
    assert str(raised.value).count("noderesourcetopologies.topology.node.k8s.io is not installed") == told


def test_a_token_files_newline_is_no_part_of_the_token(server: Server, tmp_path: Path) -> None:
    """Kubectl takes such a file, and every editor writes it."""
    (tmp_path / "token").write_text("secret\n")
    server.answers = [(200, b'{"items": []}')]
    list(caller(server.server_port, tmp_path, tokenFile=str(tmp_path / "token")).pages("/x", name))
    assert server.tokens == ["Bearer secret"]


@pytest.mark.parametrize("token", ["secret\nline", "secret\0", "secret\x7f", "sécret", "secret" * 20_000])
def test_a_token_that_no_header_carries_is_told_without_it(server: Server, tmp_path: Path, token: str) -> None:
    """One sentence in place of a traceback with the credentials in it."""
    with pytest.raises(KubeError, match=r"the token .* is not one line of ASCII letters") as caught:
        list(caller(server.server_port, tmp_path, token=token).pages("/x", name))
    assert "cret" not in str(caught.value)
    assert server.asked == []
