"""The report of a run, run/lab/report.md: what ran on what, how long, and what came out."""

from __future__ import annotations

import json
import os
import platform
import xml.etree.ElementTree as ET
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

from agent import __version__
from tests import peers
from tests.lab import builds
from tests.lab.cluster import Lab
from tests.lab.guest import CommandError, qemu_version
from tests.lab.needs import LabError
from tests.lab.places import RUN

FILE = "report.md"
TRIES = (RUN / "tests.xml", RUN / "again.xml", RUN / "again-2.xml")
"""What came of the tests, and each time of those that had failed."""
ORDINALS = ("first", "second", "third")
LAB_FAULTS = (
    *(f"{each.__module__}.{each.__qualname__}" for each in (LabError, CommandError)),
    *("TimeoutError", "urllib.error.URLError", "ConnectionResetError", "ConnectionRefusedError", "BrokenPipeError"),
    "Failed: Timeout (",
)
"""How the message of a failure begins that is the lab's own: a guest or the API server did not answer in time."""
AT_SETUP = 'failed on setup with "'
"""pytest's words before the message of a fixture's failure."""


def write(lab: Lab | None, seconds: float) -> Path:
    """Write it; what cannot be asked any more is left out.

    Args:
        lab: the lab while it runs.
        seconds: of the whole run.
    """
    head = (
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {seconds / 60:.1f} minutes in all, on {os.cpu_count()} CPUs "
        f"({platform.machine()}, Linux {platform.release()}). The guests' processors are emulated (QEMU TCG): "
        "times are many times longer than on a real machine; kernel, runtime and kubelet are the real ones.\n"
    )
    parts = ["# Lab report\n", head, _tests(*TRIES), _figures(), _versions(lab), _times()]
    path = RUN / FILE
    path.write_text("\n".join(part for part in parts if part))
    return path


def broken(*tries: Path) -> dict[str, list[str]]:
    """What tests said that failed and passed at no later try, by name; of each the last try that was made of it."""
    left: dict[tuple[str, str], list[str]] = {}
    for file in tries or TRIES:
        for case in _cases(file):
            outcome = _outcome(case)
            if outcome == "passed":
                left.pop(_name(case), None)
            elif outcome == "failed":
                said = (*case.findall("failure"), *case.findall("error"))
                left[_name(case)] = [each.get("message") or "" for each in said]
    return {f"{module}: {name}": texts for (module, name), texts in left.items()}


def only_lab_faults(left: dict[str, list[str]]) -> bool:
    """Whether what is broken is the lab's own fault: it did not do in time what the tests stand on."""
    texts = [text.removeprefix(AT_SETUP) for each in left.values() for text in each]
    return bool(texts) and all(each.startswith(LAB_FAULTS) for each in texts)


def record(name: str, value: object) -> None:
    """Keep a test's figure for the report: a name like "NRI: pinned at the first instruction", "100 of 100"."""
    path = RUN / "figures.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**known, name: str(value)}, indent=1) + "\n")


def _tests(file: Path, *again: Path) -> str:
    if not file.exists():
        return "No test ran.\n"
    later = [{_name(case): _outcome(case) for case in _cases(each)} for each in again]
    lines = []
    count: Counter[str] = Counter()
    for case in _cases(file):
        word = _outcome(case)
        passed = [number for number, found in enumerate(later, 1) if found.get(_name(case)) == "passed"]
        if word == "failed" and passed:
            word = f"passed at the {ORDINALS[passed[0]]} try"
        count[word] += 1
        module, name = _name(case)
        lines.append(f"| {module} | {_plain(name)} | {word} | {float(case.get('time') or 0):.0f} |")
    total = ", ".join(f"{number} {word}" for word, number in sorted(count.items()))
    return "\n".join([f"## Tests: {total}\n", "| file | test | | seconds |", "|---|---|---|---:|", *lines, ""])


def _cases(file: Path) -> list[ET.Element]:
    if not file.exists():
        return []
    return list(ET.parse(file).getroot().iter("testcase"))  # noqa: S314 - pytest's own file


def _name(case: ET.Element) -> tuple[str, str]:
    return (case.get("classname") or "").rpartition(".")[2], case.get("name") or ""


def _outcome(case: ET.Element) -> str:
    if case.find("failure") is not None or case.find("error") is not None:
        return "failed"
    return "skipped" if case.find("skipped") is not None else "passed"


def _plain(name: str) -> str:
    return name.removeprefix("test_").replace("_", " ").replace("|", "/")


def _figures() -> str:
    path = RUN / "figures.json"
    if not path.exists():
        return ""
    rows = [f"| {name} | {value} |" for name, value in sorted(json.loads(path.read_text()).items())]
    return "\n".join(["## Figures\n", "| what | |", "|---|---|", *rows, ""])


def _versions(lab: Lab | None) -> str:
    rows = [
        ("numalign", __version__), ("Kubernetes (control plane and kubelets)", peers.KUBERNETES),
        ("containerd", builds.CONTAINERD), ("Helm", builds.HELM), ("QEMU", qemu_version()),
    ]  # fmt: skip
    for node in lab.nodes.values() if lab else ():
        plan = node.plan
        try:
            told = node.run("uname -r; systemctl --version | head -1; runc --version | head -1").split("\n")
        except (LabError, OSError):
            told = ["(down)"]
        machine = node.guest.machine
        text = (
            f"{plan.kind} pins; {machine.cpus} CPUs, {machine.nodes} NUMA nodes, cgroup v{plan.cgroups}, "
            f"driver {plan.driver}, NRI {'on' if plan.nri else 'off'}; {'; '.join(told[:3])}"
        )
        rows.append((f"node {node.name}", text))
    lines = [f"| {name} | {value} |" for name, value in rows]
    return "\n".join(["## What ran\n", "| | |", "|---|---|", *lines, ""])


def _times() -> str:
    path = RUN / "times.json"
    if not path.exists():
        return ""
    rows = [f"| {name} | {seconds / 60:.1f} |" for name, seconds in json.loads(path.read_text()).items()]
    return "\n".join(
        ["## Minutes of each part (0.0: kept from an earlier run)\n", "| part | minutes |", "|---|---:|", *rows, ""]
    )
