"""How soon the same thing is repaired again: at once, then after 1, 2, 4 ... 60 seconds. Called by the enforcer.

A cgroup that is put right and wrong again at once is somebody's work; writing as fast as they do helps nobody, and
every write of a cpuset walks over all tasks below it. After a quiet time it counts as mended.

A write is a repair when the same value was written there before and is gone. A grant that changes is none.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from agent.core.writers import WINDOW, Repair
from agent.model.cgroup import Write

LONGEST = 60.0
"""Seconds between two repairs of one file of one cgroup, at most."""
QUIET = 2 * LONGEST
"""Seconds without drift after which a cgroup counts as mended."""
_KEPT = 1000
"""Repairs that are remembered, for telling who fights with us."""

Key = tuple[str, str]
"""(path, file)."""


@dataclass(slots=True)
class _History:
    count: int = 0
    last: float = 0.0

    @property
    def due(self) -> float:
        """Earliest time of the next repair."""
        return self.last + min(LONGEST, 2.0 ** (self.count - 1)) if self.count else 0.0


class Backoff:
    """The history of repairs.

    Args:
        clock: seconds of a steady clock.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._histories: dict[Key, _History] = {}
        self._waiting: set[Key] = set()
        self._repairs: list[Repair] = []

    def allowed(self, writes: Iterable[Write], last: Mapping[Key, str]) -> tuple[Write, ...]:
        """The writes without those repairs whose time has not come.

        A file that a plan writes twice (a cgroup jumps) waits with all of its writes or with none.

        Args:
            writes: a whole plan.
            last: what was written and read back before.
        """
        writes = tuple(writes)
        now = self.clock()
        final = {(write.path, write.file): write.value for write in writes}
        repairs = {key for key, value in final.items() if last.get(key) == value}
        self._waiting = {key for key in repairs if key in self._histories and self._histories[key].due > now}
        return tuple(write for write in writes if (write.path, write.file) not in self._waiting)

    def done(self, writes: Iterable[Write], last: Mapping[Key, str], exclusive: Collection[str]) -> None:
        """What was just tried, whether or not the kernel took it.

        Args:
            writes: those of `allowed`.
            last: as it was before.
            exclusive: paths of cgroups that hold CPUs for themselves.
        """
        now = self.clock()
        first: dict[Key, Write] = {}
        final: dict[Key, Write] = {}
        for write in writes:
            first.setdefault((write.path, write.file), write)
            final[write.path, write.file] = write
        for key, write in final.items():
            if last.get(key) != write.value:
                continue
            history = self._histories.setdefault(key, _History())
            history.count = 1 if now - history.last > QUIET else history.count + 1
            history.last = now
            if write.path in exclusive:
                self._repairs.append(Repair(*key, first[key].old, write.cause, now))
        self._repairs = [each for each in self._repairs[-_KEPT:] if now - each.at <= WINDOW]

    @property
    def repairs(self) -> tuple[Repair, ...]:
        """Repairs of exclusive cgroups within the last minute."""
        return tuple(self._repairs)

    def wait(self) -> float | None:
        """Seconds until the first repair that waits may be made; None when none waits."""
        due = [self._histories[key].due for key in self._waiting]
        return max(0.0, min(due) - self.clock()) if due else None

    def forget(self, present: Collection[str]) -> None:
        """Cgroups that are not present are gone."""
        self._histories = {key: value for key, value in self._histories.items() if key[0] in present}
        self._waiting = {key for key in self._waiting if key[0] in present}
