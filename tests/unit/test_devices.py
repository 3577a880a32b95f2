"""agent.core.devices: hints, choice, reuse, errors, what the kubelet gave, and nodes without CPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pytest

from agent.core.demand import Demand, Positions
from agent.core.devices import HELD_UNHEALTHY, NONE_HEALTHY, UNREGISTERED, Provider
from agent.core.devices_books import followed
from agent.core.devices_choice import LowestId, Preference
from agent.core.merge import merge_answers
from agent.core.order import Order
from agent.core.provider import Answer
from agent.model.devices import Device, DeviceInventory
from agent.model.hint import Hint, Stance
from agent.model.idset import CpuSet, NodeSet
from agent.model.ledger import CpuBooks, Ledger
from agent.model.machine import Machine, NumaNode
from agent.model.outcome import Reason, Refusal
from agent.model.pod import Container, ContainerKind, Pod, Qos
from agent.model.rules import Compatibility, Policy, Rules, TopologyRules
from tests.unit.memory_cases import (
    APP,
    BOTH,
    FIXED,
    GIB,
    INIT,
    KUBELET,
    SIDECAR,
    container,
    machine,
    node,
    nodes,
    pod,
    shown,
)

GPU, NIC = "example.com/gpu", "example.com/nic"
NO_HINT = Hint(None, preferred=False)


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
class Rack:
    """One machine's device manager and its ledger."""

    inventory: DeviceInventory
    compatibility: Compatibility = FIXED
    machine: Machine = field(default_factory=lambda: machine(node(0, GIB), node(1, GIB)))
    preferences: Mapping[str, Preference] = field(default_factory=dict)

    def __post_init__(self) -> None:
        rules = Rules(compatibility=self.compatibility, pod_level_managers=True)
        self.provider = Provider(self.machine, rules, self.inventory, self.preferences)
        self.positions = Positions.of(self.machine.node_set)
        self.ledger = Ledger("", CpuBooks(CpuSet()))

    def hints(self, of: Pod, name: str = "c") -> object:
        """A container's hints, or with "" the pod's."""
        return shown(self.answer(of, name), self.positions)

    def answer(self, of: Pod, name: str = "c") -> Answer:
        """The same, as the merge gets it."""
        if not name:
            return self.provider.pod_hints(self.ledger, of)
        found = next(each for each in of.containers if each.name == name)
        return self.provider.container_hints(self.ledger, of, found)

    def allocate(self, of: Pod, affinity: Hint, *names: str) -> Refusal | None:
        """Allocate containers in order; stops at the first refusal."""
        for each in of.containers:
            if names and each.name not in names:
                continue
            taken = self.provider.allocate(self.ledger, of, each, affinity)
            if isinstance(taken, Refusal):
                return taken
            self.ledger = taken
        return None

    def got(self, of: Pod, affinity: Hint, name: str = "c", resource: str = GPU) -> str:
        """Allocate a pod and say what a container has, or why not."""
        refusal = self.allocate(of, affinity)
        return refusal.message if refusal else self.held(of, name, resource)

    def held(self, of: Pod, name: str = "c", resource: str = GPU) -> str:
        """What a container has."""
        return " ".join(self.ledger.devices.held.get(of.uid, {}).get(name, {}).get(resource, ()))


def asking(uid: str, count: int, kind: ContainerKind = APP, name: str = "c", resource: str = GPU) -> Pod:
    """A Guaranteed pod with one container that asks for devices."""
    return pod(uid, one(name, count, kind, resource))


def one(name: str, count: int, kind: ContainerKind = APP, resource: str = GPU) -> Container:
    """A container that asks for devices, and half a CPU."""
    milli = {"cpu": 500, "memory": GIB * 1000, resource: count * 1000}
    return Container(name, kind, milli, milli)


@pytest.fixture(params=BOTH)
def mode(request: pytest.FixtureRequest) -> Compatibility:
    """Both compatibility modes, one after the other."""
    found: Compatibility = request.param
    return found


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
    """The node sets that touch enough of what is free; preferred by what there is (spec 6.2)."""
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


@pytest.mark.parametrize(
    ("places", "count", "affinity", "got"),
    [
        ([[1], [0], [1], [0]], 2, (0,), "g01 g03"),
        ([[1], [0], [1], [0]], 3, (0,), "g00 g01 g03"),
        ([[0], [0], [0], [1], [1], [1]], 4, (0,), "g00 g01 g02 g03"),
        ([None, [1], [0]], 2, (0,), "g01 g02"),
        ([None, [1], [0]], 3, (0,), "g00 g01 g02"),
        ([[0], [0], [1]], 1, (0, 1), "g02"),  # the node with fewer devices first
        ([[0], [1]], 1, (0, 1), "g00"),  # equally many: the lower node
        ([[0, 1], [0], [0], [1]], 1, (0, 1), "g00"),  # near both: with node 1, which has fewer
        ([[1], [0]], 1, (), "g00"),
    ],
)
def test_choice_by_affinity(
    mode: Compatibility, places: list[list[int] | None], count: int, affinity: tuple[int, ...], got: str
) -> None:
    """Nodes of the affinity, then others, then nowhere; in each by the number of devices, then by id (spec 6.3)."""
    rack = Rack(gpus(places), mode)
    assert rack.got(asking("p", count), nodes(*affinity) if affinity else NO_HINT) == got


@dataclass(frozen=True)
class Likes:
    """A plugin that likes certain devices."""

    ids: tuple[str, ...]

    def preferred(self, available: Sequence[str], must_include: Sequence[str], size: int) -> Sequence[str] | None:
        """Whatever is offered; it must be offered what is taken too."""
        assert set(must_include) <= set(available)
        return self.ids or None


@pytest.mark.parametrize(
    ("liked", "count", "got"),
    [
        (("g03", "g05", "g01"), 3, "g01 g03 g05"),
        (("g03", "g09", "nonsense"), 2, "g00 g03"),  # g09 is on the other node, and nonsense is nowhere
        ((), 2, "g00 g01"),
        (("g09",), 6, "g00 g01 g02 g03 g04 g05"),  # exactly enough: it is not asked
        (("g09", "g08"), 8, "g00 g01 g02 g03 g04 g05 g08 g09"),
    ],
)
def test_the_plugin_has_a_say(mode: Compatibility, liked: tuple[str, ...], count: int, got: str) -> None:
    """Within the aligned devices where they are more than enough, else about what is missing."""
    rack = Rack(gpus([[0]] * 6 + [[1]] * 4), mode, preferences={GPU: Likes(liked)})
    assert rack.got(asking("p", count), nodes(0)) == got


def test_a_plugin_that_likes_the_lowest() -> None:
    """What is taken comes first, then the lowest ids."""
    assert LowestId().preferred(["a", "b", "c"], ["c"], 2) == ["c", "a"]


def test_init_containers_leave_their_devices(mode: Compatibility) -> None:
    """The app takes them over and one more; a sidecar keeps its own."""
    rack = Rack(gpus([[0]] * 6), mode)
    many = pod("p", one("i", 2, INIT), one("s", 1, SIDECAR), one("c", 2))
    assert rack.got(many, nodes(0)) == "g01 g02"
    assert rack.held(many, "i") == "g00 g01"
    assert rack.held(many, "s") == "g00"
    assert rack.hints(asking("q", 4)) == {GPU: "impossible"}
    rack.ledger = rack.provider.release(rack.ledger, "p", "i")
    assert rack.hints(asking("q", 4)) == {GPU: "impossible"}
    rack.ledger = rack.provider.release(rack.ledger, "p")
    assert rack.ledger.devices.held == {}
    assert rack.hints(asking("q", 4)) == {GPU: "{0}p"}


def test_devices_left_by_init_containers_narrow_the_hints(mode: Compatibility) -> None:
    """Every mask must touch them: they are used first (spec 6.2)."""
    rack = Rack(gpus([[0], [1]]), mode)
    many = pod("p", one("i", 1, INIT), one("c", 1))
    assert rack.allocate(many, nodes(1), "i") is None
    assert rack.hints(many) == {GPU: "{1}p {0,1}n"}


def test_what_is_held_is_kept(mode: Compatibility) -> None:
    """Admitted again, a container keeps its devices, and its hints are theirs."""
    rack = Rack(gpus([[0], [1], [1]]), mode)
    again = asking("p", 1)
    assert rack.got(again, nodes(1)) == "g01"
    assert rack.hints(again) == rack.hints(again, "") == {GPU: "{1}p {0,1}n"}
    assert rack.got(again, nodes(0)) == "g01"


def test_a_changed_request_is_refused(mode: Compatibility) -> None:
    """The API does not let it happen; the kubelet's words for it."""
    rack = Rack(gpus([[0]] * 3), mode)
    assert rack.got(asking("p", 1), nodes(0)) == "g00"
    assert rack.hints(asking("p", 2)) == {GPU: "impossible"}
    words = 'pod "p" container "c" changed request for resource "example.com/gpu" from 1 to 2'
    assert rack.got(asking("p", 2), nodes(0)) == words


def test_devices_that_fell_ill_are_not_given_again(mode: Compatibility) -> None:
    """Unknown, all unhealthy, or unhealthy since: the kubelet's sentences."""
    rack = Rack(gpus([[0], [0]]), mode)
    assert rack.got(asking("p", 1), nodes(0)) == "g00"
    words = {}
    for case, inventory in {
        "ill": gpus([[0], [0]], unhealthy=[0]),
        "none": gpus([[0], [0]], unhealthy=[0, 1]),
        "gone": DeviceInventory(),
    }.items():
        later = Rack(inventory, mode)
        later.ledger = rack.ledger
        words[case] = later.got(asking("p", 1), nodes(0))
    assert words == {
        "ill": HELD_UNHEALTHY.format(GPU),
        "none": NONE_HEALTHY.format(GPU),
        "gone": UNREGISTERED.format(GPU),
    }


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


@pytest.mark.parametrize("compatibility", BOTH)
def test_d12_ids_with_holes_and_distances(compatibility: Compatibility) -> None:
    """Nodes 0, 8 and 64: prefer-closest looks distances up by position; the kubelet crashes."""
    rows = ((10, 30, 12), (30, 10, 30), (12, 30, 10))
    sparse = machine(
        *(
            node(number, GIB, distances=row, cpus=CpuSet.of(at))
            for at, (number, row) in enumerate(zip((0, 8, 64), rows, strict=True))
        )
    )
    rack = Rack(gpus([[0], [8], [64]]), compatibility, sparse)
    rules = TopologyRules(Policy.RESTRICTED, prefer_closest=True)
    merged = merge_answers([rack.answer(asking("p", 2))], rack.positions, rules, Order.of(sparse))
    assert merged.hint == Hint(NodeSet.of(0, 64), preferred=True)


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


def test_the_annotation_speaks_for_the_first_app_container() -> None:
    """The scheduler knows nothing of devices that we hand out ourselves: they are asked for by annotation."""
    rack = Rack(DeviceInventory({NIC: devices("n", [[0], [1]])}))
    plain = pod("p", container("i", INIT, memory=1), container("c", memory=1), container("d", memory=1))
    asked = replace(plain, annotations={"numalign.io/devices": f"{NIC}=1"})
    assert rack.hints(asked, "i") == rack.hints(asked, "d") == {}
    assert rack.hints(asked, "c") == rack.hints(asked, "") == {NIC: "{0}p {1}p {0,1}n"}
    assert rack.got(asked, nodes(1), "c", NIC) == "n01"
    assert rack.held(asked, "d", NIC) == ""


def test_s22_what_the_kubelet_gave_is_followed_never_chosen() -> None:
    """Nothing is said before it is known; then the hints are where the devices are, and nothing is allocated."""
    inventory = DeviceInventory().with_reported(
        [(GPU, "a", NodeSet.of(0)), (GPU, "b", NodeSet.of(1)), (GPU, "c", NodeSet())]
    )
    rack = Rack(inventory)
    one_gpu = asking("p", 2)
    assert rack.hints(one_gpu) == rack.hints(one_gpu, "") == {}
    assert rack.got(one_gpu, nodes(0)) == ""
    rack.ledger = followed(rack.ledger, "p", {"c": {GPU: ["b", "a"]}})
    assert rack.held(one_gpu) == "a b"
    assert rack.hints(one_gpu) == rack.hints(one_gpu, "") == {GPU: "{0,1}p"}
    assert followed(rack.ledger, "p", {"c": {GPU: ["a", "b"]}}) is rack.ledger
    rack.ledger = followed(Ledger("", CpuBooks(CpuSet())), "p", {"c": {GPU: ["c"]}})
    assert rack.hints(one_gpu) == {GPU: "no preference"}
    assert rack.provider.release(rack.ledger, "p").devices.held == {}


def test_s22_a_device_of_a_plugin_is_not_ours_to_give() -> None:
    """A selector that matches what a plugin hands out: by address, and by the name of the resource."""
    ours = DeviceInventory({NIC: devices("n", [[0], [1]]), GPU: devices("g", [[0]])})
    both = ours.with_reported([("sriov.io/vf", "N00", NodeSet.of(0)), (GPU, "x", NodeSet.of(1))])
    assert [each.healthy for each in both.of(NIC)] == [False, True]
    assert both.of(GPU) == (Device("x", NodeSet.of(1)),)
    assert both.reported == {"sriov.io/vf", GPU}
    later = both.with_reported([("sriov.io/vf", "n01", NodeSet.of(0))])
    assert [each.healthy for each in later.of(NIC)] == [False, False]


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


def test_an_unknown_pod_is_released_without_effect(mode: Compatibility) -> None:
    """The ledger is the very same; so it is when a container is only started."""
    rack = Rack(gpus([[0]]), mode)
    held = asking("p", 1)
    assert rack.got(held, nodes(0)) == "g00"
    assert rack.provider.release(rack.ledger, "ghost") is rack.ledger
    assert rack.provider.release(rack.ledger, "p", "ghost") is rack.ledger
    assert rack.provider.started(rack.ledger, held, held.containers[0]) is rack.ledger


def test_no_preference_is_a_stance() -> None:
    """A resource whose devices tell no node."""
    rack = Rack(gpus([None]))
    assert rack.answer(asking("p", 1)) == {GPU: Stance.NO_PREFERENCE}
