"""The node page's server: what it answers, to whom, and that nobody can hold it up."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import logging
import math
import re
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPResponse
from typing import Any

import pytest

from agent.errors import HostError
from agent.observe.listener import MOST
from agent.observe.page import server as serving
from agent.observe.page.host import allowed, foreign
from agent.observe.page.server import MOST_STREAMS, PageServer
from agent.observe.share import CpuShare
from tests.patience import PATIENCE


@dataclass
class Shown:
    """A source of which tests decide what it shows."""

    value: int = 1
    looks: int = 0
    made: list[str] = field(default_factory=list)

    def look(self) -> int:
        self.looks += 1
        return self.value

    def node(self, seen: int) -> dict[str, Any]:
        self.made.append(f"node {seen}")
        return {"node": seen}

    def pods(self, seen: int) -> list[dict[str, Any]]:
        return [{"uid": "a", "seen": seen}]

    def explanation(self, seen: int, uid: str) -> dict[str, Any] | None:
        return {"uid": uid, "seen": seen} if uid == "a-1.b" else None

    def picture(self, seen: int, *, full: bool, bare: bool) -> str:
        return f"<svg>{'x' * 4_000_000 if seen == 99 else ''}{full} {bare}</svg>"


@pytest.fixture
def shown() -> Shown:
    """What is shown."""
    return Shown()


@pytest.fixture
def page(shown: Shown) -> Iterator[PageServer]:
    """A server of it, on a free port of loopback."""
    server = PageServer("127.0.0.1", 0, shown, ("node-1.example",))
    yield server
    server.close()


def port_of(page: PageServer) -> int:
    """Where it listens."""
    return int(page.address.rstrip("/").rpartition(":")[2])


def ask(page: PageServer, path: str, method: str = "GET", **headers: str) -> tuple[HTTPResponse, bytes]:
    """One request."""
    connection = HTTPConnection("127.0.0.1", port_of(page), timeout=PATIENCE)
    with contextlib.closing(connection):
        connection.request(method, path, headers={key.replace("_", "-"): value for key, value in headers.items()})
        answer = connection.getresponse()
        return answer, answer.read()


def follow(page: PageServer) -> socket.socket:
    """An event stream, its first event not read yet."""
    stream = socket.create_connection(("127.0.0.1", port_of(page)), timeout=PATIENCE)
    stream.sendall(b"GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
    return stream


def read_until(stream: socket.socket, text: bytes) -> bytes:
    """What comes, up to and with a text; all of it where the stream ends before."""
    found = b""
    while text not in found:
        more = stream.recv(65536)
        if not more:
            break
        found += more
    return found


def test_values_are_json_and_carry_a_revision(page: PageServer) -> None:
    """Node, pods and explanations; an unknown pod and an unknown path are 404 with a sentence."""
    for path, key in (("/api/node", "node"), ("/api/pods", "pods"), ("/api/pods/a-1.b/explanation", "uid")):
        answer, body = ask(page, path)
        assert answer.status == 200
        assert answer.headers["Content-Type"] == "application/json"
        assert key in json.loads(body)
        assert json.loads(body)["revision"]
    for path in ("/api/pods/other/explanation", "/api/pods/../explanation", "/nothing", "/api", "/page.js"):
        answer, body = ask(page, path)
        assert answer.status == 404
        assert json.loads(body)["error"]


def test_the_picture_is_asked_for_by_its_options(page: PageServer) -> None:
    """Full and bare are 1 or nothing."""
    assert ask(page, "/api/picture.svg?full=1&bare=0")[1] == b"<svg>True False</svg>"
    assert ask(page, "/api/picture.svg?bare=1")[1] == b"<svg>False True</svg>"


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "PROPFIND"])
def test_no_method_writes(page: PageServer, method: str) -> None:
    """Everything but GET and HEAD is 405, on every path."""
    for path in ("/", "/api/node", "/api/events"):
        answer, _ = ask(page, path, method)
        assert answer.status == 405
        assert answer.headers["Allow"] == "GET, HEAD"


def test_too_many_headers_are_told_as_such(page: PageServer) -> None:
    """A proxy in front that adds a hundred is to be found by that word, and not by a method that is refused."""
    with socket.create_connection(("127.0.0.1", port_of(page)), timeout=PATIENCE) as stream:
        stream.sendall(b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 150 + b"\r\n")
        assert b" 431 " in read_until(stream, b"\r\n").partition(b"\r\n")[0]


def test_head_is_get_without_a_body(page: PageServer) -> None:
    """The same length is told."""
    for path in ("/", "/api/node", "/api/picture.svg"):
        whole, body = ask(page, path)
        head, nothing = ask(page, path, "HEAD")
        assert (head.status, nothing) == (200, b"")
        assert head.headers["Content-Length"] == whole.headers["Content-Length"] == str(len(body))
    assert ask(page, "/api/events", "HEAD")[0].status == 200


@pytest.mark.parametrize(
    ("host", "local", "answered"),
    [
        ("localhost", "127.0.0.1", True),
        ("LOCALHOST:9178", "127.0.0.1", True),
        ("localhost.", "127.0.0.1", False),
        ("page.localhost:80", "127.0.0.1", True),
        ("127.0.0.1:9178", "127.0.0.1", True),
        ("127.9.9.9", "127.0.0.1", True),
        ("[::1]:9178", "::1", True),
        ("[::1]", "127.0.0.1", True),
        ("node-1.example:9178", "10.0.0.1", True),
        ("10.0.0.1:9178", "10.0.0.1", True),
        ("10.0.0.1", "::ffff:10.0.0.1", True),
        ("[fe80::1]:1", "fe80::1%eth0", True),
        ("10.0.0.2", "10.0.0.1", False),
        ("evil.example", "127.0.0.1", False),
        ("localhost.evil.example", "127.0.0.1", False),
        ("evil.example:localhost", "127.0.0.1", False),
        ("localhost@evil.example", "127.0.0.1", False),
        ("127.0.0.1.evil.example", "127.0.0.1", False),
        ("2130706433", "127.0.0.1", False),
        ("[::1", "::1", False),
        ("", "127.0.0.1", False),
    ],
)
def test_only_names_that_nobody_else_can_point_here_are_answered(host: str, local: str, *, answered: bool) -> None:
    """S20: DNS rebinding gives a page of the internet our address, but not our name."""
    assert allowed(host, local, ("node-1.example",)) is answered


def test_other_names_and_other_sites_get_nothing(page: PageServer) -> None:
    """A foreign Host is 421 on every path; a page of another site is 403, a link from it is not."""
    for path in ("/", "/api/pods", "/api/events"):
        answer, body = ask(page, path, Host="evil.example")
        assert answer.status == 421
        assert b"DNS rebinding" in body
        assert ask(page, path, Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="no-cors")[0].status == 403
    assert ask(page, "/", Host="node-1.example:1")[0].status == 200
    assert ask(page, "/", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate")[0].status == 200
    assert foreign("same-site", "cors")
    assert not foreign("same-origin", "cors")
    assert not foreign("", "")


def test_the_page_allows_itself_its_own_style_and_script_alone(page: PageServer) -> None:
    """The policy's hashes are those of what is inlined; no inline attribute, address or file of anywhere else."""
    answer, body = ask(page, "/")
    policy, text = answer.headers["Content-Security-Policy"], body.decode()
    for tag in ("style", "script"):
        (inside,) = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert not re.search(r"""<[^>]+\s(?:style|on\w+)\s*=""", re.sub(r"(?s)<script>.*</script>", "", text))
    addresses = set(re.findall(r"(?:https?:)?//[^\s\"'<>)]+\.[^\s\"'<>)]+", re.sub(r"(?s)/\*.*?\*/", "", text)))
    assert addresses <= {"http://www.w3.org/2000/svg"}
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["X-Frame-Options"] == "DENY"


def test_a_change_is_told_and_made_once_for_all(
    page: PageServer, shown: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers get the new revision without asking; the values are made once per revision."""
    monkeypatch.setattr(serving, "BEAT", math.inf)
    stream = follow(page)
    first = json.loads(read_until(stream, b"}\n\n").rpartition(b"data: ")[2])["revision"]
    assert json.loads(ask(page, "/api/node")[1])["revision"] == first
    ask(page, "/api/node")
    assert shown.made == ["node 1"]
    shown.value = 2
    event = read_until(stream, b"}\n\n")
    assert b"event: state" in event
    assert json.loads(event.rpartition(b"data: ")[2])["revision"] != first
    assert json.loads(ask(page, "/api/node")[1])["node"] == 2
    stream.close()


def test_a_stream_without_news_says_that_it_lives(page: PageServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page takes a missing beat for an agent that is gone."""
    monkeypatch.setattr(serving, "BEAT", 0.3)
    stream = follow(page)
    assert b"event: beat" in read_until(stream, b"event: beat")
    stream.close()


def test_readers_are_bounded(page: PageServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """One stream too many is 503; of idle connections the newest are kept; others are answered."""
    monkeypatch.setattr(serving, "BEAT", math.inf)
    streams = [follow(page) for _ in range(MOST_STREAMS)]
    for stream in streams:
        read_until(stream, b"event: state")
    assert ask(page, "/api/events")[0].status == 503
    idle = [socket.create_connection(("127.0.0.1", port_of(page)), timeout=PATIENCE) for _ in range(2 * MOST)]
    assert ask(page, "/api/node")[0].status == 200
    assert idle[0].recv(1) == b""  # the oldest had to go
    monkeypatch.setattr(serving, "BEAT", 0.0)
    for stream in streams:  # and no stream did
        assert b"event: beat" in read_until(stream, b"event: beat")
    for each in (*streams, *idle):
        each.close()


def test_a_reader_that_takes_nothing_holds_nobody_up(shown: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is dropped after a while; others are answered meanwhile, and no lock is held for it."""
    shown.value = 99  # a picture of four megabytes, more than sockets keep
    with contextlib.closing(PageServer("127.0.0.1", 0, shown)) as page, socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.settimeout(PATIENCE)
        slow.connect(("127.0.0.1", port_of(page)))
        slow.sendall(b"GET /api/picture.svg HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert ask(page, "/api/node")[0].status == 200
        page._server._patience = 1.0  # from now on: who was answered may have taken longer
        found = 0
        with contextlib.suppress(ConnectionResetError):  # the server ended it, as it should
            while more := len(slow.recv(65536)):
                found += more
                if page._server._open:
                    time.sleep(0.1)  # a reader that is this slow has to go; what is under way already comes quickly
        assert found < 4_000_000


def test_closing_ends_open_streams(shown: Shown) -> None:
    """The agent's end waits for no reader: one that never goes by itself is still there, and is told the end."""
    page = PageServer("127.0.0.1", 0, shown)
    stream = follow(page)
    read_until(stream, b"event: state")
    page.close()
    read_until(stream, b"never")
    stream.close()
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(page.address, timeout=2)


def test_a_port_that_is_taken_is_told_with_the_setting() -> None:
    """The sentence names page.port."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(HostError, match=r"page\.port"):
            PageServer("127.0.0.1", other.getsockname()[1], Shown())


class Meter:
    """A clock, and the CPU time that a thread has used, both turned by hand."""

    def __init__(self) -> None:
        self.now, self.used = 0.0, 0.0
        self.share = CpuShare(0.1, 1.0, clock=lambda: self.now, used=lambda: self.used)

    def spend(self, seconds: float) -> None:
        """Use CPU time that is charged."""
        with self.share.charged(), self.share.charged():
            self.used += seconds


def test_the_share_is_paid_back_at_its_rate() -> None:
    """A second of CPU may be used ahead; for each one beyond it readers wait ten; nothing counts twice."""
    meter = Meter()
    meter.spend(1.0)
    assert meter.share.wait() == 0
    meter.spend(0.2)
    assert meter.share.wait() == pytest.approx(2.0)
    meter.now += 2.0
    assert meter.share.wait() == pytest.approx(0.0)
    meter.now += 1000.0
    meter.spend(1.5)
    assert meter.share.wait() == pytest.approx(5.0)


@dataclass
class Dear(Shown):
    """A source whose explanations cost CPU time."""

    meter: Meter = field(default_factory=Meter)

    def explanation(self, seen: int, uid: str) -> dict[str, Any] | None:
        self.made.append(uid)
        self.meter.used += 0.4
        return {"uid": uid}


@pytest.fixture
def dear() -> Dear:
    """A source that costs much."""
    return Dear()


def test_readers_that_ask_in_a_loop_get_a_share_of_the_cpu(dear: Dear, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many explanations as the share allows are made; then each request waits, and 503 says when to come again."""
    monkeypatch.setattr(serving, "WAITS", 0.05)
    with contextlib.closing(PageServer("127.0.0.1", 0, dear, share=dear.meter.share)) as page:
        statuses = [ask(page, f"/api/pods/p-{number}/explanation")[0].status for number in range(20)]
        assert statuses == [200] * 3 + [503] * 17
        assert dear.made == ["p-0", "p-1", "p-2"]
        again = int(ask(page, "/api/pods/p/explanation")[0].headers["Retry-After"])
        assert 2 <= again <= 30, "seconds of the meter; a slow machine spent more of it on the way"
        for path, method in (("/", "GET"), ("/api/node", "GET"), ("/api/events", "GET"), ("/api/events", "HEAD")):
            assert ask(page, path, method)[0].status == 503
        dear.meter.now += 30.0
        assert ask(page, "/api/pods/p-20/explanation")[0].status == 200


def test_a_reader_over_the_share_waits_for_it_a_moment(dear: Dear) -> None:
    """A reader that asks a little too often gets the answer a moment later, and no error."""
    dear.meter.spend(1.1)
    with contextlib.closing(PageServer("127.0.0.1", 0, dear, share=dear.meter.share)) as page:
        turned = threading.Timer(0.2, lambda: setattr(dear.meter, "now", 100.0))
        turned.start()
        assert ask(page, "/api/pods/p/explanation")[0].status == 200
        turned.join()


def test_of_many_readers_one_at_a_time_takes_from_the_share(dear: Dear, monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers that waited when there was some do not all take: what one of them made is charged at once."""
    monkeypatch.setattr(serving, "WAITS", 0.3)
    dear.meter.spend(0.8)
    with contextlib.closing(PageServer("127.0.0.1", 0, dear, share=dear.meter.share)) as page:
        asking = [threading.Thread(target=ask, args=(page, f"/api/pods/p-{each}/explanation")) for each in range(20)]
        for each in asking:
            each.start()
        for each in asking:
            each.join()
        assert len(dear.made) == 1


class Nothing:
    """A source with nothing to show."""

    def look(self) -> int:
        return 1

    def node(self, seen: int) -> dict[str, Any]:
        return {"seen": seen}

    def pods(self, seen: int) -> list[dict[str, Any]]:
        return [{"seen": seen}]

    def explanation(self, seen: int, uid: str) -> dict[str, Any] | None:
        return {"uid": uid, "seen": seen}

    def picture(self, seen: int, *, full: bool, bare: bool) -> str:
        return f"{seen}{full}{bare}"


@pytest.mark.parametrize("path", ["//[", "//[::1", "http://[", "//[x]/"])
def test_a_path_that_is_none_is_400(path: str, caplog: pytest.LogCaptureFixture) -> None:
    """The page says so with a status; the log has no fault of ours (finding 33)."""
    page = PageServer("127.0.0.1", 0, Nothing())
    port = int(page.address.rstrip("/").rpartition(":")[2])
    with (
        caplog.at_level(logging.INFO), contextlib.closing(page),
        socket.create_connection(("127.0.0.1", port), timeout=60) as client,
    ):  # fmt: skip
        client.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        assert client.recv(100).split()[1] in (b"400", b"404")
    assert not [record for record in caplog.records if record.exc_info]
