"""Who has to wait for CPUs of its own waits on the pool, and who stands on the pool keeps nobody waiting.

Finding 9.
"""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from agent.core.machines.synthetic import parse_synthetic
from agent.host.scratch import Layout, Scratch
from agent.model.pod import Qos
from agent.node.tracked_pod import Switches
from tests.flow.world import World, container, manifest

MACHINE = "2 sockets x 1 node x 4 cores x 1 thread"


@pytest.fixture(params=[1, 2])
def world(tmp_path: Path, request: pytest.FixtureRequest) -> World:
    """CPUs 0-7, with cgroups of either version."""
    machine = parse_synthetic(MACHINE)
    Scratch.create(tmp_path / "tree", cpus=machine.online, nodes=machine.node_set, setup=Layout(request.param))
    return World(tmp_path / "tree", machine=MACHINE)


def test_after_the_kill_switch_all_stand_alone_at_once(world: World) -> None:
    """Two pods were granted CPUs while nothing was written: one plan brings both there, and nobody is put beside one.

    The older one leaves the pool for a CPU that was freed meanwhile; until then it stands where the newer one, which
    runs on all CPUs since it was born, is to stay.
    """
    world.engine.pods_listed({"old", "db", "older", "newer"})
    for at, name in enumerate(("old", "db"), 1):
        world.run(manifest(name, container(cpu="1"), created=at))
    world.store.full = "No space left on device"
    world.run(manifest("older", container(cpu="1"), created=3))
    world.engine.changed(world.node(), Switches(observe_only=True))
    world.run(manifest("newer", container(cpu="1"), created=4))
    world.end("old")
    world.engine.pods_gone(["old"])
    world.store.full = ""
    world.engine.reconcile()
    assert (world.holds("older"), world.holds("newer")) == ("1", "3")
    world.engine.changed(world.node(), Switches())
    for uid in ("db", "older", "newer"):
        assert world.effective(uid) == world.holds(uid)
        assert world.condition(uid) == "True Aligned"


def test_who_waits_for_cpus_roams_on_nobody_elses(world: World) -> None:
    """One container cannot be moved off CPUs that it gave up: the next holder waits on the pool, beside nobody.

    Finding 10.
    """
    world.engine.pods_listed({"db", "full", "next"})
    world.run(manifest("db", container(cpu="4"), created=2))
    world.run(manifest("full", container(cpu="3"), created=2))
    world.kernel.refuse(errno.EBUSY, path="poddb")
    world.see(manifest("db", container(cpu="2"), created=2))
    world.run(manifest("next", container(cpu="2"), created=3))
    assert (world.effective("next"), world.condition("next")) == ("0", "False NotEnforced")
    assert (world.effective("full"), world.condition("full")) == ("1-3", "True Aligned")
    world.kernel.mend()
    world.engine.reconcile()
    world.engine.reconcile()
    assert (world.effective("db"), world.effective("next")) == ("4-5", "6-7")
    assert world.condition("next") == "True Aligned"


def test_who_grows_and_has_to_wait_stays_where_it_is(world: World) -> None:
    """A container that has CPUs is not moved off them because it cannot get more of them yet (finding 10)."""
    world.engine.pods_listed({"db", "full", "grows"})
    world.run(manifest("db", container(cpu="4"), created=1))
    world.run(manifest("full", container(cpu="2"), created=2))
    world.run(manifest("grows", container(cpu="1"), created=3))
    world.kernel.refuse(errno.EBUSY, path="poddb")
    world.see(manifest("db", container(cpu="2"), created=1))
    world.see(manifest("grows", container(cpu="3"), created=3))
    assert (world.holds("grows"), world.effective("grows")) == ("3,6-7", "3")
    assert world.condition("grows") == "False NotEnforced"
    world.kernel.mend()
    world.engine.reconcile()
    assert world.effective("grows") == "3,6-7"


def test_who_starts_anew_while_it_waits_runs_on_nobody_elses(world: World) -> None:
    """It is born with all that its pod has: the pool, and the CPUs that it waits for, where another still stands.

    Finding 10.
    """
    world.engine.pods_listed({"db", "full", "next"})
    world.run(manifest("db", container(cpu="4"), created=2))
    world.run(manifest("full", container(cpu="3"), created=2))
    world.kernel.refuse(errno.EBUSY, path="poddb")
    world.see(manifest("db", container(cpu="2"), created=2))
    world.see(manifest("next", container(cpu="2"), created=3))
    world.tree.add_pod("next", Qos.GUARANTEED)
    world.engine.reconcile()
    path = world.tree.add_container("next", "7e" * 32)
    world.engine.containers_seen({"7e" * 32: ("next", "app")})
    born = next(each for each in world.cgroups.observe().cgroups if each.path == path)
    assert (world.holds("next"), str(born.effective_cpus), world.effective("db")) == ("6-7", "0", "4-7")
    world.tree.remove_container("next", "7e" * 32)
    world.start("next")
    assert world.effective("next") == "0"
    world.kernel.mend()
    world.engine.reconcile()
    assert (world.effective("next"), world.condition("next")) == ("6-7", "True Aligned")


def test_containers_of_one_pod_wait_for_each_other_too(world: World) -> None:
    """A pod moves CPUs from one container to another, which gets them when the first one could be made to leave.

    Finding 10.
    """
    world.engine.pods_listed({"db"})
    world.run(manifest("db", container("a", cpu="4"), container("b", cpu="3"), created=2))
    world.kernel.refuse(errno.EBUSY, path=world.path("db", "a"))
    world.see(manifest("db", container("a", cpu="2"), container("b", cpu="5"), created=2))
    assert (world.holds("db", "a"), world.effective("db", "a")) == ("4-5", "4-7")
    assert (world.holds("db", "b"), world.effective("db", "b")) == ("1-3,6-7", "1-3")
    told = world.engine.snapshot.cleared["db"]
    assert (str(told["a"]), str(told["b"])) == ("4-5", "1-3"), "the runtime is answered no more than that"
    world.kernel.mend()
    world.engine.reconcile()
    assert (world.effective("db", "a"), world.effective("db", "b")) == ("4-5", "1-3,6-7")
    assert world.ears.unenforced["db"] == {}


@pytest.mark.parametrize("together", [False, True])
def test_who_shares_from_now_on_leaves_its_cpus_first(world: World, *, together: bool) -> None:
    """Resized to a part of a CPU it holds none any more; while it cannot be moved off them, nobody is put beside it.

    So it is when it gets some of them back, and in the plan that fails to move it.

    Finding 10.
    """
    world.engine.pods_listed({"db", "full", "next"})
    world.run(manifest("db", container(cpu="4"), created=2))
    world.run(manifest("full", container(cpu="2"), created=2))
    world.run(manifest("next", container(cpu="1"), created=3))
    world.kernel.refuse(errno.EBUSY, path="poddb")
    less, more = manifest("db", container(cpu="1500m"), created=2), manifest("next", container(cpu="3"), created=3)
    for bodies in ((less, more),) if together else ((less,), (more,)):
        world.see(*bodies)
    assert (world.effective("db"), world.holds("next"), world.effective("next")) == ("4-7", "3-5", "3")
    world.see(manifest("db", container(cpu="2"), created=2))
    world.engine.reconcile()
    assert (world.effective("db"), world.holds("db"), world.effective("next")) == ("4-7", "6-7", "3")
    assert str(world.engine.snapshot.cleared["next"]["app"]) == "3", "the runtime is answered no more than that"
    world.kernel.mend()
    world.engine.reconcile()
    assert (world.effective("db"), world.effective("next")) == ("6-7", "3-5")
