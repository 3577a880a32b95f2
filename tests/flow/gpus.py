"""GPUs that the kubelet gives, pods that ask for them, and a world with both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agent.core.devices.kubelet import Offered
from agent.model.idset import CpuSet, NodeSet
from tests.flow.world import World, container, manifest

GPU = "vendor.com/gpu"
POLICIES = ["none", "best-effort", "restricted", "single-numa-node"]


def gpu(number: str, *nodes: int) -> Offered:
    """A device of the kubelet's."""
    return Offered(GPU, number, NodeSet.of(*nodes))


def asking(name: str = "job", gpus: int = 1, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - a manifest's fields
    """A pod of two CPUs and some GPUs."""
    body = container()
    body["resources"]["limits"][GPU] = str(gpus)
    return manifest(name, body, **more)


def world(folder: Path, *offered: Offered, **more: Any) -> World:  # noqa: ANN401 - of World
    """Two nodes of four CPUs; CPU 0 is the system's. Without devices a pod lies on node 0."""
    made = World(folder, **more)
    made.engine.pods_listed(set())
    made.engine.devices_offered(offered)
    return made


def nodes(of: World, uid: str = "job") -> str:
    """Where a pod's CPUs lie."""
    return str(of.machine.nodes_of(of.engine.ledger.grant(uid, "app").cpus or CpuSet()))
