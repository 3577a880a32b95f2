"""Devices that the kubelet's plugins hand out: chosen already, so that CPUs and memory follow them (safety rule S22).

The kubelet allocates devices before it makes a pod's sandbox and tells what it gave over podresources, without saying
why, and it never chooses again. What it gave is therefore a fixed mask: the node sets that touch every device of a
resource, the smallest preferred. A device without a node has no preference; one near two is content with either.

The provider of these hints is `agent.core.devices.provider`: devices come first in the order of the providers (rule
2.3), also those that the kubelet hands out, since they can be moved least. Its input is the ledger's device book,
filled by `books.followed` before a pod is admitted, and the places in `DeviceInventory.reported`: so what the kubelet
gave is saved, survives a restart while the kubelet is away, and stands in the pod's annotation like any other grant.

Here is what surrounds that: which devices are still to be told, whether CPUs lie elsewhere than a device that became
known late, and sentences. Called by `agent.node.device_tracker` and `agent.host.podresources.lookup`. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from agent.core.devices.books import followed
from agent.core.devices.claims import claimed, claims_of
from agent.core.devices.claims import named as claims_named
from agent.model.claims import ClaimDevice
from agent.model.devices import DeviceInventory
from agent.model.idset import NodeSet
from agent.model.ledger import Ledger
from agent.model.machine import PCI_ADDRESS, Machine
from agent.model.outcome import Reason, Refusal
from agent.model.pod import ContainerKind, Pod
from agent.model.quantity import units


class Offered(NamedTuple):
    """One device of a plugin, as podresources lists it; `nodes` is empty when the plugin told none."""

    resource: str
    id: str
    nodes: NodeSet


APART = "no NUMA node is near all of them"
"""Ends the message of a refusal for devices that no one can be near: nothing else of the pod is in its way."""

Given = Mapping[str, tuple[Offered | ClaimDevice, ...]]
"""What a pod was given: devices of plugins and of claims, by container name."""


def awaited(pod: Pod, own: Collection[str], given: Given | None) -> dict[str, dict[str, int]]:
    """Return devices that a pod asks for and that no source has reported yet: container name -> resource -> how many.

    Args:
        pod: the pod. Regular init containers are not waited for: podresources never lists them (kubelet rule 6.6).
        own: resources that numalign hands out itself.
        given: what was told; None for nothing.
    """
    missing: dict[str, dict[str, int]] = {}
    for container in pod.containers:
        if container.kind is ContainerKind.INIT:
            continue
        told: dict[str, int] = {}
        for device in (given or {}).get(container.name, ()):
            if isinstance(device, ClaimDevice):
                continue
            told[device.resource] = told.get(device.resource, 0) + 1
        for resource, milli in sorted(container.limits.items()):
            left = units(milli) - told.get(resource, 0)
            if is_extended(resource) and resource not in own and left > 0:
                missing.setdefault(container.name, {})[resource] = left
    return missing


def is_extended(resource: str) -> bool:
    """Whether a resource can be a plugin's: a domain and a name, and not one of Kubernetes' own."""
    domain, slash, _ = resource.partition("/")
    return bool(slash) and domain != "kubernetes.io" and not domain.endswith(".kubernetes.io")


def handed_over(ledger: Ledger, pod: Pod, given: Given) -> Ledger:
    """The ledger with the devices that the kubelet and claims gave to a pod, before or after its admission.

    The kubelet is the authority on the holders of its devices: it gives one to the next pod as soon as the last has
    ended, which may be a moment before that one's cgroup is gone. Within a pod, of two containers that are said to
    hold one device the first by name counts, and its last word over an earlier one; containers that the pod does not
    have are left out.
    """
    names = {container.name for container in pod.containers}
    own: dict[str, dict[str, list[str]]] = {}
    mine: set[tuple[str, str]] = set()
    for name, devices in sorted(given.items()):
        for device in devices if name in names else ():
            if isinstance(device, Offered) and (device.resource, device.id) not in mine:
                own.setdefault(name, {}).setdefault(device.resource, []).append(device.id)
                mine.add((device.resource, device.id))
    kept: dict[str, dict[str, Mapping[str, tuple[str, ...]]]] = {}
    for uid, containers in ledger.devices.held.items():
        for name, by in containers.items():
            gone = mine - _pairs(own.get(name, {})) if uid == pod.uid else mine
            left = _without(by, gone)
            if left:
                kept.setdefault(uid, {})[name] = left
    if kept != ledger.devices.held:
        ledger = replace(ledger, devices=replace(ledger.devices, held=kept))
    claims = {
        name: tuple(each for each in devices if isinstance(each, ClaimDevice)) for name, devices in given.items()
    }
    return claimed(followed(ledger, pod.uid, own), pod, claims)


def _pairs(by: Mapping[str, Iterable[str]]) -> set[tuple[str, str]]:
    return {(resource, each) for resource, numbers in by.items() for each in numbers}


def _without(by: Mapping[str, tuple[str, ...]], gone: Collection[tuple[str, str]]) -> Mapping[str, tuple[str, ...]]:
    """What a container holds (ids by resource) less what went elsewhere."""
    if not gone or _pairs(by).isdisjoint(gone):
        return by
    left = {
        resource: tuple(each for each in numbers if (resource, each) not in gone) for resource, numbers in by.items()
    }
    return {resource: numbers for resource, numbers in left.items() if numbers}


VENDORS = (
    (re.compile(r"nvidia\.com/.+"), "10de"),
    (re.compile(r"amd\.com/.+"), "1002"),
    (re.compile(r"(?:(?:gpu|npu)\.)?intel\.com/(?:gpu|i915|xe|npu|accel).*"), "8086"),
    (re.compile(r"habana\.ai/.+"), "1da3"),
)
"""Plugins that name accelerators by other ids than PCI addresses: resource -> PCI vendor."""
ACCELERATORS = ("03", "12")
"""PCI base classes: display controllers and processing accelerators."""


def owners(machine: Machine, offered: Iterable[Offered]) -> dict[str, str]:
    """PCI functions that plugins hand out: address -> the plugin's resource.

    Those whose address is a device's id (SR-IOV and other PCI plugins), and all accelerators of a vendor whose plugin
    offers some under ids of its own (NVIDIA's are UUIDs): which of them it has cannot be told, so it has them all.
    """
    offered = tuple(offered)
    found = {each.id.lower(): each.resource for each in offered if PCI_ADDRESS.fullmatch(each.id.lower())}
    pools: dict[str, str] = {}
    for each in sorted(offered, key=lambda device: device.resource, reverse=True):
        vendor = next((vendor for pattern, vendor in VENDORS if pattern.fullmatch(each.resource)), "")
        if vendor and each.id.lower() not in found:
            pools[vendor] = each.resource
    for function in machine.devices:
        if function.class_code.startswith(ACCELERATORS) and function.vendor in pools:
            found.setdefault(function.address, pools[function.vendor])
    return found


def left_to_plugins(inventory: DeviceInventory, taken: Mapping[str, str]) -> DeviceInventory:
    """The inventory with the functions that plugins hand out marked: they are never given here."""
    resources = {
        resource: tuple(
            replace(each, healthy=each.healthy and (resource in inventory.reported or each.id not in taken))
            for each in devices
        )
        for resource, devices in inventory.resources.items()
    }
    return replace(inventory, resources=resources)


def clashes(inventory: DeviceInventory, machine: Machine, offered: Iterable[Offered]) -> tuple[str, ...]:
    """Why devices that the settings select are not ours to hand out, a sentence each (safety rule S22).

    Two that hand out one device give it to two pods. The plugin stays, since the kubelet has told the scheduler.

    Args:
        inventory: what the settings select (`DeviceInventory.from_machine`), nothing reported in it.
        machine: the hardware.
        offered: what plugins hand out.
    """
    offered = tuple(offered)
    owner = owners(machine, offered)
    plugins = {device.resource for device in offered}
    found = []
    for resource, devices in sorted(inventory.resources.items()):
        if resource in plugins:
            found.append(
                f"devices: the resource {resource} is handed out by a device plugin of the kubelet; "
                "numalign follows the plugin, rename the resource or remove its selector"
            )
            continue
        found.extend(
            f"devices: the selector of {resource} matches {device.id}, which the kubelet hands out as "
            f"{owner[device.id]}; numalign does not hand it out, narrow the selector"
            for device in devices
            if device.id in owner
        )
    return tuple(found)


def nowhere(machine: Machine, offered: Iterable[Offered]) -> tuple[str, ...]:
    """Devices of plugins that are said to be near NUMA nodes that the machine lacks, a sentence for each resource."""
    lacking: dict[str, NodeSet] = {}
    for device in offered:
        if odd := device.nodes - machine.node_set:
            lacking[device.resource] = lacking.get(device.resource, NodeSet()) | odd
    return tuple(
        f"devices: the device plugin of {resource} names NUMA nodes {nodes}, which this machine lacks (it has "
        f"{machine.node_set}): they do not count for the place of its devices"
        for resource, nodes in sorted(lacking.items())
    )


def places(ledger: Ledger, inventory: DeviceInventory, uid: str) -> dict[str, tuple[Offered, ...]]:
    """The kubelet's devices that a pod holds, with where they are, by container."""
    known = {(resource, each.id): each.nodes for resource in inventory.reported for each in inventory.of(resource)}
    found: dict[str, tuple[Offered, ...]] = {}
    for name, by in sorted(ledger.devices.held.get(uid, {}).items()):
        mine = tuple(
            Offered(resource, number, known.get((resource, number)) or NodeSet())
            for resource, numbers in by.items()
            if resource in inventory.reported
            for number in numbers
        )
        if mine:
            found[name] = mine
    return found


def given_to(ledger: Ledger, inventory: DeviceInventory, uid: str) -> Given:
    """All that a pod was given, by the ledger."""
    found: dict[str, tuple[Offered | ClaimDevice, ...]] = {**places(ledger, inventory, uid)}
    for name, devices in claims_of(ledger, uid).items():
        found[name] = (*found.get(name, ()), *devices)
    return found


def apart(ledger: Ledger, inventory: DeviceInventory, machine: Machine, uid: str) -> dict[str, str]:
    """Containers whose exclusive CPUs lie elsewhere than the devices that they were given: name -> one sentence."""
    found: dict[str, str] = {}
    for name, devices in given_to(ledger, inventory, uid).items():
        cpus = ledger.grant(uid, name).cpus
        located = [each for each in devices if each.nodes and each.nodes & machine.node_set]
        if not cpus or not located:
            continue
        nodes = machine.nodes_of(cpus)
        near = NodeSet.union(each.nodes or NodeSet() for each in located)
        far = [each for each in located if nodes.isdisjoint(each.nodes or NodeSet())]
        if far or not nodes.issubset(near):
            found[name] = f"CPUs {cpus} lie on {_on(nodes)}, {', '.join(map(_named, far or located))}"
    return found


def too_late(ledger: Ledger, uid: str, sentences: Mapping[str, str]) -> Ledger:
    """The ledger with the reason why a pod that runs already does not lie with its devices."""
    record = ledger.pods[uid]
    why = {
        name: f"{sentence}; {_source(sentence)} when the container's place was decided already"
        for name, sentence in sentences.items()
    }
    record = replace(
        record, aligned={**record.aligned, **dict.fromkeys(why, False)}, why={**record.why, **why}
    )  # fmt: skip
    return replace(ledger, pods={**ledger.pods, uid: record})


def _source(sentence: str) -> str:
    return "the claim's device became known" if " of claim " in sentence else "the kubelet named the device"


def explained(refusal: Refusal, ledger: Ledger, inventory: DeviceInventory, pod: Pod) -> Refusal:
    """A refusal for want of a common node, with the devices that the kubelet and claims gave named, if there are any.

    The policy may refuse such a pod for ever, whatever is free: it keeps the devices that it has.
    """
    if refusal.reason is not Reason.TOPOLOGY:
        return refusal
    held = given_to(ledger, inventory, pod.uid)
    mine = [each for name in held if refusal.container in ("", name) for each in held[name] if each.nodes]
    devices = sorted((each for each in mine if isinstance(each, Offered)), key=lambda each: (each.resource, each.id))
    claims = sorted({each for each in mine if isinstance(each, ClaimDevice)}, key=lambda each: (each.claim, each.id))
    if not mine:
        return refusal
    common = NodeSet.union(each.nodes or NodeSet() for each in mine)
    for each in mine:
        common &= each.nodes or NodeSet()
    given = [f"the kubelet gave {', '.join(map(_named, devices))}"] if devices else []
    if claims:
        given.append(f"the pod holds {', '.join(map(claims_named, claims))}")
    whose = f"container {refusal.container}" if refusal.container else "the pod"
    why = f"what else {whose} asks for cannot be placed there" if common else APART
    message = f"{refusal.message}: {' and '.join(given)}, which cannot be chosen again; {why}"
    facts = {**refusal.facts, "devices": [f"{each.resource} {each.id}" for each in devices]}
    if claims:
        facts["claims"] = [f"{each.claim} {each.id}" for each in claims]
    return replace(refusal, message=message, facts=facts)


def _named(device: Offered | ClaimDevice) -> str:
    if isinstance(device, ClaimDevice):
        return claims_named(device)
    return f"device {device.id} of {device.resource} on {_on(device.nodes)}"


def _on(nodes: NodeSet) -> str:
    return f"NUMA node{'s' if len(nodes) > 1 else ''} {nodes}"


def merged(listings: Iterable[Iterable[Offered]]) -> tuple[Offered, ...]:
    """All devices of several listings, each once; what a later one says of a device's nodes counts."""
    known = {(each.resource, each.id): each for listing in listings for each in listing}
    return tuple(known[key] for key in sorted(known))


def everything(given: Mapping[str, Given]) -> Iterator[Offered]:
    """All devices that pods hold."""
    for _, by in sorted(given.items()):
        for _, devices in sorted(by.items()):
            yield from (each for each in devices if isinstance(each, Offered))
