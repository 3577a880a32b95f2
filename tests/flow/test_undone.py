"""Sets that another program empties, or widens, while processes stand in their cgroups (Linux 7 and systemd)."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from agent.engine.backoff import AT_ONCE, URGENT
from agent.host.scratch import Layout, Scratch
from agent.model.cgroup import Cause, Level, Written
from agent.model.idset import CpuSet, NodeSet
from agent.model.pod import Qos
from agent.observe.event_log import EventLog
from agent.observe.metrics import Metrics
from tests.flow.world import World, container, manifest
from tests.world.clock import Clock

Place = tuple[Level, Qos, str]
LINUX_7 = Layout(linux=(7, 0))
MANY = 24
"""More than what is repaired at once, and more than a back-off of powers of two would leave in that time."""


class Node:
    """A node with Linux 7: a pod with CPUs of its own, and a shared pod that runs in the Burstable slice."""

    def __init__(self, folder: Path, setup: Layout = LINUX_7) -> None:
        self.clock, self.metrics = Clock(), Metrics()
        Scratch.create(folder, cpus=CpuSet.parse("0-7"), nodes=NodeSet.of(0, 1), setup=setup)
        self.world = World(folder, clock=self.clock, reporters=[EventLog(self.metrics)])
        self.world.engine._enforcer.backoff.clock = self.clock
        self.world.engine.pods_listed(set())
        self.world.run(manifest("db"))
        self.world.run(manifest("web", container(resources={"requests": {"cpu": "100m"}}), created=1))

    def path(self, place: Place) -> str:
        """One cgroup."""
        found = self.world.cgroups.observe().cgroups
        return next(each.path for each in found if (each.level, each.qos, each.pod_uid) == place)

    def write(self, place: Place, value: str) -> None:
        """As systemd does, or another program."""
        self.world.tree.kernel_write(self.path(place), "cpuset.cpus", value)

    def look(self) -> tuple[Written, ...]:
        """The look that follows an event."""
        return self.world.engine.reconcile(again=False)


SLICE = (Level.QOS, Qos.BURSTABLE, "")
POD = (Level.POD, Qos.GUARANTEED, "db")
OWN = (Level.CONTAINER, Qos.GUARANTEED, "db")


@pytest.mark.parametrize("where", [SLICE, OWN], ids=["slice", "own"])
def test_s6_a_set_that_is_emptied_under_processes_is_put_right_at_once_however_often(
    tmp_path: Path, where: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """Every ten seconds for four minutes: each look repairs, warns and counts a breach, and the agent goes on."""
    node = Node(tmp_path / "node")
    for _ in range(MANY):
        node.clock.now += 10
        node.write(where, "")
        caplog.clear()
        results = node.look()
        assert [(each.write.path, each.write.cause, each.error) for each in results] == [
            (node.path(where), Cause.DRIFT_UNDONE, "")
        ]  # fmt: skip
        told = [each for each in caplog.records if each.getMessage() == "repaired"]
        assert [each.levelno for each in told] == [logging.WARNING]
        node.world.check()
    assert node.world.engine.acting
    text = node.metrics.page({}).decode()
    assert f'cause="drift-undone",file="cpuset.cpus",result="ok"}} {MANY}.0' in text
    assert 'cause="drift-emptied",file="cpuset.cpus",result="ok"} 0.0' in text


def test_without_processes_it_is_no_fault(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The BestEffort slice without pods is emptied whenever the kubelet touches it: repaired, and no warning."""
    node = Node(tmp_path / "node")
    caplog.set_level(logging.INFO)
    node.write((Level.QOS, Qos.BEST_EFFORT, ""), "")
    assert [each.write.cause for each in node.look()] == [Cause.DRIFT_EMPTIED]
    assert [each.levelno for each in caplog.records if each.getMessage() == "repaired"] == [logging.INFO]


def test_a_pods_slice_that_may_use_all_cpus_is_no_breach(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The slice of a pod that starts is emptied by systemd, on every kernel, a moment before its first process comes.

    Empty or not, its processes may use the same CPUs: repaired, and neither warned of nor counted as a breach.
    """
    node = Node(tmp_path / "node")
    caplog.set_level(logging.INFO)
    node.write(POD, "")
    assert [(each.write.path, each.write.cause) for each in node.look()] == [(node.path(POD), Cause.DRIFT_EMPTIED)]
    assert [each.levelno for each in caplog.records if each.getMessage() == "repaired"] == [logging.INFO]
    node.world.check()


def test_repairs_that_must_not_wait_are_bounded(tmp_path: Path) -> None:
    """A program that empties without end costs ten writes at once and one a second then, and none is forgotten."""
    node = Node(tmp_path / "node")
    made = 0
    for _ in range(3 * AT_ONCE):
        node.write(SLICE, "")
        made += len(node.look())
    assert made == AT_ONCE
    assert node.world.engine.repair_in() == URGENT
    for _ in range(5):
        node.clock.now += URGENT
        assert len(node.look()) == 1
        node.write(SLICE, "")
    node.clock.now += URGENT
    node.look()
    node.world.check()


def test_s6_a_set_that_was_widened_onto_anothers_cpus_is_put_right_at_once_however_often(tmp_path: Path) -> None:
    """Whatever the cause: all that the parent has (a runtime's own value) stands on the other pod's CPUs as well."""
    node = Node(tmp_path / "node")
    for _ in range(MANY):
        node.clock.now += 10
        node.write(SLICE, "0-7")
        assert [each.write.cause for each in node.look()] == [Cause.DRIFT_RESET]
        node.world.check()


def test_what_disturbs_no_other_pod_still_waits_ever_longer(tmp_path: Path) -> None:
    """A slice that was narrowed stands on no grant: it is repaired after 1, 2, 4 ... seconds, as ever."""
    node = Node(tmp_path / "node")
    made = 0
    for _ in range(MANY):
        node.clock.now += 1
        node.write(SLICE, "4")
        made += len(node.look())
    assert made == 5


def test_s10_a_fight_over_an_exclusive_container_still_ends_in_observing(tmp_path: Path) -> None:
    """Another program writes its own set each time, onto another pod's CPUs: after three repairs it is named."""
    node = Node(tmp_path / "node")
    node.world.run(manifest("db2", created=2))
    for _ in range(3):
        assert node.world.engine.acting
        node.clock.now += 10
        node.write(OWN, "3-4")
        assert {each.write.cause for each in node.look()} == {Cause.DRIFT_FOREIGN}
    assert not node.world.engine.acting
    assert '"3-4"' in node.world.engine.snapshot.yields["flapping"]


def test_before_linux_7_the_kernel_keeps_the_set(tmp_path: Path) -> None:
    """Up to 6.19 the same write is refused while a process is in the slice, and nothing is to be repaired."""
    node = Node(tmp_path / "node", Layout())
    with pytest.raises(OSError, match="No space left"):
        node.write(SLICE, "")
    assert node.look() == ()
