"""What the reference lists is what the code has: annotations, reasons, Events, settings that pages name."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from agent.core.cgroups import enforced
from agent.core.request import annotations as asks
from agent.core.request.exclusive import EXCLUSIVE
from agent.core.request.isolated import ISOLATED, IsolatedCpus
from agent.core.request.memory_policy import MEMORY_POLICY, MemoryPolicyWish
from agent.core.request.mixed import MIXED
from agent.kube import pod_report as report
from agent.kube.nodes import OBSERVE_ONLY
from agent.kube.publishing.pod_reporter import _reason
from agent.model import notes
from agent.model.cgroup import FORBIDDEN, HANGS, OCCUPIED
from agent.model.outcome import Reason
from agent.model.rules import NODE_OPTIONS, POD_OPTIONS, OnMisalignment, Policy, Scope
from agent.observe.metrics import GATEKEEPER, SPECS
from agent.settings import Settings, parse
from agent.settings.cpu_options import KEY
from tests.chart.test_rules import alerts
from tests.docs import pages

REFERENCE = pages.DOCS / "reference.md"
CODE = pages.ROOT / "agent"
GATE_RULES = pages.ROOT / "charts" / "numalign" / "files" / "gatekeeper" / "rules.yaml"


def test_annotations() -> None:
    """Those that are asked for, with their words, and those that are written."""
    asked = pages.section(REFERENCE, "Annotations that you set")
    known = {
        asks.POLICY, asks.SCOPE, asks.ON_MISALIGNMENT, asks.CPU_OPTIONS, asks.DEVICES, asks.ALIGN, asks.PIN,
        asks.MOVE_MEMORY, EXCLUSIVE, MIXED, ISOLATED, MEMORY_POLICY,
    }  # fmt: skip
    assert pages.first_cells(asked) == known
    assert OBSERVE_ONLY in asked
    assert all(f"`{key}`" in asked for key in asks.APART)
    rows = {line.split("`")[1]: line for line in asked.splitlines() if line.startswith("| `")}
    listed = (
        (asks.POLICY, Policy), (asks.SCOPE, Scope), (asks.ALIGN, asks.ALIGNS), (ISOLATED, IsolatedCpus),
        (MEMORY_POLICY, MemoryPolicyWish),
    )  # fmt: skip
    for key, words in listed:
        assert all(f"`{word}`" in rows[key] for word in words)
    assert all(f"`{word}`" in rows[asks.ON_MISALIGNMENT] for word in OnMisalignment)
    assert pages.first_cells(pages.section(REFERENCE, "Annotations that numalign writes")) == notes.OURS


def test_cpu_options() -> None:
    """Every option of the table is on every page that lists them, with its stage and with who may set it."""
    assert pages.first_cells(pages.section(pages.DOCS / "settings.md", KEY)) == set(NODE_OPTIONS)
    rules = (pages.DOCS / "dev" / "kubelet-rules.md").read_text("utf-8")
    rows = re.findall(r"^\| (`.*`) \| CPU \| (\w+) \|$", rules, re.MULTILINE)
    stages = {name: stage for names, stage in rows for name in re.findall(r"`([\w-]+)`", names)}
    assert stages == {name: option.maturity for name, option in NODE_OPTIONS.items()}
    row = next(
        line for line in REFERENCE.read_text("utf-8").splitlines() if line.startswith(f"| `{asks.CPU_OPTIONS}`")
    )
    assert set(re.findall(r"`([\w-]+)`", row.partition("all but")[2])) == set(NODE_OPTIONS) - set(POD_OPTIONS)


def test_reasons_and_the_condition() -> None:
    """Every reason of the code, of both conditions, has its row, and no other."""
    assert pages.first_cells(pages.section(REFERENCE, "Reasons of a refusal")) == {each.value for each in Reason}
    condition = pages.section(REFERENCE, f"The condition {report.CONDITION}")
    assert set(re.findall(r"\| `(\w+)` \|", condition)) == {
        report.ALIGNED, report.SHARED, report.NOT_ALIGNED, report.NOT_ENFORCED,
    }  # fmt: skip
    pinned = pages.section(REFERENCE, f"The condition {report.PINNED}")
    assert set(re.findall(r"\| `(\w+)` \|", pinned)) == {report.EXCLUSIVE, report.SHARED, report.NOT_ENFORCED}
    remedies = pages.section(pages.DOCS / "troubleshooting.md", "A pod is not pinned")
    assert {report.SHARED, report.NOT_ALIGNED, report.NOT_ENFORCED} <= set(
        re.findall(r"^\| `(\w+)`", remedies, re.MULTILINE)
    )
    lacking = pages.section(pages.DOCS / "troubleshooting.md", "A pod does not have what it was granted")
    assert {*enforced.REMEDIES, HANGS, OCCUPIED} - {FORBIDDEN} <= set(re.findall(r"`(\w+)`", lacking))
    refused = pages.section(pages.DOCS / "troubleshooting.md", "A pod was refused")
    assert all(f"({page})" in refused for page in ("why.md", "reference.md#reasons-of-a-refusal"))


def test_events() -> None:
    """Every reason that the code records, of pods and of the Node."""
    texts = {path: path.read_text("utf-8") for path in CODE.rglob("*.py")}
    problems = {word for text in texts.values() for word in re.findall(r'\.problem\(\s*"([a-z-]+)"', text)}
    reporter = texts[CODE / "kube/publishing/pod_reporter.py"] + texts[CODE / "kube/publishing/publisher.py"]
    plain = set(re.findall(r'Notice\(\w+, "Warning", "(\w+)"', reporter))
    expected = plain | report.WARNED | {_reason(word) for word in problems}
    assert pages.first_cells(pages.section(REFERENCE, "Events")) == expected


@pytest.mark.parametrize("page", pages.PAGES, ids=lambda page: str(page.relative_to(pages.ROOT)))
def test_what_pages_name_exists(page: Path) -> None:
    """Metrics, settings of the kubelet's and our own names, alerts."""
    text = page.read_text("utf-8")
    known = {spec.name for spec in (*SPECS, *GATEKEEPER)}
    for name in re.findall(r"\bnumalign_[a-z_]+", text):
        assert name in known, f"{page}: {name}"
    for name in re.findall(r"\bNumalign[A-Z]\w+", text):
        events = pages.first_cells(pages.section(REFERENCE, "Events"))
        rules = {rule["alert"] for rule in alerts()} | {*re.findall(r"alert: (\w+)", GATE_RULES.read_text("utf-8"))}
        assert name in events | rules, f"{page}: {name}"
    settings = set(Settings().shown())
    sections = {
        f"{key}.{inner}" for key, part in Settings().shown().items() if isinstance(part, dict) for inner in part
    }
    for name in re.findall(r"`((?:waiting|refusals|page)\.\w+)", pages.prose(page)):
        assert name in sections, f"{page}: {name}"
    ours = "on|pin|lift|reserved|excluded|included|memoryManager|cpuManager|topologyManager"
    for name in re.findall(rf"`((?:{ours})[A-Za-z]+)(?::|`)", text):
        if re.search(r"[A-Z]", name):
            assert name in settings, f"{page}: {name}"


@pytest.mark.parametrize("page", pages.PAGES, ids=lambda page: str(page.relative_to(pages.ROOT)))
def test_examples_can_be_read(page: Path) -> None:
    """YAML and JSON parse; what is a configuration of ours is one."""
    for text in pages.blocks(page, "json"):
        json.loads(text)
    for text in pages.blocks(page, "yaml"):
        found = yaml.safe_load(text)
        if set(found) <= set(Settings().shown()):
            parse(found)


def test_files_on_the_node() -> None:
    """Every file of the state folder that the code names."""
    texts = (path.read_text("utf-8") for path in CODE.rglob("*.py"))
    found = {name for text in texts for name in re.findall(r'^FILE = "([\w.]+)"', text, re.MULTILINE)}
    files = pages.first_cells(pages.section(REFERENCE, "Files on the node"))
    assert {Path(each).name for each in files} == found | {"checkpoint.json"}
