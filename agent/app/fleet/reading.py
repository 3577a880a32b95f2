"""Reads the objects of a cluster in one pass: the fleet. A bad object does not affect any other."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from agent.app.fleet.objects import (
    NAMESPACE,
    NODE,
    POD,
    TOPOLOGY,
    NodeObject,
    PublishedTopology,
    Raw,
    defaults_of,
    fleet_pod,
    name_of,
    node_object,
    published,
    troubled,
)
from agent.app.fleet.source import Progress, Source, silent
from agent.errors import NewerSummaryError, SummaryError
from agent.forecast.fleet.values import Fleet, FleetNode, FleetPod, Lack
from agent.forecast.node_summary import TOO_LARGE, Decoder, NodeSummary
from agent.model.notes import bounded

LATE = 60.0
"""Seconds within which an agent publishes what it learns: a pod that was bound longer ago must be in the summary."""
AHEAD = 300.0
"""Seconds that another clock may be ahead."""


def read_fleet(source: Source, progress: Progress = silent, clock: Callable[[], float] = time.time) -> Fleet:
    """All nodes that published something, or that are there.

    Args:
        source: of the objects.
        progress: called as they come.
        clock: seconds since the epoch.

    Raises:
        NumalignError: nothing can be read; the text has the remedy.
    """
    found = _Found()
    notes = source.load(
        {TOPOLOGY: found.topology, NODE: found.node, NAMESPACE: found.namespace, POD: found.pod}, progress
    )
    return found.fleet(clock(), notes)


def with_troubled(fleet: Fleet, names: Sequence[str], source: Source, progress: Progress = silent) -> Fleet:
    """The same with the misaligned and refused pods of some nodes, where only pods that have not started were listed.

    Raises:
        NumalignError: they cannot be read.
    """
    more = _Found(defaults=dict(fleet.defaults))

    def take(body: Raw) -> None:
        if troubled(body):
            more.pod(body)

    source.pods_of(names, take, progress)
    bound = more.bound()
    nodes = tuple(
        replace(each, pods=_merged(each.pods, bound[each.name])) if each.name in bound else each
        for each in fleet.nodes
    )
    return replace(fleet, nodes=nodes)


def _merged(before: tuple[FleetPod, ...], more: list[FleetPod]) -> tuple[FleetPod, ...]:
    return tuple({each.key: each for each in (*before, *more)}.values())


@dataclass(slots=True)
class _Found:
    """What came so far, by name."""

    decoder: Decoder = field(default_factory=Decoder)
    topologies: dict[str, tuple[PublishedTopology, NodeSummary | None, Lack | None, str]] = field(
        default_factory=dict
    )
    nodes: dict[str, NodeObject] = field(default_factory=dict)
    defaults: dict[str, Mapping[str, str]] = field(default_factory=dict)
    pods: dict[str, FleetPod] = field(default_factory=dict)

    def topology(self, body: Raw) -> None:
        """A NodeResourceTopology."""
        name, found = name_of(body), published(body)
        if name:
            self.topologies[name] = (found, *summary_in(found, self.decoder))

    def node(self, body: Raw) -> None:
        """A Node."""
        if name := name_of(body):
            self.nodes[name] = node_object(body)

    def namespace(self, body: Raw) -> None:
        """A Namespace."""
        self.defaults[name_of(body)] = defaults_of(body)

    def pod(self, body: Raw) -> None:
        """A Pod."""
        found = fleet_pod(body)
        self.pods[found.key] = found

    def bound(self) -> dict[str, list[FleetPod]]:
        """Node -> its pods, in order of creation."""
        found: dict[str, list[FleetPod]] = {}
        for each in self._in_order():
            if each.node:
                found.setdefault(each.node, []).append(each)
        return found

    def fleet(self, now: float, notes: tuple[str, ...]) -> Fleet:
        """All of it."""
        bound, names = self.bound(), sorted(self.topologies.keys() | self.nodes.keys())
        return Fleet(
            nodes=tuple(self._node(name, bound.get(name, []), now) for name in names),
            unbound=tuple(each for each in self._in_order() if not each.node and not each.ended),
            defaults=self.defaults, read=now, notes=notes,
        )  # fmt: skip

    def _in_order(self) -> list[FleetPod]:
        def order(each: FleetPod) -> tuple[float, str]:
            return each.pod.created if each.pod else 0.0, each.key

        return sorted(map(self._defaulted, self.pods.values()), key=order)

    def _defaulted(self, found: FleetPod) -> FleetPod:
        defaults = self.defaults.get(found.key.partition("/")[0])
        if not defaults or found.pod is None:
            return found
        return replace(found, pod=replace(found.pod, annotations=bounded({**defaults, **found.pod.annotations})))

    def _node(self, name: str, pods: list[FleetPod], now: float) -> FleetNode:
        nothing = (
            PublishedTopology(),
            None,
            Lack.MISSING,
            "it has no NodeResourceTopology object: no agent publishes here",
        )
        told, summary, lack, why = self.topologies.get(name, nothing)
        there = self.nodes.get(name)
        if summary is not None and lack is None:
            lack, why = self._old(told, summary, there, pods, now)
        there = there or NodeObject()
        return FleetNode(name, summary, lack, why, there.body, there.allocatable, there.ready, tuple(pods))

    def _old(
        self,
        told: PublishedTopology,
        summary: NodeSummary,
        there: NodeObject | None,
        pods: list[FleetPod],
        now: float,
    ) -> tuple[Lack | None, str]:
        """Return how a summary is of another time than the objects, and the reason; (None, "") if it is not."""
        if self.nodes and there is None:
            return Lack.GONE, "its Node object is gone"
        if there and told.owner and there.uid and told.owner != there.uid:
            return Lack.STALE, "its Node was created again since: the summary is of the node before"
        if summary.changed > now + AHEAD:
            return Lack.STALE, f"it is of {summary.changed - now:.0f} s in the future: the node's clock is wrong"
        late = [each for each in pods if not each.ended and summary.changed + LATE < each.bound < now - LATE]
        if late:
            first = min(late, key=lambda each: each.bound)
            return Lack.STALE, (
                f"pod {first.key} was bound {first.bound - summary.changed:.0f} s after the summary changed last: "
                "does the agent of this node run?"
            )
        return None, ""


def summary_in(found: PublishedTopology, decoder: Decoder) -> tuple[NodeSummary | None, Lack | None, str]:
    """The summary of an object, or why there is none."""
    if not found.summary:
        by = "its agent does not publish one (fleet.publish)" if found.ours else "its object is not numalign's"
        return None, Lack.MISSING, by
    try:
        read = decoder.decode(found.summary)
    except NewerSummaryError as error:
        return None, Lack.NEWER, str(error)
    except SummaryError as error:
        return None, Lack.TOO_LARGE if found.summary.startswith(TOO_LARGE) else Lack.BROKEN, str(error)
    except Exception as error:  # noqa: BLE001 - whatever a text brings about costs its node only
        return None, Lack.BROKEN, f"the summary cannot be read: {type(error).__name__}"
    if not found.marked:
        why = "an agent that publishes no summary has written the object since: an older numalign?"
        return read, Lack.STALE, why
    return read, None, ""
