"""What the watches told of nodes, their agents and their summaries, as events for `agent.forecast.gate`.

The readers run on the watches' threads, the rest on the leader's. A summary's sign of life is its agent's pod: while
that is Ready the summary counts as fresh, however long ago it changed, and from the moment that it is not, it ages.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from agent.app.fleet.objects import name_of, node_object, published
from agent.app.fleet.reading import AHEAD, summary_in
from agent.forecast.gate.events import NodeGone, NodeSeen, PodBound, SummarySeen
from agent.forecast.gate.values import PublishedSummary, SchedulerNode
from agent.forecast.node_summary import Decoder, NodeSummary
from agent.forecast.placing import facts_of
from agent.kube.gate.unbound_pods import UnboundBody, unbound
from agent.kube.topology_crd import mark_of
from agent.model.fields import Field, mapping_of, mappings_in, seconds_of
from agent.model.rules import Ceilings

Raw = Mapping[str, Any]
ALIVE = math.inf
"""The sign of life of an agent whose pod is Ready."""


@dataclass(frozen=True, slots=True)
class SeenNode:
    """A Node: its uid, and what the scheduler reads of it."""

    uid: str
    facts: SchedulerNode


@dataclass(frozen=True, slots=True)
class SeenSummary:
    """A NodeResourceTopology.

    Attributes:
        digest: of the annotation's text.
        summary: None where it cannot be decided by.
        owner: uid of its Node, "" for unknown.
        why: one sentence where there is no summary.
    """

    digest: str
    summary: NodeSummary | None
    owner: str
    why: str


@dataclass(frozen=True, slots=True)
class SeenAgent:
    """An agent's pod: its node, and when it was Ready last; ALIVE while it is."""

    node: str
    alive: float


def node(body: Raw, _known: bool) -> SeenNode | None:  # noqa: FBT001 - a `list_watch.Reader`
    """Read a Node; raises MalformedError."""
    found = node_object(body)
    if not name_of(body):
        return None
    return SeenNode(
        found.uid, SchedulerNode(facts_of(Field(found.body)), found.allocatable, found.ready is not False)
    )


def agent(body: Raw, _known: bool) -> SeenAgent | None:  # noqa: FBT001 - as above
    """Read an agent's pod; None before it is bound."""
    spec, status = mapping_of(body.get("spec")), mapping_of(body.get("status"))
    where = spec.get("nodeName")
    if not isinstance(where, str) or not where:
        return None
    for each in mappings_in(status.get("conditions")):
        if each.get("type") == "Ready":
            since = seconds_of(each.get("lastTransitionTime")) or 0.0
            return SeenAgent(where, ALIVE if each.get("status") == "True" else since)
    return SeenAgent(where, 0.0)


def just_bound(body: Raw, _known: bool) -> PodBound | None:  # noqa: FBT001 - as above
    """Read a pod that is bound and has not started; None where it cannot be read, or has no time of its binding."""
    found = unbound(body, True)  # noqa: FBT003 - as above
    where = mapping_of(body.get("spec")).get("nodeName")
    if not isinstance(found, UnboundBody) or not isinstance(where, str):
        return None
    for each in mappings_in(mapping_of(body.get("status")).get("conditions")):
        if each.get("type") == "PodScheduled" and (at := seconds_of(each.get("lastTransitionTime"))):
            return PodBound(replace(found.pod, gates=(), nominated=""), where, at)
    return None


class Summaries:
    """The reader of NodeResourceTopologies: each text is decoded once. For one thread."""

    def __init__(self) -> None:
        self._decoder = Decoder()
        self._last: dict[str, SeenSummary] = {}

    def read(self, body: Raw, _known: bool) -> SeenSummary | None:  # noqa: FBT001 - as above
        """Read one."""
        name, found = name_of(body), published(body)
        digest = f"{mark_of(found.summary)}{'' if found.marked else ' unmarked'}"
        last = self._last.get(name)
        if last is not None and (last.digest, last.owner) == (digest, found.owner):
            return last
        summary, lack, why = summary_in(found, self._decoder)
        self._last[name] = made = SeenSummary(digest, None if lack else summary, found.owner, why)
        return made

    def forget(self, name: str) -> None:
        """Forget one that is gone."""
        self._last.pop(name, None)


@dataclass(slots=True)
class _KnownNode:
    """What is known of one node name."""

    node: SeenNode | None = None
    summary: SeenSummary | None = None
    agents: dict[str, SeenAgent] = field(default_factory=dict)
    told: PublishedSummary | None = None


class SeenCluster:
    """Puts together what belongs to one node. For one thread.

    Args:
        wall: seconds since the epoch.
    """

    def __init__(self, wall: Callable[[], float]) -> None:
        self._wall = wall
        self._places: dict[str, _KnownNode] = {}
        self._agents: dict[str, str] = {}
        self._namespaces: set[str] = set()

    @property
    def usable(self) -> int:
        """Count the nodes that can be decided by."""
        return sum(1 for each in self._places.values() if each.node and each.told and each.told.summary)

    @property
    def known(self) -> int:
        """Count the Nodes."""
        return sum(1 for each in self._places.values() if each.node)

    def node(self, name: str, seen: SeenNode | None) -> Iterator[NodeSeen | NodeGone | SummarySeen]:
        """Take a Node; None for one that is gone."""
        place = self._place(name)
        before, place.node = place.node, seen
        if seen is None:
            yield NodeGone(name)
        elif before is None or before.facts != seen.facts:
            yield NodeSeen(seen.facts)
        yield from self._told(name)

    def summary(self, name: str, seen: SeenSummary | None) -> Iterator[SummarySeen]:
        """Take a summary; None where the object is gone."""
        self._place(name).summary = seen
        yield from self._told(name)

    def agent(self, key: str, seen: SeenAgent | None) -> Iterator[SummarySeen]:
        """Take an agent's pod by its key; None where it is gone: from now on the summary ages."""
        where = self._agents.pop(key, "")
        last = self._place(where).agents.pop(key, None) if where else None
        if seen is None and last is not None:
            seen = SeenAgent(where, min(last.alive, self._wall()))
        if seen is None:
            return
        self._agents[key] = seen.node
        agents = self._place(seen.node).agents
        agents[key] = seen
        for old in sorted(agents, key=lambda each: agents[each].alive)[:-2]:  # one that leaves, one that comes
            del agents[old]
            self._agents.pop(old, None)
        yield from self._told(seen.node)

    def namespaces(self, names: Iterable[str]) -> Iterator[SummarySeen]:
        """Take the namespaces of gated pods: summaries that have digests of some get their names."""
        new = {*names} - self._namespaces
        if not new:
            return
        self._namespaces |= new
        for name, place in self._places.items():
            if place.summary and _named(place.summary.summary):
                yield from self._told(name)

    def _place(self, name: str) -> _KnownNode:
        return self._places.setdefault(name, _KnownNode())

    def _told(self, name: str) -> Iterator[SummarySeen]:
        place = self._places[name]
        found = self._published(place)
        if found != place.told:
            place.told = found
            yield SummarySeen(name, found)
        if place.node is None and place.summary is None and not place.agents:
            del self._places[name]

    def _published(self, place: _KnownNode) -> PublishedSummary | None:
        seen = place.summary
        if seen is None:
            return None
        summary, why, digest = seen.summary, seen.why, seen.digest
        if summary is not None and place.node is not None and seen.owner and seen.owner != place.node.uid:
            summary, why = None, "its Node was created again since: the summary is of the node before"
        elif summary is not None and summary.changed > self._wall() + AHEAD:
            summary, why = None, "it is of the future: the node's clock is wrong"
        if summary is None:
            return PublishedSummary(f"{digest} unusable", None, why=why)
        if _named(summary):
            summary, digest = summary.named(self._namespaces), f"{digest} {len(self._namespaces)}"
        alive = max((each.alive for each in place.agents.values()), default=summary.changed)
        return PublishedSummary(digest, summary, alive=max(alive, summary.changed))


def _named(summary: NodeSummary | None) -> bool:
    """Tell whether decisions read the namespaces of a summary's pods."""
    return summary is not None and (bool(summary.waiting) or summary.rules.ceilings != Ceilings())
