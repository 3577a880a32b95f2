"""Helm 4 makes of the chart what Helm 3 makes of it; Argo CD and Flux use it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.peers import tools
from tools.chart import rendering
from tools.chart.rendering import CHART, NAMESPACE, NEWEST, Object

pytestmark = [pytest.mark.go, pytest.mark.usefixtures("charting")]
CASES = sorted((*CHART.glob("ci/*-values.yaml"), *CHART.glob("presets/*.yaml")))
WRONG = ("resources.limits.cpus=1", "config.onMisalignment=sometimes", "commonLabels.helm\\.sh/chart=mine")


def helm(folder: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run Helm 4 in a home of its own."""
    own = {f"HELM_{each}_HOME": str(folder / each) for each in ("CACHE", "CONFIG", "DATA")}
    return subprocess.run(
        [tools.helm4(), *arguments], capture_output=True, text=True, check=False, timeout=120,
        env={"HOME": str(folder), "PATH": "", **own},
    )  # fmt: skip


def template(folder: Path, *flags: str | Path) -> subprocess.CompletedProcess[str]:
    """Render, as `tools.chart.rendering.render` does by Helm 3."""
    return helm(folder, "template", "numalign", CHART, "--namespace", NAMESPACE, "--kube-version", NEWEST, *flags)


def by_name(found: Iterable[Object]) -> dict[tuple[str, str], Object]:
    """Objects without their order."""
    return {(each["kind"], each["metadata"]["name"]): each for each in found}


@pytest.mark.parametrize("values", CASES, ids=lambda path: path.stem)
def test_objects_are_the_same(values: Path, tmp_path: Path) -> None:
    """Every object, hooks and tests too, in whatever order."""
    done = template(tmp_path, "--values", values)
    assert done.returncode == 0, done.stderr
    theirs = by_name(rendering.objects(done.stdout))
    assert theirs == by_name(rendering.objects(rendering.render("--values", values)))


def test_helm_lints_without_a_word(tmp_path: Path) -> None:
    """Strictly, and with the schema."""
    done = helm(tmp_path, "lint", "--strict", CHART)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 chart(s) failed" in done.stdout + done.stderr


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_values_are_refused(wrong: str, tmp_path: Path) -> None:
    """By the schema and by the templates, with the key."""
    done = template(tmp_path, "--set", wrong)
    assert done.returncode != 0
    assert wrong.partition("=")[0].rpartition(".")[2].removeprefix("sh/") in done.stderr
