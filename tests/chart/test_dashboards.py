"""Dashboards: the JSON is the description's, and every query names only metrics, labels and values of the code."""

from __future__ import annotations

import pytest

from agent.observe.metrics import SPECS
from tests.chart import promql
from tests.chart.test_rules import alerts
from tools.dashboards import grafana
from tools.dashboards.grafana import BOARDS
from tools.dashboards.panels import Board, Panel

PANELS = [(board, panel) for board in BOARDS for panel in board.panels if panel.kind != "text"]
UNWATCHED = {
    "numalign_releases_total", "numalign_problems_total", "numalign_annotation_errors_total",
    "numalign_malformed_total", "numalign_api_request_seconds", "numalign_checkpoint_save_seconds",
    "numalign_manifest_errors", "numalign_answers_info",
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
        assert 'node=~"$node"' in query.expr or "numalign_gate_" in query.expr, "the gatekeeper is of no node"


def test_panels_lie_side_by_side() -> None:
    """None overlaps another, none sticks out; a closed row has its panels in it, below its title."""
    for board in BOARDS:
        panels = grafana.model(board)["panels"]
        closed = [each["panels"] for each in panels if each.get("collapsed")]
        for group in (panels, *closed):
            taken: set[tuple[int, int]] = set()
            for panel in group:
                at = panel["gridPos"]
                cells = {(at["x"] + dx, at["y"] + dy) for dx in range(at["w"]) for dy in range(at["h"])}
                assert at["x"] + at["w"] <= grafana.WIDE
                assert taken.isdisjoint(cells)
                taken |= cells
        ids = [each["id"] for group in (panels, *closed) for each in group]
        assert len(ids) == len(set(ids))


def test_a_reader_sees_one_screen_first_however_many_numa_nodes_there_are() -> None:
    """What is drawn once for each NUMA node is in a row that is closed; of the others no dashboard has over 20."""
    for board in BOARDS:
        shown = [panel for row in board.rows if not row.closed for panel in row.panels]
        assert len(shown) <= 20
        assert not [panel.title for panel in shown if panel.repeat]
        assert not board.rows[0].title
        assert all(row.title for row in board.rows[1:])


def test_every_metric_is_watched_or_left_out_on_purpose() -> None:
    """A new metric is put on a dashboard, into an alert, or on the list above."""
    shown = {name for _, panel in PANELS for query in panel.queries for name in promql.named(query.expr)}
    alerted = {name for rule in alerts() for name in promql.named(rule["expr"])}
    deprecated = {spec.name for spec in SPECS if spec.instead}
    assert {spec.name for spec in SPECS} - shown - alerted - deprecated == UNWATCHED
    assert not deprecated & (shown | alerted)
