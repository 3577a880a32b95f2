"""A step's pod as a manifest."""

from __future__ import annotations

from typing import Any

from tests.referee.sequence import Resources, Step

IMAGE = "example.com/x"


def manifest_of(step: Step, *, created: int = 0) -> dict[str, Any]:
    """The pod as the API server keeps it; name and uid are the step's.

    Args:
        step: one that creates.
        created: seconds after the first, for the order of admission.
    """
    spec: dict[str, Any] = {"containers": [_container(name, each) for name, each in step.containers.items()]}
    if step.init:
        spec["initContainers"] = [_container(name, each) for name, each in step.init.items()]
    if step.resources is not None:
        spec["resources"] = step.resources.body()
    stamp = f"2026-01-01T{created // 3600:02}:{created // 60 % 60:02}:{created % 60:02}Z"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": step.create, "namespace": "default", "uid": step.create, "creationTimestamp": stamp},
        "spec": spec,
    }


def _container(name: str, resources: Resources) -> dict[str, Any]:
    body: dict[str, Any] = {"name": name, "image": IMAGE, "resources": resources.body()}
    return {**body, "restartPolicy": "Always"} if resources.sidecar else body
