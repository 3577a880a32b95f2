"""Where a pod is released to, and which names its NotIn has. Pure.

Nodes come in the order in which kube-scheduler would choose them: by its own score, ties by name. The pod goes to the
first that takes it. NotIn has the nodes that sums take and the decision refuses, in the same order: the likeliest to
be taken come first, and where more refuse than it may name, the least likely stay open. Where at most one node would
take the pod, a lost race could make the scheduler evict pods for it; then the nodes that would refuse it after that
follow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice

from agent.forecast.gate import rules
from agent.forecast.gate.books import NodeSite, Reply
from agent.forecast.gate.state import Count
from agent.forecast.gate.values import Autoscaler, GateOptions, UnboundPod
from agent.forecast.gate.views import AskBudget, RankedNode, View

FEW = 1
"""Nodes that would take a pod: with no more, evictions are looked at."""
TRIED = 16
"""Nodes that would take a pod whose rules are looked at."""


@dataclass(frozen=True, slots=True)
class Choice:
    """How a pod is released.

    Attributes:
        purpose: NOMINATED, PREFERRED, NOT_IN, FOR_PREEMPTION or FOR_AUTOSCALER.
        node: where it counts from now on; "" for nowhere.
        not_in: hostnames that it must avoid.
        open: nodes that refuse it and are not named.
        later: a plugin or a claim chooses its devices later.
        why: the rule that keeps it from being nominated; "" for none.
    """

    purpose: Count
    node: str = ""
    not_in: tuple[str, ...] = ()
    open: int = 0
    later: bool = False
    why: str = ""


@dataclass(frozen=True, slots=True)
class NodeChooser:
    """What a choice depends on beside the pod.

    Attributes:
        options: the settings.
        sites: the nodes.
        hosts: how many Nodes have a hostname.
        now: the time.
        budget: of decisions.
    """

    options: GateOptions
    sites: Mapping[str, NodeSite]
    hosts: Mapping[str, int]
    now: float
    budget: AskBudget

    def choose(
        self, pod: UnboundPod, view: View, places: Iterable[RankedNode], delays: Callable[[NodeSite], bool]
    ) -> Choice | None:
        """Choose for a pod that some node takes.

        Args:
            pod: the pod.
            view: the nodes for its kind, looked at.
            places: those of its takers that it may go to now, in order.
            delays: whether the pod would delay an earlier one on a node.

        Returns:
            None where it must wait.
        """
        unsafe, options = rules.unsafe(pod), self.options
        for place in islice(places, TRIED):
            site = self.sites[place.name]
            if delays(site):
                continue
            if not unsafe and not rules.broken(pod, view.kind, site, self.now, options.summary_age):
                return self._to(site, Count.NOMINATED, pod, view)
            if unsafe and not rules.is_fresh(site, self.now, options.summary_age):
                prefers = len(self.sites) <= options.prefer_nodes and hostname(site, self.hosts)
                return self._to(site, Count.PREFERRED if prefers else Count.NOT_IN, pod, view, unsafe)
        return None

    def _to(self, site: NodeSite, purpose: Count, pod: UnboundPod, view: View, why: str = "") -> Choice:
        refusing = [place.name for place in view.refusers]
        if len(view.takers) <= FEW and not pod.never_preempts:
            refusing += [place.name for place, reply in view.evictions(self.budget) if reply is Reply.REFUSES]
        names, left = self._named(refusing)
        return Choice(purpose, site.name, names, left + view.unasked, chosen_later(pod, site), why)

    def _named(self, refusing: list[str]) -> tuple[tuple[str, ...], int]:
        most = 0 if self.options.autoscaler is Autoscaler.KARPENTER else self.options.most_names
        hosts = (hostname(self.sites[name], self.hosts) for name in refusing)
        names = tuple(islice(filter(None, hosts), most))
        return names, len(refusing) - len(names)

    def without_room(self, pod: UnboundPod, view: View, since: float, *, evicting: bool) -> Choice | None:
        """Choose for a pod that no node takes now: it is released for an eviction or an autoscaler, or waits.

        Args:
            pod: the pod.
            view: the nodes for its kind, looked at; all of them have answered.
            since: when its wait began.
            evicting: another pod was released for an eviction, and its landing is not known yet.
        """
        refusing, helped = [place.name for place in view.refusers], 0
        if not pod.never_preempts:
            for place, reply in view.evictions(self.budget):
                refusing += [place.name] if reply is Reply.REFUSES else []
                helped += reply.takes
            if self.budget.left < 0:
                return None
        names, left = self._named(refusing)
        if left:
            return None
        if helped:
            return None if evicting else Choice(Count.FOR_PREEMPTION, "", names)
        waited = self.now - since >= self.options.autoscaler_after
        scales = self.options.autoscaler is not Autoscaler.NONE
        return Choice(Count.FOR_AUTOSCALER, "", names) if scales and waited and self._may_grow(view) else None

    def _may_grow(self, view: View) -> bool:
        """Tell whether a new node may take the pod: one of those that are large enough would if it were empty.

        Else each new node of their kind would refuse it, too, and its owner's next pod would ask for another. Where
        none is large enough, the autoscaler sees by sums that it needs another kind.
        """
        known, large = dict[int, bool](), False
        for place in (*view.refusers, *view.short):
            site = self.sites[place.name]
            if site.books is None or not site.is_large_enough(view.kind.needs):
                continue
            large, managers = True, id(site.books.node)
            if managers not in known:
                known[managers] = site.books.emptied().asked(view.kind).takes
            if known[managers]:
                return True
        return not large


def hostname(site: NodeSite, hosts: Mapping[str, int]) -> str:
    """Return the value of the label that names a node; "" where it names another node too, or none."""
    name = site.node.hostname if site.node else ""
    return name if hosts.get(name) == 1 else ""


def chosen_later(pod: UnboundPod, site: NodeSite) -> bool:
    """Tell whether a plugin or a claim chooses devices of a pod after the decision."""
    reported = site.summary.inventory.reported if site.summary else frozenset()
    asked = {name for each in pod.pod.containers for name in each.requests}
    return "resource claims" in pod.placing.unseen or bool(asked & reported)
