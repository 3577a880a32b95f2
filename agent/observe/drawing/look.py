"""How it looks: colours, patterns, icons, and the style sheet for light and dark.

Used by `paint`. Colours of pods are those of Okabe and Ito (https://jfly.uni-koeln.de/color/), which people with any
colour vision tell apart; each also has a pattern and a letter, so that colour is never the only sign. Everything is
written as plain rules, dark ones in a media query: some renderers know no CSS variables.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

COLOURS = (
    ("#e69f00", "#1b1f24"),  # orange
    ("#56b4e9", "#1b1f24"),  # sky blue
    ("#009e73", "#06140f"),  # bluish green
    ("#f0e442", "#1b1f24"),  # yellow
    ("#0072b2", "#ffffff"),  # blue
    ("#d55e00", "#150900"),  # vermillion
    ("#cc79a7", "#1b1f24"),  # reddish purple
)
"""(fill, ink that can be read on it), the same in light and dark."""

PATTERNS = (
    '<path d="M-1 1l2-2M0 6l6-6M5 7l2-2"/>',
    '<circle cx="3" cy="3" r="1.1"/>',
    '<path d="M0 1.5h6M0 4.5h6"/>',
    '<path d="M-1 5l2 2M0 0l6 6M5-1l2 2"/>',
    '<path d="M1.5 0v6M4.5 0v6"/>',
    '<path d="M0 0l6 6M6 0l-6 6"/>',
)
"""Inside of a pattern of 6 by 6."""

STYLES = len(COLOURS) * len(PATTERNS)
"""Pods that look different from each other; further ones repeat, with letters of their own."""


def style_of(number: int) -> tuple[int, int]:
    """(colour, pattern) of the pod with this number; neighbours differ in both, the first STYLES pairs are unique."""
    row, colour = divmod(number % STYLES, len(COLOURS))
    return colour, (colour + row) % len(PATTERNS)


# What each class looks like: (fill, stroke), light then dark. Boxes are opaque, so that the nesting shows.
_BOXES = {
    "page": (("#ffffff", "none"), ("#0d1117", "none")),
    "socket": (("#e9eef4", "#8a97a6"), ("#1a222c", "#5a6877")),
    "die": (("#dfe7ef", "#8a97a6"), ("#222c38", "#5a6877")),
    "node": (("#ffffff", "#3d5a80"), ("#0f151c", "#7ea3d0")),
    "cache": (("#edf1f7", "#aab6c4"), ("#1b2530", "#46566a")),
    "core": (("#ffffff", "#b4bfcc"), ("#10171f", "#46566a")),
    "cpu": (("#dbe3ec", "none"), ("#2f3c4b", "none")),
    "small": (("#dbe3ec", "#7b8794"), ("#2f3c4b", "#7f90a3")),
    "alone": (("#dbe3ec", "#7b8794"), ("#2f3c4b", "#e6edf3")),
    "kept": (("#c3ccd6", "none"), ("#3d4650", "none")),
    "chip": (("#f6f8fa", "#aab6c4"), ("#1b2530", "#46566a")),
    "fold": (("#f6f8fa", "#8a97a6"), ("#161d26", "#5a6877")),
    "bar": (("#dbe3ec", "#7b8794"), ("#2f3c4b", "#7f90a3")),
    "huge": (("#eef2f6", "none"), ("#222c38", "none")),
    "heat": (("#0072b2", "none"), ("#56b4e9", "none")),
    "plain": (("none", "none"), ("none", "none")),
}
_INK = {
    "t": ("#1b1f24", "#e6edf3"),
    "d": ("#57606a", "#9aa7b4"),
    "warm": ("#1b1f24", "#0d1117"),
    "hot": ("#ffffff", "#0d1117"),
    "warn": ("#9a3412", "#ffb77c"),
}
_LINES = ("#57606a", "#9aa7b4")
FONT = "system-ui,-apple-system,'Segoe UI',Roboto,Helvetica,Arial,'Liberation Sans','DejaVu Sans',sans-serif"

ICONS = {
    "NIC": "M1 2h10v8h-2v-2h-6v2h-2zM4 2v3M6 2v3M8 2v3",
    "InfiniBand": "M1 2h10v8h-10zM3 5h6v2h-6z",
    "GPU": "M1 3h10v6h-10zM1 1v10M6 4a2 2 0 1 0 .01 0M9 10v1M5 10v1",
    "VGA": "M1 2h10v6h-10zM4 11h4M6 8v3",
    "NVMe": "M1 4h10v4h-10zM3 4v4M5 6h1M8 6h1",
    "disk": "M2 3a4 1.6 0 1 0 8 0a4 1.6 0 1 0-8 0v6a4 1.6 0 0 0 8 0v-6",
    "CXL memory": "M1 4h10v5h-10zM3 9v2M6 9v2M9 9v2M3 6h6",
    "crypto": "M2 6h8v5h-8zM4 6v-2a2 2 0 0 1 4 0v2",
    "accelerator": "M3 3h6v6h-6zM5 1v2M7 1v2M5 9v2M7 9v2M1 5h2M1 7h2M9 5h2M9 7h2",
    "": "M3 3h6v6h-6z",
}
"""Outlines in a square of 12."""


def sheet() -> str:
    """The style sheet; every rule is confined to the drawing's own class, for pages that hold more than it."""
    light, dark = ("".join(_rules(theme)) for theme in (0, 1))
    return f"{_common()}{light}@media(prefers-color-scheme:dark){{{dark}}}"


def themed_sheet() -> str:
    """The same for a page with a switch: its root element says data-theme="dark", or something else."""
    return f"{_common()}{''.join(_rules(0))}{''.join(_rules(1, ':where(:root[data-theme=dark]) '))}"


def _common() -> str:
    held = "".join(
        f".nl .c{number}{{fill:{fill}}}.nl .i{number}{{fill:{ink}}}.nl .h{number}{{stroke:{fill}}}"
        f".nl .ico.s{number}{{stroke:{ink}}}"
        for number, (fill, ink) in enumerate(COLOURS)
    )
    return (
        f".nl text{{font-family:{FONT};white-space:pre}}.nl .b{{font-weight:700}}.nl .e{{text-anchor:end}}"
        ".nl .m{text-anchor:middle}.nl .alone{stroke-dasharray:2.5 1.5;stroke-width:1.4}"
        ".nl .fold{stroke-dasharray:5 3}.nl .node{stroke-width:1.5}.nl .far{stroke-dasharray:7 2}"
        ".nl .heat{shape-rendering:crispEdges}.nl .ico{fill:none;stroke-width:1;stroke-linejoin:round}"
        f".nl .halo{{paint-order:stroke;stroke-width:3px;stroke-linejoin:round}}{held}"
    )


def _rules(theme: int, under: str = "") -> Iterator[str]:
    """The rules of a theme: 0 light, 1 dark; `under` goes before each, and must not weigh anything."""
    for name, looks in _BOXES.items():
        fill, stroke = looks[theme]
        yield f"{under}.nl .{name}{{fill:{fill};stroke:{stroke}}}"
    for name, inks in _INK.items():
        yield f"{under}.nl text.{name}{{fill:{inks[theme]}}}"
    line = _LINES[theme]
    yield f"{under}.nl .ico,{under}.nl .q path{{stroke:{line}}}"


_PLAIN_PATTERNS = {
    "kept": (5, 5, "M0 0l5 5M5 0l-5 5"),
    "huge": (8, 6, "M0 .5h8M0 3.5h8M2 .5v3M6 3.5v3"),
    "pooled": (6, 6, "M-1 1l2-2M0 6l6-6M5 7l2-2"),
    "small": (4, 4, "M-1 1l2-2M0 4l4-4M3 5l2-2"),
}
"""What belongs to no pod: reserved, huge pages, reserved but shared, efficiency cores: width, height, path."""


def patterns(names: Iterable[str]) -> str:
    """The definitions of patterns: "p<number>" of a pod's style, or a name of _PLAIN_PATTERNS."""
    return "".join(_pod_pattern(name) if name not in _PLAIN_PATTERNS else _plain_pattern(name) for name in names)


def _pod_pattern(name: str) -> str:
    colour, form = style_of(int(name.removeprefix("p")))
    ink, shape = COLOURS[colour][1], PATTERNS[form]
    paint = f'fill="{ink}"' if shape.startswith("<circle") else f'fill="none" stroke="{ink}"'
    return (
        f'<pattern id="nl-{name}" width="6" height="6" patternUnits="userSpaceOnUse">'
        f'<g {paint} opacity=".4">{shape}</g></pattern>'
    )


def _plain_pattern(name: str) -> str:
    w, h, path = _PLAIN_PATTERNS[name]
    return (
        f'<pattern id="nl-{name}" width="{w}" height="{h}" patternUnits="userSpaceOnUse">'
        f'<g class="q" fill="none" stroke-width=".8" opacity=".55"><path d="{path}"/></g></pattern>'
    )
