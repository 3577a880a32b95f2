"""A share of one CPU for what readers ask for, so that decisions keep the rest.

A program that reaches the node page may ask in a loop, and every explanation costs the agent a part of a second. What
a request costs is the CPU time of its own thread: a machine that is busy with something else makes no reader wait.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SHARE = 0.05
"""Of one CPU, as much as /metrics has."""
AHEAD = 1.0
"""Seconds of CPU time that may be used at once after a time of rest: a person opens the page and asks a few times."""


class BusyError(Exception):
    """The share is used up."""


class CpuShare:
    """Any thread may call.

    Args:
        share: of one CPU.
        ahead: seconds of CPU time that may be used before they are there.
        clock: seconds, monotonic.
        used: seconds of CPU time of the calling thread.
    """

    def __init__(
        self, share: float = SHARE, ahead: float = AHEAD, *, clock: Callable[[], float] = time.monotonic,
        used: Callable[[], float] = time.thread_time,
    ) -> None:  # fmt: skip
        self._share, self._ahead = share, ahead
        self._clock, self._used = clock, used
        self._lock, self._mine = threading.Lock(), threading.local()
        self._debt, self._at = 0.0, clock()

    def wait(self) -> float:
        """Seconds until something may be made; 0 for now."""
        with self._lock:
            return max(0.0, (self._owed() - self._ahead) / self._share)

    def _owed(self) -> float:
        """Needs the lock. What was used and is not paid back by now."""
        now = self._clock()
        self._debt, self._at = max(0.0, self._debt - self._share * (now - self._at)), now
        return self._debt

    @contextmanager
    def charged(self) -> Iterator[None]:
        """What is done inside counts; within another such block it counts once."""
        began, before = self._used(), getattr(self._mine, "charged", 0.0)
        try:
            yield
        finally:
            inside = getattr(self._mine, "charged", 0.0) - before
            used = self._used() - began - inside
            self._mine.charged = before + inside + used
            with self._lock:
                self._debt = self._owed() + used

    @contextmanager
    def making(self) -> Iterator[None]:
        """As `charged`, for something that costs much.

        Raises:
            BusyError: the share is used up.
        """
        if self.wait():
            raise BusyError
        with self.charged():
            yield
