"""A disk that refuses at the start ends no agent: the startup probe asks for recovery only."""

from __future__ import annotations

from pathlib import Path

import yaml

from tests.findings.cluster_node import ClusterNode, page, until
from tests.flow.world import manifest

DEPLOY = Path(__file__).parents[2] / "deploy"


def refuse(state: Path) -> Path:
    """From now on every save fails, as on a full disk; what was saved can be read."""
    block = state / ".checkpoint.json.new"
    block.mkdir(parents=True)
    return block


def test_finding_23_the_startup_probe_passes_on_a_full_disk(tmp_path: Path) -> None:
    """A first start that can save nothing: recovered, not ready, and ready as soon as there is room again."""
    node = ClusterNode(tmp_path)
    node.world.run(manifest("db"))
    block = refuse(tmp_path / "state")
    with node.serving() as agent:
        until(lambda: page(agent, "/readyz?only=recovery")[0] == 200)
        assert page(agent, "/readyz?only=recovery") == (200, "started\n")
        status, text = page(agent, "/readyz")
        assert status == 503
        assert "checkpoint: " in text
        assert page(agent, "/healthz")[0] == 200
        assert node.world.effective("db") == "1-2"
        block.rmdir()
        until(lambda: "checkpoint: " not in page(agent, "/readyz")[1])


def test_finding_23_the_probes_of_the_manifests() -> None:
    """The startup probe asks for recovery, the readiness probe for all of it, the liveness probe for the loop."""
    documents = yaml.safe_load_all((DEPLOY / "manifests" / "numalign.yaml").read_text("utf-8"))
    (daemons,) = [each for each in documents if each and each["kind"] == "DaemonSet"]
    container = daemons["spec"]["template"]["spec"]["containers"][0]
    paths = {probe: container[f"{probe}Probe"]["httpGet"]["path"] for probe in ("startup", "readiness", "liveness")}
    assert paths == {"startup": "/readyz?only=recovery", "readiness": "/readyz", "liveness": "/healthz"}
