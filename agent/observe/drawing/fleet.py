"""The picture of a fleet: one tile per node, from values. Pure; one SVG that needs no other file, light or dark.

The filled height of a tile is how full its node is. Colour and pattern show the fragmentation of its room: whole,
split or scattered. A node without a summary is an empty tile with a cross. Colour is never the only sign. Tiles
shrink with their number: from a hundred on they lose their names, which remain as tips.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from xml.sax.saxutils import escape

from agent.observe.drawing.look import FONT
from agent.observe.drawing.text import clean

WIDTH, MARGIN, HEAD, FOOT = 960.0, 20.0, 74.0, 92.0
HEADING = 24.0
LEVELS = ((0.25, "whole"), (0.5, "split"), (1.0, "scattered"))
"""Fragmentation up to -> its word."""
NAMED, WORDED = 46.0, 100.0
"""Sizes of a tile from which on it has a name, and figures."""
LARGEST, SMALLEST = 150.0, 5.0
MOST_GROUPS = 16


@dataclass(frozen=True, slots=True)
class FleetTile:
    """One node.

    Attributes:
        name: of the node.
        group: what it is drawn under.
        fill, fragmentation: between 0 and 1; None where nothing is known.
        waiting: pods that wait there.
        tip: further text.
    """

    name: str
    group: str
    fill: float | None
    fragmentation: float = 0.0
    waiting: int = 0
    tip: str = ""


def word_of(fragmentation: float) -> str:
    """Return the name of a node's fragmentation: whole, split or scattered."""
    return next((word for most, word in LEVELS if fragmentation <= most), LEVELS[-1][1])


def draw_fleet(tiles: Sequence[FleetTile], title: str, about: str = "") -> str:
    """The picture; the same input gives the same text.

    Args:
        tiles: in the order in which they are drawn; those of a group are side by side.
        title: the first line.
        about: the second.
    """
    groups, domain = _groups(tiles), _domain(tiles)
    size = _size([len(group) for _, group in groups])
    parts, y = list[str](), HEAD
    for name, group in groups:
        words = f"{len(group):,} node{'s' * (len(group) != 1)}: {name}"
        parts.append(f'<text class="s" x="{MARGIN:g}" y="{y + 15:g}">{_text(words, 150)}</text>')
        y += HEADING
        columns = _columns(size)
        for number, tile in enumerate(group):
            row, column = divmod(number, columns)
            at = MARGIN + column * _step(size), y + row * _step(size)
            parts += _tile(tile, tile.name.removesuffix(domain), *at, size)
        y += math.ceil(len(group) / columns) * _step(size) + 10
    parts += _legend(y + 8)
    height = y + FOOT
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="nlf" role="img" aria-labelledby="nlf-title nlf-about" '
        f'width="{WIDTH:g}" height="{height:g}" viewBox="0 0 {WIDTH:g} {height:g}">'
        f'<title id="nlf-title">{_text(title, 200)}</title><desc id="nlf-about">{_text(about, 500)}</desc>'
        f"<style>{_sheet()}</style><defs>{_PATTERNS}</defs>"
        f'<rect class="page" width="{WIDTH:g}" height="{height:g}"/>'
        f'<text class="h" x="{MARGIN:g}" y="34">{_text(title, 90)}</text>'
        f'<text class="s" x="{MARGIN:g}" y="56">{_text(about, 150)}</text>{"".join(parts)}</svg>\n'
    )


def _domain(tiles: Iterable[FleetTile]) -> str:
    """Return what follows the first dot of every name, which is the same for all nodes."""
    found = {"".join(each.name.partition(".")[1:]) for each in tiles}
    return found.pop() if len(found) == 1 else ""


def _groups(tiles: Iterable[FleetTile]) -> list[tuple[str, list[FleetTile]]]:
    found = [(name, list(group)) for name, group in groupby(tiles, key=lambda each: each.group)]
    rest = [tile for _, group in found[MOST_GROUPS:] for tile in group]
    return found[:MOST_GROUPS] + ([("of other shapes", rest)] if rest else [])


def _size(counts: Sequence[int]) -> float:
    """The side of a tile: as large as lets the fleet fit about a page."""
    size = LARGEST
    while size > SMALLEST:
        rows = sum(math.ceil(count / _columns(size)) for count in counts)
        if rows * _step(size) <= WIDTH * 0.7:
            break
        size = size * 0.95 if size > 30 else size - 1  # noqa: PLR2004 - small ones are whole pixels
    return math.floor(size)


def _step(size: float) -> float:
    """From one tile to the next."""
    return size + max(1.0, round(size / 16))


def _columns(size: float) -> int:
    return max(1, int((WIDTH - 2 * MARGIN) // _step(size)))


def _tile(tile: FleetTile, label: str, x: float, y: float, size: float) -> Iterator[str]:
    yield f"<g><title>{_text(f'{tile.name}: {tile.tip}', 400)}</title>"
    if tile.fill is None:
        yield f'<rect class="none" x="{x:g}" y="{y:g}" width="{size:g}" height="{size:g}"/>'
        inset = size * 0.3
        a, b, c, d = (f"{each:g}" for each in (x + inset, x + size - inset, y + inset, y + size - inset))
        yield f'<path class="none" d="M{a} {c}L{b} {d}M{b} {c}L{a} {d}"/>'
    else:
        level = round(size * min(1.0, max(0.0, tile.fill)), 1)
        word = word_of(tile.fragmentation)
        yield f'<rect class="tile" x="{x:g}" y="{y:g}" width="{size:g}" height="{size:g}"/>'
        if level:
            area = f'x="{x:g}" y="{y + size - level:g}" width="{size:g}" height="{level:g}"'
            yield f'<rect class="{word}" {area}/>'
        if word != "whole":  # over all of the tile: its room is what is broken
            yield f'<rect fill="url(#nlf-{word})" x="{x:g}" y="{y:g}" width="{size:g}" height="{size:g}"/>'
        if tile.waiting:
            side = max(3.0, size * 0.25)
            yield f'<path class="wait" d="M{x + size:g} {y + size:g}h-{side:g}l{side:g}-{side:g}z"/>'
    if size >= NAMED:
        yield from _words(tile, label, x, y, size)
    yield "</g>"


def _words(tile: FleetTile, label: str, x: float, y: float, size: float) -> Iterator[str]:
    small = size < WORDED
    letters = max(4, int(size / (5.5 if small else 7.2)))
    name = label if len(label) <= letters else f"…{label[2 - letters :]}"  # names of nodes differ at their end
    kind = "n" if small else "t"
    yield f'<text class="{kind} halo" x="{x + 4:g}" y="{y + (12 if small else 18):g}">{_text(name, 60)}</text>'
    if tile.fill is None:
        return
    yield f'<text class="{kind} halo" x="{x + 4:g}" y="{y + size - 5:g}">{round(100 * tile.fill)} %</text>'
    if not small:
        words = [word_of(tile.fragmentation), f"{tile.waiting} waiting" if tile.waiting else ""]
        for number, each in enumerate(filter(None, words)):
            yield f'<text class="n halo" x="{x + 4:g}" y="{y + 36 + 14 * number:g}">{each}</text>'


def _legend(y: float) -> Iterator[str]:
    samples = (
        FleetTile("", "", 0.6, 0.0), FleetTile("", "", 0.6, 0.4), FleetTile("", "", 0.6, 1.0),
        FleetTile("", "", 0.6, 0.0, 1), FleetTile("", "", None),
    )  # fmt: skip
    words = (
        ("whole", "free CPUs lie together"), ("split", "up to half lie elsewhere"),
        ("scattered", "over half lie elsewhere"), ("pods wait", "for room on the node"),
        ("no summary", "nothing is known"),
    )  # fmt: skip
    wide = (WIDTH - 2 * MARGIN) / len(words)
    for number, (sample, (word, more)) in enumerate(zip(samples, words, strict=True)):
        x = MARGIN + number * wide
        yield from _tile(sample, "", x, y, 26)
        yield f'<text class="t" x="{x + 34:g}" y="{y + 11:g}">{word}</text>'
        yield f'<text class="n" x="{x + 34:g}" y="{y + 24:g}">{more}</text>'
    yield (
        f'<text class="n" x="{MARGIN:g}" y="{y + 52:g}">A tile is a node. It is filled as high as its CPUs are '
        "requested; colour and pattern say how its free CPUs lie.</text>"
    )


def _text(text: str, most: int) -> str:
    shown = clean(text)
    return escape(shown if len(shown) <= most else f"{shown[: most - 1]}…")


_PATTERNS = (
    '<pattern id="nlf-split" width="6" height="6" patternUnits="userSpaceOnUse">'
    '<path class="q" d="M-1 1l2-2M0 6l6-6M5 7l2-2"/></pattern>'
    '<pattern id="nlf-scattered" width="4" height="4" patternUnits="userSpaceOnUse">'
    '<path class="q" d="M0 0l4 4M4 0l-4 4"/></pattern>'
)
_LOOKS = {
    ".page": ("fill:#ffffff", "fill:#0d1117"),
    ".tile": ("fill:#e9eef4", "fill:#222c38"),
    ".whole": ("fill:#0072b2", "fill:#56b4e9"),
    ".split": ("fill:#e69f00", "fill:#e69f00"),
    ".scattered": ("fill:#d55e00", "fill:#d55e00"),
    ".wait": ("fill:#1b1f24;stroke:#ffffff", "fill:#ffffff;stroke:#0d1117"),
    ".none": ("fill:none;stroke:#8a97a6", "fill:none;stroke:#5a6877"),
    ".q": ("stroke:#1b1f24;opacity:.45", "stroke:#ffffff;opacity:.45"),
    "text": ("fill:#1b1f24", "fill:#e6edf3"),
    ".s,.n": ("fill:#57606a", "fill:#9aa7b4"),
    ".halo": ("fill:#1b1f24;stroke:#ffffff", "fill:#e6edf3;stroke:#0d1117"),
}


def _sheet() -> str:
    def rules(theme: int) -> str:
        return "".join(
            f"{','.join(f'.nlf {part}' for part in names.split(','))}{{{looks[theme]}}}"
            for names, looks in _LOOKS.items()
        )

    common = (
        f".nlf text{{font-family:{FONT};font-size:12px;white-space:pre}}.nlf .h{{font-size:18px;font-weight:700}}"
        ".nlf .n{font-size:10px}.nlf .t{font-weight:700}.nlf .q{fill:none;stroke-width:1}.nlf .none{stroke-width:1}"
        ".nlf rect.none{stroke-dasharray:3 2}.nlf .wait{stroke-width:.7}"
        ".nlf .halo{paint-order:stroke;stroke-width:3px;stroke-linejoin:round}"
    )
    return f"{common}{rules(0)}@media(prefers-color-scheme:dark){{{rules(1)}}}"
