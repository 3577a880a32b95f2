"""News of a pod that come after its end: nothing comes of them, unless the watch brings them (safety.md S13)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from agent.core.devices.kubelet import Offered
from agent.host.device_nodes import Usable
from agent.host.nri.decisions import EngineDecisions
from agent.model.idset import NodeSet
from agent.model.pod import Stage
from agent.model.podspec import pod_from
from agent.node.early import CLAIMED_WITHIN
from agent.node.state import MOST_GONE
from agent.node.transitions import MOST_TOLD
from tests import patience
from tests.flow.world import World, container, manifest
from tests.patience import PATIENCE

JOB = manifest("job", container(cpu="3"), policy="single-numa-node")
NEXT = manifest("next", container(cpu="3"), created=1, policy="single-numa-node")
News = Callable[[World], object]
NEWS: dict[str, News] = {
    "the runtime's question": lambda world: world.engine.pod_found(pod_from(JOB)),
    "devices of the kubelet": lambda world: world.engine.devices_reported(
        "job", {"app": (Offered("example.com/gpu", "0", NodeSet.of(0)),)}
    ),
    "devices of claims": lambda world: world.engine.claims_reported("job", {}),
    "another try": lambda world: world.engine.retry(["job"]),
    "a container's name": lambda world: world.engine.containers_seen({"a" * 64: ("job", "app")}),
    "a name, announced": lambda world: world.engine.containers_announced({"a" * 64: ("job", "app")}),
    "a look": lambda world: world.engine.reconcile(),
}


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Two nodes of four CPUs, one of which is reserved."""
    made = World(tmp_path)
    made.engine.pods_listed(set())
    return made


@pytest.mark.parametrize("news", NEWS.values(), ids=NEWS)
def test_s13_news_of_a_pod_that_is_gone_are_old(world: World, news: News) -> None:
    """Nothing is held for it, nothing is known of it, and the next pod gets what it had."""
    world.run(JOB)
    world.end("job")
    world.engine.pods_gone(["job"])
    saves = world.store.saves
    news(world)
    world.engine.reconcile()
    assert "job" not in world.engine.pods
    assert "job" not in {**world.engine.snapshot.given, **world.engine.snapshot.device_tracker.claims}
    assert (world.holds("job"), world.store.saves) == ("", saves)
    world.run(NEXT)
    assert world.holds("next") == "1-3"


@pytest.mark.parametrize("news", NEWS.values(), ids=NEWS)
def test_s13_news_of_a_pod_that_ended_do_not_bring_it_back(world: World, news: News) -> None:
    """Its processes run still: it keeps its CPUs until they end, and no longer."""
    world.run(JOB)
    world.engine.pods_gone(["job"])
    news(world)
    assert world.holds("job") == "1-3"
    world.end("job")
    world.engine.reconcile()
    assert (world.holds("job"), "job" in world.engine.pods) == ("", False)


def test_a_pod_whose_end_is_all_that_the_watch_told_is_gone(world: World) -> None:
    """It came and went between two looks of the watch; the runtime's question about it is answered with nothing."""
    world.engine.pods_gone(["job"])
    world.engine.pod_found(pod_from(JOB))
    assert "job" not in world.engine.pods


def test_the_watch_brings_a_static_pod_back(world: World) -> None:
    """Its uid is the hash of its manifest, and stays: the mirror that is made again is a pod like any."""
    world.run(JOB)
    world.end("job")
    world.engine.pods_gone(["job"])
    world.run(JOB)
    assert world.holds("job") == "1-3"
    world.end("job")
    world.engine.pods_gone(["job"])
    world.engine.pod_found(pod_from(JOB))
    assert world.holds("job") == ""


def test_pods_that_are_gone_are_remembered_within_bounds(world: World) -> None:
    """As many as the constant says, the last ones."""
    uids = [f"p{number:05}" for number in range(MOST_GONE + 5)]
    for uid in uids:
        world.engine.pods_gone([uid])
    assert list(world.engine.snapshot.gone) == uids[5:]
    world.engine.pods_gone(uids)
    assert list(world.engine.snapshot.gone) == uids[5:], "so it is with many at once"


@pytest.mark.parametrize("news", NEWS.values(), ids=NEWS)
def test_s13_a_pod_whose_end_is_forgotten_holds_nothing_for_long(tmp_path: Path, news: News) -> None:
    """So many pods went since that its uid is not remembered: late news give it nothing, the runtime's a minute."""
    now = [100.0]
    world = World(tmp_path, clock=lambda: now[0])
    world.engine.pods_listed(set())
    world.run(JOB)
    world.end("job")
    world.engine.pods_gone(["job"])
    world.engine.pods_gone([f"p{number:05}" for number in range(MOST_GONE)])
    assert not world.engine.snapshot.over("job")
    news(world)
    assert world.holds("job") == ("1-3" if news is NEWS["the runtime's question"] else "")
    now[0] += CLAIMED_WITHIN + 1
    world.engine.reconcile()
    assert (world.holds("job"), "job" in world.engine.pods, world.engine.snapshot.over("job")) == (
        "", False, news is NEWS["the runtime's question"],
    )  # fmt: skip
    world.run(NEXT)
    assert world.holds("next") == "1-3"


def test_devices_of_pods_that_never_come_are_remembered_within_bounds(world: World) -> None:
    """The kubelet may tell of a pod before it is decided; of many that is kept for pods that are known."""
    world.run(JOB)
    for uid in ("job", *(f"p{number:05}" for number in range(MOST_TOLD + 10))):
        world.engine.devices_reported(uid, {"app": (Offered("example.com/gpu", "0", NodeSet.of(0)),)})
    given = world.engine.snapshot.device_tracker.given
    assert len(given) <= MOST_TOLD
    assert "job" in given


def test_a_question_that_was_given_up_is_not_decided_later(world: World) -> None:
    """The runtime waits for a moment; the pod that it asked about comes by the watch, or has gone by then."""
    decisions, busy = EngineDecisions(world.engine, lambda _address: Usable(())), threading.Event()

    def hold() -> None:
        patience.until(busy.is_set)

    decisions.start()
    decisions._queue.put(hold)
    assert not decisions.decide(pod_from(JOB), within=0.01)
    busy.set()
    assert decisions.decide(pod_from(NEXT), within=PATIENCE)
    assert set(world.engine.pods) == {"next"}
    assert decisions.stop(PATIENCE)


@pytest.mark.parametrize("brought", [False, True], ids=["unknown", "not accepted yet"])
@pytest.mark.parametrize("wish", ["run", "fail", "wait", "evict"])
def test_a_refusal_of_the_runtimes_question_is_not_the_last_word(world: World, wish: str, *, brought: bool) -> None:
    """A pod is asked for before the watch has told the end of another: when it brings both, there is room."""
    late = manifest("late", container(cpu="3"), created=1, policy="single-numa-node", on_misalignment=wish)
    named = [replace(pod_from(late), stage=Stage.NAMED)] if brought else []
    world.run(JOB)
    world.run(manifest("other", container(cpu="3"), policy="single-numa-node"))
    world.end("job")
    world.engine.pods_seen(named)
    world.engine.pod_found(pod_from(late))
    world.engine.pods_seen(named)
    assert (world.holds("late"), "late" in world.ears.refused_) == ("", False)
    world.engine.pods_gone(["job"])
    world.see(late)
    assert world.holds("late") == "1-3"
    assert "late" not in world.ears.refused_
    world.start("late")
    assert world.effective("late") == "1-3"


def test_what_the_watch_brings_is_refused_as_ever(world: World) -> None:
    """There is no room then either: it is told once, and what its wish says is done to it."""
    late = manifest("late", container(cpu="6"), created=1, policy="single-numa-node", on_misalignment="fail")
    world.engine.pod_found(pod_from(late))
    assert "late" not in world.ears.refused_
    assert "open" in world.engine.pods["late"].refusal.facts  # type: ignore[union-attr] # it was refused
    world.see(late)
    assert "open" not in world.ears.refused_["late"].facts


def test_a_pod_that_runs_already_is_left_where_it_is(world: World) -> None:
    """The runtime made its container meanwhile: it stays on the shared pool, and that is told."""
    late = manifest("late", container(cpu="6"), created=1, policy="single-numa-node")
    world.engine.pod_found(pod_from(late))
    world.pods["late"] = pod_from(late)
    world.start("late")
    world.see(late)
    assert world.ears.refused_["late"].reason == "TopologyAffinityError"
    assert (world.holds("late"), world.effective("late")) == ("", "0-7")


def test_a_pod_that_the_kubelet_had_not_accepted_is_decided_at_its_sandbox(world: World) -> None:
    """The watch has brought it before: the runtime's question says that the kubelet has accepted it."""
    pod = replace(pod_from(JOB), stage=Stage.NAMED)
    world.engine.pods_seen([pod])
    assert (world.holds("job"), dict(world.store.saved.pods if world.store.saved else {})) == ("", {})
    decisions = EngineDecisions(world.engine, lambda _address: Usable(()))
    assert not decisions.knows("job")
    world.engine.pod_found(pod)
    assert decisions.knows("job")
    assert world.holds("job") == "1-3"
    world.engine.pods_seen([pod])
    assert world.holds("job") == "1-3", "the watch's word is older than the runtime's"


def test_s13_a_pod_that_never_came_holds_nothing_for_long(tmp_path: Path) -> None:
    """The runtime asked for it, and neither the watch nor a cgroup has it since; with a cgroup it keeps its CPUs."""
    now = [100.0]
    world = World(tmp_path, clock=lambda: now[0])
    world.engine.pods_listed(set())
    world.engine.pod_found(pod_from(JOB))
    world.pods["runs"] = pod_from(manifest("runs", container(cpu="3"), policy="single-numa-node"))
    world.engine.pod_found(world.pods["runs"])
    world.start("runs")
    assert (world.holds("job"), world.holds("runs")) == ("1-3", "4-6")
    now[0] += CLAIMED_WITHIN
    world.engine.reconcile()
    assert world.holds("job") == "1-3"
    now[0] += 1
    world.engine.reconcile()
    assert (world.holds("job"), world.holds("runs")) == ("", "4-6")
    world.see(JOB)
    assert world.holds("job") == "1-3", "the watch brings it all the same"
