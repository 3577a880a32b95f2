"""What each pod holds, from the ledger: for the colours of the drawing and the lines of the tree.

Used by the drawing and by `agent.observe.tree`. One entry per pod: containers of a pod may use the same CPUs one
after the other (init containers), so that a CPU belongs to one pod but not always to one container.
"""

from __future__ import annotations

import string
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from agent.core.request.mixed import parts_of
from agent.model.idset import CpuSet, NodeSet
from agent.model.ledger import Block, Ledger, by_node
from agent.model.ledgerjson import POOL
from agent.observe.drawing.text import clean
from agent.observe.drawing.words import cpu_list, size


@dataclass(frozen=True, slots=True)
class Holder:
    """What one pod holds.

    Attributes:
        number: its place in the order of admission, from 0: decides colour and pattern.
        name: namespace/name; the uid where nothing else is known.
        cpus: exclusive CPUs.
        confined: nodes on whose shared CPUs it is kept.
        memory: node -> resource -> bytes, where the books say which node gives them.
        over: what a group of nodes gives together, where the books keep the sum alone.
        devices: ids, sorted.
        containers: one line per container that holds something.
        aligned: whether all of it lies as the policy wants; None where that is unknown.
    """

    number: int
    uid: str
    name: str
    cpus: CpuSet = CpuSet()
    confined: NodeSet = NodeSet()
    memory: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    over: tuple[Block, ...] = ()
    devices: tuple[str, ...] = ()
    containers: tuple[str, ...] = ()
    aligned: bool | None = None

    @property
    def key(self) -> str:
        """A, B, ... Z, AA, AB, ...: the pod's third sign, beside colour and pattern."""
        text, left = "", self.number + 1
        while left:
            left, digit = divmod(left - 1, 26)
            text = string.ascii_uppercase[digit] + text
        return text

    @property
    def sign(self) -> str:
        """The key, with "!" where not all of it lies as its policy wants."""
        return self.key + ("!" if self.aligned is False else "")

    @property
    def nodes(self) -> NodeSet:
        """The nodes that its memory comes from or may come from, and those that it is confined to."""
        over = NodeSet.union(block.nodes for block in self.over)
        return NodeSet.from_ids(self.memory) | over | self.confined


def holders(ledger: Ledger) -> tuple[Holder, ...]:
    """Every pod that holds something, in the order of admission (time of creation, then uid)."""
    cpus, memory = ledger.cpus, ledger.memory
    uids = {*cpus.assigned, *cpus.pools, *cpus.confined, *memory.blocks, *memory.pools, *ledger.devices.held}
    found = [holder for uid in sorted(uids, key=lambda uid: _order(ledger, uid)) if (holder := _holder(ledger, uid))]
    return tuple(replace(holder, number=number) for number, holder in enumerate(found))


def _order(ledger: Ledger, uid: str) -> tuple[float, str]:
    record = ledger.pods.get(uid)
    return (record.pod.created if record else 0.0, uid)


def _holder(ledger: Ledger, uid: str) -> Holder | None:
    record = ledger.pods.get(uid)
    assigned = ledger.cpus.assigned.get(uid, {})
    held = ledger.devices.held.get(uid, {})
    confined = ledger.cpus.confined.get(uid)
    blocks = tuple(_blocks(ledger, uid))
    known = by_node(blocks)
    if confined:
        for node, amount in confined.limit:
            known.setdefault(node, {}).setdefault("memory", 0)
            known[node]["memory"] += amount
    holder = Holder(
        number=0,
        uid=uid,
        name=clean(record.pod.key if record else uid),
        cpus=CpuSet.union([*assigned.values(), ledger.cpus.pools.get(uid, CpuSet())]),
        confined=confined.nodes if confined else NodeSet(),
        memory=known,
        over=tuple(block for block in blocks if block.size and not block.parts),
        devices=tuple(sorted({i for by_resource in held.values() for ids in by_resource.values() for i in ids})),
        containers=tuple(_containers(ledger, uid)),
        aligned=record.is_aligned if record and record.aligned else None,
    )
    return holder if holder.cpus or holder.confined or blocks or holder.devices else None


def _blocks(ledger: Ledger, uid: str) -> Iterator[Block]:
    """A pod managed as a whole has its pool; its containers' shares are parts of that."""
    pool = ledger.memory.pools.get(uid)
    if pool is not None:
        yield from pool
        return
    for _, blocks in sorted(ledger.memory.blocks.get(uid, {}).items()):
        yield from blocks


def _containers(ledger: Ledger, uid: str) -> Iterator[str]:
    assigned, held = ledger.cpus.assigned.get(uid, {}), ledger.devices.held.get(uid, {})
    blocks, beside = ledger.memory.blocks.get(uid, {}), parts_of(ledger, uid)
    for name in sorted({*assigned, *held, *blocks}):
        mine = assigned.get(name, CpuSet())
        parts = [cpu_list(mine)] if mine else []
        if name in beside:
            parts.append(f"shared CPUs {beside[name]}" if beside[name] != POOL else "shared pool")
        parts += [text for block in blocks.get(name, ()) if block.size for text in _from(block)]
        parts += [", ".join(ids) for _, ids in sorted(held.get(name, {}).items()) if ids]
        if parts:
            yield clean(f"{name}: {', '.join(parts)}")


def _from(block: Block) -> Iterator[str]:
    """As "4Gi on node 0", or over which nodes where the books keep a sum."""
    what = "" if block.resource == "memory" else f"{block.resource} "
    if block.parts:
        yield from (f"{size(part)} {what}on node {node}" for node, part in block.parts)
    else:
        yield f"{size(block.size)} {what}over nodes {block.nodes}"
