"""Which node set won a merge, by which rule, and why the rest lost (kubelet rules 3.3 to 3.6).

Preferred first, then fewer nodes, then (with prefer-closest-numa-nodes) the closer, then the lower numbers; and where
nothing is preferred by all, the overlap whose node count is nearest to what the neediest list takes at least.
"""

from __future__ import annotations

from dataclasses import dataclass

from agent.core.admission.ahead import AHEAD
from agent.core.admission.node import Node
from agent.core.admission.pod import Step
from agent.core.explain.obstacles import ObstacleView
from agent.core.explain.values import ListStance, LossReason, MergeRule, RequestedResources, RunnerUp
from agent.core.explain.words import CPU, alternatives, amount, listing, nodes_count, on, sets
from agent.core.merge.order import Order
from agent.model.idset import NodeSet
from agent.model.rules import Policy

NAMED = 4
"""Node sets that a sentence names."""


def beaten(mask: int, by: int, order: Order) -> LossReason:
    """By what a set that all prefer lost against another such set."""
    if mask.bit_count() != by.bit_count():
        return LossReason.WIDER
    return LossReason.FARTHER if order.spread(mask) > order.spread(by) else LossReason.HIGHER


_AHEAD = {
    LossReason.WIDER: MergeRule.NARROWER,
    LossReason.FARTHER: MergeRule.CLOSER,
    LossReason.HIGHER: MergeRule.LOWER,
}


@dataclass(frozen=True, slots=True, eq=False)
class Ranking:
    """One merge's contest.

    Attributes:
        node: the managers.
        step: the merge.
        views: its hint lists.
        winner: the set that won; after a refusal what best-effort would have taken. None for any node.
        order: by which equals are told apart.
        preferred: whether every list prefers the winner.
        requests: what the pod asks for.
    """

    node: Node
    step: Step
    views: list[ObstacleView]
    winner: NodeSet | None
    order: Order
    preferred: bool
    requests: tuple[RequestedResources, ...]

    def outcome(self) -> tuple[list[NodeSet], list[RunnerUp]]:
        """The sets that all lists prefer, best first, and those that lost; both empty where hints were not listed."""
        binding = [view for view in self.views if view.demand is not None]
        positions, single = self.node.positions, self.step.reasons.policy is Policy.SINGLE_NUMA_NODE
        liked = {
            positions.mask(hint.nodes)
            for view in binding
            for hint in view.hint_list.hints or ()
            if hint.preferred and hint.nodes
        }
        hint_lists = (view.hint_list for view in self.views)
        hopeless = tuple(each.resource for each in hint_lists if each.stand is ListStance.IMPOSSIBLE)
        won = positions.mask(self.winner) if self.winner is not None else 0
        common, losers = list[NodeSet](), list[RunnerUp]()
        for mask in sorted(liked, key=lambda each: (each.bit_count(), self.order.spread(each), each)):
            nodes = positions.nodes(mask)
            against = [view for view in binding if view.demand is not None and not view.demand.prefers(mask)]
            lacking = [view for view in against if view.demand is not None and not view.demand.accepts(mask)]
            if single and mask.bit_count() != 1:
                losers.append(RunnerUp(nodes, LossReason.FILTERED))
            elif against or hopeless:
                why = LossReason.NOT_OFFERED if lacking or not against else LossReason.NOT_PREFERRED
                losers.append(
                    RunnerUp(nodes, why, tuple(view.hint_list.resource for view in lacking or against) or hopeless)
                )
            else:
                common.append(nodes)
                if mask != won:
                    losers.append(RunnerUp(nodes, beaten(mask, won, self.order)))
        return common, losers

    def rule(self, common: list[NodeSet]) -> MergeRule:
        """By what the winner won."""
        positions = self.node.positions
        binding = [view.demand for view in self.views if view.demand is not None]
        won = positions.everything if self.winner is None else positions.mask(self.winner)
        if self.step.reasons.instead_of is not None:
            return MergeRule.AHEAD if AHEAD in self.step.answers else MergeRule.TOGETHER
        if not self.preferred:
            reached = binding and all(demand.accepts(won) for demand in binding)
            return MergeRule.NOTHING if won == positions.everything and not reached else MergeRule.NEAREST
        if not binding:
            return MergeRule.INDIFFERENT
        if common:
            return MergeRule.ONLY if len(common) == 1 else _AHEAD[beaten(positions.mask(common[1]), won, self.order)]
        after = self.step.reasons.runner_up
        if after is None or self.winner is None or len(after) != len(self.winner):
            return MergeRule.FIRST
        return _AHEAD[beaten(positions.mask(after), won, self.order)]

    def words(self, rule: MergeRule, common: list[NodeSet]) -> str:
        """The rule in words."""
        more = f" and {len(common) - NAMED} more" if len(common) > NAMED else ""
        alike, equal = "every hint provider prefers it", "several sets of NUMA nodes"
        if common:
            alike = f"every hint provider prefers {sets(common[:NAMED], more=bool(more))}{more}"
            equal = f"NUMA nodes {alternatives(common[:NAMED], more=bool(more))}{more}"
        text = {
            MergeRule.INDIFFERENT: "no hint provider has a preference, any NUMA node will do",
            MergeRule.ONLY: f"only {'this one suits' if len(self.winner or ()) == 1 else 'these suit'} all of it",
            MergeRule.NARROWER: f"{alike}; fewer nodes win",
            MergeRule.LOWER: f"{equal} are equally good; the lowest number is taken",
            MergeRule.NOTHING: "no set of nodes serves every hint provider: any node will do, and nothing is aligned",
        }.get(rule, "")
        if rule is MergeRule.CLOSER:
            second = common[1] if common else self.step.reasons.runner_up
            apart = f"{self._distance(self.winner)}, against {self._distance(second)} of {on(second or ())}"
            text = f"{alike}; of as many nodes, those closest to each other win (average distance {apart})"
        elif rule is MergeRule.FIRST:
            last = "then the closest, then the lowest numbers" if self.order.distances else "then the lowest numbers"
            text = f"{alike}; fewest nodes first, {last}"
        elif rule is MergeRule.NEAREST:
            text = (
                "no set of nodes is preferred by every hint provider, so the best overlap of what they offer is "
                f"taken: {self._near()}"
            )
        elif rule is MergeRule.TOGETHER:
            text = (
                "no set of nodes is preferred by every hint provider: CPUs and memory stay together, and devices may "
                f"be elsewhere; the kubelet would take {on(self.step.reasons.instead_of or ())}"
            )
        elif rule is MergeRule.AHEAD:
            text = self._ahead()
        if self.step.merged.admit:
            return text
        name = on(self.winner) if self.winner is not None else "any NUMA node"
        return f"under {self.step.reasons.policy} nothing is taken; best-effort would have taken {name}: {text}"

    def _ahead(self) -> str:
        """Which later container decided, and what it asks for."""
        (needy, *_) = (view.hint_list.resource for view in self.views if view.hint_list.provider == AHEAD)
        (asked, *_) = (each for each in self.requests if f"container {each.container}" == needy)
        found = [amount(CPU, asked.cpus)] if asked.cpus else []
        found += [amount(name, count) for name, count in (*asked.devices.items(), *asked.memory.items())]
        first = on(self.step.reasons.instead_of or ())
        return f"{needy} needs {listing(found) or 'its devices'}, and would be placed worse with this one on {first}"

    def _near(self) -> str:
        goal, count = self.step.reasons.goal or 0, len(self.winner or ())
        if count == goal:
            return f"{nodes_count(count)}, as many as the neediest of them takes at least"
        return f"{nodes_count(count)}, which is nearest to the {goal} that the neediest of them takes at least"

    def _distance(self, nodes: NodeSet | None) -> str:
        mask = self.node.positions.mask(nodes) if nodes else 0
        return f"{self.order.spread(mask) / max(1, mask.bit_count()) ** 2:.4g}"
