"""Pods as the API lists them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def manifest(
    name: str, *containers: Mapping[str, Any], inits: Iterable[Mapping[str, Any]] = (), created: int = 0,
    namespace: str = "default", **annotations: str,
) -> dict[str, Any]:  # fmt: skip
    """A pod's manifest; its uid is its name."""
    stamp = f"2026-01-01T00:{created // 60:02}:{created % 60:02}Z"
    notes = {f"numalign.io/{key.replace('_', '-')}": value for key, value in annotations.items()}
    return {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": namespace, "uid": name, "creationTimestamp": stamp, "annotations": notes
        },
        "spec": {"initContainers": list(inits), "containers": list(containers or (container(),))},
    }  # fmt: skip


def container(name: str = "app", cpu: str = "2", memory: str = "64Mi", **extra: Any) -> dict[str, Any]:  # noqa: ANN401 - a manifest's fields
    """A container with equal requests and limits; empty texts leave a resource out."""
    limits = {key: value for key, value in (("cpu", cpu), ("memory", memory)) if value}
    return {"name": name, "image": "example.com/x", "resources": {"limits": limits}, **extra}
