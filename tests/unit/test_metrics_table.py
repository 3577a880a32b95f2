"""The table of metrics that people read is the code's."""

from __future__ import annotations

from pathlib import Path

from agent.observe.metrics import SPECS, table

PAGE = Path(__file__).parents[2] / "deploy/docs/metrics.md"


def test_the_page_is_up_to_date() -> None:
    """`make metrics` was run after the last change."""
    assert PAGE.read_text() == table()


def test_s20_no_label_names_a_pod() -> None:
    """Pods, namespaces and containers are no labels: their number has no bound, and the page is for everyone."""
    assert {"pod", "namespace", "container", "uid", "node"}.isdisjoint(
        {name for spec in SPECS for name in spec.labels}
    )
