"""A stand-in API server for the gatekeeper: lists, watches with selectors, patches with preconditions, leases.

Not a mock of Kubernetes: just what the gatekeeper asks, with the answers that real servers gave (deploy/docs of the
API). A patch of pods/status leaves the specification alone, one of pods the status. `before` lets a test see each
request, refuse it or cut it.
"""

from __future__ import annotations

import asyncio
import copy
import json
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiohttp import web

from agent.kube.access import ApiAccess
from tests.matrix.api_objects import failure, key_of, merged
from tests.matrix.http_server import HttpServer
from tests.matrix.loop import Loop

Object = dict[str, Any]
CUT = -1
"""What `before` answers to cut the connection."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request: "PATCH", "pods/status", "shop/web", its body."""

    verb: str
    resource: str
    key: str
    body: Object


@dataclass(frozen=True, slots=True)
class _Change:
    version: int
    resource: str
    old: Object | None
    new: Object | None


class StandIn:
    """The server; each test makes its own and closes it."""

    def __init__(self, folder: Path) -> None:
        self.objects: dict[tuple[str, str], Object] = {}
        self.requests: list[Request] = []
        self.before: Callable[[Request], int] = lambda _request: 0
        """Called with each request that changes something, and with GETs; another answer than 0 is its status."""
        self._lock = threading.RLock()
        self._version, self._log = 100, list[_Change]()
        self._news: list[asyncio.Event] = []
        self._expired = 0
        self._loop = Loop.shared()
        self._http = HttpServer(self._serve)
        server: str = self._loop.run(self._http.open())
        for name in ("token", "ca.crt"):
            (folder / name).write_text("x")
        self.access = ApiAccess(server, folder / "ca.crt", folder / "token", check_name=False)

    # ---- the cluster's part

    def put(self, resource: str, body: Object) -> Object:
        """Create or replace an object."""
        with self._lock:
            return self._store(resource, copy.deepcopy(body))

    def get(self, resource: str, key: str) -> Object:
        """Return an object, {} where there is none."""
        with self._lock:
            return self.objects.get((resource, key), {})

    def change(self, resource: str, key: str, change: Callable[[Object], object]) -> None:
        with self._lock:
            body = copy.deepcopy(self.get(resource, key))
            change(body)
            self._store(resource, body)

    def remove(self, resource: str, key: str) -> None:
        """Delete an object at once."""
        with self._lock:
            old = self.objects.pop((resource, key), None)
            if old is not None:
                self._announce(resource, old, None)

    def bind(self, key: str, node: str) -> None:
        """Bind a pod as the API server does: the nomination is emptied."""
        assert not self.gates(key), "a gated pod cannot be bound"

        def bound(body: Object) -> None:
            body["spec"]["nodeName"] = node
            body["status"].pop("nominatedNodeName", None)
            stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": stamp}
            body["status"].setdefault("conditions", []).append(scheduled)

        self.change("pods", key, bound)

    def gates(self, key: str) -> list[str]:
        return [each["name"] for each in self.get("pods", key).get("spec", {}).get("schedulingGates") or ()]

    def nominated(self, key: str) -> str:
        return str(self.get("pods", key).get("status", {}).get("nominatedNodeName", ""))

    def wrote(self, *resources: str) -> list[Request]:
        """Return the requests that changed something of these resources, in order."""
        with self._lock:
            return [each for each in self.requests if each.verb != "GET" and each.resource in resources]

    def promised(self, key: str) -> list[str]:
        """Return the nodes that the nominations of a pod named, in order; "" is a clearing."""
        bodies = [each.body["status"] for each in self.wrote("pods/status") if each.key == key]
        return [each["nominatedNodeName"] or "" for each in bodies if "nominatedNodeName" in each]

    @property
    def watched(self) -> int:
        return len(self._news)

    def expire(self) -> None:
        """End every watch as one whose version has expired (410)."""
        self._expired = len(self._news)
        self._loop.loop.call_soon_threadsafe(self._wake)

    def cut(self) -> None:
        self._loop.run(self._http.cut())

    def close(self) -> None:
        self._loop.run(self._http.end())

    # ---- storing and announcing

    def _store(self, resource: str, body: Object) -> Object:
        key = key_of(body)
        old = self.objects.get((resource, key))
        metadata = {"uid": f"{uuid.uuid4()}", **body.get("metadata", {}), "resourceVersion": f"{self._version + 1}"}
        self.objects[resource, key] = new = {**body, "metadata": metadata}
        self._announce(resource, old, new)
        return new

    def _announce(self, resource: str, old: Object | None, new: Object | None) -> None:
        self._version += 1
        self._log.append(_Change(self._version, resource, old, new))
        self._loop.loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        for each in self._news:
            each.set()

    # ---- the server

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        resource, key, part = split(request.path)
        body = await request.json() if request.can_read_body else {}
        asked = Request(request.method, f"{resource}/{part}" if part else resource, key, body)
        watched = request.query.get("watch") == "true"
        # A test may hold a request: that must not hold the loop.
        status = 0 if watched else await asyncio.to_thread(self.before, asked)
        if status == CUT:
            if request.transport is not None:
                request.transport.abort()
            return web.Response(status=503)
        if status:
            return failure(status, "made up by a test")
        if watched:
            return await self._watch(request, resource)
        with self._lock:
            self.requests.append(asked)
            return self._answer(request, asked, resource, part)

    def _answer(self, request: web.Request, asked: Request, resource: str, part: str) -> web.Response:
        key, stored = asked.key, self.objects.get((resource, asked.key))
        if asked.verb == "GET" and (not key or key.endswith("/")):
            chosen = [
                each for (kind, _), each in self.objects.items() if kind == resource and self._in(request, each)
            ]
            found = [each for each in chosen if not key or key_of(each).startswith(key)]
            metadata = {"resourceVersion": f"{self._version}"}
            return web.json_response({"kind": "List", "apiVersion": "v1", "metadata": metadata, "items": found})
        if asked.verb == "POST":
            return self._created(asked, resource)
        if stored is None:
            return failure(404, f'{resource} "{key}" not found')
        if asked.verb == "GET":
            return web.json_response(stored)
        return self._changed(asked, stored, resource, part)

    def _created(self, asked: Request, resource: str) -> web.Response:
        space = asked.key.rstrip("/")
        body = {**asked.body, "metadata": {**({"namespace": space} if space else {}), **asked.body["metadata"]}}
        if (resource, key_of(body)) in self.objects:
            return failure(409, "already exists")
        return web.json_response(self._store(resource, body), status=201)

    def _changed(self, asked: Request, stored: Object, resource: str, part: str) -> web.Response:
        key = asked.key
        if asked.verb == "DELETE":
            self.remove(resource, key)
            return web.json_response({"kind": "Status", "status": "Success"})
        wanted = asked.body.get("metadata", {})
        if any(wanted.get(name) not in (None, stored["metadata"][name]) for name in ("uid", "resourceVersion")):
            return failure(409, f'Operation cannot be fulfilled on {resource} "{key}": the object has been modified')
        body = asked.body if asked.verb == "PUT" else patched(stored, asked.body, part)
        return web.json_response(self._store(resource, body))

    async def _watch(self, request: web.Request, resource: str) -> web.StreamResponse:
        stream = web.StreamResponse(headers={"Content-Type": "application/json"})
        stream.enable_chunked_encoding()
        await stream.prepare(request)
        news, since = asyncio.Event(), int(request.query["resourceVersion"])
        self._news.append(news)
        try:
            while True:
                news.clear()
                if self._expired:
                    self._expired -= 1
                    gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old", "metadata": {}}
                    await stream.write(json.dumps({"type": "ERROR", "object": gone}).encode() + b"\n")
                    return stream
                with self._lock:
                    fresh = [each for each in self._log if each.version > since and each.resource == resource]
                    since = self._version
                lines = [line for each in fresh if (line := self._line(request, each))]
                if lines:
                    await stream.write(b"".join(lines))
                await news.wait()
        finally:
            self._news.remove(news)

    def _line(self, request: web.Request, each: _Change) -> bytes:
        was, is_in = (found is not None and self._in(request, found) for found in (each.old, each.new))
        if not was and not is_in:
            return b""
        kind = "DELETED" if not is_in else "MODIFIED" if was else "ADDED"
        body = each.new if is_in else each.old  # the old one, as real servers do
        assert body is not None
        version = {**body["metadata"], "resourceVersion": f"{each.version}"}
        return json.dumps({"type": kind, "object": {**body, "metadata": version}}).encode() + b"\n"

    @staticmethod
    def _in(request: web.Request, body: Object) -> bool:
        parts = [each for each in request.path.split("/") if each]
        space = parts[parts.index("namespaces") + 1] if "namespaces" in parts[:-2] else ""
        if space and body["metadata"].get("namespace") != space:
            return False
        labels = body["metadata"].get("labels", {})
        for each in filter(None, request.query.get("labelSelector", "").split(",")):
            name, equal, value = each.partition("=")
            if name not in labels or (equal and labels[name] != value):
                return False
        fields = request.query.get("fieldSelector", "").split(",")
        if "status.phase=Pending" in fields and body.get("status", {}).get("phase") != "Pending":
            return False
        where = body.get("spec", {}).get("nodeName")
        return not (where if "spec.nodeName=" in fields else "spec.nodeName!=" in fields and not where)


def split(path: str) -> tuple[str, str, str]:
    """Return resource, key and subresource; the key of a list in a namespace ends with a slash."""
    parts = [each for each in path.split("/") if each]
    parts = parts[2:] if parts[:1] == ["api"] else parts[3:]
    space = ""
    if parts[:1] == ["namespaces"] and len(parts) > 2:
        space, parts = f"{parts[1]}/", parts[2:]
    resource, name, part = (*parts, "", "", "")[:3]
    return resource, f"{space}{name}", part


def patched(old: Object, patch: Object, part: str) -> Object:
    """Return an object after a strategic merge patch; the parts that the subresource does not have stay."""
    kept = ("metadata", "status") if part == "status" else ("metadata", "spec")
    patch = {name: each for name, each in patch.items() if name in kept}
    patch["metadata"] = {name: each for name, each in patch.get("metadata", {}).items() if name != "resourceVersion"}
    found: Object = merged(old, patch)
    return found
