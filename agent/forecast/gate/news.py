"""What each event makes of the state. Pure: nothing is decided here, and nothing is to be done.

Where a pod in flight landed is learnt from the node's next summary, which shows a grant that was not there before,
else by one look-up. A pod that is found elsewhere counts there from then on, with a cause: until the node's agent
publishes again or gives a later sign of life; of a silent one, until its summary is too old.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from agent.forecast.gate.books import NodeSite, Signature, claimed, shape_of
from agent.forecast.gate.events import (
    Answer,
    ClearNomination,
    Event,
    LiftUndecided,
    LookedUp,
    NodeGone,
    NodeSeen,
    Nominate,
    PatchAnswered,
    PodBound,
    PodGone,
    PodSeen,
    Release,
    SummarySeen,
    Tell,
)
from agent.forecast.gate.rules import last_gate
from agent.forecast.gate.state import Count, Flight, GateState, Landing, Waiter
from agent.forecast.gate.values import TAKEN_BACK, PublishedSummary, SchedulerNode, UnboundPod
from agent.forecast.gate.wait import until
from agent.forecast.scheduling import needs_of

PATCHING = 10.0
"""Seconds that a patch may take; then its pod is decided again."""
RETRY = 1.0
"""Seconds until a patch that failed is tried again."""
ROUNDED = 1.0
"""Seconds that a time of the API may be earlier than what it tells of."""
LANDINGS = 100
"""Landings elsewhere that are kept."""

T = TypeVar("T")


def taken(state: GateState, event: Event, now: float) -> GateState:
    """Take an event into the state."""
    return _TAKERS[type(event)](state, event, now)


def _pod_seen(state: GateState, event: PodSeen, now: float) -> GateState:
    pod, uid = event.pod, event.pod.pod.uid
    flight, waiter = state.flights.get(uid), state.waiting.get(uid)
    if flight is not None:
        return _flight_seen(state, flight, pod, now)
    if pod.deleting:
        return _forgotten(state, uid)
    if not pod.gated:
        if pod.nominated and not pod.nominated_by_another:
            return _adopted(_forgotten(state, uid), pod, now)
        state = replace(state, waiting=_less(state.waiting, uid))
        before = state.foreign[uid].nominated if uid in state.foreign else ""
        foreign = {**state.foreign, uid: pod} if pod.nominated else _less(state.foreign, uid)
        return refreshed(replace(state, foreign=foreign), pod.nominated, before)
    since = waiter.since if waiter and last_gate(waiter.pod) == last_gate(pod) else _began(pod, waiter, now)
    moment, clock = until(pod, since, state.options)
    kind = state.views.kind_of(pod)
    if waiter is None:
        waiter = Waiter(pod, kind, since, moment, clock)
    elif pod != waiter.pod:
        busy = waiter.busy if pod.version == waiter.pod.version else 0.0
        waiter = replace(waiter, pod=pod, kind=kind, since=since, until=moment, clock=clock, busy=busy)
    return replace(state, waiting={**state.waiting, uid: waiter})


def _adopted(state: GateState, pod: UnboundPod, now: float) -> GateState:
    """Count a pod as in flight that an earlier leader released."""
    flight = Flight(pod, state.views.kind_of(pod), Count.NOMINATED, pod.nominated, pod.nominated, now, now)
    return moved(state, pod.pod.uid, "", flight)


def _began(pod: UnboundPod, waiter: Waiter | None, now: float) -> float:
    """Return when a wait began: a new leader goes on with the one that the condition tells of."""
    waits = waiter is None and pod.condition is not None and not pod.condition.fits
    return min(pod.told, now) if waits and pod.told else now


def _flight_seen(state: GateState, flight: Flight, pod: UnboundPod, now: float) -> GateState:
    """A released pod changed: it counts where it is nominated now, and nowhere if that was taken back.

    Nor does it without a nomination once kube-scheduler has found no node for it: what it waits for is not seen
    here, and pods of other kinds would be kept from the node meanwhile.
    """
    node, since = flight.node, now if flight.pod.gated and not pod.gated else flight.since
    free = not pod.gated and not flight.bound
    if free and (pod.nominated or flight.pod.nominated or pod.unschedulable):
        node = pod.nominated
    return moved(state, pod.pod.uid, flight.node, replace(flight, pod=pod, node=node, since=since))


def _pod_gone(state: GateState, event: PodGone, now: float) -> GateState:
    flight = state.flights.get(event.uid)
    if flight is None:
        return _forgotten(state, event.uid)
    site, unclaimed = state.sites.get(flight.node), Counter[Signature]()
    if site is not None:
        unclaimed.update(site.unclaimed)
    inside = claimed(unclaimed, flight.pod.pod)
    if site is None or inside is None:
        return replace(state, flights={**state.flights, event.uid: replace(flight, bound=flight.bound or now)})
    state = _shown(state, flight, flight.node, now, inside=inside)
    state = moved(state, event.uid, flight.node, None)
    return _with(state, replace(state.sites[site.name], unclaimed=unclaimed))


def _pod_bound(state: GateState, event: PodBound, now: float) -> GateState:
    """Count a pod on its node until the agent publishes again, unless the summary is newer than the binding."""
    site, uid = state.sites.get(event.node), event.pod.pod.uid
    summary = site.published.summary if site and site.published else None
    if summary is None or uid in state.flights or summary.changed > event.at + ROUNDED:
        return state
    flight = Flight(
        event.pod, state.views.kind_of(event.pod), Count.NOMINATED, event.node, event.node, now, now,
        bound=event.at, found=now,
    )  # fmt: skip
    return moved(_forgotten(state, uid), uid, "", flight)


def _forgotten(state: GateState, uid: str) -> GateState:
    known = state.foreign.get(uid)
    state = replace(state, waiting=_less(state.waiting, uid), foreign=_less(state.foreign, uid))
    return refreshed(state, known.nominated) if known else state


def _found(state: GateState, event: LookedUp, now: float) -> GateState:
    flight = state.flights.get(event.uid)
    if flight is None:
        return state
    if event.unanswered:
        return replace(state, flights={**state.flights, event.uid: replace(flight, asked=False, bound=now)})
    if event.gone or not event.node:
        state = moved(state, event.uid, flight.node, None if event.gone else replace(flight, asked=False, bound=0.0))
        return state.counted(Count.VANISHED) if event.gone else state
    if event.undecided and now - flight.since < state.options.summary_age:  # no summary can have it yet
        return moved(state, event.uid, flight.node, replace(flight, node=event.node, bound=now, asked=False))
    state = _landed(state, flight, event.node, now)
    if event.refused:
        return moved(state.counted(Count.REFUSED), event.uid, flight.node, None)
    return moved(state, event.uid, flight.node, replace(flight, node=event.node, found=now))


def _landed(state: GateState, flight: Flight, node: str, now: float) -> GateState:
    """Count a landing; elsewhere with its cause."""
    if not flight.promised or node == flight.promised:
        return state.counted(Count.LANDED)
    cause = _cause(state, flight)
    landing = Landing(flight.pod.pod.key, flight.promised, node, cause, now)
    return replace(state.counted(cause), landings=(*state.landings, landing)[-LANDINGS:])


def _cause(state: GateState, flight: Flight) -> Count:
    """Find why a pod was not bound where it was promised."""
    site, pod = state.sites.get(flight.promised), flight.pod
    if flight.purpose is not Count.NOMINATED:
        return Count.ELSEWHERE_OPEN
    if site is None or site.node is None or not site.node.ready or pod.placing.barred(site.node.facts):
        return Count.ELSEWHERE_BARRED
    without, needs = site.landed({pod.pod.uid}), needs_of(pod.pod)
    if without.lacks(needs):
        above = site.books and any(each.pod.priority > pod.pod.priority for each in site.books.ledger.pods.values())
        return Count.ELSEWHERE_OUTRANKED if above else Count.ELSEWHERE_FILLED
    return Count.ELSEWHERE_NOMINATED if without.lacks(needs, pod.pod.priority) else Count.ELSEWHERE_OTHER


def _node_seen(state: GateState, event: NodeSeen, _now: float) -> GateState:
    name = event.node.name
    site = state.sites.get(name)
    state = _hosted(state, site, event.node)
    if site is None:
        state = _with(state, NodeSite(name, state.managers, event.node))
        return refreshed(state, name)
    return state if site.node == event.node else _with(state, site.changed(event.node))


def _node_gone(state: GateState, event: NodeGone, _now: float) -> GateState:
    state = _hosted(state, state.sites.get(event.name), None)
    return replace(state, sites=_less(state.sites, event.name))


def _hosted(state: GateState, site: NodeSite | None, after: SchedulerNode | None) -> GateState:
    """Count the Nodes of each hostname."""
    old, new = (each.hostname if each else "" for each in (site.node if site else None, after))
    if old == new:
        return state
    hosts = dict(state.hosts)
    for name, more in ((old, -1), (new, 1)):
        hosts[name] = hosts.get(name, 0) + more
    return replace(state, hosts={name: number for name, number in hosts.items() if name and number})


def _summary_seen(state: GateState, event: SummarySeen, now: float) -> GateState:
    site = state.sites.get(event.node) or NodeSite(event.node, state.managers)
    before, new = site.published, event.published
    if before is not None and new is not None and before.digest == new.digest:
        gone = [uid for uid, each in state.flights.items() if each.node == event.node and 0 < each.found < new.alive]
        site = site.landed(gone) if gone else site
        state = replace(state, flights=_less(state.flights, *gone))
        return _with(state, site.heard(new, stale=_is_stale(new, now, state)))
    unclaimed = site.fresh_in(new.summary) if new is not None and new.summary is not None else Counter()
    gone, left = list[str](), Counter[Signature]()
    for each in site.flights:
        flight = state.flights[each.pod.uid]
        inside = claimed(unclaimed, each.pod) if flight.bound else None
        if inside is not None and not flight.found:
            state = _shown(state, flight, event.node, now, inside=inside)
        if inside is not None or (flight.found and not _is_older(new, flight)):
            gone.append(each.pod.uid)
        else:
            left[shape_of(each.pod)] += 1
    for signature, number in unclaimed.items():  # what is more is of pods that were never in flight
        unclaimed[signature] = min(number, left[signature[1:]])
    state = replace(state, flights=_less(state.flights, *gone))
    if new is None and site.node is None:  # neither Node nor summary is left
        return replace(state, sites=_less(state.sites, event.node))
    stale = _is_stale(new, now, state)
    return _with(state, replace(site.landed(gone), published=new, stale=stale, unclaimed=unclaimed))


def _is_older(published: PublishedSummary | None, flight: Flight) -> bool:
    """Tell whether a summary was made before a pod was bound, and came late."""
    summary = published.summary if published else None
    return summary is not None and summary.changed < flight.bound - ROUNDED


def _shown(state: GateState, flight: Flight, node: str, now: float, *, inside: bool) -> GateState:
    return _landed(state, flight, node, now) if inside else state.counted(Count.REFUSED)


def _is_stale(published: PublishedSummary | None, now: float, state: GateState) -> bool:
    return published is not None and now - published.alive > state.options.summary_age


def _written(state: GateState, event: PatchAnswered, now: float) -> GateState:
    effect, uid = event.effect, event.effect.uid
    if event.answer is Answer.CONFLICT:
        state = state.counted(Count.CONFLICTS)
    if isinstance(effect, Nominate | Release):
        return _released(state, event, now)
    if event.answer is Answer.GONE and uid not in state.flights:
        return _forgotten(state, uid)
    done = event.answer is Answer.DONE
    if isinstance(effect, ClearNomination):
        return _cleared(state.counted(Count.CLEARED) if done else state, event, now)
    waiter = state.waiting.get(uid)
    if waiter is None:
        return state
    if isinstance(effect, LiftUndecided) and done:
        return replace(state, waiting=_less(state.waiting, uid))
    if isinstance(effect, Tell) and done:
        told = replace(waiter.pod, condition=effect.condition, version=event.version or waiter.pod.version)
        waiter = replace(waiter, pod=told, busy=0.0)
    elif waiter.pod.version == effect.version:
        waiter = replace(waiter, busy=now + (PATCHING if event.answer is Answer.CONFLICT else RETRY))
    return replace(state, waiting={**state.waiting, uid: waiter})


def _released(state: GateState, event: PatchAnswered, now: float) -> GateState:
    """A release was answered: one that failed puts the pod back into the line; after a nomination it rests first."""
    effect, flight = event.effect, state.flights.get(event.effect.uid)
    if flight is None or event.answer is Answer.DONE:
        return state
    if (flight.bound or not flight.pod.gated) and event.answer is not Answer.GONE:  # the watch tells: it was released
        return state
    uid = flight.pod.pod.uid
    state = moved(state, uid, flight.node, None)
    if event.answer is Answer.GONE:
        return state.counted(Count.VANISHED)
    pod = flight.pod
    if event.nominated and isinstance(effect, Nominate) and not pod.nominated:
        version = event.version or pod.version
        pod = replace(pod, nominated=effect.node, condition=effect.condition, version=version)
    newer = pod.version != effect.version
    wait = 0.0 if newer else now + (PATCHING if event.answer is Answer.CONFLICT else RETRY)
    moment, clock = until(pod, flight.waited, state.options)
    rest = now + PATCHING if event.nominated and event.answer is Answer.FAILED else 0.0
    waiter = Waiter(pod, flight.kind, flight.waited, moment, clock, busy=wait, refused=rest)
    return replace(state, waiting={**state.waiting, uid: waiter})


def _cleared(state: GateState, event: PatchAnswered, now: float) -> GateState:
    """A nomination was cleared, or could not be: then it is tried again, or the watch brings what changed."""
    uid, done = event.effect.uid, event.answer is Answer.DONE
    busy = 0.0 if done else now + RETRY

    def after(pod: UnboundPod) -> UnboundPod:
        version = event.version or pod.version
        return replace(pod, nominated="", condition=TAKEN_BACK, version=version) if done else pod

    if uid in state.waiting:
        each = state.waiting[uid]
        return replace(state, waiting={**state.waiting, uid: replace(each, pod=after(each.pod), busy=busy)})
    flight = state.flights.get(uid)
    if flight is None:
        return state
    if done:
        return moved(state, uid, flight.node, replace(flight, pod=after(flight.pod), node="", asked=False))
    # It counts there: the nomination stands, or the pod has just been bound.
    flight = replace(flight, asked=False, since=now + RETRY - state.options.look_up)
    return replace(state, flights={**state.flights, uid: flight})


# ---- parts


def moved(state: GateState, uid: str, before: str, flight: Flight | None) -> GateState:
    """Change a pod in flight; it counts on its new node and not on the one before. None for in flight no more."""
    flights = _less(state.flights, uid) if flight is None else {**state.flights, uid: flight}
    state, now = replace(state, flights=flights), flight.node if flight else ""
    if before == now:
        return state
    if before in state.sites:
        state = _with(state, state.sites[before].landed({uid}))
    if flight is not None and now in state.sites:
        state = _with(state, state.sites[now].flying(flight.pod))
    return state


def refreshed(state: GateState, *names: str) -> GateState:
    """Bring the foreign nominations of nodes up to date."""
    for name in {*names} & state.sites.keys():
        found = tuple(each for each in state.foreign.values() if each.nominated == name)
        if found != state.sites[name].foreign:
            state = _with(state, state.sites[name].nominated(found))
    return state


def aged(state: GateState, now: float) -> GateState:
    """Look which summaries have become too old, once a second."""
    if now - state.swept < 1.0:
        return state
    found = dict(state.sites)
    for name, site in state.sites.items():
        stale = _is_stale(site.published, now, state)
        if stale != site.stale:
            found[name] = replace(site, stale=stale)
    return replace(state, sites=found, swept=now)


def _with(state: GateState, site: NodeSite) -> GateState:
    return replace(state, sites={**state.sites, site.name: site})


def _less(found: Mapping[str, T], *names: str) -> Mapping[str, T]:
    gone = found.keys() & {*names}
    return {name: each for name, each in found.items() if name not in gone} if gone else found


_TAKERS: Mapping[type, Callable[[GateState, Any, float], GateState]] = {
    PodSeen: _pod_seen, PodGone: _pod_gone, PodBound: _pod_bound, LookedUp: _found, NodeSeen: _node_seen,
    NodeGone: _node_gone, SummarySeen: _summary_seen, PatchAnswered: _written,
}  # fmt: skip
