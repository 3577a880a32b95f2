"""What `kubectl get pods` prints is read, and the forecast is what the agent did with the same pods."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tests.kubectl.conftest import NODE, PODS, Scene

pytestmark = pytest.mark.cluster


def test_the_forecast_is_what_the_agent_did(scene: Scene, tmp_path: Path) -> None:
    """CPUs, alignment and refusals of all pods, from a real API server's answer, on the agent's own machine."""
    config = tmp_path / "config.yaml"
    settings = yaml.safe_load(scene.place.config.read_text())
    kept = {"cpu": "1", "memory": "924Mi"}  # the Node's capacity less allocatable; 100Mi is the eviction threshold
    config.write_text(yaml.safe_dump({**settings, "kubeReserved": kept}))
    listed = scene.desk.json("kubectl", "get", "pods", "-A", "-o", "json")
    for pod in listed["items"]:  # the API keeps seconds: the order in which the pods came must be said
        number = list(PODS).index(pod["metadata"]["name"]) if pod["metadata"]["name"] in PODS else 50
        pod["metadata"]["creationTimestamp"] = f"2026-01-01T00:00:{number:02}Z"
    (tmp_path / "pods.json").write_text(json.dumps(listed))
    answer = scene.desk.json(
        "numalign", "simulate", "--pods", str(tmp_path / "pods.json"), "--root", scene.place.machine_spec,
        "--config", str(config), "--keep-nodes", "-o", "json",
    )  # fmt: skip
    (variant,) = answer["variants"]
    found = {each["pod"]: each for each in variant["placements"]}
    for name in PODS:
        pod = next(each for each in listed["items"] if each["metadata"]["name"] == name)
        told = pod["metadata"]["annotations"].get("numalign.io/cpus", "")
        here = found[f"{NODE}/{name}"]
        assert here["node"] == NODE
        assert (here["containers"][0]["cpus"] or "") == told, name
        refused = "TopologyAffinityError" if here["refusal"] else None
        told_refused = json.loads(pod["metadata"]["annotations"]["numalign.io/assignment"]).get("refused")
        assert refused == told_refused, name
    assert found[f"{NODE}/trader"]["state"] == "aligned"
    assert found[f"{NODE}/wide"]["state"] == "not-aligned"
    assert found[f"{NODE}/typo"]["problems"]
