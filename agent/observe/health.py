"""Tracks whether the agent is live and ready, and serves that by a small HTTP server, with /metrics beside it.

    live     the loop turned not long ago, and no thread died of a fault: else the kubelet should restart us
    started  recovery is done: what runs is known from checkpoint and cgroups, whatever else is away or full
    ready    recovery is done, checkpoint and cgroups can be used, and a complete list of pods and the names of all
             containers are known; the text says what is missing

Started by `agent.app`. Answers GET and HEAD only, on loopback by default (safety.md S20). A program that asks in a
loop gets a share of one CPU (`agent.observe.share`): beyond that each answer is held for a moment, which is shorter
than a probe waits.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import ClassVar

from agent.errors import HostError, SettingsError
from agent.observe.listener import PATIENCE, HttpHandler, HttpListener
from agent.observe.share import CpuShare

STALE_SECONDS = 60.0
"""A loop that did not turn for so long is stuck: it turns often, and a hanging write stalls nothing (S8)."""
HELD = 0.1
"""Seconds for which an answer is held while the share of the CPU is used up."""
AHEAD = 0.25
"""Seconds of CPU time that may be used at once."""
HIGHEST_PORT = 65_535
RECOVERY = "recovery"
"""The condition until ledger, cgroups and pods are put together."""

Page = Callable[[str], tuple[int, str, bytes]]
"""From the request's `Accept` to status, content type, body."""


class Health:
    """Beats and conditions; any thread may call."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._beat = clock()
        self._missing: dict[str, str] = {RECOVERY: "has not finished"}
        self._dead = ""

    def die(self, why: str) -> None:
        """Record the end of a part that only a restart of the agent brings back; the first reason is kept."""
        with self._lock:
            self._dead = self._dead or why

    def beat(self) -> None:
        """Record a turn of the loop."""
        with self._lock:
            self._beat = self._clock()

    def set(self, condition: str, problem: str) -> None:
        """Set the condition of this name: why the agent is not ready, "" to remove it."""
        with self._lock:
            self._missing.pop(condition, None)
            if problem:
                self._missing[condition] = problem

    def live(self) -> tuple[bool, str]:
        """Return True if the loop turns and no thread died, and a sentence."""
        with self._lock:
            age, dead = self._clock() - self._beat, self._dead
        if dead:
            return False, dead
        return age < STALE_SECONDS, f"the loop turned {age:.1f} s ago"

    def ready(self) -> tuple[bool, str]:
        """Return True if there is no condition, and a sentence with what is missing."""
        with self._lock:
            missing = "; ".join(f"{name}: {text}" for name, text in sorted(self._missing.items()))
        return not missing, missing or "ready"

    def started(self) -> tuple[bool, str]:
        """Return True once recovery is done, and what it waits for."""
        with self._lock:
            missing = self._missing.get(RECOVERY, "")
        return not missing, f"{RECOVERY}: {missing}" if missing else "started"

    def pages(self) -> dict[str, Page]:
        """/healthz, /readyz, and the startup probe's question: an agent that knows no parameter answers /readyz."""
        return {
            "/healthz": lambda _accept: _answer(*self.live()), "/readyz": lambda _accept: _answer(*self.ready()),
            f"/readyz?only={RECOVERY}": lambda _accept: _answer(*self.started()),
        }  # fmt: skip


def _answer(good: bool, text: str) -> tuple[int, str, bytes]:  # noqa: FBT001 - the pair that live() and ready() give
    return 200 if good else 503, "text/plain; charset=utf-8", f"{text}\n".encode()


class Server:
    """The HTTP server, in threads of its own.

    Args:
        address: "host:port", "[::1]:port", "::1:port" (as $(POD_IP):port becomes in a pod), ":port"; port 0 takes a
            free one.
        pages: path -> page.
        patience: seconds that a connection may last.
        share: of one CPU, for all clients.

    Raises:
        SettingsError: the address is malformed.
        HostError: it cannot be listened on.
    """

    def __init__(
        self, address: str, pages: Mapping[str, Page], *, patience: float = PATIENCE, share: CpuShare | None = None
    ) -> None:
        host, port = parse_address(address)
        ours = type("Ours", (_HealthHandler,), {"served": pages, "share": share or CpuShare(ahead=AHEAD)})
        try:
            self._server = HttpListener((host, port), ours, "a page failed", patience=patience)
        except OSError as error:
            raise HostError(
                address, f"cannot be listened on: {error.strerror}; choose another --metrics-address"
            ) from None
        self._server.begin("http")

    @property
    def address(self) -> str:
        """Where it listens: host:port."""
        return self._server.where

    def close(self) -> None:
        """Stop listening."""
        self._server.end()


def parse_address(text: str) -> tuple[str, int]:
    """Host and port of "127.0.0.1:9177"; without a host it is loopback. Raises SettingsError."""
    host, colon, port = text.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit()) or int(port) > HIGHEST_PORT:
        raise SettingsError("--metrics-address", f'"{text[:80]}" is no address such as 127.0.0.1:9177')
    return host.strip("[]") or "127.0.0.1", int(port)


class _HealthHandler(HttpHandler):
    served: ClassVar[Mapping[str, Page]]
    share: ClassVar[CpuShare]

    def handle(self) -> None:
        """See BaseRequestHandler: all that a request costs is charged."""
        with self.share.charged():
            super().handle()

    def do_GET(self) -> None:  # noqa: N802 - http.server's name
        self._serve(body=True)

    def do_HEAD(self) -> None:  # noqa: N802 - http.server's name
        self._serve(body=False)

    def _serve(self, *, body: bool) -> None:
        if not self.server.crowded:
            time.sleep(min(HELD, self.share.wait()))
        page = self.served.get(self.path) or self.served.get(self.path.partition("?")[0])
        if page is None:
            status, kind, text = (
                404,
                "text/plain; charset=utf-8",
                f"no such page; there are {' '.join(self.served)}\n".encode(),
            )
        else:
            status, kind, text = page(self.headers.get("Accept", ""))
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        if body:
            self.wfile.write(text)
