"""A runtime that names containers while a plan is carried out is answered with nothing that is not in force.

Finding 2.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agent.engine import enforcer
from agent.host.device_nodes import Usable
from agent.host.nri.decisions import EngineDecisions
from agent.host.nri.driver import NriDriver
from agent.host.nri.values import RuntimeContainer, Sandbox
from agent.host.standin import container_id
from agent.model.pod import Qos
from agent.model.podspec import pod_from
from tests.flow.world import World, container, manifest
from tests.patience import PATIENCE

NEXT = container_id("next", "app")


@pytest.fixture
def world(tmp_path: Path) -> World:
    """One plan is due: db leaves a CPU and web the pool's; a container of next, which nobody has named, gets them."""
    made = World(tmp_path, machine="2 sockets x 1 node x 4 cores x 1 thread")
    made.engine.pods_listed({"db", "next", "web"})
    made.run(manifest("web", container(cpu="", memory=""), created=1))
    made.run(manifest("db", container(cpu="3"), created=2))
    made.engine.halted = True
    made.see(manifest("db", container(cpu="2"), created=2))
    made.see(manifest("next", container(cpu="5"), created=4))
    made.tree.add_pod("next", Qos.GUARANTEED)
    made.tree.add_container("next", NEXT)
    made.engine.halted = False
    return made


def decisions_of(world: World) -> EngineDecisions:
    """What the runtime asks."""
    return EngineDecisions(world.engine, lambda _address: Usable(()))


def name_at_the_first_write(world: World, names: dict[str, tuple[str, str]]) -> list[str]:
    """The runtime names containers before the next write; the paths that are written from now on."""
    written: list[str] = []

    def named(path: str, _file: str, _value: str) -> None:
        written.append(path)
        if len(written) == 1:
            world.engine.containers_announced(names)

    world.kernel.before = named
    return written


def in_force(world: World) -> dict[str, str]:
    """What the kernel gives."""
    return {name: world.effective(name) for name in ("db", "next", "web")}


@pytest.mark.parametrize(
    "other",
    [
        lambda world: world.engine.containers_seen({container_id("db", "app"): ("db", "app")}),
        lambda world: world.engine.container_gone("ff" * 32),
    ],
    ids=["a status that names another", "a container that is removed"],
)
def test_a_plan_that_was_given_up_is_made_anew_whoever_hears_the_name_first(
    world: World, other: Callable[[World], None]
) -> None:
    """The name ends the plan at its first write; whoever takes the engine's lock next takes in the name with it."""
    written = name_at_the_first_write(world, {NEXT: ("next", "app")})
    world.engine.reconcile()
    assert len(written) == 1, "the rest of the plan was given up"
    other(world)
    decisions = decisions_of(world)
    decisions.start()
    decisions.containers_named({NEXT: ("next", "app")})
    assert decisions.pods_live(frozenset({"db", "next", "web"}), within=PATIENCE)
    assert in_force(world) == {"db": "1-2", "next": "3-7", "web": "0"}
    assert decisions.stop(PATIENCE)


def test_a_plan_that_was_given_up_is_told_as_that(world: World) -> None:
    """The message says that all is planned again and not that another program wrote; it counts as no lapse."""
    world.engine.reconcile()
    for attempt in range(4):
        late, uid = f"{attempt:064x}", f"late{attempt}"
        world.tree.add_pod(uid, Qos.GUARANTEED)
        world.tree.add_container(uid, late)
        written = name_at_the_first_write(world, {late: (uid, "app")})
        told = len(world.ears.words)
        world.engine.pods_seen([pod_from(manifest("db", container(cpu=str(1 + attempt % 2)), created=2))])
        assert len(written) == 1
        assert world.condition("db") == "False NotEnforced"
        assert "planned again" in world.report("db").message
        assert "another program" not in str(world.engine.snapshot.unenforced)
        assert world.ears.words[told:] == ["db"], "nothing is told of others before the next look"
        world.engine.containers_seen({late: (uid, "app")})
        assert world.condition("db") == "True Aligned", "at once, however often that was so"
        assert world.effective("db") == world.holds("db")


def test_a_name_that_the_plan_knows_does_not_end_it(world: World) -> None:
    """To a plugin that registers anew the runtime names all containers: those with names cost the plan nothing."""
    written = name_at_the_first_write(world, {container_id("db", "app"): ("db", "app")})
    world.engine.reconcile()
    assert len(written) > 1, "it was carried out to its end"
    assert world.condition("db") == "True Aligned"


def test_sets_are_not_called_in_force_where_the_kernel_refused_them(world: World) -> None:
    """Others could not be made to leave: the runtime is not told to put next on their CPUs."""
    world.kernel.refuse(errno.EBUSY, path="poddb")
    decisions = decisions_of(world)
    decisions.start()
    decisions.containers_named({NEXT: ("next", "app")})
    assert not decisions.pods_live(frozenset({"db", "next", "web"}), within=PATIENCE)
    assert decisions.stop(PATIENCE)
    assert world.effective("db") == "1-3"


def test_whether_cgroups_are_written_is_answered_beside_a_write_that_hangs(world: World) -> None:
    """The runtime's question about a pod that the watch has not brought asks it, and must not wait for the write."""
    reached, over = threading.Event(), threading.Event()

    def hang(*_write: str) -> None:
        reached.set()
        over.wait(PATIENCE)

    world.kernel.before = hang
    plan = threading.Thread(target=world.engine.reconcile)
    plan.start()
    assert reached.wait(PATIENCE)
    answers: list[bool] = []
    asking = threading.Thread(target=lambda: answers.append(world.engine.snapshot.listening))
    asking.start()
    asking.join(PATIENCE / 4)
    found = list(answers)
    over.set()
    plan.join(PATIENCE)
    asking.join(PATIENCE)
    assert found == [True]


@contextmanager
def holding_up(world: World, part: str, said: list[str]) -> Iterator[threading.Event]:
    """A plan whose first write to paths with this part waits until the event is set; then it is said."""
    reached, over = threading.Event(), threading.Event()

    def hang(path: str, _file: str, _value: str) -> None:
        if part in path and not reached.is_set():
            reached.set()
            assert over.wait(10 * PATIENCE)
            said.append("written")

    world.kernel.before = hang
    plan = threading.Thread(target=world.engine.reconcile)
    plan.start()
    try:
        assert reached.wait(PATIENCE)
        yield over
    finally:
        over.set()
        plan.join(PATIENCE)
    assert not plan.is_alive()


def creating(world: World, number: str, said: list[str]) -> threading.Thread:
    """The runtime asks for the sets of a container of next; the answer is said."""
    driver = NriDriver(decisions_of(world))
    asked = Sandbox("s", "next", "default", "next"), RuntimeContainer(number, "s", "app")
    thread = threading.Thread(target=lambda: said.append(str(driver.create_container(*asked).cpus)))
    thread.start()
    return thread


@pytest.mark.parametrize("number", [NEXT, "7e" * 32], ids=["there already", "not there yet"])
def test_s9_the_runtime_waits_for_no_write_that_concerns_others(
    world: World, number: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S9: a write to another pod hangs: a container is answered for before it is over, however long that takes.

    That other pod is still on one of its CPUs, so that it starts on the pool (S6).
    """
    monkeypatch.setattr(enforcer, "AWAITED", 10 * PATIENCE)
    said: list[str] = []
    with holding_up(world, "poddb", said):
        asking = creating(world, number, said)
        asking.join(PATIENCE / 4)
        assert said == ["0"]
    assert said == ["0", "written"]


def test_s9_the_runtime_waits_for_the_write_that_would_come_after_its_own(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S9: the container itself is being put elsewhere, planned without its name: that ends before the answer.

    That plan is given up for the name, so that nobody has left its CPUs yet: it starts on the pool (S6).
    """
    monkeypatch.setattr(enforcer, "AWAITED", 10 * PATIENCE)
    heard, hear = threading.Event(), world.engine.containers_announced

    class Names(dict[str, tuple[str, str]]):
        """Asked whether a container is in it once all its names were noted."""

        def __contains__(self, key: object) -> bool:
            heard.set()
            return super().__contains__(key)

    monkeypatch.setattr(world.engine, "containers_announced", lambda names: hear(Names(names)))
    said: list[str] = []
    with holding_up(world, NEXT, said) as over:
        asking = creating(world, NEXT, said)
        assert heard.wait(PATIENCE)
        asking.join(0.2)  # one that did not wait would have answered
        over.set()
        asking.join(PATIENCE)
    assert said == ["written", "0"]
    world.engine.containers_seen({NEXT: ("next", "app")})
    assert in_force(world) == {"db": "1-2", "next": "3-7", "web": "0"}
