"""A stand-in for the API server: what an agent reads and writes, on loopback without TLS, with faults on demand.

Not a mock of Kubernetes: just enough that the real agent (kopf's watch, the publisher, the topology's loop) cannot
tell. The real one is asked in tests/cluster. One event loop serves all servers of a process.

    api = Api("n1");  api.put("pods", body);  api.fault("slow");  api.calm();  api.get("pods", "space/name")

    away        every connection is cut at once
    slow        every request is answered after SLOW seconds, a client's patience included
    errors      every request is answered 429, 500 or 422, in turn
    stale       watches are silent and lists "as of any time" are old; when it ends, watches end as expired (410)
    namespaces  only reads of a namespace fail (500)
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import itertools
import json
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from aiohttp import web

from tests.matrix.api_objects import (
    DRA,
    Object,
    brief,
    failure,
    key_of,
    key_of_path,
    merged,
    mutable,
    resource_of,
    selected,
)
from tests.matrix.http_server import HttpServer
from tests.matrix.loop import Loop

SLOW = 12.0
"""Seconds: longer than the agent's patience with one request (10), and with the two of its start (10)."""
ERRORS = (429, 500, 422)
FAULTS = ("away", "slow", "errors", "stale", "namespaces")
_WATCHED = ("pods", "nodes")
_DISCOVERY: Mapping[str, Object] = {
    "/version": {"major": "1", "minor": "36"},
    "/api": {"versions": ["v1"]},
    "/apis": {"groups": []},
    "/api/v1": {
        "groupVersion": "v1",
        "resources": [
            {"name": name, "kind": kind, "singularName": kind.lower(), "namespaced": name == "pods",
             "verbs": ["get", "list", "watch", "patch"]}
            for name, kind in (("pods", "Pod"), ("nodes", "Node"), ("namespaces", "Namespace"))
        ],
    },
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Entry:
    """One event of a watch."""

    version: int
    resource: str
    mine: bool
    line: bytes


@dataclass
class _Fault:
    """The fault that is on; `over` wakes those whom it makes wait."""

    name: str = ""
    over: asyncio.Event = field(default_factory=asyncio.Event)


class Api:
    """One server, of one Node's pods.

    Args:
        node: name of the Node whose pods are watched.
        heard: told of every change that the agent made: verb, resource, object, and whether it came late because of a
            fault; under the server's lock.
        skew: seconds that the server's clock is ahead of this machine's.
    """

    def __init__(
        self, node: str, *, skew: float = 0.0,
        heard: Callable[[str, str, Object, bool], None] = lambda _verb, _resource, _body, _late: None,
    ) -> None:  # fmt: skip
        self.node, self.skew, self._heard = node, skew, heard
        self.events: list[Object] = []
        """Every Event that was recorded."""
        self.requests: Counter[tuple[str, str, int]] = Counter()
        """(method, resource, status) of every request of the agent -> how many."""
        self.literals: dict[str, str] = {}
        """Texts of objects -> JSON that stands for them, which Python's own library cannot write."""
        self._objects: dict[str, dict[str, Object]] = {
            name: {} for name in ("pods", "nodes", "namespaces", "noderesourcetopologies", *DRA)
        }
        self._lock = threading.RLock()
        self._version = itertools.count(1)
        self._last = 0
        self._log: list[_Entry] = []
        self._news: list[asyncio.Event] = []
        self._fault = _Fault()
        self._old: tuple[int, dict[str, dict[str, Object]]] = (0, {})
        self._deferred: list[Callable[[], object]] = []
        self._errors = itertools.cycle(ERRORS)
        self._loop = Loop.shared()
        self._http = HttpServer(self._serve, 1 << 24)
        self.server: str = self._loop.run(self._http.open())
        """Base URL."""

    # ---- the cluster's part

    @property
    def now(self) -> str:
        """The server's time, as it is written in objects."""
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + self.skew))

    def put(self, resource: str, body: Object) -> Object:
        """Create or replace an object (not by the agent); what is left out of its metadata is filled in."""
        with self._lock:
            body = copy.deepcopy(body)
            metadata = body.setdefault("metadata", {})
            metadata.setdefault("uid", str(uuid.uuid4()))
            metadata.setdefault("creationTimestamp", self.now)
            known = key_of(body) in self._objects[resource]
            return self._store(resource, body, "MODIFIED" if known else "ADDED")

    def get(self, resource: str, key: str) -> Object:
        """An object as it is now, {} where there is none; the key of a pod is "namespace/name". Not to be changed."""
        with self._lock:
            return self._objects[resource].get(key, {})

    def all(self, resource: str) -> list[Object]:
        """Every object of a kind. Not to be changed: what changes is stored anew."""
        with self._lock:
            return list(self._objects[resource].values())

    def change(self, resource: str, key: str, change: Callable[[Object], object]) -> Object:
        """Change an object in place (not by the agent); nothing where there is none."""
        with self._lock:
            body = copy.deepcopy(self.get(resource, key))
            if body:
                change(body)
                self._store(resource, body, "MODIFIED")
            return body

    def remove(self, resource: str, key: str) -> None:
        """Delete an object at once, as a forced deletion does."""
        with self._lock:
            body = self._objects[resource].pop(key, None)
            if body is not None:
                self._announce(resource, "DELETED", body)

    def from_kubelet(self, work: Callable[[], object]) -> None:
        """The kubelet's own words: while the server is away for all, they wait for its return."""
        with self._lock:
            if self._fault.name in ("away", "errors"):
                self._deferred.append(work)
                return
        work()

    # ---- faults

    @property
    def faulty(self) -> str:
        """The fault that is on, "" for none."""
        return self._fault.name

    def fault(self, name: str) -> None:
        """Begin a fault; see the module."""
        assert name in FAULTS, name
        with self._lock:
            self._old = self._last, {name: dict(each) for name, each in self._objects.items()}
        self._loop.run(self._begin(name))

    def calm(self) -> None:
        """End the fault; whoever was made to wait is answered."""
        with self._lock:
            deferred, self._deferred = self._deferred, []
        self._loop.run(self._begin(""))
        for work in deferred:
            work()

    def close(self) -> None:
        self._loop.run(self._end())

    async def _begin(self, name: str) -> None:
        before, self._fault = self._fault, _Fault(name)
        before.over.set()
        if name == "away":
            await self._http.cut()
        self._wake()

    # ---- storing and announcing

    def _store(self, resource: str, body: Object, what: str) -> Object:
        with self._lock:
            self._objects[resource][key_of(body)] = body
            self._announce(resource, what, body)
            return body

    def _announce(self, resource: str, what: str, body: Object) -> None:
        self._last = next(self._version)
        body["metadata"] = {**body["metadata"], "resourceVersion": str(self._last)}
        if resource in _WATCHED:
            line = self._text({"type": what, "object": body}).encode() + b"\n"
            self._log.append(_Entry(self._last, resource, self._mine(resource, body), line))
        self._loop.loop.call_soon_threadsafe(self._wake)

    def _text(self, value: Object) -> str:
        found = json.dumps(value)
        for mark, literal in self.literals.items():
            found = found.replace(f'"{mark}"', literal)
        return found

    def _json(self, value: Object, status: int = 200) -> web.Response:
        return web.json_response(value, status=status, dumps=self._text)

    def _wake(self) -> None:
        for each in self._news:
            each.set()

    def _mine(self, resource: str, body: Object) -> bool:
        if resource == "nodes":
            return bool(body["metadata"]["name"] == self.node)
        return bool(body.get("spec", {}).get("nodeName") == self.node)

    # ---- the server

    async def _end(self) -> None:
        await self._begin("")
        await self._http.end()

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        fault = self._fault
        resource = resource_of(request.path)
        if fault.name == "away":
            if request.transport is not None:
                request.transport.abort()
            return web.Response(status=503)
        if fault.name == "slow":
            with contextlib.suppress(TimeoutError):  # the fault lasts longer than the answer is held back
                await asyncio.wait_for(fault.over.wait(), SLOW)
        status = 0
        if fault.name == "errors":
            status = next(self._errors)
        elif fault.name == "namespaces" and resource == "namespaces":
            status = 500
        late = fault.name == "slow"
        answer = failure(status, "made up by a fault") if status else await self._answer(request, resource, late=late)
        self.requests[request.method, resource, answer.status] += 1
        return answer

    async def _answer(self, request: web.Request, resource: str, *, late: bool) -> web.StreamResponse:
        if request.path in _DISCOVERY:
            return web.json_response(_DISCOVERY[request.path])
        if request.query.get("watch") == "true":
            return await self._watch(request, resource)
        if request.method == "GET":
            return self._read(request, resource)
        body = await request.json() if request.can_read_body else {}
        with self._lock:
            return self._change(request, resource, body, late=late)

    def _read(self, request: web.Request, resource: str) -> web.Response:
        parts = request.path.strip("/").split("/")
        with self._lock:
            if parts[-1] == resource:  # a list; "0": as old as the cache is
                version, objects = self._last, self._objects
                if self._fault.name == "stale" and request.query.get("resourceVersion") == "0":
                    version, objects = self._old
                asked = request.query.get("fieldSelector", "")
                found = [
                    each
                    for each in objects[resource].values()
                    if self._mine(resource, each) and selected(each, asked)
                ]
                kind = "PodList" if resource == "pods" else "NodeList"
                return self._json(
                    {"kind": kind, "apiVersion": "v1", "metadata": {"resourceVersion": str(version)}, "items": found}
                )
            body = self._objects.get(resource, {}).get(key_of_path(parts, resource))
            return self._json(body) if body else failure(404, f"{request.path} not found")

    async def _watch(self, request: web.Request, resource: str) -> web.StreamResponse:
        stream = web.StreamResponse(headers={"Content-Type": "application/json"})
        stream.enable_chunked_encoding()
        await stream.prepare(request)
        news, at, was_stale = asyncio.Event(), 0, False
        since = int(request.query.get("resourceVersion") or 0)
        self._news.append(news)
        try:
            while True:
                news.clear()
                if self._fault.name == "stale":
                    was_stale = True
                elif was_stale:
                    gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old", "metadata": {}}
                    await stream.write(json.dumps({"type": "ERROR", "object": gone}).encode() + b"\n")
                    return stream
                else:
                    with self._lock:
                        fresh, at = self._log[at:], len(self._log)
                    lines = [each.line for each in fresh
                             if each.version > since and each.resource == resource and each.mine]  # fmt: skip
                    if lines:
                        await stream.write(b"".join(lines))
                await news.wait()
        finally:
            self._news.remove(news)

    def _change(self, request: web.Request, resource: str, body: Object, *, late: bool) -> web.Response:
        """Needs the lock."""
        parts, verb = request.path.strip("/").split("/"), request.method
        if resource == "events":
            self.events.append(body)
            self._heard("POST", "events", body, late)
            return self._json(brief(body), 201)
        if verb == "POST" and parts[-1] == "noderesourcetopologies":
            body.setdefault("metadata", {})["uid"] = str(uuid.uuid4())
            self._store(resource, body, "ADDED")
            return self._json(brief(body), 201)
        key = key_of_path(parts, resource)
        stored = self._objects.get(resource, {}).get(key)
        if stored is None:
            return failure(404, f'{resource} "{key}" not found')
        wanted = str((body.get("metadata") or {}).get("uid") or (body.get("preconditions") or {}).get("uid") or "")
        if wanted and wanted != stored["metadata"]["uid"]:
            return failure(
                409, f'Operation cannot be fulfilled on {resource} "{key}": Precondition failed: UID in '
                f'precondition: {wanted}, UID in object meta: {stored["metadata"]["uid"]}',
            )  # fmt: skip
        if verb == "DELETE" or parts[-1] == "eviction":
            self.remove(resource, key)
            self._heard("DELETE", resource, stored, late)
            return web.json_response({"kind": "Status", "status": "Success"})
        new = merged(stored, {name: part for name, part in body.items() if name in mutable(parts[-1])})
        self._store(resource, new, "MODIFIED")
        self._heard("PATCH", f"{resource}/status" if parts[-1] == "status" else resource, new, late)
        return self._json(brief(new))
