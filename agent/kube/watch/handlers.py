"""Streams this node's pods and its Node from kopf. Read-only, scoped, supervised; started by `agent.app`.

kopf runs in its own thread and event loop, in attempts: when one ends (by an error in the stream, or a refusal that
kopf gives up on), the next starts after a jittered delay. One `on.event` handler passes raw pods on and returns None.
No other kind of handler is used, because those write finalizers and annotations to pods.

A mistake here would be a storm on the API server of a large cluster. So these guards hold:

    * every read of pods or nodes must carry this node's field selector, or it is refused before it leaves;
    * nothing but GET leaves at all;
    * watches start at most once a second, logins are damped;
    * a list is passed on whole, so that deletions missed without a watch are found by comparison.

Facts and their proofs: https://docs.kopf.dev, and tests/cluster/test_source.py.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import importlib.metadata
import logging
import random
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, Protocol

import aiohttp

from agent import __version__
from agent.errors import UnscopedReadError
from agent.kube.access import ApiAccess
from agent.kube.objects.listing import CHUNK
from agent.kube.objects.pod_objects import identity
from agent.kube.objects.pod_stream import PodList
from agent.kube.objects.read_fields import brief
from agent.kube.watch.heartbeat import WatchHeartbeat
from agent.kube.watch.kopf_alone import kopf

PODS, NODES = "/api/v1/pods", "/api/v1/nodes"
RESTART_FIRST, RESTART_CAP = 1.0, 60.0
WATCH_GAP = 1.0
STEADY_SECONDS = 120.0
SILENCE = 130.0, 150.0
"""Seconds of silence after which a watch is opened again; each agent takes another value of this range. The server
sends a bookmark a minute after it accepted the watch, kopf counts from before its request: with a shorter time all
agents would come back at once to a slow server. So two bookmarks must be missing. TCP notices the loss of a
connection sooner (`keepalive_socket`)."""
TLS_GOODBYE = 0.1
"""Seconds that a closed TLS connection gets for its last bytes before the event loop ends."""
KEEPALIVE_IDLE, KEEPALIVE_EVERY, KEEPALIVE_TIMES = 30, 10, 3
"""Seconds of silence before the first probe, seconds between two, and unanswered probes that end a connection."""

_KOPF = importlib.metadata.version("kopf")
_log = logging.getLogger(__name__)

Raw = Mapping[str, Any]
Count = Callable[[str, int, float], None]


class WatchListener(Protocol):
    """The receiver of the stream. Each method runs on kopf's event loop: it hands over, returns, and never waits."""

    def pod_changed(self, body: Raw) -> None:
        """Take a pod that was listed, added or modified; called for each pod of a list, too."""

    def pod_deleted(self, body: Raw) -> None:
        """Take a pod that is gone from the API; its processes may still run."""

    def pods_listed(self, uids: frozenset[str]) -> None:
        """Take the metadata.uids of a complete list, before its pods: a pod that is not among them is gone.

        Called at the start of each attempt, and when kopf lists again because a watch's resourceVersion has expired.
        """

    def node_changed(self, body: Raw) -> None:
        """Take this Node, which was listed or modified: its annotations, capacity and allocatable."""

    def source_failed(self, why: str) -> None:
        """Take the reason why an attempt ended; the next one follows."""


class Backoffs:
    """Endless, jittered delays. kopf starts a new iteration per request; after a finite list it would give up."""

    def __init__(self, first: float = 0.5, cap: float = RESTART_CAP) -> None:
        self.first, self.cap = first, cap

    def __iter__(self) -> Iterator[float]:
        delay = self.first
        while True:
            yield random.uniform(delay / 2, delay)  # noqa: S311 - jitter, no secret
            delay = min(delay * 2, self.cap)


class _NoDiffBase(kopf.DiffBaseStorage):
    """Keeps no state of kopf on pods; an attempt to is a bug. It also saves a deep copy per event."""

    def build(self, **_: object) -> kopf.BodyEssence:
        return kopf.BodyEssence({})

    def fetch(self, **_: object) -> None:
        return None

    def store(self, **_: object) -> None:
        raise UnscopedReadError("kopf tried to keep its notes on a pod")


class _NoProgress(kopf.ProgressStorage):
    """The same for the progress of handlers."""

    def fetch(self, **_: object) -> None:
        return None

    def store(self, **_: object) -> None:
        raise UnscopedReadError("kopf tried to keep its progress on a pod")

    def purge(self, **_: object) -> None:
        return None

    def touch(self, **_: object) -> None:
        return None

    def clear(self, *, essence: kopf.BodyEssence) -> kopf.BodyEssence:
        return essence


class PodSource:
    """The supervised stream of this node's pods.

    Args:
        access: where the API server is, and the token.
        node: this Node's name.
        listener: gets each event.
        count: called for each request: verb, HTTP status, seconds.
    """

    def __init__(
        self,
        access: ApiAccess,
        node: str,
        listener: WatchListener,
        count: Count = lambda _verb, _status, _seconds: None,
    ) -> None:
        self._access = access
        self._node = node
        self._listener = listener
        self._count = count
        self.selectors = {PODS: f"spec.nodeName={node}", NODES: f"metadata.name={node}"}
        self.restarts = 0
        self.last_contact = 0.0  # time.monotonic() of the last bytes; 0 before the first
        self._logins: collections.deque[float] = collections.deque(maxlen=8)
        self._sessions: list[aiohttp.ClientSession] = []
        self._next_watch = dict.fromkeys(self.selectors, 0.0)
        self._listed: set[str] = set()
        self._stopping = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._supervise, name="kopf", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, within: float = 10.0) -> bool:
        """End the thread; return True if it ended within `within` seconds."""
        self._stopping.set()
        loop, task = self._loop, self._task
        if loop is not None and task is not None:
            with contextlib.suppress(RuntimeError):  # the loop ended by itself
                loop.call_soon_threadsafe(task.cancel)
        self._thread.join(within)
        return not self._thread.is_alive()

    def _supervise(self) -> None:
        delays = iter(Backoffs(RESTART_FIRST))
        while not self._stopping.is_set():
            began, why = time.monotonic(), "kopf returned"
            try:
                asyncio.run(self._attempt())
            except asyncio.CancelledError:
                why = "cancelled"
            except Exception as error:  # noqa: BLE001 - kopf raises its root cause, of any kind; the next attempt follows
                why = f"{type(error).__name__}: {str(error)[:200]}"
            if self._stopping.is_set():
                return
            if time.monotonic() - began > STEADY_SECONDS:
                delays = iter(Backoffs(RESTART_FIRST))
            self.restarts += 1
            _log.warning("the watch of pods ended (%s); trying again", why)
            self._listener.source_failed(why)
            self._stopping.wait(next(delays))

    async def _attempt(self) -> None:
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        if self._stopping.is_set():  # `stop` came before there was a task to cancel
            return
        try:
            await kopf.operator(
                registry=self._registry(),
                settings=self._settings(),
                clusterwide=True,
                standalone=True,
                identity="numalign",  # type: ignore[arg-type] # a NewType of str that kopf does not export
            )
        finally:
            for session in self._sessions:
                await session.close()
            self._sessions.clear()
            await asyncio.sleep(TLS_GOODBYE)

    def _settings(self) -> kopf.OperatorSettings:
        settings = kopf.OperatorSettings()
        settings.watching.field_selectors["v1", "pods"] = self.selectors[PODS]
        settings.watching.field_selectors["v1", "nodes"] = self.selectors[NODES]
        settings.watching.inactivity_timeout = random.uniform(*SILENCE)  # noqa: S311 - jitter, no secret
        settings.watching.reconnect_backoff = 1.0
        settings.networking.connect_timeout = 5
        settings.networking.request_timeout = 30
        settings.networking.error_backoffs = Backoffs()
        settings.scanning.disabled = True  # no watch of namespaces and CRDs, no permission for it
        settings.posting.enabled = False
        settings.persistence.diffbase_storage = _NoDiffBase()
        settings.persistence.progress_storage = _NoProgress()
        settings.queueing.idle_timeout = 1.0
        settings.process.ultimate_exiting_timeout = None  # else an embedded failure arms a SIGKILL of the process
        return settings

    def _registry(self) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()

        @kopf.on.login(registry=registry)
        async def login(**_: object) -> kopf.AiohttpSession:
            return await self._login()

        @kopf.on.event("v1", "pods", registry=registry)
        async def pod_event(event: Raw, **_: object) -> None:  # a value returned would be patched into the pod
            if event.get("type") == "DELETED":
                self._listener.pod_deleted(brief(event["object"]))
            else:
                self._listener.pod_changed(brief(event["object"]))

        @kopf.on.event("v1", "nodes", registry=registry)
        async def node_event(event: Raw, **_: object) -> None:
            if event.get("type") != "DELETED":
                self._listener.node_changed(event["object"])

        return registry

    async def _login(self) -> kopf.AiohttpSession:
        now = time.monotonic()
        recent = [each for each in self._logins if now - each < 60]  # noqa: PLR2004 - the last minute
        if recent:  # a 401 makes kopf log in again at once: damp it, or a revoked token becomes a storm
            await asyncio.sleep(random.uniform(0.5, 1) * min(30.0, 0.5 * 2 ** len(recent)))  # noqa: S311 - jitter
        self._logins.append(now)
        trust = self._access.trust()
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=4, ssl=trust, socket_factory=keepalive_socket),
            middlewares=[self._guard],
            headers={"User-Agent": f"numalign/{__version__} kopf/{_KOPF} node/{self._node}"},
        )
        self._sessions.append(session)
        return kopf.AiohttpSession(server=self._access.server, aiohttp_session=session)

    async def _guard(self, request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        """Check, pace, authorize and count a request; every request of kopf passes here."""
        if request.method != "GET":
            raise UnscopedReadError(f"kopf tried to write: {request.method} {request.url.path}")
        verb = "discover"
        path = request.url.path.rstrip("/")
        if path in self.selectors:
            verb = await self._scoped(request, path)
        request.headers["Authorization"] = f"Bearer {self._access.token}"
        began = time.monotonic()
        answer = await send(request)
        self.last_contact = time.monotonic()
        self._count(verb, answer.status, self.last_contact - began)
        if verb.startswith("WATCH"):
            heard = WatchHeartbeat(answer.content, self._heard, pods=verb == "WATCH pods")
            answer.content = heard  # type: ignore[assignment]  # reads the same
        if verb == "LIST pods" and answer.status == 200:  # noqa: PLR2004 - HTTP's OK
            listed = await _listed(answer)
            answer.json = _already(listed)  # type: ignore[assignment, method-assign]  # what kopf asks for next
            self._listener.pods_listed(frozenset(identity(pod)[0] for pod in listed.get("items") or ()))
        return answer

    def _heard(self) -> None:
        self.last_contact = time.monotonic()

    async def _scoped(self, request: aiohttp.ClientRequest, path: str) -> str:
        query, kind = request.url.query, path.rpartition("/")[2]
        if self.selectors[path] not in query.get("fieldSelector", "").split(","):
            raise UnscopedReadError(f"refusing to read the {kind} of the whole cluster: {request.url.path_qs}")
        if query.get("watch") == "true":
            wait = self._next_watch[path] - time.monotonic()
            self._next_watch[path] = max(time.monotonic(), self._next_watch[path]) + WATCH_GAP
            if wait > 0:  # a server that accepts and closes at once would otherwise see a thousand requests a second
                await asyncio.sleep(wait * random.uniform(1, 1.3))  # noqa: S311 - jitter, no secret
            return f"WATCH {kind}"
        if path not in self._listed and "resourceVersion" not in query:
            # The first list may come from the watch cache, as a client-go reflector's does; later ones must be
            # consistent reads, or a server that lags could make us believe that a pod is gone.
            request.url = request.url.update_query(resourceVersion="0")
        self._listed.add(path)
        return f"LIST {kind}"


async def _listed(answer: aiohttp.ClientResponse) -> dict[str, Any]:
    """Read the list of an answer as its bytes come, with reduced pods."""
    found = PodList()
    async for data in answer.content.iter_chunked(CHUNK):
        found.feed(data)
    return found.whole()


def _already(found: dict[str, Any]) -> Callable[..., Awaitable[dict[str, Any]]]:
    async def json(**_: object) -> dict[str, Any]:
        return found

    return json


def keepalive_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """Make a socket that notices the silent loss of its other end within a minute (a failed node or load balancer).

    https://man7.org/linux/man-pages/man7/tcp.7.html
    """
    family, kind, protocol, _, _ = address
    made = socket.socket(family=family, type=kind, proto=protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_IDLE)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_EVERY)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, KEEPALIVE_TIMES)
    return made
