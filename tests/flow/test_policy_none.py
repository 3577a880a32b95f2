"""cpuManagerPolicy static -> none at run time: nobody is moved, and as grants end their CPUs are everybody's.

Finding 9.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.core.machines.synthetic import parse_synthetic
from agent.host.scratch import Layout, Scratch
from agent.model.cgroup import Level
from agent.model.idset import CpuSet
from tests.flow.world import World, container, manifest

MACHINE = "2 sockets x 1 node x 4 cores x 1 thread"
WEB = container(cpu="", memory="")


@pytest.fixture(params=[1, 2], ids=["v1", "v2"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    """A node with two pinned pods and a shared one, whose settings say none from now on."""
    machine = parse_synthetic(MACHINE)
    folder = tmp_path / "tree"
    Scratch.create(folder, cpus=machine.online, nodes=machine.node_set, setup=Layout(request.param))
    world = World(folder, machine=MACHINE)
    world.engine.pods_listed({"web", "db", "more", "late"})
    world.run(manifest("web", WEB, created=1))
    world.run(manifest("db", container(cpu="4"), created=2))
    world.run(manifest("more", container(cpu="2"), created=3))
    world.engine.changed(world.node(cpuManagerPolicy="none"))
    return world


def ends(world: World, uid: str) -> None:
    """A pod's processes end, and the API forgets it."""
    world.end(uid)
    del world.pods[uid]
    world.engine.pods_gone([uid])


def test_the_change_itself_moves_nobody(world: World) -> None:
    """Those who have CPUs keep them to themselves, also when they are restarted; who comes now shares the rest."""
    world.engine.reconcile()
    assert (world.effective("db"), world.effective("more"), world.effective("web")) == ("4-7", "1-2", "0,3")
    world.run(manifest("late", container(cpu="1"), created=4))
    assert (world.holds("late"), world.effective("late")) == ("", "0,3")
    assert world.condition("db") == "True Aligned"


def test_as_grants_end_the_pool_widens_to_everything(world: World) -> None:
    """One pod ends, then the other: their CPUs go to all that run, and to those who come later."""
    ends(world, "db")
    assert (world.effective("web"), world.effective("more")) == ("0,3-7", "1-2")
    ends(world, "more")
    assert world.effective("web") == "0-7"
    world.run(manifest("late", WEB, created=4))
    assert world.effective("late") == "0-7"
    world.tree.kernel_write(world.path("late", "app"), "cpuset.cpus", "5")
    world.engine.reconcile()
    assert world.effective("late") == "5", "policy none: what another program writes is left alone"


def test_also_when_the_agent_is_started_anew_in_between(world: World) -> None:
    """The grants are in the checkpoint: what was shrunk for them is known to be ours, though nothing was written."""
    again = World(
        world.tree.folder, machine=MACHINE, settings=world.settings, store=world.store, pods=world.pods.values()
    )
    assert (again.effective("db"), again.effective("web")) == ("4-7", "0,3")
    for uid in ("db", "more"):
        again.end(uid)
        del again.pods[uid]
    again.engine.pods_listed({"web"})
    assert again.effective("web") == "0-7"


def test_a_cpu_that_comes_back_later_is_everybodys_too(world: World) -> None:
    """The sets that were widened follow the machine: they are this agent's for as long as nobody else wrote them."""
    world.tree.online(CpuSet.parse("0-6"))
    for uid in ("db", "more"):
        ends(world, uid)
    assert world.effective("web") == "0-6"
    world.tree.online(CpuSet.parse("0-7"))
    world.engine.reconcile()
    (kubepods,) = [each for each in world.cgroups.observe().cgroups if each.level is Level.KUBEPODS]
    assert world.effective("web") == str(kubepods.effective_cpus), "on v1 the kubelet's own set lacks it for good"


def test_quota_comes_back_at_once(world: World) -> None:
    """No manager of CPUs, no lifted quota: what the pod's limits say is in force again, on the same CPUs (S16)."""
    quota = {each.path: each.quota for each in world.cgroups.observe().cgroups}
    assert not quota[world.path("db", "app")].startswith(("max", "-1"))
    assert world.effective("db") == "4-7"


def test_a_node_that_was_never_static_is_never_written(tmp_path: Path) -> None:
    """Policy none writes nothing of its kind: neither slices nor containers, whoever set them."""
    world = World(tmp_path / "tree", settings={"cpuManagerPolicy": "none"})
    world.engine.pods_listed({"a", "b"})
    world.run(manifest("a", container(cpu="2"), created=1))
    world.tree.kernel_write(world.path("a", "app"), "cpuset.cpus", "3")
    world.run(manifest("b", WEB, created=2))
    world.engine.pods_gone(["b"])
    world.end("b")
    world.engine.reconcile()
    assert world.effective("a") == "3"
    assert [each for each in world.ears.written_ if each.write.file == "cpuset.cpus"] == []


@pytest.mark.parametrize("version", [1, 2], ids=["v1", "v2"])
def test_a_change_while_no_agent_runs_widens_too(tmp_path: Path, version: int) -> None:
    """Under strict-cpu-reservation the pool lacked a CPU, nobody holds any; with none, all is shared."""
    machine = parse_synthetic(MACHINE)
    folder = tmp_path / "tree"
    Scratch.create(folder, cpus=machine.online, nodes=machine.node_set, setup=Layout(version))
    world = World(folder, machine=MACHINE, settings={"cpuManagerPolicyOptions": {"strict-cpu-reservation": "true"}})
    world.engine.pods_listed({"web", "more"})
    world.run(manifest("web", WEB, created=1))
    world.run(manifest("more", container(cpu="500m"), created=2))
    assert (world.effective("web"), world.effective("more")) == ("1-7", "1-7")
    world.tree.kernel_write(world.path("more", "app"), "cpuset.cpus", "5")
    settings = {**world.settings, "cpuManagerPolicy": "none", "cpuManagerPolicyOptions": {}}
    again = World(folder, machine=MACHINE, settings=settings, store=world.store, pods=world.pods.values())
    again.engine.pods_listed({"web", "more"})
    assert (again.effective("web"), again.effective("more")) == ("0-7", "5"), "what others wrote is theirs"
    again.run(manifest("late", WEB, created=3))
    assert again.effective("late") == "0-7"
