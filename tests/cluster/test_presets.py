"""The presets' pods on a real API server that enforces Pod Security: privileged takes them, baseline does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chart.test_presets import PRESETS
from tests.cluster.control_plane import ApiError, ControlPlane
from tests.cluster.objects import Object, namespace
from tools.chart import rendering
from tools.chart.rendering import CHART, of_kind

pytestmark = [pytest.mark.cluster, pytest.mark.go]
LEVEL = "pod-security.kubernetes.io/enforce"


def agents_pod(values: Path) -> Object:
    """A pod as the DaemonSet makes it."""
    found = of_kind(rendering.objects(rendering.render("--values", values)), "DaemonSet")
    template = found["spec"]["template"]
    spec = {
        key: value
        for key, value in template["spec"].items()
        if key not in ("serviceAccountName", "priorityClassName")
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {**template["metadata"], "name": "agent"}, "spec": spec}


@pytest.mark.parametrize("values", [*PRESETS, CHART / "ci" / "default-values.yaml"], ids=lambda path: path.stem)
def test_pods_are_admitted_where_the_namespace_says_privileged(cluster: ControlPlane, values: Path) -> None:
    """With the label that the page names; the API server does judge: at the level baseline it refuses the same."""
    for level, taken in (("privileged", True), ("baseline", False)):
        space = namespace(f"level-{level}")
        space["metadata"]["labels"] = {LEVEL: level}
        cluster.ensure(space)
        path = f"/api/v1/namespaces/level-{level}/pods?dryRun=All&fieldValidation=Strict"
        if taken:
            cluster.call("POST", path, agents_pod(values))
            continue
        with pytest.raises(ApiError, match="violates PodSecurity"):
            cluster.call("POST", path, agents_pod(values))
