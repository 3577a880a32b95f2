"""Pods and containers as values, requests equal to limits; what a test does not name is left out.

Pods as the API lists them are made by `tests.world.manifests`.
"""

from __future__ import annotations

from collections.abc import Mapping

from agent.model.pod import Container, ContainerKind, Pod, Qos

HUGE_2M, HUGE_1G = "hugepages-2Mi", "hugepages-1Gi"
INIT, SIDECAR, APP = ContainerKind.INIT, ContainerKind.SIDECAR, ContainerKind.APP


def container(
    name: str,
    kind: ContainerKind = APP,
    *,
    cpus: float = 1,
    limits: Mapping[str, int] | None = None,
    **memory: int | None,
) -> Container:
    """A container with CPUs and bytes; "huge1g" and "huge2m" are page sizes, `limits` units of anything else."""
    names = {"memory": "memory", "huge1g": HUGE_1G, "huge2m": HUGE_2M}
    asked = {
        "cpu": cpus,
        **{names[key]: amount for key, amount in memory.items() if amount is not None},
        **(limits or {}),
    }
    milli = {key: round(amount * 1000) for key, amount in asked.items()}
    return Container(name, kind, milli, milli)


def pod(
    uid: str,
    *containers: Container,
    qos: Qos = Qos.GUARANTEED,
    whole: Mapping[str, int] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> Pod:
    """A pod, named by its uid; `whole` are its pod-level resources, in whole units."""
    milli = None if whole is None else {key: amount * 1000 for key, amount in whole.items()}
    return Pod(uid, uid, "default", containers, qos, requests=milli, limits=milli, annotations=annotations or {})
