"""Which pods lost the words that they carried, and when they are told again. Needs the publisher's lock.

Anybody who may write to a pod can change what it carries. A watch also brings events that are older than what was
told: only a pod that was seen with its report, and then without it, has lost it.
"""

from __future__ import annotations

FIRST, LONGEST = 64.0, 3600.0
"""Seconds until a pod is told again; twice as many each time: whoever writes over it at once gets no storm."""


class Overwritten:
    """By the API's uid of a pod."""

    def __init__(self) -> None:
        self.lost: set[str] = set()
        """Pods that were seen without what they carried, and are to be told again."""
        self._carried: set[str] = set()
        self._often: dict[str, int] = {}

    def seen_with(self, uid: str) -> None:
        """The pod carries what it was told."""
        self._carried.add(uid)
        self.lost.discard(uid)

    def seen_without(self, uid: str) -> float | None:
        """The pod does not carry it: seconds until it is told again; None when it was never seen with it."""
        if uid not in self._carried:
            return None
        self._carried.discard(uid)
        self.lost.add(uid)
        often = self._often[uid] = self._often.get(uid, 0) + 1
        return min(LONGEST, FIRST * 2.0 ** min(often - 1, 16))

    def sent(self, uid: str, *, anew: bool) -> None:
        """It was sent; or something new is to be told, which it cannot carry yet."""
        self.lost.discard(uid)
        if anew:
            self._carried.discard(uid)

    def forget(self, uid: str) -> None:
        """The pod is gone."""
        self.sent(uid, anew=True)
        self._often.pop(uid, None)
