"""S6: what many pods change at once is written to the shared pool once, on both versions of cgroups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from agent.core.cgroups.desired import parent_of
from agent.core.machines.synthetic import parse_synthetic
from agent.host.device_nodes import Usable
from agent.host.nri.decisions import EngineDecisions
from agent.host.scratch import Layout, Scratch
from agent.host.standin import container_id
from agent.kube.objects.pod_objects import Raw, SeenPod
from agent.kube.watch.intake import Intake
from agent.model.cgroup import Level, Observed, Write, Written
from agent.model.podspec import pod_from
from tests.flow.world import World, container, manifest
from tests.patience import PATIENCE

MACHINE = "2 sockets x 1 node x 32 cores x 1 thread"
BURST = tuple(f"p{number:02}" for number in range(20))
SHARED = (
    manifest("busy", container(cpu=""), created=1),
    manifest("idle", container(cpu="", memory=""), created=2),
    manifest("part", container(cpu="500m"), created=3),
    manifest("whole", container(), container("side", cpu="500m"), created=4),
)
BOTH = pytest.mark.parametrize("version", [1, 2])


class Mute:
    """Who keeps what the API knows of each pod; not asked about here."""

    def pod_seen(self, body: Raw, found: SeenPod) -> None:
        pass

    def pod_malformed(self, body: Raw, why: str) -> None:
        raise AssertionError(f"{body} cannot be read: {why}")

    def pod_gone(self, uid: str) -> None:
        pass


class Node(World):
    """A world that is told by the intake, and looks after each write whether anybody is where they must not be."""

    def __init__(self, folder: Path, version: int) -> None:
        machine = parse_synthetic(MACHINE)
        Scratch.create(folder, cpus=machine.online, nodes=machine.node_set, setup=Layout(version))
        super().__init__(folder, machine=MACHINE)
        self.engine.pods_listed(set())
        for body in SHARED:
            self.run(body)
        self.looks, self._apply = 0, self.cgroups.apply
        self.cgroups.apply = self._checked  # type: ignore[method-assign,assignment]  # watched by this world
        self.engine._enforcer.observe = self._looked  # type: ignore[method-assign]  # watched by this world
        self.intake = Intake(self.engine, Mute())

    def _looked(self) -> Observed:
        self.looks += 1
        return self.cgroups.observe()

    def _checked(self, writes: tuple[Write, ...], go_on: Callable[[], bool]) -> tuple[Written, ...]:
        done = self._apply(writes, go_on)
        self.alone()
        return done

    def alone(self) -> None:
        """Nobody runs on the CPUs of a container that has its own, but for a folder made and not yet written."""
        here = {each.path: each for each in self.cgroups.observe().cgroups}
        everyone = [each for each in here.values() if each.level is Level.CONTAINER]
        ledger, names = self.engine.ledger, self.names()
        for mine in everyone:
            if ledger.grant(*names[mine.container_id]).cpus != mine.effective_cpus:
                continue
            for other in everyone:
                made = other.pod_uid in BURST and other.effective_cpus == here[parent_of(other.path)].effective_cpus
                if other is not mine and not made:
                    assert other.effective_cpus.isdisjoint(mine.effective_cpus), f"{other.path} is on {mine.path}'s"

    def born(self, name: str = "app") -> None:
        """The runtime starts a container of each pod of the burst; nobody is told."""
        for uid in BURST:
            self.tree.add_pod(uid, self.pods[uid].qos)
            self.tree.add_container(uid, container_id(uid, name))

    def burst(
        self, tell: Callable[[Intake, Mapping[str, Any]], None], *names: str, uids: Iterable[str] = BURST
    ) -> Counter[str]:
        """Twenty events that are known before the worker looks -> how often each cgroup's CPUs were written."""
        bodies = [manifest(uid, container(), created=10) for uid in uids]
        self.pods |= {each["metadata"]["uid"]: pod_from(each) for each in bodies}
        for body in bodies:
            uid = body["metadata"]["uid"]
            ids = [{"name": each, "containerID": f"x://{container_id(uid, each)}"} for each in names]
            tell(self.intake, body | {"status": {"phase": "Running", "containerStatuses": ids}})
        self.steps.clear()
        self.looks = 0
        self.intake.start()
        self.intake.stop(PATIENCE)
        known, self.intake = self.intake._uids, Intake(self.engine, Mute())
        self.intake._uids = known
        self.check()
        return self.counted()

    def counted(self) -> Counter[str]:
        """How often the CPUs of each cgroup were written since the steps were cleared."""
        writes = [step.split() for step in self.steps if step.startswith("write")]
        return Counter(path for _, path, file in writes if file == "cpuset.cpus")

    def shared(self) -> set[str]:
        """The cgroups that hold the pool, without the burst's."""
        return {each.path for each in self.cgroups.observe().cgroups if each.pod_uid not in BURST}


@BOTH
def test_s6_a_burst_of_pods_writes_the_pool_once(tmp_path: Path, version: int) -> None:
    """Twenty pods that come, run and go at once shrink and widen each shared cgroup once, with nobody in between."""
    node = Node(tmp_path / "tree", version)
    come = node.burst(Intake.pod_changed)
    assert come, "nobody gave CPUs up"
    assert set(come.values()) == {1}
    assert (node.steps.count("save"), node.looks) == (1, 1)
    node.born()
    run = node.burst(Intake.pod_changed, "app")
    assert [run[node.path(uid, "app")] > 0 for uid in BURST] == [True] * len(BURST)
    assert run.keys().isdisjoint(node.shared()), "what runs now was taken from the pool before"
    assert node.looks <= 2, "the tree is not read for each container"
    for uid in BURST:
        node.end(uid)
    gone = node.burst(Intake.pod_deleted)
    assert gone.keys() == come.keys()
    assert set(gone.values()) == {1}
    assert node.steps.count("save") == 1


@BOTH
@pytest.mark.parametrize("named", [False, True])
def test_s6_pods_that_run_already_when_they_come_write_the_pool_once(
    tmp_path: Path, version: int, *, named: bool
) -> None:
    """Shared cgroups are written once, and before any grant where the runtime has named the containers meanwhile."""
    node = Node(tmp_path / "tree", version)
    node.pods |= {uid: pod_from(manifest(uid)) for uid in BURST}
    node.born()
    if named:
        node.engine.names_at_start(node.names())
    counted = node.burst(Intake.pod_changed, "app")
    assert {counted[path] for path in node.shared() & counted.keys()} == {1}
    assert {node.effective(uid) for uid in BURST} == {node.holds(uid) for uid in BURST}
    assert node.steps.count("save") == 1
    assert node.looks == 1, "the tree is read once, and not for each container"


@BOTH
def test_s6_pods_that_come_and_go_at_once_write_the_pool_twice_at_most(tmp_path: Path, version: int) -> None:
    """Ten go while ten others come: shrunk for all that come, widened for all that went."""
    node = Node(tmp_path / "tree", version)
    node.burst(Intake.pod_changed)
    for uid in BURST[:10]:
        node.intake.pod_deleted(manifest(uid, created=10))
    counted = node.burst(Intake.pod_changed, uids=[f"q{number}" for number in range(10)])
    assert {node.holds(uid) for uid in BURST[:10]} == {""}
    assert all(node.holds(f"q{number}") for number in range(10))
    assert set(counted.values()) <= {1, 2}
    assert node.steps.count("save") == 2


@BOTH
def test_s6_a_set_that_is_in_force_is_not_written_again(tmp_path: Path, version: int) -> None:
    """The same events a second time, and a look at the tree, write and save nothing."""
    node = Node(tmp_path / "tree", version)
    node.burst(Intake.pod_changed)
    node.born()
    node.burst(Intake.pod_changed, "app")
    assert node.burst(Intake.pod_changed, "app") == Counter()
    assert node.engine.reconcile() == ()
    assert node.steps == []


@BOTH
def test_s6_what_only_the_runtime_brings_is_written_one_by_one(tmp_path: Path, version: int) -> None:
    """Each such pod is in force before its answer, so the pool is written for each; for its containers it is not."""
    node = Node(tmp_path / "tree", version)
    decisions = EngineDecisions(node.engine, lambda _address: Usable(()))
    decisions.start()
    node.pods |= {uid: pod_from(manifest(uid, created=10)) for uid in BURST}
    node.steps.clear()
    assert all(decisions.decide(node.pods[uid], within=PATIENCE) for uid in BURST)
    assert decisions.stop(PATIENCE)
    assert set(node.counted().values()) == {len(BURST)}
    node.steps.clear()
    node.born()
    decisions = EngineDecisions(node.engine, lambda _address: Usable(()))
    for uid in BURST:
        decisions.containers_named({container_id(uid, "app"): (uid, "app")})
    decisions.start()
    assert decisions.stop(PATIENCE)
    assert node.counted().keys().isdisjoint(node.shared())
    node.check()


@BOTH
def test_s6_room_that_others_get_at_once_never_widens_the_pool(tmp_path: Path, version: int) -> None:
    """Pods that waited take the CPUs of those that ended: no shared cgroup is written in between."""
    node = Node(tmp_path / "tree", version)
    node.burst(Intake.pod_changed)
    node.born()
    node.burst(Intake.pod_changed, "app")
    node.run(manifest("wide", container(cpu="21"), created=20))
    for name in ("one", "two"):
        node.see(manifest(name, container(), created=21, policy="none", on_misalignment="wait"))
    assert (node.holds("one"), node.holds("two")) == ("", "")
    for uid in BURST[:2]:
        node.end(uid)
    node.steps.clear()
    node.engine.pods_gone(BURST[:2])
    assert node.holds("one")
    assert node.holds("two")
    assert node.counted() == Counter()
    node.check()
