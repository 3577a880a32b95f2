"""What a changed machine or a damaged ledger takes from pods is lost and told: confinements and devices."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from agent.core.admit import Node
from agent.core.synthetic import parse_synthetic
from agent.engine.carry import carry
from agent.model.devices import DeviceInventory
from agent.model.ledger import DeviceBooks
from agent.settings import parse
from tests.flow.world import World, container, manifest

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
    assert "it is not kept on NUMA nodes" in record.why[""]
    assert not record.aligned["app"]
    assert any(what == "lost" and "default/c" in text for what, text in world.ears.problems)


def test_of_two_claims_to_one_device_the_older_pods_stands(tmp_path: Path) -> None:
    """A damaged ledger gives one device to two pods: the younger one loses it, and that is told."""
    machine = parse_synthetic(f"{EIGHT}, nvme on 0")
    rules = parse({"devices": [{"resource": "numalign.io/nvme", "class": "0108"}]})[0].rules(machine)
    node = Node(machine, rules, DeviceInventory.from_machine(machine, rules.devices))
    world = World(tmp_path, machine=EIGHT)
    world.see(manifest("old", created=1), manifest("young", created=2))
    (device,) = (each.id for each in node.inventory.resources["numalign.io/nvme"])
    held = {"numalign.io/nvme": (device,)}
    books = DeviceBooks({"young": {"app": held}, "old": {"app": held}})
    carried = carry(replace(world.engine.ledger, devices=books), node)
    assert dict(carried.ledger.devices.held) == {"old": {"app": held}}
    assert [(loss.uid, loss.container) for loss in carried.losses if device in loss.what] == [("young", "app")]
