"""Whether a pod on several NUMA nodes would lie on nearer ones with prefer-closest-numa-nodes: a sentence."""

from __future__ import annotations

from itertools import permutations

from agent.core.admission.node import Node
from agent.core.explain.case import Case
from agent.core.explain.words import on
from agent.model.idset import CpuSet, NodeSet
from agent.model.ledger import Ledger
from agent.model.machine import Machine
from agent.model.outcome import Admitted

OPTION = "prefer-closest-numa-nodes"


def nearer(node: Node, case: Case, ledger: Ledger) -> str:
    """Ask the same admission with the option; the kubelet's rule without it looks at no distance.

    Args:
        node: the managers.
        case: the admission.
        ledger: what came of it.

    Returns:
        One sentence without an end; "" where the pod lies on one NUMA node, or nothing nearer is taken.
    """
    held = _nodes(ledger, case.pod.uid, node.machine)
    apart = _apart(held, node.machine)
    if not apart or node.rules.topology.prefer_closest:
        return ""
    other = node.preferring_closest()
    found = case.admit(other)
    if not isinstance(found, Admitted):
        return ""
    better = _nodes(found.ledger, case.pod.uid, node.machine)
    distance = _apart(better, node.machine)
    if not distance or distance >= apart:
        return ""
    sockets = len({cpu.package for cpu in node.machine.cpus if cpu.node in held})
    where = f"are on {sockets} sockets" if sockets > 1 else f"are {apart} apart"
    return f"{on(held)} {where}; {better} are nearer ({distance} instead of {apart}): {OPTION} takes them"


def _nodes(ledger: Ledger, uid: str, machine: Machine) -> NodeSet:
    """The NUMA nodes of a pod's own CPUs and of its memory."""
    cpus = CpuSet.union(ledger.cpus.assigned.get(uid, {}).values())
    blocks = ledger.memory.blocks.get(uid, {}).values()
    return machine.nodes_of(cpus) | NodeSet.union(block.nodes for each in blocks for block in each)


def _apart(nodes: NodeSet, machine: Machine) -> int:
    """The largest distance between two of them; 0 for one node, and where the kernel gives none."""
    order = {each.id: (place, each.distances) for place, each in enumerate(machine.nodes)}
    known = [order[each] for each in nodes if each in order]
    return max((row[place] for (_, row), (place, _) in permutations(known, 2) if len(row) > place), default=0)
