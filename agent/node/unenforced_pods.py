"""Which pods are reported as not enforced, and how often a report may change.

A *lapse* is a grant that is not in force: the pod's cgroups differ from the ledger. A lapse is reported at once, and
so is the end of the first one. Where lapses come and go (another program fights over a set, the kernel refuses a
write now and then), each end, and each other reason, is reported later than the one before. So a pod's condition
changes at most 22 times in the first hour and 6 times in every later hour. A report that is kept longer errs on the
safe side: it says that the grant is not in force.

A plan that was given up in its middle makes no lapse, since the next plan follows at once. What it left out is
reported only for pods that are reported at that moment anyway; the next look takes the report back.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from agent.core.cgroups.enforced import Unenforced

FIRST, LONGEST = 30.0, 1800.0
"""Seconds for which the report of the second lapse is kept at least; each further lapse doubles it up to LONGEST."""
CALM = 2 * LONGEST
"""Seconds without a lapse after which the next lapse counts as the first."""


@dataclass(frozen=True, slots=True)
class _Lapses:
    count: int = 0
    reports: int = 0
    at: float = 0.0
    """When the last report was made."""


@dataclass(frozen=True, slots=True)
class UnenforcedPods:
    """Which pods are reported as not enforced, and why.

    Attributes:
        reported: uid -> container -> why.
        lapses: uid -> how often its grant was not in force.
        passing: uids of pods whose report comes from a plan that was given up: no lapse.
    """

    reported: Mapping[str, Unenforced] = field(default_factory=dict)
    lapses: Mapping[str, _Lapses] = field(default_factory=dict)
    passing: frozenset[str] = frozenset()

    def turn(
        self, found: Mapping[str, Unenforced], now: float, at_once: Collection[str] = (), *, given_up: bool = False
    ) -> tuple[UnenforcedPods, list[str]]:
        """Follow a look at the kernel; return the reports from now on, and uids of the pods whose report changed.

        Args:
            found: pods that lack something of their grants: uid -> container -> why.
            now: seconds of a steady clock.
            at_once: uids of pods that are reported at this moment anyway.
            given_up: the plan was given up in its middle.
        """
        all_lapses, passing, changed = dict[str, _Lapses](), set(self.passing), list[str]()
        for uid in sorted(found.keys() | self.reported.keys()):
            new, old = found.get(uid, {}), self.reported.get(uid, {})
            lapsed = bool(old) and uid not in passing
            if new == old or (given_up and (lapsed or uid not in at_once)):
                continue
            if given_up:
                passing.add(uid)
            elif lapsed or new:
                lapses = self.lapses.get(uid, _Lapses())
                pause = _pause(lapses.reports if new else lapses.count)
                if lapsed and uid not in at_once and now < lapses.at + pause:
                    continue
                if not lapsed and now - lapses.at > CALM:
                    lapses = _Lapses()
                all_lapses[uid] = _Lapses(lapses.count + (not lapsed), lapses.reports + bool(new), now)
            changed.append(uid)
        if not changed and (given_up or not passing):
            return self, changed
        both = {**self.reported, **{uid: dict(found.get(uid, {})) for uid in changed}}
        kept = {uid: why for uid, why in both.items() if why}
        return UnenforcedPods(kept, {**self.lapses, **all_lapses}, frozenset(passing if given_up else ())), changed

    def without(self, uids: Collection[str]) -> UnenforcedPods:
        """Forget pods that are gone."""
        return UnenforcedPods(
            {uid: why for uid, why in self.reported.items() if uid not in uids},
            {uid: each for uid, each in self.lapses.items() if uid not in uids},
            self.passing.difference(uids),
        )


def _pause(number: int) -> float:
    """Seconds for which a report is kept before it changes: none for the first."""
    return min(LONGEST, FIRST * 2.0 ** (number - 2)) if number > 1 else 0.0
