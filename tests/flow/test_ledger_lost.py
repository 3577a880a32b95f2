"""The ledger lost, and a pod that was deleted by force while its processes run on: its CPUs stay its own (S13).

Finding 2.
"""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest

from agent.core.machines.synthetic import parse_synthetic
from agent.engine.unlisted import keep
from agent.host.scratch import Layout, Scratch
from agent.host.standin import container_id
from agent.model.idset import CpuSet, NodeSet
from agent.model.pod import Qos
from agent.model.podspec import pod_from
from tests.flow.cluster_node import MACHINE, ClusterNode, list_pods, running
from tests.flow.world import World, container, manifest


def test_what_nobody_knows_keeps_its_cpus_until_its_cgroup_has_gone(tmp_path: Path) -> None:
    """It is in no list and in no ledger: neither moved nor shared nor granted to others, and freed at its end."""
    node = ClusterNode(tmp_path)
    world = node.world
    gone, db = manifest("gone", container(), container("side", cpu="500m")), manifest("db", created=1)
    world.run(gone)
    world.run(db)
    was, theirs = world.effective("gone"), world.effective("db")
    with node.serving() as agent:
        list_pods(agent, running(db), manifest("new"))
        # the runtime names everything that runs
        agent.engine.containers_seen({container_id("gone", "app"): ("gone", "app")})
        agent.engine.reconcile()
        assert (world.effective("gone"), world.effective("db")) == (was, theirs)
        ledger = agent.engine.ledger
        own = ledger.grant("new", "app").cpus
        assert own is not None
        assert CpuSet.parse(was).isdisjoint(own | ledger.cpus.shared)
        assert world.effective("gone", "side") == str(ledger.cpus.shared)
        world.end("gone")
        agent.engine.reconcile()
        ledger = agent.engine.ledger
        assert CpuSet.parse(was).issubset(ledger.cpus.shared)
        assert set(ledger.pods) == {"db", "new"}


def test_before_the_first_list_counts_nothing_is_told_that_was_not_read_back(tmp_path: Path) -> None:
    """No ledger; a pod runs on no set of its own, the kernel refuses one: the first word of it says so."""
    world = World(tmp_path)
    db, number = manifest("db"), container_id("db", "app")
    world.tree.add_pod("db", Qos.GUARANTEED)
    world.tree.add_container("db", number)
    world.kernel.refuse(errno.EBUSY)
    world.engine.containers_announced({number: ("db", "app")})
    world.engine.adopt([pod_from(db)], {number: ("db", "app")}, {})
    world.see(db, ran=["db"])
    assert world.ears.admitted_ == ["db"]
    assert world.condition("db") == "False NotEnforced"
    world.kernel.mend()
    world.engine.pods_listed({"db"})
    world.engine.reconcile()
    assert world.condition("db") == "True Aligned"
    assert world.effective("db") == world.holds("db")


def test_nobody_is_left_what_confined_pods_count_on(tmp_path: Path) -> None:
    """A set that nobody knows takes three CPUs of the node where a confined pod counts on two and a half of them."""
    world = World(tmp_path)
    world.run(manifest("web", container(cpu="2500m"), align="numa"))
    assert world.engine.ledger.cpus.confined["web"].nodes == NodeSet.of(0)
    world.tree.add_pod("gone", Qos.GUARANTEED)
    world.tree.add_container("gone", container_id("gone", "app"))
    world.tree.kernel_write(world.path("gone", "app"), "cpuset.cpus", "1-3")
    observed, before = world.cgroups.observe(), world.engine.ledger
    assert keep(world.engine.node, before, observed, ["web"]) == (before, {})
    world.tree.kernel_write(world.path("gone", "app"), "cpuset.cpus", "5-7")
    _, told = keep(world.engine.node, before, world.cgroups.observe(), ["web"])
    assert list(told) == ["gone"], "on the other node they are in nobody's way"


@pytest.mark.parametrize("version", [1, 2], ids=["v1", "v2"])
def test_who_carries_the_pool_of_before_by_name_has_no_grant(tmp_path: Path, version: int) -> None:
    """A grant ended while no agent ran: taken for its own, what a sidecar shared would be kept from everybody."""
    machine = parse_synthetic(MACHINE)
    Scratch.create(tmp_path / "cgroup", cpus=machine.online, nodes=machine.node_set, setup=Layout(version))
    strict = {"cpuManagerPolicyOptions": {"strict-cpu-reservation": "true"}}
    node = ClusterNode(tmp_path, settings=strict)
    world = node.world
    world.run(manifest("db", container(cpu="2")))
    world.run(manifest("gone", container(cpu="2"), container("side", cpu="500m"), created=1))
    was, pool = world.effective("gone"), world.effective("gone", "side")
    assert CpuSet.parse(pool) == world.engine.ledger.cpus.shared
    world.end("db")
    with node.serving() as agent:
        list_pods(agent, manifest("new", container(cpu="4")))
        agent.engine.reconcile()
        ledger = agent.engine.ledger
        assert ledger.cpus.assigned["gone"] == {container_id("gone", "app"): CpuSet.parse(was)}
        assert len(ledger.grant("new", "app").cpus or ()) == 4, "there is room for it"
        assert world.effective("gone") == was
        assert world.effective("gone", "side") == str(ledger.cpus.shared)


def test_the_pool_of_before_is_no_grant_of_who_shared_it(tmp_path: Path) -> None:
    """The folder of a pod that only shares still has it, and no reserved CPU: nobody else would get these again."""
    world = World(tmp_path, settings={"cpuManagerPolicyOptions": {"strict-cpu-reservation": "true"}})
    world.tree.add_pod("gone", Qos.GUARANTEED)
    world.tree.add_container("gone", container_id("gone", "app"))
    folder = world.path("gone", "app").rpartition("/")[0]
    world.tree.kernel_write(folder, "cpuset.cpus", "5-7")
    assert world.engine.ledger.cpus.shared == CpuSet.parse("1-7"), "it has widened since"
    assert keep(world.engine.node, world.engine.ledger, world.cgroups.observe(), []) == (world.engine.ledger, {})


@pytest.mark.parametrize("version", [1, 2], ids=["v1", "v2"])
def test_finding_02_what_nobody_knows_may_leave_nothing_to_the_pool(tmp_path: Path, version: int) -> None:
    """Strict reservation, and all other CPUs are granted: the set of a pod of no list is no pool of before."""
    machine = parse_synthetic(MACHINE)
    Scratch.create(tmp_path / "cgroup", cpus=machine.online, nodes=machine.node_set, setup=Layout(version))
    node = ClusterNode(tmp_path)
    world = node.world
    world.run(manifest("gone", container(cpu="3")))
    db = manifest("db", container(cpu="4"), created=1)
    world.run(db)
    was, theirs = world.effective("gone"), world.effective("db")
    strict = {**world.settings, "cpuManagerPolicyOptions": {"strict-cpu-reservation": "true"}}
    (tmp_path / "config.yaml").write_text(json.dumps(strict), "utf-8")
    with node.serving() as agent:
        list_pods(agent, running(db))
        agent.engine.reconcile()
        assert (world.effective("gone"), world.effective("db")) == (was, theirs)
        assert not agent.engine.ledger.cpus.shared
        world.end("gone")
        agent.engine.reconcile()
        assert agent.engine.ledger.cpus.shared == CpuSet.parse(was)
