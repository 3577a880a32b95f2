"""The drawing of a machine: a picture (SVG text) from values, without files, clock or network.

Called by `numalign topology --output svg`, by the live page and for the README. From a machine to a picture:

    units    what contains what            holders  what each pod holds, from the ledger (scene: both together)
    layout   units as boxes (memory, chips, side: the parts of it; fold: equal neighbours become one)
    boxes    sizes and places              paint    SVG text (look: colours; text: widths; words: names)

Terms: a *unit* is a part of the machine that contains others; a *holder* is a pod that holds something; a *box* is a
rectangle with lines of text and grids of boxes; a *tip* is what the pointer and a screen reader get.

A box's size is found from the inside out, its place from the outside in. Colour is never the only sign. The picture
changes with the machine and the ledger alone, so that a kept picture can be compared byte by byte.
"""

from __future__ import annotations

from agent.model.idset import CpuSet
from agent.model.ledger import Ledger
from agent.model.machine import Machine
from agent.model.rules import Rules
from agent.observe.drawing.page import page_box
from agent.observe.drawing.paint import paint
from agent.observe.drawing.scene import Scene
from agent.observe.drawing.text import clean
from agent.observe.drawing.words import headline


def draw(
    machine: Machine, ledger: Ledger | None = None, *, reserved: CpuSet = CpuSet(), full: bool = False,
    bare: bool = False, rules: Rules | None = None,
) -> str:  # fmt: skip
    """The picture of a machine as SVG text; the same input gives the same text.

    Args:
        machine: what to draw.
        ledger: the grants on it; CPUs, nodes and devices that the machine does not have are left out.
        reserved: CPUs that the settings keep for the system.
        full: draw equal neighbours one by one on large machines too.
        bare: for the node page, which has the style sheet, the machine's name and the table of pods itself.
        rules: whether the devices of a pod are compared with each other (`pcieLocality`); None: they are not.

    Returns:
        A whole SVG document that needs nothing from elsewhere, light or dark as its viewer prefers.
    """
    scene = Scene(machine, ledger, full=full, reserved=reserved, rules=rules)
    page = page_box(scene, bare=bare)
    held = f" {len(scene.holders)} pods hold CPUs, memory or devices." if scene.holders else ""
    about = f"{headline(machine)}.{held} Boxes in boxes: sockets, NUMA nodes, caches, cores, CPUs, devices."
    return paint(page, f"Topology of {clean(machine.name) or 'a machine'}", about, bare=bare)
