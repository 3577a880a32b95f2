"""The page of settings that people read is the model's."""

from __future__ import annotations

from pathlib import Path

from agent.model.rules import NODE_OPTIONS
from agent.settings import Settings
from tools.chart.settings_page import page

PAGE = Path(__file__).parents[2] / "deploy/docs/settings.md"


def test_the_page_is_up_to_date() -> None:
    """`make settings` was run after the last change."""
    assert PAGE.read_text("utf-8") == page()


def test_every_setting_has_a_meaning() -> None:
    """No row without a sentence, and none is missing."""
    lines = [
        line for line in page().splitlines() if line.startswith("| `") and line.split("`")[1] not in NODE_OPTIONS
    ]
    rows = [line.split(" | ") for line in lines]
    assert all(len(row) == 4 for row in rows)
    assert [row[0] for row in rows if len(row[3].strip(" |")) < 10] == []
    assert {f"| `{key}`" for key in Settings().shown()} <= {row[0] for row in rows}
