"""What a changed machine or a damaged ledger takes from pods is lost and told: confinements and devices."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from agent.core.machines.synthetic import parse_synthetic
from agent.model.idset import CpuSet
from agent.model.ledger import DeviceBooks
from agent.node.migrate import migrate
from tests.flow.world import World, container, manifest
from tests.world.nodes import managers_of
from tests.world.pods import container as part
from tests.world.pods import pod

EIGHT = "2 sockets x 1 node x 4 cores x 1 thread, 8G per node"


def test_a_confinement_whose_node_lost_its_shared_cpus_is_lost_and_told(tmp_path: Path) -> None:
    """A pod counts on three CPUs of a node that has one left: it is confined no more, and that is said."""
    world = World(tmp_path, machine=EIGHT)
    world.engine.pods_listed(set())
    world.run(manifest("c", container(cpu="2500m"), created=1, align="numa"))
    (number,) = world.engine.ledger.cpus.confined["c"].nodes
    gone = "1-3" if number == 0 else "5-7"
    world.engine.changed(world.node(parse_synthetic(f"{EIGHT}, offline {gone}")))
    assert "c" not in world.engine.ledger.cpus.confined
    record = world.engine.ledger.pods["c"]
    assert record.why[""].startswith(f"it is not kept on NUMA node {number} any more")
    assert not record.aligned["app"]
    assert any(what == "lost" and "default/c" in text for what, text in world.ears.problems)


def test_of_two_claims_to_one_device_the_older_pods_stands(tmp_path: Path) -> None:
    """A damaged ledger gives one device to two pods: the younger one loses it, and that is told."""
    settings = {"devices": [{"resource": "numalign.io/nvme", "class": "0108"}]}
    node = managers_of(f"{EIGHT}, nvme on 0", settings)
    world = World(tmp_path, machine=EIGHT)
    world.see(manifest("old", created=1), manifest("young", created=2))
    (device,) = (each.id for each in node.inventory.resources["numalign.io/nvme"])
    held = {"numalign.io/nvme": (device,)}
    books = DeviceBooks({"young": {"app": held}, "old": {"app": held}})
    carried = migrate(replace(world.engine.ledger, devices=books), node)
    assert dict(carried.ledger.devices.held) == {"old": {"app": held}}
    assert [(loss.uid, loss.container) for loss in carried.losses if device in loss.what] == [("young", "app")]


def test_a_pod_that_lost_cpus_is_told_what_it_keeps(tmp_path: Path) -> None:
    """Some of them, or none: then it runs on the shared pool."""
    world = World(tmp_path, machine=EIGHT)
    world.engine.pods_listed(set())
    world.run(manifest("part", created=1))
    world.run(manifest("all", container(cpu="1"), created=2))
    assert (world.holds("part"), world.holds("all")) == ("1-2", "3")
    world.engine.changed(world.node(parse_synthetic(f"{EIGHT}, offline 1,3")))
    why = {uid: world.engine.ledger.pods[uid].why["app"] for uid in ("part", "all")}
    assert why["part"] == "it lost CPUs 1, which are offline or another pod's; it keeps 2"
    assert why["all"] == "it lost CPUs 3, which are offline or another pod's; it runs on the shared pool"


def test_a_pod_that_grew_gives_back_what_it_got_last_on_a_changed_machine_too(tmp_path: Path) -> None:
    """It was admitted with CPU 2 and grew to 1-2; a CPU of another node goes offline; asking for one it keeps 2."""
    world = World(tmp_path, machine=EIGHT)
    world.engine.pods_listed(set())
    world.run(manifest("first", container(cpu="1"), created=1))
    world.run(manifest("grows", container(cpu="1"), created=2))
    world.end("first")
    world.engine.pods_gone(["first"])
    world.see(manifest("grows", created=2))
    assert world.holds("grows") == "1-2"
    world.engine.changed(world.node(parse_synthetic(f"{EIGHT}, offline 7")))
    world.see(manifest("grows", container(cpu="1"), created=2))
    assert world.holds("grows") == "2"


def test_only_a_resize_changes_what_a_pod_holds(tmp_path: Path) -> None:
    """A pod lost one of two CPUs, and says so; an annotation that changes is no reason to give it another."""
    world = World(tmp_path, machine=EIGHT)
    world.engine.pods_listed(set())
    world.run(manifest("part", created=1))
    world.engine.changed(world.node(parse_synthetic(f"{EIGHT}, offline 1")))
    world.see(manifest("part", created=1, owner="me"))
    assert world.holds("part") == "2"
    assert "it lost CPUs 1" in world.engine.ledger.pods["part"].why["app"]


def test_a_pod_that_is_managed_as_a_whole_keeps_what_is_left_of_its_pool() -> None:
    """One of the pod's CPUs goes offline: the others stay its own, and nobody else's."""
    settings = {"reservedSystemCPUs": "0"}
    node = managers_of(EIGHT, settings)
    newcomer = pod("whole", part("a", cpus=2))
    admitted = node.admit(node.start(), newcomer).ledger
    own = CpuSet.of(1, 2, 3)
    books = replace(admitted.cpus, pools={"whole": own}, shared=admitted.cpus.shared - own)
    carried = migrate(replace(admitted, cpus=books), managers_of(f"{EIGHT}, offline 3", settings))
    assert dict(carried.ledger.cpus.pools) == {"whole": CpuSet.of(1, 2)}
    assert carried.ledger.cpus.shared.isdisjoint(CpuSet.of(1, 2))
    assert [loss.what for loss in carried.losses] == ["it lost CPUs 3, which are offline or another pod's"]
