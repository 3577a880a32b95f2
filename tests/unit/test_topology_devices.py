"""Devices in the NodeResourceTopology object: one near several NUMA nodes counts on each, while it is free."""

from __future__ import annotations

from dataclasses import replace

from agent.app.cluster.topology_loop import devices_per_node
from agent.core.admission.node import Node
from agent.core.machines.synthetic import parse_synthetic
from agent.kube.topology_crd import topology_object
from agent.model.devices import Device, DeviceInventory
from agent.model.idset import NodeSet
from agent.model.ledger import DeviceBooks, Ledger
from agent.settings import parse, rules_of

GPU = "vendor.com/gpu"
MACHINE = parse_synthetic("3 sockets x 1 node x 2 cores x 1 thread")


def zones(*held: str) -> dict[str, tuple[str, str]]:
    """Capacity and what is available of the devices, by zone, while a pod holds some."""
    devices = (Device("wide", NodeSet.of(0, 2)), Device("one", NodeSet.of(2)), Device("nowhere", NodeSet()))
    inventory = DeviceInventory({GPU: devices})
    rules = rules_of(parse({})[0], MACHINE)
    node = Node(MACHINE, rules, inventory)
    ledger: Ledger = replace(node.start(), devices=DeviceBooks({"p": {"app": {GPU: held}}} if held else {}))
    found = topology_object(
        MACHINE, ledger, rules, reserved=node.reserved, node="n", node_uid="u", pods=(),
        devices=devices_per_node(ledger, inventory),
    )  # fmt: skip
    return {
        zone["name"]: (each["capacity"], each["available"])
        for zone in found["zones"]
        for each in zone["resources"]
        if each["name"] == GPU
    }


def test_a_device_near_two_nodes_fits_on_both() -> None:
    """The scheduler asks each zone alone: a pod that needs it can be placed on either node."""
    assert zones() == {"node-0": ("1", "1"), "node-1": ("0", "0"), "node-2": ("2", "2")}


def test_taken_it_is_available_nowhere() -> None:
    """Its capacity stays on both, and neither has it free."""
    assert zones("wide") == {"node-0": ("1", "0"), "node-1": ("0", "0"), "node-2": ("2", "1")}
    assert zones("one", "wide") == {"node-0": ("1", "0"), "node-1": ("0", "0"), "node-2": ("2", "0")}
