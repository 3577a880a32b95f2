"""Alerts: promtool takes them, each fires for its fault and only for it, and each names only what the code has."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import programs
from tests.chart import promql

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "charts" / "numalign" / "files" / "rules"
CASES = Path(__file__).parent / "rules"
FILES = sorted(FOLDER.glob("*.yaml"))
PAGE = ROOT / "deploy" / "docs" / "troubleshooting.md"


def rules(kind: str) -> list[dict[str, Any]]:
    """All rules of all files that "alert" or "record"."""
    groups = [group for path in FILES for group in yaml.safe_load(path.read_text("utf-8"))["groups"]]
    return [rule for group in groups for rule in group["rules"] if kind in rule]


def alerts() -> list[dict[str, Any]]:
    """All alerts."""
    return rules("alert")


def promtool(*arguments: str) -> str:
    """What promtool says; fails where it does."""
    done = subprocess.run(
        [programs.need("promtool"), *arguments], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_promtool_takes_the_rules(path: Path) -> None:
    """Syntax, templates and duplicates."""
    assert "SUCCESS" in promtool("check", "rules", str(path))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_each_alert_fires_for_its_fault_and_not_for_what_looks_like_it(path: Path, tmp_path: Path) -> None:
    """Promtool's own unit tests, over series written down beside this file."""
    cases = tmp_path / "cases.yaml"
    cases.write_text((CASES / f"{path.stem}.test.yaml").read_text("utf-8").replace("[RULES]", f"[{path}]"), "utf-8")
    promtool("test", "rules", str(cases))


def test_every_alert_is_tested() -> None:
    """The cases name each alert as one that fires."""
    text = "".join(path.read_text("utf-8") for path in CASES.glob("*.yaml"))
    fires = set(re.findall(r'alertname="(\w+)"', text)) | set(re.findall(r"alertname: (\w+)\n\s+exp_alerts:\n", text))
    assert fires == {rule["alert"] for rule in alerts()}


@pytest.mark.parametrize("rule", alerts(), ids=lambda rule: rule["alert"])
def test_an_alert_names_only_what_the_code_has(rule: dict[str, Any]) -> None:
    """Metrics, labels and label values; and every alert says on which node it is."""
    assert list(promql.faults(rule["expr"])) == []
    assert "by (node" in rule["expr"]


@pytest.mark.parametrize("rule", rules("record"), ids=lambda rule: rule["record"])
def test_what_is_recorded_names_only_what_the_code_has(rule: dict[str, Any]) -> None:
    """Metrics, labels and values; named as Prometheus wants it: labels, metric, operations; its value is tested."""
    assert list(promql.faults(rule["expr"])) == []
    level, metric, operations = rule["record"].split(":")
    assert f"by ({level}" in rule["expr"]
    assert metric in promql.named(rule["expr"])
    assert operations
    assert f"expr: {rule['record']}\n" in "".join(path.read_text("utf-8") for path in CASES.glob("*.yaml"))


@pytest.mark.parametrize("rule", alerts(), ids=lambda rule: rule["alert"])
def test_an_alert_tells_what_to_do(rule: dict[str, Any]) -> None:
    """Severity, what it means, what to do, and a section of the troubleshooting page that is there."""
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}
    notes = rule["annotations"]
    assert set(notes) == {"summary", "description", "runbook", "runbook_page"}
    assert "$labels.node" in notes["summary"]
    page, _, anchor = notes["runbook_page"].partition("#")
    assert ROOT / page == PAGE
    assert anchor == rule["alert"].lower()
    assert f"\n### {rule['alert']}\n" in PAGE.read_text("utf-8")
