"""An HTTP server on loopback for stand-ins and proxies: one handler, and connections that can be cut."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web

Handle = Callable[[web.Request], Awaitable[web.StreamResponse]]
LARGEST = 1 << 20
"""Bytes of a request's body, where the user of this says nothing."""


class HttpServer:
    """For the loop of `tests.matrix.loop`.

    Args:
        handle: answers each request.
        largest: bytes of a body.
    """

    def __init__(self, handle: Handle, largest: int = LARGEST) -> None:
        application = web.Application(client_max_size=largest)
        application.router.add_route("*", "/{path:.*}", handle)
        self._runner = web.AppRunner(application, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)

    async def open(self) -> str:
        """Listen; return the address."""
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        return f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def cut(self) -> None:
        """End all connections, in the middle of what they carry."""
        server = self._runner.server
        for each in list(server.connections) if server is not None else ():
            if each.transport is not None:
                each.transport.abort()

    async def end(self) -> None:
        """Cut, and listen no more."""
        await self.cut()
        await self._runner.cleanup()
