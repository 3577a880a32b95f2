"""A clock that a test turns."""

from __future__ import annotations


class Clock:
    """Seconds on a steady clock, as the test says: `clock.now += 60`."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now
