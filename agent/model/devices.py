"""What devices there are, by resource: the input of the Device Manager.

Made by `agent.app` from the machine and the settings (`from_machine`) and what the kubelet says (`with_reported`). A
device is anything that containers ask for by count in their limits: a plugin's GPU as podresources names it, or a
PCI function that numalign hands out itself. Which of them are in use is in the ledger, never here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from agent.model.idset import NodeSet
from agent.model.machine import Machine, PciDevice
from agent.model.rules import DeviceSelector


@dataclass(frozen=True, slots=True)
class Device:
    """One device.

    Attributes:
        id: its plugin's id, or a PCI address.
        nodes: NUMA nodes it is local to, any number; None for unknown ones (no topology). An empty set is what a
            plugin says that reports a topology without nodes: near no node at all.
        healthy: only healthy devices are handed out.
    """

    id: str
    nodes: NodeSet | None = None
    healthy: bool = True


@dataclass(frozen=True, slots=True)
class DeviceInventory:
    """All devices of a node: resource name -> its devices. A resource without devices is known, but has none.

    The order in which devices are listed means nothing: they are kept by id.

    Attributes:
        resources: devices by resource.
        reported: resources whose devices the kubelet hands out: they are already chosen and can only be followed
            (safety rule S22). All others are handed out by us.
        groups: PCI address -> its IOMMU group, of all functions of the machine that have one.
    """

    resources: Mapping[str, tuple[Device, ...]] = field(default_factory=dict)
    reported: frozenset[str] = frozenset()
    groups: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def from_machine(cls, machine: Machine, selectors: Iterable[DeviceSelector]) -> DeviceInventory:
        """PCI functions that numalign hands out itself; one that several selectors match is the first one's.

        A resource that nothing matches is known, so that pods that ask for it are told how many there are.
        """
        resources: dict[str, tuple[Device, ...]] = {}
        taken: set[str] = set()
        for selector in selectors:
            found = [each for each in machine.devices if each.address not in taken and _matches(selector, each)]
            taken |= {each.address for each in found}
            devices = tuple(Device(each.address, each.numa_nodes or None) for each in found)
            resources[selector.resource] = resources.get(selector.resource, ()) + devices
        groups = {each.address: each.iommu_group for each in machine.devices if each.iommu_group is not None}
        return cls(resources, groups=groups)

    def with_reported(self, devices: Iterable[tuple[str, str, NodeSet]]) -> DeviceInventory:
        """With the devices of the kubelet's plugins too.

        Args:
            devices: (resource, id, nodes; empty when the plugin told none), all that podresources lists as
                allocatable or held. What a plugin hands out is not ours to hand out: a resource of the same name is
                the plugin's, and a PCI function that one names by its address counts as unhealthy here, as do
                all others of its IOMMU group.
        """
        found: dict[str, dict[str, Device]] = {}
        for resource, number, nodes in devices:
            found.setdefault(resource, {})[number] = Device(number, nodes or None)
        plugins = {number.lower() for each in found.values() for number in each}
        theirs = {group for number, group in self.groups.items() if number in plugins}
        plugins |= {number for number, group in self.groups.items() if group in theirs}
        own = {
            resource: tuple(replace(each, healthy=each.healthy and each.id.lower() not in plugins) for each in held)
            for resource, held in self.resources.items()
            if resource not in self.reported
        }
        known = {resource: tuple(each.values()) for resource, each in found.items()}
        return DeviceInventory({**own, **known}, frozenset(found), self.groups)

    def __post_init__(self) -> None:
        by_id = {
            resource: tuple(sorted(devices, key=lambda device: device.id))
            for resource, devices in sorted(self.resources.items())
        }
        for resource, devices in by_id.items():
            if len({device.id for device in devices}) < len(devices):
                raise ValueError(f"{resource} lists a device id twice")
        object.__setattr__(self, "resources", by_id)

    def of(self, resource: str) -> tuple[Device, ...]:
        """The devices of a resource by id, none for an unknown one."""
        return self.resources.get(resource, ())


def _matches(selector: DeviceSelector, device: PciDevice) -> bool:
    wanted = (
        (selector.vendor, device.vendor),
        (selector.device, device.device),
        (selector.driver, device.driver),
    )
    if any(want and want.lower() != has.lower() for want, has in wanted):
        return False
    if selector.addresses and device.address not in selector.addresses:
        return False
    return device.class_code.lower().startswith(selector.class_prefix.lower())
