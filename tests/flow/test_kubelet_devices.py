"""Devices that the kubelet gave: CPUs follow them, before and after the pod was decided; what is refused says why."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.core.kubelet_devices import Offered, awaited, clashes
from agent.core.synthetic import parse_synthetic
from agent.host.standin import container_id
from agent.model.devices import Device, DeviceInventory
from agent.model.idset import CpuSet, NodeSet
from agent.model.machine import PciDevice
from agent.model.podspec import pod_from
from tests.flow.world import MemoryStore, World, container, manifest

GPU = "vendor.com/gpu"
POLICIES = ["none", "best-effort", "restricted", "single-numa-node"]


def gpu(number: str, *nodes: int) -> Offered:
    """A device of the kubelet's."""
    return Offered(GPU, number, NodeSet.of(*nodes))


def asking(name: str = "job", gpus: int = 1, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - a manifest's fields
    """A pod of two CPUs and some GPUs."""
    body = container()
    body["resources"]["limits"][GPU] = str(gpus)
    return manifest(name, body, **more)


def world(folder: Path, *offered: Offered, **more: Any) -> World:  # noqa: ANN401 - of World
    """Two nodes of four CPUs; CPU 0 is the system's. Without devices a pod lies on node 0."""
    made = World(folder, **more)
    made.engine.pods_listed(set())
    made.engine.devices_offered(offered)
    return made


def nodes(of: World, uid: str = "job") -> str:
    """Where a pod's CPUs lie."""
    return str(of.machine.nodes_of(of.engine.ledger.grant(uid, "app").cpus or CpuSet()))


@pytest.mark.parametrize("scope", ["container", "pod"])
@pytest.mark.parametrize("policy", POLICIES[1:])
def test_cpus_follow_the_device_under_every_policy(tmp_path: Path, policy: str, scope: str) -> None:
    """The device is on node 1, so are the CPUs, and the pod is aligned; policy none aligns nothing and says so."""
    made = world(tmp_path, gpu("g0", 0), gpu("g1", 1), settings={"topologyManagerScope": scope})
    made.engine.devices_known("job", {"app": (gpu("g1", 1),)})
    made.see(asking(policy=policy))
    record = made.engine.ledger.pods["job"]
    assert (nodes(made), record.aligned, dict(record.why)) == ("1", {"app": True}, {})
    assert made.engine.ledger.grant("job", "app").devices == {GPU: ("g1",)}


def test_policy_none_says_that_cpus_and_device_are_apart(tmp_path: Path) -> None:
    """Nobody merges under policy none; what came of it is told."""
    made = world(tmp_path)
    made.engine.devices_known("job", {"app": (gpu("g1", 1),)})
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
    made.engine.devices_known("job", {"app": (device,)})
    made.see(asking(policy="single-numa-node"))
    assert (nodes(made), made.engine.ledger.pods["job"].aligned) == (lies, {"app": True})


@pytest.mark.parametrize(
    ("policy", "enters"), [("best-effort", True), ("restricted", False), ("single-numa-node", False)]
)
def test_s22_a_refusal_names_the_devices(tmp_path: Path, policy: str, *, enters: bool) -> None:
    """S22: two devices on two nodes never lie on one; the sentence names them. Best effort lets the pod in."""
    made = world(tmp_path)
    made.engine.devices_known("job", {"app": (gpu("g0", 0), gpu("g1", 1))})
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
    made.engine.devices_known("job", {"app": (gpu("g1", 1),)})
    made.see(asking(policy="single-numa-node", on_misalignment="wait", created=1))
    assert made.ears.refused_["job"].message.endswith("the rest of the pod finds no room there")
    made.engine.pods_gone(["first"])
    made.engine.retry(["job"])
    assert nodes(made) == "1"


def test_late_word_moves_a_pod_that_does_not_run(tmp_path: Path) -> None:
    """The watch was quicker than the kubelet's allocation: decided without, decided once more with the device."""
    made = world(tmp_path)
    made.see(asking(policy="restricted"))
    assert nodes(made) == "0"
    made.engine.devices_known("job", {"app": (gpu("g1", 1),)})
    made.check()
    record = made.engine.ledger.pods["job"]
    assert (nodes(made), record.aligned, dict(record.why)) == ("1", {"app": True}, {})
    assert made.ears.admitted_ == ["job", "job"]


def test_late_word_moves_nothing_that_runs(tmp_path: Path) -> None:
    """A container runs already: it stays, and the pod's record says why it is not aligned."""
    made = world(tmp_path)
    made.run(asking(policy="restricted"))
    before = made.effective("job")
    made.engine.devices_known("job", {"app": (gpu("g1", 1),)})
    made.check()
    record = made.engine.ledger.pods["job"]
    assert (made.effective("job"), record.aligned) == (before, {"app": False})
    assert record.why["app"] == (
        "CPUs 1-2 lie on NUMA node 0, device g1 of vendor.com/gpu on NUMA node 1; "
        "the kubelet named the device when the container's place was decided already"
    )
    assert made.store.saved == made.engine.ledger


def test_a_pod_is_decided_once_more_only_once(tmp_path: Path) -> None:
    """Whatever the kubelet says next, a place is not changed a third time."""
    made = world(tmp_path)
    made.see(asking(gpus=2, policy="best-effort"))
    made.engine.devices_known("job", {"app": (gpu("g1", 1),)})
    assert nodes(made) == "1"
    made.engine.devices_known("job", {"app": (gpu("g1", 1), gpu("g0", 0))})
    assert nodes(made) == "1"
    assert not made.engine.ledger.pods["job"].aligned["app"]
    assert made.ears.admitted_ == ["job", "job", "job"]


def test_late_word_can_refuse_a_pod_that_does_not_run(tmp_path: Path) -> None:
    """Under single-numa-node, with no room beside the device, the pod is refused before it starts."""
    made = world(tmp_path)
    made.see(manifest("first", container(cpu="4")))
    made.see(asking(policy="single-numa-node", on_misalignment="fail", created=1))
    assert nodes(made) == "0"
    made.engine.devices_known("job", {"app": (gpu("g1", 1),)})
    made.check()
    assert "job" not in made.engine.ledger.pods
    assert "g1 of vendor.com/gpu" in made.ears.refused_["job"].message
    assert made.engine.snapshot.known["job"].refusal is not None


def test_a_device_goes_to_the_next_pod_when_the_kubelet_says_so(tmp_path: Path) -> None:
    """The kubelet frees a device a moment before the cgroup is gone; two pods never hold it here."""
    made = world(tmp_path)
    made.engine.devices_known("old", {"app": (gpu("g1", 1),)})
    made.run(asking("old"))
    made.engine.pods_gone(["old"])
    made.engine.devices_known("new", {"app": (gpu("g1", 1),)})
    made.see(asking("new", created=1))
    made.check()
    assert {uid: dict(held) for uid, held in made.engine.ledger.devices.held.items()} == {
        "new": {"app": {GPU: ("g1",)}}
    }


def test_nonsense_from_the_kubelet_breaks_no_rule(tmp_path: Path) -> None:
    """A container that the pod lacks, and one device in two containers: left out, the first counts."""
    made = world(tmp_path)
    body = manifest("job", container("a"), container("b"))
    made.engine.devices_known("job", {"b": (gpu("g1", 1),), "a": (gpu("g1", 1),), "ghost": (gpu("g0", 0),)})
    made.see(body)
    assert made.engine.ledger.devices.held == {"job": {"a": {GPU: ("g1",)}}}


def test_what_the_kubelet_gave_survives_a_restart_and_a_reconfiguration(tmp_path: Path) -> None:
    """It is saved; with the kubelet away after a restart nothing is lost; new settings keep what was reported."""
    store = MemoryStore()
    made = world(tmp_path, gpu("g1", 1), store=store)
    made.engine.devices_known("job", {"app": (gpu("g1", 1),)})
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
    made.engine.devices_known("job", {"app": (gpu("g1", 1),)})
    made.run(asking())
    again = World(tmp_path, store=store, pods=[pod_from(asking())])
    again.see(asking(), asking("next", created=1, policy="single-numa-node", on_misalignment="fail"))
    assert (again.ears.refused_, nodes(again, "next")) == ({}, "0")
    again.engine.devices_offered([gpu("g1", 1), gpu("g2", 1)])
    again.engine.devices_known("next", {"app": (gpu("g2", 1),)})
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


def test_s22_a_clash_is_told_once_and_the_device_is_not_handed_out(tmp_path: Path) -> None:
    """S22: of two functions the plugin has one; pods get the other, and a second pod is refused."""
    selectors = [{"resource": "numalign.io/nic", "class": "02"}]
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


def test_an_annotation_that_asks_for_what_is_not_handed_out_is_told(tmp_path: Path) -> None:
    """Nobody would notice a device that is not given: an unknown resource, and one of a plugin's."""
    made = world(tmp_path, gpu("g0", 0), settings={"devices": [{"resource": "numalign.io/nic", "class": "02"}]})
    made.see(manifest("job", devices=f"numalign.io/nick=1,{GPU}=1"))
    problems = [str(each) for each in made.engine.known["job"].ask.problems]
    assert problems == [
        f'numalign.io/devices: "numalign.io/nick=1,{GPU}=1" {why}; the default of the node applies'
        for why in (
            "names numalign.io/nick, which numalign does not hand out (devices in its settings: numalign.io/nic)",
            "names vendor.com/gpu, which a device plugin of the kubelet hands out: ask for it in the limits",
        )
    ]


def test_what_is_waited_for() -> None:
    """Extended resources in limits that are not ours, not of init containers, less what was told."""
    init = {**container("first"), "resources": {"limits": {GPU: "1"}}}
    pod = pod_from({**asking(gpus=2), "spec": {**asking(gpus=2)["spec"], "initContainers": [init]}})
    assert awaited(pod, (), None) == {"app": {GPU: 2}}
    assert awaited(pod, {GPU}, None) == {}
    assert awaited(pod, (), {"app": (gpu("g0", 0),)}) == {"app": {GPU: 1}}
    assert awaited(pod, (), {"app": (gpu("g0", 0), gpu("g1", 1))}) == {}


def test_a_full_disk_leaves_a_late_pod_as_it_was(tmp_path: Path) -> None:
    """The new place cannot be saved: the old one stands, in the ledger and in what readers see."""
    store = MemoryStore()
    made = world(tmp_path, store=store)
    made.see(asking(policy="restricted"))
    before = made.engine.ledger
    store.full = "no space left"
    made.engine.devices_known("job", {"app": (gpu("g1", 1),)})
    assert made.engine.ledger == made.engine.snapshot.ledger == before
    assert made.engine.snapshot.known["job"].refusal is None


def test_readers_see_decisions_before_slow_writes(tmp_path: Path) -> None:
    """S8, S9: while a cgroup is written the snapshot has the new grant already."""
    made = world(tmp_path)
    made.run(manifest("web", container(cpu="", memory="")))
    seen: list[str] = []

    def look(step: str) -> None:
        if step.startswith("write"):
            seen.append(str(made.engine.snapshot.ledger.grant("job", "app").cpus))

    made.engine._steps = made.engine._enforcer._steps = look
    made.see(manifest("job", created=1))
    assert seen
    assert set(seen) == {made.holds("job")}


def test_names_of_removed_containers_are_dropped(tmp_path: Path) -> None:
    """A container that is gone does not count as one that runs."""
    made = world(tmp_path)
    made.run(asking(policy="restricted"))
    number = container_id("job", "app")
    made.tree.remove_container("job", number)
    made.engine.container_gone(number)
    made.engine.devices_known("job", {"app": (gpu("g1", 1),)})
    assert nodes(made) == "1"
