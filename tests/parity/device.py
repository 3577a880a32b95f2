"""Family device: the device manager, its plugins with an opinion or none; the kubelet's restart is modelled here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from agent.core.devices.books import in_use
from agent.core.devices.choose import split
from agent.core.devices.provider import DeviceManager
from agent.core.merge.demand import Positions
from agent.model.devices import Device, DeviceInventory
from agent.model.hint import Hint
from agent.model.idset import CpuSet, NodeSet
from agent.model.ledger import CpuBooks, Ledger
from agent.model.machine import Machine, NumaNode
from agent.model.pod import Container, Pod
from agent.model.rules import Compatibility, Rules
from tests.parity.machines import minor_of
from tests.parity.scenario import Json, Scenario


def answer(given: Json, *, literally: bool = False) -> tuple[Json, list[str]]:
    """What each step did."""
    return {"steps": DeviceScenario(given).run(given["steps"])}, []


class LowestId:
    """A plugin that likes the lowest ids."""

    def preferred(self, available: Sequence[str], must_include: Sequence[str], size: int) -> Sequence[str]:
        """The ids that are taken, and the lowest of the others."""
        return [*must_include, *(each for each in available if each not in must_include)][:size]


def inventory_of(resources: Json) -> DeviceInventory:
    """A vector's devices: [id, node ids or null, 1 if healthy]."""
    return DeviceInventory(
        {
            name: tuple(
                Device(number, None if nodes is None else NodeSet.from_ids(nodes), healthy=bool(healthy))
                for number, nodes, healthy in each["devices"]
            )
            for name, each in resources.items()
        }
    )


def preferences_of(resources: Json) -> dict[str, LowestId]:
    """What a vector's plugins like."""
    return {name: LowestId() for name, each in resources.items() if each["plugin"] == "lowest_id"}


class DeviceScenario(Scenario):
    """A vector of this family, run once."""

    def __init__(self, given: Json) -> None:
        machine = Machine(cpus=(), nodes=tuple(NumaNode(node, CpuSet(), 0) for node in sorted(given["numa_nodes"])))
        self.inventory = inventory_of(given["resources"])
        preferences = preferences_of(given["resources"])
        rules = Rules(compatibility=Compatibility.KUBELET, minor=minor_of(given))
        provider = DeviceManager(machine, rules, self.inventory, preferences)
        ledger = Ledger(machine="", cpus=CpuBooks(shared=CpuSet()))
        super().__init__(provider, ledger, Positions.of(machine.node_set), rules)

    def more(self, pod: Pod, container: Container, affinity: Hint) -> Json:
        """How the free devices are split by the affinity."""
        groups: Json = {}
        for resource in sorted(set(container.limits) & set(self.inventory.resources)):
            places = {each.id: each.nodes for each in self.inventory.of(resource) if each.healthy}
            for number in in_use(self.ledger.devices, resource):
                places.pop(number, None)
            known = any(each.nodes for each in self.inventory.of(resource))
            parts = split(places, affinity.nodes if known else None)
            names = ("aligned", "unaligned", "no_affinity")
            groups[resource] = {name: sorted(part) for name, part in zip(names, parts, strict=True)}
        return {"groups": groups}

    def allocation(self, pod: Pod, name: str) -> Json | None:
        held = self.ledger.devices.held.get(pod.uid, {}).get(name)
        return {resource: list(ids) for resource, ids in held.items()} if held else None

    def state(self) -> Json:
        return {
            "available": {
                resource: [
                    each.id
                    for each in devices
                    if each.healthy and each.id not in in_use(self.ledger.devices, resource)
                ]
                for resource, devices in self.inventory.resources.items()
            }
        }

    def restart(self) -> Json:
        """The kubelet forgets what may be reused; plugins register again before anything else happens."""
        self.ledger = replace(self.ledger, devices=replace(self.ledger.devices, reusable=None))
        return {}
