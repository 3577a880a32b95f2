"""What is left alone for a while, longer each time: pods that break something, another writer; and a pace."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

ASIDE = 10.0
"""Seconds before what went wrong with a pod is tried again, at first."""
TRUCE, TRUCE_LONGEST = 300.0, 64 * 300.0
"""Seconds for which a writer that fights is left alone: at first, and at most."""


@dataclass(frozen=True, slots=True)
class Retries:
    """Pods with which something goes wrong that is no fault of theirs: tried again after 10, 20 ... 1280 seconds.

    Attributes:
        tries: uid -> how often it went wrong in a row, and when it is tried again, on a steady clock in seconds.
    """

    tries: Mapping[str, tuple[int, float]] = field(default_factory=dict)

    def wrong(self, uid: str, now: float) -> Retries:
        """It went wrong."""
        count, _ = self.tries.get(uid, (0, 0.0))
        return Retries({**self.tries, uid: (count + 1, now + ASIDE * 2.0 ** min(count, 7))})

    def without(self, uids: Collection[str]) -> Retries:
        """It did not go wrong this time, or they are gone."""
        if self.tries.keys().isdisjoint(uids):
            return self
        return Retries({uid: each for uid, each in self.tries.items() if uid not in uids})

    def due(self, now: float) -> tuple[str, ...]:
        """Those whose time has come."""
        return tuple(uid for uid, (_, due) in self.tries.items() if due <= now)

    def later(self, now: float) -> set[str]:
        """The others."""
        return self.tries.keys() - {*self.due(now)}


@dataclass(frozen=True, slots=True)
class Truce:
    """How long another writer is left alone before it is tried whether it still writes: 5, 10, 20 ... 320 minutes.

    A node where nobody fights any more would otherwise stay without enforcement until somebody restarts the agent.

    Attributes:
        count: fights in a row.
        until: when the last truce ends, on a steady clock in seconds; 0.0 before any.
    """

    count: int = 0
    until: float = 0.0

    def begin(self, now: float) -> Truce:
        """A fight was found. After a long peace the count begins anew."""
        count = 1 if now - self.until > _pause(self.count) else self.count + 1
        return Truce(count, now + _pause(count))

    def __str__(self) -> str:
        """How long the writer is left alone, in words."""
        again = f" (time {self.count} in a row)" if self.count > 1 else ""
        return f"it is left alone{again}, and tried again after {_pause(self.count) / 60:.0f} minutes"

    def over(self, now: float) -> bool:
        """Whether one began, and its time is over."""
        return 0.0 < self.until <= now


@dataclass(frozen=True, slots=True)
class Looks:
    """At which look refused pods were decided once more last.

    Attributes:
        count: looks so far.
        last: uid -> the look's number, and the identities of the ledger and the managers of then.
    """

    count: int = 0
    last: Mapping[str, tuple[int, tuple[object, ...]]] = field(default_factory=dict)


@dataclass(slots=True)
class Pace:
    """So many at once, and one more after each pause: a bound on what another program makes this one do.

    Attributes:
        every: seconds.
        burst: how many at once.
    """

    every: float
    burst: int
    _paid: float = float("-inf")

    @property
    def due(self) -> float:
        """The earliest time of the next one, on the clock of `take`."""
        return self._paid - (self.burst - 1) * self.every

    def take(self, now: float) -> None:
        """Count one."""
        self._paid = max(self._paid, now) + self.every


def _pause(count: int) -> float:
    return min(TRUCE_LONGEST, TRUCE * 2.0 ** (count - 1))
