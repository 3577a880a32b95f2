"""Devices that the kubelet gave: CPUs follow them, before and after the pod was decided; what is refused says why."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from agent.core.devices.kubelet import Offered, awaited, clashes, owners
from agent.core.machines.synthetic import parse_synthetic
from agent.model.devices import Device, DeviceInventory
from agent.model.idset import NodeSet
from agent.model.machine import PciDevice
from agent.model.podspec import pod_from
from tests.flow.gpus import GPU, POLICIES, asking, gpu, nodes, world
from tests.flow.world import MemoryStore, World, container, manifest


@pytest.mark.parametrize("scope", ["container", "pod"])
@pytest.mark.parametrize("policy", POLICIES[1:])
def test_cpus_follow_the_device_under_every_policy(tmp_path: Path, policy: str, scope: str) -> None:
    """The device is on node 1, so are the CPUs, and the pod is aligned; policy none aligns nothing and says so."""
    made = world(tmp_path, gpu("g0", 0), gpu("g1", 1), settings={"topologyManagerScope": scope})
    made.engine.devices_reported("job", {"app": (gpu("g1", 1),)})
    made.see(asking(policy=policy))
    record = made.engine.ledger.pods["job"]
    assert (nodes(made), record.aligned, dict(record.why)) == ("1", {"app": True}, {})
    assert made.engine.ledger.grant("job", "app").devices == {GPU: ("g1",)}


def test_policy_none_says_that_cpus_and_device_are_apart(tmp_path: Path) -> None:
    """Nobody merges under policy none; what came of it is told."""
    made = world(tmp_path)
    made.engine.devices_reported("job", {"app": (gpu("g1", 1),)})
    made.see(asking(policy="none"))
    record = made.engine.ledger.pods["job"]
    assert (nodes(made), record.aligned) == ("0", {"app": False})
    assert record.why["app"] == "policy none aligns nothing: it lies on NUMA nodes 0-1"


@pytest.mark.parametrize(
    ("device", "lies"),
    [(gpu("wide", 0, 1), "0"), (gpu("nowhere"), "0"), (gpu("unknown", 7), "0"), (gpu("g", 1), "1")],
)
def test_devices_of_two_nodes_of_none_and_of_unknown_ones(tmp_path: Path, device: Offered, lies: str) -> None:
    """Near two nodes either will do; without a node, or on one that the machine lacks, there is no preference."""
    made = world(tmp_path)
    made.engine.devices_reported("job", {"app": (device,)})
    made.see(asking(policy="single-numa-node"))
    assert (nodes(made), made.engine.ledger.pods["job"].aligned) == (lies, {"app": True})


@pytest.mark.parametrize(
    ("policy", "enters"), [("best-effort", True), ("restricted", False), ("single-numa-node", False)]
)
def test_s22_a_refusal_names_the_devices(tmp_path: Path, policy: str, *, enters: bool) -> None:
    """S22: two devices on two nodes never lie on one; the sentence names them. Best effort lets the pod in."""
    made = world(tmp_path)
    made.engine.devices_reported("job", {"app": (gpu("g0", 0), gpu("g1", 1))})
    made.see(asking(gpus=2, policy=policy, on_misalignment="fail"))
    assert ("job" in made.engine.ledger.pods) is enters
    if not enters:
        refusal = made.ears.refused_["job"]
        assert refusal.message == (
            "Resources cannot be allocated with Topology locality: the kubelet gave device g0 of vendor.com/gpu on "
            "NUMA node 0, device g1 of vendor.com/gpu on NUMA node 1, which cannot be chosen again; "
            "no NUMA node is near all of them"
        )
        assert refusal.facts["devices"] == ["vendor.com/gpu g0", "vendor.com/gpu g1"]
        assert made.engine.ledger.devices.held == {}


def test_a_full_node_is_named_as_the_reason(tmp_path: Path) -> None:
    """The device's node has no CPUs left: the other would have, and the device cannot be changed."""
    made = world(tmp_path)
    made.see(manifest("first", container(cpu="4")))
    assert nodes(made, "first") == "1"
    made.engine.devices_reported("job", {"app": (gpu("g1", 1),)})
    made.see(asking(policy="single-numa-node", on_misalignment="wait", created=1))
    assert made.ears.refused_["job"].message.endswith("what else container app asks for cannot be placed there")
    made.engine.pods_gone(["first"])
    made.engine.retry(["job"])
    assert nodes(made) == "1"


def test_nonsense_from_the_kubelet_breaks_no_rule(tmp_path: Path) -> None:
    """A container that the pod lacks, and one device in two containers: left out, the first counts."""
    made = world(tmp_path)
    body = manifest("job", container("a"), container("b"))
    made.engine.devices_reported("job", {"b": (gpu("g1", 1),), "a": (gpu("g1", 1),), "ghost": (gpu("g0", 0),)})
    made.see(body)
    assert made.engine.ledger.devices.held == {"job": {"a": {GPU: ("g1",)}}}


def test_what_the_kubelet_gave_survives_a_restart_and_a_reconfiguration(tmp_path: Path) -> None:
    """It is saved; with the kubelet away after a restart nothing is lost; new settings keep what was reported."""
    store = MemoryStore()
    made = world(tmp_path, gpu("g1", 1), store=store)
    made.engine.devices_reported("job", {"app": (gpu("g1", 1),)})
    made.run(asking())
    made.engine.changed(made.node(topologyManagerPolicy="restricted"))
    assert made.engine.node.inventory.reported == {GPU}
    again = World(tmp_path, store=store, pods=[pod_from(asking())])
    assert (again.holds("job"), again.recovered.losses) == (made.holds("job"), ())
    assert again.engine.ledger.grant("job", "app").devices == {GPU: ("g1",)}


def test_after_a_restart_with_the_kubelet_away_its_resource_is_still_its_own(tmp_path: Path) -> None:
    """A saved device says whose the resource is: a new pod that asks for one is placed, without a preference."""
    store = MemoryStore()
    made = world(tmp_path, gpu("g1", 1), store=store)
    made.engine.devices_reported("job", {"app": (gpu("g1", 1),)})
    made.run(asking())
    again = World(tmp_path, store=store, pods=[pod_from(asking())])
    again.see(asking(), asking("next", created=1, policy="single-numa-node", on_misalignment="fail"))
    assert (again.ears.refused_, nodes(again, "next")) == ({}, "0")
    again.engine.devices_offered([gpu("g1", 1), gpu("g2", 1)])
    again.engine.devices_reported("next", {"app": (gpu("g2", 1),)})
    assert nodes(again, "next") == "1"


def test_s22_a_selector_that_matches_a_plugins_device_is_refused() -> None:
    """S22: both are named; a resource of the plugin's own name is told once, not per device."""
    machine = parse_synthetic("1 socket x 1 node x 2 cores x 1 thread")
    inventory = DeviceInventory({
        "numalign.io/nic": (Device("0000:01:00.0"), Device("0000:02:00.0")), GPU: (Device("0000:03:00.0"),),
    })  # fmt: skip
    offered = (Offered("intel.com/sriov", "0000:01:00.0", NodeSet.of(0)), gpu("g0", 0))
    assert clashes(inventory, machine, offered) == (
        (
            "devices: the selector of numalign.io/nic matches 0000:01:00.0, which the kubelet hands out as "
            "intel.com/sriov; numalign does not hand it out, narrow the selector"
        ),
        (
            "devices: the resource vendor.com/gpu is handed out by a device plugin of the kubelet; "
            "numalign follows the plugin, rename the resource or remove its selector"
        ),
    )
    assert clashes(inventory, machine, ()) == ()


def test_s22_a_vendors_pool_keeps_its_accelerators(tmp_path: Path) -> None:
    """S22: a plugin that names GPUs by UUID has all of its vendor's; network cards and other vendors stay ours."""
    pci = (
        PciDevice("0000:01:00.0", "030200", "10de", "2330", numa_nodes=NodeSet.of(0)),
        PciDevice("0000:02:00.0", "030000", "1002", "7408", numa_nodes=NodeSet.of(1)),
        PciDevice("0000:03:00.0", "020000", "10de", "0001", numa_nodes=NodeSet.of(1)),
    )
    selectors = [{"resource": "numalign.io/any", "addresses": [each.address for each in pci]}]
    made = World(tmp_path, machine="2 sockets x 1 node x 4 cores x 1 thread", settings={"devices": selectors})
    made.machine = replace(made.machine, devices=pci)
    made.engine.changed(made.node())
    made.engine.devices_offered([Offered("nvidia.com/gpu", "GPU-7c9e", NodeSet.of(0))])
    (told,) = (text for _, text in made.ears.problems)
    assert told == (
        "devices: the selector of numalign.io/any matches 0000:01:00.0, which the kubelet hands out as "
        "nvidia.com/gpu; numalign does not hand it out, narrow the selector"
    )
    healthy = {each.id: each.healthy for each in made.engine.node.inventory.of("numalign.io/any")}
    assert healthy == {"0000:01:00.0": False, "0000:02:00.0": True, "0000:03:00.0": True}


@pytest.mark.parametrize(
    ("resource", "vendor"),
    [
        ("nvidia.com/gpu", "10de"), ("nvidia.com/mig-1g.5gb", "10de"), ("amd.com/gpu", "1002"),
        ("gpu.intel.com/i915", "8086"), ("gpu.intel.com/xe", "8086"), ("npu.intel.com/accel", "8086"),
        ("habana.ai/gaudi", "1da3"), ("qat.intel.com/cy", ""), ("intel.com/sriov", ""), ("example.com/gpu", ""),
    ],
)  # fmt: skip
def test_s22_whose_accelerators_a_plugin_has(resource: str, vendor: str) -> None:
    """S22: under the names of its vendor's plugin a device may be any of that vendor's accelerators, and no other."""
    vendors = ("10de", "1002", "8086", "1da3")
    pci = [PciDevice(f"0000:0{at}:00.0", "120000", each, "0001") for at, each in enumerate(vendors)]
    pci += [PciDevice(f"0000:1{at}:00.0", "020000", each, "0001") for at, each in enumerate(vendors)]
    machine = replace(parse_synthetic("1 socket x 1 node x 2 cores x 1 thread"), devices=tuple(pci))
    expected = {each.address: resource for each in pci[:4] if each.vendor == vendor}
    assert owners(machine, [Offered(resource, "some-id", NodeSet.of(0))]) == expected


def test_s22_of_a_vendors_resources_the_first_by_name_is_told() -> None:
    """S22: one card whole and another in parts: whichever the kubelet lists first, the same word is told of both."""
    machine = replace(
        parse_synthetic("1 socket x 1 node x 2 cores x 1 thread"),
        devices=(PciDevice("0000:01:00.0", "030200", "10de", "0001"),),
    )
    offered = [Offered(f"nvidia.com/{name}", name, NodeSet.of(0)) for name in ("mig-1g.5gb", "gpu", "vgpu")]
    for each in (offered, offered[::-1]):
        assert owners(machine, each) == {"0000:01:00.0": "nvidia.com/gpu"}


def test_s22_a_clash_is_told_once_and_the_device_is_not_handed_out(tmp_path: Path) -> None:
    """S22: of two functions the plugin has one; pods get the other, and a second pod is refused."""
    selectors = [{"resource": "numalign.io/nic", "class": "02", "namespaces": ["*"]}]
    machine = "2 sockets x 1 node x 4 cores x 1 thread, nic on 0, nic on 1"
    first, second = (device.address for device in parse_synthetic(machine).devices)
    made = World(tmp_path, machine=machine, settings={"devices": selectors})
    taken = Offered("intel.com/sriov", first, NodeSet.of(0))
    for _ in range(2):
        made.engine.devices_offered([taken])
    assert [what for what, _ in made.ears.problems] == ["devices"]
    assert first in made.ears.problems[0][1]
    made.see(manifest("one", devices="numalign.io/nic=1"))
    assert made.engine.ledger.grant("one", "app").devices == {"numalign.io/nic": (second,)}
    made.see(manifest("two", devices="numalign.io/nic=1", on_misalignment="fail", created=1))
    assert "numalign.io/nic" in made.ears.refused_["two"].message


def test_s22_what_a_plugin_offers_no_more_is_handed_out_again(tmp_path: Path) -> None:
    """The plugin was removed: the function that it offered is the agent's to give, and no other word of it stays."""
    selectors = [{"resource": "numalign.io/nic", "class": "02", "namespaces": ["*"]}]
    machine = "2 sockets x 1 node x 4 cores x 1 thread, nic on 0"
    (address,) = (device.address for device in parse_synthetic(machine).devices)
    made = World(tmp_path, machine=machine, settings={"devices": selectors})
    made.engine.devices_offered([Offered("intel.com/sriov", address, NodeSet.of(0))])
    assert "intel.com/sriov" in made.engine.node.inventory.reported
    made.engine.devices_offered([])
    assert made.engine.node.inventory.reported == frozenset()
    made.see(manifest("one", devices="numalign.io/nic=1"))
    assert made.engine.ledger.grant("one", "app").devices == {"numalign.io/nic": (address,)}


def test_an_annotation_that_asks_for_what_is_not_handed_out_is_told(tmp_path: Path) -> None:
    """Nobody would notice a device that is not given: an unknown resource, and one of a plugin's."""
    made = world(
        tmp_path,
        gpu("g0", 0),
        settings={"devices": [{"resource": "numalign.io/nic", "class": "02", "namespaces": ["*"]}]},
    )
    made.see(manifest("job", devices=f"numalign.io/nick=1,{GPU}=1"))
    problems = [str(each) for each in made.engine.pods["job"].settings.problems]
    assert problems == [
        f'numalign.io/devices: "numalign.io/nick=1,{GPU}=1" {why}; the default of the node applies'
        for why in (
            "names numalign.io/nick, which numalign does not hand out (devices in its settings: numalign.io/nic)",
            "names vendor.com/gpu, which a device plugin of the kubelet hands out: ask for it in the limits",
        )
    ]


def test_where_no_devices_are_handed_out_that_is_told(tmp_path: Path) -> None:
    """The sentence has no hole where their names would be."""
    made = world(tmp_path)
    made.see(manifest("job", devices="numalign.io/nic=1"))
    (problem,) = made.engine.pods["job"].settings.problems
    assert "does not hand out (devices in its settings: nothing)" in str(problem)


def test_what_is_waited_for() -> None:
    """Extended resources in limits that are not ours, not of init containers, less what was told."""
    init = {**container("first"), "resources": {"limits": {GPU: "1"}}}
    pod = pod_from({**asking(gpus=2), "spec": {**asking(gpus=2)["spec"], "initContainers": [init]}})
    assert awaited(pod, (), None) == {"app": {GPU: 2}}
    assert awaited(pod, {GPU}, None) == {}
    assert awaited(pod, (), {"app": (gpu("g0", 0),)}) == {"app": {GPU: 1}}
    assert awaited(pod, (), {"app": (gpu("g0", 0), gpu("g1", 1))}) == {}


def test_a_plugin_that_names_nodes_that_the_machine_lacks_is_told_of_once(tmp_path: Path) -> None:
    """One sentence for the resource, not one for each device; again only after the plugin was right in between."""
    made = world(tmp_path)

    def told() -> int:
        text = f"devices: the device plugin of {GPU} names NUMA nodes 7, which this machine lacks (it has 0-1)"
        return sum(each.startswith(text) for kind, each in made.ears.problems if kind == "devices")

    for _ in range(3):
        made.engine.devices_offered([gpu("g0", 0), gpu("odd", 7), gpu("odder", 1, 7)])
    assert told() == 1
    made.engine.devices_offered([gpu("g0", 0)])
    assert told() == 1
    made.engine.devices_offered([gpu("odd", 7)])
    assert told() == 2
