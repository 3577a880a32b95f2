"""How soon a repair is made again: at once, then after 1, 2, 4 ... 60 seconds. Called by the enforcer.

A write is a repair if it restores a value that this agent wrote before. A changed grant is not a repair.

A set that changes again right after its repair is another program's work. Writing as fast as that program does not
help, and every write of a cpuset walks over all tasks below it. After a quiet time the set counts as mended.

A repair is urgent where processes may run on CPUs that another pod holds: it is made at once, ten times in a row, and
then once a second (`Pace`).

A write that the kernel refuses waits likewise, for at most 10 seconds: a try with every event of the node would fail
again. It is tried at once after a change around it: on v1 a set depends on the sets of its parent and its children.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from agent.core.cgroups.desired import children_of, parent_of
from agent.core.cgroups.writers import WINDOW, Repair
from agent.model.cgroup import HANGS, OCCUPIED, VANISHED, Observed, Write, Written
from agent.node.retries import Pace

LONGEST = 60.0
"""Seconds between two repairs of one file of one cgroup at most."""
QUIET = 2 * LONGEST
"""Seconds without drift after which a cgroup counts as mended."""
REFUSED = 10.0
"""Seconds between two tries of a refused write at most; the reconciliation comes that often in any case."""
URGENT, AT_ONCE = 1.0, 10
"""Seconds between two urgent repairs of one file of one cgroup, after so many at once."""
_KEPT = 1000
"""Repairs that are remembered, to find a program that fights with this agent."""

Key = tuple[str, str]
"""(path, file)."""


@dataclass(slots=True)
class _History:
    count: int = 0
    last: float = 0.0
    pace: Pace = field(default_factory=lambda: Pace(URGENT, AT_ONCE))

    def due(self, *, urgent: bool) -> float:
        """Return the earliest time of the next repair."""
        if urgent:
            return self.pace.due
        return self.last + min(LONGEST, 2.0 ** (self.count - 1)) if self.count else 0.0


@dataclass(slots=True)
class _Refusal:
    value: str
    around: object
    count: int
    last: float

    @property
    def pause(self) -> float:
        """Seconds until the write is tried again: none before the second try, which the next look makes."""
        return min(REFUSED, 2.0 ** (self.count - 2)) if self.count > 1 else 0.0


class Backoff:
    """The history of repairs and of refused writes.

    Args:
        clock: seconds of a steady clock.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._histories: dict[Key, _History] = {}
        self._refusals: dict[Key, _Refusal] = {}
        self._waiting: dict[Key, float] = {}
        """(path, file) of a repair that waits -> when it may be made."""
        self._repairs: list[Repair] = []

    def allowed(
        self,
        writes: Iterable[Write],
        last: Mapping[Key, str],
        observed: Observed | None = None,
        urgent: Collection[Key] = (),
    ) -> tuple[Write, ...]:
        """Leave out the repairs, and the refused writes, whose time has not come.

        A file that a plan writes twice (its cgroup jumps) waits with all of its writes or with none.

        Args:
            writes: a whole plan.
            last: (path, file) -> the value that was written and read back before.
            observed: the tree.
            urgent: urgent repairs, as (path, file): processes may run where they must not.
        """
        writes = tuple(writes)
        now = self.clock()
        final = {(write.path, write.file): write.value for write in writes}
        repairs = {key for key, value in final.items() if last.get(key) == value}
        due = {key: self._histories[key].due(urgent=key in urgent) for key in repairs if key in self._histories}
        self._waiting = {key: at for key, at in due.items() if at > now}
        self._refusals = {key: value for key, value in self._refusals.items() if key in final}
        out = self._waiting.keys() | self._in_vain(final, observed, now)
        return tuple(write for write in writes if (write.path, write.file) not in out)

    def _in_vain(self, final: Mapping[Key, str], observed: Observed | None, now: float) -> set[Key]:
        """Find the writes that the kernel refused a moment ago, and around which nothing changed since."""
        around = _around(observed) if self._refusals and observed else {}
        return {
            key
            for key, value in final.items()
            if (refused := self._refusals.get(key)) is not None
            and refused.value == value and refused.around == around.get(key[0]) and refused.last + refused.pause > now
        }  # fmt: skip

    def refused(self, results: Iterable[Written], observed: Observed) -> None:
        """Record the results of writes: a write that the kernel refused waits before it is tried again."""
        now, around = self.clock(), None
        for each in results:
            key = each.write.path, each.write.file
            if each.error in ("", VANISHED):
                self._refusals.pop(key, None)
            elif each.error not in (HANGS, OCCUPIED):  # these did not reach the kernel
                around = around or _around(observed)
                before, place = self._refusals.get(key), around.get(each.write.path)
                same = before is not None and (before.value, before.around) == (each.write.value, place)
                count = before.count + 1 if before is not None and same else 1
                self._refusals[key] = _Refusal(each.write.value, place, count, now)

    def done(self, writes: Iterable[Write], last: Mapping[Key, str], exclusive: Collection[str]) -> None:
        """Count the repairs among writes that were just tried, accepted by the kernel or not.

        Args:
            writes: the tried ones of `allowed`.
            last: (path, file) -> the value that was written before them.
            exclusive: paths of cgroups with exclusive CPUs.
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
            history.pace.take(now)
            if write.path in exclusive:
                self._repairs.append(Repair(*key, first[key].old, write.cause, now))
        self._repairs = [each for each in self._repairs[-_KEPT:] if now - each.at <= WINDOW]

    def retry(self) -> None:
        """Let refused writes be tried again now."""
        for each in self._refusals.values():
            each.last = float("-inf")

    @property
    def repairs(self) -> tuple[Repair, ...]:
        """Repairs of exclusive cgroups within the last minute."""
        return tuple(self._repairs)

    @property
    def due(self) -> float | None:
        """When the first waiting write may be made; None when no write waits.

        A write with the longest pause is left to the next reconciliation.
        """
        due = [*self._waiting.values()]
        due += [each.last + each.pause for each in self._refusals.values() if each.pause < REFUSED]
        return min(due, default=None)

    def forget(self, present: Collection[str]) -> None:
        """Forget the cgroups that are not in `present`."""
        self._histories = {key: value for key, value in self._histories.items() if key[0] in present}
        self._refusals = {key: value for key, value in self._refusals.items() if key[0] in present}
        self._waiting = {key: due for key, due in self._waiting.items() if key[0] in present}


def _around(observed: Observed) -> dict[str, object]:
    """Collect, by path, what the kernel's answer to a write depends on: the sets of cgroup, parent and children."""
    sets = {each.path: (each.cpus, each.mems) for each in observed.cgroups}
    below = {path: [(kid.path, kid.cpus, kid.mems) for kid in kids] for path, kids in children_of(observed).items()}
    return {path: (mine, sets.get(parent_of(path)), below.get(path)) for path, mine in sets.items()}
