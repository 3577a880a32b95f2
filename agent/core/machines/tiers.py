"""NUMA nodes without CPUs (HBM, CXL, GPU memory) and the CPU nodes they belong to.

Used by `agent.core.memory.provider` and `agent.core.devices.provider`. The kubelet treats such a node like any
other: a request that fits its memory "needs one node", so no placement on several CPU nodes is preferred, and
`restricted` refuses what fits. Under Compatibility.FIXED, where a container asks for exclusive CPUs, hints name CPU
nodes only, and what lies on a node without CPUs counts for the CPU nodes nearest to it. All masks are over positions
(`agent.core.merge.masks`).
"""

from __future__ import annotations

from dataclasses import dataclass

from agent.core.merge.masks import Positions, members
from agent.model.idset import CpuSet, NodeSet
from agent.model.machine import Machine


@dataclass(frozen=True, slots=True)
class Reach:
    """Which nodes have CPUs, and which of them are near to those that have none.

    Attributes:
        hosts: mask of the nodes with CPUs; all nodes where none has any (a described machine).
        near: node without CPUs -> mask of its CPU nodes.
        distances: node without CPUs -> distance by node, both directions added; empty for unknown.
    """

    hosts: int
    near: dict[int, int]
    distances: dict[int, tuple[int, ...]]

    @classmethod
    def of(cls, machine: Machine, positions: Positions) -> Reach:
        """Read off a machine.

        Near are the nodes that the kernel calls a node's initiators
        (https://docs.kernel.org/admin-guide/mm/numaperf.html), else the CPU nodes at the smallest distance, else all.
        """
        nodes = [machine.by_node[node] for node in positions.ids]
        hosts = sum(1 << j for j, node in enumerate(nodes) if node.cpus)
        if not hosts:
            return cls(positions.everything, {}, {})
        near: dict[int, int] = {}
        distances: dict[int, tuple[int, ...]] = {}
        known = all(len(node.distances) == len(nodes) for node in nodes)
        for j, node in enumerate(nodes):
            if hosts >> j & 1:
                continue
            if known:
                distances[j] = tuple(node.distances[k] + other.distances[j] for k, other in enumerate(nodes))
            initiators = positions.mask(node.initiators & machine.node_set) & hosts
            near[j] = initiators or _closest(distances.get(j, ()), hosts)
        return cls(hosts, near, distances)

    def beside(self, mask: int) -> tuple[int, ...]:
        """The nodes without CPUs that are near to any node of a mask, nearest first, then by id."""
        return tuple(sorted((j for j, hosts in self.near.items() if hosts & mask), key=lambda j: self._far(j, mask)))

    def _far(self, node: int, mask: int) -> tuple[int, int]:
        row = self.distances.get(node)
        return (min(row[j] for j in members(mask)) if row else 0, node)

    def folded(self, mask: int) -> int:
        """A mask of nodes as CPU nodes: each node without CPUs as those near to it."""
        folded = mask & self.hosts
        for node, hosts in self.near.items():
            if mask >> node & 1:
                folded |= hosts
        return folded


def with_ordinary(machine: Machine, nodes: NodeSet, cpus: CpuSet) -> NodeSet:
    """The nodes that cpuset.mems names for memory on these: never such with movable memory alone.

    The kernel takes pipes, sockets and the like from ordinary memory only, and they would fail with ENOMEM
    (https://docs.kernel.org/admin-guide/mm/memory-hotplug.html#zone-movable). The node beside is that of the CPUs,
    else a near one.
    """
    ordinary = NodeSet.from_ids(each.id for each in machine.nodes if each.memory and each.online and not each.movable)
    ordinary -= machine.barred_nodes
    movable = [each for each in machine.nodes if each.id in nodes and each.movable]
    if len(movable) < len(nodes) or not movable:
        return nodes
    near = NodeSet.union(each.initiators for each in movable)
    return nodes | (machine.nodes_of(cpus) & ordinary or near & ordinary or ordinary)


def _closest(row: tuple[int, ...], hosts: int) -> int:
    if not row:
        return hosts
    least = min(row[j] for j in members(hosts))
    return sum(1 << j for j in members(hosts) if row[j] == least)
