"""Pauses that grow: for pods that are set aside, and for another writer of cpusets; and a pace of so many a while."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

ASIDE = 10.0
"""Seconds until a pod that was set aside is tried again, the first time."""
TRUCE, TRUCE_LONGEST = 300.0, 64 * 300.0
"""Seconds for which a writer that fights is left alone: at first, and at most."""


@dataclass(frozen=True, slots=True)
class Retries:
    """Pods that were set aside after a fault of the agent: tried again after 10, 20 ... 1280 seconds.

    Attributes:
        tries: uid -> faults in a row, and when the pod is tried again, on a steady clock in seconds.
    """

    tries: Mapping[str, tuple[int, float]] = field(default_factory=dict)

    def wrong(self, uid: str, now: float) -> Retries:
        """Count a fault with a pod."""
        count, _ = self.tries.get(uid, (0, 0.0))
        return Retries({**self.tries, uid: (count + 1, now + ASIDE * 2.0 ** min(count, 7))})

    def without(self, uids: Collection[str]) -> Retries:
        """Forget pods that went well this time, or are gone."""
        if self.tries.keys().isdisjoint(uids):
            return self
        return Retries({uid: each for uid, each in self.tries.items() if uid not in uids})

    def due(self, now: float) -> tuple[str, ...]:
        """Return the uids of the pods whose pause is over."""
        return tuple(uid for uid, (_, due) in self.tries.items() if due <= now)

    def later(self, now: float) -> set[str]:
        """Return the uids of the pods whose pause goes on."""
        return self.tries.keys() - {*self.due(now)}


@dataclass(frozen=True, slots=True)
class Truce:
    """How long another writer is left alone before the agent writes again, as a test: 5, 10, 20 ... 320 minutes.

    So enforcement comes back without a restart of the agent once the other writer has stopped.

    Attributes:
        count: fights in a row.
        until: when the last truce ends, on a steady clock in seconds; 0.0 before any.
    """

    count: int = 0
    until: float = 0.0

    def begin(self, now: float) -> Truce:
        """Begin a truce after a fight. After a long peace the count starts again at one."""
        count = 1 if now - self.until > _pause(self.count) else self.count + 1
        return Truce(count, now + _pause(count))

    def __str__(self) -> str:
        """Say how long the writer is left alone."""
        again = f" (time {self.count} in a row)" if self.count > 1 else ""
        return f"it is left alone{again}, and tried again after {_pause(self.count) / 60:.0f} minutes"

    def over(self, now: float) -> bool:
        """Say whether a truce began, and has ended."""
        return 0.0 < self.until <= now


@dataclass(frozen=True, slots=True)
class Looks:
    """The look at which each refused pod was decided once more last.

    Attributes:
        count: looks so far.
        last: uid -> the number of that look, and the ledger and the managers of then.
    """

    count: int = 0
    last: Mapping[str, tuple[int, tuple[object, ...]]] = field(default_factory=dict)


@dataclass(slots=True)
class Pace:
    """A token bucket: a bound on how often another program can make the agent do something.

    Attributes:
        every: seconds until one more is allowed.
        burst: how many are allowed at once.
    """

    every: float
    burst: int
    _paid: float = float("-inf")

    @property
    def due(self) -> float:
        """The earliest time at which one more is allowed, on the clock of `take`."""
        return self._paid - (self.burst - 1) * self.every

    def take(self, now: float) -> None:
        """Count one."""
        self._paid = max(self._paid, now) + self.every


def _pause(count: int) -> float:
    return min(TRUCE_LONGEST, TRUCE * 2.0 ** (count - 1))
