"""A node's memory as a bar: what the system keeps, what each pod has, what is free, and the huge pages beside it.

Called by `layout`. Lengths are in proportion within a node; a share that is there is never thinner than a hair.
"""

from __future__ import annotations

from collections.abc import Iterator

from agent.model.machine import MemoryKind, NumaNode
from agent.model.quantity import show_bytes
from agent.observe.drawing.boxes import Box, Share, TextLine
from agent.observe.drawing.scene import Scene
from agent.observe.drawing.words import MEMORY_WORDS, pages, size

HAIR = 0.012
"""Least share of the bar."""


def memory_bar(scene: Scene, node: NumaNode) -> Box:
    """The bar of a node with its line of text."""
    word = MEMORY_WORDS[node.kind]
    text = f"{size(node.memory)}{' ' + word if word else ''}" if node.memory else "no memory"
    huge = pages(node.hugepages)
    tip = f"{size(node.memory)} of {word or 'memory'}{f', of which huge pages: {huge}' if huge else ''}"
    shares = list(_even(_shares(scene, node)))
    granted = sum(bytes_ for _, found in scene.on_node(node) for bytes_ in found.values())
    lines = [TextLine(text, f"{size(granted)} granted" if granted else "", size=10, look="d")]
    if huge and granted:
        lines.append(TextLine("huge pages", huge, size=10, look="d"))
    elif huge:
        lines[0].right = f"huge pages {huge}"
    height = 9 if node.kind is not MemoryKind.NONE or node.memory else 0
    return Box(
        "plain", lines, tip=tip, pad=0, gap=2, bar=shares if height else [],
        bar_height=height, wide=110,
    )  # fmt: skip


def _shares(scene: Scene, node: NumaNode) -> Iterator[Share]:
    """Per resource: what the system keeps, each holder's part, grants that no holder's books name, the rest."""
    total = max(1, node.memory)
    book = scene.book(node)
    for resource, amount in node.resources.items():
        if amount <= 0:
            continue
        huge = resource != "memory"
        what = resource if huge else "memory"
        left = amount
        system = min(left, book.system.get(resource, 0)) if book else 0
        if system:
            yield Share(system / total, "kept", tip=f"{size(system)} of {what} kept for the system")
            left -= system
        known = 0
        for holder, found in scene.on_node(node):
            part = min(left, found.get(resource, 0))
            if part:
                yield Share(part / total, "held", holder.number, f"{size(part)} of {what} for {holder.name}")
                left, known = left - part, known + part
        others = min(left, max(0, (book.reserved.get(resource, 0) if book else 0) - known))
        if others:
            yield Share(others / total, "small", tip=f"{size(others)} of {what} granted over several nodes")
            left -= others
        if left:
            yield Share(left / total, "huge" if huge else "", tip=f"{show_bytes(left)} of {what} free")


def _even(shares: Iterator[Share]) -> Iterator[Share]:
    """Widen what would not be seen, at the cost of the others."""
    found = list(shares)
    total = sum(max(HAIR, share.part) for share in found) or 1
    for share in found:
        share.part = max(HAIR, share.part) / total
        yield share
