"""What a newcomer's change touches, shown by making it: on a copy of the agent, asked through its commands."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

OPTION = "last-cpus-first"
"""An option that no kubelet has: exclusive CPUs come from the end."""
EXCLUDED = "distribute-cpus-across-numa"
CHANGE = {
    "agent/model/rules.py": (
        '    strict_reservation: Annotated[\n        bool, CpuOption("strict-cpu-reservation"',
        f'    last_first: Annotated[bool, CpuOption("{OPTION}", excludes=("{EXCLUDED}",))] = False\n',
    ),
    "agent/core/cpus/pools.py": (
        "    if options.distribute_across_numa:\n",
        """\
    if options.last_first:
        taken = 0
        for _ in range(count):
            taken |= 1 << (available & ~taken).bit_length() - 1
        return taken
""",
    ),
}
"""The table's row and the algorithm: file -> the lines before which lines are put, and these."""
MACHINE = "synthetic:1 socket x 8 cores, 8G per node"
POD = """
kind: Pod
metadata: {name: db, annotations: {numalign.io/cpu-options: %s=true}}
spec: {containers: [{name: app, resources: {limits: {cpu: "2", memory: 1Gi}}}]}
"""


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The agent with one option more."""
    folder = tmp_path_factory.mktemp("copy")
    shutil.copytree(ROOT / "agent", folder / "agent", ignore=shutil.ignore_patterns("__pycache__"))
    for name, (before, lines) in CHANGE.items():
        text = (folder / name).read_text("utf-8")
        assert text.count(before) == 1, f"{name} has changed: this test puts lines before {before!r}"
        (folder / name).write_text(text.replace(before, lines + before), "utf-8")
    return folder


def asked(folder: Path, *words: str) -> tuple[int, str]:
    """Exit code and output of a command of the agent in a folder."""
    done = subprocess.run(
        [sys.executable, "-m", *words], capture_output=True, text=True, check=False, cwd=folder,
        env={"PYTHONPATH": str(folder), "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def test_settings_know_a_new_option(copy: Path, tmp_path: Path) -> None:
    """Taken, refused beside what it excludes, and listed on the page of settings; the agent without it refuses it."""
    alone, both = tmp_path / "alone.yaml", tmp_path / "both.yaml"
    alone.write_text(f'cpuManagerPolicyOptions: {{{OPTION}: "true"}}')
    both.write_text(f'cpuManagerPolicyOptions: {{{OPTION}: "true", {EXCLUDED}: "true"}}')
    assert asked(ROOT, "agent", "config", "check", str(alone))[0] == 2
    code, said = asked(copy, "agent", "config", "check", str(alone))
    assert (code, OPTION in said) == (0, True), said
    code, said = asked(copy, "agent", "config", "check", str(both))
    assert (code, OPTION in said) == (2, True), said
    assert f"`{OPTION}`" in asked(copy, "tools.chart.settings_page")[1]


def test_pods_may_ask_for_a_new_option(copy: Path, tmp_path: Path) -> None:
    """Its annotation is followed by the algorithm; a wrong one names it among the options that there are."""
    (tmp_path / "pod.yaml").write_text(POD % OPTION)
    run = ("agent", "run", "--once", "--pods", str(tmp_path), "--root", MACHINE, "-o", "json", "--no-processes")
    code, said = asked(copy, *run)
    assert code == 0, said
    (container,) = json.loads(said[said.index("{") : said.rindex("}") + 1])["containers"]
    assert container["cpus"] == "6-7"
    (tmp_path / "pod.yaml").write_text(POD % "first-cpus-last")
    said = asked(copy, "agent", "explain", "--manifest", str(tmp_path / "pod.yaml"), "--root", MACHINE)[1]
    assert OPTION in " ".join(said.split())
