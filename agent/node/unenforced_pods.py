"""What was told of whom the kernel does not have as the ledger says; and how often that may change its word.

That a grant is not in force is told at once, and so is its end. Where it comes and goes (somebody fights over a set,
a write is refused now and then), its end is told later and later, and so is another reason for it: a pod's condition
is changed at most 22 times in the first hour and 6 times in each one after it. What stands meanwhile errs on the safe
side.

What lacks because a plan was given up in its middle is no lapse: all of it is planned anew at once. It is told
only of pods that are told of in that moment anyway; the next look takes it back, whatever came before.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from agent.core.cgroups.enforced import Unenforced

FIRST, LONGEST = 30.0, 1800.0
"""Seconds for which the word of the second lapse stands at least; it doubles up to the longest."""
CALM = 2 * LONGEST
"""Seconds without a lapse after which the next one counts as the first."""


@dataclass(frozen=True, slots=True)
class _Lapses:
    count: int = 0
    words: int = 0
    at: float = 0.0
    """When the word that stands was told."""


@dataclass(frozen=True, slots=True)
class UnenforcedPods:
    """Which pods are told to lack something, and why.

    Attributes:
        reported: uid -> container -> why.
        lapses: how often each pod lacked something.
        passing: uids of pods whose word is no lapse.
    """

    reported: Mapping[str, Unenforced] = field(default_factory=dict)
    lapses: Mapping[str, _Lapses] = field(default_factory=dict)
    passing: frozenset[str] = frozenset()

    def turn(
        self, found: Mapping[str, Unenforced], now: float, at_once: Collection[str] = (), *, given_up: bool = False
    ) -> tuple[UnenforcedPods, list[str]]:
        """The kernel was looked at: what stands now, and uids of pods of which something else is to be told.

        Args:
            found: who lacks something, and why.
            now: seconds of a steady clock.
            at_once: of whom everything is told anyway.
            given_up: the plan was.
        """
        all_lapses, passing, changed = dict[str, _Lapses](), set(self.passing), list[str]()
        for uid in sorted(found.keys() | self.reported.keys()):
            new, old = found.get(uid, {}), self.reported.get(uid, {})
            stands = bool(old) and uid not in passing
            if new == old or (given_up and (stands or uid not in at_once)):
                continue
            if given_up:
                passing.add(uid)
            elif stands or new:
                lapses = self.lapses.get(uid, _Lapses())
                pause = _pause(lapses.words if new else lapses.count)
                if stands and uid not in at_once and now < lapses.at + pause:
                    continue
                if not stands and now - lapses.at > CALM:
                    lapses = _Lapses()
                all_lapses[uid] = _Lapses(lapses.count + (not stands), lapses.words + bool(new), now)
            changed.append(uid)
        if not changed and (given_up or not passing):
            return self, changed
        both = {**self.reported, **{uid: dict(found.get(uid, {})) for uid in changed}}
        told = {uid: why for uid, why in both.items() if why}
        return UnenforcedPods(told, {**self.lapses, **all_lapses}, frozenset(passing if given_up else ())), changed

    def without(self, uids: Collection[str]) -> UnenforcedPods:
        """Pods are gone."""
        return UnenforcedPods(
            {uid: why for uid, why in self.reported.items() if uid not in uids},
            {uid: each for uid, each in self.lapses.items() if uid not in uids},
            self.passing.difference(uids),
        )


def _pause(number: int) -> float:
    """Seconds that a word stands before it is taken back: nothing the first time."""
    return min(LONGEST, FIRST * 2.0 ** (number - 2)) if number > 1 else 0.0
