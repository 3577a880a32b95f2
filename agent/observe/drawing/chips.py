"""Devices as chips: one per device, or one for many alike.

Called by `layout` for the devices that hang at a unit. Bridges and parts of the chipset are counted, not drawn.
"""

from __future__ import annotations

from agent.model.machine import PciDevice
from agent.observe.drawing.boxes import Box, TextLine
from agent.observe.drawing.scene import Scene
from agent.observe.drawing.units import Unit, UnitKind
from agent.observe.drawing.words import device_kind, short_address

ALONE = 4
"""More free devices of one kind than this share a chip."""
ICON = 16
"""Room for the icon."""


def chips(scene: Scene, unit: Unit) -> list[Box]:
    """The chips of a unit, ordered by kind and address, held ones by themselves."""
    groups: dict[tuple[str, str], list[PciDevice]] = {}
    single: list[tuple[str, PciDevice]] = []
    for device in unit.devices:
        kind = device_kind(device)
        if device.address in scene.of_device:
            single.append((kind or "device", device))
        elif kind:
            groups.setdefault((kind, device.physfn), []).append(device)
    found: list[tuple[tuple[str, str], Box]] = []
    for (kind, parent), devices in groups.items():
        if parent or len(devices) > ALONE:
            found.append(((kind, devices[0].address), _many(scene, kind, parent, devices)))
        else:
            single += [(kind, device) for device in devices]
    found += [((kind, device.address), _one(scene, kind, device)) for kind, device in single]
    boxes = [box for _, box in sorted(found, key=lambda pair: pair[0])]
    if boxes and unit.kind is UnitKind.MACHINE:
        boxes.insert(0, Box("plain", [TextLine("devices near no node in particular:", size=10, look="d")], pad=3))
    return boxes


def _one(scene: Scene, kind: str, device: PciDevice) -> Box:
    holder = scene.of_device.get(device.address)
    role = " VF" if device.physfn else ""
    text = f"{kind}{role} {short_address(scene.machine, device.address)}"
    line = TextLine(f"{text} {holder.sign}" if holder else text, size=10, inset=ICON)
    tip = f"{device.address}: {kind}{role} {device.vendor}:{device.device} {device.driver}".rstrip()
    if holder:
        tip += f", held by {holder.name}"
    number = holder.number if holder else None
    key = f"device-{device.address}"
    return Box("chip", [line], tip=tip, pad=4, icon=kind, holder=number, key=key, round=3)


def _many(scene: Scene, kind: str, parent: str, devices: list[PciDevice]) -> Box:
    role = f" VFs of {short_address(scene.machine, parent)}" if parent else ""
    number = f"{len(devices)} ×" if not parent else str(len(devices))
    tip = ", ".join(device.address for device in devices)
    return Box("chip", [TextLine(f"{number} {kind}{role}", size=10, inset=ICON)], tip=tip, pad=4, icon=kind, round=3)
