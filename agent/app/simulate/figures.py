"""What a simulation came to: figures per variant, per node and per pod, and the JSON that programs read.

Amounts are exact: CPUs of requests in thousandths ("...Milli"), memory in bytes, the rest counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median_low
from typing import Any

from agent.app.simulate.simulate import Outcome, Prepared
from agent.core.accounting.fragmentation import largest_aligned
from agent.core.accounting.usage import NodeUse, usage
from agent.core.explain.grants import holdings_of
from agent.forecast.dry_run import DryRun
from agent.forecast.simulated_nodes import SimulatedNode
from agent.forecast.simulation import RUNNING, STATES, Fate, Result
from agent.model.idset import CpuSet, NodeSet
from agent.model.ledger import by_node
from agent.model.quantity import units
from agent.node.standing import PodState

VERSION = 1
"""Counts changes of meaning of the JSON; keys may be added without."""


@dataclass(frozen=True, slots=True)
class Fill:
    """One resource, on one node or on all. CPUs in thousandths, bytes, pieces.

    Attributes:
        allocatable: what pods may request.
        requested: what they do, as the scheduler counts.
        granted: what containers hold for themselves.
    """

    allocatable: int = 0
    requested: int = 0
    granted: int = 0

    def __add__(self, other: Fill) -> Fill:
        return Fill(
            self.allocatable + other.allocatable, self.requested + other.requested, self.granted + other.granted
        )


@dataclass(frozen=True, slots=True)
class NodeFigures:
    """How one node ends.

    Attributes:
        name, machine: of the node.
        pods: state -> how many.
        fills: resource -> how full.
        numa: its NUMA nodes.
        largest: resource -> the largest request that one NUMA node could still meet.
    """

    name: str
    machine: str
    pods: Mapping[PodState, int]
    fills: Mapping[str, Fill]
    numa: tuple[NodeUse, ...]
    largest: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Figures:
    """How one variant ends.

    Attributes:
        states: state -> how many pods.
        reasons: state -> reason -> how many pods: why they were refused, wait, or run unaligned all the same.
        lacking: resource -> how many unschedulable pods lack it somewhere.
        spanned: NUMA nodes -> how many pods hold something on so many.
        fills: resource -> how full all nodes are.
        largest: resource -> (best, median, worst node): the largest request that one NUMA node could still meet,
            of the nodes that have the resource at all.
        nodes: per node.
        retried: pods that were made again.
    """

    states: Mapping[PodState, int]
    reasons: Mapping[PodState, Mapping[str, int]]
    lacking: Mapping[str, int]
    spanned: Mapping[int, int]
    fills: Mapping[str, Fill]
    largest: Mapping[str, tuple[int, int, int]]
    nodes: tuple[NodeFigures, ...]
    retried: int = 0

    @property
    def all_in(self) -> bool:
        """True if every pod runs."""
        return not any(self.states.get(s) for s in (PodState.WAITING, PodState.REFUSED, PodState.UNSCHEDULABLE))


def figures(outcome: Outcome) -> Figures:
    """Count everything."""
    fates = outcome.result.fates
    nodes = _all_nodes(outcome)
    totals: dict[str, Fill] = {}
    having: dict[str, list[int]] = {}
    for node in nodes:
        for name, fill in node.fills.items():
            totals[name] = totals.get(name, Fill()) + fill
        for name, amount in node.largest.items():
            if node.fills[name].allocatable:
                having.setdefault(name, []).append(amount)
    reasons: dict[PodState, Counter[str]] = {}
    lacking, spanned = Counter[str](), Counter[int]()
    for fate in fates:
        if fate.refusal is not None:
            reasons.setdefault(fate.state, Counter())[fate.refusal.reason.value] += 1
        lacking.update(fate.lacking.keys())
        spanned[_span(outcome, fate)] += 1
    return Figures(
        states=Counter(fate.state for fate in fates),
        reasons={state: dict(sorted(found.items())) for state, found in sorted(reasons.items())},
        lacking=dict(sorted(lacking.items())),
        spanned={count: pods for count, pods in sorted(spanned.items()) if count},
        fills=totals,
        largest={name: (max(found), median_low(found), min(found)) for name, found in sorted(having.items())},
        nodes=nodes,
        retried=sum(fate.tries > 1 for fate in fates),
    )


def _all_nodes(outcome: Outcome) -> tuple[NodeFigures, ...]:
    states: dict[int, Counter[PodState]] = {}
    for fate in outcome.result.fates:
        if fate.site is not None and fate.state is not PodState.ENDED:
            states.setdefault(fate.site, Counter())[fate.state] += 1
    nodes = []
    for number, site in enumerate(outcome.sites):
        dry_run = outcome.result.nodes[number]
        machine = dry_run.node.machine
        numa = usage(dry_run.ledger, dry_run.node)
        whole = dry_run.node.rules.cpu.options.full_pcpus_only
        largest = largest_aligned(numa, machine, whole_cores=whole)
        if not dry_run.ledger.memory.nodes:  # no manager accounts for the memory of NUMA nodes: no figure
            largest = {"cpu": largest["cpu"]}
        fills = _fills(site.room, outcome.result.requested[number], dry_run, numa)
        nodes.append(NodeFigures(site.name, machine.name, states.get(number, Counter()), fills, numa, largest))
    return tuple(nodes)


def _fills(
    room: Mapping[str, int], requested: Mapping[str, int], dry_run: DryRun, numa: tuple[NodeUse, ...]
) -> dict[str, Fill]:
    granted = Counter[str]()
    granted["cpu"] = 1000 * sum(len(each.exclusive) for each in numa)
    for each in numa:
        for name, use in each.memory.items():
            granted[name] += use.granted
    for containers in dry_run.ledger.devices.held.values():
        for held in containers.values():
            for name, ids in held.items():
                granted[name] += len(ids)
    return {name: Fill(_unit(name, room[name]), _unit(name, requested[name]), granted[name]) for name in sorted(room)}


def _unit(name: str, milli: int) -> int:
    return milli if name == "cpu" else units(milli)


def _span(outcome: Outcome, fate: Fate) -> int:
    """On how many NUMA nodes lies what a pod holds; 0 where it holds nothing."""
    if fate.record is None or fate.site is None:
        return 0
    dry_run = outcome.result.nodes[fate.site]
    found = NodeSet()
    for got in holdings_of(dry_run.node, dry_run.ledger, fate.record.pod):
        found |= (got.confined or NodeSet()) | dry_run.node.seen.nodes_of(got.cpus or CpuSet())
        found |= NodeSet.from_ids(by_node(got.memory))
        found |= NodeSet.union(block.nodes for block in got.memory if block.size and not block.parts)
    return len(found)


def as_json(prepared: Prepared, outcomes: Mapping[str, tuple[Outcome, Figures]]) -> dict[str, Any]:
    """Everything for programs; deploy/docs/simulate.md says what each key is."""
    return {
        "version": VERSION,
        "pods": max(len(outcome.result.fates) for outcome, _ in outcomes.values()),
        "notes": list(prepared.notes),
        "wrong": list(prepared.wrong),
        "variants": [_variant(label, outcome, found) for label, (outcome, found) in outcomes.items()],
    }


def _variant(label: str, outcome: Outcome, found: Figures) -> dict[str, Any]:
    settings = outcome.variant.settings
    return {
        "label": label,
        "config": outcome.variant.config or None,
        "policy": settings.topology_manager_policy.value,
        "scope": settings.topology_manager_scope.value,
        "onMisalignment": settings.on_misalignment.value,
        "answers": outcome.answers,
        "allIn": found.all_in,
        "states": {state.value: found.states.get(state, 0) for state in STATES},
        "reasons": {state.value: dict(reasons) for state, reasons in found.reasons.items()},
        "lacking": dict(found.lacking),
        "madeAgain": found.retried,
        "numaNodesSpanned": {str(count): pods for count, pods in found.spanned.items()},
        "resources": {name: _fill(name, fill) for name, fill in found.fills.items()},
        "largestAligned": {
            name: dict(zip(("best", "median", "worst"), values, strict=True))
            for name, values in found.largest.items()
        },
        "notes": [*outcome.variant.ignored, *outcome.notes],
        "nodes": [_node(each) for each in found.nodes],
        "placements": [placement(outcome.result, outcome.sites, fate) for fate in outcome.result.fates],
    }


def _fill(name: str, fill: Fill) -> dict[str, int]:
    unit = "Milli" if name == "cpu" else ""
    return {
        f"allocatable{unit}": fill.allocatable,
        f"requested{unit}": fill.requested,
        f"granted{unit}": fill.granted,
    }


def _node(node: NodeFigures) -> dict[str, Any]:
    return {
        "name": node.name,
        "machine": node.machine,
        "states": {state.value: count for state, count in sorted(node.pods.items())},
        "resources": {name: _fill(name, fill) for name, fill in node.fills.items()},
        "largestAligned": dict(node.largest),
        "numaNodes": [
            {
                "id": use.id, "exclusive": str(use.exclusive), "reserved": str(use.reserved), "free": str(use.free),
                "memory": {
                    name: {"total": each.total, "system": each.system, "granted": each.granted}
                    for name, each in use.memory.items()
                },
            }
            for use in node.numa
        ],
    }  # fmt: skip


def placement(result: Result, sites: Sequence[SimulatedNode], fate: Fate) -> dict[str, Any]:
    """One pod, for programs."""
    pod = fate.item.pod
    dry_run = result.nodes[fate.site] if fate.site is not None else None
    return {
        "pod": pod.key,
        "owner": fate.item.owner or None,
        "state": fate.state.value,
        "node": sites[fate.site].name if fate.site is not None else None,
        "tries": fate.tries,
        "containers": _containers(dry_run, fate) if dry_run and fate.state in RUNNING else [],
        "refusal": fate.refusal.to_json() if fate.refusal else None,
        "lacking": dict(fate.lacking),
        "problems": list(fate.problems),
    }  # fmt: skip


def _containers(dry_run: DryRun, fate: Fate) -> list[dict[str, Any]]:
    pod = fate.record.pod if fate.record else fate.item.pod
    return [
        {
            "name": got.container,
            "cpus": str(got.cpus) if got.cpus else None,
            "numaNodes": str(dry_run.node.seen.nodes_of(got.cpus)) if got.cpus else "",
            "memory": {block.resource: block.size for block in got.memory},
            "memoryNodes": str(NodeSet.union(block.nodes for block in got.memory)),
            "devices": {name: list(ids) for name, ids in sorted(got.devices.items())},
            "aligned": got.aligned,
            "why": got.why,
        }
        for got in holdings_of(dry_run.node, dry_run.ledger, pod)
    ]
