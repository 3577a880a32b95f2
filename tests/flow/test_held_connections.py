"""Finding 5: whoever reaches the metrics port may hold any number of connections, and costs the agent little."""

from __future__ import annotations

import contextlib
import http.client
import resource
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from agent.app.service.service import NodeService
from agent.app.standalone.build import StandaloneService
from agent.observe.health import Server
from agent.observe.metrics import MetricValues, Shown
from tests.flow.program import Program, running
from tests.flow.serving import serving
from tests.patience import until

HELD = 3000
MOST_THREADS = 80
LARGEST_KIB = 128 * 1024


@contextlib.contextmanager
def held(program: Program, count: int) -> Iterator[list[socket.socket]]:
    """Connections that said one byte each; those that were closed on us stay in the list."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, count + 1000)), hard))
    connections = []
    try:
        for _ in range(count):
            connections.append(socket.create_connection(("127.0.0.1", program.port), timeout=60))
            with contextlib.suppress(OSError):  # the server may have closed it
                connections[-1].sendall(b"G")
        yield connections
    finally:
        for each in connections:
            each.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_probes_are_answered_beside_3000_held_connections(tmp_path: Path) -> None:
    """The real process answers probes and scrapes meanwhile; its threads stay few, its peak memory below 128 MiB."""
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < HELD + 1000:
        pytest.skip("this process may not open so many connections")
    with running(tmp_path) as program, held(program, HELD) as connections:
        until(lambda: program.get("/readyz")[0] == 200, "the start")
        for _ in range(3):
            for page in ("/healthz", "/readyz", "/metrics"):
                assert program.get(page)[0] == 200
            for each in connections[::10]:  # one byte at a time keeps nobody's place
                with contextlib.suppress(OSError):  # the server may have closed it
                    each.sendall(b"E")
        assert program.figure("Threads") <= MOST_THREADS
        assert program.figure("VmHWM") <= LARGEST_KIB
        assert program.end() == 0


def told(connection: socket.socket) -> bytes:
    """All that comes until the other side closes."""
    found = b""
    with contextlib.suppress(OSError):  # the server may have closed it
        while more := connection.recv(65536):
            found += more
    return found


def test_a_request_has_a_deadline_as_a_whole() -> None:
    """A byte now and then does not keep a connection open."""
    server = Server("127.0.0.1:0", {"/x": lambda _accept: (200, "text/plain", b"hello")}, patience=0.5)
    host, _, port = server.address.rpartition(":")
    with contextlib.closing(server), socket.create_connection((host, int(port)), timeout=60) as client:
        over = threading.Event()

        def drip() -> None:
            while not over.wait(0.1):
                with contextlib.suppress(OSError):  # the server may have closed it
                    client.sendall(b"G")

        thread = threading.Thread(target=drip)
        thread.start()
        assert told(client) == b""
        over.set()
        thread.join()


def test_a_request_head_is_bounded() -> None:
    """Headers without an end are not collected: the connection ends, and others are answered."""
    server = Server("127.0.0.1:0", {"/x": lambda _accept: (200, "text/plain", b"hello")})
    host, _, port = server.address.rpartition(":")
    with contextlib.closing(server):
        with socket.create_connection((host, int(port)), timeout=60) as client:
            with contextlib.suppress(OSError):  # the server may have closed it
                client.sendall(b"GET /x HTTP/1.0\r\n")
                for number in range(64):
                    client.sendall(b"x%d: %s\r\n" % (number, b"y" * 60_000))
            assert b"hello" not in told(client)
        with socket.create_connection((host, int(port)), timeout=60) as client:
            client.sendall(b"GET /x HTTP/1.0\r\n\r\n")
            assert told(client).endswith(b"hello")


def test_no_thread_left_to_start_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the process limit reached, the threads that are there answer in turns."""
    server = Server("127.0.0.1:0", {"/x": lambda _accept: (200, "text/plain", b"hello")})
    host, _, port = server.address.rpartition(":")

    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with contextlib.closing(server), contextlib.ExitStack() as stack:
        until(lambda: any(each.name == "http answer" for each in threading.enumerate()), "a thread that answers")
        monkeypatch.setattr(threading.Thread, "start", refuse)
        clients = [stack.enter_context(socket.create_connection((host, int(port)), timeout=60)) for _ in range(5)]
        for client in clients:
            client.sendall(b"GET /x HTTP/1.0\r\n\r\n")
        assert all(told(client).endswith(b"hello") for client in clients)
        monkeypatch.undo()


def test_a_scrape_loop_costs_one_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight clients ask, GET and HEAD in turn: all are answered alike, and the gauges were read once."""
    looks: list[MetricValues] = []
    real: Callable[[StandaloneService], MetricValues] = NodeService.values

    def counted(node: StandaloneService) -> MetricValues:
        looks.append(real(node))
        return looks[-1]

    monkeypatch.setattr("agent.observe.metrics.FRESH", 3600.0)
    monkeypatch.setattr("agent.observe.metrics.SHARE", 10**9)
    monkeypatch.setattr(NodeService, "values", counted)
    with serving(tmp_path) as node:
        address = node.node.address

        def ask(number: int) -> tuple[int, int, int]:
            connection = http.client.HTTPConnection(address, timeout=30)
            connection.request("GET" if number % 2 else "HEAD", "/metrics")
            answer = connection.getresponse()
            text = answer.read()
            connection.close()
            return answer.status, int(answer.headers["Content-Length"]), len(text)

        with ThreadPoolExecutor(8) as clients:
            answers = list(clients.map(ask, range(200)))
    length = answers[0][1]
    assert set(answers) == {(200, length, length), (200, length, 0)}
    assert len(looks) == 1


def test_what_is_shown_is_a_second_old_at_most() -> None:
    """Reused twenty times as long as it took to make, and never longer than a second; made at once after a fault."""
    now, made, takes = [100.0], list[int](), [0.01]

    def make(_kind: str) -> bytes:
        made.append(len(made))
        now[0] += takes[0]
        if len(made) == 3:
            raise ZeroDivisionError
        return str(len(made)).encode()

    shown = Shown(make, lambda: now[0])
    assert [shown()[1], shown()[1]] == [b"1", b"1"]
    now[0] += 0.19
    assert shown()[1] == b"1"
    now[0] += 0.02
    takes[0] = 0.5
    assert shown()[1] == b"2"
    now[0] += 0.99
    assert shown()[1] == b"2"
    now[0] += 0.02
    with pytest.raises(ZeroDivisionError):
        shown()
    assert shown()[1] == b"4"
