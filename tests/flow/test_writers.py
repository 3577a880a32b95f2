"""Others who write cpusets: repaired with back-off, told by name when they go on, and never fought with (S10)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent.app.service.other_writers import mind_kubelet
from agent.host.writers import look
from agent.model.cgroup import Cause
from tests.flow.world import World, container, manifest


class Clock:
    """Time that a test moves."""

    def __init__(self, world: World) -> None:
        self.now = 1000.0
        world.engine._enforcer.backoff.clock = lambda: self.now


def pinned(folder: Path) -> World:
    """A world with one pinned pod, all of it written."""
    world = World(folder / "tree")
    world.engine.pods_listed({"a"})
    world.run(manifest("a", container(cpu="2")))
    return world


def undone(world: World) -> None:
    """Somebody gives the container the CPUs of the first NUMA node."""
    world.tree.kernel_write(world.path("a", "app"), "cpuset.cpus", "0-3")


def test_drift_that_comes_back_is_repaired_ever_later(tmp_path: Path) -> None:
    """Repaired at once, then a second later, then two: looks in between write nothing at all."""
    world = pinned(tmp_path)
    world.engine._enforcer.fight = lambda: ""  # type: ignore[method-assign]  # this test is about times only
    clock = Clock(world)
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
    world = pinned(tmp_path)
    clock = Clock(world)
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
    world = pinned(tmp_path)
    clock = Clock(world)
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
    world = pinned(tmp_path)
    clock = Clock(world)
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
