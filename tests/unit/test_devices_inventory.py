"""agent.model.devices: PCI functions that numalign hands out itself, picked by selectors."""

from __future__ import annotations

import pytest

from agent.model.devices import Device, DeviceInventory
from agent.model.idset import NodeSet
from agent.model.machine import Machine, PciDevice
from agent.model.rules import DeviceSelector

NICS = Machine(
    cpus=(),
    nodes=(),
    devices=(
        PciDevice("0000:3b:00.0", "020000", "8086", "1592", "ice", numa_nodes=NodeSet.of(0)),
        PciDevice("0000:5e:00.0", "020000", "15b3", "101d", "mlx5_core", numa_nodes=NodeSet.of(0, 1)),
        PciDevice("0000:af:00.0", "020700", "15b3", "101b", "mlx5_core"),
        PciDevice("0000:ca:00.0", "030200", "10de", "2330", "nvidia", numa_nodes=NodeSet.of(1)),
    ),
)


@pytest.mark.parametrize(
    ("selector", "addresses"),
    [
        (DeviceSelector("r"), ["3b", "5e", "af", "ca"]),
        (DeviceSelector("r", class_prefix="02"), ["3b", "5e", "af"]),
        (DeviceSelector("r", class_prefix="0207"), ["af"]),
        (DeviceSelector("r", vendor="15B3"), ["5e", "af"]),
        (DeviceSelector("r", vendor="15b3", device="101d"), ["5e"]),
        (DeviceSelector("r", driver="nvidia"), ["ca"]),
        (DeviceSelector("r", driver="nvidia", vendor="8086"), []),
        (DeviceSelector("r", addresses=("0000:3b:00.0", "0000:ff:00.0")), ["3b"]),
    ],
)
def test_selectors(selector: DeviceSelector, addresses: list[str]) -> None:
    """All fields that are set must match; a resource without a match is known, and empty."""
    inventory = DeviceInventory.from_machine(NICS, [selector])
    assert [each.id for each in inventory.of("r")] == [f"0000:{bus}:00.0" for bus in addresses]
    assert list(inventory.resources) == ["r"]
    assert inventory.reported == frozenset()


def test_a_device_goes_to_the_first_selector_that_matches() -> None:
    """Nothing is handed out under two names; two selectors may feed one name."""
    selectors = [
        DeviceSelector("io/fast", vendor="15b3"),
        DeviceSelector("io/nic", class_prefix="02"),
        DeviceSelector("io/fast", class_prefix="03"),
    ]
    inventory = DeviceInventory.from_machine(NICS, selectors)
    found = {name: [each.id[5:7] for each in held] for name, held in inventory.resources.items()}
    assert found == {"io/fast": ["5e", "af", "ca"], "io/nic": ["3b"]}


def test_where_they_are() -> None:
    """Nodes as the machine says; None where nothing says so."""
    inventory = DeviceInventory.from_machine(NICS, [DeviceSelector("r", vendor="15b3")])
    assert inventory.of("r") == (Device("0000:5e:00.0", NodeSet.of(0, 1)), Device("0000:af:00.0", None))


def test_order_means_nothing() -> None:
    """The same devices in any order are the same inventory."""
    first, second = Device("a"), Device("b", NodeSet.of(1))
    assert DeviceInventory({"r": (second, first), "q": ()}) == DeviceInventory({"q": (), "r": (first, second)})
    assert DeviceInventory().of("unknown") == ()
