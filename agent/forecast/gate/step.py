"""One step of the gatekeeper: (state, events, moment) -> (state, effects). Pure.

first   what a new leader does before anything else: nominations of pods that carry our gate are cleared
news    the events are taken in
time    pods whose time is up are let go, nominations that stand too long are cleared, lost pods are looked up
line    the pods that wait are decided in order; each that is released counts on its node at once
told    pods that wait get a sentence, where it has changed
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from agent.forecast.gate import line, telling
from agent.forecast.gate.books import NodeSite, PodKind
from agent.forecast.gate.events import (
    ClearNomination,
    Effect,
    Event,
    LiftUndecided,
    LookUp,
    Nominate,
    Release,
    Tell,
)
from agent.forecast.gate.news import PATCHING, aged, moved, taken
from agent.forecast.gate.release import Choice, NodeChooser, hostname
from agent.forecast.gate.rules import last_gate
from agent.forecast.gate.state import Count, Flight, GateState, Waiter
from agent.forecast.gate.values import UnboundPod
from agent.forecast.gate.views import AskBudget, NodeStanding, RankedNode, View, most_kept
from agent.forecast.gate.wait import not_ours

TELLINGS = 4
"""Kinds of pods whose sentence is made in one step."""
BUILT = 4
"""Kinds of pods that all nodes are looked at for in one step: with 1,000 nodes each takes some 15 ms."""
SMALL_GANG, PER_MEMBER = 20, 0.005
"""A gang that does not fit rests for so many seconds for each of its pods beyond the first that was tried."""
MOMENT = 1.0
"""Seconds that a pod may wait for pods under way to a node before it gets a sentence."""
EVICTING = 30.0
"""Seconds after a release for an eviction in which no other pod is released for one."""


@dataclass(frozen=True, slots=True)
class GateStep:
    """What a step made of the state.

    Attributes:
        state: the next one.
        effects: to be carried out in order.
        again: decisions are left that the budget of this step did not reach: call again soon.
    """

    state: GateState
    effects: tuple[Effect, ...] = ()
    again: bool = False


def first_act(pods: Iterable[UnboundPod]) -> tuple[ClearNomination, ...]:
    """Return what a new leader does first: clear the nominations of pods that carry our gate (safety rule S23)."""
    return tuple(_clear(each, "its gate stands: a leader ended between two patches") for each in pods
                 if each.gated and each.nominated)  # fmt: skip


def step(state: GateState, events: Sequence[Event], now: float) -> GateStep:
    """Take in events, and decide what can be decided now.

    Args:
        state: before.
        events: in the order in which they came.
        now: seconds since the epoch.
    """
    for event in events:
        state = taken(state, event, now)
    work = _Work(aged(state, now), now)
    work.let_time_pass()
    work.decide()
    return GateStep(work.state, tuple(work.effects), work.again)


@dataclass(slots=True)
class _Work:
    """One step under way."""

    state: GateState
    now: float
    effects: list[Effect] = field(default_factory=list)
    again: bool = False
    budget: AskBudget = field(init=False)
    beside: AskBudget = field(init=False)
    fruitless: set[tuple[PodKind, str]] = field(default_factory=set)
    momentary: set[tuple[PodKind, str]] = field(default_factory=set)
    awaited: set[str] = field(default_factory=set)
    kept: dict[str, Waiter] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.budget, self.beside = AskBudget(self.state.options.asks), AskBudget(self.state.options.beside)

    # ---- time

    def let_time_pass(self) -> None:
        """Do what is due."""
        for uid, waiter in self.state.waiting.items():
            if waiter.busy > self.now:
                continue
            pod = waiter.pod
            why = not_ours(pod, self.state.options) or self._over(waiter)
            if pod.nominated and not (why and pod.nominated_by_another):
                self.effects.append(_clear(pod, "its gate stands"))
                self._busy(uid)
            elif why:
                self.effects.append(LiftUndecided(uid, pod.pod.key, pod.version, why))
                self.state = self.state.counted(Count.OUT_OF_TIME)
                self._busy(uid)
        for uid, flight in self.state.flights.items():
            self._flight(uid, flight)

    def _over(self, waiter: Waiter) -> str:
        over = self.now >= waiter.until
        return f"its time is up ({waiter.clock}): kube-scheduler and the node decide" if over else ""

    def _due(self, since: float) -> bool:
        return self.now - since >= self.state.options.look_up

    def _flight(self, uid: str, flight: Flight) -> None:
        pod = flight.pod
        if flight.found:
            if self.now - flight.found >= self.state.options.summary_age:
                self.state = moved(self.state, uid, flight.node, None)
        elif flight.bound:
            if (self._due(flight.bound) or not flight.node) and not flight.asked:
                self.effects.append(LookUp(uid, pod.pod.key))
                self.state = replace(self.state, flights={**self.state.flights, uid: replace(flight, asked=True)})
        elif self._due(flight.since) and not pod.gated and not flight.asked:
            if pod.nominated and pod.nominated == flight.promised and not pod.nominated_by_another:
                self.effects.append(_clear(pod, "it was not bound in time"))
                self.state = replace(self.state, flights={**self.state.flights, uid: replace(flight, asked=True)})
            elif flight.node:
                self.state = moved(self.state, uid, flight.node, replace(flight, node=""))

    # ---- decisions

    def decide(self) -> None:
        """Decide the pods that wait, in order; gangs as a whole where their first pod stands."""
        order = line.in_order(self.state.waiting)
        gangs, done, stuck = line.gangs(order), set[str](), list[Waiter]()
        later, built = self._later(order), 0
        if self.state.apart:
            flying = {each.pod.gang.key for each in self.state.flights.values() if each.pod.gang}
            self.state = replace(self.state, apart=self.state.apart & (gangs.keys() | flying))
        self.kept = {each.promised: each for each in reversed(order) if each.promised}
        for waiter in order:
            uid, gang = waiter.pod.pod.uid, waiter.pod.gang
            if uid in done or waiter.rests(self.now) or uid not in self.state.waiting or last_gate(waiter.pod):
                continue
            if waiter.kind in later:
                continue
            if waiter.kind not in self.state.views.views:
                if built == BUILT:  # no pod passes an earlier one whose kind was not looked at yet
                    self.again = True
                    break
                built += 1
            if gang is not None and gang.key not in self.state.apart:
                members = gangs[gang.key]
                done |= {each.pod.pod.uid for each in members}
                if not self._together(members, gang.size):
                    stuck += members
            elif not self._alone(waiter):
                stuck.append(waiter)
        self._tell(stuck)
        # Answers for pods that may come: the nodes of pods under way change again before such a pod needs them.
        under_way = any(each.node for each in self.state.flights.values())
        ahead = not under_way and self.state.views.fill(self.state.sites, self.beside)
        self.again |= self.budget.left < 0 or ahead

    def _later(self, order: Sequence[Waiter]) -> set[PodKind]:
        """Return the kinds that this step leaves out: of more kinds than views are kept, the last ones take turns."""
        kinds = list(dict.fromkeys(each.kind for each in order))
        first = most_kept(len(self.state.sites)) - BUILT
        left = line.in_turns(kinds)[first:] if len(kinds) > first else []
        if len(left) <= BUILT:
            return set()
        begin = self.state.turn % len(left)
        self.state, self.again = replace(self.state, turn=begin + BUILT), True
        return {*left} - {*(left + left)[begin : begin + BUILT]}

    def _alone(self, waiter: Waiter) -> bool:
        """Release a pod where it may be; return whether it was, or will be in a moment."""
        mark = _mark(waiter)
        if mark not in self.fruitless:
            choice = self._choice(waiter)
            if choice is not None:
                self._release(waiter, choice)
                return True
            self.fruitless.add(mark)
        return self._soon(waiter)

    def _soon(self, waiter: Waiter) -> bool:
        """Tell whether a pod waits for nothing but pods that are under way."""
        return _mark(waiter) in self.momentary and self.now - waiter.since < MOMENT

    def _settled(self, waiter: Waiter, place: RankedNode) -> bool:
        """Tell whether the pods under way to a node may arrive there in any order, before and after this one.

        Pods of one kind may. Of others it matters: the second may then lack the room that the first takes. Where one
        of them does not fit in by the summary, the node must take this one also if that one has its room already.
        """
        site, gang = self.state.sites[place.name], waiter.pod.gang
        flights = (self.state.flights[each.pod.uid] for each in site.flights)
        if place.name in self.awaited or any(
            not each.bound and each.kind is not waiter.kind and (gang is None or each.pod.gang != gang)
            for each in flights
        ):
            return False
        return site.other_order is site or site.other_order.reply(waiter.kind).takes

    def _choice(self, waiter: Waiter) -> Choice | None:
        chooser = NodeChooser(self.state.options, self.state.sites, self.state.hosts, self.now, self.budget)
        view = self._view(waiter.kind)
        view.search(self.budget)
        view.fill(self.beside)

        def delays(site: NodeSite) -> bool:
            return line.delays(waiter, waiter.kind, site, self.kept, self.now)

        if view.all_blind:
            return Choice(Count.LEFT_TO_SCHEDULER)
        if view.takers:
            settled = (place for place in view.takers if self._settled(waiter, place))
            choice = chooser.choose(waiter.pod, view, settled, delays)
            unsettled = choice is None and next(
                (each for each in view.takers if not self._settled(waiter, each)), None
            )
            if unsettled:
                self.awaited.add(unsettled.name)
                self.momentary.add(_mark(waiter))
            return choice
        if view.unasked:
            self.again = True
            return None
        evicting = any(
            each.purpose is Count.FOR_PREEMPTION and self.now - each.since < EVICTING
            for each in self.state.flights.values()
        )
        return chooser.without_room(waiter.pod, view, waiter.since, evicting=evicting)

    def _together(self, members: list[Waiter], size: int) -> bool:
        """Release a gang, all or none; return whether it was, or is none any more."""
        first = members[0]
        if len(members) < size:
            latest = max(each.since for each in members)
            if self.now - latest < self.state.options.gang_wait:
                return True
            key = first.pod.gang.key if first.pod.gang else ""
            self.state = replace(self.state, apart=self.state.apart | {key}).counted(Count.LEFT_TO_QUEUE)
            return sum(1 for each in members if self._alone(each)) == len(members)
        if any(each.rests(self.now) or last_gate(each.pod) for each in members):
            return True
        before, effects = self.state, len(self.effects)
        for number, each in enumerate(members):
            choice = None if _mark(each) in self.fruitless else self._choice(each)
            if choice is None or choice.purpose is Count.FOR_PREEMPTION:
                rest = min(PATCHING, PER_MEMBER * max(0, number - SMALL_GANG))
                rests = replace(members[0], refused=self.now + rest)
                self.state = replace(before, waiting={**before.waiting, rests.pod.pod.uid: rests}) if rest else before
                del self.effects[effects:]
                return self._soon(each)
            self._release(each, choice)
        return True

    def _release(self, waiter: Waiter, choice: Choice) -> None:
        pod, uid = waiter.pod, waiter.pod.pod.uid
        site = self.state.sites.get(choice.node)
        prefer = hostname(site, self.state.hosts) if site and choice.purpose is Count.PREFERRED else ""
        nominated = choice.purpose is Count.NOMINATED
        release = Release(uid, pod.pod.key, "" if nominated else pod.version, choice.not_in, prefer)
        self.effects.append(
            Nominate(uid, pod.pod.key, choice.node, pod.version, telling.chosen(choice.node), release)
            if nominated else release
        )  # fmt: skip
        waiting = {key: each for key, each in self.state.waiting.items() if key != uid}
        flight = Flight(pod, waiter.kind, choice.purpose, choice.node, choice.node, waiter.since, self.now)
        counts = [choice.purpose]
        counts += [Count.LEFT_OPEN] if choice.open else []
        counts += [Count.CHOSEN_LATER] if choice.later else []
        self.state = moved(replace(self.state, waiting=waiting), uid, "", flight).counted(*counts)
        if waiter.promised:
            self.kept.pop(waiter.promised, None)

    def _view(self, kind: PodKind) -> View:
        return self.state.views.of(kind, self.state.sites, self.state.options.strategy)

    def _busy(self, uid: str) -> None:
        waiter = replace(self.state.waiting[uid], busy=self.now + PATCHING)
        self.state = replace(self.state, waiting={**self.state.waiting, uid: waiter})

    # ---- words

    def _tell(self, stuck: list[Waiter]) -> None:
        """Give pods that wait their sentence, and heads the node that is kept for them."""
        most = self.state.options.sentences
        stuck = [each for waiter in stuck if (each := self.state.waiting.get(waiter.pod.pod.uid))]
        heads = {each.pod.pod.uid for each in line.heads(stuck)}
        made = dict[tuple[PodKind, int], telling.Told]()
        changed = dict[str, Waiter]()
        under_way = sum(each.busy > self.now for each in self.state.waiting.values())
        again = max(telling.AGAIN, len(self.state.waiting) / (telling.RATE * most))
        for waiter in stuck:
            uid = waiter.pod.pod.uid
            head = uid in heads
            due = not waiter.told or self.now - waiter.told >= again
            if under_way >= most and not head:
                due = False
            if not head and not due:
                if waiter.promised:
                    changed[uid] = replace(waiter, promised="")
                continue
            view = self._view(waiter.kind)
            keeps = head and view.standing(waiter.promised) in (NodeStanding.REFUSES, NodeStanding.SHORT)
            gang = waiter.pod.gang
            mark = waiter.kind, gang.size if gang and gang.key not in self.state.apart else 0
            if view.unasked or (keeps and not due) or (mark not in made and len(made) >= TELLINGS):
                continue
            found = made.get(mark) or telling.told(view, self.state.sites, mark[1])
            made[mark] = found
            node = found.node if head and not found.cause.never else ""
            told = replace(
                waiter, cause=found.cause, closest=found.node, promised=waiter.promised if keeps else node,
                told=self.now,
            )  # fmt: skip
            changed[uid] = self._said(told, found)
            under_way += changed[uid].busy > self.now
        if changed:
            self.state = replace(self.state, waiting={**self.state.waiting, **changed})

    def _said(self, waiter: Waiter, found: telling.Told) -> Waiter:
        condition = telling.waiting(found, waiter.until - waiter.since, waiter.clock)
        pod = waiter.pod
        if condition == pod.condition:
            return waiter
        self.effects.append(Tell(pod.pod.uid, pod.pod.key, pod.version, condition, waiter.since))
        return replace(waiter, busy=self.now + PATCHING)


def _mark(waiter: Waiter) -> tuple[PodKind, str]:
    return waiter.kind, waiter.pod.pod.namespace


def _clear(pod: UnboundPod, why: str) -> ClearNomination:
    return ClearNomination(pod.pod.uid, pod.pod.key, pod.nominated, pod.version, why)
