"""From placed boxes to SVG text.

Called by `draw`. One file with everything in it: no font, style sheet, image or script from anywhere else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.sax.saxutils import escape, quoteattr

from agent.observe.drawing.boxes import Box
from agent.observe.drawing.look import ICONS, STYLES, patterns, sheet, style_of
from agent.observe.drawing.text import clean

BASELINE = 1.05
"""From the top of a line to where its letters stand, in units of its size."""
SAMPLE = 26.0
"""Width of a sample in the legend."""
PATTERNED = ("kept", "huge")
"""Looks that have a pattern of their own name."""

Place = tuple[float, float, float, float]
"""x, y, width, height."""


def paint(page: Box, title: str, about: str, *, bare: bool = False) -> str:
    """The picture of a placed page.

    Args:
        page: the outermost box, at 0, 0.
        title: its name, for screen readers and for search.
        about: what is on it, in sentences.
        bare: without the style sheet, which the page around it then has.
    """
    w, h = _number(page.w), _number(page.h)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="nl" role="img" aria-labelledby="nl-title nl-about" '
        f'width="{w}" height="{h}" viewBox="0 0 {w} {h}">'
        f'<title id="nl-title">{escape(clean(title))}</title><desc id="nl-about">{escape(clean(about))}</desc>'
    )
    if not bare:
        head += f"<style>{sheet()}</style>"
    body = "".join(_box(page))
    used = sorted(set(re.findall(r"url\(#nl-(\w+)\)", body)))
    return f"{head}<defs>{patterns(used)}</defs>{body}</svg>\n"


def _box(box: Box) -> Iterator[str]:
    """Return the group of a box: its tip, its rectangle, its texts, what is inside.

    data-key names the thing, data-holder is the number of the pod that holds it.
    """
    yield f"<g{_data('key', box.key)}{_data('holder', box.holder)}>"
    if box.tip:
        yield f"<title>{escape(clean(box.tip))}</title>"
    yield from _rectangle(box)
    if box.bar:
        yield from _bar(box)
    if box.swatch:
        yield from _swatch(box)
    if box.icon is not None:
        yield _icon(box)
    yield from _lines(box)
    for grid in box.grids:
        for inner in grid.boxes:
            yield from _box(inner)
    yield "</g>"


def _data(name: str, value: str | int | None) -> str:
    return f" data-{name}={quoteattr(clean(str(value)))}" if value not in (None, "") else ""


def _rect(kind: str, place: Place, *, radius: float = 0, extra: str = "") -> str:
    x, y, w, h = map(_number, place)
    corner = f' rx="{_number(radius)}"' if radius else ""
    return f'<rect class="{kind}" x="{x}" y="{y}" width="{w}" height="{h}"{corner}{extra}/>'


def _pattern(name: str, place: Place, radius: float = 0) -> str:
    return _rect("o", place, radius=radius, extra=f' fill="url(#nl-{name})"')


def _rectangle(box: Box) -> Iterator[str]:
    if box.kind == "plain":
        return
    place = (box.x, box.y, box.w, box.h)
    heat = f' fill-opacity="{_number(box.heat)}"' if box.heat is not None else ""
    yield _rect(f"{box.kind} {box.marks}".strip(), place, radius=box.round, extra=heat)
    if box.holder is not None:
        yield from _held(box.holder, place, box.round)
    elif box.kind == "kept":
        yield _pattern("kept", place, box.round)
    elif "pooled" in box.marks:
        yield _pattern("pooled", place, box.round)
    elif "small" in box.marks:
        yield _pattern("small", place, box.round)


def _held(number: int, place: Place, radius: float = 0) -> Iterator[str]:
    """Colour and pattern of a pod."""
    yield _rect(f"c{style_of(number)[0]}", place, radius=radius)
    yield _pattern(f"p{number % STYLES}", place, radius)


def _bar(box: Box) -> Iterator[str]:
    """The shares of a bar from left to right, below the text."""
    y = box.y + box.pad + sum(line.height for line in box.lines) + box.gap
    at, room = box.x + box.pad, box.w - 2 * box.pad
    yield f"<g>{_rect('bar', (at, y, room, box.bar_height))}"
    for share in box.bar:
        place = (at, y, share.part * room, box.bar_height)
        yield f"<g{_data('holder', share.holder)}><title>{escape(clean(share.tip))}</title>"
        if share.holder is not None:
            yield from _held(share.holder, place)
        else:
            yield _rect(share.look or "o", place, extra="" if share.look else ' fill="none"')
            yield _pattern(share.look, place) if share.look in PATTERNED else ""
        yield "</g>"
        at += place[2]
    yield "</g>"


def _swatch(box: Box) -> Iterator[str]:
    """Return the sample of a row of the legend, as large as the thing itself."""
    kind, _, marks = box.swatch.partition(" ")
    high = 9.0 if kind in ("bar", "huge") else 14.0
    place = (box.x + box.pad, box.y + box.pad + (15 - high) / 2, SAMPLE, high)
    yield "<g>"
    if box.holder is None:
        yield _rect(f"bar {kind}" if kind == "huge" else box.swatch, place, radius=2)
        yield _pattern(kind, place, 2) if kind in PATTERNED else ""
        yield _pattern(marks, place, 2) if marks in ("small", "pooled") else ""
    else:
        colour = style_of(box.holder)[0]
        yield from _held(box.holder, place, 2)
        yield _write(box.letter, place[0] + SAMPLE / 2, place[1] + 10.5, 9, f"m b halo i{colour} h{colour}")
    yield "</g>"


def _icon(box: Box) -> str:
    look = f"ico s{style_of(box.holder)[0]}" if box.holder is not None else "ico"
    x, y = _number(box.x + box.pad), _number(box.y + box.pad + 0.5)
    return f'<path class="{look}" transform="translate({x} {y})" d="{ICONS.get(box.icon or "", ICONS[""])}"/>'


def _lines(box: Box) -> Iterator[str]:
    top = box.top
    for line in box.lines:
        y = top + line.size * BASELINE
        look = line.look
        if box.holder is not None and not box.swatch:
            colour = style_of(box.holder)[0]
            look = f"halo i{colour} h{colour}"
        bold = " b" if line.bold else ""
        if line.left and line.centre:
            yield _write(line.left, box.x + box.w / 2, y, line.size, f"m {look}{bold}")
        elif line.left:
            yield _write(line.left, box.x + box.pad + line.inset, y, line.size, f"{look}{bold}")
        if line.right:
            x = box.x + box.w - box.pad if line.left else box.x + box.pad + line.inset
            yield _write(line.right, x, y, line.size, "e d" if line.left else "d")
        top += line.height


def _write(text: str, x: float, y: float, size: float, kind: str) -> str:
    place = f'x="{_number(x)}" y="{_number(y)}" font-size="{_number(size)}"'
    return f'<text class="{kind}" {place}>{escape(clean(text))}</text>'


def _number(value: float) -> str:
    """Two decimals at most: a hundredth of a pixel is below what is seen."""
    return f"{value:.2f}".rstrip("0").rstrip(".")
