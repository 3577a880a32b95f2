"""The presets of distributions: each renders, is valid for every Kubernetes that is named, and stands on its page."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.chart import schemas
from tests.peers import tools
from tools.chart import rendering
from tools.chart.rendering import CHART, of_kind

pytestmark = [pytest.mark.go, pytest.mark.usefixtures("charting")]
PRESETS = sorted((CHART / "presets").glob("*.yaml"))
PAGE = rendering.ROOT / "deploy" / "docs" / "distributions.md"
FOREIGN = "SecurityContextConstraints"
"""OpenShift's own, of which there is no schema to be had: `tests.chart.test_openshift` looks at it."""
presets = pytest.mark.parametrize("preset", PRESETS, ids=lambda path: path.stem)


@presets
@pytest.mark.parametrize("version", schemas.MODULES)
def test_a_preset_makes_what_kubernetes_knows(preset: Path, version: str, tmp_path: Path) -> None:
    """No unknown value, no unknown field, for the oldest and the newest Kubernetes, and one between."""
    (tmp_path / "all.yaml").write_text(rendering.render("--values", preset, version=version))
    location = f"{schemas.folder(version)}/{schemas.LOCATION}"
    done = subprocess.run(
        [tools.kubeconform(), "-strict", "-summary", "-skip", FOREIGN, "-schema-location", location,
         tmp_path / "all.yaml"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"Errors: 0, Skipped: {int(preset.stem == 'openshift')}" in done.stdout


@presets
def test_a_preset_changes_something_and_says_why(preset: Path) -> None:
    """Its values are not the defaults, and its first line names the distribution."""
    everything = ("--set", "networkPolicy.enabled=true")
    assert rendering.render(*everything, "--values", preset) != rendering.render(*everything)
    assert preset.read_text("utf-8").startswith("# ")


def test_the_page_names_every_preset_and_no_other() -> None:
    """Each row has a source, and says whether we ran it."""
    presets_table, _, _ = PAGE.read_text("utf-8").partition("\n## ")
    rows = [line for line in presets_table.splitlines() if line.startswith("| ")][1:]
    rows = [row for row in rows if not row.startswith("|--")]
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[2])}
    assert named == {path.stem for path in PRESETS}
    for row in rows:
        *_, source, tried, _ = row.split("|")
        assert "](https://" in source, row
        assert tried.strip() in {"not tried by us", "-"}, row


def test_presets_and_defaults_agree_where_they_name_the_same() -> None:
    """The folder of another kubelet is mounted at the place that the agent looks at."""
    for name in ("microk8s", "k0s"):
        file = CHART / "presets" / f"{name}.yaml"
        root = yaml.safe_load(file.read_text("utf-8"))["kubelet"]["rootDir"]
        found = rendering.objects(rendering.render("--values", file))
        spec = of_kind(found, "DaemonSet")["spec"]["template"]["spec"]
        paths = {each["hostPath"]["path"] for each in spec["volumes"] if "hostPath" in each}
        assert f"{root}/pod-resources" in paths
        assert not any(path.startswith("/var/lib/kubelet") for path in paths)
