"""Boxes: what there is to draw, how large it must be, and where it lies.

Made by `layout` and `side`, placed here, painted by `paint`. A box has lines of text, then grids of boxes below each
other. Sizes are found from the inside out (`measure`), places from the outside in (`place`): a box may get more room
than it needs, never less, so boxes lie inside their parents, beside their siblings, and texts inside both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from agent.observe.drawing.text import fit, width

LINE = 1.4
"""Height of a line of text in units of its size."""
SPACE = 8
"""Least room between the left and the right text of a line."""
RIGHT_MOST = 190
"""The right text of a line widens its box to no more than this; beyond, it is shortened."""


@dataclass(slots=True)
class TextLine:
    """A line of text: what is on the left is never shortened, what is on the right is where it must be.

    Attributes:
        size: of the font, in pixels.
        look: class of the left text ("t" ink, "d" dim, "warn"); the right text is dim.
        inset: room for an icon or a swatch on the left.
        centre: the left text stands in the middle.
    """

    left: str
    right: str = ""
    size: float = 11
    bold: bool = False
    look: str = "t"
    inset: float = 0
    centre: bool = False

    @property
    def height(self) -> float:
        """Of the line."""
        return self.size * LINE

    def least(self) -> float:
        """Width that it needs."""
        left = self.inset + width(self.left, self.size, bold=self.bold)
        return left + SPACE + min(RIGHT_MOST, width(self.right, self.size)) if self.right else left

    def shorten(self, room: float) -> None:
        """Cut the right text to what is left of the room."""
        if self.right:
            left = self.inset + width(self.left, self.size, bold=self.bold)
            self.right = fit(self.right, self.size, room - left - SPACE)


@dataclass(slots=True)
class Share:
    """A part of a bar.

    Attributes:
        part: its share of the whole, 0 to 1.
        look: class of what it is; "" for free.
        holder: number of the pod that holds it, or None.
    """

    part: float
    look: str = ""
    holder: int | None = None
    tip: str = ""


@dataclass(slots=True)
class Grid:
    """Boxes in rows and columns.

    Attributes:
        columns: how many beside each other.
        fill: whether they share the whole width of their box, or stay as narrow as they can be.
        even: whether all columns are equally wide.
        stretch: columns get no wider than so many times their least width.
    """

    boxes: list[Box]
    columns: int = 1
    gap: float = 6
    fill: bool = True
    even: bool = True
    stretch: float = math.inf

    def rows(self) -> list[list[Box]]:
        """The boxes row by row."""
        return [self.boxes[at : at + self.columns] for at in range(0, len(self.boxes), self.columns)]

    def widths(self, room: float = 0) -> list[float]:
        """Width of each column: the least, or what the room gives where they fill it."""
        across = min(self.columns, len(self.boxes))
        least = [max(box.w for box in self.boxes[at :: self.columns]) for at in range(across)]
        if self.even:
            least = [max(least)] * across
        more = (room - sum(least) - self.gap * (across - 1)) / across if self.fill and room else 0
        return [min(each + max(0, more), each * self.stretch) for each in least]

    def size(self) -> tuple[float, float]:
        """Least width and height of all of it."""
        rows, across = self.rows(), self.widths()
        high = sum(max(box.h for box in row) for row in rows) + self.gap * (len(rows) - 1)
        return sum(across) + self.gap * (len(across) - 1), high

    def place(self, left: float, top: float, room: float, more: float = 0) -> float:
        """Place the boxes; returns the height used. The rows share what height there is more than they need."""
        across = self.widths(room)
        at = top
        for row in self.rows():
            high = max(box.h for box in row) + more / len(self.rows())
            x = left
            for box, w in zip(row, across, strict=False):
                box.place(x, at, w, high)
                x += w + self.gap
            at += high + self.gap
        return at - self.gap - top


@dataclass(slots=True)
class Box:
    """Something to draw.

    Attributes:
        kind: class of its rectangle.
        lines: texts at its top.
        grids: what is inside, below the lines.
        tip: what a mouse pointer over it tells, and a screen reader.
        pad: room around what is inside.
        holder: number of the pod that holds it, or None.
        letter: of that pod, for its sample in the legend.
        key: what it is, for a page around the drawing: "cpu-7", "node-1", "device-0000:03:00.0".
        icon: of a device.
        bar: shares of a memory bar at its bottom, with its height in `bar_height`.
        heat: 0 to 1 for a field of the heat map.
        swatch: class of a sample in the legend, drawn at the left of the first line.
        round: radius of the corners.
        marks: further classes.
        middle: its lines stand in the middle of its height.
        grow: what is inside takes the height that the box has more than it needs.
        wide, high: it is never smaller than that.
        x, y, w, h: where it lies; w and h are the least size until `place`.
    """

    kind: str
    lines: list[TextLine] = field(default_factory=list)
    grids: list[Grid] = field(default_factory=list)
    tip: str = ""
    pad: float = 6
    holder: int | None = None
    letter: str = ""
    key: str = ""
    icon: str | None = None
    bar: list[Share] = field(default_factory=list)
    bar_height: float = 0
    heat: float | None = None
    swatch: str = ""
    round: float = 4
    marks: str = ""
    middle: bool = False
    grow: bool = False
    wide: float = 0
    high: float = 0
    x: float = 0
    y: float = 0
    w: float = 0
    h: float = 0
    gap: float = 6

    def measure(self) -> Box:
        """Find the least size of the box and all in it; returns itself."""
        for grid in self.grids:
            for box in grid.boxes:
                box.measure()
        self.grids = [grid for grid in self.grids if grid.boxes]
        sizes = [grid.size() for grid in self.grids]
        inner = max([line.least() for line in self.lines] + [w for w, _ in sizes], default=0)
        self.w = math.ceil(max(self.wide, inner + 2 * self.pad))
        heights = [h for _, h in sizes] + ([self.bar_height] if self.bar_height else [])
        text = sum(line.height for line in self.lines)
        gaps = self.gap * max(0, len(heights) - (0 if self.lines else 1))
        self.h = math.ceil(max(self.high, text + sum(heights) + gaps + 2 * self.pad))
        return self

    @property
    def top(self) -> float:
        """Where its first line starts."""
        text = sum(line.height for line in self.lines)
        return self.y + (max(self.pad, (self.h - text) / 2) if self.middle else self.pad)

    def place(self, x: float, y: float, w: float, h: float) -> None:
        """Give the box its place and arrange what is in it; w and h are at least the measured size."""
        more = h - self.h if self.grow else 0
        self.x = x
        self.y = y
        self.w = w
        self.h = h
        room = w - 2 * self.pad
        for line in self.lines:
            line.shorten(room)
        top = y + self.pad + sum(line.height for line in self.lines)
        for number, grid in enumerate(self.grids):
            if number or self.lines:
                top += self.gap
            top += grid.place(x + self.pad, top, room, 0 if number else more)


def columns(boxes: list[Box], gap: float, shape: float, *, room: float = 0, most: float = math.inf) -> int:
    """How many columns make measured boxes closest to a shape, without gaps in the last row if possible.

    Args:
        boxes: what is to be arranged, one at least.
        gap: between them.
        shape: wanted width / height.
        room: width that is there anyway: no more rows than it takes to use that.
        most: width not to exceed.
    """
    number = len(boxes)
    w, h = max(box.w for box in boxes), max(box.h for box in boxes)
    fitting = max(1, min(number, int((room + gap) // (w + gap))))
    rows = -(-number // fitting)

    def badness(across: int) -> tuple[float, int]:
        down = -(-number // across)
        wide, high = across * (w + gap) - gap, down * (h + gap) - gap
        empty = (across * down - number) / (across * down)
        too_wide = max(0.0, wide / max(most, room) - 1) * 10 if across > 1 else 0.0
        return abs(math.log(wide / high / shape)) + 4 * empty + too_wide, across

    return min((c for c in range(1, number + 1) if -(-number // c) <= rows), key=badness)
