"""Pods whose report was overwritten, and when it is sent again. Its caller holds the publisher's lock.

Every client with the right to write to a pod can change its annotations and conditions. A watch may also bring a pod
as it was before our last request. So a pod has lost its report only if it was seen with it, and later without it.
"""

from __future__ import annotations

FIRST, LONGEST = 64.0, 3600.0
"""Seconds until a lost report is sent again, doubled each time: a client that overwrites it makes no storm."""


class Overwritten:
    """The pods, by their metadata.uid."""

    def __init__(self) -> None:
        self.lost: set[str] = set()
        """Pods that lost their report; it is to be sent again."""
        self._carried: set[str] = set()
        self._often: dict[str, int] = {}

    def seen_with(self, uid: str) -> None:
        """Record that a pod carries its report."""
        self._carried.add(uid)
        self.lost.discard(uid)

    def seen_without(self, uid: str) -> float | None:
        """Record that a pod lacks its report; return the seconds until the next try, None if it never carried it."""
        if uid not in self._carried:
            return None
        self._carried.discard(uid)
        self.lost.add(uid)
        often = self._often[uid] = self._often.get(uid, 0) + 1
        return min(LONGEST, FIRST * 2.0 ** min(often - 1, 16))

    def sent(self, uid: str, *, changed: bool) -> None:
        """Record that the report was sent, or that it `changed`, so that the pod cannot carry it yet."""
        self.lost.discard(uid)
        if changed:
            self._carried.discard(uid)

    def forget(self, uid: str) -> None:
        """Forget a pod that is gone."""
        self.sent(uid, changed=True)
        self._often.pop(uid, None)
