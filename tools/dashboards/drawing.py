"""Panels drawn as a page: the queries' answers as SVG, for a headless browser. Looks like Grafana's dark theme.

Not Grafana: it shows that the queries answer, with which series, units and thresholds.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from tools.dashboards import grafana
from tools.dashboards.panels import COLOURS, Board, Panel

Ask = Callable[[str], list[dict[str, Any]]]
"""An expression with its variables filled in -> series."""
PALETTE = (
    "#73bf69",
    "#f2cc0c",
    "#5794f2",
    "#ff9830",
    "#f2495c",
    "#b877d9",
    "#8ab8ff",
    "#ffa6b0",
    "#96d98d",
    "#ca95e5",
)
STEP = {"green": "#73bf69", "yellow": "#f2cc0c", "red": "#f2495c"}
CELL, GAP = 66, 8
STYLE = """
body{background:#111217;color:#ccccdc;font:13px Inter,"DejaVu Sans",sans-serif;margin:0;padding:12px;width:1610px}
h1{font-size:18px;margin:4px 6px 12px}.b{position:relative}
.p{position:absolute;background:#181b1f;border:1px solid #2c2f36;border-radius:3px;box-sizing:border-box;
padding:6px 8px;overflow:hidden}.t{font-weight:600;font-size:12.5px;height:18px;white-space:nowrap}
.n{font-size:34px;text-align:center;padding-top:16px}
.l{font-size:11px;line-height:15px}.l span{margin-right:10px;white-space:nowrap}
.l i{display:inline-block;width:10px;height:3px;margin-right:4px;vertical-align:middle}
.e{text-align:center;color:#8e8e99;padding-top:44px}table{width:100%;border-collapse:collapse;margin-top:4px}
td,th{border-bottom:1px solid #2c2f36;text-align:left;padding:3px 6px;font-weight:400}th{color:#6e9fff}
.r{position:absolute;left:4px;font-size:15px;line-height:38px;white-space:nowrap}.r i{color:#8e8e99;font-size:12px}
svg text{fill:#9a9aa8;font-size:10px}.x{padding:6px;font-size:12px}
"""


@dataclass(frozen=True, slots=True)
class Drawn:
    """One page.

    Attributes:
        page: HTML.
        height: in pixels.
        empty: titles of panels in which a query had no answer.
    """

    page: str
    height: int
    empty: tuple[str, ...]


def board(what: Board, ask: Ask, values: dict[str, list[str]], span: tuple[float, float]) -> Drawn:
    """Draw a dashboard as its reader first sees it: rows that are closed show their titles.

    Their panels are asked for all the same, so that `empty` tells of every panel.

    Args:
        what: its description.
        ask: answers expressions.
        values: variable -> chosen values; a panel that repeats is drawn for each.
        span: from when to when, seconds.
    """
    parts: list[str] = []
    empty: list[str] = []
    y = 0
    for row in what.rows:
        chosen = [(panel, each) for panel in row.panels for each in _repeats(panel, values)]
        places = grafana.laid_out(replace(row, panels=tuple(panel for panel, _ in chosen)))
        if row.title:
            mark, more = ("\u25b8", f"({len(row.panels)} panels)") if row.closed else ("\u25be", "")
            parts.append(f'<div class="r" style="top:{y * 38}px">{mark} {html.escape(row.title)} <i>{more}</i></div>')
            y += 1
        bottom = y
        for (panel, x, down), (_, its) in zip(places, chosen, strict=True):
            body = panel.text if panel.kind == "text" else _body(panel, ask, its, span, empty)
            title = _filled(panel.title, its)
            size = f"width:{panel.width * CELL - GAP}px;height:{panel.height * 38 - GAP}px"
            box = f"left:{x * CELL}px;top:{(y + down) * 38}px;{size}"
            kind = f'<div class="x">{html.escape(body)}</div>' if panel.kind == "text" else body
            if not row.closed:
                parts.append(f'<div class="p" style="{box}"><div class="t">{html.escape(title)}</div>{kind}</div>')
                bottom = max(bottom, y + down + panel.height)
        y = bottom
    height = y * 38
    page = f"<!doctype html><meta charset=utf-8><title>{what.title}</title><style>{STYLE}</style>"
    page += f'<h1>{what.title}</h1><div class="b" style="height:{height}px">{"".join(parts)}</div>'
    return Drawn(page, height + 70, tuple(dict.fromkeys(empty)))


def _repeats(panel: Panel, values: dict[str, list[str]]) -> Iterable[dict[str, str]]:
    plain = {name: "|".join(all_of) for name, all_of in values.items()}
    return [{**plain, panel.repeat: each} for each in values[panel.repeat]] if panel.repeat else [plain]


def _filled(text: str, chosen: dict[str, str]) -> str:
    for name, value in chosen.items():
        text = text.replace(f"${name}", value)
    return text


def _body(panel: Panel, ask: Ask, chosen: dict[str, str], span: tuple[float, float], empty: list[str]) -> str:
    found: list[tuple[str, list[tuple[float, float]], dict[str, str]]] = []
    for query in panel.queries:
        answer = ask(_filled(query.expr, chosen))
        if not answer:
            empty.append(panel.title)
        for series in answer:
            name = query.legend or panel.title
            for label, value in series["metric"].items():
                name = name.replace("{{" + label + "}}", value)
            points = [(float(at), float(text)) for at, text in series["values"] if text != "NaN"]
            found.append((name, points, series["metric"]))
    found = [each for each in found if each[1]]
    if panel.kind == "table":
        return _table(panel, found)
    if not found:
        return f'<div class="e">{"0" if panel.zero else "No data"}</div>'
    return _stat(panel, found[0][1]) if panel.kind == "stat" else _chart(panel, found, span)


def _colour(panel: Panel, value: float) -> str:
    colour = "green"
    for step in grafana.steps(panel):
        if step["value"] is None or value >= step["value"]:
            colour = step["color"]
    return STEP[colour]


def _stat(panel: Panel, points: list[tuple[float, float]]) -> str:
    value = points[-1][1]
    return f'<div class="n" style="color:{_colour(panel, value)}">{shown(value, panel.unit)}</div>'


def _table(panel: Panel, found: list[tuple[str, list[tuple[float, float]], dict[str, str]]]) -> str:
    columns = [query.legend for query in panel.queries]
    nodes = sorted({labels.get("node", "") for _, _, labels in found})
    cells = {(labels.get("node", ""), name): points[-1][1] for name, points, labels in found}
    rows = "".join(
        f"<tr><td>{node}</td>"
        + "".join(
            f"<td>{shown(cells[node, name], panel.unit) if (node, name) in cells else ''}</td>" for name in columns
        )
        for node in nodes
    )
    return f"<table><tr><th>node</th>{''.join(f'<th>{each}</th>' for each in columns)}</tr>{rows}</table>"


def _chart(
    panel: Panel, found: list[tuple[str, list[tuple[float, float]], dict[str, str]]], span: tuple[float, float]
) -> str:
    width, height, left = panel.width * CELL - GAP - 18, panel.height * 38 - GAP - 92, 52
    found = sorted(found, key=lambda each: each[0])
    tops: dict[float, float] = {}
    lines = []
    for index, (name, points, _) in enumerate(found):
        base = {at: tops.get(at, 0.0) for at, _ in points} if panel.stacked else {}
        raised = [(at, value + base.get(at, 0.0)) for at, value in points]
        tops.update({at: max(value, tops.get(at, 0.0)) for at, value in raised})
        lines.append((COLOURS.get(name, PALETTE[index % len(PALETTE)]), raised, base))
    top = 1.0 if panel.unit == "percentunit" else _nice(max(tops.values(), default=0.0))

    def xy(at: float, value: float) -> str:
        return (
            f"{left + (at - span[0]) / (span[1] - span[0]) * (width - left):.1f},{height * (1 - value / top) + 6:.1f}"
        )

    svg = []
    for part in range(5):
        y = height * part / 4 + 6
        svg.append(f'<line x1="{left}" x2="{width}" y1="{y:.1f}" y2="{y:.1f}" stroke="#2c2f36"/>')
        svg.append(
            f'<text x="{left - 5}" y="{y + 3:.1f}" text-anchor="end">{shown(top * (4 - part) / 4, panel.unit)}</text>'
        )
    for mark, colour in ((panel.warn, "#f2cc0c"), (panel.bad, "#f2495c")):
        if mark is not None and mark <= top:
            ends = f"{xy(span[0], mark)} {xy(span[1], mark)}"
            svg.append(f'<polyline points="{ends}" stroke="{colour}" stroke-dasharray="5 4" fill="none"/>')
    for colour, points, base in reversed(lines):
        for line in _unbroken(points):
            path = " ".join(xy(at, value) for at, value in line)
            if panel.stacked:
                under = " ".join(xy(at, base.get(at, 0.0)) for at, _ in reversed(line))
                svg.append(f'<polygon points="{path} {under}" fill="{colour}" opacity="0.35"/>')
            svg.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.3"/>')
    minutes = (span[1] - span[0]) / 60
    svg.append(f'<text x="{left}" y="{height + 20}">-{minutes:.0f} min</text>')
    svg.append(f'<text x="{width}" y="{height + 20}" text-anchor="end">now</text>')
    legend = "".join(
        f'<span><i style="background:{colour}"></i>{html.escape(name)}</span>'
        for (name, _, _), (colour, _, _) in zip(found, lines, strict=True)
    )
    return f'<svg width="{width}" height="{height + 24}">{"".join(svg)}</svg><div class="l">{legend}</div>'


def _unbroken(points: list[tuple[float, float]]) -> list[list[tuple[float, float]]]:
    """The parts of a line between gaps, which Grafana leaves open."""
    found: list[list[tuple[float, float]]] = []
    steps = [after[0] - before[0] for before, after in pairwise(points)]
    usual = min(steps, default=0.0)
    for index, point in enumerate(points):
        if index == 0 or steps[index - 1] > 1.5 * usual:
            found.append([])
        found[-1].append(point)
    return found


def _nice(value: float) -> float:
    """An end of the axis a little above, which divides by four."""
    size = 1.0
    while size < value:
        size *= 2
    while size / 2 >= value > 0:
        size /= 2
    return max(size if size < 4 * value else value, 1e-6) if value else 1.0


def shown(value: float, unit: str) -> str:
    """A value in Grafana's words for its unit."""
    if unit == "percentunit":
        return f"{100 * value:.3g} %"
    if unit == "bytes":
        for name in ("B", "KiB", "MiB", "GiB"):
            if abs(value) < 1024:
                return f"{value:.3g} {name}"
            value /= 1024
        return f"{value:.3g} TiB"
    if unit == "s":
        return f"{1000 * value:.3g} ms" if value < 1 else f"{value:.3g} s"
    return f"{value:.3g}{'/min' if unit == 'cpm' else ''}"
