"""Finds other writers of cpusets on this node: while there is one, the engine observes only (safety rule S10)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from agent.core.cgroups.writers import kubelet_writes, pod_writes
from agent.engine.engine import Engine
from agent.host.writers import look

MOST_NAMED = 3
"""Pods that a sentence names."""
SOURCE, CONFIGZ, PODS, SLICES = "files", "configz", "pods", "slices"
"""The sources that stop and resume the engine here (`Engine.switch`)."""
SOURCES = (SOURCE, CONFIGZ, PODS, SLICES, "flapping")
"""All sources; the last is the engine's own: sets that change back and forth."""


def mind_other_writers(engine: Engine, root: Path, kubelet: Path) -> None:
    """Look for other writers of cpusets on this node; while there is one, observe only (safety.md S10).

    Args:
        engine: the engine.
        root: where the host's file system is seen.
        kubelet: the kubelet's folder, --root-dir.
    """
    found = look(root, kubelet)
    engine.switch(observe_only=bool(found), why="; ".join(found), source=SOURCE)


def mind_kubelet(engine: Engine, configuration: Mapping[str, object]) -> None:
    """Follow the kubelet's configuration (nodes/configz, S19): with a static policy, observe only.

    Args:
        engine: the engine.
        configuration: {"kubeletconfig": {...}}, or a KubeletConfiguration.
    """
    why = kubelet_writes(configuration)
    engine.switch(observe_only=bool(why), why=why, source=CONFIGZ)


def writing_pods(bodies: Iterable[object]) -> tuple[str, ...]:
    """Return a sentence for each pod of this node that writes cpusets."""
    return tuple(sorted({found for body in bodies if (found := pod_writes(body))}))


def mind_pods(engine: Engine, found: tuple[str, ...]) -> None:
    """Follow the pods of this node: while one of them writes cpusets, observe only (safety.md S10).

    Args:
        engine: the engine.
        found: of `writing_pods`.
    """
    engine.switch(observe_only=bool(found), why="; ".join(found[:MOST_NAMED]), source=PODS)
