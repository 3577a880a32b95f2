"""The HTTP server below both of ours: the small one for probes and metrics, and the node page's.

Every client that reaches the port may open connections and send nothing, so nothing here grows with their number:

    connections   at most so many; a further one takes the place of the oldest of the address that has most of them
    threads       as many at most; they are kept, so that a process limit that is reached later costs no answer
    time          a connection is closed so many seconds after it was accepted, however slowly it sends or reads
    bytes         a request's head ends after 16 KiB

A prober or scraper has one connection and sends its request at once: it is answered however many are held.
"""

from __future__ import annotations

import contextlib
import queue
import socket
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from io import BufferedIOBase
from socketserver import TCPServer
from typing import Any

from agent.errors import HostError
from agent.observe.logs import LOG

MOST = 32
"""Connections at once."""
PATIENCE = 10.0
"""Seconds that a connection may last."""
LARGEST_HEAD = 16 * 1024
"""Bytes of a request's line and headers."""


@dataclass
class _Connection:
    source: str
    since: float
    lasting: bool = False


class HttpHandler(BaseHTTPRequestHandler):
    """A request whose head is bounded; no line in the log for each, as probes come every few seconds."""

    server: HttpListener
    timeout = PATIENCE
    server_version, sys_version = "numalign", ""

    def setup(self) -> None:
        """See StreamRequestHandler."""
        super().setup()
        self.rfile = _Head(self.rfile)  # type: ignore[assignment]  # all that http.server reads with

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name
        """Nothing."""


class _Head:
    """The lines of a request's head; raises OSError, which ends the connection, where they are too long."""

    def __init__(self, stream: BufferedIOBase) -> None:
        self._stream, self._left = stream, LARGEST_HEAD

    def readline(self, size: int) -> bytes:
        line = self._stream.readline(min(size, self._left + 1))
        self._left -= len(line)
        if self._left < 0:
            raise ConnectionError("the head of the request is too large")
        return line

    def close(self) -> None:
        self._stream.close()


class HttpListener(HTTPServer):
    """Listens on an IPv4 or IPv6 address.

    Args:
        address: host and port; port 0 takes a free one.
        handler: of requests.
        failed: for the log, when a fault of ours ends a request.
        patience: seconds that a connection may last.

    Raises:
        OSError: it cannot be listened on.
    """

    request_queue_size = 128

    def __init__(
        self, address: tuple[str, int], handler: type[HttpHandler], failed: str, *, patience: float = PATIENCE
    ) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self._failed, self._patience = failed, patience
        self._lock = threading.Lock()
        self._open: dict[Any, _Connection] = {}
        self._todo: queue.SimpleQueue[tuple[Any, Any] | None] = queue.SimpleQueue()
        self._workers = 0
        super().__init__(address, handler)
        self._employ()

    def begin(self, name: str) -> None:
        """Serve on a thread of its own, of this name.

        Raises:
            HostError: no thread can be had.
        """
        self._thread = threading.Thread(target=self.serve_forever, args=(0.2,), name=name, daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:  # the limit of processes is reached
            self.server_close()
            raise HostError(self.where, f"cannot be served: {error}") from None

    def end(self) -> None:
        """Stop listening; what is open ends, streams too."""
        self.shutdown()
        self.server_close()
        self._thread.join()

    @property
    def where(self) -> str:
        """Host and port, as URLs have them."""
        host, port = self.server_address[:2]
        return f"[{host!s}]:{port}" if ":" in str(host) else f"{host!s}:{port}"

    @property
    def crowded(self) -> bool:
        """True if so many connections are open that a held one may soon be dropped."""
        with self._lock:
            return len(self._open) > MOST * 3 // 4

    def server_bind(self) -> None:
        """HTTPServer's own asks DNS for the name of its address, which may not answer yet."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - as socketserver has it
        """A client that went away is no event; anything else goes to the log, not between its lines."""
        del request, client_address
        if not isinstance(sys.exception(), OSError):
            LOG.exception(self._failed)

    def lasting(self, request: Any) -> None:  # noqa: ANN401 - as socketserver has it
        """Let a connection last, for a stream. The caller bounds the number of streams, below MOST."""
        with self._lock:
            if request in self._open:
                self._open[request].lasting = True

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - as socketserver has it
        """See BaseServer: hand the connection to a worker."""
        with self._lock:
            if len(self._open) >= MOST:
                self._drop(self._oldest_of_the_busiest())
            self._open[request] = _Connection(str(client_address[0]), time.monotonic())
        self._todo.put((request, client_address))
        self._employ()

    def service_actions(self) -> None:
        """Called after every connection and several times a second: end those that last too long."""
        with self._lock:
            late = time.monotonic() - self._patience
            for request in [each for each, its in self._open.items() if its.since < late and not its.lasting]:
                self._drop(request)

    def server_close(self) -> None:
        """Stop listening; what is open ends, streams too."""
        super().server_close()
        with self._lock:
            for request in list(self._open):
                self._drop(request)
            for _ in range(self._workers):
                self._todo.put(None)

    def _employ(self) -> None:
        """Start another worker if there is work for it; without a thread the existing workers share the load."""
        with self._lock:
            wanted = self._workers < min(MOST, max(1, len(self._open)))
            self._workers += wanted
        if not wanted:
            return
        try:
            threading.Thread(target=self._work, name="http answer", daemon=True).start()
        except RuntimeError as error:
            with self._lock:
                self._workers -= 1
            LOG.warning("%s: %s; the threads that are there go on", self._failed, error)

    def _work(self) -> None:
        while (job := self._todo.get()) is not None:
            request, client_address = job
            try:
                self.finish_request(request, client_address)
            except Exception:  # noqa: BLE001 - one request's fault is logged, and ends no other request
                self.handle_error(request, client_address)
            with self._lock:  # closed only after it is out of `_open`, so that _drop never meets another's descriptor
                self._open.pop(request, None)
            self.shutdown_request(request)

    def _oldest_of_the_busiest(self) -> Any:  # noqa: ANN401 - as socketserver has it
        per_source = Counter(its.source for its in self._open.values() if not its.lasting)
        most = max(per_source.values(), default=0)
        busiest = (each for each, its in self._open.items() if not its.lasting and per_source[its.source] == most)
        return next(busiest)

    def _drop(self, request: Any) -> None:  # noqa: ANN401 - as socketserver has it
        """Shut a connection down: a thread that reads or writes it returns at once."""
        del self._open[request]
        with contextlib.suppress(OSError):  # it was closed by the other side meanwhile
            request.shutdown(socket.SHUT_RDWR)
