"""What the agent could not read back of a pod, and what the kernel did not lift of its quota, is told to the pod.

Finding 10.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from agent.app.service.gauges import shown
from agent.app.statedir.unplaced_pods import UnplacedPods
from agent.cli import group
from agent.core.machines.synthetic import parse_synthetic
from agent.errors import HostError
from agent.host.checkpoint import Checkpoint
from agent.host.scratch import Layout, Scratch
from agent.host.standin import container_id
from agent.model.cgroup import Level, Observed
from agent.node.explaining import explained
from agent.observe.metrics import Metrics
from tests.flow.world import World, container, manifest

MACHINE = "2 sockets x 1 node x 4 cores x 1 thread"
NOT_ENFORCED, ALIGNED = "False NotEnforced", "True Aligned"


@pytest.fixture(params=[1, 2], ids=["v1", "v2"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    """A node on which "db" runs on CPUs of its own; "new" and "late" may come."""
    machine = parse_synthetic(MACHINE)
    Scratch.create(tmp_path / "tree", cpus=machine.online, nodes=machine.node_set, setup=Layout(request.param))
    world = World(tmp_path / "tree", machine=MACHINE)
    world.engine.pods_listed({"db", "new", "late"})
    world.run(manifest("db", container(cpu="3"), created=1))
    return world


@contextmanager
def unreadable(world: World) -> Iterator[None]:
    """Meanwhile a file of the kubelet's cgroups says what no kernel says."""
    path = next(each.path for each in world.cgroups.observe().cgroups if each.level is Level.QOS)
    file = Path(f"{world.cgroups.mounts.cpuset}{path}/cpuset.cpus")
    text = file.read_text("ascii")
    file.write_text("1-banana\n", "ascii")
    yield
    file.write_text(text, "ascii")
    world.engine.reconcile()


def limit(world: World) -> str:
    """The file of the CPU quota."""
    return "cpu.max" if world.cgroups.observe().version > 1 else "cpu.cfs_quota_us"


def throttle(world: World, uid: str) -> None:
    """The kubelet puts the quota of two CPUs on a pod and its container, as at each resize."""
    path = world.path(uid, "app")
    for each in (path.rpartition("/")[0], path):
        world.tree.kernel_write(each, limit(world), "200000")


def test_a_new_pod_is_not_told_what_nobody_read_back(world: World) -> None:
    """The cgroups cannot be read: who is new, or started meanwhile, is told so once; who was read keeps his word."""
    world.see(manifest("late", container(cpu="1"), created=2))
    assert world.condition("late") == ALIGNED, "granted, and none of its containers is there"
    with unreadable(world):
        world.start("late")
        world.run(manifest("new", container(cpu="2"), created=3))
        told = list(world.ears.words)
        for _ in range(5):
            world.engine.reconcile()
        assert world.ears.words == told, "each look fails, and there is nothing new to be told"
        assert (world.condition("new"), world.condition("late")) == (NOT_ENFORCED, NOT_ENFORCED)
        assert "not read back" in world.report("new").message
        assert "banana" in world.report("new").message
        assert world.condition("db") == ALIGNED, "nothing is known that would take this back"
    assert [world.condition(uid) for uid in ("db", "new", "late")] == [ALIGNED] * 3
    assert world.effective("new") == world.holds("new")
    assert world.effective("late") == world.holds("late")
    assert world.ears.words.count("db") == 1


def test_what_is_wrong_when_it_can_be_read_again_is_told(world: World) -> None:
    """The kernel refuses the set of a pod that came while nothing could be read: then that is its reason."""
    with unreadable(world):
        world.kernel.refuse(errno.EBUSY, path=container_id("new", "app"))
        world.run(manifest("new", container(cpu="2"), created=2))
    assert world.condition("new") == NOT_ENFORCED
    assert "EBUSY" in world.report("new").message
    world.kernel.mend()
    world.engine.reconcile()
    assert world.condition("new") == ALIGNED


def test_what_cannot_be_read_is_told_whole(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A container's cgroup alone has a name of 200 characters: what is wrong with it comes after that."""
    pod = f"kubepods-burstable-pod{'0' * 32}.slice"
    path = f"/sys/fs/cgroup/kubepods.slice/kubepods-burstable.slice/{pod}/cri-containerd-{'a' * 64}.scope/cpuset.cpus"

    def observe() -> Observed:
        raise HostError(path, "Input/output error")

    monkeypatch.setattr(world.cgroups, "observe", observe)
    world.engine.reconcile()
    assert ("cgroups", f"{path}: Input/output error") in world.ears.problems


def test_a_quota_that_is_not_lifted_is_told(world: World) -> None:
    """A pod on CPUs of its own that is throttled all the same: which file, which error; and its end."""
    world.run(manifest("new", container(cpu="2"), created=2))
    throttle(world, "new")
    world.kernel.refuse(errno.EACCES, limit(world), "podnew")
    world.engine.reconcile()
    assert world.effective("new") == world.holds("new")
    report = world.report("new")
    assert (report.status, report.reason) == ("False", "NotEnforced")
    assert f"app: it is throttled: {limit(world)} of /kubepods" in report.message
    assert "EACCES" in report.message
    assert world.condition("db") == ALIGNED
    world.kernel.mend()
    world.engine.reconcile()
    assert world.condition("new") == ALIGNED


def test_a_quota_that_stays_by_the_settings_is_no_fault(tmp_path: Path) -> None:
    """With liftCpuQuota false nothing is said of it."""
    world = World(tmp_path / "tree", lift_quota=False)
    world.engine.pods_listed({"db"})
    world.run(manifest("db", container(cpu="2"), created=1))
    throttle(world, "db")
    world.engine.reconcile()
    assert world.condition("db") == ALIGNED


def metric(world: World, name: str) -> float:
    """A gauge, as Prometheus reads it."""
    page = Metrics().page(shown(world.engine, None)).decode()
    return next(float(line.split()[1]) for line in page.splitlines() if line.split()[0] == name)


def test_the_gauge_counts_pods_that_lack_something(world: World) -> None:
    """None, then one while the kernel refuses its set, then none; what was granted counts meanwhile as granted."""
    assert metric(world, "numalign_unenforced_pods") == 0
    world.kernel.refuse(errno.EBUSY, path=container_id("new", "app"))
    world.run(manifest("new", container(cpu="2"), created=2))
    lacking = [uid for uid in ("db", "new") if world.condition(uid) == NOT_ENFORCED]
    assert "new" in lacking, "and db where the other may run on its CPUs meanwhile: on v1 it began on all"
    assert metric(world, "numalign_unenforced_pods") == len(lacking)
    assert metric(world, 'numalign_placed_pods{alignment="aligned"}') == 2
    world.kernel.mend()
    world.engine.reconcile()
    assert metric(world, "numalign_unenforced_pods") == 0


def test_explain_and_state_say_it(tmp_path: Path) -> None:
    """Page, `numalign explain` and `numalign state` show the books, and say where the kernel does not have that."""
    store = Checkpoint(tmp_path / "state" / "checkpoint.json")
    root = f"synthetic:{MACHINE}"
    world = World(tmp_path / "tree", machine=MACHINE)
    world.engine.pods_listed({"db", "new"})
    world.run(manifest("db", container(cpu="2"), created=1))
    world.kernel.refuse(errno.EBUSY, path=container_id("new", "app"))
    world.run(manifest("new", container(cpu="2"), created=2))
    store.save(world.engine.ledger)
    outside = UnplacedPods(tmp_path / "state")

    def ask(*words: str) -> str:
        outside.follow(world.engine.snapshot)
        where = ("--state-dir", str(tmp_path / "state"), "--root", root)
        result = CliRunner().invoke(group, [*words, *where], env={"COLUMNS": "400"})
        assert result.exit_code == 0, result.output
        return result.output

    text = "the kernel does not have what it holds: app: cpuset.cpus of /kubepods"
    on_page = explained(world.engine.snapshot, "new")
    assert on_page is not None
    assert [each for each in on_page.notes if each.startswith(text)]
    assert text in ask("state").replace("\n", " ")
    assert list(json.loads(ask("state", "--output", "json"))["unenforced"]) == ["new"]
    assert any(note.startswith(text) for note in json.loads(ask("explain", "new", "-o", "json"))["notes"])
    assert not any(note.startswith(text) for note in json.loads(ask("explain", "db", "-o", "json"))["notes"])
    world.kernel.mend()
    world.engine.reconcile()
    assert text not in ask("state")
    assert json.loads(ask("state", "--output", "json"))["unenforced"] == {}
    assert not any(note.startswith(text) for note in json.loads(ask("explain", "new", "-o", "json"))["notes"])


WITH_MEMORY = "2 sockets x 1 node x 4 cores x 1 thread, 8G per node"


@pytest.mark.parametrize("fault", [HostError("/sys/fs/cgroup", "cannot be read"), RuntimeError("anything")], ids=str)
def test_cgroups_that_cannot_be_read_are_not_told_as_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    """A pod is granted CPUs while nobody can look: it is told that, and is told the rest when somebody can."""
    world = World(tmp_path / "tree", machine=WITH_MEMORY)
    world.engine.pods_listed({"db", "web"})
    world.run(manifest("db", container(cpu="2"), created=1))

    def observe() -> Observed:
        raise fault

    with monkeypatch.context() as patched:
        patched.setattr(world.cgroups, "observe", observe)
        world.engine.pods_seen([world.pods["db"]])
        other = manifest("other", container(cpu="2"), created=2)
        patched.setattr(world, "check", lambda: None)
        world.see(other)
        assert world.condition("other") == "False NotEnforced"
        assert "not read back" in world.report("other").message
        assert world.condition("db") == "True Aligned", "of whom nothing else is known"
    world.engine.reconcile()
    assert world.condition("other") == "True Aligned"


def test_pages_that_nobody_can_count_cost_nobody_else(tmp_path: Path) -> None:
    """One container's memory.numa_stat cannot be read: it stays where it is, the others are enforced and told."""
    settings = {
        "memoryManagerPolicy": "Static", "kubeReserved": {"cpu": 1, "memory": "1948Mi"},
        "reservedMemory": [{"numaNode": node, "limits": {"memory": "1Gi"}} for node in (0, 1)],
    }  # fmt: skip
    world = World(tmp_path / "tree", machine=WITH_MEMORY, settings=settings)
    world.engine.pods_listed({"odd", "db"})
    world.see(manifest("odd", container(cpu="2"), created=1))
    path = world.tree.add_pod("odd", world.pods["odd"].qos)
    world.tree.remove(path)
    world.start("odd")
    world.tree.kernel_write(world.path("odd", "app"), "cpuset.mems", "0-1")
    stat = Path(f"{world.tree.folder}{world.path('odd', 'app')}/memory.numa_stat")
    stat.write_text("anon what=ever\n")
    world.engine.reconcile()
    world.run(manifest("db", container(cpu="2"), created=2))
    assert world.effective("db") == world.holds("db")
    assert world.condition("db") == "True Aligned"


def test_who_lost_a_cpu_is_told_whenever_that_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A CPU goes offline while a fault keeps that from being followed: when it is, the pod is told what it has.

    Finding 11.
    """
    world = World(tmp_path / "tree", machine=WITH_MEMORY)
    world.engine.pods_listed({"db"})
    world.run(manifest("db", container(cpu="4"), created=1))
    less = parse_synthetic(f"{WITH_MEMORY}, offline 7")

    def fails(*_: object) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patched:
        patched.setattr(world.store, "save", fails)
        world.engine.changed(world.node(less))
    world.tree.online(less.online)
    world.machine = less
    world.engine.reconcile()
    assert (world.holds("db"), world.condition("db")) == ("4-6", "False NotAligned")
    assert world.ears.words[-1] == "db"
    assert "it lost CPUs 7" in world.report("db").message
    assert world.ears.told["db"] == "4-6"


def test_a_resize_under_policy_none_is_not_ignored_in_silence(tmp_path: Path) -> None:
    """The pod keeps its CPUs and is told why; back to static, the resize is followed (finding 9)."""
    world = World(tmp_path / "tree", machine=WITH_MEMORY)
    world.engine.pods_listed({"db"})
    world.run(manifest("db", container(cpu="2"), created=1))
    held = world.holds("db")
    world.engine.changed(world.node(cpuManagerPolicy="none"))
    world.see(manifest("db", container(cpu="3"), created=1))
    assert (world.holds("db"), world.condition("db")) == (held, "False NotAligned")
    assert "resize not followed from 2 to 3 CPUs: cpuManagerPolicy is none" in world.report("db").message
    world.engine.changed(world.node(cpuManagerPolicy="static"))
    world.engine.reconcile()
    assert len(world.engine.ledger.grant("db", "app").cpus or ()) == 3
    assert world.effective("db") == world.holds("db")
    assert world.condition("db") == "True Aligned"
