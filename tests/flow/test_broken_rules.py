"""A rule of the books that breaks costs the pod that breaks it, never those that were decided together with it.

Finding 8.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from agent.core.admission.node import Node
from agent.core.admission.pod import Trace
from agent.core.request.annotations import NOTHING, PodSettings
from agent.model.idset import CpuSet
from agent.model.ledger import Ledger
from agent.model.outcome import Admitted, Outcome
from agent.model.pod import Pod
from agent.model.rules import OnMisalignment
from tests.flow.world import MemoryStore, World, container, manifest
from tests.world.clock import Clock


class Greedy(Node):
    """Managers with a bug: pods called bad get a CPU that is reserved and shared."""

    def admit(self, ledger: Ledger, pod: Pod, settings: PodSettings = NOTHING, trace: Trace | None = None) -> Outcome:
        outcome = super().admit(ledger, pod, settings, trace)
        if not pod.name.startswith("bad") or not isinstance(outcome, Admitted):
            return outcome
        books = outcome.ledger.cpus
        wrong = replace(books, assigned={**books.assigned, pod.uid: {"app": CpuSet.of(0)}})
        return replace(outcome, ledger=replace(outcome.ledger, cpus=wrong))


def greedy(world: World, **settings: Any) -> Greedy:  # noqa: ANN401 - a document's values
    """The world's managers, with the bug."""
    node = world.node(**settings)
    return Greedy(node.machine, node.rules, node.inventory)


@pytest.fixture
def clock() -> Clock:
    """Of the world."""
    return Clock()


@pytest.fixture
def world(tmp_path: Path, clock: Clock) -> World:
    """A node whose managers have the bug."""
    world = World(tmp_path / "tree", clock=clock)
    world.engine.changed(greedy(world))
    world.engine.pods_listed({"a", "bad", "b", "late"})
    return world


def batch() -> tuple[dict[str, Any], ...]:
    """Three pods that come together; with the one in the middle a rule breaks."""
    return tuple(manifest(name, container(cpu="2"), created=at) for at, name in enumerate(("a", "bad", "b"), 1))


def test_the_others_of_a_batch_are_decided(world: World) -> None:
    """Two of three hold their CPUs, saved and told; the third holds nothing, runs on the pool, and that is told."""
    world.see(*batch())
    assert [bool(world.holds(uid)) for uid in ("a", "bad", "b")] == [True, False, True]
    assert set(world.ears.admitted_) == {"a", "bad", "b"}
    assert world.condition("bad") == "False NotAligned"
    (told,) = [text for what, text in world.ears.problems if what == "set-aside"]
    assert "pod default/bad is set aside" in told
    for uid in ("a", "bad", "b"):
        world.start(uid)
    assert world.effective("a") == world.holds("a")


def test_whoever_was_set_aside_is_tried_again_later(world: World, clock: Clock) -> None:
    """With growing pauses, told once; when the fault is over, it is pinned without anybody's doing."""
    world.see(*batch())
    world.start("bad")
    saves = world.store.saves
    for _ in range(360):
        clock.now += 10
        world.engine.reconcile()
    assert world.store.saves - saves <= 20, "one save a try at most, and few tries within an hour"
    assert len([text for what, text in world.ears.problems if what == "set-aside"]) == 1
    world.engine.changed(world.node())
    clock.now += 1280
    world.engine.reconcile()
    assert world.effective("bad") == world.holds("bad") != ""
    assert world.condition("bad") == "True Aligned"


def test_a_fault_of_one_moment_costs_nobody_anything(tmp_path: Path) -> None:
    """The check fails once, as by a flipped bit: each pod of the batch is decided all the same."""
    store = Failing()
    world = World(tmp_path / "tree", store=store)
    world.engine.pods_listed({"a", "b"})
    store.faults = 1
    world.see(manifest("a", container(cpu="2"), created=1), manifest("b", container(cpu="2"), created=2))
    assert [bool(world.holds(uid)) for uid in ("a", "b")] == [True, True]


def test_a_pod_in_line_that_breaks_a_rule_keeps_nobody_waiting(tmp_path: Path, clock: Clock) -> None:
    """Room appears: the first in line breaks the books, the next one gets in."""
    world = World(tmp_path / "tree", clock=clock, most_waiting=6)
    wait = {"onMisalignment": OnMisalignment.WAIT.value, "topologyManagerPolicy": "single-numa-node"}
    world.engine.changed(greedy(world, **wait))
    world.engine.pods_listed({"one", "two", "bad", "b"})
    for at, name, cpu in ((1, "one", "3"), (2, "two", "4"), (3, "bad", "3"), (4, "b", "3")):
        world.see(manifest(name, container(cpu=cpu), created=at))
    assert world.ears.refused_.keys() == {"bad", "b"}
    world.engine.pods_gone(["two"])
    assert (world.holds("bad"), world.holds("b")) == ("", "4-6")


def test_s11_a_pod_in_line_that_was_set_aside_costs_nobody_behind_it_a_turn(tmp_path: Path, clock: Clock) -> None:
    """Until it is tried again the line goes on without it: room goes to the next one, nobody else is set aside."""
    world = World(tmp_path / "tree", clock=clock, most_waiting=6)
    wait = {"onMisalignment": OnMisalignment.WAIT.value, "topologyManagerPolicy": "single-numa-node"}
    world.engine.changed(greedy(world, **wait))
    world.engine.pods_listed({"one", "two", "bad", "b", "c"})
    for at, name, cpu in ((1, "one", "3"), (2, "two", "4"), (3, "bad", "3"), (4, "b", "3"), (5, "c", "3")):
        clock.now += 0.1
        world.see(manifest(name, container(cpu=cpu), created=at))
    assert world.ears.refused_.keys() == {"bad", "b", "c"}
    world.engine.pods_gone(["two"])
    assert (world.holds("bad"), world.holds("b"), world.holds("c")) == ("", "4-6", "")
    world.engine.pods_gone(["one"])
    assert (world.holds("bad"), world.holds("c")) == ("", "1-3")
    assert {text.split()[1] for what, text in world.ears.problems if what == "set-aside"} == {"default/bad"}


def test_s13_a_pod_that_was_set_aside_and_ended_is_granted_nothing(world: World, clock: Clock) -> None:
    """It left the API while its processes live: when its turn to be tried again comes, it gets no CPUs."""
    world.see(*batch())
    world.start("bad")
    world.engine.pods_gone(["bad"])
    world.engine.changed(world.node())
    clock.now += 1280
    world.engine.reconcile()
    assert world.holds("bad") == ""
    assert "bad" not in world.engine.snapshot.ledger.cpus.assigned


def test_a_pod_that_cannot_be_freed_keeps_no_other_from_it(tmp_path: Path, clock: Clock) -> None:
    """Two pods end; to give back what one held breaks a rule: the other's CPUs are free, the one's stay its own."""
    world = World(tmp_path / "tree", clock=clock)
    world.engine.pods_listed({"a", "stuck"})
    for at, name in enumerate(("a", "stuck"), 1):
        world.see(manifest(name, container(cpu="2"), created=at))
    node = world.node()
    world.engine.changed(Clinging(node.machine, node.rules, node.inventory))
    world.engine.pods_gone(["a", "stuck"])
    assert (world.holds("a"), bool(world.holds("stuck"))) == ("", True)
    assert world.ears.released_ == ["a"]
    world.engine.changed(world.node())
    clock.now += 20
    world.engine.reconcile()
    assert (world.holds("stuck"), world.ears.released_) == ("", ["a", "stuck"])


def test_settings_that_break_a_rule_leave_everything_as_it_was(world: World, clock: Clock) -> None:
    """A change that cannot be followed is told, and tried again; decisions go on meanwhile, by the old settings."""
    world.see(manifest("a", container(cpu="2"), created=1))
    held = world.holds("a")
    node = world.node()
    world.engine.changed(Losing(node.machine, node.rules, node.inventory))
    assert world.holds("a") == held
    world.see(manifest("b", container(cpu="2"), created=2))
    assert world.holds("b")
    told = [text for what, text in world.ears.problems if what == "set-aside"]
    world.engine.reconcile()
    assert [text for what, text in world.ears.problems if what == "set-aside"] == told
    assert "not followed yet" in told[-1]
    world.engine.changed(world.node())
    world.run(manifest("late", container(cpu="2"), created=3))
    assert world.effective("late") == world.holds("late") != ""


class Failing(MemoryStore):
    """A store that fails in a way that nobody expects, so many times."""

    faults = 0

    def save(self, ledger: Ledger, extra: Any = None) -> None:  # noqa: ANN401 - as the engine gives it
        if self.faults:
            self.faults -= 1
            raise ZeroDivisionError("of a kind that nobody expects")
        super().save(ledger, extra)


class Clinging(Node):
    """Managers with a bug: what a pod called stuck gives back, nobody has afterwards."""

    def release(self, ledger: Ledger, uid: str) -> Ledger:
        after = super().release(ledger, uid)
        return replace(after, cpus=replace(after.cpus, shared=ledger.cpus.shared)) if uid == "stuck" else after


class Losing(Node):
    """Managers with a bug: nobody has any CPU."""

    def start(self) -> Ledger:
        empty = super().start()
        return replace(empty, cpus=replace(empty.cpus, shared=CpuSet()))


@dataclass
class Picky(MemoryStore):
    """A store with a bug: it falls over a pod called bad."""

    def save(self, ledger: Ledger, extra: Mapping[str, object] | None = None) -> None:
        if "bad" in ledger.pods:
            raise ValueError("no place for a bad one")
        super().save(ledger, extra)


def test_who_can_be_adopted_is(tmp_path: Path) -> None:
    """The ledger is lost and the list comes late: two of three keep what they run on, the third is told of."""
    world = World(tmp_path / "tree")
    pods = ("gone", "one", "bad", "two")
    world.engine.pods_listed(set(pods))
    for at, uid in enumerate(pods):
        world.run(manifest(uid, container(cpu="1"), created=at))
    world.end("gone")
    before = {uid: world.effective(uid) for uid in ("one", "two")}
    again = World(tmp_path / "tree", store=Picky())
    again.pods = {uid: pod for uid, pod in world.pods.items() if uid != "gone"}
    again.engine.adopt(again.pods.values(), again.names(), {})
    assert set(again.engine.ledger.pods) == set(again.engine.pods) == {"one", "two"}
    again.engine.pods_seen(again.pods.values(), ran=set(again.pods))
    again.engine.pods_listed(set(again.pods))
    again.check()
    assert {uid: again.holds(uid) for uid in before} == before
    assert {uid: again.effective(uid) for uid in before} == before
    assert any("pod default/bad" in text for what, text in again.ears.problems if what == "set-aside")
