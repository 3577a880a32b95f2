"""The device manager: no device twice, the best aligned first, hints that keep their word."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.core.devices.provider import DeviceManager
from agent.core.merge.demand import Demand, Positions
from agent.model.devices import Device, DeviceInventory
from agent.model.hint import Hint
from agent.model.idset import CpuSet, NodeSet
from agent.model.ledger import CpuBooks, Ledger
from agent.model.machine import Machine
from agent.model.outcome import Refusal
from agent.model.pod import Container, ContainerKind, Pod
from agent.model.rules import Compatibility, Rules
from tests.examples import examples
from tests.parity.device import LowestId
from tests.property.memory_worlds import random_affinity, random_machine
from tests.unit.memory_cases import BOTH, FIXED
from tests.world.pods import APP, INIT, SIDECAR, container, pod

CASES = st.randoms(use_true_random=False)
NAMES = ("example.com/gpu", "example.com/nic")


class World:
    """A random machine with devices, and its ledger."""

    def __init__(self, r: Random, compatibility: Compatibility) -> None:
        self.machine = random_machine(r)
        self.inventory = DeviceInventory(
            {name: tuple(_device(r, f"d{n}", self.machine) for n in range(r.randint(0, 6))) for name in NAMES}
        )
        liked = {name: LowestId() for name in NAMES if r.random() < 0.5}
        self.provider = DeviceManager(self.machine, Rules(compatibility=compatibility), self.inventory, liked)
        self.ledger = Ledger("", CpuBooks(CpuSet()))
        self.pods: dict[str, Pod] = {}

    def admit(self, one: Pod, affinity: Hint) -> Refusal | None:
        """All containers, or none of them."""
        ledger = self.ledger
        for each in one.containers:
            taken = self.provider.allocate(ledger, one, each, affinity)
            if isinstance(taken, Refusal):
                return taken
            ledger = taken
        self.ledger = ledger
        self.pods[one.uid] = one
        return None

    def check(self) -> None:
        """Each device is held by one pod, and in it by one of the containers that run together; all are known."""
        owner: dict[tuple[str, str], str] = {}
        for uid, containers in self.ledger.devices.held.items():
            beside: set[tuple[str, str]] = set()
            for each in self.pods[uid].containers:
                own = {(name, number) for name, ids in containers.get(each.name, {}).items() for number in ids}
                assert not own & beside
                assert all(owner.setdefault(device, uid) == uid for device in own)
                assert {len(containers.get(each.name, {}).get(name, ())) for name in NAMES} <= set(range(8))
                if each.kind is not INIT:
                    beside |= own
        healthy = {(name, each.id) for name in NAMES for each in self.inventory.of(name) if each.healthy}
        assert set(owner) <= healthy


def _device(r: Random, number: str, machine: Machine) -> Device:
    some = [each for each in machine.node_set if r.random() < 0.4] or [r.choice(list(machine.node_set))]
    near = r.choice((NodeSet.from_ids(some), NodeSet.of(r.choice(some)), NodeSet.of(r.choice(some)), None, NodeSet()))
    return Device(number, near, healthy=r.random() < 0.9)


def _pod(r: Random, uid: str) -> Pod:
    kinds: list[ContainerKind] = [r.choice((INIT, INIT, SIDECAR)) for _ in range(r.choice((0, 0, 1, 2)))]
    kinds += [APP] * r.randint(1, 2)
    made = []
    for at, kind in enumerate(kinds):
        limits = {name: r.randint(0, 3) for name in NAMES if r.random() < 0.7}
        made.append(container(f"c{at}", kind, cpus=r.choice((0.5, 2)), memory=1, limits=limits))
    return pod(uid, *made)


def _fill(r: Random, world: World) -> None:
    for number in range(r.randint(0, 5)):
        if world.pods and r.random() < 0.3:
            uid = r.choice(sorted(world.pods))
            world.ledger = world.provider.release(world.ledger, uid)
            del world.pods[uid]
        world.admit(_pod(r, f"p{number}"), random_affinity(r, world.machine.node_set))
        world.check()


@pytest.mark.parametrize("at", range(len(BOTH)))
@settings(max_examples=examples(100), deadline=None)
@given(CASES)
def test_no_device_is_given_twice(at: int, r: Random) -> None:
    """Whatever the history; and when all pods are gone, nothing is held."""
    world = World(r, BOTH[at])
    _fill(r, world)
    for uid in world.pods:
        world.ledger = world.provider.release(world.ledger, uid)
    assert world.ledger.devices.held == {}


@settings(max_examples=examples(100), deadline=None)
@given(CASES)
def test_allocate_and_release_is_the_identity(r: Random) -> None:
    """A pod that came and went left no trace."""
    world = World(r, FIXED)
    _fill(r, world)
    before = world.ledger
    world.admit(_pod(r, "newcomer"), random_affinity(r, world.machine.node_set))
    assert world.provider.release(world.ledger, "newcomer").devices == before.devices


@settings(max_examples=examples(100), deadline=None)
@given(CASES)
def test_every_hint_keeps_its_word(r: Random) -> None:
    """On the nodes of a hint every device is local; elsewhere as many as there are."""
    world = World(r, FIXED)
    _fill(r, world)
    limits = {"cpu": 500, NAMES[0]: r.randint(1, 4) * 1000}
    one = pod("newcomer", Container("c", APP, limits, limits))
    positions = Positions.of(world.machine.node_set)
    answer = world.provider.container_hints(world.ledger, one, one.containers[0])
    assert isinstance(answer, dict)
    demand = answer[NAMES[0]]
    if not isinstance(demand, Demand):
        return
    places = {each.id: each.nodes or NodeSet() for each in world.inventory.of(NAMES[0])}
    for mask in range(1, 1 << len(positions)):
        nodes = positions.nodes(mask)
        taken = world.provider.allocate(world.ledger, one, one.containers[0], Hint(nodes, preferred=True))
        assert isinstance(taken, Ledger)
        got = taken.devices.held["newcomer"]["c"][NAMES[0]]
        local = sum(1 for number in got if not places[number].isdisjoint(nodes))
        if demand.accepts(mask):
            assert local == len(got)
        free = set(places) - {number for number in places if number in _busy(world, NAMES[0])}
        aligned = sum(1 for number in free if not places[number].isdisjoint(nodes))
        assert local == min(len(got), aligned)


def _busy(world: World, resource: str) -> set[str]:
    held = {n for each in world.ledger.devices.held.values() for own in each.values() for n in own.get(resource, ())}
    return held | {each.id for each in world.inventory.of(resource) if not each.healthy}


def _turned(amounts: Mapping[str, int]) -> dict[str, int]:
    return dict(sorted(amounts.items(), reverse=True))


@settings(max_examples=examples(80), deadline=None)
@given(CASES)
def test_the_order_of_devices_and_resources_changes_nothing(r: Random) -> None:
    """Plugins list their devices in any order, manifests their limits."""
    world = World(r, FIXED)
    shuffled = {name: tuple(r.sample(held, len(held))) for name, held in world.inventory.resources.items()}
    other = DeviceManager(world.machine, Rules(), DeviceInventory(shuffled), world.provider._preferences)
    one = _pod(r, "p")
    turned = replace(one, containers=tuple(replace(each, limits=_turned(each.limits)) for each in one.containers))
    affinity = random_affinity(r, world.machine.node_set)
    ledger = world.ledger
    for each, again in zip(one.containers, turned.containers, strict=True):
        assert world.provider.container_hints(ledger, one, each) == other.container_hints(ledger, turned, again)
        taken = world.provider.allocate(ledger, one, each, affinity)
        assert taken == other.allocate(ledger, turned, again, affinity)
        if isinstance(taken, Refusal):
            return
        ledger = taken
