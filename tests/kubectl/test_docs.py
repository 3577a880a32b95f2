"""The documentation's kubectl commands, run against a real API server with a real agent."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from tests.docs import pages
from tests.kubectl.conftest import NODE, Scene

pytestmark = pytest.mark.cluster
OTHERS = ("argoproj.io/", "helm.toolkit.fluxcd.io/")
"""Kinds that this API server does not know; tests/chart/test_gitops.py renders the chart with their values."""
COMMANDS = [command for command in pages.commands() if command.place == "cluster"]
NAMES = {"POD": "greedy", "NODE": NODE, "NAMESPACE": NODE}
"""The words in capitals that a reader replaces."""


def filled(text: str) -> str:
    """A command with its placeholders replaced."""
    for word, value in NAMES.items():
        text = re.sub(rf"(?<![A-Z.:]){word}(?![A-Z:])", value, text)
    return text


@pytest.mark.parametrize("command", COMMANDS, ids=str)
def test_commands_for_a_cluster_run(scene: Scene, command: pages.Command) -> None:
    """Each ends with 0, as somebody with kubectl and the plugin."""
    scene.desk.run("bash", "-c", filled(command.text))


def test_columns_read_well(scene: Scene) -> None:
    """One line of custom columns says who got which CPUs on which NUMA node, and whether it is aligned."""
    (line,) = (each.text for each in COMMANDS if "custom-columns" in each.text)
    rows = {row.split()[1]: row.split() for row in scene.desk.run("bash", "-c", line).splitlines()}
    assert rows["NAME"] == ["NAMESPACE", "NAME", "CPUS", "NUMA", "ALIGNED"]
    assert rows["trader"] == [NODE, "trader", "1-2,9-10", "0", "Aligned"]
    assert rows["greedy"] == [NODE, "greedy", "<none>", "<none>", "TopologyAffinityError"]


def test_manifests_are_taken_by_the_api_server(scene: Scene, tmp_path: Path) -> None:
    """Every object in the pages' YAML, tried with --dry-run=server, but those of other projects' kinds."""
    found = 0
    for page in pages.PAGES:
        for text in pages.blocks(page, "yaml"):
            body = yaml.safe_load(text)
            if {"apiVersion", "kind", "metadata"} <= set(body) and not body["apiVersion"].startswith(OTHERS):
                found += 1
                file = tmp_path / f"{found}.yaml"
                file.write_text(text)
                scene.desk.run("kubectl", "apply", "--dry-run=server", "--validate=strict", "-f", str(file))
    assert found


def test_waiting_for_alignment(scene: Scene) -> None:
    """`kubectl wait` knows the condition, as it does any other."""
    page = (pages.DOCS / "operate.md").read_text("utf-8")
    wait = "kubectl wait --for=condition=numalign.io/Aligned pod/POD"
    assert wait in page
    pinned = wait.replace("Aligned", "Pinned")
    assert pinned in page
    for command in (wait, pinned):
        assert "pod/trader condition met" in scene.desk.run("bash", "-c", command.replace("POD", "trader"))
        text = scene.desk.run("bash", "-c", command.replace("POD", "greedy") + " --timeout=1s", code=1)
        assert "timed out" in text


def test_describe_tells_the_story(scene: Scene) -> None:
    """Condition, annotation and Event are all on the page that everybody opens first."""
    text = scene.desk.run("kubectl", "describe", "pod", "greedy", "-n", NODE)
    assert re.search(r"numalign.io/Aligned +False", text)
    assert re.search(r"numalign.io/Pinned +False", text)
    assert '"refused":"TopologyAffinityError"' in text
    assert re.search(
        r"Warning +TopologyAffinityError +.*numalign +Resources cannot be allocated with Topology locality: .* CPU",
        text,
    )
