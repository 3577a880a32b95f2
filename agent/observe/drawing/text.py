"""How wide a text is, so that it fits its box without a font at hand.

Used by `boxes` and `paint`. The widths are those of DejaVu Sans (thousandths of the size), wider than Arial,
Helvetica and most system fonts: what fits by this table fits by theirs.
"""

from __future__ import annotations

import unicodedata

_FIRST = 32
_PLAIN = (
    318, 401, 460, 838, 636, 950, 780, 275, 390, 390, 500, 838, 318, 361, 318, 337, 636, 636, 636,
    636, 636, 636, 636, 636, 636, 636, 337, 337, 838, 838, 838, 531, 1000, 684, 686, 698, 770, 632,
    575, 775, 752, 295, 295, 656, 557, 863, 748, 787, 603, 787, 695, 635, 611, 732, 684, 989, 685,
    611, 685, 390, 337, 390, 838, 500, 500, 613, 635, 550, 635, 615, 352, 635, 634, 278, 278, 579,
    278, 974, 634, 612, 635, 635, 411, 521, 392, 634, 592, 818, 592, 592, 525, 636, 337, 636, 838,
)  # fmt: skip
_BOLD = (
    348, 456, 521, 838, 696, 1002, 872, 306, 457, 457, 523, 838, 380, 415, 380, 365, 696, 696, 696,
    696, 696, 696, 696, 696, 696, 696, 400, 400, 838, 838, 838, 580, 1000, 774, 762, 734, 830, 683,
    683, 821, 837, 372, 372, 775, 637, 995, 837, 850, 733, 850, 770, 720, 682, 812, 774, 1103, 771,
    724, 725, 457, 365, 457, 838, 500, 500, 675, 716, 593, 716, 678, 435, 716, 712, 343, 343, 665,
    343, 1042, 712, 687, 716, 716, 493, 595, 478, 712, 652, 924, 645, 652, 582, 712, 365, 712, 838,
)  # fmt: skip
_OTHERS = {"·": 380, "–": 500}  # anything else outside ASCII is taken as a full square
_FULL = 1000
DOTS = "…"


def width(text: str, size: float, *, bold: bool = False) -> float:
    """Width of one line of text in pixels, never less than what a browser needs with the fonts of the drawing."""
    table = _BOLD if bold else _PLAIN
    total = 0
    for char in text:
        at = ord(char) - _FIRST
        total += table[at] if 0 <= at < len(table) else _OTHERS.get(char, _FULL)
    return total * size / 1000


def fit(text: str, size: float, room: float, *, bold: bool = False) -> str:
    """The text, or its start and an ellipsis where it is wider than the room; "" where not even that fits."""
    if width(text, size, bold=bold) <= room:
        return text
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        if width(text[:middle].rstrip() + DOTS, size, bold=bold) <= room:
            low = middle
        else:
            high = middle - 1
    return text[:low].rstrip(" ,-·") + DOTS if low else ""


def wrap(text: str, size: float, room: float) -> list[str]:
    """The text in lines, broken after ", "; a part that is wider than the room by itself is shortened."""
    lines: list[str] = []
    for part in text.split(", "):
        if lines and width(f"{lines[-1]}, {part},", size) <= room:
            lines[-1] += f", {part}"
        else:
            lines.append(fit(part, size, room - width(",", size)))
    return [f"{line}," for line in lines[:-1]] + lines[-1:]


def clean(text: str) -> str:
    """One line of characters that XML may hold: names come from files, and files may hold anything.

    Control, format, surrogate and unassigned characters become a visible replacement (XML 1.0, "Char"; a
    right-to-left override could make a name read as another).
    """
    return "".join("\ufffd" if unicodedata.category(char).startswith("C") else char for char in text)
