"""The report of a run, run/lab/report.md: what tests measured, and on what. pytest says what came of each test."""

from __future__ import annotations

import json
import os
import platform
from datetime import UTC, datetime
from pathlib import Path

from agent import __version__
from tests.cluster.control_plane import ApiError
from tests.lab import cells, sampling
from tests.lab.cluster import Lab
from tests.lab.guest import qemu_version
from tests.lab.needs import LabError
from tests.lab.places import RUN

FILE = "report.md"


def write(lab: Lab | None, seconds: float) -> Path:
    """Write it; what cannot be asked any more is left out."""
    head = (
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {seconds / 60:.1f} minutes in all, on {os.cpu_count()} CPUs "
        f"({platform.machine()}, Linux {platform.release()}). The guests' processors are emulated (QEMU TCG): "
        "times are many times longer than on a real machine; kernel, runtime and kubelet are the real ones.\n"
    )
    parts = ["# Lab report\n", head, figures(), sampling.figures(), _versions(lab)]
    path = RUN / FILE
    path.write_text("\n".join(part for part in parts if part))
    return path


def record(name: str, value: object) -> None:
    """Keep a test's figure for the report: a name like "NRI: pinned at the first instruction", "100 of 100"."""
    path = RUN / "figures.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**known, name: str(value)}, indent=1) + "\n")


def figures() -> str:
    """What tests recorded, as a table; "" for nothing."""
    path = RUN / "figures.json"
    if not path.exists():
        return ""
    return sampling.table("Figures", sorted(json.loads(path.read_text()).items()))


def _versions(lab: Lab | None) -> str:
    rows = [("numalign", __version__), ("QEMU", qemu_version())]
    for node in lab.nodes.values() if lab else ():
        plan = node.plan
        try:
            found = {**cells.versions([node]), "runc": node.run("runc --version | head -1").split()[-1]}
            told = ", ".join(f"{name} {version}" for name, version in found.items())
        except (ApiError, LabError, OSError):  # it does not answer any more: the report tells the rest
            told = "(down)"
        machine = node.guest.machine
        text = (
            f"{plan.kind} pins; {machine.cpus} CPUs, {machine.nodes} NUMA nodes, cgroup v{plan.cgroups}, "
            f"driver {plan.driver}, NRI {'on' if plan.nri else 'off'}; {told}"
        )
        rows.append((f"node {node.name}", text))
    return sampling.table("What ran", rows)
