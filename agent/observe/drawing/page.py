"""The page: title, the machine, and what is beside or below it.

Called by `draw`.
"""

from __future__ import annotations

from agent.observe.drawing.boxes import Box, Grid, TextLine
from agent.observe.drawing.layout import machine_box
from agent.observe.drawing.scene import Scene
from agent.observe.drawing.side import WIDE, heat_box, holder_boxes, legend_box
from agent.observe.drawing.text import clean, fit, width
from agent.observe.drawing.words import headline

MARGIN, STROKE = 18, 2
"""Around the page; around a bare one, so that lines at its edge are whole."""
MOST_BESIDE = 900
"""A bare machine that is wider has the rest below it: the window's width is the machine's."""
TITLE, SUBTITLE = 18, 12
"""Sizes of fonts."""


def page_box(scene: Scene, *, bare: bool = False) -> Box:
    """Return everything, measured and placed at 0, 0; bare: without title and pods, which the page around it has."""
    machine = machine_box(scene)
    below: list[Grid] = []
    beside = _beside(scene, pods=not bare)
    if scene.holders and not bare:
        across = max(1, int((machine.w + WIDE) // (WIDE + 20)))
        under = _pods(scene, across).measure().h
        if max(machine.h, Box("plain", grids=[Grid(beside)], pad=0, gap=18).measure().h) > machine.h + under:
            beside = _beside(scene, pods=False)
            below = [Grid([_pods(scene, across)])]
    if bare and machine.w > MOST_BESIDE:
        body = Grid([machine], fill=False)
        below = [Grid(beside, len(beside), gap=40, fill=False, even=False)]
        return _placed([], [body, *below], STROKE)
    column = Box("plain", grids=[Grid([box], fill=False) for box in beside], pad=0, gap=18, wide=WIDE).measure()
    body = Grid([machine, column], 2, gap=24, fill=False, even=False)
    head = [] if bare else _head(scene, body.size()[0])
    return _placed(head, [body, *below], STROKE if bare else MARGIN)


def _placed(head: list[TextLine], grids: list[Grid], margin: float) -> Box:
    page = Box("page", head, grids, pad=margin, gap=14, round=8).measure()
    page.place(0, 0, page.w, page.h)
    return page


def _beside(scene: Scene, *, pods: bool) -> list[Box]:
    """The column beside the machine, from above."""
    heat = heat_box(scene)
    return [*([heat] if heat else []), legend_box(scene), *([_pods(scene, 1)] if pods and scene.holders else [])]


def _pods(scene: Scene, across: int) -> Box:
    return Box(
        "plain",
        [TextLine("What each pod holds", bold=True)],
        [Grid(holder_boxes(scene), across, 9, fill=False)],
        pad=0,
    )


def _head(scene: Scene, room: float) -> list[TextLine]:
    """Title and one line about the machine, in as many lines as it takes."""
    name = clean(scene.machine.name) or "machine"
    lines = [TextLine(fit(name, TITLE, room, bold=True), size=TITLE, bold=True)]
    here = ""
    for part in headline(scene.machine).split(", "):
        if here and width(f"{here}, {part}", SUBTITLE) > room:
            lines.append(TextLine(here + ",", size=SUBTITLE, look="d"))
            here = part
        else:
            here = f"{here}, {part}" if here else part
    return [*lines, TextLine(here, size=SUBTITLE, look="d")]
