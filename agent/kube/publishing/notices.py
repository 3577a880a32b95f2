"""Events that wait to be recorded: bounded, in turn, each one that is dropped is counted. No thread, no request.

A tenant may change its pods as often as it likes, and each change may be worth an Event. These bounds hold:

    * the same sentence about the same object is recorded once within QUIET_SECONDS
    * an object has PER_OBJECT Events an hour, the node PER_NODE a minute
    * at most MOST_WAITING wait; beyond it the namespace with most of them loses its oldest
    * namespaces take turns

An Event about a state that may be over in a moment is held first, and withdrawn if the state ends (`hold`). Whatever
a pod must carry in any case is in its condition, which waits for no Event (`agent.kube.publishing.publisher`).
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from agent.model.outcome import with_details

QUIET_SECONDS = 600.0
"""The same sentence about the same object is not recorded twice within this time."""
MOST_WAITING, MOST_REMEMBERED = 500, 2000
PER_OBJECT, HOUR = 4, 3600.0
PER_NODE, MINUTE = 30, 60.0
RATE, QUEUE, REFUSED = "rate", "queue", "refused"
"""Why an Event is dropped: its object had enough, too many wait, or the API server refuses it."""


@dataclass(frozen=True, slots=True)
class Regarding:
    """The object that an Event is about."""

    kind: str
    namespace: str  # "" for a Node
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Notice:
    """One Event to record.

    Attributes:
        about: the object.
        kind: "Normal" or "Warning".
        reason: one CamelCase word.
        message: one sentence.
        details: what follows the message, with the numbers of the moment. It does not count when two are compared.
        topic: what makes it another Event than one of before; the message where it is left out.
    """

    about: Regarding
    kind: str
    reason: str
    message: str = field(compare=False)
    details: str = field(default="", compare=False)
    topic: str = ""

    def __post_init__(self) -> None:
        """Fill in the topic."""
        object.__setattr__(self, "topic", self.topic or self.message)


def event_of(notice: Notice, node: str, stamp: str) -> dict[str, Any]:
    """Make the Event that the API takes; `stamp` is the present time in RFC 3339."""
    about = {"kind": notice.about.kind, "apiVersion": "v1", "name": notice.about.name, "uid": notice.about.uid}
    if notice.about.namespace:
        about["namespace"] = notice.about.namespace
    text = with_details(notice.message, notice.details)
    name, namespace = f"{notice.about.name[:200]}.", notice.about.namespace or "default"
    return {
        "apiVersion": "v1", "kind": "Event", "metadata": {"generateName": name, "namespace": namespace},
        "involvedObject": about, "type": notice.kind, "reason": notice.reason, "message": text[:1024],
        "source": {"component": "numalign", "host": node}, "reportingComponent": "numalign.io/agent",
        "reportingInstance": node, "firstTimestamp": stamp, "lastTimestamp": stamp, "count": 1,
    }  # fmt: skip


class Notices:
    """The queue. Its caller holds a lock.

    Args:
        clock: seconds, monotonic.
        dropped: called for each Event that is dropped, with the reason (RATE, QUEUE, REFUSED).
    """

    def __init__(self, clock: Callable[[], float], dropped: Callable[[str], None]) -> None:
        self._clock, self._dropped = clock, dropped
        self._spaces: OrderedDict[str, OrderedDict[Notice, tuple[float, int]]] = OrderedDict()
        self._recorded: OrderedDict[Notice, float] = OrderedDict()
        self._times: OrderedDict[tuple[str, str], deque[float]] = OrderedDict()
        self._sent: deque[float] = deque(maxlen=PER_NODE)
        self._held: dict[Notice, float] = {}

    def __len__(self) -> int:
        return sum(map(len, self._spaces.values()))

    def add(self, notice: Notice) -> None:
        """Queue an Event, unless it waits already, was recorded a short time ago, or its object had enough."""
        now, space = self._clock(), notice.about.namespace
        last = self._recorded.get(notice)
        if notice in self._spaces.get(space, ()) or (last is not None and now - last < QUIET_SECONDS):
            return
        if not self._enough(notice, now):
            self._dropped(RATE)
            return
        if len(self) >= MOST_WAITING:
            fullest = max(self._spaces, key=lambda name: len(self._spaces[name]))
            self._remove(next(iter(self._spaces[fullest])))
            self._dropped(QUEUE)
        self._spaces.setdefault(space, OrderedDict())[notice] = now, 0

    def hold(self, notice: Notice, seconds: float) -> None:
        """Queue an Event after `seconds`, unless it is withdrawn before; of one object the last one counts."""
        due = [at for each, at in self._held.items() if each.about == notice.about]
        self.withdraw(notice.about.uid)
        if len(self._held) < MOST_WAITING:
            self._held[notice] = min(due, default=self._clock() + seconds)
        else:
            self._dropped(QUEUE)

    def withdraw(self, uid: str) -> None:
        """Drop the Event that is held about an object: its state is over."""
        self._held = {notice: at for notice, at in self._held.items() if notice.about.uid != uid}

    def _let_go(self, now: float) -> None:
        """Queue the Events that were held for their time: their states lasted."""
        for notice in [notice for notice, at in self._held.items() if at <= now]:
            del self._held[notice]
            self.add(notice)

    def _enough(self, notice: Notice, now: float) -> bool:
        """Count one more Event of an object; False beyond PER_OBJECT an hour. The Node has a count per reason."""
        about = notice.about
        times = self._times.setdefault(
            (about.uid, "" if about.namespace else notice.reason), deque(maxlen=PER_OBJECT)
        )
        self._times.move_to_end((about.uid, "" if about.namespace else notice.reason))
        if len(times) == PER_OBJECT and now - times[0] < HOUR:
            return False
        times.append(now)
        _oldest_out(self._times)
        return True

    def due(self) -> tuple[Notice, int] | None:
        """Return the next Event and how often it was tried; None while none is due."""
        now = self._clock()
        self._let_go(now)
        if self._rest(now):
            return None
        for space, waiting in self._spaces.items():
            for notice, (at, attempt) in waiting.items():
                if at <= now:
                    self._spaces.move_to_end(space)
                    self._sent.append(now)
                    return notice, attempt
        return None

    def until(self) -> float | None:
        """Return the seconds until the next Event is due, None without any."""
        now = self._clock()
        self._let_go(now)
        first = min((at for waiting in self._spaces.values() for at, _ in waiting.values()), default=None)
        held = min(self._held.values(), default=None)
        found = [] if first is None else [max(0.0, first - now, self._rest(now))]
        return min(found + ([] if held is None else [max(0.0, held - now)]), default=None)

    def _rest(self, now: float) -> float:
        """Return the seconds until the node may record another Event."""
        return max(0.0, self._sent[0] + MINUTE - now) if len(self._sent) == PER_NODE else 0.0

    def recorded(self, notice: Notice) -> None:
        """Remove an Event that the API server has taken."""
        self._remove(notice)
        self._recorded[notice] = self._clock()
        _oldest_out(self._recorded)

    def refused(self, notice: Notice) -> None:
        """Drop an Event that the API server refuses for good."""
        self.recorded(notice)
        self._dropped(REFUSED)

    def later(self, notice: Notice, delay: float, attempt: int) -> None:
        """Retry an Event after `delay` seconds."""
        waiting = self._spaces.get(notice.about.namespace, OrderedDict())
        if notice in waiting:
            waiting[notice] = self._clock() + delay, attempt

    def _remove(self, notice: Notice) -> None:
        waiting = self._spaces.get(notice.about.namespace, OrderedDict())
        waiting.pop(notice, None)
        if not waiting:
            self._spaces.pop(notice.about.namespace, None)


def _oldest_out(table: OrderedDict[Notice, float] | OrderedDict[tuple[str, str], deque[float]]) -> None:
    while len(table) > MOST_REMEMBERED:
        table.popitem(last=False)
