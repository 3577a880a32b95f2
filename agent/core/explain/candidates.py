"""What a search for remedies may change: requests, pods that hold something, options that go together."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate

from agent.core.admission.node import Node
from agent.core.explain.case import Case
from agent.core.request.amounts import exclusive_count, is_memory
from agent.model.idset import CpuSet, NodeSet
from agent.model.ledger import Ledger
from agent.model.pod import Container, Pod
from agent.model.quantity import parse_milli, units

_MIB = 1 << 20


def unit_of(resource: str) -> int:
    """The unit in which a request is made smaller: a CPU, a device, 1Mi, or one huge page."""
    if not is_memory(resource):
        return 1
    return _MIB if resource == "memory" else units(parse_milli(resource.removeprefix("hugepages-")))


def most_of(node: Node, resource: str) -> int:
    """Return how many CPUs or devices the node has: no pod is given more, whatever it asks for."""
    return len(node.seen.usable) if resource == "cpu" else len(node.inventory.resources.get(resource, ()))


def requests_of(node: Node, pod: Pod) -> Iterator[tuple[Container, str, int]]:
    """What could be asked for in a smaller amount: CPUs, then devices, then memory."""
    for container in pod.containers:
        count = exclusive_count(pod, container, node.rules) if node.rules.cpu.static else 0
        if count > 1:
            yield container, "cpu", count
    for container in pod.containers:
        for name, milli in sorted(container.limits.items()):
            ours = name in node.inventory.resources and name not in node.inventory.reported
            if ours and units(milli) > 1:
                yield container, name, units(milli)
    for container in pod.containers if node.rules.memory.static else ():
        for name, milli in sorted(container.requests.items()):
            if is_memory(name) and units(milli) > unit_of(name):
                yield container, name, units(milli)


def edges(ledger: Ledger, resource: str, unit: int, beside: int = 0) -> list[int]:
    """Amounts of a container's memory, in units, at which another number of NUMA nodes is needed: the largest first.

    Args:
        ledger: what each pod holds; nodes count with what is free, and with what they have when empty.
        resource: memory, or huge pages of a size.
        unit: bytes.
        beside: bytes that the pod's other containers ask for: under scope pod they count together with it.
    """
    found = {1}
    books = ledger.memory.nodes
    for sizes in ([book.free(resource) for book in books], [book.allocatable(resource) for book in books]):
        for total in accumulate(sorted((max(0, size) for size in sizes), reverse=True)):
            found |= {each // unit + more for each in (total, total - beside) for more in (0, 1)}
    return sorted((each for each in found if each > 0), reverse=True)


def possible(case: Case, node: Node) -> bool:
    """Whether the options go together; as `agent.core.request.annotations` checks them."""
    now = case.options(node)
    policy = case.settings.policy or node.rules.topology.policy
    return not now.clash() and not now.barred(policy)


def holders_of(ledger: Ledger, uid: str) -> list[Pod]:
    """Pods that hold something, those that hold least first; of equal ones the latest."""

    def holding(pod: Pod) -> tuple[int, int, float, str]:
        cpus = sum(len(each) for each in ledger.cpus.assigned.get(pod.uid, {}).values())
        blocks = ledger.memory.blocks.get(pod.uid, {}).values()
        return cpus, sum(block.size for each in blocks for block in each), -pod.created, pod.uid

    books = (ledger.cpus.assigned, ledger.memory.blocks, ledger.devices.held, ledger.cpus.confined)
    found = [record.pod for key, record in ledger.pods.items() if key != uid and any(key in book for book in books)]
    others = {key for pods in ledger.others.values() for key in pods}
    found += [each.pod for key, each in ledger.pods.items() if key in others and each.pod not in found and key != uid]
    return sorted(found, key=holding)


def nodes_held(node: Node, ledger: Ledger, pod: Pod) -> NodeSet:
    """The NUMA nodes that a pod holds something on."""
    confined = ledger.cpus.confined.get(pod.uid)
    cpus = CpuSet.union(ledger.cpus.assigned.get(pod.uid, {}).values())
    blocks = ledger.memory.blocks.get(pod.uid, {}).values()
    nodes = node.seen.nodes_of(cpus) | NodeSet.union(block.nodes for each in blocks for block in each)
    places = {(name, each.id): each.nodes for name, found in node.inventory.resources.items() for each in found}
    for held in ledger.devices.held.get(pod.uid, {}).values():
        nodes |= NodeSet.union(places.get((name, each)) or NodeSet() for name, ids in held.items() for each in ids)
    return nodes | confined.nodes if confined else nodes
