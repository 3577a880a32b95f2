"""Ledger: what each pod holds, one immutable value. Changed by making a new one (`dataclasses.replace`).

Three books, each owned by one module of `agent.core`, and a record per pod:

    cpus      CpuBooks      core.cpus      exclusive CPUs per container, the shared pool
    memory    MemoryBooks   core.memory    per-node accounting, blocks per container
    devices   DeviceBooks   core.devices   device ids per container and resource
    pods      PodRecord     core.admit     what was asked, tried, got, and the reasons

`reusable` in each book is what finished init containers of the pod now being admitted leave to its later containers
(kubelet rules 4.13, 5.8, 6.4); it belongs to one admission and is never saved.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from agent.model.hint import Hint
from agent.model.idset import CpuSet, NodeSet
from agent.model.pod import UNSAVED, Pod


@dataclass(frozen=True, slots=True)
class CpuBooks:
    """Exclusive CPUs.

    Attributes:
        shared: the shared pool. Holds the reserved CPUs unless strict-cpu-reservation (kubelet rule 4.2: the shared
            pool).
        assigned: pod uid -> container name -> CPUs. Under pod-level management also the shares of a pod's own pool.
        pools: pod uid -> the CPUs of a pod managed as a whole (PodLevelResourceManagers, kubelet rule 4.12).
        confined: pod uid -> confinement of pods that share CPUs of some nodes (numalign.io/align).
        mixed: pod uid -> container name -> the shared CPUs that it may use beside its own (numalign.io/mixed):
            no pod owns them, and none is granted them while it lives. Empty: the shared pool as it is.
        reusable: (pod uid, CPUs) left by init containers, or None.
    """

    shared: CpuSet
    assigned: Mapping[str, Mapping[str, CpuSet]] = field(default_factory=dict)
    pools: Mapping[str, CpuSet] = field(default_factory=dict)
    confined: Mapping[str, Confinement] = field(default_factory=dict)
    mixed: Mapping[str, Mapping[str, CpuSet]] = field(default_factory=dict)
    reusable: tuple[str, CpuSet] | None = field(default=None, metadata=UNSAVED)


@dataclass(frozen=True, slots=True)
class Confinement:
    """A pod kept on the shared CPUs of some nodes, with what it may use there accounted per node.

    Attributes:
        nodes: where it is kept.
        milli: (node id, thousandths of a CPU) of its CPU request, ascending node.
        memory: whether cpuset.mems is bound too (numalign.io/align: numa,memory).
        limit: (node id, bytes) of its memory limit, ascending node; empty unless memory is bound.
    """

    nodes: NodeSet
    milli: tuple[tuple[int, int], ...]
    memory: bool = False
    limit: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class NodeBook:
    """What the memory manager keeps per NUMA node (kubelet rule 5.2), in bytes.

    Attributes:
        id: node id.
        users: the kubelet's numberOfAssignments: one per resource of every block that names the node.
        group: the nodes that allocate together with this one; only itself when unused.
        total, system, reserved: per resource: what the node has, what the system keeps, what is granted.
            allocatable = total - system, free = allocatable - reserved.
    """

    id: int
    users: int
    group: NodeSet
    total: Mapping[str, int]
    system: Mapping[str, int]
    reserved: Mapping[str, int]

    def allocatable(self, resource: str) -> int:
        """Bytes that may be granted at all; 0 for a resource without a row (defect D8)."""
        return self.total.get(resource, 0) - self.system.get(resource, 0)

    def free(self, resource: str) -> int:
        """Bytes that may be granted now."""
        return self.allocatable(resource) - self.reserved.get(resource, 0)


@dataclass(frozen=True, slots=True)
class Block:
    """Memory granted to a container: bytes of one resource over a set of nodes.

    Attributes:
        resource: "memory" or "hugepages-<size>".
        size: bytes in all.
        nodes: the group of nodes; cpuset.mems of its container names all of them.
        split: (node id, bytes) of the nodes that the bytes were taken from, ascending; they add up to `size`. Empty
            under Compatibility.KUBELET, which keeps sums of groups only, and in shares of a pod's own pool.
    """

    resource: str
    size: int
    nodes: NodeSet
    split: tuple[tuple[int, int], ...] = ()

    @property
    def parts(self) -> tuple[tuple[int, int], ...]:
        """(node, bytes) as far as the books say which node gives them; empty where a group of nodes gives a sum."""
        return self.split or (((self.nodes.first, self.size),) if len(self.nodes) == 1 else ())


def by_node(blocks: Iterable[Block]) -> dict[int, dict[str, int]]:
    """Node -> resource -> bytes, ascending, as far as `Block.parts` says; without nodes that give nothing."""
    found: dict[int, dict[str, int]] = {}
    for block in blocks:
        for node, size in block.parts:
            here = found.setdefault(node, {})
            here[block.resource] = here.get(block.resource, 0) + size
    return {node: sizes for node, sizes in sorted(found.items()) if any(sizes.values())}


@dataclass(frozen=True, slots=True)
class MemoryBooks:
    """Memory and huge pages.

    Attributes:
        nodes: one NodeBook per NUMA node, ascending id; empty when the memory policy is None.
        blocks: pod uid -> container name -> blocks, sorted by resource.
        pools: pod uid -> blocks of a pod managed as a whole (kubelet rule 5.12).
        reusable: (pod uid, {(nodes, resource): bytes}) left by init containers, or None.
    """

    nodes: tuple[NodeBook, ...] = ()
    blocks: Mapping[str, Mapping[str, tuple[Block, ...]]] = field(default_factory=dict)
    pools: Mapping[str, tuple[Block, ...]] = field(default_factory=dict)
    reusable: tuple[str, Mapping[tuple[NodeSet, str], int]] | None = field(default=None, metadata=UNSAVED)


@dataclass(frozen=True, slots=True)
class DeviceBooks:
    """Devices.

    Attributes:
        held: pod uid -> container name -> resource -> device ids, sorted.
        reusable: (pod uid, {resource: ids}) left by init containers, or None.
    """

    held: Mapping[str, Mapping[str, Mapping[str, tuple[str, ...]]]] = field(default_factory=dict)
    reusable: tuple[str, Mapping[str, tuple[str, ...]]] | None = field(default=None, metadata=UNSAVED)


LOST_CPUS = "it lost CPUs"
"""How `PodRecord.why` begins for a container that a change of machine took CPUs from."""


@dataclass(frozen=True, slots=True)
class PodRecord:
    """What is known of a pod in the ledger.

    Attributes:
        pod: the pod as admitted.
        policy, scope: what was in force for it.
        asked: the policy its annotation asked for, "" when none did.
        affinity: container name -> merged hint.
        aligned: container name -> whether its grant lies as the policy wants; a reason in `why` if not.
        why: container name or "" (the pod) -> one sentence.
        adopted: it ran before the agent knew it: reported, never refused.
        bind_memory: whether cpuset.mems may be written (safety rules S4, S7).
    """

    pod: Pod
    policy: str
    scope: str
    asked: str = ""
    affinity: Mapping[str, Hint] = field(default_factory=dict)
    aligned: Mapping[str, bool] = field(default_factory=dict)
    why: Mapping[str, str] = field(default_factory=dict)
    adopted: bool = False
    bind_memory: bool = True

    @property
    def is_aligned(self) -> bool:
        """Whether all that the pod holds lies as its policy wants, and nothing was lost or is lacking."""
        return all(self.aligned.values()) and not self.why

    def why_of(self, container: str) -> str:
        """The sentence about a container, or about its pod; "" for none."""
        return self.why.get(container) or self.why.get("", "")


@dataclass(frozen=True, slots=True)
class Grant:
    """What one container holds; a view of the books, for the edges.

    Attributes:
        cpus: exclusive CPUs, or None when it runs on the shared pool.
        mems: nodes its memory is bound to, or None when it is not.
        memory: its blocks.
        devices: resource -> ids.
    """

    cpus: CpuSet | None
    mems: NodeSet | None
    memory: tuple[Block, ...] = ()
    devices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ledger:
    """Every grant on this node, and for which machine it was made.

    Attributes:
        machine: Machine.digest of the machine that the books were made for.
        others: what providers beyond the three hold: provider name -> pod uid -> container name -> texts that the
            provider understands. So a new provider needs no book of its own to survive a restart.
    """

    machine: str
    cpus: CpuBooks
    memory: MemoryBooks = field(default_factory=MemoryBooks)
    devices: DeviceBooks = field(default_factory=DeviceBooks)
    pods: Mapping[str, PodRecord] = field(default_factory=dict)
    others: Mapping[str, Mapping[str, Mapping[str, tuple[str, ...]]]] = field(default_factory=dict)

    def holds(self, uid: str) -> bool:
        """Whether a pod holds anything that lies somewhere."""
        cpus = self.cpus
        books = (cpus.assigned, cpus.pools, cpus.confined, self.memory.blocks, self.devices.held)
        return any(book.get(uid) for book in books)

    def grant(self, uid: str, container: str) -> Grant:
        """What a container holds; an empty grant when it is unknown."""
        blocks = self.memory.blocks.get(uid, {}).get(container, ())
        mems = NodeSet.union(block.nodes for block in blocks)
        return Grant(
            cpus=self.cpus.assigned.get(uid, {}).get(container),
            mems=mems or None,
            memory=blocks,
            devices=self.devices.held.get(uid, {}).get(container, {}),
        )
