"""The pods without a node, as the watch shows them: the leader's own record beside the decision. For its thread.

It tells what became of each pod as events, keeps the bodies that patches need, and finds what the decision left
behind: gates that are overdue, and nominations that stand too long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from agent.forecast.gate.events import Event, LiftUndecided, PodGone, PodSeen
from agent.forecast.gate.values import GATE, UnboundPod
from agent.kube.gate.unbound_pods import UnboundBody, UnreadablePod

PATIENCE = 10.0
"""Seconds between two attempts to lift the gate of one pod."""
PHANTOM, STALE = 2.0, 10.0
"""Seconds: a nomination of a gated pod, and ours of a released one, that are older count as left behind."""


@dataclass(slots=True)
class KnownPod:
    """A pod that the watch shows.

    Attributes:
        uid: of it.
        body: None where it cannot be read.
        why: it cannot be read, and has our gate: one sentence.
        gated_since: when ours was first seen to be the last gate, by the leader's own clock; 0 before and after.
        nominated_since: the same of its nomination.
    """

    uid: str
    body: UnboundBody | None
    gated_since: float = 0.0
    nominated_since: float = 0.0
    why: str = ""


@dataclass(frozen=True, slots=True)
class LeftBehind:
    """What a look at all pods found.

    Attributes:
        overdue: gates to lift, whatever the decision says.
        phantoms: gated pods that are nominated for longer than PHANTOM.
        stale: released pods whose nomination by us is older than STALE.
        oldest: seconds that the oldest gate has been seen for.
    """

    overdue: tuple[LiftUndecided, ...]
    phantoms: int
    stale: int
    oldest: float


class SeenPods:
    """The pods.

    Args:
        clock: seconds, monotonic: a clock that is set back must hold no gate.
        look_up: takes a gated pod that is new or has changed.
        forget: takes the uid of one that is gated no more.
        lift: takes a gate that is lifted at once.
    """

    def __init__(
        self, clock: Callable[[], float], look_up: Callable[[UnboundBody], None], forget: Callable[[str], None],
        lift: Callable[[LiftUndecided], None],
    ) -> None:  # fmt: skip
        self._clock, self._look_up, self._forget, self._lift = clock, look_up, forget, lift
        self._known: dict[str, KnownPod] = {}
        self._gated: dict[str, UnboundBody] = {}
        self._lifted: dict[str, float] = {}

    def arrived(self, key: str, found: UnboundBody | UnreadablePod) -> Iterator[Event]:
        """Take a pod that is new or has changed."""
        now, known = self._clock(), self._known.get(key)
        if known is not None and known.uid != found.uid:
            yield from self.left(key)
            known = None
        known = known or KnownPod(found.uid, None)
        self._known[key] = known
        if isinstance(found, UnreadablePod):
            if known.body is not None:  # it could be read before
                self._gated.pop(found.uid, None)
                self._forget(found.uid)
                yield PodGone(found.uid)
            known.body, known.gated_since, known.nominated_since = None, 0.0, 0.0
            known.why = f"it cannot be read: {found.why}" if found.gated else ""
            if known.why:
                self.lift(LiftUndecided(found.uid, found.key, "", known.why))
            return
        pod = found.pod
        known.body, known.why = found, ""
        known.gated_since = (known.gated_since or now) if pod.gates == (GATE,) else 0.0
        known.nominated_since = (known.nominated_since or now) if pod.nominated else 0.0
        if pod.gated:
            self._gated[found.uid] = found
            self._look_up(found)
            return
        self._gated.pop(found.uid, None)
        self._forget(found.uid)
        yield PodSeen(pod)

    def left(self, key: str) -> Iterator[Event]:
        """Take a pod that is out of sight."""
        known = self._known.pop(key, None)
        if known is not None:
            self._gated.pop(known.uid, None)
            self._lifted.pop(known.uid, None)
            self._forget(known.uid)
            yield PodGone(known.uid)

    def gated(self) -> list[UnboundBody]:
        """Return the pods with our gate."""
        return [*self._gated.values()]

    def readable(self) -> dict[str, UnboundPod]:
        """Return the pods that can be read, by uid."""
        return {each.uid: each.body.pod for each in self._known.values() if each.body}

    def is_current(self, event: PodSeen) -> bool:
        """Tell whether a gated pod that was looked up has not changed since."""
        now = self._gated.get(event.pod.pod.uid)
        return now is not None and now.pod.version == event.pod.version

    def affinity_of(self, uid: str) -> Mapping[str, Any]:
        """Return a gated pod's spec.affinity.nodeAffinity; called by other threads, too."""
        body = self._gated.get(uid)
        return body.node_affinity if body else {}

    def lift(self, effect: LiftUndecided) -> None:
        """Lift a gate that the decision does not; once in PATIENCE."""
        now = self._clock()
        if self._lifted.get(effect.uid, 0.0) <= now:
            self._lifted[effect.uid] = now + PATIENCE
            self._lift(effect)

    def left_behind(self, longest: float) -> LeftBehind:
        """Look at all pods; a gate that is older than `longest` is overdue."""
        now = oldest = self._clock()
        phantoms = stale = 0
        overdue = list[LiftUndecided]()
        for key, known in self._known.items():
            if known.body is None:
                overdue += [LiftUndecided(known.uid, key, "", known.why)] if known.why else []
                continue
            pod = known.body.pod
            late = now - known.nominated_since if known.nominated_since else 0.0
            if pod.gated:
                phantoms += late > PHANTOM
                waits = now - known.gated_since if known.gated_since else 0.0  # a queue's pods do not wait yet
                oldest = min(oldest, now - waits)
                if waits > longest:
                    why = f"it has had the gate for {waits:.0f} s"
                    overdue.append(LiftUndecided(known.uid, key, "", why))  # whatever else writes to it
            elif pod.nominated and not pod.nominated_by_another:
                stale += late > STALE
        return LeftBehind(tuple(overdue), phantoms, stale, now - oldest)
