"""A pod is told that it has its CPUs only where the kernel said so of each container, and nobody else is there.

Finding 10.
"""

from __future__ import annotations

import errno
import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from agent.app.page.values import PageInput, pods_value
from agent.core.machines.synthetic import parse_synthetic
from agent.host.scratch import Layout, Scratch
from agent.host.standin import container_id
from agent.model.cgroup import OCCUPIED
from tests.flow.world import World, container, manifest
from tests.world.clock import Clock

MACHINE = "2 sockets x 1 node x 4 cores x 1 thread"
WEB = {"name": "app", "image": "example.com/x", "resources": {"requests": {"cpu": "100m"}}}


@pytest.fixture(params=[1, 2], ids=["v1", "v2"])
def version(request: pytest.FixtureRequest) -> int:
    """Of the cgroups."""
    number: int = request.param
    return number


def node(folder: Path, version: int, clock: Clock | None = None, settings: Mapping[str, Any] | None = None) -> World:
    """A node with a shared pod "web" that runs; "db" may come."""
    machine = parse_synthetic(MACHINE)
    Scratch.create(folder, cpus=machine.online, nodes=machine.node_set, setup=Layout(version))
    world = World(folder, machine=MACHINE, settings=settings, clock=clock or Clock())
    world.engine.pods_listed({"web", "db"})
    world.run(manifest("web", WEB, created=1))
    return world


def test_a_refused_write_is_not_tried_at_every_look(tmp_path: Path, version: int) -> None:
    """Each event is a look: what the kernel refuses would be written hundreds of times a second while pods come."""
    clock = Clock()
    world = node(tmp_path, version, clock)
    world.kernel.refuse(errno.EBUSY, path=container_id("db", "app"))
    world.run(manifest("db", container(cpu="4"), created=2))
    for _ in range(3):  # at once, and once more when all around it is as it stays
        world.engine.reconcile(again=False)
    before = world.kernel.refusals
    for _ in range(5):
        world.engine.reconcile(again=False)
    assert world.kernel.refusals == before
    assert world.engine.repair_in() is not None, "it is tried again in a while"
    world.engine.reconcile()
    assert world.kernel.refusals > before, "the look by the clock tries everything"


def test_a_refused_write_is_told_and_so_is_its_end(tmp_path: Path, version: int) -> None:
    """While the kernel refuses the set, the condition is False and names file, errno and remedy; then it is True."""
    world = node(tmp_path, version)
    world.kernel.refuse(errno.EBUSY, path=container_id("db", "app"))
    world.run(manifest("db", container(cpu="4"), created=2))
    report = world.report("db")
    assert (report.status, report.reason) == ("False", "NotEnforced")
    assert "app: cpuset.cpus of /kubepods" in report.message
    assert "EBUSY: a cgroup below it" in report.message
    told = json.loads(str(report.annotations["numalign.io/assignment"]))["containers"]["app"]
    assert "EBUSY: a cgroup below it" in told["unenforced"]
    world.engine.reconcile()
    assert world.condition("db") == "False NotEnforced"
    assert [pod["state"] for pod in pods_value(PageInput(world.engine.snapshot))] == ["shared", "not enforced"]
    world.kernel.mend()
    world.engine.reconcile()
    assert world.condition("db") == "True Aligned"
    assert world.effective("db") == world.holds("db") == "4-7"
    assert "unenforced" not in str(world.report("db").annotations["numalign.io/assignment"])


def test_cpus_that_others_did_not_leave_are_not_told_as_exclusive(tmp_path: Path, version: int) -> None:
    """The container has its set, and somebody of the shared pool could not be taken off it: who, and why, is told."""
    world = node(tmp_path, version)
    for part in ("besteffort", "burstable", container_id("web", "app")):
        world.kernel.refuse(errno.EACCES, path=part)
    world.run(manifest("db", container(cpu="4"), created=2))
    assert world.effective("db") == "4-7", "it has its CPUs, and is not alone there"
    report = world.report("db")
    assert (report.status, report.reason) == ("False", "NotEnforced")
    assert "its CPUs 4-7 are not its own yet" in report.message
    assert container_id("web", "app") in report.message
    assert "EACCES" in report.message
    assert world.condition("web") == "True SharedPool"
    world.kernel.mend()
    world.engine.reconcile()
    assert world.condition("db") == "True Aligned"


def test_while_only_observing_nothing_is_told_as_enforced(tmp_path: Path, version: int) -> None:
    """The kill switch is on: a new pod is told that nothing is written, before it starts and when it runs."""
    world = node(tmp_path, version)
    world.engine.halted = True
    world.see(manifest("db", container(cpu="4"), created=2))
    assert world.condition("db") == "False NotEnforced"
    world.start("db")
    assert world.condition("db") == "False NotEnforced"
    assert "observing only" in world.report("db").message
    world.engine.halted = False
    world.engine.reconcile()
    assert world.condition("db") == "True Aligned"


def test_the_kill_switch_takes_back_no_word_that_is_still_true(tmp_path: Path, version: int) -> None:
    """Pods that have their sets keep them and their condition: a switch on all nodes makes no storm of requests."""
    world = node(tmp_path, version)
    world.run(manifest("db", container(cpu="4"), created=2))
    before = list(world.ears.words)
    world.engine.halted = True
    world.engine.reconcile()
    assert (world.condition("db"), world.ears.words) == ("True Aligned", before)
    world.tree.kernel_write(world.path("db", "app"), "cpuset.cpus", "4-6")
    world.engine.reconcile()
    assert world.condition("db") == "False NotEnforced", "now it is not"


def test_a_write_that_hangs_is_told(tmp_path: Path) -> None:
    """Memory that is being moved is not in place yet; a write that hangs holds up no other pod (S8)."""
    memory = {"memoryManagerPolicy": "Static", "reservedMemory": [{"numaNode": 0, "limits": {"memory": "100Mi"}}]}
    world = node(tmp_path, 2, settings=memory)
    world.engine.pods_listed({"web", "db", "other"})
    go_on = threading.Event()

    def slow(path: str, file: str, _value: str) -> None:
        if file == "cpuset.mems" and container_id("db", "app") in path:
            go_on.wait(30)

    world.kernel.before = slow
    world.run(manifest("db", container(cpu="2"), created=2))
    assert world.condition("db") == "False NotEnforced"
    assert "hangs: the write has not returned" in world.report("db").message
    world.run(manifest("other", container(cpu="2"), created=3))
    assert world.condition("other") == "True Aligned"
    go_on.set()
    while world.condition("db") != "True Aligned":
        world.engine.reconcile()


def test_memory_that_another_program_sends_elsewhere_is_told(tmp_path: Path) -> None:
    """The container asks for its node as granted; its pod's slice has another, which the kernel takes instead."""
    clock = Clock()
    settings = {
        "topologyManagerPolicy": "single-numa-node", "memoryManagerPolicy": "Static",
        "reservedMemory": [{"numaNode": 0, "limits": {"memory": "100Mi"}}],
    }  # fmt: skip
    world = World(tmp_path, machine=f"{MACHINE}, 4G per node", settings=settings, clock=clock)
    world.engine.pods_listed({"db"})
    world.run(manifest("db", created=1))
    assert world.condition("db") == "True Aligned"
    slice_of = world.path("db", "app").rpartition("/")[0]
    world.tree.kernel_write(slice_of, "cpuset.mems", "1")
    world.engine.reconcile()
    assert world.condition("db") == "False NotEnforced"
    assert "its memory may lie on NUMA nodes 1, and not on 0" in world.report("db").message
    world.tree.kernel_write(slice_of, "cpuset.mems", "0-1")
    clock.now += 3600
    world.engine.reconcile()
    assert world.condition("db") == "True Aligned"


def test_nobody_is_put_where_another_could_not_be_moved_away(tmp_path: Path, version: int) -> None:
    """A pod that shrank and cannot be taken off a CPU: the next holder of that CPU waits, and both are told why."""
    world = node(tmp_path, version)
    world.engine.pods_listed({"web", "db", "full", "next"})
    world.run(manifest("db", container(cpu="4"), created=2))
    world.run(manifest("full", container(cpu="3"), created=2))
    world.kernel.refuse(errno.EBUSY, path="poddb")
    world.see(manifest("db", container(cpu="2"), created=2))
    world.run(manifest("next", container(cpu="2"), created=3))
    assert (world.effective("db"), world.holds("next")) == ("4-7", "6-7")
    assert world.effective("next") != "6-7", "it is not put on CPUs where another container still runs"
    assert OCCUPIED in world.report("next").message
    assert world.condition("db") == "False NotEnforced"
    world.kernel.mend()
    for _ in range(2):
        world.engine.reconcile()
    assert (world.effective("db"), world.effective("next")) == ("4-5", "6-7")
    assert (world.condition("db"), world.condition("next")) == ("True Aligned", "True Aligned")


def test_an_ordinary_pod_is_told_once(tmp_path: Path, version: int) -> None:
    """Seen, started, looked at again and again: one word in its life, so one request to the API server."""
    world = node(tmp_path, version)
    world.run(manifest("db", container(cpu="4"), container("side", cpu="1"), created=2))
    for _ in range(5):
        world.engine.reconcile()
    assert world.ears.words == ["web", "db"]


def test_a_write_that_comes_and_goes_makes_no_storm(tmp_path: Path) -> None:
    """A set that comes and goes with every look: at most 22 words in an hour, 6 later on; none says too much."""
    clock = Clock()
    world = node(tmp_path, 2, clock)
    world.run(manifest("db", container(cpu="4"), created=2))
    told = []
    for hour in range(3):
        before = len(world.ears.words)
        for look in range(360):
            if look % 2:
                world.kernel.mend()
            else:
                world.tree.kernel_write(world.path("db", "app"), "cpuset.cpus", "0-7")
                world.kernel.refuse(errno.EBUSY, path=container_id("db", "app"))
            world.engine.reconcile()
            if world.effective("db") != world.holds("db"):
                assert world.condition("db") == "False NotEnforced", f"hour {hour}, look {look}"
            clock.now += 10
        told.append(len(world.ears.words) - before)
    assert told[0] <= 22, told
    assert max(told[1:]) <= 6, told
    world.kernel.mend()
    clock.now += 3600
    world.engine.reconcile()
    assert world.condition("db") == "True Aligned"


def test_after_a_calm_hour_the_next_lapse_is_the_first(tmp_path: Path) -> None:
    """What came and went all the time is over: the next word on it is taken back as soon as it is not true."""
    clock = Clock()
    world = node(tmp_path, 2, clock)
    world.run(manifest("db", container(cpu="4"), created=2))

    def lapses() -> str:
        world.tree.kernel_write(world.path("db", "app"), "cpuset.cpus", "0-7")
        world.kernel.refuse(errno.EBUSY, path=container_id("db", "app"))
        world.engine.reconcile()
        told = world.condition("db")
        world.kernel.mend()
        clock.now += 10
        world.engine.reconcile()
        return f"{told}, {world.condition('db')}"

    last = ""
    for _ in range(20):
        last = lapses()
        clock.now += 10
    assert last == "False NotEnforced, False NotEnforced", "by now its end is told late"
    clock.now += 1800
    world.engine.reconcile()
    assert world.condition("db") == "True Aligned"
    clock.now += 3601
    assert lapses() == "False NotEnforced, True Aligned"


def test_what_is_refused_is_tried_ever_later(tmp_path: Path, version: int) -> None:
    """Events come many a second; the kernel is asked again after 1, 2, 4 and then every 10 seconds."""
    clock = Clock()
    world = node(tmp_path, version, clock)
    world.kernel.refuse(errno.EBUSY, path=container_id("db", "app"))
    world.run(manifest("db", container(cpu="4"), created=2))
    before = world.kernel.refusals
    for _ in range(600):
        world.engine.reconcile(again=False)
        clock.now += 0.1
    assert world.kernel.refusals - before <= 12
    world.kernel.mend()
    world.engine.reconcile()
    assert world.effective("db") == "4-7", "the look by the clock tries it in any case"


def test_a_confined_pod_that_is_not_kept_on_its_nodes_is_told(tmp_path: Path, version: int) -> None:
    """It holds no CPUs of its own, and may run elsewhere than it counts on: which set it has, and when that ends."""
    world = node(tmp_path, version)
    world.kernel.refuse(errno.EACCES, path="poddb")
    world.run(manifest("db", container(cpu="1500m"), created=2, align="numa"))
    report = world.report("db")
    assert (report.status, report.reason) == ("False", "NotEnforced")
    assert "is 0-7 instead of 0-3" in report.message
    assert "EACCES" in report.message
    assert "another program" not in report.message
    world.kernel.mend()
    world.engine.reconcile()
    assert world.condition("db") == "True Aligned"


@pytest.mark.parametrize("cpu", ["1500m", "2"], ids=["confined", "exclusive"])
def test_what_a_pod_cannot_be_given_from_above_is_told_with_who_refused_it(tmp_path: Path, cpu: str) -> None:
    """Its container inherits from the pod's slice, which the kernel refuses: told are that slice and the errno."""
    clock = Clock()
    world = node(tmp_path, 2, clock)
    world.run(manifest("db", container(cpu=cpu), created=2, align="numa"))
    slice_of = world.path("db", "app").rpartition("/")[0]
    world.tree.kernel_write(slice_of, "cpuset.cpus", "5-7")
    world.kernel.refuse(errno.EACCES, path="poddb")
    world.engine.reconcile()
    message = world.report("db").message
    assert world.condition("db") == "False NotEnforced"
    assert f"it follows {slice_of}, which could not be written: EACCES: its parent lacks these CPUs" in message
    assert "another program" not in message
    world.kernel.mend()
    clock.now += 60
    world.engine.reconcile()
    assert world.condition("db") == "True Aligned"
