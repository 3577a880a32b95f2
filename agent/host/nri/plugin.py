"""The thread that keeps an NRI session alive: connects, serves, reconnects with back-off and jitter.

Started by `agent.app` where the runtime's socket is there; `stop` ends it. While it is disconnected, containers start
without us and are pinned at the next synchronisation.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

from agent.host.nri.session import Count, Identity, Session
from agent.host.nri.values import NriHandler
from agent.node.fault_isolation import Isolated, sentence

DEFAULT_SOCKET = "/var/run/nri/nri.sock"
REST = 15.0
"""Seconds without a connection after one that was ended since the agent got no CPU: containers do not wait then."""
STEADY_SECONDS = 30.0
"""A session that lasted this long resets the back-off."""

_log = logging.getLogger(__name__)


def backoffs(first: float = 0.2, cap: float = 15.0) -> Iterator[float]:
    """Seconds to wait before each reconnection: doubling, capped, with jitter so that nodes do not march in step."""
    delay = first
    while True:
        yield random.uniform(delay / 2, delay)  # noqa: S311 - jitter, no secret
        delay = min(delay * 2, cap)


class Plugin:
    """A supervised NRI connection."""

    def __init__(
        self,
        socket: str,
        handler: NriHandler,
        *,
        identity: Identity | None = None,
        count: Count = lambda _method, _outcome, _seconds: None,
        delays: Callable[[], Iterator[float]] = backoffs,
    ) -> None:
        self._socket, self._handler = socket, handler
        self._identity = identity or Identity()
        self._count = count
        self._delays = delays
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="nri-handler")
        self._thread = threading.Thread(target=self._run, name="nri", daemon=True)
        self._stopping = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._session: Session | None = None
        self.connections = 0

    @property
    def connected(self) -> bool:
        """Whether the connection is open and the runtime has synchronized the agent."""
        return self._session is not None and self._session.synchronized.is_set()

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, within: float = 5.0) -> bool:
        """End the connection and the thread; whether they ended in time."""
        self._stopping.set()
        loop, task = self._loop, self._task
        if loop is not None and task is not None:
            with contextlib.suppress(RuntimeError):  # the loop ended by itself meanwhile
                loop.call_soon_threadsafe(task.cancel)
        self._thread.join(within)
        self._worker.shutdown(wait=False, cancel_futures=True)
        return not self._thread.is_alive()

    def _run(self) -> None:
        asyncio.run(self._supervise())

    async def _supervise(self) -> None:
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        delays = self._delays()
        try:
            while not self._stopping.is_set():
                began = time.monotonic()
                why, starved = await self._once()
                with Isolated(lambda _error: _log.exception("that the runtime is away could not be told")):
                    self._handler.disconnected(why)
                if time.monotonic() - began > STEADY_SECONDS:
                    delays = self._delays()
                await asyncio.sleep(REST if starved else next(delays))
        except asyncio.CancelledError:
            if not self._stopping.is_set():
                raise

    async def _once(self) -> tuple[str, bool]:
        """Run one connection to its end; return why it ended, and whether that was because the agent got no CPU."""
        try:
            reader, writer = await asyncio.open_unix_connection(self._socket)
        except OSError as error:
            return f"{self._socket}: {error.strerror or error}", False
        self.connections += 1
        session = Session(reader, writer, self._handler, self._worker, self._identity, self._count)
        self._session = session
        why = "the runtime closed the connection"
        try:
            await session.serve()
        except* Exception as errors:  # noqa: BLE001 - whatever ends a connection, the next one follows
            why = sentence(errors.exceptions[0])
            _log.warning("NRI connection ended: %s", why)
        finally:
            self._session = None
            writer.close()
        return why, session.starved
