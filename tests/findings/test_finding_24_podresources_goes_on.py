"""What the kubelet says of one pod's devices, and when, ends no thread: the next pod's devices are still heard of.

Finding 24.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from agent.core.devices.kubelet import Given, Offered
from agent.engine.state import State
from agent.errors import InvariantError
from agent.host.podresources.client import DevicesByContainer, HeldDevice
from agent.host.podresources.lookup import Lookup
from agent.model.idset import NodeSet
from agent.observe.health import Health
from agent.observe.threads import watched
from tests.flow.serving import eventually
from tests.flow.world import World, container, manifest
from tests.patience import PATIENCE

GPU = "vendor.com/gpu"


class Kubelet:
    """Gave every pod one device; lists nothing."""

    def list(self) -> dict[tuple[str, str], DevicesByContainer]:
        return {}

    def get(self, _namespace: str, name: str) -> DevicesByContainer | None:
        return {"app": (HeldDevice(GPU, name, NodeSet.of(1)),)}

    def allocatable(self) -> tuple[HeldDevice, ...]:
        return ()


class Sink:
    """An engine that goes wrong with some pods, and from which pods vanish between two questions."""

    def __init__(self, world: World) -> None:
        self.world, self.vanishing, self.wrong = world, set[str](), set[str]()
        self.asked = 0
        self.told: list[str] = []

    @property
    def snapshot(self) -> State:
        found = self.world.engine.snapshot
        self.asked += 1
        gone = self.vanishing if self.asked > 2 else set()
        return replace(found, pods={uid: each for uid, each in found.pods.items() if uid not in gone})

    def devices_reported(self, uid: str, _given: Given) -> None:
        self.told.append(uid)
        if uid in self.wrong:
            raise InvariantError("a rule that never breaks was broken")

    def devices_offered(self, offered: tuple[Offered, ...]) -> None:
        """Of no interest."""


def lives(tmp_path: Path, *, vanishing: str = "", wrong: str = "") -> list[str]:
    """Which pods' devices were told, where something goes wrong with the first of two pods."""
    world = World(tmp_path)
    world.engine.pods_listed(set())
    asking = container()
    asking["resources"]["limits"][GPU] = "1"
    world.see(manifest("first", asking, created=1), manifest("second", asking, created=2))
    sink, health = Sink(world), Health()
    lookup = Lookup(Kubelet(), sink, delays=(0.001,))
    with watched(health, lambda: None):
        lookup.start()
        sink.vanishing, sink.wrong, sink.asked = {vanishing}, {wrong}, 0
        lookup.starting("first")
        eventually(lambda: sink.asked > 2)
        lookup.starting("second")
        eventually(lambda: "second" in sink.told)
        assert lookup.stop(PATIENCE)
    assert health.live()[0]
    return sink.told


def test_finding_24_a_pod_that_is_freed_between_two_looks_ends_nothing(tmp_path: Path) -> None:
    """It is known when its turn comes, and gone when its name is asked for."""
    assert lives(tmp_path, vanishing="first") == ["second"]


def test_finding_24_a_fault_with_one_pods_devices_ends_nothing(tmp_path: Path) -> None:
    """The engine cannot take in the devices of one pod; the other's are heard of all the same."""
    assert set(lives(tmp_path, wrong="first")) == {"first", "second"}
