"""The engine's transitions, one event at a time: whatever happens in whatever order, the rules of a state hold.

`tests.world.steps` refuses what cannot happen, and looks at each state; here is proved that it does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from agent.core.admission.resize import pending
from agent.core.cgroups.desired import DesiredSets
from agent.core.devices.kubelet import Offered
from agent.engine.occupancy import Occupancy
from agent.model.cgroup import Cause, Write, Written
from agent.model.idset import CpuSet, NodeSet
from agent.model.pod import Pod
from agent.model.podspec import pod_from
from agent.model.rules import OnMisalignment
from agent.node import answers, transitions
from agent.node.state import State
from agent.node.tracked_pod import Switches
from agent.node.transitions import Moment, Transition
from agent.node.wait_queue import queue_of
from tests.examples import examples
from tests.world.manifests import container, manifest
from tests.world.nodes import managers_of
from tests.world.steps import (
    Changed,
    DevicesOffered,
    DevicesTold,
    Ended,
    Event,
    Freed,
    ImpossibleError,
    LetIn,
    Seen,
    Softened,
    Started,
    TriedAgain,
    at_first,
    step,
)

MACHINE = "2 sockets x 1 node x 4 cores x 1 thread"
SETTINGS = {"kubeReserved": {"cpu": "1"}, "topologyManagerPolicy": "restricted", "onMisalignment": "wait"}
GPU = "example.com/gpu"


def listed(name: str, cpu: str = "2", created: int = 0, **annotations: str) -> Pod:
    """A pod of an init container and an app, as the API lists it."""
    return pod_from(
        manifest(name, container(cpu=cpu), inits=[container("init", "1")], created=created, **annotations)
    )


def after(*events: Event) -> State:
    """The state after events, a second apart, the first at 1 s."""
    state = at_first(managers_of(MACHINE, SETTINGS))
    for number, event in enumerate(events, 1):
        state = step(state, event, float(number)).state
    return state


WISHES = st.tuples(
    st.sampled_from(["1", "2", "3", "4", "500m"]),
    st.sampled_from(["wait", "wait", "wait", "fail", "run"]),
    st.sampled_from([False, False, False, True]),
)
"""CPUs, what is to be done where it does not fit, and whether it ran before."""
IN, WAITS = Seen(listed("in")), Seen(listed("waits", "7"))


@pytest.mark.parametrize(
    ("before", "event", "now", "why"),
    [
        ([], Ended("nobody"), 9, "nobody knows this pod"),
        ([], TriedAgain("nobody"), 9, "nobody knows this pod"),
        ([], Freed("nobody"), 9, "nobody knows this pod"),
        ([], Softened("nobody", OnMisalignment.RUN), 9, "nobody knows this pod"),
        ([], Started("nobody", "app"), 9, "is not in"),
        ([], DevicesTold("nobody", {}, running=True), 9, "is not in"),
        ([IN], Started("in", "ghost"), 9, "no such container"),
        ([IN], TriedAgain("in"), 9, "it is in"),
        ([IN], Softened("in", OnMisalignment.RUN), 9, "was not refused"),
        ([IN], Freed("in"), 9, "S13"),
        ([IN, Ended("in")], Ended("in"), 9, "ended already"),
        ([IN], Seen(replace(listed("in"), name="other")), 9, "another pod"),
        ([IN], Seen(listed("in", created=60)), 9, "another pod"),
        ([IN], Seen(replace(listed("in"), uid="")), 9, "no uid"),
        ([], LetIn(), 0, "time goes back"),
        ([IN, WAITS], LetIn(), 1, "time goes back"),
    ],
)
def test_what_cannot_happen_is_refused(before: list[Event], event: Event, now: float, why: str) -> None:
    """An event of a pod that the state cannot know, out of its order or before the one before it is no test's."""
    state = after(*before)
    with pytest.raises(ImpossibleError, match=why):
        step(state, event, now)


def _forgets(state: State, *_: object, **__: object) -> Transition:
    return Transition(replace(state, pods={}))


def _moves(state: State, *_: object, **__: object) -> Transition:
    return Transition(replace(state, ledger=state.node.release(state.ledger, "in")))


def _waits_from_tomorrow(state: State, *_: object, **__: object) -> Transition:
    return Transition(state.with_pods(*(replace(each, since=1e6) for each in state.pods.values())))


@pytest.mark.parametrize(
    ("wrong", "why"),
    [(_forgets, "nobody knows"), (_moves, "neither in nor refused"), (_waits_from_tomorrow, "from later on")],
)
def test_a_wrong_transition_is_noticed(
    monkeypatch: pytest.MonkeyPatch, wrong: Callable[..., Transition], why: str
) -> None:
    """A transition that forgets a pod, takes from one that runs or turns the clock fails the step."""
    state = after(IN)
    monkeypatch.setattr(transitions, "pod_seen", wrong)
    with pytest.raises(AssertionError, match=why):
        step(state, Seen(listed("new")), 9)


def test_a_pod_that_is_set_aside_keeps_nobody_from_his_turn() -> None:
    """Something goes wrong with a pod whose resize is pending: the others have their turn all the same."""
    grows = [Seen(listed("in", "3")), Seen(listed("other", "3")), Seen(listed("in", "6"))]
    state = after(*grows, WAITS, Ended("other"), Freed("other"))
    state = replace(state, pods={uid: each for uid, each in state.pods.items() if uid != "other"})
    assert pending(state.ledger) == ("in",)
    turned = transitions.let_in(state, {"in"}, Moment(9.0, lambda _pod: ""))
    assert (turned.state.ledger, turned.to_report) == (state.ledger, ())


def test_who_holds_nothing_is_told_nothing_of_the_kernel() -> None:
    """A pod that waits, one that ended and one that nobody knows lack nothing that they were told to have."""
    state = after(IN, WAITS, Seen(listed("gone")), Ended("gone"))
    lacking = {uid: {"app": "somebody else writes its CPUs"} for uid in ("in", "waits", "gone", "nobody")}
    turned = answers.report_lacking(state, lacking, 9.0, ())
    assert [pod.uid for pod in turned.to_report] == ["in"]
    assert answers.report_lacking(state, lacking, 9.0, ["in"]).to_report == ()


def test_nobody_is_put_on_cpus_where_another_stands_though_there_is_no_pool() -> None:
    """Where all CPUs are granted, a write that could not be made keeps its container on them all the same."""
    wanted = {"/a": DesiredSets(CpuSet.parse("1-2"), exclusive=True), "/b": DesiredSets(CpuSet.of(3), exclusive=True)}
    standing = Occupancy({"/a": "a", "/b": "b"}, {}, {}, CpuSet(), wanted, {})
    write = Write("/a", "cpuset.cpus", "1-2", "0-3", Cause.GRANT)
    standing.moved((Written(write, "1-2", "1-2"),))
    assert standing.in_the_way(Write("/b", "cpuset.cpus", "2-3", "0-3", Cause.GRANT))
    assert not standing.in_the_way(Write("/b", "cpuset.cpus", "3", "0-3", Cause.GRANT))


def test_the_shared_part_of_a_mixed_set_keeps_nobody_waiting() -> None:
    """Two containers have the reserved CPUs beside their own, which no pool holds: each waits for own CPUs only."""
    wanted = {
        path: DesiredSets(CpuSet.parse(cpus), exclusive=True, shared=CpuSet.of(0))
        for path, cpus in (("/a", "0-2"), ("/b", "0,3-4"))
    }
    on = {"/a": CpuSet.parse("0-2")}
    standing = Occupancy({"/a": "a", "/b": "b"}, on, dict(on), CpuSet.parse("5-7"), wanted, {})
    assert not standing.in_the_way(Write("/b", "cpuset.cpus", "0,3-4", "5-7", Cause.GRANT))
    assert standing.in_the_way(Write("/b", "cpuset.cpus", "0,2", "5-7", Cause.GRANT))
    standing.moved((Written(Write("/b", "cpuset.cpus", "0,3-7", "5-7", Cause.GRANT), "0,3-7", "0,3-7"),))
    assert standing.alone["/b"] == CpuSet.parse("3-4"), "those reserved now may be granted under other settings"


class Steps(RuleBasedStateMachine):
    """One node whose pods come, wait, resize, end and go, under settings and devices that change."""

    def __init__(self) -> None:
        super().__init__()
        self.count, self.now = 0, 1.0
        self.state: State | None = None

    @initialize(policy=st.sampled_from(["best-effort", "restricted", "single-numa-node"]))
    def begin(self, policy: str) -> None:
        """An empty node."""
        self.settings = {**SETTINGS, "topologyManagerPolicy": policy}
        self.state = at_first(managers_of(MACHINE, self.settings), switches=Switches(most_waiting=2))

    def happens(self, event: Event, later: float = 1.0) -> None:
        """One event."""
        assert self.state is not None
        self.now += later
        self.state = step(self.state, event, self.now).state

    def some(self, data: st.DataObject, which: Callable[[Any], bool]) -> str:
        """One of the pods of which something is true, "" for none."""
        assert self.state is not None
        uids = sorted(uid for uid, each in self.state.pods.items() if which(each))
        return data.draw(st.sampled_from(uids)) if uids else ""

    @rule(wishes=st.lists(WISHES, min_size=1, max_size=4))
    def come(self, wishes: list[tuple[str, str, bool]]) -> None:
        """Pods are listed, now and then one that ran before."""
        for cpu, wish, ran in wishes:
            self.count += 1
            self.happens(Seen(listed(f"p{self.count:02}", cpu, self.count, on_misalignment=wish), ran=ran))

    @precondition(lambda self: self.state and self.state.pods)
    @rule(data=st.data(), cpu=st.sampled_from(["1", "2", "3", "4"]))
    def resizes(self, data: st.DataObject, cpu: str) -> None:
        """A pod asks for other CPUs."""
        assert self.state is not None
        uid = self.some(data, lambda each: not each.ended and each.pod.qos == "Guaranteed" and each.pod.containers)
        if uid and all(each.requests["cpu"] % 1000 == 0 for each in self.state.pods[uid].pod.containers):
            old = self.state.pods[uid].pod
            new = listed(uid, cpu, int(uid[1:]), **{
                key.removeprefix("numalign.io/").replace("-", "_"): text for key, text in old.annotations.items()
            })  # fmt: skip
            self.happens(Seen(new))

    @rule(data=st.data())
    def ends(self, data: st.DataObject) -> None:
        """A pod leaves the API."""
        if uid := self.some(data, lambda each: not each.ended):
            self.happens(Ended(uid))

    @rule(data=st.data())
    def goes(self, data: st.DataObject) -> None:
        """The cgroups of one that ended have gone, and who waits is tried."""
        if uid := self.some(data, lambda each: each.ended):
            self.happens(Freed(uid))
            self.happens(LetIn())

    @rule(data=st.data())
    def starts(self, data: st.DataObject) -> None:
        """The app of a pod runs: its init container's CPUs go."""
        assert self.state is not None
        there = self.state.ledger.pods
        if uid := self.some(data, lambda each: each.pod.uid in there and not each.ended):
            self.happens(Started(uid, "init"))
            self.happens(Started(uid, "app"))

    @rule(data=st.data())
    def is_tried_again(self, data: st.DataObject) -> None:
        """One that was refused is decided once more."""
        if uid := self.some(data, lambda each: each.refusal and not each.ended):
            self.happens(TriedAgain(uid))

    @rule(data=st.data(), wish=st.sampled_from([OnMisalignment.WAIT, OnMisalignment.RUN]))
    def is_softened(self, data: st.DataObject, wish: OnMisalignment) -> None:
        """Its owner had too many refused."""
        if uid := self.some(data, lambda each: each.refusal and not each.ended):
            self.happens(Softened(uid, wish))

    @rule(later=st.sampled_from([1.0, 30.0, 700.0]))
    def time_passes(self, later: float) -> None:
        """Some time, or longer than a pod may wait."""
        self.happens(LetIn(), later)

    @rule(data=st.data(), near=st.sampled_from([0, 1]), running=st.booleans())
    def gets_devices(self, data: st.DataObject, near: int, running: bool) -> None:  # noqa: FBT001 - drawn
        """The kubelet tells of a pod's device, known or not."""
        assert self.state is not None
        uid = self.some(data, lambda _each: True) or "p99"
        running = running and uid in self.state.ledger.pods
        self.happens(DevicesTold(uid, {"app": (Offered(GPU, uid, NodeSet.of(near)),)}, running=running))

    @rule(count=st.integers(0, 3))
    def offers_devices(self, count: int) -> None:
        """The kubelet tells which devices there are."""
        self.happens(DevicesOffered(tuple(Offered(GPU, f"g{number}", NodeSet.of(0)) for number in range(count))))

    @rule(
        policy=st.sampled_from(["best-effort", "restricted", "single-numa-node", "none"]),
        wish=st.sampled_from(["wait", "run"]),
        machine=st.sampled_from([MACHINE, MACHINE, f"{MACHINE}, offline 7"]),
        most=st.integers(1, 3),
    )
    def changes(self, policy: str, wish: str, machine: str, most: int) -> None:
        """Other settings, now and then with a CPU less."""
        self.settings = {**SETTINGS, "topologyManagerPolicy": policy, "onMisalignment": wish}
        self.happens(Changed(managers_of(machine, self.settings), Switches(most_waiting=most)))

    @invariant()
    def whoever_waits_holds_nothing(self) -> None:
        """A pod in the line is in no ledger."""
        if self.state is not None:
            line = {each.pod.uid for each in queue_of(self.state.pods, self.state.node.rules)}
            assert not line & self.state.ledger.pods.keys()


Steps.TestCase.settings = settings(max_examples=examples(60), stateful_step_count=30, deadline=None)
TestSteps = Steps.TestCase
