"""The description of a dashboard as Grafana's JSON model (schema 39, Grafana 10 and newer).

https://grafana.com/docs/grafana/latest/dashboards/build-dashboards/view-dashboard-json-model/
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

from tools.dashboards.fleet import FLEET
from tools.dashboards.node import NODE_BOARD
from tools.dashboards.panels import COLOURS, Board, Panel, Row

BOARDS = (FLEET, NODE_BOARD)

FOLDER = Path(__file__).parents[2] / "charts" / "numalign" / "files" / "dashboards"
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
WIDE = 24


def model(board: Board) -> dict[str, Any]:
    """The whole dashboard; its uid is fixed, so that links to it stay."""
    return {
        "uid": board.uid, "title": board.title, "description": board.help, "tags": ["numalign"],
        "schemaVersion": 39, "version": 1, "editable": True, "graphTooltip": 1, "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"}, "timezone": "", "annotations": {"list": []},
        "links": [{
            "type": "dashboards", "tags": ["numalign"], "title": "numalign", "asDropdown": False,
            "includeVars": True, "keepTime": True,
        }],
        "templating": {"list": list(_variables(board))},
        "panels": list(_panels(board)),
    }  # fmt: skip


def _variables(board: Board) -> Iterator[dict[str, Any]]:
    yield {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}
    for name, query, several in board.variables:
        yield {
            "name": name, "label": name.replace("_", " "), "type": "query", "datasource": SOURCE,
            "query": {"query": query, "refId": name}, "definition": query, "refresh": 2, "sort": 3,
            "multi": several, "includeAll": several,
            **({"current": {"text": "All", "value": "$__all"}} if several else {}),
        }  # fmt: skip


def _panels(board: Board) -> Iterator[dict[str, Any]]:
    """Panels of an open row follow it; those of a closed one are in it, and it is as high as its title."""
    y, numbers = 0, count(1)
    for row in board.rows:
        number = next(numbers)
        top = y + 1 if row.title else y
        places = tuple(laid_out(row))
        panels = [
            {
                "id": next(numbers), "gridPos": {"x": x, "y": top + down, "w": panel.width, "h": panel.height},
                **_panel(panel),
            }
            for panel, x, down in places
        ]  # fmt: skip
        if row.title:
            yield {
                "id": number, "type": "row", "title": row.title, "gridPos": {"x": 0, "y": y, "w": WIDE, "h": 1},
                "collapsed": row.closed, "panels": panels if row.closed else [],
            }  # fmt: skip
        if not row.closed:
            yield from panels
        y = top if row.closed else max(top + down + panel.height for panel, _, down in places)


def laid_out(row: Row) -> Iterator[tuple[Panel, int, int]]:
    """Each panel, and where it lies from the row's upper left corner, in Grafana's grid: right, and down."""
    x = y = height = 0
    for panel in row.panels:
        if x + panel.width > WIDE:
            x, y, height = 0, y + height, 0
        yield panel, x, y
        x, height = x + panel.width, max(height, panel.height)


def _panel(panel: Panel) -> dict[str, Any]:
    if panel.kind == "text":
        return {"type": "text", "title": panel.title, "options": {"mode": "markdown", "content": panel.text}}
    found: dict[str, Any] = {
        "type": panel.kind, "title": panel.title, "description": panel.help, "datasource": SOURCE,
        "targets": [
            {
                "refId": chr(ord("A") + index), "datasource": SOURCE, "expr": query.expr,
                "legendFormat": query.legend or "__auto",
                **({"instant": True, "range": False, "format": "table"} if panel.kind == "table" else {}),
                **({"instant": True, "range": False} if panel.kind == "stat" else {}),
            }
            for index, query in enumerate(panel.queries)
        ],
        "fieldConfig": {"defaults": _field(panel), "overrides": list(_colours(panel))},
    }  # fmt: skip
    if panel.repeat:
        found |= {"repeat": panel.repeat, "repeatDirection": "h", "maxPerRow": 2}
    if panel.kind == "timeseries":
        found["options"] = {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "desc"},
        }
    if panel.kind == "stat":
        found["options"] = {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "value", "graphMode": "area"}
    if panel.kind == "table":
        names = {f"Value #{chr(ord('A') + index)}": query.legend for index, query in enumerate(panel.queries)}
        found["transformations"] = [
            {"id": "merge", "options": {}},
            {"id": "organize", "options": {"excludeByName": {"Time": True}, "renameByName": names}},
        ]
    return found


def _colours(panel: Panel) -> Iterator[dict[str, Any]]:
    """Fixed ones for words that come back on several panels."""
    if panel.kind != "timeseries":
        return
    for name, colour in COLOURS.items():
        if any(query.legend in {name, "{{use}}", "{{state}}", "{{result}}"} for query in panel.queries):
            yield {
                "matcher": {"id": "byName", "options": name},
                "properties": [{"id": "color", "value": {"mode": "fixed", "fixedColor": colour}}],
            }


def _field(panel: Panel) -> dict[str, Any]:
    field: dict[str, Any] = {"unit": panel.unit, "thresholds": {"mode": "absolute", "steps": steps(panel)}}
    if panel.unit == "percentunit":
        field |= {"min": 0, "max": 1}
    else:
        field["min"] = 0
    if panel.zero:
        field["noValue"] = "0"
    if panel.kind == "timeseries":
        shown = panel.warn is not None or panel.bad is not None
        field["custom"] = {
            "drawStyle": "line", "lineWidth": 1, "fillOpacity": 40 if panel.stacked else 0, "showPoints": "never",
            "stacking": {"mode": "normal" if panel.stacked else "none", "group": "A"},
            "thresholdsStyle": {"mode": "dashed" if shown else "off"},
        }  # fmt: skip
    return field


def steps(panel: Panel) -> list[dict[str, Any]]:
    """Colours by value, ascending, as Grafana has them: the first step has no lower bound."""
    if panel.falling:
        found: list[dict[str, Any]] = [{"color": "red" if panel.bad is not None else "yellow", "value": None}]
        if panel.bad is not None and panel.warn is not None:
            found.append({"color": "yellow", "value": panel.bad})
        return [*found, {"color": "green", "value": panel.warn if panel.warn is not None else panel.bad}]
    marks = [("yellow", panel.warn), ("red", panel.bad)]
    return [{"color": "green", "value": None}, *({"color": c, "value": v} for c, v in marks if v is not None)]


def texts() -> dict[str, str]:
    """File name -> JSON."""
    return {f"{board.uid}.json": json.dumps(model(board), indent=2, ensure_ascii=False) + "\n" for board in BOARDS}


def write() -> None:
    """Save them where the chart takes them from."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in texts().items():
        (FOLDER / name).write_text(text, "utf-8")
