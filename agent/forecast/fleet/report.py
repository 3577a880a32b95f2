"""The answers of a fleet as JSON for programs (deploy/docs/fleet.md), and summed up by shape for people. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from agent.forecast.fleet.figures import FleetFigures
from agent.forecast.fleet.questions import Fits, FleetAnswers, Largest, Trouble
from agent.forecast.fleet.values import Lack

VERSION = 1
"""Counts changes of meaning of the JSON; keys may be added without."""


@dataclass(frozen=True, slots=True)
class ShapeFigures:
    """Nodes of one shape under one policy.

    Attributes:
        shape, policy: see FleetFigures.
        nodes: how many.
        cpus, held: summed.
        fill, fragmentation, memory_fill: the mean.
        largest: CPUs on one NUMA node of the best of them.
        waiting: pods.
    """

    shape: str
    policy: str
    nodes: int
    cpus: int
    held: int
    fill: float
    fragmentation: float
    memory_fill: float
    largest: int
    waiting: int


def by_shape(figures: Iterable[FleetFigures]) -> tuple[ShapeFigures, ...]:
    """Nodes with a summary, in the order in which their shapes come first."""
    groups: dict[tuple[str, str], list[FleetFigures]] = {}
    for each in figures:
        if each.lack is None:
            groups.setdefault((each.shape, each.policy), []).append(each)
    return tuple(
        ShapeFigures(
            shape, policy, len(group), sum(each.cpus for each in group), sum(each.held for each in group),
            mean([each.fill for each in group]), mean([each.fragmentation for each in group]),
            mean([each.memory_fill for each in group]), max(each.largest for each in group),
            sum(each.waiting for each in group),
        )
        for (shape, policy), group in groups.items()
    )  # fmt: skip


def by_lack(figures: Iterable[FleetFigures]) -> dict[Lack, list[FleetFigures]]:
    """Nodes without a summary that can be decided by."""
    groups: dict[Lack, list[FleetFigures]] = {}
    for each in figures:
        if each.lack is not None:
            groups.setdefault(each.lack, []).append(each)
    return groups


def mean(shares: Sequence[float]) -> float:
    """Of shares; 0 of none."""
    return sum(shares) / len(shares) if shares else 0.0


def as_json(found: FleetAnswers, read: float) -> dict[str, Any]:
    """All of it; `read` is when, in seconds since the epoch."""
    return {
        "version": VERSION,
        "read": round(read, 3),
        "nodes": [_node(each) for each in found.figures],
        "largest": [_largest(each) for each in found.largest],
        "pods": [_pod(each) for each in found.troubles],
        "landedElsewhere": [
            {
                "pod": each.key,
                "releasedTo": each.promised,
                "node": each.node,
                "released": round(each.released, 3) or None,
            }
            for each in found.elsewhere
        ],
        "notes": list(found.notes),
    }


def _node(each: FleetFigures) -> dict[str, Any]:
    told: dict[str, Any] = {
        "name": each.name,
        "lack": each.lack.value if each.lack else None,
        "why": each.why or None,
    }
    if each.lack:
        return told
    return {
        **told, "shape": each.shape, "policy": each.policy, "enforcing": each.enforcing, "cpus": each.cpus,
        "exclusiveCpus": each.held, "largestCpus": each.largest, "largestMemory": each.memory_largest,
        "fill": round(each.fill, 4), "memoryFill": round(each.memory_fill, 4),
        "fragmentation": round(each.fragmentation, 4), "roomCpuMilli": each.room, "waiting": each.waiting,
    }  # fmt: skip


def _largest(each: Largest) -> dict[str, Any]:
    return {
        "policy": each.policy, "nodes": each.nodes, "cpus": each.cpus, "node": each.node or None, "exact": each.exact,
    }  # fmt: skip


def _pod(each: Trouble) -> dict[str, Any]:
    return {
        "pod": each.key, "state": each.kind, "node": each.node or None, "since": round(each.since, 3) or None,
        "why": each.why, "cpuMilli": each.cpus, "fits": None if each.fits is None else _fits(each.fits),
        "advice": each.advice,
    }  # fmt: skip


def _fits(found: Fits) -> dict[str, Any]:
    return {
        "nodes": list(found.nodes), "more": found.more, "asked": found.asked,
        "barred": dict(sorted(found.barred.items())), "refusals": dict(sorted(found.refusals.items())),
    }  # fmt: skip
