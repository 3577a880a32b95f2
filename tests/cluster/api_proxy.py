"""A proxy before a real API server, for the one process that a test gives its address: it records, holds, and cuts.

A `Hold` stops a patch of one pod: before the server sees it, or after its answer. So a test knows to the request
where the process stands, and ends it there, or changes the cluster meanwhile.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Self

import aiohttp
from aiohttp import web

from tests.cluster.control_plane import ControlPlane
from tests.cluster.objects import Object
from tests.gatekeeper.standin import split
from tests.matrix.http_server import HttpServer
from tests.matrix.loop import Loop
from tests.patience import until

STATUS, SPEC = "pods/status", "pods"
BEFORE, AFTER = "before", "after"
HOP = {"connection", "transfer-encoding", "content-length", "content-encoding", "host", "accept-encoding"}


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that changes something, and the server's answer: "PATCH", "pods/status", "gated/web", its body."""

    verb: str
    resource: str
    key: str
    body: Object
    code: int


@dataclass(slots=True)
class Hold:
    """Patches that are stopped.

    Attributes:
        resource: STATUS or SPEC.
        name: of the pod begins with this.
        when: BEFORE the server sees it, or AFTER its answer.
        held: pods whose patch is or was stopped.
        over: set when they go on.
    """

    resource: str
    name: str
    when: str = BEFORE
    held: set[str] = field(default_factory=set)
    over: asyncio.Event = field(default_factory=asyncio.Event)

    def reached(self, number: int = 1) -> None:
        """Wait until so many pods are held."""
        until(lambda: len(self.held) >= number, lambda: f"{number} patches to be held, there are {self.held}")


class ApiProxy:
    """`with ApiProxy(cluster) as proxy:` forwards proxy.server to the cluster's API server."""

    def __init__(self, cluster: ControlPlane) -> None:
        self._cluster = cluster
        self._trust = ssl.create_default_context(cafile=str(cluster.ca))
        self._trust.check_hostname = False
        self._loop = Loop.shared()
        self._holds: list[Hold] = []
        self._http = HttpServer(self._serve, 1 << 24)
        self._client: aiohttp.ClientSession
        self.asked: list[Asked] = []
        self.server, self.away = "", False

    def __enter__(self) -> Self:
        self.server = self._loop.run(self._open())
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.run(self._close())

    @contextmanager
    def holding(self, resource: str, name: str, when: str = BEFORE) -> Iterator[Hold]:
        """Hold patches as long as the block runs."""
        hold = Hold(resource, name, when)
        self._holds.append(hold)
        try:
            yield hold
        finally:
            self._holds.remove(hold)
            self._loop.loop.call_soon_threadsafe(hold.over.set)

    @contextmanager
    def cut(self) -> Iterator[None]:
        """Let the server be away: all connections end, and none is answered."""
        self.away = True
        self._loop.run(self._http.cut())
        try:
            yield
        finally:
            self.away = False

    def promised(self, name: str) -> list[str]:
        """The nodes that the nominations of a pod named, in order; "" is a clearing. Refused ones are left out."""
        found = [each for each in self.asked if each.resource == STATUS and each.key.endswith(f"/{name}")]
        bodies = [each.body["status"] for each in found if each.code < 300]
        return [each["nominatedNodeName"] or "" for each in bodies if "nominatedNodeName" in each]

    async def _open(self) -> str:
        self._client = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=None), connector=aiohttp.TCPConnector(ssl=self._trust, limit=0),
            auto_decompress=False,
        )  # fmt: skip
        return await self._http.open()

    async def _close(self) -> None:
        await self._http.end()
        await self._client.close()

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        data = await request.read()
        kind, key, below = split(request.path)
        resource = f"{kind}/{below}" if below else kind
        if await self._held(request, resource, key, BEFORE):
            return _gone(request)
        headers = {name: text for name, text in request.headers.items() if name.lower() not in HOP}
        stream: web.StreamResponse | None = None
        try:
            async with self._client.request(
                request.method, f"{self._cluster.server}{request.rel_url}", data=data or None, headers=headers
            ) as answer:
                if request.method != "GET":
                    body = json.loads(data) if data else {}
                    self.asked.append(Asked(request.method, resource, key, body, answer.status))
                if await self._held(request, resource, key, AFTER):
                    return _gone(request)
                kept = {name: text for name, text in answer.headers.items() if name.lower() not in HOP}
                stream = web.StreamResponse(status=answer.status, headers=kept)
                stream.enable_chunked_encoding()
                await stream.prepare(request)
                async for part in answer.content.iter_any():
                    await stream.write(part)
                await stream.write_eof()
        except (aiohttp.ClientError, ConnectionError):  # the server is away
            return _gone(request)
        return stream

    async def _held(self, request: web.Request, resource: str, key: str, when: str) -> bool:
        """Wait as long as a hold wants it; return whether the connection is to be cut."""
        name = key.partition("/")[2] if request.method == "PATCH" else ""
        for hold in [*self._holds]:
            if (hold.resource, hold.when) == (resource, when) and name and name.startswith(hold.name):
                hold.held.add(key)
                await hold.over.wait()
        return self.away


def _gone(request: web.Request) -> web.Response:
    with suppress(AttributeError):  # the client has gone
        request.transport.abort()  # type: ignore[union-attr]  # None: it is gone
    return web.Response(status=503)
