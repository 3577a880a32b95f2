"""Dashboards: the JSON is the description's, and every query names only metrics, labels and values of the code."""

from __future__ import annotations

import pytest

from agent.observe.metrics import SPECS
from tests.chart import promql
from tests.chart.test_rules import alerts
from tools.dashboards import grafana
from tools.dashboards.panels import BOARDS, Board, Panel

PANELS = [(board, panel) for board in BOARDS for panel in board.panels if panel.kind != "text"]
UNWATCHED = {
    "numalign_releases_total", "numalign_problems_total", "numalign_annotation_errors_total",
    "numalign_malformed_total", "numalign_api_request_seconds", "numalign_checkpoint_save_seconds",
    "numalign_manifest_errors",
}  # fmt: skip
"""Metrics for looking closer, on no dashboard and in no alert on purpose."""


def test_the_files_are_up_to_date() -> None:
    """`make dashboards` was run after the last change of the description."""
    found = {path.name: path.read_text("utf-8") for path in grafana.FOLDER.glob("*.json")}
    assert found == grafana.texts()


@pytest.mark.parametrize(("board", "panel"), PANELS, ids=lambda each: getattr(each, "title", ""))
def test_a_panel_names_only_what_the_code_has(board: Board, panel: Panel) -> None:
    """Metrics, labels and label values; every query can be narrowed to a node; every panel says what it means."""
    assert panel.queries
    assert panel.help.endswith(".")
    assert board.uid.startswith("numalign-")
    for query in panel.queries:
        assert list(promql.faults(query.expr)) == []
        assert 'node=~"$node"' in query.expr


def test_panels_lie_side_by_side() -> None:
    """None overlaps another, none sticks out."""
    for board in BOARDS:
        taken: set[tuple[int, int]] = set()
        for panel in grafana.model(board)["panels"]:
            at = panel["gridPos"]
            cells = {(at["x"] + dx, at["y"] + dy) for dx in range(at["w"]) for dy in range(at["h"])}
            assert at["x"] + at["w"] <= grafana.WIDE
            assert taken.isdisjoint(cells)
            taken |= cells


def test_every_metric_is_watched_or_left_out_on_purpose() -> None:
    """A new metric is put on a dashboard, into an alert, or on the list above."""
    shown = {name for _, panel in PANELS for query in panel.queries for name in promql.named(query.expr)}
    alerted = {name for rule in alerts() for name in promql.named(rule["expr"])}
    assert {spec.name for spec in SPECS} - shown - alerted == UNWATCHED
