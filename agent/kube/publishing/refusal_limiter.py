"""Counts how often pods of one owner were refused in the last hour, so that refusals make no storm (safety.md S12).

A ReplicaSet replaces a refused pod at once, often on the same node, where it is refused again. Beyond the limit
`fail` and `evict` fall back to a milder action, which ends the circle.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from typing import Any

from agent.model.fields import mapping_of, mappings_in

HOUR = 3600.0
MOST_OWNERS = 10_000


def owner_of(body: Mapping[str, Any]) -> str:
    """Return the uid of a pod's controller, or the pod's own uid without a controller."""
    metadata = mapping_of(body.get("metadata"))
    for reference in mappings_in(metadata.get("ownerReferences")):
        if reference.get("controller") is True:
            return str(reference.get("uid", ""))
    return str(metadata.get("uid", ""))


class RefusalLimiter:
    """Counts refusals by owner.

    Args:
        most: refusals of one owner within an hour that are within the limit.
        clock: seconds, monotonic.
    """

    def __init__(self, most: int, clock: Callable[[], float]) -> None:
        self.most, self._clock = most, clock
        self._times: OrderedDict[str, deque[float]] = OrderedDict()

    def another(self, owner: str) -> bool:
        """Count one more refusal; return True while it is within the limit."""
        now = self._clock()
        times = self._times.setdefault(owner, deque())
        self._times.move_to_end(owner)
        while times and now - times[0] >= HOUR:
            times.popleft()
        times.append(now)
        if len(times) > self.most + 1:
            times.popleft()  # more than needed to know
        while len(self._times) > MOST_OWNERS:
            self._times.popitem(last=False)
        return len(times) <= self.most
