"""How soon the same thing is written again: at once, then after 1, 2, 4 ... 60 seconds. Called by the enforcer.

A cgroup that is put right and wrong again at once is somebody's work; writing as fast as they do helps nobody, and
every write of a cpuset walks over all tasks below it. After a quiet time it counts as mended.

Where processes may run on CPUs that another pod holds there is no such pause: that is repaired at once, ten times in
a row, and then once a second (`Pace`).

A write is a repair when the same value was written there before and is gone. A grant that changes is none.

So it is with a write that the kernel refuses, up to 10 seconds: nothing comes of trying it with every event of the
node. It is tried at once when what lies around it changed: on v1 a set depends on its parent's and its children's.
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
"""Seconds between two repairs of one file of one cgroup, at most."""
QUIET = 2 * LONGEST
"""Seconds without drift after which a cgroup counts as mended."""
REFUSED = 10.0
"""Seconds between two tries of what the kernel refuses, at most; the reconciliation looks that often in any case."""
URGENT, AT_ONCE = 1.0, 10
"""Seconds between two urgent repairs of one file of one cgroup, after so many at once."""
_KEPT = 1000
"""Repairs that are remembered, for telling who fights with us."""

Key = tuple[str, str]
"""(path, file)."""


@dataclass(slots=True)
class _History:
    count: int = 0
    last: float = 0.0
    pace: Pace = field(default_factory=lambda: Pace(URGENT, AT_ONCE))

    def due(self, *, urgent: bool) -> float:
        """Earliest time of the next repair."""
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
        """Seconds until it is tried again: the second try is for the next look."""
        return min(REFUSED, 2.0 ** (self.count - 2)) if self.count > 1 else 0.0


class Backoff:
    """The history of repairs, and of what was refused.

    Args:
        clock: seconds of a steady clock.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._histories: dict[Key, _History] = {}
        self._refusals: dict[Key, _Refusal] = {}
        self._waiting: dict[Key, float] = {}
        """What waits -> when it may be made."""
        self._repairs: list[Repair] = []

    def allowed(
        self,
        writes: Iterable[Write],
        last: Mapping[Key, str],
        observed: Observed | None = None,
        urgent: Collection[Key] = (),
    ) -> tuple[Write, ...]:
        """The writes without those repairs and repetitions whose time has not come.

        A file that a plan writes twice (a cgroup jumps) waits with all of its writes or with none.

        Args:
            writes: a whole plan.
            last: what was written and read back before.
            observed: the tree.
            urgent: what must not wait, since processes may run where they must not.
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
        """What the kernel refused a moment ago, with all around it as it was then."""
        around = _around(observed) if self._refusals and observed else {}
        return {
            key
            for key, value in final.items()
            if (refused := self._refusals.get(key)) is not None
            and refused.value == value and refused.around == around.get(key[0]) and refused.last + refused.pause > now
        }  # fmt: skip

    def refused(self, results: Iterable[Written], observed: Observed) -> None:
        """What came of writes: those that the kernel refused wait before they are tried again."""
        now, around = self.clock(), None
        for each in results:
            key = each.write.path, each.write.file
            if each.error in ("", VANISHED):
                self._refusals.pop(key, None)
            elif each.error not in (HANGS, OCCUPIED):  # of these, nothing reached the kernel
                around = around or _around(observed)
                before, place = self._refusals.get(key), around.get(each.write.path)
                same = before is not None and (before.value, before.around) == (each.write.value, place)
                count = before.count + 1 if before is not None and same else 1
                self._refusals[key] = _Refusal(each.write.value, place, count, now)

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
            history.pace.take(now)
            if write.path in exclusive:
                self._repairs.append(Repair(*key, first[key].old, write.cause, now))
        self._repairs = [each for each in self._repairs[-_KEPT:] if now - each.at <= WINDOW]

    def retry(self) -> None:
        """What was refused may be tried again now."""
        for each in self._refusals.values():
            each.last = float("-inf")

    @property
    def repairs(self) -> tuple[Repair, ...]:
        """Repairs of exclusive cgroups within the last minute."""
        return tuple(self._repairs)

    @property
    def due(self) -> float | None:
        """When the first repair that waits may be made; None when none waits.

        What is refused again and again is looked at with the next reconciliation.
        """
        due = [*self._waiting.values()]
        due += [each.last + each.pause for each in self._refusals.values() if each.pause < REFUSED]
        return min(due, default=None)

    def forget(self, present: Collection[str]) -> None:
        """Cgroups that are not present are gone."""
        self._histories = {key: value for key, value in self._histories.items() if key[0] in present}
        self._refusals = {key: value for key, value in self._refusals.items() if key[0] in present}
        self._waiting = {key: due for key, due in self._waiting.items() if key[0] in present}


def _around(observed: Observed) -> dict[str, object]:
    """What the kernel's answer to a write depends on, by path: the sets of a cgroup, its parent and its children."""
    sets = {each.path: (each.cpus, each.mems) for each in observed.cgroups}
    below = {path: [(kid.path, kid.cpus, kid.mems) for kid in kids] for path, kids in children_of(observed).items()}
    return {path: (mine, sets.get(parent_of(path)), below.get(path)) for path, mine in sets.items()}
