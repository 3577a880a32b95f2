"""A relay of TCP on loopback that counts, and cuts: what passes through it is measured to the byte, TLS included.

Used by `tools.bench.api`: only the agents connect through it, so that its counts are theirs and nobody else's. The
soak of tests/cluster cuts an agent's connections by it.
"""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from types import TracebackType
from typing import Self

CHUNK = 1 << 16


@dataclass(frozen=True, slots=True)
class Traffic:
    """What has passed: bytes to the server, bytes from it, connections opened, connections open now."""

    sent: int = 0
    received: int = 0
    opened: int = 0
    open: int = 0

    def since(self, before: Traffic) -> Traffic:
        """What passed after an earlier reading; `open` stays a level."""
        return Traffic(
            self.sent - before.sent, self.received - before.received, self.opened - before.opened, self.open
        )


class Relay:
    """`with Relay(port) as relay:` forwards 127.0.0.1:relay.port to 127.0.0.1:port, on one thread."""

    def __init__(self, target: int) -> None:
        self.port = 0
        self._target = target
        self._sent = self._received = self._opened = 0
        self._ends: list[tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = []
        self._ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._over: asyncio.Event | None = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="relay", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._ready.wait(10):
            raise AssertionError("the relay did not start")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._loop is not None and self._over is not None:
            self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(10)

    @property
    def traffic(self) -> Traffic:
        """The counts now."""
        return Traffic(self._sent, self._received, self._opened, len(self._ends))

    def cut(self) -> None:
        """End every connection."""
        assert self._loop is not None
        for end in [end for both in self._ends for end in both]:
            self._loop.call_soon_threadsafe(end.transport.abort)

    async def _serve(self) -> None:
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._connection, "127.0.0.1", 0, backlog=1024)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._over.wait()
        server.close()

    async def _connection(self, near: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        try:
            far, forth = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            back.transport.abort()
            return
        self._opened += 1
        ends = (back, forth)
        self._ends.append(ends)
        try:
            await asyncio.gather(self._pass(near, forth, up=True), self._pass(far, back, up=False))
        finally:
            self._ends.remove(ends)

    async def _pass(self, source: asyncio.StreamReader, target: asyncio.StreamWriter, *, up: bool) -> None:
        """One direction, until its end; then the other side is told."""
        try:
            while data := await source.read(CHUNK):
                if up:
                    self._sent += len(data)
                else:
                    self._received += len(data)
                target.write(data)
                await target.drain()
        except OSError:
            pass
        finally:
            target.close()
