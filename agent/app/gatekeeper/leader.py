"""What the replica that leads does (safety rule S23).

    1  pods without a node are listed; the nominations of those with our gate are cleared before anything else
    2  Nodes, agents and summaries are listed, and once the pods that are bound and have not started
    3  the first look-up of each listed pod is waited for
    4  events are gathered for a moment and decided together, effects are sent
    5  the switch is made while there is something to decide by, and removed while there is not
    6  at its end: nothing new is sent, what is under way is waited for, and the switch is removed

A gate is bounded in time here, too, whatever the decision does: a pod that has had ours for longer than the setting
and GRACE is let go.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from agent.app.gatekeeper import seen
from agent.app.gatekeeper.errands import Errands
from agent.app.gatekeeper.looking_up import LookingUp
from agent.app.gatekeeper.options import GatekeeperOptions
from agent.app.gatekeeper.seen_pods import SeenPods
from agent.errors import KubeError
from agent.forecast.gate.events import (
    Answer,
    ClearNomination,
    Effect,
    Event,
    LiftUndecided,
    PatchAnswered,
    PodSeen,
)
from agent.forecast.gate.state import GateState
from agent.forecast.gate.step import GateStep, first_act, step
from agent.kube.client import KubeClient
from agent.kube.gate.list_watch import Arrived, Left, Listed, ListWatch, News
from agent.kube.gate.references import References
from agent.kube.gate.switch import GateSwitch
from agent.kube.gate.unbound_pods import UnboundBody, UnreadablePod, unbound
from agent.kube.gate.writer import GateWriter
from agent.kube.topology_crd import PATH as TOPOLOGIES

PODS, NODES, AGENTS, SUMMARIES, BOUND = "pods", "nodes", "agents", "noderesourcetopologies", "bound pods"
STARTING = "status.phase=Pending,spec.nodeName!="
GATHERED, PERIOD, AT_ONCE = 0.05, 1.0, 0.005
"""Seconds that events are gathered for, between two steps without any or two looks at all pods, and where a step left
something undecided."""
MOST_NEWS, MOST_OPEN = 20_000, 1000
"""News that wait, beyond which the watches wait; effects under way, beyond which no step is made."""
AGAIN = 0.5
"""Seconds until a clearing that was refused is sent again."""
ENDS_WITHIN = 5.0
"""Seconds that requests under way are waited for at the end."""
KNOWN_WITHIN = 5.0
"""Seconds that the look-ups of the first list's pods are waited for: a pod must not pass one of higher priority."""
STARTS_WITHIN = 30.0
"""Seconds of a term's beginning that the switch stays as an earlier leader left it."""
CLEARS_WITHIN = 30.0
"""Seconds after which the first act goes on without nominations that cannot be cleared: the steps try it further."""
GRACE = 60.0
"""Seconds beyond the longest wait at which a gate is lifted, whatever the decision says."""
SILENT = 150.0
"""Seconds without a word of the API server after which nothing can be decided."""
SWITCH_EVERY = 60.0
"""Seconds after which the switch is looked after again: something else may have removed it."""

_log = logging.getLogger(__name__)


class Core(Protocol):
    """The decision: `agent.forecast.gate.step`."""

    def __call__(self, state: GateState, events: list[Event], now: float) -> GateStep:
        """See `step`."""


@dataclass(slots=True)
class GateFigures:
    """What the metrics and the page show; read by other threads."""

    state: GateState = field(default_factory=GateState)
    serving: bool = False
    phantoms: int = 0
    stale: int = 0
    oldest: float = 0.0
    nodes: int = 0
    usable: int = 0


class Leader:
    """One term of a leader.

    Args:
        options: settings.
        client: of the API.
        leads: tells whether the lease is held.
        count: takes what is counted, by name.
        timed: takes the seconds of a step.
        beat: called at each turn of the loop.
        wall: seconds since the epoch.
        decide: the decision.
        between: called between the two patches of a release.
    """

    def __init__(
        self, options: GatekeeperOptions, client: KubeClient, leads: Callable[[], bool], *,
        count: Callable[[str, int], None] = lambda _what, _by: None, timed: Callable[[float], None] = lambda _s: None,
        beat: Callable[[], None] = lambda: None, wall: Callable[[], float] = time.time, decide: Core = step,
        between: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        self._options, self._leads, self._wall, self._decide = options, leads, wall, decide
        self._count, self._timed, self._beat = count, timed, beat
        self._news: queue.Queue[News] = queue.Queue(MOST_NEWS)
        self._answers: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._woken = threading.Event()
        self._stopping = threading.Event()
        self._began = time.monotonic()
        self._heard = dict.fromkeys((PODS, NODES, AGENTS, SUMMARIES), self._began)
        self._cluster = seen.SeenCluster(wall)
        self._listed: set[str] = set()
        self._events: list[Event] = []
        self._look_due = self._switch_due = 0.0
        self._faulty = self._looks_up = self._knows = False
        self.figures = GateFigures(GateState(options=options.decisions))
        self.switch = GateSwitch(client, options.namespace, options.switch, options.name)
        self._looking_up = LookingUp(References(client, wall=wall), lambda pod: self._answered(PodSeen(pod)))
        self._pods = SeenPods(time.monotonic, self._look_up, self._looking_up.forget, self._lift)
        writer = GateWriter(client, self._pods.affinity_of, leads, between=between, wall=wall)
        self._errands = Errands(writer, self._answered)
        self._summaries = seen.Summaries()
        self._watches = self._made(client)

    def _made(self, client: KubeClient) -> dict[str, ListWatch[Any]]:
        pods = f"/api/v1/namespaces/{self._options.namespace}/pods"
        wanted = (
            (PODS, "/api/v1/pods", unbound, (("fieldSelector", "spec.nodeName="),)),
            (NODES, "/api/v1/nodes", seen.node, ()),
            (AGENTS, pods, seen.agent, (("labelSelector", self._options.agents),)),
            (SUMMARIES, TOPOLOGIES, self._summaries.read, ()),
            (BOUND, "/api/v1/pods", seen.just_bound, (("fieldSelector", STARTING),)),
        )
        return {
            kind: ListWatch[Any](
                client, kind, path, keep, self._told, query=query, heard=partial(self._hear, kind), once=kind == BOUND
            )
            for kind, path, keep, query in wanted
        }

    def stop(self) -> None:
        """End the term; from any thread."""
        self._stopping.set()
        self._woken.set()

    def serve(self) -> None:
        """Serve until `stop`, or until the lease is lost."""
        self._errands.start()
        self._watches[PODS].start()
        try:
            self._until(lambda: PODS in self._listed)
            self._first_act()
            self._looking_up.start()
            self._looks_up = True
            for body in self._pods.gated():
                self._look_up(body)
            for kind in (NODES, AGENTS, SUMMARIES):
                self._watches[kind].start()
            self._until(lambda: len(self._listed) == len(self._watches) - 1)
            self._watches[BOUND].start()
            self._until(lambda: BOUND in self._listed)
            last = time.monotonic() + KNOWN_WITHIN
            self._until(lambda: not self._looking_up.behind or time.monotonic() > last)
            again, self._knows = False, True
            while not self._ended():
                self._turn()
                again = self._step()
                self._look_after()
                if again:
                    self._woken.wait(AT_ONCE)
                else:
                    self._gather()
        finally:
            self._end()

    def _first_act(self) -> None:
        """Clear what an earlier leader left between two patches."""
        asked, behind, failed = dict[str, str](), dict[str, float](), dict[str, float]()
        last = time.monotonic() + CLEARS_WITHIN
        while not self._ended() and time.monotonic() < last:
            self._turn()
            pods = self._pods.readable()
            left = [each for each in first_act(pods.values()) if asked.get(each.uid) != each.version]
            for effect in left:
                if failed.get(effect.uid, 0.0) > time.monotonic():
                    continue
                _log.warning("%s: %s", effect.key, effect.why)
                asked[effect.uid] = effect.version
                self._errands.send(effect)
            for answer in self._taken_answers():
                if not isinstance(answer, PatchAnswered):
                    continue
                uid = answer.effect.uid
                if answer.answer is Answer.FAILED:
                    asked.pop(uid, None)
                    failed[uid] = time.monotonic() + AGAIN
                elif answer.answer is Answer.CONFLICT:  # the watch brings it as it is now
                    behind[uid] = time.monotonic() + ENDS_WITHIN
            behind = {
                uid: until for uid, until in behind.items()
                if until > time.monotonic() and uid in pods and pods[uid].version == asked.get(uid)
            }  # fmt: skip
            if not left and not behind and not self._errands.open and self._answers.empty():
                return
            self._woken.wait(GATHERED)
            self._woken.clear()
        if not self._ended():
            _log.error("some nominations of pods with our gate cannot be cleared")

    # ---- what came

    def _until(self, done: Callable[[], bool]) -> None:
        while not done() and not self._ended():
            self._woken.wait(PERIOD)
            self._woken.clear()
            self._turn()
            self._look_after()

    def _gather(self) -> None:
        """Wait for something, and for what comes with it."""
        if self._woken.wait(PERIOD) and not self._ended():
            time.sleep(GATHERED)
        self._woken.clear()

    def _turn(self) -> None:
        """Take in all news; the API server's answers wait for the step."""
        self._beat()
        for _ in range(MOST_NEWS):
            try:
                news = self._news.get_nowait()
            except queue.Empty:
                return
            self._events += self._take(news)

    def _take(self, news: News) -> Iterator[Event]:
        if isinstance(news, Listed):
            self._listed.add(news.kind)
        elif news.kind == PODS:
            yield from self._pods.left(news.key) if isinstance(news, Left) else self._pod(news)
        elif news.kind == BOUND:
            yield from () if isinstance(news, Left) else (news.value,)
        elif news.kind == NODES:
            yield from self._cluster.node(news.key, None if isinstance(news, Left) else news.value)
        elif news.kind == AGENTS:
            yield from self._cluster.agent(news.key, None if isinstance(news, Left) else news.value)
        else:
            if isinstance(news, Left):
                self._summaries.forget(news.key)
            yield from self._cluster.summary(news.key, None if isinstance(news, Left) else news.value)

    def _pod(self, news: Arrived[UnboundBody | UnreadablePod]) -> Iterator[Event]:
        found = news.value
        if isinstance(found, UnboundBody) and found.pod.gated:
            yield from self._cluster.namespaces([found.pod.pod.namespace])
        yield from self._pods.arrived(news.key, found)

    def _look_up(self, body: UnboundBody) -> None:
        if self._looks_up:
            self._looking_up.see(body)

    # ---- what is decided

    def _step(self) -> bool:
        """Decide with all that came; return whether more could be decided at once."""
        if self._errands.open > MOST_OPEN:
            return False
        events, self._events = [*self._events, *self._taken_answers()], []
        began = time.monotonic()
        made = self._decided(events)
        self._timed(time.monotonic() - began)
        for name, count in made.state.counts.items():
            if more := count - self.figures.state.counts.get(name, 0):
                self._count(name, more)
        self.figures.state = made.state
        for effect in made.effects:
            if isinstance(effect, LiftUndecided | ClearNomination):
                _log.info("%s: %s", effect.key, effect.why)
            self._errands.send(effect)
        return made.again

    def _decided(self, events: list[Event]) -> GateStep:
        """Make a step; an event that the decision fails at costs itself alone."""
        state, now, effects = self.figures.state, self._wall(), list[Effect]()
        try:
            made = self._decide(state, events, now)
        except Exception:  # noqa: BLE001 - the pods of one tenant must not end what serves all
            _log.exception("a step failed; its events are taken one by one")
        else:
            self._faulty = False
            return made
        self._count("faults", 1)
        for event in events:
            try:
                made = self._decide(state, [event], now)
            except Exception as error:  # noqa: BLE001 - see above
                _log.error("left out: %s: %s", type(event).__name__, error)
                continue
            state, effects = made.state, [*effects, *made.effects]
        try:
            made = self._decide(state, [], now)
        except Exception:  # noqa: BLE001 - as above
            _log.exception("nothing can be decided")
            self._faulty = True
            return GateStep(state, tuple(effects))
        self._faulty = False
        return GateStep(made.state, (*effects, *made.effects), made.again)

    def _lift(self, effect: LiftUndecided) -> None:
        _log.warning("%s: our gate is lifted: %s", effect.key, effect.why)
        self._errands.send(effect)

    def _look_after(self) -> None:
        """Lift gates that are overdue, count what was left behind, and turn the switch; once in PERIOD."""
        if time.monotonic() < self._look_due:
            return
        self._look_due = time.monotonic() + PERIOD
        found = self._pods.left_behind(self._options.decisions.wait + GRACE)
        for effect in found.overdue:
            self._pods.lift(effect)
        figures = self.figures
        figures.phantoms, figures.stale, figures.oldest = found.phantoms, found.stale, found.oldest
        figures.nodes, figures.usable = self._cluster.known, self._cluster.usable
        self._turn_switch()

    def _turn_switch(self) -> None:
        now = time.monotonic()
        able = bool(self.figures.usable) and not self._faulty and now - min(self._heard.values()) < SILENT
        if not self._knows and (able or now - self._began < STARTS_WITHIN):
            return
        if self.switch.on is able and time.monotonic() < self._switch_due:
            return
        try:
            if self.switch.on is not able:
                _log.info("pods that ask are gated now" if able else "nothing can be decided: no pod is gated")
            self.switch.turn(on=able)
            self._switch_due = time.monotonic() + SWITCH_EVERY
        except KubeError as error:
            _log.warning("the switch of the gate: %s", error)
            self._switch_due = time.monotonic() + ENDS_WITHIN
        self.figures.serving = self.switch.on is True

    # ---- the end

    def _end(self) -> None:
        for watch in self._watches.values():
            watch.stop()
        self._looking_up.stop()
        if self._leads():
            self._errands.finish(ENDS_WITHIN)
            try:
                self.switch.turn(on=False)
            except KubeError as error:
                _log.error("the switch of the gate is left on: %s", error)
        self._errands.stop()
        self.figures.serving = False

    def _ended(self) -> bool:
        return self._stopping.is_set() or not self._leads()

    # ---- called by other threads

    def _told(self, news: News) -> None:
        while not self._ended():
            try:
                self._news.put(news, timeout=PERIOD)
            except queue.Full:
                continue
            self._woken.set()
            return

    def _answered(self, event: Event) -> None:
        self._answers.put(event)
        self._woken.set()

    def _taken_answers(self) -> list[Event]:
        """Take what the API server answered; what was looked up for a pod that has changed since is dropped."""
        found = list[Event]()
        while not self._answers.empty():
            event = self._answers.get()
            if not isinstance(event, PodSeen) or self._pods.is_current(event):
                found.append(event)
        return found

    def _hear(self, kind: str) -> None:
        if kind in self._heard:
            self._heard[kind] = time.monotonic()
