"""The HTTP server of the node page, in threads of its own.

    /                               the page
    /api/node                       the machine, its NUMA nodes, settings, what goes wrong
    /api/pods                       every pod that the agent knows
    /api/pods/<uid>/explanation     why it got what it got
    /api/picture.svg                the drawing; ?full=1 folds nothing, ?bare=1 leaves the style to the page
    /api/events                     server-sent events: "state" with the revision that is shown now, "beat" meanwhile

GET and HEAD only: nothing can be changed here. Readers are bounded in number and in patience; what a slow one waits
for is its own thread. All of them together have a share of one CPU (`agent.observe.share`): where it is used up, a
request waits a moment, and is answered 503 if it is used up still. Documented in deploy/docs/page.md.
"""

from __future__ import annotations

import json
import logging
import math
import re
import threading
import time
from collections.abc import Collection
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

from agent.errors import HostError
from agent.model.fields import plain
from agent.node.fault_isolation import sentence
from agent.observe.listener import HttpHandler, HttpListener
from agent.observe.page import host
from agent.observe.page.current import Current, PageSource
from agent.observe.page.document import Document, document
from agent.observe.share import BusyError, CpuShare

_log = logging.getLogger(__name__)

MOST_STREAMS = 8
"""Event streams at once; they last, so they are fewer than connections (`agent.observe.listener`)."""
WAITS = 3.0
"""Seconds that a request waits for the share of CPU; so long a reader is held that asks in a loop."""
AGAIN = 0.05
"""Seconds between two looks whether there is some, where another request took it."""
LOOK = 0.5
"""Seconds between looks at what is shown, per stream."""
BEAT = 5.0
"""Seconds after which a stream says that it is alive: the page calls itself stale without."""

_EXPLANATION = re.compile(r"/api/pods/([A-Za-z0-9._-]{1,253})/explanation")
_JSON, _TEXT, _HTML = "application/json", "text/plain; charset=utf-8", "text/html; charset=utf-8"
_SVG, _EVENTS = "image/svg+xml; charset=utf-8", "text/event-stream"
_NOTHING = "default-src 'none'; frame-ancestors 'none'"
_NOTHING_BUT_STYLE = f"{_NOTHING}; style-src 'unsafe-inline'"
"""For answers that are no page; the drawing brings its style sheet along, and escapes every text."""


class PageServer:
    """Listens and answers until it is closed.

    Args:
        address: an IP address.
        port: 0 takes a free one.
        source: gives what is shown.
        names: host names to answer to beside loopback's and the address' own.
        share: of one CPU, for all readers.

    Raises:
        HostError: it cannot be listened on.
    """

    def __init__(
        self, address: str, port: int, source: PageSource[Any], names: Collection[str] = (),
        share: CpuShare | None = None,
    ) -> None:  # fmt: skip
        share = share or CpuShare()
        handler = type(
            "Handler", (_PageHandler,),
            {"current": Current(source, share), "share": share, "page": document(), "names": frozenset(names),
             "closed": threading.Event(), "streams": threading.BoundedSemaphore(MOST_STREAMS)},
        )  # fmt: skip
        self._closed: threading.Event = handler.closed  # type: ignore[attr-defined]  # made by type() above
        try:
            self._server = HttpListener((address, port), handler, "the node page failed")
        except OSError as error:
            where = f"{address}:{port}"
            raise HostError(where, f"cannot be listened on: {error.strerror}; set page.port") from None
        self._server.begin("page")

    @property
    def address(self) -> str:
        """Where it listens, for a browser: http://127.0.0.1:9178/."""
        return f"http://{self._server.where}/"

    def close(self) -> None:
        """Stop listening; open streams end within a moment."""
        self._closed.set()
        self._server.end()


class _PageHandler(HttpHandler):
    current: ClassVar[Current[Any]]
    share: ClassVar[CpuShare]
    page: ClassVar[Document]
    names: ClassVar[frozenset[str]]
    closed: ClassVar[threading.Event]
    streams: ClassVar[threading.BoundedSemaphore]

    def handle(self) -> None:
        """See BaseRequestHandler: all that a request costs is charged."""
        with self.share.charged():
            super().handle()

    def do_GET(self) -> None:  # noqa: N802 - http.server's name
        self._serve()

    def do_HEAD(self) -> None:  # noqa: N802 - http.server's name
        self._serve()

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What http.server refuses by itself; it answers 501 to a method that has no do_ function."""
        del explain
        self.closed.wait(min(WAITS, self.share.wait()))
        refused = 405 if code == 501 else code  # noqa: PLR2004 - the statuses' numbers are their names
        self.close_connection = True
        self._answer(refused, _TEXT, f"{message or 'refused'}; this page answers GET and HEAD\n".encode())

    def _serve(self) -> None:
        until = time.monotonic() + WAITS
        while True:
            wait = self.share.wait()
            if not wait:
                try:
                    return self._served()
                except BusyError:  # another request took it
                    wait = max(AGAIN, self.share.wait())
            left = until - time.monotonic()
            if left <= 0 or self.closed.wait(min(wait, left)):
                return self._answer(503, _TEXT, b"too much is asked of this page; its share of the CPU is used up\n")

    def _served(self) -> None:
        if not host.allowed(self.headers.get("Host", ""), self.connection.getsockname()[0], self.names):
            text = "this name is not answered to (DNS rebinding); use localhost, or add it to page.hosts\n"
            return self._answer(421, _TEXT, text.encode())
        if host.foreign(self.headers.get("Sec-Fetch-Site", ""), self.headers.get("Sec-Fetch-Mode", "")):
            return self._answer(403, _TEXT, b"another site's page asks\n")
        try:
            asked = urlsplit(self.path)
        except ValueError:
            return self._answer(400, _TEXT, b"no path of this page\n")
        if asked.path == "/":
            return self._answer(200, _HTML, self.page.body, self.page.policy)
        if asked.path == "/api/events":
            return self._stream()
        try:
            status, kind, body = self._api(asked.path, parse_qs(asked.query[:100]))
        except BusyError:
            raise
        except Exception as error:  # noqa: BLE001 - of any kind: it concerns one page of one pod
            _log.error(
                "the node page: %s cannot be shown: %s", plain(asked.path[:100]), sentence(error), exc_info=error
            )
            status, kind, body = 500, _JSON, _error(f"this cannot be shown: {sentence(error)}")
        return self._answer(status, kind, body, _NOTHING_BUT_STYLE if kind == _SVG else _NOTHING)

    def _api(self, path: str, query: dict[str, list[str]]) -> tuple[int, str, bytes]:
        if path == "/api/node":
            return 200, _JSON, self.current.node()
        if path == "/api/pods":
            return 200, _JSON, self.current.pods()
        if path == "/api/picture.svg":
            full, bare = (query.get(name) == ["1"] for name in ("full", "bare"))
            return 200, _SVG, self.current.picture(full=full, bare=bare)
        asked = _EXPLANATION.fullmatch(path)
        if asked:
            found = self.current.explanation(asked[1])
            return (200, _JSON, found) if found is not None else (404, _JSON, _error("no pod of this uid is known"))
        return 404, _JSON, _error("no such page; / is the page, /api/node and /api/pods are the values")

    def _answer(self, status: int, kind: str, body: bytes, policy: str = _NOTHING) -> None:
        self._head(status, kind, policy)
        self.send_header("Content-Length", str(len(body)))
        if status == 405:  # noqa: PLR2004 - as above
            self.send_header("Allow", "GET, HEAD")
        if status == 503:  # noqa: PLR2004 - as above
            self.send_header("Retry-After", str(max(1, math.ceil(self.share.wait()))))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _head(self, status: int, kind: str, policy: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Security-Policy", policy)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("X-Frame-Options", "DENY")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.send_header("Cross-Origin-Opener-Policy", "same-origin")
        self.send_header("Cache-Control", "no-store")

    def _stream(self) -> None:
        """Events until the client goes or the server ends. A client that takes nothing is dropped by PATIENCE."""
        if not self.streams.acquire(blocking=False):
            return self._answer(503, _TEXT, f"{MOST_STREAMS} readers follow already\n".encode())
        try:
            self.server.lasting(self.connection)
            self._head(200, _EVENTS, _NOTHING)
            self.end_headers()
            if self.command != "HEAD":
                self._follow()
        finally:
            self.streams.release()
        return None

    def _follow(self) -> None:
        shown, said = "", time.monotonic()
        self.wfile.write(b"retry: 2000\n\n")
        while True:
            with self.share.charged():
                now, revision = time.monotonic(), self.current.revision()
                if revision != shown or now - said >= BEAT:
                    kind = "state" if revision != shown else "beat"
                    self.wfile.write(f"event: {kind}\ndata: {json.dumps({'revision': revision})}\n\n".encode())
                    shown, said = revision, now
            if self.closed.wait(LOOK):
                return


def _error(text: str) -> bytes:
    return json.dumps({"error": text}).encode()
