"""The nodes by what they answer to one kind of pod, in the order in which kube-scheduler would choose them.

Nodes are compared by identity: only those that have changed since the last look are judged again, by sums first. The
decision is asked of those alone that sums and filters let a pod go to, the likeliest first, within a budget. A view
is a memo: it holds what pure functions of its sites return, and states that share it stay right.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from agent.forecast.gate.books import NodeSite, PodKind, Reply, alike
from agent.forecast.gate.values import UnboundPod
from agent.forecast.scheduling import Strategy, needs_of
from agent.forecast.simulated_nodes import ask_of

MOST_KINDS = 32
"""Kinds of pods whose views are kept, however many nodes there are."""
STANDINGS = 1_000_000
"""What the kept views hold at most beyond that: kinds times nodes, 150 bytes each."""
ENOUGH = 50
"""Nodes that are asked for a better place of a pod that one has taken."""


class NodeStanding(IntEnum):
    """Where a node stands for a kind of pod."""

    TAKES = 0  # sums, filters and the decision let it in
    REFUSES = 1  # sums and filters do, the decision does not
    UNASKED = 2  # sums and filters do, and the decision is not known yet
    SHORT = 3  # sums lack something, filters let it in
    OUT = 4  # a filter keeps it away
    BLIND = 5  # the decision cannot be known


class RankedNode(NamedTuple):
    """A node in the order of a view: misaligned last, then by score, then by name."""

    standing: NodeStanding
    misaligned: bool = False
    behind: int = 0
    name: str = ""


APART = {each: RankedNode(each) for each in (NodeStanding.OUT, NodeStanding.BLIND)}
"""What a view has of each node that it does not rank."""


@dataclass(slots=True)
class AskBudget:
    """How many decisions may still be made."""

    left: int

    def spend(self) -> bool:
        """Take one; return False where none is left."""
        self.left -= 1
        return self.left >= 0


class View:
    """The nodes for one kind of pod.

    Args:
        kind: of pod.
        strategy: how kube-scheduler scores.
    """

    def __init__(self, kind: PodKind, strategy: Strategy) -> None:
        self.kind, self._strategy = kind, strategy
        self._sites: Mapping[str, NodeSite] = {}
        self._stands: dict[str, RankedNode] = {}
        self._lists: dict[NodeStanding, list[RankedNode]] = {
            each: [] for each in NodeStanding if each < NodeStanding.OUT
        }
        self._blind = 0
        self._full: set[RankedNode] = set()
        self._emptied: dict[RankedNode, Reply] = {}

    def look(self, sites: Mapping[str, NodeSite], changed: set[str]) -> None:
        """Judge nodes that may have changed, by filters and sums.

        Args:
            sites: all nodes.
            changed: names of those that are not as they were at the last look, or are gone.
        """
        self._sites = sites
        for name in changed:
            site = sites.get(name)
            if site is None:
                self._drop(name)
            else:
                self._judge(site)

    def search(self, budget: AskBudget) -> None:
        """Ask nodes, the likeliest first, until one takes the pod and none before it is unasked."""
        unasked = self._lists[NodeStanding.UNASKED]
        spent = 0
        while unasked and not (self.takers and self.takers[0] < unasked[0]) and budget.spend():
            self._ask(self._sites[unasked[0].name])
            spent += 1
            if self.takers and spent >= ENOUGH:
                return

    def fill(self, budget: AskBudget) -> None:
        """Ask nodes for the names of a NotIn, and for pods that may come."""
        unasked = self._lists[NodeStanding.UNASKED]
        while unasked and budget.spend():
            self._ask(self._sites[unasked[0].name])

    @property
    def takers(self) -> list[RankedNode]:
        """Return the nodes that would take it, the likeliest first."""
        return self._lists[NodeStanding.TAKES]

    @property
    def refusers(self) -> list[RankedNode]:
        """Return the nodes that sums and filters take and the decision refuses, the likeliest first."""
        return self._lists[NodeStanding.REFUSES]

    @property
    def unasked(self) -> int:
        """Count the nodes whose decision is not known yet."""
        return len(self._lists[NodeStanding.UNASKED])

    @property
    def short(self) -> list[RankedNode]:
        """Return the nodes that filters let it go to and that lack something by sums."""
        return self._lists[NodeStanding.SHORT]

    @property
    def all_blind(self) -> bool:
        """Tell whether filters let it go to some node, and none of these can be asked."""
        return self._blind > 0 and not any(self._lists.values())

    def evictions(self, budget: AskBudget) -> list[tuple[RankedNode, Reply]]:
        """Return what the nodes that are short would answer after evictions, where these make room by sums.

        Each node is asked once; where the budget is spent, the rest is left for the next call.
        """
        for place in sorted(self._full):
            site = self._sites[place.name]
            if site.books is not None and site.lowest < self.kind.pod.priority:
                if self.kind not in site.books.evicting and not budget.spend():
                    break
                reply = site.after_eviction(self.kind)
                if reply is not None:
                    self._emptied[place] = reply
            self._full.discard(place)
        return sorted(self._emptied.items())

    def standing(self, name: str) -> NodeStanding:
        """Return where a node stands."""
        return self._stands[name].standing if name in self._stands else NodeStanding.BLIND

    def _judge(self, site: NodeSite) -> None:
        self._drop(site.name)
        standing = self._by_sums(site)
        self._put(site, standing)
        books = site.__dict__.get("books")
        if books is not None and standing is NodeStanding.UNASKED and self.kind in books.replies:
            self._ask(site)

    def _by_sums(self, site: NodeSite) -> NodeStanding:
        if site.node is None:
            return NodeStanding.OUT
        kind, facts = self.kind, site.node.facts
        volumes = all(any(term.met(facts) for term in terms) for terms in kind.volumes)
        if not site.node.ready or kind.placing.barred(facts) or not volumes or not site.takes_ports(kind.ports):
            return NodeStanding.OUT
        if site.summary is None:
            return NodeStanding.BLIND
        return NodeStanding.SHORT if site.lacks(kind.needs) else NodeStanding.UNASKED

    def _ask(self, site: NodeSite) -> None:
        self._drop(site.name)
        reply = site.reply(self.kind)
        stands = {
            Reply.REFUSES: NodeStanding.REFUSES,
            Reply.LEFT_ALONE: NodeStanding.BLIND,
            Reply.BROKEN: NodeStanding.BLIND,
        }
        self._put(site, stands.get(reply, NodeStanding.TAKES), misaligned=reply is Reply.TAKES)

    def _put(self, site: NodeSite, standing: NodeStanding, *, misaligned: bool = False) -> None:
        if standing >= NodeStanding.OUT:
            self._stands[site.name] = APART[standing]
            self._blind += standing is NodeStanding.BLIND
            return
        place = RankedNode(standing, misaligned, -site.score(self._strategy, self.kind.needs), site.name)
        self._stands[site.name] = place
        insort(self._lists[standing], place)
        if standing is NodeStanding.SHORT:
            self._full.add(place)

    def _drop(self, name: str) -> None:
        place = self._stands.pop(name, APART[NodeStanding.OUT])
        self._blind -= place.standing is NodeStanding.BLIND
        if place.standing < NodeStanding.OUT:
            found = self._lists[place.standing]
            del found[bisect_left(found, place)]
            self._full.discard(place)
            self._emptied.pop(place, None)


@dataclass(slots=True)
class Views:
    """The views of the kinds of pods that were asked about last, and the kinds themselves.

    Attributes:
        kinds: by what decides.
        views: of kinds, the latest last.
        sites: the nodes as of the last look at any view.
        changed: names of nodes that a view has not looked at since they changed.
    """

    kinds: dict[Hashable, PodKind] = field(default_factory=dict)
    views: dict[PodKind, View] = field(default_factory=dict)
    sites: Mapping[str, NodeSite] = field(default_factory=dict)
    changed: dict[PodKind, set[str]] = field(default_factory=dict)

    def kind_of(self, pod: UnboundPod) -> PodKind:
        """Return the kind of a pod: one object for all pods that get the same answers."""
        asked = alike(pod.pod)
        volumes = tuple(each.terms for each in pod.claims if each.terms is not None)
        key = ask_of(asked), pod.placing, pod.ports, volumes
        found = self.kinds.pop(key, None)
        if found is None:
            if len(self.kinds) >= 50 * MOST_KINDS:
                del self.kinds[next(iter(self.kinds))]
            found = PodKind(asked, needs_of(pod.pod), pod.placing, pod.ports, volumes)
        self.kinds[key] = found  # the latest last
        return found

    def of(self, kind: PodKind, sites: Mapping[str, NodeSite], strategy: Strategy) -> View:
        """Return the view of a kind, as the nodes are now."""
        self._compare(sites)
        view = self.views.pop(kind, None)
        if view is None:
            view, self.changed[kind] = View(kind, strategy), {*sites}
        self.views[kind] = view
        if len(self.views) > most_kept(len(sites)):
            oldest = next(iter(self.views))
            del self.views[oldest], self.changed[oldest]
        self._look(view)
        return view

    def fill(self, sites: Mapping[str, NodeSite], budget: AskBudget) -> bool:
        """Ask nodes ahead, of the kinds that came last first; return whether some are left to ask."""
        self._compare(sites)
        for view in reversed(self.views.values()):
            if budget.left >= 0:
                self._look(view)
                view.fill(budget)
        return budget.left < 0

    def _look(self, view: View) -> None:
        changed = self.changed[view.kind]
        if changed:
            view.look(self.sites, changed)
            changed.clear()

    def _compare(self, sites: Mapping[str, NodeSite]) -> None:
        """Note which nodes are not the same any more; nodes that are the same are the same objects."""
        before = self.sites
        if sites is before:
            return
        found = [name for name, site in sites.items() if before.get(name) is not site]
        if len(before) + sum(1 for name in found if name not in before) != len(sites):
            found += [name for name in before if name not in sites]
        for changed in self.changed.values():
            changed.update(found)
        self.sites = sites


def most_kept(nodes: int) -> int:
    """Return for how many kinds of pods views of so many nodes are kept."""
    return max(MOST_KINDS, STANDINGS // max(1, nodes))
