"""Pod manifests for tests; `Lab.create` adds image, node and what every pod of the lab has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Object = dict[str, Any]


def resources(cpu: str = "", memory: str = "64Mi", *, limits: Mapping[str, str] | None = None, **more: str) -> Object:
    """Requests, and limits that equal them unless others are given; `more` are names with _ for / and -.

    Args:
        cpu: "" for none.
        memory: "" for none.
        limits: instead of the requests; {} for none.
        more: further resources by their names, such as **{"hugepages-2Mi": "4Mi"}.
    """
    asked = {name: value for name, value in {"cpu": cpu, "memory": memory, **more}.items() if value}
    return {"requests": asked, "limits": asked if limits is None else dict(limits)}


def container(name: str = "c", cpu: str = "1", memory: str = "64Mi", **more: Any) -> Object:  # noqa: ANN401 - its spec
    """A Guaranteed container that sleeps; `more` is added to its spec."""
    return {"name": name, "resources": resources(cpu, memory), **more}


def pod(
    name: str, *containers: Object, cpu: str = "1", memory: str = "64Mi",
    annotations: Mapping[str, str] | None = None, **spec: Any,  # noqa: ANN401 - the pod's spec
) -> Object:  # fmt: skip
    """A pod of containers, or of one Guaranteed container called c."""
    return {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "annotations": dict(annotations or {})},
        "spec": {"containers": list(containers) or [container(cpu=cpu, memory=memory)], **spec},
    }  # fmt: skip
