"""The table of the kubelet's own scenarios: complete, and every counterpart is there."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.peers import KUBERNETES
from tests.referee.sequence import FOLDER, read_all

ROW = re.compile(r"^\| ([a-z_]+_test\.go:\d+) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
SUITES = ("cpu_manager_test.go", "memory_manager_test.go", "topology_manager_test.go")


def rows() -> list[tuple[str, str, str]]:
    """Scenario, what it is about, our counterpart."""
    return ROW.findall((FOLDER / "README.md").read_text("utf-8"))


def test_each_scenario_has_a_counterpart_or_a_reason() -> None:
    """103 rows, each once; a counterpart is a file and a pod that it creates; few have none."""
    pods = {each.name: {step.create for step in each.steps if step.create} for each in read_all()}
    found = rows()
    assert len({where for where, _, _ in found}) == len(found) == 103
    without = 0
    for where, _, here in found:
        if here.startswith("not: "):
            without += 1
            continue
        for counterpart in here.split(", "):
            name, _, pod = counterpart.partition(": ")
            assert pod in pods.get(name, ()), f"{where}: {counterpart}"
    assert without == 5


def test_every_file_that_mirrors_nothing_says_something_of_its_own() -> None:
    """No two files tell the same."""
    said = [each.about for each in read_all()]
    assert len(set(said)) == len(said)


def test_the_table_names_the_scenarios_of_the_suites() -> None:
    """Where the source of Kubernetes is in the module cache: its scenarios are the table's rows, line by line."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("there is no Go, so no module cache with the source of Kubernetes")
    cache = subprocess.run([go, "env", "GOMODCACHE"], capture_output=True, text=True, check=True).stdout.strip()
    suites = Path(cache) / f"k8s.io/kubernetes@{KUBERNETES}" / "test" / "e2e_node"
    if not suites.is_dir():
        pytest.skip("the source of Kubernetes is not in the module cache")
    there = {
        f"{name}:{number}"
        for name in SUITES
        for number, line in enumerate((suites / name).read_text("utf-8").splitlines(), 1)
        if line.strip().startswith("ginkgo.It(")
    }
    assert {where for where, _, _ in rows()} == there
