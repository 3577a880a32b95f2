"""What was told of whom the kernel does not have as the ledger says; and how often that may change its word.

That a grant is not in force is told at once, and so is its end. Where it comes and goes (somebody fights over a set,
a write is refused now and then), its end is told later and later, and so is another reason for it: a pod's condition
is changed at most 22 times in the first hour and 6 times in each one after it. What stands meanwhile errs on the safe
side.

What lacks because a plan was given up in its middle is no lapse: all of it is planned anew at once. It is told
only of pods that are told of in that moment anyway; the next look takes it back, whatever came before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from agent.core.cgroups.enforced import Unenforced

FIRST, LONGEST = 30.0, 1800.0
"""Seconds for which the word of the second lapse stands at least; it doubles up to the longest."""
CALM = 2 * LONGEST
"""Seconds without a lapse after which the next one counts as the first."""


@dataclass(slots=True)
class _Lapses:
    count: int = 0
    words: int = 0
    at: float = 0.0
    """When the word that stands was told."""


class Standing:
    """Which pods are told to lack something, and why.

    Args:
        clock: seconds of a steady clock.

    Attributes:
        told: uid -> container -> why; replaced, never changed.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.told: Mapping[str, Unenforced] = {}
        self._lapses: dict[str, _Lapses] = {}
        self._passing: set[str] = set()
        """Uids of pods whose word is no lapse."""

    def turn(
        self, found: Mapping[str, Unenforced], at_once: Collection[str] = (), *, given_up: bool = False
    ) -> list[str]:
        """The kernel was looked at; uids of pods of which something else is to be told now.

        Args:
            found: who lacks something, and why.
            at_once: of whom everything is told anyway.
            given_up: the plan was.
        """
        now, changed = self._clock(), list[str]()
        for uid in sorted(found.keys() | self.told.keys()):
            new, old = found.get(uid, {}), self.told.get(uid, {})
            stands = bool(old) and uid not in self._passing
            if new == old or (given_up and (stands or uid not in at_once)):
                continue
            if given_up:
                self._passing.add(uid)
            elif stands or new:
                lapses = self._lapses.setdefault(uid, _Lapses())
                pause = _pause(lapses.words if new else lapses.count)
                if stands and uid not in at_once and now < lapses.at + pause:
                    continue
                if not stands and now - lapses.at > CALM:
                    lapses.count = lapses.words = 0
                lapses.count += not stands
                lapses.words += bool(new)
                lapses.at = now
            changed.append(uid)
        if not given_up:
            self._passing.clear()
        if changed:
            both = {**self.told, **{uid: dict(found.get(uid, {})) for uid in changed}}
            self.told = {uid: why for uid, why in both.items() if why}
        return changed

    def forget(self, uid: str) -> None:
        """A pod is gone."""
        self.told = {each: why for each, why in self.told.items() if each != uid}
        self._lapses.pop(uid, None)
        self._passing.discard(uid)


def _pause(number: int) -> float:
    """Seconds that a word stands before it is taken back: nothing the first time."""
    return min(LONGEST, FIRST * 2.0 ** (number - 2)) if number > 1 else 0.0
