"""A vector's pod as a manifest, so that the harness goes through `agent.model.podspec` like everything else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from agent.core.admission.empty_resources import as_the_kubelet_sees
from agent.model.pod import Pod
from agent.model.podspec import pod_from
from agent.model.rules import Compatibility, Minor, Rules


def pod_of(pod: dict[str, Any], minor: Minor) -> Pod:
    """A vector's pod as a kubelet of this minor sees it. Its status is empty, as that of a static pod."""
    found = replace(pod_from(manifest_of(pod)), static=True)
    return as_the_kubelet_sees(found, Rules(compatibility=Compatibility.KUBELET, minor=minor))


def manifest_of(pod: dict[str, Any]) -> dict[str, Any]:
    """A vector's pod as a manifest."""
    sections: dict[str, list[dict[str, Any]]] = {"initContainers": [], "containers": []}
    for each in pod["containers"]:
        kind = each["kind"]
        resources = {key: each[key] for key in ("requests", "limits") if key in each}
        container = {"name": each["name"], "resources": resources}
        if kind == "sidecar":
            container["restartPolicy"] = "Always"
        sections["containers" if kind == "app" else "initContainers"].append(container)
    spec: dict[str, Any] = dict(sections)
    if pod.get("resources") is not None:
        spec["resources"] = pod["resources"]
    return {"metadata": {"name": pod["uid"], "uid": pod["uid"]}, "spec": spec}
