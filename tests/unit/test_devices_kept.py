"""agent.core.devices.provider: what is held, left by init containers, fell ill, or was given by the kubelet."""

from __future__ import annotations

from agent.core.devices.books import followed
from agent.core.devices.kubelet import Offered, handed_over
from agent.core.devices.provider import HELD_UNHEALTHY, NONE_HEALTHY, UNREGISTERED
from agent.model.devices import Device, DeviceInventory
from agent.model.idset import CpuSet, NodeSet
from agent.model.ledger import CpuBooks, Ledger
from agent.model.rules import Compatibility
from tests.unit.devices_cases import GPU, NIC, Rack, asking, devices, gpus, one
from tests.unit.memory_cases import NO_HINT, nodes
from tests.world.pods import INIT, SIDECAR, pod


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
    """Every mask must touch them: they are used first (kubelet rule 6.2)."""
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


def test_an_unknown_pod_is_released_without_effect(mode: Compatibility) -> None:
    """The ledger is the very same; so it is when a container is only started."""
    rack = Rack(gpus([[0]]), mode)
    held = asking("p", 1)
    assert rack.got(held, nodes(0)) == "g00"
    assert rack.provider.release(rack.ledger, "ghost") is rack.ledger
    assert rack.provider.release(rack.ledger, "p", "ghost") is rack.ledger
    assert rack.provider.started(rack.ledger, held, held.containers[0]) is rack.ledger


def test_a_device_that_fell_ill_is_not_handed_on() -> None:
    """What a finished init container leaves is reused while healthy: else the app would start on a dead drive.

    Finding 17.
    """
    many = pod("p", one("i", 1, INIT), one("c", 1))
    rack = Rack(gpus([[0], [0]]))
    assert rack.allocate(many, NO_HINT, "i") is None
    assert rack.held(many, "i") == "g00"
    later = Rack(gpus([[0], [0]], unhealthy=[0]))
    later.ledger = rack.ledger
    assert later.allocate(many, NO_HINT, "c") is None
    assert later.held(many) == "g01"


def test_s22_what_the_kubelet_gives_anew_is_gone_for_its_last_holder_alone() -> None:
    """The last pod ended and its cgroup lives: it gives up that device, and keeps its others, as all others do."""
    rack = Rack(gpus([[0], [0], [1]]))
    last, other = asking("last", 2), asking("other", 1)
    assert (rack.got(last, nodes(0)), rack.got(other, nodes(1))) == ("g00 g01", "g02")
    ledger = handed_over(rack.ledger, asking("next", 1), {"c": (Offered(GPU, "g01", NodeSet.of(0)),)})
    held = {uid: by["c"][GPU] for uid, by in ledger.devices.held.items()}
    assert held == {"last": ("g00",), "other": ("g02",), "next": ("g01",)}
