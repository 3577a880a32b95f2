"""What devices there are, by resource: the input of the Device Manager. Made by `agent.core.devices_inventory`.

A device is anything that containers ask for by count in their limits: a plugin's GPU as podresources names it, or a
PCI function that numalign hands out itself. Which of them are in use is in the ledger, never here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from agent.model.idset import NodeSet


@dataclass(frozen=True, slots=True)
class Device:
    """One device.

    Attributes:
        id: its plugin's id, or a PCI address.
        nodes: NUMA nodes it is local to, any number; None where nobody says (no topology). An empty set is what a
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
    """

    resources: Mapping[str, tuple[Device, ...]] = field(default_factory=dict)

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
