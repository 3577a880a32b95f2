"""Random walks against a judge of one page: a cluster on paper whose nodes and scheduler are judged apart.

The judge keeps the pods as the API server would, with versions, and binds as kube-scheduler does: the nominated node
first, else by sums among nodes that NotIn leaves, with nominations counted. News of it comes late and in order.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from agent.forecast.dry_run import DryRun
from agent.forecast.gate.events import (
    Answer,
    ClearNomination,
    Effect,
    Event,
    LiftUndecided,
    LookedUp,
    LookUp,
    NodeSeen,
    Nominate,
    PatchAnswered,
    PodGone,
    PodSeen,
    Release,
    SummarySeen,
    Tell,
)
from agent.forecast.gate.state import GateState
from agent.forecast.gate.step import first_act, step
from agent.forecast.gate.values import GATE, GateOptions, UnboundPod
from agent.forecast.node_summary import NodeSummary
from agent.forecast.placing import ANYWHERE, Placing
from tests.examples import examples
from tests.gate.world import Cluster, facts, gated

NODES = ("a", "b", "c")
WAIT = 30.0
UNSEEN = Placing(unseen=("topology spreading",))


@dataclass
class Kept:
    """A pod in the API server, and what its affinity keeps it from."""

    pod: UnboundPod
    node: str = ""
    barred: frozenset[str] = frozenset()
    born: float = 0.0


class Judge:
    """The cluster, and what must never happen in it."""

    done = 0

    def __init__(self) -> None:
        self.world = Cluster(*NODES)
        self.now, self.version, self.number = self.world.now, 1, 0
        self.pods: dict[str, Kept] = {}
        self.failing = False
        self.news = deque[Event]()
        self.contents: dict[str, frozenset[str]] = {}
        self.shown: dict[str, frozenset[str]] = dict.fromkeys(NODES, frozenset())
        self.told: dict[str, NodeSummary] = {}
        self.state = self.begun()

    def begun(self) -> GateState:
        """A leader that has read all nodes and pods, and cleared what its first act must."""
        self.news.clear()
        for effect in first_act([each.pod for each in self.pods.values() if not each.node]):
            self.carry_out(effect)
        self.news.clear()
        state = GateState(GateOptions(wait=WAIT))
        events: list[Event] = [NodeSeen(facts(name)) for name in NODES]
        events += [self.publication(name) for name in NODES]
        events += [PodSeen(each.pod) for each in self.pods.values() if not each.node]
        return self.taken(state, events)

    # ---- what happens in the cluster

    def happen(self, what: str, number: int) -> None:
        """One action of a walk."""
        if what in ("come", "plain", "spread"):
            self.come(number, what)
        elif what == "end":
            self.end(number)
        elif what == "delete":
            self.delete(number)
        elif what == "schedule":
            self.schedule()
        elif what == "publish":
            self.publish(NODES[number])
        elif what == "crash":
            self.crash()
        elif what == "fail":
            self.failing = number == 1
        else:
            self.pass_time(number / 10, number % 8)

    def come(self, cpus: int, what: str) -> None:
        """A pod is created; a plain one never asked for a gate, and requests other memory; one may spread."""
        self.number += 1
        uid, plain = f"p{self.number:03}", what == "plain"  # summaries know pods by what they request
        placing = UNSEEN if what == "spread" else ANYWHERE
        pod = gated(
            uid, cpus, created=self.now, memory={"plain": "2Mi", "spread": "3Mi"}.get(what, "1Mi"), placing=placing
        )
        self.pods[uid] = Kept(replace(pod, gates=() if plain else (GATE,), version=""), born=self.now)
        self.changed(uid)

    def changed(self, uid: str, **fields: object) -> None:
        """A pod changes: the watch will say so."""
        self.version += 1
        kept = self.pods[uid]
        kept.pod = replace(kept.pod, version=f"{self.version}", **fields)  # type: ignore[arg-type]  # of UnboundPod
        self.news.append(PodSeen(kept.pod))

    def schedule(self) -> None:
        """Bind every pod without a gate that fits by sums."""
        for uid, kept in sorted(self.pods.items()):
            if kept.node or kept.pod.gates:
                continue
            fits = [name for name in NODES if name not in kept.barred and self.room(name, uid) >= cpus_of(kept.pod)]
            fits = [kept.pod.nominated] if kept.pod.nominated in fits else fits
            if fits:
                kept.node = min(fits, key=lambda name: (-self.room(name, uid), name))
                self.world.runs[kept.node].see(kept.pod.pod, self.now)
                self.news.append(PodGone(uid))
            elif kept.pod.nominated or not kept.pod.unschedulable:
                self.changed(uid, nominated="", unschedulable=True)

    def room(self, name: str, but: str) -> int:
        """CPUs that are left by sums, with nominations counted."""
        taken = [each for uid, each in self.pods.items() if uid != but and name in (each.node, each.pod.nominated)]
        return 7 - sum(cpus_of(each.pod) for each in taken if each.node in ("", name))

    def end(self, number: int) -> None:
        """A bound pod is gone."""
        bound = [uid for uid, each in sorted(self.pods.items()) if each.node]
        if bound:
            uid = bound[number % len(bound)]
            self.world.runs[self.pods[uid].node].end([uid], self.now)
            del self.pods[uid]

    def delete(self, number: int) -> None:
        """A pod without a node is gone."""
        unbound = [uid for uid, each in sorted(self.pods.items()) if not each.node]
        if unbound:
            uid = unbound[number % len(unbound)]
            del self.pods[uid]
            self.news.append(PodGone(uid))

    def publish(self, name: str) -> None:
        """The agent of a node publishes."""
        self.news.append(self.publication(name))

    def publication(self, name: str) -> Event:
        """What it publishes; every summary arrives in the order of the news."""
        self.world.now = self.now
        event = self.world.published(name)
        assert event.published is not None
        here = frozenset(uid for uid, each in self.pods.items() if each.node == name)
        self.contents[event.published.digest] = here
        return event

    # ---- the gatekeeper's work

    def pass_time(self, seconds: float, news: int) -> None:
        """The gatekeeper gets some news, decides, and its effects are carried out."""
        self.now += seconds
        events = [self.news.popleft() for _ in range(min(news, len(self.news)))]
        self.state = self.taken(self.state, events)

    def taken(self, state: GateState, events: list[Event], crash: bool = False) -> GateState:  # noqa: FBT001, FBT002 - of this file
        """Take a step, and what it answers."""
        for _ in range(100):
            for event in events:
                if isinstance(event, SummarySeen) and event.published and event.published.summary:
                    self.shown[event.node] = self.contents[event.published.digest]
                    self.told[event.node] = event.published.summary
            made = step(state, events, self.now)
            state = made.state
            events = [
                answer for effect in made.effects if (answer := self.carry_out(effect, crash=crash, state=state))
            ]
            if crash or self.failing or not (events or made.again):
                break
        else:
            raise AssertionError(events)
        for event in events:
            self.news.appendleft(event)
        return state

    def carry_out(self, effect: Effect, state: GateState | None = None, *, crash: bool = False) -> Event | None:
        """Do what an effect says, as the API server would; judge it first."""
        kept = self.pods.get(effect.uid)
        if isinstance(effect, LookUp):
            return LookedUp(effect.uid, kept.node if kept else "", gone=kept is None)
        if kept is None or self.failing or kept.node or kept.pod.version != effect.version:
            answer = Answer.FAILED if self.failing else Answer.CONFLICT
            return PatchAnswered(effect, answer if kept else Answer.GONE)
        if isinstance(effect, Nominate):
            assert kept.pod.gated
            self.judge_nomination(effect, kept)
            self.changed(effect.uid, nominated=effect.node, condition=effect.condition)
            if crash:
                return None
            self.release(effect.release, kept, state)
            return PatchAnswered(effect, Answer.DONE, nominated=True, version=kept.pod.version)
        if isinstance(effect, Release):
            self.release(effect, kept, state)
        elif isinstance(effect, ClearNomination):
            self.changed(effect.uid, nominated="")
        elif isinstance(effect, LiftUndecided):
            assert self.now - kept.born >= WAIT
            self.changed(effect.uid, gates=())
        elif isinstance(effect, Tell):
            self.changed(effect.uid, condition=effect.condition)
        return PatchAnswered(effect, Answer.DONE, version=kept.pod.version)

    def release(self, effect: Release, kept: Kept, state: GateState | None) -> None:
        """The gate goes, and NotIn comes."""
        Judge.done += 1
        names = [name.removeprefix("host-") for name in effect.not_in]
        for name in names:
            self.judge_name(name, kept, state)
        kept.barred = frozenset(names)
        self.changed(effect.uid, gates=())

    # ---- what must hold

    def on_the_way(self, name: str) -> list[UnboundPod]:
        """Pods that are nominated to a node or were bound there so, and that the last summary does not have."""
        return [each.pod for uid, each in sorted(self.pods.items()) if uid not in self.shown[name]
                and name == each.pod.nominated and each.node in ("", name)]  # fmt: skip

    def laid(self, name: str, pods: list[UnboundPod]) -> DryRun:
        """The node as it published itself, with pods seen in order."""
        run = self.told[name].begin()
        for each in pods:
            run.see(each.pod, self.now)
        return run

    def judge_nomination(self, effect: Nominate, kept: Kept) -> None:
        """The node has room for all that is on the way to it by sums, and its core lets each of them in."""
        pods = [*self.on_the_way(effect.node), kept.pod]
        held = self.told[effect.node].held.get("cpu", 0) // 1000
        assert held + sum(map(cpus_of, pods)) <= 7
        run = self.laid(effect.node, pods)
        assert run.runs(kept.pod.pod.uid)

    def judge_name(self, name: str, kept: Kept, state: GateState | None) -> None:
        """A node in NotIn has room by sums, and its core refuses; what is in flight is the gatekeeper's own view."""
        flights = [each for each in (state.sites[name].flights if state else ()) if each.pod.uid != kept.pod.pod.uid]
        held = self.told[name].held.get("cpu", 0) // 1000
        assert held + cpus_of(kept.pod) <= 7
        assert not self.laid(name, [*flights, kept.pod]).runs(kept.pod.pod.uid)

    def crash(self) -> None:
        """The leader ends between two patches; a new one begins."""
        self.now += 0.1
        events = [self.news.popleft() for _ in range(len(self.news))]
        self.taken(self.state, events, crash=True)
        self.state = self.begun()
        assert not any(each.pod.gated and each.pod.nominated for each in self.pods.values())


def cpus_of(pod: UnboundPod) -> int:
    """Whole CPUs."""
    return sum(each.requests["cpu"] for each in pod.pod.containers) // 1000


ACTIONS = st.one_of(
    st.tuples(st.just("come"), st.integers(1, 4)), st.tuples(st.just("come"), st.integers(1, 4)),
    st.tuples(st.just("plain"), st.integers(1, 3)), st.tuples(st.just("end"), st.integers(0, 9)),
    st.tuples(st.just("schedule"), st.just(0)), st.tuples(st.just("publish"), st.integers(0, 2)),
    st.tuples(st.just("time"), st.integers(0, 60)), st.tuples(st.just("time"), st.integers(0, 60)),
    st.tuples(st.just("crash"), st.just(0)), st.tuples(st.just("spread"), st.integers(1, 4)),
    st.tuples(st.just("delete"), st.integers(0, 9)), st.tuples(st.just("fail"), st.integers(0, 1)),
)  # fmt: skip


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(ACTIONS, min_size=5, max_size=40))
def test_no_room_is_promised_twice_and_every_gate_is_lifted_in_time(actions: list[tuple[str, int]]) -> None:
    """S23: nothing is nominated that the core refuses, NotIn names refusing nodes alone, and each gate is lifted."""
    judge = Judge()
    for what, number in actions:
        judge.happen(what, number)
    judge.failing = False
    for second in range(int(WAIT) + 15):
        judge.schedule()
        if second % 5 == 0:
            for name in NODES:
                judge.publish(name)
        judge.pass_time(1.0, 1000)
    left = [each.pod.pod.uid for each in judge.pods.values() if each.pod.gates]
    assert left == []
    assert [uid for uid, each in judge.state.flights.items() if each.node or uid not in judge.pods] == []
    assert judge.state.foreign.keys() <= {uid for uid, each in judge.pods.items() if not each.node}
    assert all(not each.pod.nominated or each.node for each in judge.pods.values())
