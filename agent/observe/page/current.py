"""What is shown now: compared with the node when a reader asks, made once per change for all readers, then kept.

What is made takes its CPU time from a share (`agent.observe.share`): where that is used up, BusyError is raised.

`PageSource` gives the values (`agent.app.page.server`). Revisions are texts that differ whenever anything shown
differs, and from those of the agent before a restart. Called from the server's threads; used by `server` alone.
"""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from agent.observe.share import CpuShare

LOOK_EVERY = 0.25
"""Seconds between two looks, for any number of readers."""


Seen = TypeVar("Seen")


class PageSource(Protocol[Seen]):
    """Where the values come from. Waits for no lock that the engine holds."""

    def look(self) -> Seen:
        """Everything that is shown, as one value; equal values show the same."""

    def node(self, seen: Seen) -> dict[str, Any]:
        """The node as JSON."""

    def pods(self, seen: Seen) -> list[dict[str, Any]]:
        """The pods as JSON."""

    def explanation(self, seen: Seen, uid: str) -> dict[str, Any] | None:
        """Why a pod got what it got; None for a pod that is not known."""

    def picture(self, seen: Seen, *, full: bool, bare: bool) -> str:
        """The drawing, SVG."""


class Current(Generic[Seen]):
    """The answers of a source, kept until what they are made of changes.

    Args:
        source: gives the values.
        share: what is made takes its CPU time from it.
        clock: seconds, monotonic.
    """

    def __init__(
        self, source: PageSource[Seen], share: CpuShare, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._source, self._share, self._clock = source, share, clock
        self._lock, self._explaining = threading.Lock(), threading.Lock()
        self._life = secrets.token_hex(4)
        self._number, self._looked = 0, float("-inf")
        self._seen: Seen | None = None
        self._made: dict[str, bytes] = {}

    def revision(self) -> str:
        """Of what is shown now."""
        with self._lock:
            return self._look()[0]

    def node(self) -> bytes:
        """/api/node."""
        return self._json("node", self._source.node)

    def pods(self) -> bytes:
        """/api/pods."""
        return self._json("pods", lambda seen: {"pods": self._source.pods(seen)})

    def explanation(self, uid: str) -> bytes | None:
        """/api/pods/<uid>/explanation; None for a pod that is not known.

        It takes a while on large machines, since remedies are tried: one at a time, and other requests do not wait.
        """
        name = f"explanation {uid}"
        with self._explaining:
            with self._lock:
                revision, seen = self._look()
                if name in self._made:
                    return self._made[name]
            with self._share.making():
                found = self._source.explanation(seen, uid)
                made = None if found is None else _dumped({"revision": revision, **found})
            if made is None:
                return None
            with self._lock:
                if self._look()[0] == revision:
                    self._made[name] = made
            return made

    def picture(self, *, full: bool, bare: bool) -> bytes:
        """/api/picture.svg."""
        name = f"picture {full} {bare}"
        with self._lock:
            _, seen = self._look()
            return self._kept(name, lambda: self._source.picture(seen, full=full, bare=bare).encode())

    def _json(self, name: str, make: Callable[[Seen], dict[str, Any]]) -> bytes:
        with self._lock:
            revision, seen = self._look()
            return self._kept(name, lambda: _dumped({"revision": revision, **make(seen)}))

    def _look(self) -> tuple[str, Seen]:
        """The revision and what it shows; needs the lock."""
        now, seen = self._clock(), self._seen
        if seen is None or now - self._looked >= LOOK_EVERY:
            self._looked, found = now, self._source.look()
            if seen is None or found != seen:
                self._seen = seen = found
                self._number += 1
                self._made.clear()
        return f"{self._life}-{self._number}", seen

    def _kept(self, name: str, make: Callable[[], bytes]) -> bytes:
        found = self._made.get(name)
        if found is None:
            with self._share.making():
                found = self._made[name] = make()
        return found


def _dumped(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":"), default=str).encode()  # facts of refusals may be sets
