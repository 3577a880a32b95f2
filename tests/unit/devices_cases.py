"""Devices for the tests of `agent.core.devices.provider`: inventories, pods that ask, and one machine's manager."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from agent.core.devices.choose import Preference
from agent.core.devices.provider import DeviceManager
from agent.core.merge.demand import Positions
from agent.model.devices import Device, DeviceInventory
from agent.model.hint import Hint
from agent.model.idset import CpuSet, NodeSet
from agent.model.ledger import CpuBooks, Ledger
from agent.model.machine import Machine
from agent.model.pod import Container, ContainerKind, Pod
from agent.model.rules import Compatibility, Minor, Rules
from tests.unit.memory_cases import FIXED, GIB, Asked, machine, node, shown
from tests.world.pods import APP, container, pod

GPU, NIC = "example.com/gpu", "example.com/nic"


def gpus(places: Sequence[Sequence[int] | None], unhealthy: Sequence[int] = ()) -> DeviceInventory:
    """Devices g0, g1, ... near these nodes."""
    return DeviceInventory({GPU: devices("g", places, unhealthy)})


def devices(letter: str, places: Sequence[Sequence[int] | None], unhealthy: Sequence[int] = ()) -> tuple[Device, ...]:
    """Devices named by a letter and two digits."""
    return tuple(
        Device(f"{letter}{at:02}", None if near is None else NodeSet.of(*near), healthy=at not in unhealthy)
        for at, near in enumerate(places)
    )


@dataclass
class Rack(Asked[DeviceManager]):
    """One machine's device manager and its ledger."""

    inventory: DeviceInventory
    compatibility: Compatibility = FIXED
    machine: Machine = field(default_factory=lambda: machine(node(0, GIB), node(1, GIB)))
    preferences: Mapping[str, Preference] = field(default_factory=dict)
    minor: Minor = Minor.V1_36

    def __post_init__(self) -> None:
        rules = Rules(compatibility=self.compatibility, minor=self.minor, pod_level_managers=True)
        self.provider = DeviceManager(self.machine, rules, self.inventory, self.preferences)
        self.positions = Positions.of(self.machine.node_set)
        self.ledger = Ledger("", CpuBooks(CpuSet()))

    def hints(self, of: Pod, name: str = "c") -> object:
        return shown(self.answer(of, name), self.positions)

    def got(self, of: Pod, affinity: Hint, name: str = "c", resource: str = GPU) -> str:
        """Allocate a pod and say what a container has, or why not."""
        refusal = self.allocate(of, affinity)
        return refusal.message if refusal else self.held(of, name, resource)

    def held(self, of: Pod, name: str = "c", resource: str = GPU) -> str:
        return " ".join(self.ledger.devices.held.get(of.uid, {}).get(name, {}).get(resource, ()))


def asking(uid: str, count: int, kind: ContainerKind = APP, name: str = "c", resource: str = GPU) -> Pod:
    """A Guaranteed pod with one container that asks for devices."""
    return pod(uid, one(name, count, kind, resource))


def one(name: str, count: int, kind: ContainerKind = APP, resource: str = GPU) -> Container:
    """A container that asks for devices, and half a CPU."""
    return container(name, kind, cpus=0.5, memory=GIB, limits={resource: count})
