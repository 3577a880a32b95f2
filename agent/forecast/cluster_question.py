"""What would become of pods in a cluster as it is, or with something changed: every node's own decision. Pure.

The scheduler's order is the one that was named; each node decides by its own machine, rules and grants
(`agent.forecast.cluster_site`). In order:

    returning  where a question changes the policy or the kubelet of nodes and brings no pods, the pods of those nodes
               come back to them, as after a reboot, by age; the owner of a pod that is refused there makes it again
    leaving    pods of nodes that are drained, and pods that were refused at their return, are placed again, by age
    new        the pods of the question

Where a node refuses a pod, its owner makes it again, and the scheduler may take any node that has not refused it
yet; after `retries` of that it stays refused. The real scheduler does not know which node refused, and may choose it
again.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial

from agent.forecast.cluster_site import ADMITTED, Change, ClusterSite, ask_each
from agent.forecast.scheduling import Strategy, needs_of
from agent.forecast.simulated_nodes import ask_of
from agent.forecast.simulation import EXPLAINED, RUNNING, Add, Fate, Result, Simulation
from agent.forecast.workload import WorkloadItem, again
from agent.node.standing import PodState

FITS = tuple(state for state in RUNNING if state is not PodState.OVERRULED)
"""How pods end that fit: admitted by their policy, or of no concern to it."""
LOOKED_AT = 400
"""Nodes in different states that are asked at most where else a refused pod would fit."""


ELSEWHERE = 1000
"""Which of its lives a pod is in where it is only asked for."""


class PlacedAs(StrEnum):
    """Why a pod is placed."""

    RETURNING = "returning"
    LEAVING = "leaving"
    NEW = "new"


@dataclass(frozen=True, slots=True)
class ClusterQuestion:
    """What is asked.

    Attributes:
        pods: new ones, in order.
        strategy: how the scheduler scores nodes.
        retries: how often an owner makes a refused pod again.
        changes: node -> what is changed of it.
        returning: pods that come back to the node that they name, by age.
        leaving: pods that have to go elsewhere, by age.
        closed: nodes that take no pod.
        now: seconds since the epoch.
    """

    pods: tuple[WorkloadItem, ...] = ()
    strategy: Strategy = Strategy.LEAST_ALLOCATED
    retries: int = 0
    changes: Mapping[str, Change] = field(default_factory=dict)
    returning: tuple[WorkloadItem, ...] = ()
    leaving: tuple[WorkloadItem, ...] = ()
    closed: frozenset[str] = frozenset()
    now: float = 1.0


@dataclass(frozen=True, slots=True)
class ClusterAnswer:
    """What came of it.

    Attributes:
        sites: the nodes, by number.
        result: of the simulation; its fates are those of the three parts, in order.
        parts: of each fate, why it was placed.
        elsewhere: of fates by number that do not fit: nodes where sums and decision would let the pod in at the end.
        searched: whether all nodes were asked for `elsewhere`.
        orphans: pods of drained nodes without an owner that makes them again.
    """

    sites: Sequence[ClusterSite]
    result: Result
    parts: tuple[PlacedAs, ...]
    elsewhere: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    searched: bool = True
    orphans: tuple[WorkloadItem, ...] = ()

    @property
    def fates(self) -> tuple[Fate, ...]:
        """Of every pod that was placed."""
        return self.result.fates

    def of(self, part: PlacedAs) -> list[Fate]:
        """The fates of one part."""
        return [fate for fate, each in zip(self.fates, self.parts, strict=True) if each is part]

    @property
    def missing(self) -> list[Fate]:
        """Return the pods that do not fit. A pod that was refused at its return counts where it was placed next."""
        return [
            fate for fate, part in zip(self.fates, self.parts, strict=True)
            if fate.state not in FITS and not (part is PlacedAs.RETURNING and goes_elsewhere(fate.item))
        ]  # fmt: skip

    @property
    def fits(self) -> bool:
        """Return True if every pod fits and none is lost."""
        return not self.missing and not self.orphans


def answer(
    sites: Sequence[ClusterSite], question: ClusterQuestion, progress: Callable[[], None] = lambda: None, *,
    only_if_all: bool = False,
) -> ClusterAnswer:  # fmt: skip
    """Place all pods, in order.

    Args:
        sites: the nodes, in the order that breaks ties.
        question: what is asked.
        progress: told after every pod.
        only_if_all: stop at the first pod that does not fit: the caller wants all in. Otherwise search where those
            that do not fit would fit.
    """
    there = [_asked(site, question) for site in sites]
    orphans = tuple(item for item in question.leaving if not item.owner)
    leaving = [replace(item, node="") for item in question.leaving if item.owner]

    def run(keep: Iterable[WorkloadItem], free: Iterable[WorkloadItem]) -> Result:
        simulation = Simulation(
            there, strategy=question.strategy, retries=question.retries, keep_nodes=True, progress=progress,
            now=question.now, strict=True, whole=only_if_all and not question.returning,
            explained=0 if only_if_all else EXPLAINED,
        )  # fmt: skip
        return simulation.run([Add(tuple(keep)), Add(tuple(free)), Add(question.pods)])

    result = run(question.returning, leaving)
    refused = [
        again(replace(fate.item, node=""), 1) for fate in result.fates[: len(question.returning)]
        if fate.state not in FITS and goes_elsewhere(fate.item)
    ]  # fmt: skip
    if refused:
        leaving = sorted([*leaving, *refused], key=lambda item: (item.pod.created, item.pod.uid))
        result = run(question.returning, leaving)
    parts = [*[PlacedAs.RETURNING] * len(question.returning), *[PlacedAs.LEAVING] * len(leaving)]
    parts += [PlacedAs.NEW] * (len(result.fates) - len(parts))
    parts = parts[: len(result.fates)]
    found = ClusterAnswer(there, result, tuple(parts), orphans=orphans)
    return found if only_if_all else _with_places(found, question.now)


def goes_elsewhere(item: WorkloadItem) -> bool:
    """Whether its owner makes it again on any node; pods of DaemonSets and of files belong to theirs."""
    return bool(item.owner) and item.owner.partition(" ")[0] not in ("DaemonSet", "Node")


def _asked(site: ClusterSite, question: ClusterQuestion) -> ClusterSite:
    change = question.changes.get(site.name)
    found = site if change is None else site.changed(change)
    return replace(found, facts=replace(found.facts, unschedulable=True)) if site.name in question.closed else found


def _with_places(found: ClusterAnswer, now: float) -> ClusterAnswer:
    """Where the pods that a node refused would fit at the end; pods that ask for the same are asked for once."""
    known: dict[Hashable, tuple[tuple[str, ...], bool]] = {}
    elsewhere, searched = dict[int, tuple[str, ...]](), True
    for number, fate in enumerate(found.fates):
        if fate.state in FITS or fate.state is PodState.UNSCHEDULABLE:
            continue
        same = ask_of(fate.item.pod), fate.item.placing
        if same not in known:
            known[same] = _places(found, fate.item, now)
        elsewhere[number], whole = known[same]
        searched = searched and whole
    return replace(found, elsewhere=elsewhere, searched=searched)


def _places(found: ClusterAnswer, item: WorkloadItem, now: float) -> tuple[tuple[str, ...], bool]:
    """The nodes that would take a pod now, best first, and whether all were asked."""
    barred = frozenset(number for number, site in enumerate(found.sites) if site.bars(item.placing))
    order = found.result.scheduler.order(needs_of(item.pod), barred)
    nodes = ((found.sites[number].name, partial(found.result.nodes.__getitem__, number), now) for number in order)
    asked = list(ask_each(nodes, again(item, ELSEWHERE).pod, LOOKED_AT))
    return tuple(name for name, why in asked if why in ADMITTED), len(asked) == len(order)
