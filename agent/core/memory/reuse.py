"""What finished init containers leave to later containers of their pod (kubelet rule 5.8).

Used by `agent.core.memory.provider`. A regular init container has ended before anything listed after it runs, so its
memory is taken over on the same nodes instead of taken again, and its block shrinks by that: the blocks of a pod
always add up to what was taken. The kubelet keeps a second account of what may be reused, beside the blocks, for as
long as no other pod is admitted; both agree except after restarts and removals, where its books go wrong. Under
Compatibility.FIXED the blocks are the only account; under KUBELET both must allow it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from agent.core.memory.books import Split, cut
from agent.model.idset import NodeSet
from agent.model.ledger import Block, MemoryBooks
from agent.model.pod import Container, ContainerKind, Pod

Key = tuple[NodeSet, str]
Leftovers = dict[Key, int]
"""Bytes that may be reused, by nodes and resource."""

PodBlocks = dict[str, tuple[Block, ...]]


def inits_before(pod: Pod, container: Container) -> list[str]:
    """The regular init containers listed before a container, in order."""
    names = []
    for each in pod.containers:
        if each.name == container.name:
            break
        if each.kind is ContainerKind.INIT:
            names.append(each.name)
    return names


def left_in_blocks(books: MemoryBooks, pod: Pod, container: Container) -> Leftovers:
    """What the blocks of earlier init containers still have."""
    left: Leftovers = {}
    held = books.blocks.get(pod.uid, {})
    for name in inits_before(pod, container) if held else ():
        for block in held.get(name, ()):
            left[block.nodes, block.resource] = left.get((block.nodes, block.resource), 0) + block.size
    return left


def kubelets_account(books: MemoryBooks, pod: Pod) -> Mapping[Key, int]:
    """The kubelet's second account, empty after another pod's admission."""
    return books.reusable[1] if books.reusable and books.reusable[0] == pod.uid else {}


def account_after(books: MemoryBooks, pod: Pod, container: Container, blocks: Iterable[Block]) -> MemoryBooks:
    """The kubelet's second account once a container has its blocks."""
    left = dict(kubelets_account(books, pod))
    for block in blocks:
        key = block.nodes, block.resource
        if container.kind is ContainerKind.INIT:
            left[key] = max(left.get(key, 0), block.size)
        elif left.get(key):
            left[key] = max(0, left[key] - block.size)
    return replace(books, reusable=(pod.uid, left))


def take_over(held: PodBlocks, inits: Iterable[str], key: Key, amount: int) -> Split:
    """Cut bytes out of the init containers' blocks, in their order; which node each byte lies on, where known.

    A block may shrink to nothing and stays: its container is still bound to its nodes.
    """
    gone = Split()
    for name in inits:
        shrunk = []
        for block in held.get(name, ()):
            part = min(amount, block.size) if (block.nodes, block.resource) == key else 0
            amount -= part
            rest, moved = cut(block, part)
            shrunk.append(rest)
            for node, moved_bytes in moved.items():
                gone[node] = gone.get(node, 0) + moved_bytes
        if name in held:
            held[name] = tuple(shrunk)
    return gone
