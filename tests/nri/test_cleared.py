"""S6: of a container's CPUs the runtime is answered those that all others have left, whatever cut the plan short."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent.core.cgroups.desired import DesiredSets
from agent.host.device_nodes import Usable
from agent.host.nri.decisions import EngineDecisions
from agent.host.nri.driver import NriDriver
from agent.host.nri.values import Adjustment, RuntimeContainer, Sandbox
from agent.host.standin import container_id
from agent.model.idset import CpuSet, NodeSet
from agent.model.pod import Qos
from agent.model.podspec import pod_from
from tests.flow.world import World, container, manifest

NAMELESS = "7e" * 32
MEMORY = {"memoryManagerPolicy": "Static", "reservedMemory": [{"numaNode": 0, "limits": {"memory": "100Mi"}}]}
POOL = container(cpu="", memory="")


@pytest.fixture
def world(tmp_path: Path) -> World:
    """CPUs 0-7; web shares, db runs on 1-3."""
    made = World(tmp_path)
    made.engine.pods_listed(set())
    made.run(manifest("web", POOL, created=1))
    made.run(manifest("db", container(cpu="3"), created=2))
    return made


def decisions_of(world: World) -> EngineDecisions:
    """What the runtime asks."""
    return EngineDecisions(world.engine, lambda _address: Usable(()))


def answered(world: World, uid: str) -> DesiredSets:
    """What a container that starts now is put on."""
    return decisions_of(world).desired(uid, "app")


def at_write(world: World, number: int, act: Callable[[], object]) -> list[str]:
    """Do something before the write of a number from now on, 1 for the next; the paths of all that are asked for."""
    paths: list[str] = []

    def told(path: str, _file: str, _value: str) -> None:
        paths.append(path)
        if len(paths) == number:
            act()

    world.kernel.before = told
    return paths


def test_s6_cpus_on_which_another_grant_still_stands_are_not_answered(world: World) -> None:
    """Db cannot be made to leave CPU 3, which next gets: it starts on the pool, or db would lose its CPUs to itself.

    S8: who gets other CPUs is pinned at its first instruction, however long db stays there.
    """
    world.kernel.refuse(errno.EBUSY, path="poddb")
    world.see(manifest("db", container(cpu="2"), created=2))
    world.see(manifest("next", container(cpu="1"), created=3), manifest("far", container(cpu="2"), created=4))
    assert (world.effective("db"), world.holds("db"), world.holds("next")) == ("1-3", "1-2", "3")
    assert answered(world, "next") == DesiredSets(CpuSet.parse("0,6-7"))
    assert answered(world, "far") == DesiredSets(CpuSet.parse("4-5"), exclusive=True)
    world.kernel.mend()
    world.engine.reconcile()
    assert answered(world, "next") == DesiredSets(CpuSet.of(3), exclusive=True)


def test_s8_pods_that_share_and_cannot_be_moved_keep_nobody_from_its_cpus(world: World) -> None:
    """As where cgroups are written: that is told, and costs no other pod its first instructions."""
    world.kernel.refuse(errno.EBUSY, path="besteffort")
    for number in range(2):
        uid = f"next{number}"
        world.see(manifest(uid, container(cpu="1"), created=3 + number))
        assert answered(world, uid) == DesiredSets(CpuSet.of(4 + number), exclusive=True)


@pytest.mark.parametrize("by_runtime", [False, True], ids=["put there by its cgroup", "by the runtime"])
def test_s8_a_mixed_container_that_cannot_be_shrunk_keeps_back_its_former_cpus_alone(
    tmp_path: Path, *, by_runtime: bool
) -> None:
    """Beside its own it has the pool's as all have: who gets one of those waits for it no more than for who shares.

    With each CPU that left the pool it would keep another pod from its own, and soon all that come to the node.
    """
    world = World(tmp_path, settings={"mixedSharedCPUs": "pool"})
    world.engine.pods_listed(set())
    world.see(manifest("mixed", container(cpu="2"), created=1, mixed="app"))
    if by_runtime:
        world.tree.add_pod("mixed", Qos.GUARANTEED)
        path = world.tree.add_container("mixed", container_id("mixed", "app"))
        world.tree.kernel_write(path, "cpuset.cpus", str(answered(world, "mixed").cpus))
        world.engine.containers_seen({container_id("mixed", "app"): ("mixed", "app")})
    else:
        world.start("mixed")
    assert (world.holds("mixed"), world.effective("mixed")) == ("1-2", "0-7")
    world.kernel.refuse(errno.EBUSY, path="podmixed.slice")
    world.run(manifest("next", container(cpu="1"), created=2))
    assert (answered(world, "next").cpus, world.effective("next")) == (CpuSet.of(3), "3")
    world.see(manifest("mixed", container(cpu="1"), created=1, mixed="app"))
    world.run(manifest("last", container(cpu="1"), created=3))
    assert (world.holds("mixed"), world.holds("last")) == ("1", "2")
    assert answered(world, "last").cpus == CpuSet.parse(world.effective("last")) == CpuSet.parse("0,4-7")
    world.kernel.mend()
    world.engine.reconcile()
    assert (answered(world, "last").cpus, world.effective("last")) == (CpuSet.of(2), "2")


def test_s8_what_a_mixed_container_shares_since_it_was_written_keeps_nobody_waiting(tmp_path: Path) -> None:
    """It gave CPU 2 to the pool, and was written with the pool: next gets it, though the mixed one cannot leave."""
    world = World(tmp_path, settings={"mixedSharedCPUs": "pool"})
    world.engine.pods_listed(set())
    world.run(manifest("mixed", container(cpu="2"), created=1, mixed="app"))
    world.run(manifest("gone", container(cpu="1"), created=2))
    world.end("gone")
    world.engine.halted = True
    world.engine.pods_gone(["gone"])
    world.engine.pods_seen([pod_from(manifest("mixed", container(cpu="1"), created=1, mixed="app"))])
    world.engine.halted = False
    world.engine.reconcile()
    assert (world.holds("mixed"), world.effective("mixed")) == ("1", "0-7")
    world.kernel.refuse(errno.EBUSY, path="podmixed.slice")
    world.run(manifest("next", container(cpu="1"), created=3))
    assert (answered(world, "next").cpus, world.effective("next")) == (CpuSet.of(2), "2")


def test_s8_who_asks_for_cpus_that_its_pod_left_keeps_nobody_waiting(world: World) -> None:
    """The container could not be written, and its pod could: on v2 nobody of it runs on CPU 3 from then on."""
    world.kernel.refuse(errno.EBUSY, path="poddb.slice/")
    world.see(manifest("db", container(cpu="2"), created=2))
    world.run(manifest("next", container(cpu="1"), created=3))
    assert (world.effective("db"), world.holds("next")) == ("1-2", "3")
    assert answered(world, "next") == DesiredSets(CpuSet.of(3), exclusive=True)
    assert world.effective("next") == "3"


def test_s8_a_container_that_ends_amid_the_plan_keeps_nobody_waiting(world: World) -> None:
    """As where a resize restarts it: what it was to give up is free, and is answered at once."""
    at_write(world, 1, lambda: world.tree.remove_container("db", container_id("db", "app")))
    bodies = manifest("db", container(cpu="2"), created=2), manifest("next", container(cpu="1"), created=3)
    world.engine.pods_seen([pod_from(body) for body in bodies])
    assert world.holds("next") == "3"
    assert answered(world, "next") == DesiredSets(CpuSet.of(3), exclusive=True)


@pytest.mark.parametrize("notes", [{}, {"mixed": "app"}], ids=["alone", "mixed"])
def test_s8_who_waits_on_the_pool_for_its_cpus_keeps_nobody_else_waiting(world: World, notes: dict[str, Any]) -> None:
    """Db stays on CPU 3, which is next's; next waits on the pool as it was, and others get their CPUs of that."""
    world.run(manifest("gone", container(cpu="1"), created=3))
    world.kernel.refuse(errno.EBUSY, path="poddb")
    world.see(manifest("db", container(cpu="2"), created=2))
    world.run(manifest("next", container(cpu="1"), created=4, **notes))
    assert (world.holds("next"), world.effective("next")) == ("3", "0,5-7")
    world.end("gone")
    world.engine.pods_gone(["gone"])
    world.see(manifest("far", container(cpu="2"), created=5))
    assert answered(world, "far") == DesiredSets(CpuSet.parse(world.holds("far")), exclusive=True)
    world.start("far")
    assert world.effective("far") == world.holds("far") != ""
    assert CpuSet.parse(world.effective("next")).issubset(world.engine.ledger.cpus.shared)


def test_s8_a_write_of_memory_nodes_that_hangs_costs_nobody_his_first_instruction(tmp_path: Path) -> None:
    """The CPUs of all were written before it: a pod that came with it starts on its own, and the hang waits alone."""
    world = World(tmp_path, settings=MEMORY)
    world.engine.pods_listed(set())
    world.see(manifest("db", container(cpu="2"), created=1))
    world.tree.add_pod("db", Qos.GUARANTEED)
    world.tree.add_container("db", container_id("db", "app"))
    world.engine.containers_announced({container_id("db", "app"): ("db", "app")})
    during: list[DesiredSets] = []

    def told(_path: str, file: str, _value: str) -> None:
        if file == "cpuset.mems":
            during.append(answered(world, "next"))

    world.kernel.before = told
    world.see(manifest("next", container(cpu="2"), created=2))
    assert during == [DesiredSets(CpuSet.parse("4-5"), NodeSet.of(1), exclusive=True)]


def test_s6_a_cpu_that_was_given_up_and_taken_back_has_to_be_left_anew(world: World) -> None:
    """The plan that let others onto it was given up for a name before its end: they are there all the same."""
    world.tree.add_pod("late", Qos.BEST_EFFORT)
    world.tree.add_container("late", NAMELESS)
    at_write(world, 2, lambda: world.engine.containers_announced({NAMELESS: ("late", "app")}))
    world.engine.pods_seen([pod_from(manifest("db", container(cpu="2"), created=2))])
    assert world.effective("web") == "0,3-7"
    starts: list[DesiredSets] = []
    at_write(world, 1, lambda: starts.append(answered(world, "db")))
    world.see(manifest("db", container(cpu="3"), created=2))
    assert starts == [DesiredSets(CpuSet.parse("1-2"), exclusive=True)]
    assert answered(world, "db") == DesiredSets(CpuSet.parse("1-3"), exclusive=True)


def release_by_another_program(world: World) -> None:
    """`numalign release` beside an agent that observes, and looks once meanwhile."""
    for path in ("besteffort", "burstable"):
        found = next(each.path for each in world.cgroups.observe().cgroups if each.path.endswith(f"{path}.slice"))
        world.tree.kernel.write(world.cgroups.mounts.cpuset, found, "cpuset.cpus", "0-7")
    world.engine.reconcile()


@pytest.mark.parametrize("release", [lambda world: world.engine.release(), release_by_another_program])
def test_s3_s17_after_a_release_others_have_to_leave_anew(world: World, release: Callable[[World], None]) -> None:
    """All may run everywhere then; with the switch off again a restarted container waits for the first plan."""
    world.engine.halted = True
    release(world)
    world.engine.halted = False
    assert world.effective("web") == "0-7"
    starts: list[DesiredSets] = []
    at_write(world, 1, lambda: starts.append(answered(world, "db")))
    world.engine.reconcile()
    assert starts == [DesiredSets(CpuSet.parse("0,4-7"))]
    assert answered(world, "db") == DesiredSets(CpuSet.parse("1-3"), exclusive=True)


def test_s3_a_plan_that_the_switch_cut_short_has_cleared_nothing(world: World) -> None:
    """On and off again within one plan, at whichever look: the rest was not written, and others are there still."""
    for look in range(1, 20):
        uid, looks = f"next{look}", 0

        def halting() -> bool:
            nonlocal looks
            looks += 1
            return looks == look  # noqa: B023 - called before the next one

        world.engine._enforcer.halting = halting
        world.engine.pods_seen([pod_from(manifest(uid, container(cpu="1"), created=2 + look))])
        world.engine._enforcer.halting = lambda: False
        own, others = CpuSet.parse(world.holds(uid)), CpuSet.parse(world.effective("web"))
        assert own.isdisjoint(others) or not answered(world, uid).exclusive, f"look {look}"
        world.engine.reconcile()
        assert answered(world, uid) == DesiredSets(own, exclusive=True)
        world.engine.pods_gone([uid])
        if looks < look:
            break
    assert look > 4


def test_s18_a_resize_leaves_a_container_where_it_is_until_the_agent_has_written(
    world: World, tmp_path: Path
) -> None:
    """Asked before the first plan of an agent that began anew: with the pool, a pod would lose its CPUs by that.

    S16: nor does the quota of its new limit throttle it.
    """
    again = World(tmp_path, store=world.store)
    asked = Sandbox("s", "db", "default", "db"), RuntimeContainer(container_id("db", "app"), "s", "app")
    driver = NriDriver(decisions_of(again))
    assert driver.update_container(*asked) == Adjustment(quota=-1)
    again.engine.pods_listed({"web", "db"})
    assert driver.update_container(*asked) == Adjustment(cpus=CpuSet.parse("1-3"), quota=-1)


@pytest.mark.parametrize(("cpu", "given_up"), [("2", "1"), ("500m", "3")])
def test_s6_s18_who_could_not_leave_keeps_others_off_after_a_start_of_the_agent_too(
    world: World, tmp_path: Path, cpu: str, given_up: str
) -> None:
    """Db stands on CPUs 1-3, of which next has some; no books say so, but what db asks for has none of the pool."""
    world.kernel.refuse(errno.EBUSY, path="poddb")
    world.see(manifest("db", container(cpu=cpu), created=2))
    world.run(manifest("next", container(cpu=given_up), created=3))
    held = world.holds("next")
    assert CpuSet.parse(held).issubset(CpuSet.parse("1-3"))
    for again in (world, World(tmp_path, store=world.store, pods=world.pods.values())):
        again.kernel.refuse(errno.EBUSY, path="poddb")
        again.engine.pods_seen(world.pods.values())
        again.engine.pods_listed({*world.pods})
        assert (again.effective("db"), again.holds("next")) == ("1-3", held)
        assert CpuSet.parse(again.effective("next")).isdisjoint(CpuSet.parse("1-3"))
        assert answered(again, "next") == DesiredSets(again.engine.ledger.cpus.shared)
    again.kernel.mend()
    again.engine.reconcile()
    assert (again.effective("next"), again.condition("next")) == (held, "True Aligned")


def test_s2_a_resize_of_a_pod_that_is_left_alone_keeps_its_quota(tmp_path: Path) -> None:
    """Its namespace was excluded after it was granted CPUs: nothing of it is changed, whoever is on these."""
    excluded = set[str]()
    world = World(tmp_path, exempt=lambda pod: "excluded" if pod.name in excluded else "")
    world.engine.pods_listed(set())
    world.run(manifest("db", container(cpu="3")))
    excluded.add("db")
    world.engine.changed(world.node())
    world.engine.halted = True
    world.engine.reconcile()
    world.engine.halted = False
    asked = Sandbox("s", "db", "default", "db"), RuntimeContainer(container_id("db", "app"), "s", "app")
    assert NriDriver(decisions_of(world)).update_container(*asked) == Adjustment()
