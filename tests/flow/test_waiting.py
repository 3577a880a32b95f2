"""Waiting for room through the engine and the runtime's answers (safety.md S11), and resizes that wait for it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from agent.core.admission.waiting import BEHIND, FINAL
from agent.host.device_nodes import Usable
from agent.host.nri.decisions import EngineDecisions
from agent.model.outcome import Reason
from agent.node.tracked_pod import most_waiting
from tests.flow.world import World, container, manifest

SMALL = "1 socket x 1 node x 4 cores x 1 thread"
WAIT: dict[str, Any] = {"policy": "single-numa-node", "on_misalignment": "wait"}


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Three CPUs to give (one of four is reserved); three pods may wait."""
    world = World(tmp_path, machine=SMALL, most_waiting=3, waiting_limit=60.0)
    world.engine.pods_listed(set())
    return world


def verdicts(world: World) -> EngineDecisions:
    """What the runtime would be answered."""
    return EngineDecisions(world.engine, lambda _address: Usable(()))


def gone(world: World, uid: str) -> None:
    """A pod ends, all of it."""
    world.end(uid)
    world.engine.pods_gone([uid])


def test_s11_first_come_first_in(world: World) -> None:
    """Whoever came first starts first; the runtime is told no with the reason, then yes."""
    world.run(manifest("holder"))
    for number, name in enumerate(("one", "two")):
        world.see(manifest(name, created=number + 1, **WAIT))
    answers = verdicts(world)
    assert "Topology" in answers.verdict("one")
    assert answers.verdict("two")
    gone(world, "holder")
    assert (answers.verdict("one"), world.holds("one")) == ("", "1-2")
    assert answers.verdict("two")
    gone_after = world.ears.admitted_[-1]
    assert gone_after == "one"
    world.check()


def test_s11_a_small_pod_neither_passes_to_the_harm_of_the_head_nor_is_blocked_by_it(world: World) -> None:
    """A backfill that would delay the head waits; one that would not goes in at once."""
    world.run(manifest("holder", container(cpu="2")))
    world.see(manifest("head", container(cpu="3"), created=1, policy="none", on_misalignment="wait"))
    head = world.engine.pods["head"].refusal
    assert head is not None
    assert "requested=3, available=1" in head.message
    world.see(manifest("small", container(cpu="1"), created=2, **WAIT))
    assert world.holds("small") == ""
    refusal = world.engine.pods["small"].refusal
    assert refusal is not None
    assert (refusal.reason, refusal.facts["before"], refusal.facts["requested"]) == (Reason.BEHIND, 1, {"cpu": 3})
    numbers = "it fits now, and would delay default/head, which waits for 3 CPUs (1 pod waits before it)"
    assert verdicts(world).verdict("small") == f"{BEHIND}: {numbers}"
    world.see(manifest("shares", container(cpu="500m"), created=3, **WAIT))
    assert verdicts(world).verdict("shares") == ""


def test_a_pod_is_not_told_which_pod_of_another_namespace_holds_it_back(world: World) -> None:
    """The runtime's answer becomes an Event of the pod; operators read the name and the amounts on the page."""
    world.run(manifest("holder", container(cpu="2")))
    world.see(manifest("head", container(cpu="3"), created=1, namespace="bank", **WAIT))
    world.see(manifest("small", container(cpu="1"), created=2, **WAIT))
    refusal = world.engine.pods["small"].refusal
    assert refusal is not None
    told = "it fits now, and would delay a pod of another namespace that came before"
    assert verdicts(world).verdict("small") == refusal.text == f"{BEHIND}: {told}"
    assert refusal.plain == "it fits now, and would delay bank/head, which waits for 3 CPUs (1 pod waits before it)"


def test_s11_what_can_never_fit_is_refused_at_once(world: World) -> None:
    """Nobody waits for more than an empty node has; the refusal is for good and says so."""
    world.see(manifest("huge", container(cpu="9"), **WAIT))
    refusal = world.engine.pods["huge"].refusal
    assert refusal is not None
    assert refusal.facts[FINAL] == "never"
    assert "empty node" in verdicts(world).verdict("huge")


def test_s11_waiting_ends(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the limit a pod is refused for good, told once, and room that appears later is not for it."""
    world.run(manifest("holder"))
    world.see(manifest("late", created=1, **WAIT))
    world.ears.refused_.clear()
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 61)
    world.engine.reconcile()
    assert world.ears.refused_["late"].facts[FINAL] == "overdue"
    world.ears.refused_.clear()
    world.engine.reconcile()
    assert world.ears.refused_ == {}
    gone(world, "holder")
    assert world.holds("late") == ""


def test_s11_on_a_full_disk_nobody_waits_in_vain(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """While nothing can be saved nobody is let in, so nobody is refused for good for having waited too long."""
    world.run(manifest("holder"))
    world.see(manifest("late", created=1, **WAIT))
    world.store.full = "no space left on device"
    world.see(manifest("other", container(cpu="1"), created=2))
    assert world.engine.snapshot.unwritable
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 61)
    world.engine.reconcile()
    refusal = world.engine.pods["late"].refusal
    assert refusal is not None
    assert FINAL not in refusal.facts


def test_s11_the_rate_of_sandboxes_is_capped(world: World) -> None:
    """Each waiting pod costs a sandbox every 12 s: beyond the cap a pod is refused for good."""
    assert [most_waiting(rate) for rate in (1, 10, 60)] == [1, 2, 12]
    world.run(manifest("holder"))
    for number in range(4):
        world.see(manifest(f"w{number}", created=number + 1, **WAIT))
    finals = [uid for uid, known in world.engine.pods.items() if known.refusal and FINAL in known.refusal.facts]
    assert finals == ["w3"]


def test_s11_a_pod_of_another_wish_does_not_stand_in_line(world: World) -> None:
    """`fail` is answered at once, whoever waits."""
    world.run(manifest("holder"))
    world.see(manifest("waits", created=1, **WAIT))
    world.see(manifest("fails", container(cpu="1"), created=2, policy="single-numa-node", on_misalignment="fail"))
    assert world.holds("fails") == "3"


def test_s11_a_pod_of_another_wish_is_not_held_back_for_those_who_wait(world: World) -> None:
    """Only who stands in line lets those before him pass: one that would not wait is in though it delays them."""
    world.run(manifest("holder"))
    world.see(manifest("head", container(cpu="3"), created=1, policy="none", on_misalignment="wait"))
    world.see(manifest("fails", container(cpu="1"), created=2, policy="single-numa-node", on_misalignment="fail"))
    assert world.holds("fails") == "3"


def test_a_resize_that_was_not_followed_is_when_there_is_room(world: World) -> None:
    """Growing beyond what is free is said, and done as soon as another pod has gone."""
    world.run(manifest("a", container(cpu="1")))
    world.run(manifest("b", container(cpu="1"), created=1))
    world.see(manifest("a", container(cpu="2")))
    assert world.holds("a") == "1,3"
    world.see(manifest("a", container(cpu="3")))
    assert world.holds("a") == "1,3"
    assert "resize not followed" in world.engine.ledger.pods["a"].why["app"]
    gone(world, "b")
    assert world.holds("a") == "1-3"
    assert world.engine.ledger.pods["a"].aligned["app"]
    assert world.effective("a") == "1-3"
    world.check()


def test_a_resize_down_gives_cpus_back(world: World) -> None:
    """What is given up is shared again at once, and the container keeps a part of what it had."""
    world.run(manifest("a", container(cpu="3")))
    world.see(manifest("a", container(cpu="1")))
    assert world.holds("a") == "1"
    assert str(world.engine.ledger.cpus.shared) == "0,2-3"
    assert world.effective("a") == "1"


def test_s11_a_backfill_that_harms_the_head_only_when_all_leave_waits(world: World) -> None:
    """The head fits when both holders have gone, and not after either alone: else small pods would starve it."""
    world.run(manifest("one", container(cpu="1")))
    world.run(manifest("two", container(cpu="1"), created=1))
    world.see(manifest("head", container(cpu="3"), created=2, policy="none", on_misalignment="wait"))
    world.see(manifest("small", container(cpu="1"), created=3, policy="none", on_misalignment="wait"))
    assert (world.holds("head"), world.holds("small")) == ("", "")
    assert "delay" in verdicts(world).verdict("small")
    gone(world, "one")
    gone(world, "two")
    assert world.holds("head") == "1-3"
