"""Others who write cpusets: repaired with back-off, told by name when they go on, and never fought with (S10)."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest

from agent.app.service.other_writers import mind_kubelet
from agent.app.statedir import node_allocatable as keeping
from agent.app.statedir.node_allocatable import NodeAllocatable
from agent.host.writers import look
from agent.model.cgroup import Cause
from tests.flow.cluster_node import ClusterNode, page
from tests.flow.world import World, container, manifest
from tests.patience import until
from tests.world.clock import Clock


def pinned(folder: Path, clock: Clock | None = None, name: str = "a", *listed: str) -> World:
    """A world with one pinned pod, all of it written; more pods may be listed, and are to come."""
    world = World(folder / "tree", clock=clock or Clock())
    world.engine.pods_listed({name, *listed})
    world.run(manifest(name, container(cpu="2"), created=1))
    return world


def undone(world: World) -> None:
    """Somebody gives the container the CPUs of the first NUMA node."""
    world.tree.kernel_write(world.path("a", "app"), "cpuset.cpus", "0-3")


def test_drift_that_comes_back_is_repaired_ever_later(tmp_path: Path) -> None:
    """Repaired at once, then a second later, then two: looks in between write nothing at all."""
    clock = Clock()
    world = pinned(tmp_path, clock)
    world.engine._enforcer.fight = lambda: ""  # type: ignore[method-assign]  # this test is about times only
    times = []
    for half in range(16):
        undone(world)
        if world.engine.reconcile():
            times.append(half / 2)
        clock.now += 0.5
    assert times == [0, 1, 3, 7]
    undone(world)
    assert world.engine.reconcile() == ()
    assert world.engine.repair_in() == pytest.approx(7 + 8 - 8)


def test_a_grant_is_written_while_a_repair_waits(tmp_path: Path) -> None:
    """Whoever fights over one container keeps no other from being pinned."""
    clock = Clock()
    world = pinned(tmp_path, clock)
    undone(world)
    assert world.engine.reconcile()
    undone(world)
    assert world.engine.reconcile() == ()
    assert world.effective("a") == "0-3"
    world.tree.kernel_write(world.path("a", "app"), "cpuset.cpus", world.holds("a"))
    world.run(manifest("b", container(cpu="1"), created=1))
    assert world.effective("b") == world.holds("b") != ""
    clock.now += 100
    assert world.engine.reconcile() == ()


def test_s10_a_writer_that_goes_on_is_told_and_not_fought(tmp_path: Path) -> None:
    """The third repair within a minute is the last: observe only, with path and value; new pods are decided only."""
    clock = Clock()
    world = pinned(tmp_path, clock)
    path = world.path("a", "app")
    for _ in range(3):
        undone(world)
        world.engine.reconcile()
        clock.now += 5
    assert world.engine.switches.observe_only
    (told,) = [text for what, text in world.ears.problems if what == "writers"]
    assert path in told
    assert '"0-3"' in told
    assert list(world.engine.snapshot.yields) == ["flapping"]
    undone(world)
    before = len(world.ears.written_)
    clock.now += 100
    assert world.engine.reconcile() == ()
    world.see(manifest("b", container(cpu="1"), created=1))
    assert world.holds("b")
    assert len(world.ears.written_) == before
    assert world.engine.repair_in() is None


def test_s10_two_accidents_are_no_writer(tmp_path: Path) -> None:
    """Drift now and then, minutes apart, is repaired for ever."""
    clock = Clock()
    world = pinned(tmp_path, clock)
    for _ in range(8):
        undone(world)
        (written,) = world.engine.reconcile()
        assert written.write.cause is Cause.DRIFT_FOREIGN
        clock.now += 130
    assert not world.engine.switches.observe_only


@pytest.mark.parametrize(("file", "elsewhere"), [("cpuset.cpus", "4-5"), ("cpuset.mems", "1")])
def test_s10_what_was_in_order_at_the_start_is_drift_when_another_writes_it(
    tmp_path: Path, file: str, elsewhere: str
) -> None:
    """A restarted agent writes nothing where all is as it should be, and knows the first foreign write for one."""
    memory = {"memoryManagerPolicy": "Static", "reservedMemory": [{"numaNode": 0, "limits": {"memory": "100Mi"}}]}
    before = World(tmp_path, settings=memory)
    before.engine.pods_listed({"a"})
    before.run(manifest("a"))
    after = World(tmp_path, settings=memory, store=before.store, pods=before.pods.values())
    after.engine.pods_listed({"a"})
    assert after.engine.reconcile() == ()
    after.tree.kernel_write(after.path("a", "app"), file, elsewhere)
    (written,) = after.engine.reconcile()
    assert (written.write.file, written.write.cause) == (file, Cause.DRIFT_FOREIGN)


def test_what_was_written_to_cgroups_that_are_gone_is_forgotten(tmp_path: Path) -> None:
    """A node that serves for months has thousands of containers: of those that are gone no note is kept."""
    world = pinned(tmp_path)
    gone = world.path("a", "app")
    assert gone in {path for path, _ in world.engine._enforcer._last}
    world.engine.pods_listed(set())
    world.end("a")
    world.engine.reconcile()
    assert gone not in {path for path, _ in world.engine._enforcer._last}


def test_s10_the_kubelets_own_manager_stops_us_until_it_is_gone(tmp_path: Path) -> None:
    """A found writer switches to observe-only and is told once; its end brings enforcement back, all at once."""
    world = pinned(tmp_path)
    for _ in range(2):
        world.engine.switch(observe_only=True, why="the kubelet writes cpusets itself", source="kubelet")
    assert [text for what, text in world.ears.problems if what == "writers"] == [
        "observing only: the kubelet writes cpusets itself"
    ]
    undone(world)
    assert world.engine.reconcile() == ()
    world.engine.switch(observe_only=False, source="somebody else")
    assert list(world.engine.snapshot.yields) == ["kubelet"]
    world.engine.switch(observe_only=False, source="kubelet")
    assert list(world.engine.snapshot.yields) == []
    assert world.effective("a") == world.holds("a")


def test_s10_the_kubelets_configuration_stops_and_resumes(tmp_path: Path) -> None:
    """What nodes/configz says is followed both ways, beside whatever else was found."""
    world = pinned(tmp_path)
    mind_kubelet(world.engine, {"kubeletconfig": {"cpuManagerPolicy": "static"}})
    assert "cpuManagerPolicy" in world.engine.snapshot.yields["configz"]
    world.engine.switch(observe_only=True, why="an NRI plugin", source="files")
    mind_kubelet(world.engine, {"kubeletconfig": {"cpuManagerPolicy": "none"}})
    assert world.engine.snapshot.yields == {"files": "an NRI plugin"}


def test_s10_a_reload_of_settings_does_not_bring_the_fight_back(tmp_path: Path) -> None:
    """Other settings, the kill switch among them, do not undo what was found."""
    world = pinned(tmp_path)
    world.engine.switch(observe_only=True, why="an NRI plugin", source="files")
    world.engine.changed(world.node(topologyManagerPolicy="restricted"))
    assert world.engine.switches.observe_only
    assert world.engine.snapshot.yields == {"files": "an NRI plugin"}


@pytest.mark.parametrize("kubelet", [Path("/var/lib/kubelet"), Path("srv/kubelet")])
def test_s10_traces_of_other_writers_are_found_in_files(tmp_path: Path, kubelet: Path) -> None:
    """State files of a static policy, DRA sockets, NRI plugins: each a sentence; a node without them says nothing."""
    assert look(tmp_path, kubelet) == ()
    base = tmp_path / (kubelet.relative_to("/") if kubelet.is_absolute() else kubelet)
    (base / "plugins" / "dra.cpu").mkdir(parents=True)  # a driver that is gone leaves it behind
    (base / "plugins_registry").mkdir()
    assert look(tmp_path, kubelet) == ()
    for name in ("dra.cpu-reg.sock", "csi.example.com-reg.sock"):
        (base / "plugins_registry" / name).touch()
    (base / "cpu_manager_state").write_text(json.dumps({"policyName": "static"}), "utf-8")
    (base / "memory_manager_state").write_text(json.dumps({"policyName": "None"}), "utf-8")
    (tmp_path / "opt/nri/plugins").mkdir(parents=True)
    (tmp_path / "opt/nri/plugins/10-nri-resource-policy-balloons").touch()
    found = look(tmp_path, kubelet)
    assert len(found) == 3
    assert "cpu_manager_state is of policy static" in found[0]
    assert any("balloons" in each for each in found)
    assert any("dra.cpu" in each for each in found)
    (base / "cpu_manager_state").unlink()
    (base / "cpu_manager_state").mkdir()  # cannot be read as a file: a hint less, and no fault
    assert len(look(tmp_path, kubelet)) == 2


def test_a_start_without_the_api_server_observes_beside_the_writer_of_before(tmp_path: Path) -> None:
    """Never two writers (S10): the plugin's pod was known before; nothing is written until a list has it no more.

    Finding 2.
    """
    node = ClusterNode(tmp_path)
    node.world.run(manifest("db"))
    node.keep()
    keeping.save(tmp_path / "state", NodeAllocatable(1000, 0, known=True, writers=("a plugin writes cpusets",)))
    node.world.tree.kernel_write(node.world.path("db", "app"), "cpuset.cpus", "0-7")
    with node.serving() as agent:
        until(lambda: page(agent, "/readyz?only=recovery")[0] == 200)
        agent.engine.reconcile()
        assert node.world.effective("db") == "0-7"
        agent.source.intake.pods_listed(frozenset())
        until(lambda: keeping.load(tmp_path / "state").writers == ())
    assert agent.engine.snapshot.yields == {}


def fought(world: World, clock: Clock, value: str) -> int:
    """Somebody writes a value as fast as it is repaired, for 20 seconds; how many repairs there were."""
    repairs = 0
    for _ in range(20):
        world.tree.kernel_write(world.path("db", "app"), "cpuset.cpus", value)
        repairs += len(world.engine.reconcile())
        clock.now += 1
    return repairs


def test_resets_to_the_parents_set_are_repaired_and_nothing_else(tmp_path: Path) -> None:
    """Daemon-reloads within a minute, as an upgrade of packages makes them: enforcement goes on, pods are pinned.

    Finding 13.
    """
    clock = Clock()
    world = pinned(tmp_path, clock, "db", "new")
    parents = "0-7"  # what the pod's own cgroup has: the pool and its CPUs
    assert fought(world, clock, parents) >= 3
    assert world.engine.snapshot.yields == {}
    clock.now += 60
    world.engine.reconcile()
    world.run(manifest("new", container(cpu="2"), created=5))
    assert world.effective("db") == world.holds("db")
    assert world.effective("new") == world.holds("new") != ""
    assert world.condition("new") == "True Aligned"


def test_a_fight_that_is_over_ends_by_itself(tmp_path: Path) -> None:
    """Somebody else wrote for a while, and is gone: five minutes later everything is enforced again, by itself.

    Finding 13.
    """
    clock = Clock()
    world = pinned(tmp_path, clock, "db", "new")
    fought(world, clock, "0-3")
    assert list(world.engine.snapshot.yields) == ["flapping"]
    assert world.condition("db") == "False NotEnforced"
    world.see(manifest("new", container(cpu="2"), created=5))
    assert world.condition("new") == "False NotEnforced"
    clock.now += 300
    world.engine.reconcile()
    assert world.engine.snapshot.yields == {}
    world.start("new")
    clock.now += 600
    world.engine.reconcile()
    for uid in ("db", "new"):
        assert (world.effective(uid), world.condition(uid)) == (world.holds(uid), "True Aligned")


def test_a_fight_that_goes_on_is_left_alone_ever_longer_and_told_each_time(tmp_path: Path) -> None:
    """Five minutes, ten, twenty: a few writes between them, and a sentence for each that says when (finding 13)."""
    clock = Clock()
    world = pinned(tmp_path, clock, "db", "new")
    began: list[float] = []
    while clock.now < 12 * 3600:
        if not world.engine.snapshot.yields:
            began.append(clock.now)
            fought(world, clock, "0-3")
        world.engine.reconcile()
        clock.now += 60
    told = [text for what, text in world.ears.problems if what == "writers"]
    assert len(told) == len(began) <= 8
    assert "tried again after 5 minutes" in told[0]
    assert "(time 2 in a row), and tried again after 10 minutes" in told[1]
    assert "tried again after 20 minutes" in told[2]
    pauses = [later - earlier for earlier, later in pairwise(began)]
    assert pauses == sorted(pauses)


def test_a_retry_leaves_other_reasons_in_force(tmp_path: Path) -> None:
    """Its own quiet time over, the engine still writes nothing while files tell of another writer (finding 13)."""
    clock = Clock()
    world = pinned(tmp_path, clock, "db", "new")
    fought(world, clock, "0-3")
    world.engine.switch(observe_only=True, why="an NRI plugin", source="files")
    clock.now += 300
    assert world.engine.reconcile() == ()
    assert world.engine.snapshot.yields == {"files": "an NRI plugin"}
    assert world.condition("db") == "False NotEnforced"
