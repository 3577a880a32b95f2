"""How full a node is, and how broken its room: figures of one summary. Pure.

fill            CPUs that its pods request, of those that they may: what kube-scheduler sees
fragmentation   0 where its free CPUs are as whole as its NUMA nodes allow, near 1 where they lie scattered:
                1 - largest / min(all that is free, the largest NUMA node); "largest" is on one NUMA node
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from agent.core.accounting.fragmentation import largest_aligned
from agent.core.accounting.usage import NodeUse, usage
from agent.core.admission.allocatable import CPU, MEMORY, MOST_PODS, node_room
from agent.core.admission.node import Node
from agent.core.request.amounts import exclusive_count
from agent.forecast.fleet.values import FleetNode, Lack
from agent.forecast.node_summary import Managers, NodeSummary
from agent.model.machine import Machine


@dataclass(frozen=True, slots=True)
class FleetFigures:
    """Of one node; amounts are 0 where it has no summary.

    Attributes:
        name: of the node.
        shape: its machine in words.
        policy: in force; "" for unknown.
        lack, why: as of `FleetNode`.
        cpus: CPUs that containers may have for themselves.
        held: those that some have.
        largest: CPUs that are free on one NUMA node, at most.
        memory_largest: bytes, the same.
        fill, fragmentation: see the module; between 0 and 1.
        memory_fill: memory that its pods request, of what they may.
        room: thousandths of a CPU that the scheduler would still give.
        across: uids of pods that hold CPUs or memory of several NUMA nodes, or lack the CPUs that they asked for.
        waiting: pods that wait for room.
        enforcing: whether grants are written.
    """

    name: str
    shape: str = ""
    policy: str = ""
    lack: Lack | None = None
    why: str = ""
    cpus: int = 0
    held: int = 0
    largest: int = 0
    memory_largest: int = 0
    fill: float = 0.0
    fragmentation: float = 0.0
    memory_fill: float = 0.0
    room: int = 0
    across: tuple[str, ...] = ()
    waiting: int = 0
    enforcing: bool = True


def figures_of(node: FleetNode, made: Managers | None = None) -> FleetFigures:
    """The figures of a node; `made` is shared by all of a fleet."""
    summary = node.usable_summary
    if summary is None:
        shape = shape_of(node.summary.machine) if node.summary else ""
        return FleetFigures(node.name, shape, lack=node.lack, why=node.why)
    managers = (made or Managers()).of(summary)
    used = usage(summary.ledger, managers)
    whole = summary.rules.cpu.options.full_pcpus_only
    most = largest_aligned(used, summary.machine, whole_cores=whole)
    free = [len(each.free) for each in used]
    cpus, held = _cpus(used), sum(len(each.exclusive) for each in used)
    allocatable = allocatable_of(node, summary, managers)
    asked = summary.held.get(CPU, 0)
    return FleetFigures(
        name=node.name, shape=shape_of(summary.machine), policy=str(summary.rules.topology.policy), cpus=cpus,
        held=held, largest=most["cpu"], memory_largest=max(0, most.get(MEMORY, 0)),
        fill=_share(asked, allocatable[CPU]), fragmentation=fragmentation(free, most["cpu"], _widest(used)),
        memory_fill=_share(summary.held.get(MEMORY, 0), allocatable[MEMORY]),
        room=max(0, allocatable[CPU] - asked), across=tuple(_across(summary, managers)),
        waiting=len(summary.waiting), enforcing=summary.enforcing,
    )  # fmt: skip


def fragmentation(free: Iterable[int], largest: int, widest: int) -> float:
    """See the module.

    Args:
        free: free CPUs of each NUMA node.
        largest: the most that one NUMA node could give.
        widest: CPUs of the largest NUMA node.
    """
    best = min(sum(free), widest)
    return min(1.0, max(0.0, 1 - largest / best)) if best > 0 else 0.0


def allocatable_of(node: FleetNode, summary: NodeSummary, managers: Node) -> Mapping[str, int]:
    """Node Allocatable as the Node says it, which is all that the scheduler goes by: what it does not name is none.

    Where the Node was not read, as its kubelet would work it out: reserved CPUs and memory are taken off, and huge
    pages and devices count as resources of their own.
    """
    if node.allocatable:
        return {CPU: 0, MEMORY: 0, **node.allocatable}
    system = sum(use.memory[MEMORY].system for use in usage(summary.ledger, managers) if MEMORY in use.memory)
    return node_room(
        managers, reserved_cpu=1000 * len(managers.reserved), reserved_memory=system, most_pods=MOST_PODS
    )


def shape_of(machine: Machine) -> str:
    """A machine in words, short: what a node is like."""
    sockets = len({each.package for each in machine.cpus})
    nodes = sum(1 for each in machine.nodes if each.cpus)
    memory = sum(each.resources.get(MEMORY, 0) for each in machine.nodes)
    parts = (
        f"{sockets} socket{'s' * (sockets != 1)}", f"{nodes} NUMA node{'s' * (nodes != 1)}",
        f"{len(machine.online)} CPUs", f"{round(memory / 2**30)}Gi",
    )  # fmt: skip
    return ", ".join(parts)


def _cpus(used: Iterable[NodeUse]) -> int:
    return sum(len(each.exclusive | each.free) for each in used)


def _widest(used: Iterable[NodeUse]) -> int:
    return max((len(each.exclusive | each.free) for each in used), default=0)


def _share(part: int, whole: int) -> float:
    return min(1.0, max(0.0, part / whole)) if whole > 0 else 0.0


def _across(summary: NodeSummary, managers: Node) -> Iterable[str]:
    """Pods that may be misaligned: their own conditions say whether they are."""
    places = [each.cpus.bits for each in summary.machine.nodes if each.cpus]
    ledger = summary.ledger
    for uid, record in ledger.pods.items():
        bits = 0
        for cpus in ledger.cpus.assigned.get(uid, {}).values():
            bits |= cpus.bits
        spread = sum(1 for each in places if each & bits)
        blocks = ledger.memory.blocks.get(uid, {}).values()
        wide = spread > 1 or any(len(block.nodes) > 1 for found in blocks for block in found)
        pod = record.pod
        if wide or (not bits and any(exclusive_count(pod, each, managers.rules) for each in pod.containers)):
            yield uid
