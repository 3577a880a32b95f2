"""Devices: hints, resources that are not devices, odd requests, whole pods, and nodes without CPUs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.core.explain.refusals import in_plain_words
from agent.core.merge.demand import Demand
from agent.model.devices import Device, DeviceInventory
from agent.model.idset import CpuSet
from agent.model.ledger import Ledger
from agent.model.machine import Machine, NumaNode
from agent.model.outcome import Reason, Refusal
from agent.model.pod import Container, Qos
from agent.model.rules import Compatibility
from tests.unit.devices_cases import GPU, NIC, Rack, asking, devices, gpus, one
from tests.unit.memory_cases import FIXED, GIB, KUBELET, NO_HINT, machine, node, nodes
from tests.world.pods import APP, INIT, SIDECAR, container, pod


@pytest.mark.parametrize(
    ("places", "busy", "count", "hints"),
    [
        ([[0], [1]], 0, 1, "{0}p {1}p {0,1}n"),
        ([[0], [1]], 0, 2, "{0,1}p"),
        ([[0], [0], [1], [1]], 0, 2, "{0}p {1}p {0,1}n"),
        ([[0], [0], [1], [1]], 2, 2, "{0,1}n"),
        ([None, [1]], 0, 1, "{1}p"),
        ([[0], [0], [1], [1]], 0, 6, "impossible"),
        ([None, None], 0, 1, "no preference"),
        ([[], []], 0, 1, "no preference"),
        ([[0, 1], [0, 1]], 0, 2, "{0}p {1}p {0,1}n"),
        ([[0, 63], [63]], 0, 1, "{0}p"),
        ([[0, 1], [0, 1], [1]], 1, 2, "{1}p {0,1}n"),
    ],
)
def test_hints_of_devices(
    mode: Compatibility, places: list[list[int] | None], busy: int, count: int, hints: str
) -> None:
    """The node sets that touch enough of what is free; preferred by what there is (kubelet rule 6.2)."""
    rack = Rack(gpus(places), mode)
    for number in range(busy):
        # one of each node in turn is busy
        assert rack.allocate(asking(f"busy{number}", 1), nodes(number)) is None
    assert rack.hints(asking("p", count)) == {GPU: hints}


def test_nodes_without_devices_are_not_named(mode: Compatibility) -> None:
    """34 nodes, GPUs on two: three masks instead of 17 thousand million (pull request 135581)."""
    wide = Machine(cpus=(), nodes=tuple(NumaNode(number, CpuSet(), GIB) for number in range(34)))
    rack = Rack(gpus([[0], [1]]), mode, wide)
    answer = rack.answer(asking("p", 1))
    assert isinstance(answer, dict)
    demand = answer[GPU]
    assert isinstance(demand, Demand)
    assert [mask for mask in range(1, 8) if demand.accepts(mask)] == [1, 2, 3]
    assert [mask for mask in range(1, 8) if demand.prefers(mask)] == [1, 2]


def test_unhealthy_devices_count_as_capacity_only(mode: Compatibility) -> None:
    """With one of two healthy, both nodes are still what the machine could do with one."""
    rack = Rack(gpus([[0], [0], [1]], unhealthy=[0]), mode)
    assert rack.hints(asking("p", 2)) == {GPU: "{0,1}n"}
    assert rack.got(asking("p", 3), NO_HINT) == (
        "requested number of devices unavailable for example.com/gpu. Requested: 3, Available: 2"
    )


def test_resources_that_are_not_devices_are_not_ours(mode: Compatibility) -> None:
    """An empty map, and no change."""
    rack = Rack(gpus([[0]]), mode)
    other = asking("p", 1, resource="example.com/other")
    assert rack.hints(other) == {}
    assert rack.allocate(other, nodes(0)) is None
    assert rack.ledger.devices.held == {}


def test_any_class_of_pod_gets_devices(mode: Compatibility) -> None:
    """Devices, unlike CPUs and memory, are not for Guaranteed pods only."""
    rack = Rack(gpus([[0]]), mode)
    assert rack.got(replace(asking("p", 1), qos=Qos.BURSTABLE), nodes(0)) == "g00"


def test_d13_a_limit_of_zero_asks_for_nothing() -> None:
    """The kubelet's hints for it can spoil a valid answer: two nodes are needed for CPUs, one is preferred here."""
    idle = asking("p", 0)
    assert Rack(gpus([[0], [1]]), KUBELET).hints(idle) == {GPU: "{0}p {1}p {0,1}n"}
    rack = Rack(gpus([[0], [1]]))
    assert rack.hints(idle) == rack.hints(idle, "") == {}
    assert rack.got(idle, nodes(0)) == ""


@pytest.mark.parametrize("count", [0, 1])
def test_d13_zero_of_unhealthy_devices(count: int) -> None:
    """The kubelet refuses a pod that wants none of them, too."""
    sentence = "no healthy devices present; cannot allocate unhealthy devices example.com/gpu"
    assert Rack(gpus([[0]], unhealthy=[0]), KUBELET).got(asking("p", count), nodes(0)) == sentence
    assert Rack(gpus([[0]], unhealthy=[0])).got(asking("p", count), nodes(0)) == (sentence if count else "")


def test_the_whole_pod_counts_as_the_scheduler_does(mode: Compatibility) -> None:
    """Apps of 1 + 1 beside a sidecar of 1; an init container of 2 beside it needs as many: three."""
    rack = Rack(gpus([[0]] * 3 + [[1]] * 2), mode)
    many = pod("p", one("s", 1, SIDECAR), one("i", 2, INIT), one("a", 1), one("b", 1))
    assert rack.hints(many, "") == {GPU: "{0}p {0,1}n"}


def test_a_pod_managed_as_a_whole_gets_its_devices_at_once() -> None:
    """The kubelet leaves it to the start of each container, which then fails if too few are left."""
    many = pod("p", one("a", 1), one("b", 1), whole={"cpu": 2})
    kubelet, fixed = Rack(gpus([[0]] * 2), KUBELET), Rack(gpus([[0]] * 2))
    assert kubelet.provider.allocate_pod(kubelet.ledger, many, nodes(0)) is kubelet.ledger
    taken = fixed.provider.allocate_pod(fixed.ledger, many, nodes(0))
    assert isinstance(taken, Ledger)
    assert taken.devices.held["p"] == {"a": {GPU: ("g00",)}, "b": {GPU: ("g01",)}}
    more = pod("q", one("a", 1), whole={"cpu": 2})
    refusal = fixed.provider.allocate_pod(taken, more, nodes(0))
    assert isinstance(refusal, Refusal)
    assert (refusal.reason, refusal.container, refusal.facts["available"]) == (Reason.UNEXPECTED, "a", 0)


def test_a_refusal_counts_what_an_init_container_left() -> None:
    """The container asks for two and there is one, which its pod's init container had: the manifest says two."""
    rack = Rack(gpus([[0]]))
    both = pod("p", one("i", 1, INIT), one("a", 2))
    taken = rack.provider.allocate(rack.ledger, both, both.containers[0], nodes(0))
    assert isinstance(taken, Ledger)
    refusal = rack.provider.allocate(taken, both, both.containers[1], nodes(0))
    assert isinstance(refusal, Refusal)
    assert in_plain_words(refusal) == "it asks for 2 example.com/gpu, and 1 is free on this node"


def test_the_annotation_speaks_for_the_first_app_container() -> None:
    """The scheduler knows nothing of devices that we hand out ourselves: they are asked for by annotation."""
    rack = Rack(DeviceInventory({NIC: devices("n", [[0], [1]])}))
    plain = pod("p", container("i", INIT, memory=1), container("c", memory=1), container("d", memory=1))
    asked = replace(plain, annotations={"numalign.io/devices": f"{NIC}=1"})
    assert rack.hints(asked, "i") == rack.hints(asked, "d") == {}
    assert rack.hints(asked, "c") == rack.hints(asked, "") == {NIC: "{0}p {1}p {0,1}n"}
    assert rack.got(asked, nodes(1), "c", NIC) == "n01"
    assert rack.held(asked, "d", NIC) == ""


FAR = machine(
    node(0, GIB, cpus=CpuSet.of(0, 1), distances=(10, 20, 12)),
    node(1, GIB, cpus=CpuSet.of(2, 3), distances=(20, 10, 20)),
    node(2, GIB, cpus=CpuSet(), distances=(12, 20, 10)),
)


def test_a_device_on_a_node_without_cpus_belongs_to_the_nearest() -> None:
    """Where exclusive CPUs are asked for too; the kubelet's hint for node 2 then meets no CPU hint."""
    inventory = gpus([[2], [1]])
    milli = {"cpu": 1000, "memory": 1000, GPU: 1000}
    exclusive = pod("p", Container("c", APP, milli, milli))
    assert Rack(inventory, KUBELET, FAR).hints(exclusive) == {GPU: "{1}p {2}p {1,2}n"}
    rack = Rack(inventory, FIXED, FAR)
    assert rack.hints(exclusive) == {GPU: "{0}p {1}p {0,1}n"}
    assert rack.got(exclusive, nodes(0)) == "g00"
    assert Rack(inventory, FIXED, FAR).hints(asking("q", 1)) == {GPU: "{1}p {2}p {1,2}n"}


def test_an_inventory_refuses_a_device_twice() -> None:
    """Ids are unique within a resource."""
    with pytest.raises(ValueError, match="twice"):
        DeviceInventory({GPU: (Device("a"), Device("a"))})
