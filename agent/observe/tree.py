"""A machine as text for a terminal: a tree, the distances as a matrix with heat, and what each pod holds.

Called by `numalign topology`. Made with rich, which knows about colours, NO_COLOR, widths and pipes; what is the same
in the picture (words, folding, holders) comes from `agent.observe.drawing`.
"""

from __future__ import annotations

from collections.abc import Iterator

from rich.color import Color
from rich.console import RenderableType
from rich.style import Style
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from agent.model.idset import CpuSet, NodeSet
from agent.model.ledger import Ledger
from agent.model.machine import Machine, NumaNode, PciDevice
from agent.observe.drawing.fold import runs, same_as
from agent.observe.drawing.holders import Holder
from agent.observe.drawing.look import COLOURS, style_of
from agent.observe.drawing.scene import Scene
from agent.observe.drawing.text import clean
from agent.observe.drawing.units import Unit, UnitKind, units
from agent.observe.drawing.words import (
    MEMORY_WORDS,
    cores,
    count,
    cpu_list,
    device_kind,
    headline,
    pages,
    short_address,
    size,
)

FOLD_OVER = 8
"""Nodes, or L3 caches, above which equal neighbours become one line."""
MATRIX_UP_TO = 20
"""Nodes above which the distances become a sentence, unless all is asked for."""
NEAR, FAR = (219, 233, 244), (0, 114, 178)
"""Colours of the least and of the greatest distance."""
DIM = "bright_black"


def tree(machine: Machine, ledger: Ledger | None = None, *, full: bool = False) -> Iterator[RenderableType]:
    """Return what to print, in this order: the tree, the distances, what each pod holds, what was odd.

    Args:
        machine: what to show.
        ledger: the grants on it.
        full: every core and device on a line of its own, equal units and the whole matrix too.
    """
    scene = Scene(machine, ledger, full=full, fold_over=FOLD_OVER)
    root = units(machine)
    name = Text().append(clean(machine.name) or "machine", style="bold")
    top = Tree(name.append(f"  {headline(machine)}"), guide_style=DIM)
    _below(scene, root, top)
    for text in _apart(machine):
        top.add(Text(text))
    yield top
    yield from _distances(machine, full=full)
    if scene.holders:
        yield Text("\nwhat each pod holds", style="bold")
        yield from (_told(holder) for holder in scene.holders)
    yield from (Text(f"warning: {clean(text)}", style="yellow") for text in machine.warnings)


def _below(scene: Scene, unit: Unit, branch: Tree) -> None:
    """What is in a unit: smaller units, cores, memory-only nodes, devices, holders."""
    inner = [child for child in unit.children if child.kind is not UnitKind.CORE]
    for text in () if _bare(scene, unit) else _core_lines(scene, unit):
        branch.add(text)
    for run in runs(inner, scene.special) if scene.folds else ([child] for child in inner):
        _below(scene, run[0], branch.add(_label(scene, run[0])))
        if len(run) > 1:
            branch.add(Text(", ".join(same_as(run)), style="italic"))
    for text in _devices(scene, unit):
        branch.add(text)
    if unit.node:
        for text in _on_node(scene, unit.node):
            branch.add(text)


def _label(scene: Scene, unit: Unit) -> Text:
    if unit.cache:
        text = Text(unit.label + (f" {size(unit.cache.size)}" if unit.cache.size else ""))
        part = " (part)" if unit.part else ""
        if _bare(scene, unit):
            return text.append(part + "  ").append_text(next(_core_lines(scene, unit)))
        return text.append(f"  {cpu_list(unit.cpus)}{part}", style=DIM)
    text = Text().append(unit.label, style="bold" if unit.node else "")
    text.append(f"  {cpu_list(unit.cpus)}", style="cyan" if unit.cpus else DIM)
    return text.append_text(_memory(scene, unit.node)) if unit.node else text


def _bare(scene: Scene, unit: Unit) -> bool:
    """Return True if a cache holds one line of cores and nothing else, so that both fit on one line."""
    only_cores = all(child.kind is UnitKind.CORE for child in unit.children)
    return bool(unit.cache) and only_cores and len(list(_core_lines(scene, unit))) == 1


def _memory(scene: Scene, node: NumaNode) -> Text:
    word = MEMORY_WORDS[node.kind]
    text = Text().append(
        f"  {size(node.memory)}{' ' + word if word else ''}" if node.memory else "  no memory", style="green"
    )
    huge = pages(node.hugepages)
    granted = sum(amount for _, found in scene.on_node(node) for amount in found.values())
    about = [
        f"huge pages {huge}" if huge else "",
        f"{size(granted)} granted" if granted else "",
        f"nearest to node {node.initiators}" if node.initiators and not node.cpus else "",
        "movable only" if node.movable else "",
        "" if node.online else "not online",
    ]
    told = ", ".join(filter(None, about))
    return text.append(f"  {told}" if told else "", style=DIM)


def _core_lines(scene: Scene, unit: Unit) -> Iterator[Text]:
    """The cores that are directly in a unit: one line per kind, or one per core."""
    found = [child.cpus for child in unit.children if child.kind is UnitKind.CORE]
    if scene.full:
        for cpus in found:
            kind = scene.kinds.get(cpus.first, "")
            yield Text(f"{kind + ' ' if kind else ''}core  {'CPU' if len(cpus) == 1 else 'CPUs'} {cpus}")
        return
    for kind in sorted({scene.kinds.get(cpus.first, "") for cpus in found}, reverse=True):
        these = [cpus for cpus in found if scene.kinds.get(cpus.first, "") == kind]
        words = cores(scene.machine, CpuSet.union(these)).replace(" core", f" {kind} core" if kind else " core", 1)
        yield Text(f"{words}: {_siblings(these)}")


def _siblings(found: list[CpuSet]) -> str:
    """As "CPUs 0-7 with siblings 32-39": the first threads, then what shares the cores with them."""
    every = CpuSet.union(found)
    first = CpuSet.from_ids(cpus.first for cpus in found)
    rest = every - first
    if not rest:
        return cpu_list(every)
    if all(max(cpus) - cpus.first == len(cpus) - 1 for cpus in found):
        return f"CPUs {every}, siblings side by side"
    return f"CPUs {first} with siblings {rest}"


def _devices(scene: Scene, unit: Unit) -> Iterator[Text]:
    """A line per device that people give to pods; the rest is counted, or listed with --full."""
    groups: dict[tuple[str, str], list[PciDevice]] = {}
    others = 0
    for device in unit.devices:
        kind = device_kind(device)
        if not kind and not scene.full and device.address not in scene.of_device:
            others += 1
        elif device.physfn and not scene.full and device.address not in scene.of_device:
            groups.setdefault((kind, device.physfn), []).append(device)
        else:
            yield _device(scene, kind or f"class {device.class_code}", device, unit)
    for (kind, parent), found in groups.items():
        yield Text(f"{len(found)} {kind} VFs of {short_address(scene.machine, parent)}")
    if others:
        yield Text(f"{count(others, 'other PCI function')} (chipset, bridges)", style=DIM)


def _device(scene: Scene, kind: str, device: PciDevice, unit: Unit) -> Text:
    text = Text(f"{kind}{' VF' if device.physfn else ''} {short_address(scene.machine, device.address)}")
    about = f"  {device.vendor}:{device.device} {clean(device.driver)}".rstrip()
    text.append(about, style=DIM)
    if unit.kind is UnitKind.MACHINE:
        text.append(f"  near nodes {device.numa_nodes}" if device.numa_nodes else "  near no node", style=DIM)
    holder = scene.of_device.get(device.address)
    return text.append("  ").append_text(_mark(holder)) if holder else text


def _on_node(scene: Scene, node: NumaNode) -> Iterator[Text]:
    """Yield isolated and reserved CPUs, then what each pod holds of the node."""
    for word, cpus in (("isolated", scene.machine.isolated), ("reserved", scene.unpooled)):
        here = cpus & node.cpus
        if here:
            yield Text(f"{word}: {cpu_list(here)}", style="yellow")
    for holder in scene.holders:
        cpus, memory = holder.cpus & node.cpus, holder.memory.get(node.id, {})
        parts = [cpu_list(cpus)] if cpus else []
        if node.id in holder.confined:
            parts.append("shared CPUs")
        parts += [
            f"{size(amount)}{'' if r == 'memory' else ' ' + r}" for r, amount in sorted(memory.items()) if amount
        ]
        if parts:
            yield _mark(holder).append(f" {holder.name}: {', '.join(parts)}", style=Style())


def _mark(holder: Holder) -> Text:
    """The letter of a pod in its colour."""
    fill, ink = COLOURS[style_of(holder.number)[0]]
    return Text.assemble((f" {holder.key} ", Style(color=ink, bgcolor=fill, bold=True)))


def _told(holder: Holder) -> Text:
    text = _mark(holder).append(f" {holder.name}", style=Style(bold=True))
    text.append("  " + "; ".join(holder.containers) if holder.containers else "")
    if holder.confined:
        text.append(f"  on the shared CPUs of node {holder.confined}")
    return text.append("  not aligned as its policy wants" if holder.aligned is False else "", style="yellow")


def _apart(machine: Machine) -> Iterator[str]:
    if machine.offline:
        yield f"offline: {cpu_list(machine.offline)}"
    if machine.disallowed:
        yield f"not allowed to lstopo: {cpu_list(machine.disallowed)}"


def _distances(machine: Machine, *, full: bool) -> Iterator[RenderableType]:
    nodes = [node for node in machine.nodes if node.online and node.distances]
    if len(nodes) < 2 or len(nodes) != len(machine.nodes):  # noqa: PLR2004 - because one node is near itself
        return
    yield Text("\ndistances (10 is local)", style="bold")
    if len(nodes) > MATRIX_UP_TO and not full:
        yield _in_words(nodes)
        return
    table = Table(box=None, padding=(0, 0), pad_edge=False, show_header=True, header_style=DIM)
    table.add_column("", justify="right", style=DIM)
    numbers = [number for node in nodes for number in node.distances]
    for node in nodes:
        table.add_column(f" {node.id} ", justify="right", no_wrap=True)
    for node in nodes:
        table.add_row(f"{node.id} ", *(_heat(number, min(numbers), max(numbers)) for number in node.distances))
    yield table


def _in_words(nodes: list[NumaNode]) -> Text:
    """The first node's distances, grouped; and what there is in all."""
    first = nodes[0]
    groups: dict[int, list[int]] = {}
    for other, number in zip(nodes, first.distances, strict=True):
        groups.setdefault(number, []).append(other.id)
    told = "; ".join(f"{number} to {NodeSet.from_ids(ids)}" for number, ids in sorted(groups.items()))
    every = sorted({number for node in nodes for number in node.distances})
    return Text(f"from node {first.id}: {told}\nin all: {', '.join(map(str, every))}; --full shows the matrix")


def _heat(number: int, least: int, most: int) -> Text:
    part = (number - least) / (most - least) if most > least else 0.0
    red, green, blue = (round(a + (b - a) * part) for a, b in zip(NEAR, FAR, strict=True))
    ink = "#ffffff" if part > 0.5 else "#1b1f24"  # noqa: PLR2004 - because white reads better from here on
    return Text(f" {number} ", style=Style(color=ink, bgcolor=Color.from_rgb(red, green, blue)), justify="right")
