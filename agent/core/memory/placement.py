"""Which rule places a request's memory: by compatibility, tier, and the pod that asks. For `provider`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from agent.core.machines.tiers import Reach
from agent.core.memory import reuse
from agent.core.memory.beyond import Far, Widened
from agent.core.memory.choose import choose, choose_as_kubelet
from agent.core.memory.hints import Placement, Plain, Table
from agent.core.merge.demand import Demand, capacity_size
from agent.core.merge.masks import Positions
from agent.core.merge.needs import Family, Need
from agent.core.request.amounts import exclusive_count, pod_exclusive_count
from agent.model.hint import Hint
from agent.model.idset import NodeSet
from agent.model.ledger import MemoryBooks, NodeBook
from agent.model.machine import Machine
from agent.model.outcome import Refusal
from agent.model.pod import Container, Pod
from agent.model.rules import Compatibility, MemoryTier, Rules


class Placer:
    """Places requests on one machine.

    Args:
        machine: its nodes.
        rules: `memory.tier`, `compatibility` and `pod_level_managers` are read.
    """

    def __init__(self, machine: Machine, rules: Rules) -> None:
        self._fixed = rules.compatibility is Compatibility.FIXED
        self._tier = rules.memory.tier
        self._rules = rules
        self._positions = Positions.of(machine.node_set)
        self._reach = Reach.of(machine, self._positions)
        with_memory = NodeSet.from_ids(node.id for node in machine.nodes if node.memory and node.online)
        self._barred = machine.barred_nodes
        # nodes that the kernel takes in cpuset.mems; the kubelet does not look
        self._bindable = self._positions.mask((with_memory if self._fixed else machine.node_set) - self._barred)

    def placement(
        self, books: MemoryBooks, pod: Pod, container: Container | None, request: Mapping[str, int]
    ) -> Placement:
        """Where a request could lie.

        Args:
            books: what is granted now.
            pod: whose request it is.
            container: which of its containers', None for the pod as a whole.
            request: bytes by resource.
        """
        nodes = books.nodes
        if self._barred:
            nodes = tuple(_empty(each) if each.id in self._barred else each for each in nodes)
        if not self._fixed:
            left = reuse.kubelets_account(books, pod)
            return Plain(Table.of(nodes, self._positions, request, left), self._positions.everything)
        left = reuse.left_in_blocks(books, pod, container) if container else {}
        table = Table.of(nodes, self._positions, request, left)
        tier = self._tier if self._reach.near and self._has_cpus(pod, container) else None
        if tier is MemoryTier.ANY:
            return Widened(table, self._reach)
        if tier is MemoryTier.FAR:
            return Far(table, self._reach)
        return Plain(table, self._positions.everything if tier is None else self._reach.hosts)

    def chosen(self, placement: Placement, affinity: Hint) -> NodeSet | Refusal:
        """The nodes that the request's blocks name."""
        choice = choose if self._fixed else choose_as_kubelet
        mask = choice(placement, affinity, self._positions)
        if isinstance(mask, Refusal):
            return mask
        mask = placement.place(mask)
        return self._positions.nodes(mask & self._bindable or mask)

    def where_held(self, pod: Pod, container: Container | None, nodes: NodeSet) -> Demand:
        """What is held stays where it is: its nodes, preferred; for a merge with CPUs, the CPU nodes among them.

        Of memory on nodes without CPUs alone it is one or a few of the CPU nodes near to them.
        """
        mask = self._positions.mask(nodes)
        if not (self._fixed and self._reach.near and self._has_cpus(pod, container)):
            return Demand(fixed={mask: True})
        if mask & self._reach.hosts:
            return Demand(fixed={mask & self._reach.hosts: True})
        zeros = (0,) * len(self._positions)
        near = sorted({hosts for node, hosts in self._reach.near.items() if mask >> node & 1})
        family = Family(self._reach.hosts, tuple(Need(1, zeros, ((hosts, 1),)) for hosts in near))
        return Demand(family, capacity_size(family))

    def _has_cpus(self, pod: Pod, container: Container | None) -> bool:
        """Whether exclusive CPUs are asked for too: only then hints must name nodes with CPUs."""
        if container is None:
            return pod_exclusive_count(pod, self._rules) > 0
        return exclusive_count(pod, container, self._rules) > 0


def _empty(book: NodeBook) -> NodeBook:
    """The book of a node that pods cannot have memory of: as if it had none; its users stay."""
    return replace(book, total={}, system={}, reserved={})
