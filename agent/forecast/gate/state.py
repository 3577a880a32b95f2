"""All that the gatekeeper knows, as one immutable value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from agent.forecast.gate.books import NodeSite, PodKind
from agent.forecast.gate.values import GateOptions, UnboundPod
from agent.forecast.gate.views import Views
from agent.forecast.node_summary import Managers
from agent.model.outcome import RefusalCause


class Count(StrEnum):
    """What is counted; each is the value of a label in the metrics."""

    NOMINATED = "nominated"  # released to a node by name
    PREFERRED = "preferred"  # released with a preferred node
    NOT_IN = "not-in"  # released with NotIn alone
    FOR_PREEMPTION = "for-preemption"  # released without room, so that the scheduler may evict
    FOR_AUTOSCALER = "for-autoscaler"  # released without room, so that the autoscaler sees it
    LEFT_TO_SCHEDULER = "left-to-scheduler"  # released: no node that it may go to can be asked
    OUT_OF_TIME = "out-of-time"  # let go undecided
    LEFT_TO_QUEUE = "left-to-queue"  # a gang whose members are not all visible, let go undecided
    LEFT_OPEN = "left-open"  # of the releases: refusing nodes stayed open
    CHOSEN_LATER = "chosen-later"  # of the releases: devices that a plugin or a claim chooses later
    LANDED = "landed"  # bound where it was promised
    ELSEWHERE_FILLED = "elsewhere-filled"  # bound elsewhere: the promised node had filled up by sums
    ELSEWHERE_BARRED = "elsewhere-barred"  # bound elsewhere: cordon, taint, not ready, or deleted
    ELSEWHERE_OUTRANKED = "elsewhere-outranked"  # bound elsewhere: a pod of higher priority took the room
    ELSEWHERE_NOMINATED = "elsewhere-nominated"  # bound elsewhere: a foreign nomination counted on the node (N1)
    ELSEWHERE_OPEN = "elsewhere-open"  # bound elsewhere: it was not nominated, and the scheduler chose
    ELSEWHERE_OTHER = "elsewhere-other"  # bound elsewhere: another filter of the scheduler
    REFUSED = "refused"  # bound, and refused or made to wait by its node
    VANISHED = "vanished"  # deleted before it was bound
    CLEARED = "cleared"  # nominations that stood too long
    CONFLICTS = "conflicts"  # patches that another writer forestalled


@dataclass(frozen=True, slots=True)
class Waiter:
    """A gated pod in line.

    Attributes:
        pod: as the API tells it.
        kind: of pod.
        since: seconds since the epoch at which its wait began.
        until: seconds since the epoch at which it is let go.
        clock: what sets that moment, for people: a setting or an owner's clock.
        cause: what it lacks where it comes closest; None before the first decision.
        closest: the node where it comes closest, "" for none.
        promised: the node that is kept for it against later pods, "" for none.
        told: when its sentence was made.
        busy: until then no patch of it is sent: one is under way.
        refused: until then it is not released: the API server refused that after its nomination.
    """

    pod: UnboundPod
    kind: PodKind
    since: float
    until: float
    clock: str
    cause: RefusalCause | None = None
    closest: str = ""
    promised: str = ""
    told: float = 0.0
    busy: float = 0.0
    refused: float = 0.0

    def rests(self, now: float) -> bool:
        """Tell whether it is not to be decided yet."""
        return max(self.busy, self.refused) > now


@dataclass(frozen=True, slots=True)
class Flight:
    """A pod that was released and that no summary shows yet.

    Attributes:
        pod: as the API tells it.
        kind: of pod.
        purpose: why it was released.
        node: where it counts: the promised node, or where a look-up found it; "" for nowhere.
        promised: the node that it was released to.
        waited: since when it had waited.
        since: seconds since the epoch of the release: as it was decided, and from then on as the watch showed it;
            later where the nomination could not be cleared, so that this is tried again.
        bound: when it left the watch; 0 before.
        asked: a look-up is under way.
        found: when a look-up told where it is; 0 before.
    """

    pod: UnboundPod
    kind: PodKind
    purpose: Count
    node: str
    promised: str
    waited: float
    since: float
    bound: float = 0.0
    asked: bool = False
    found: float = 0.0


@dataclass(frozen=True, slots=True)
class Landing:
    """A pod that was bound elsewhere than it was released to, for `numalign fleet` and the page."""

    key: str
    promised: str
    node: str
    cause: Count
    at: float


@dataclass(frozen=True, slots=True)
class GateState:
    """The gatekeeper.

    Attributes:
        options: the settings.
        sites: the nodes by name, each with its summary and the pods in flight to it.
        hosts: hostname -> how many Nodes have it as their label.
        waiting: gated pods by uid.
        flights: released pods by uid.
        foreign: other pods that are nominated, by uid.
        counts: how often each thing happened since the state was made.
        landings: the last landings elsewhere, oldest first.
        apart: gangs that were not all visible in time: their pods are decided one by one, until none
            waits or is in flight any more.
        turn: of the kinds of pods beyond those whose views are kept: where the next step goes on.
        swept: when the age of all summaries was looked at last.
        views: what nodes answered; a memo of pure functions.
        managers: the same of managers.
    """

    options: GateOptions = field(default_factory=GateOptions)
    sites: Mapping[str, NodeSite] = field(default_factory=dict, hash=False)
    hosts: Mapping[str, int] = field(default_factory=dict, hash=False)
    waiting: Mapping[str, Waiter] = field(default_factory=dict, hash=False)
    flights: Mapping[str, Flight] = field(default_factory=dict, hash=False)
    foreign: Mapping[str, UnboundPod] = field(default_factory=dict, hash=False)
    counts: Mapping[Count, int] = field(default_factory=dict, hash=False)
    landings: tuple[Landing, ...] = ()
    apart: frozenset[str] = frozenset()
    turn: int = 0
    swept: float = 0.0
    views: Views = field(default_factory=Views, compare=False, repr=False)
    managers: Managers = field(default_factory=Managers, compare=False, repr=False)

    @property
    def blind(self) -> tuple[str, ...]:
        """Return the nodes without a summary to decide by: never named in NotIn, never nominated."""
        return tuple(sorted(name for name, each in self.sites.items() if each.summary is None))

    def counted(self, *what: Count) -> GateState:
        """Return the state with something counted."""
        counts = dict(self.counts)
        for each in what:
            counts[each] = counts.get(each, 0) + 1
        return replace(self, counts=counts)
