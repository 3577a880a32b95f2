"""Which container has all of its own on which NUMA node, as NodeResourceTopologyMatch reads it for preemption.

Facts: github.com/k8stopologyawareschedwg/numaplacement v0.1.0, read by scheduler-plugins 903da7d
(pkg/noderesourcetopology: cache/store.go, preemption/preemption.go).

    * reader and writer number the same containers, those that hold something exclusively (`fingerprint.exclusive`),
      in the order of the hashes of namespace, pod and container; the reader drops everything where the counts differ;
    * a zone's vector has its containers' numbers, in ascending order: the first, then the differences; the zone that
      the metadata call "bn" has no vector, and all containers that are in none;
    * of a victim the reader adds the containers' requests to their zones. Where a sum exceeds the zone's allocatable,
      it takes the node for impossible.

So a container gets a zone only where its requests are within what it holds there, and within what the zone counts as
taken. The format has no word for a container that has no such zone: "bn" is then a NUMA node behind the last one. The
reader finds no zone of that name, and adds nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from agent.kube.fingerprint import container_hash, exclusive
from agent.model.devices import DeviceInventory
from agent.model.idset import NodeSet
from agent.model.ledger import Ledger, by_node
from agent.model.machine import Machine
from agent.model.pod import Pod

METADATA, VECTOR = "topology.node.k8s.io/numaplacement-metadata", "topology.node.k8s.io/numaplacement-vector"
TOLD = "numalign.io/placement"
"""An attribute: how many containers have a zone, and what the others lack."""
MOST = 4096
"""Containers: with more there are no vectors, so that these have less than 5 kB."""
REASONS = 3
ALPHABET = "".join(chr(each) for each in range(0x21, 0x7F) if chr(each) not in '"&<>\\')
"""LEB89: 64 characters that end a number, and 25 that continue it."""
LAST = 64

Taken = Mapping[int, Mapping[str, int]]
"""Zone -> resource -> allocatable less available; each zone has all resources."""


@dataclass(frozen=True, slots=True)
class NumaPlacement:
    """What the object says of it.

    Attributes:
        told: the text of `TOLD`.
        metadata: the object's attribute, "" where no container has a zone.
        vectors: zone -> its attribute.
    """

    told: str
    metadata: str = ""
    vectors: Mapping[int, str] = field(default_factory=dict)


def placement_of(
    machine: Machine, ledger: Ledger, inventory: DeviceInventory, pods: Iterable[Pod], taken: Taken
) -> NumaPlacement:
    """Return the placement of a node's containers.

    Args:
        machine: the node's hardware.
        ledger: the grants.
        inventory: the devices, with their NUMA nodes.
        pods: the pods that the fingerprint is made of.
        taken: what may come back, of each zone of the object.
    """
    listed = frozenset(next(iter(taken.values()), {}))
    asked = {
        container_hash(pod.namespace, pod.name, name): (pod.uid, name, requests)
        for pod in pods
        for name, requests in exclusive(pod, listed)
    }
    if len(asked) > MOST:
        return NumaPlacement(f"not published: more than {MOST} containers")
    left = {zone: dict(amounts) for zone, amounts in taken.items()}
    lacks, found = Counter[str](), list[int]()
    for _, (uid, name, requests) in sorted(asked.items()):
        held = dict(_zones(machine, ledger, inventory, uid, name, requests))
        fits = [
            zone
            for zone in sorted(left)
            if all(zone in held[each] and left[zone][each] >= amount for each, amount in requests.items())
        ]
        found.append(fits[0] if fits else len(left))
        for each, amount in requests.items() if fits else ():
            left[fits[0]][each] -= amount
        if not fits:
            lacks[next((each for each in sorted(requests) if not held[each]), "one zone for all")] += 1
    told = f"{len(found) - lacks.total()} of {len(found)} containers have a zone"
    if lacks:
        told += f"; lacking: {', '.join(f'{name} {count}' for name, count in lacks.most_common(REASONS))}"
    return NumaPlacement(told, *encoded(found, len(left))) if lacks.total() < len(found) else NumaPlacement(told)


def encoded(places: list[int], zones: int) -> tuple[str, Mapping[int, str]]:
    """Return the metadata and the vectors.

    Args:
        places: the zone of each container in order of their hashes; the number of zones for none.
        zones: how many there are.
    """
    counts = Counter(places)
    nodes = zones + (zones in counts)
    rest = zones if zones in counts else min(counts, key=lambda zone: (-counts[zone], zone))
    vectors = {zone: _vector(places, zone) for zone in sorted(counts) if zone != rest}
    return f"npv0v001::ve=leb89::cc={len(places)}::nn={nodes}::bn={rest}", vectors


def _vector(places: list[int], zone: int) -> str:
    text, before = "", 0
    for number, place in enumerate(places):
        if place == zone:
            text += _leb89(number - before)
            before = number
    return text


def _leb89(number: int) -> str:
    if number < LAST:
        return ALPHABET[number]
    rest, last = divmod(number - LAST, LAST)
    text = ALPHABET[last]
    more = ALPHABET[LAST:]
    while True:
        rest, digit = divmod(rest, len(more))
        text = more[digit] + text
        if not rest:
            return text


def _zones(
    machine: Machine,
    ledger: Ledger,
    inventory: DeviceInventory,
    uid: str,
    container: str,
    requests: Mapping[str, int],
) -> Iterator[tuple[str, NodeSet]]:
    """Yield each resource with the NUMA nodes that alone have as much for the container as it asks for."""
    grant = ledger.grant(uid, container)
    blocks = by_node(grant.memory)
    for resource, amount in requests.items():
        if resource == "cpu":
            cpus = grant.cpus
            near = [each.id for each in machine.nodes if cpus is not None and len(cpus & each.cpus) >= amount]
        elif resource in grant.devices:
            held = set(grant.devices[resource])
            places = [each.nodes or NodeSet() for each in inventory.resources.get(resource, ()) if each.id in held]
            near = [each.id for each in machine.nodes if sum(each.id in place for place in places) >= amount]
        else:
            near = [node for node, sizes in blocks.items() if sizes.get(resource, 0) >= amount]
        yield resource, NodeSet.from_ids(near)
