"""Keeps the objects of a kind in sight: a list, page by page, then a watch from its resourceVersion.

Each object is reduced as it comes: one object is in memory at a time, and the reader's result is what is kept. After
a watch's version has expired (410) the kind is listed again; objects that are missing then have left.
https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from agent.errors import KubeError, MalformedError
from agent.kube.client import CONNECT_SECONDS, KubeClient, Response
from agent.kube.objects.listing import CHUNK, LARGEST, Items
from agent.kube.objects.pod_stream import read
from agent.model.fields import mapping_of

PAGE = 500
GONE = 410
LASTS = (240, 360)
"""Seconds after which the server ends a watch; each takes another value of this range."""
SILENCE = 130.0
"""Seconds without a byte after which a watch is opened again: two bookmarks are missing."""
FIRST, CAP = 0.2, 30.0
"""Seconds before the next attempt after a failure: the first, and the longest."""

T = TypeVar("T")
Body = Mapping[str, Any]
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Arrived(Generic[T]):
    """An object is new, or has changed."""

    kind: str
    key: str
    value: T


@dataclass(frozen=True, slots=True)
class Left:
    """An object that had arrived is out of sight: deleted, or not selected any more."""

    kind: str
    key: str


@dataclass(frozen=True, slots=True)
class Listed:
    """A whole list has arrived."""

    kind: str


News = Arrived[Any] | Left | Listed
Reader = Callable[[Body, bool], T | None]
"""Makes of an object what is kept; None leaves it out. The flag tells that the object had arrived before."""


class ListWatch(Generic[T]):
    """One kind of object.

    Args:
        client: of the API.
        kind: its name in news.
        path: of the list.
        query: selectors.
        keep: see `Reader`; it may raise MalformedError, and the object counts as absent.
        tell: takes news, in order; it may block.
        heard: called whenever the server said something.
        once: list, and watch nothing.
    """

    def __init__(
        self, client: KubeClient, kind: str, path: str, keep: Reader[T], tell: Callable[[News], None], *,
        query: Sequence[tuple[str, str]] = (), heard: Callable[[], None] = lambda: None,
        once: bool = False,
    ) -> None:  # fmt: skip
        self._once = once
        self._client, self.kind, self._path, self._query = client, kind, path, tuple(query)
        self._keep, self._tell, self._heard = keep, tell, heard
        self._known: set[str] = set()
        self._version = ""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"watch {kind}", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Tell nothing from now on; the thread ends with its connection."""
        self._stopping.set()

    def _run(self) -> None:
        delay = FIRST
        while not self._stopping.is_set():
            began = time.monotonic()
            try:
                if not self._version:
                    self._list()
                if self._once:
                    return
                self._watch()
                delay = FIRST
            except (KubeError, MalformedError) as error:
                if isinstance(error, KubeError) and error.status == GONE:
                    self._version = ""
                if time.monotonic() - began > CAP:  # it was good for a while
                    delay = FIRST
                _log.warning("the watch of %s ended (%s); trying again", self.kind, error)
                self._stopping.wait(random.uniform(delay / 2, delay))  # noqa: S311 - jitter, no secret
                delay = min(CAP, 2 * delay)

    def _list(self) -> None:
        """Read all pages; an expired continue token begins again."""
        token, seen = "", set[str]()
        while True:
            query = [*self._query, ("limit", f"{PAGE}"), *([("continue", token)] if token else [])]
            found = self._client.call(
                "GET", self._path, query=query, verb=f"LIST {self.kind}", reader=partial(self._page, seen)
            )
            metadata = mapping_of(found.get("metadata"))
            token = str(metadata.get("continue") or "")
            if not token:
                break
        for key in self._known - seen:
            self._send(Left(self.kind, key))
        self._known &= seen
        self._version = str(metadata.get("resourceVersion") or "")
        self._send(Listed(self.kind))

    def _page(self, seen: set[str], response: Response) -> dict[str, Any]:
        items = Items(part=True)
        for data in response.stream(CHUNK, decode_content=True):
            self._heard()
            for each in items.feed(data):
                if each.whole:
                    key = self._take(_parsed(each.raw))
                    seen.add(key)
        return items.close()

    def _watch(self) -> None:
        lasts = random.randint(*LASTS)  # noqa: S311 - jitter, no secret
        query = [
            *self._query, ("watch", "true"), ("allowWatchBookmarks", "true"), ("resourceVersion", self._version),
            ("timeoutSeconds", f"{lasts}"),
        ]  # fmt: skip
        self._client.call(
            "GET", self._path, query=query, verb=f"WATCH {self.kind}", reader=self._follow,
            within=(CONNECT_SECONDS, SILENCE),
        )  # fmt: skip

    def _follow(self, response: Response) -> dict[str, Any]:
        for line in _lines(response, self._heard):
            if self._stopping.is_set():
                break
            event = mapping_of(_parsed(line))
            body = mapping_of(event.get("object"))
            if event.get("type") == "ERROR":
                self._version = ""
                raise KubeError(int(body.get("code") or 0), f"watch of {self.kind}: {body.get('message')}")
            if event.get("type") == "DELETED":
                self._drop(key_of(body))
            elif event.get("type") in ("ADDED", "MODIFIED"):
                self._take(body)
            version = mapping_of(body.get("metadata")).get("resourceVersion")
            self._version = str(version or self._version)
        return {}

    def _take(self, body: Any) -> str:  # noqa: ANN401 - JSON
        body = mapping_of(body)
        key = key_of(body)
        try:
            value = self._keep(body, key in self._known)
        except MalformedError as error:
            _log.warning("%s %s cannot be read: %s", self.kind, key, error)
            value = None
        if value is None:
            return key
        self._known.add(key)
        self._send(Arrived(self.kind, key, value))
        return key

    def _drop(self, key: str) -> None:
        if key in self._known:
            self._known.discard(key)
            self._send(Left(self.kind, key))

    def _send(self, news: News) -> None:
        if not self._stopping.is_set():
            self._tell(news)


def key_of(body: Body) -> str:
    """Return an object's "namespace/name", or its name."""
    metadata = mapping_of(body.get("metadata"))
    space, name = str(metadata.get("namespace") or ""), str(metadata.get("name") or "")
    return f"{space}/{name}" if space else name


def _parsed(text: bytes) -> Any:  # noqa: ANN401 - JSON
    try:
        return read(text)
    except ValueError as error:
        raise MalformedError(f"no JSON: {str(error)[:100]}") from None


def _lines(response: Response, heard: Callable[[], None]) -> Iterator[bytes]:
    """Yield the lines of a watch; one that is larger than any object is skipped."""
    parts, size = list[bytes](), 0
    for data in response.stream(CHUNK, decode_content=True):
        heard()
        *ended, rest = data.split(b"\n")
        for each in ended:
            if size + len(each) <= LARGEST and (line := b"".join([*parts, each])).strip():
                yield line
            parts, size = [], 0
        size += len(rest)
        parts = [*parts, rest] if size <= LARGEST else []
