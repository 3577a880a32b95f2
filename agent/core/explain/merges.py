"""One merge told: what every hint list said, which node set won, by which rule, and why the rest lost.

Made from the trace of a real admission (`agent.core.admission.pod.Step`), so it says what was decided and not what a
second implementation would think. On machines with up to eight nodes every hint is looked at; on larger ones nothing
of the size of a hint list is ever built, and sums and node counts are told instead.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from agent.core.admission.ahead import AHEAD
from agent.core.admission.node import Node
from agent.core.admission.pod import Step
from agent.core.explain.obstacles import ObstacleView, lacks, leftover, obstacles
from agent.core.explain.ranking import Ranking
from agent.core.explain.requested import requested_resources
from agent.core.explain.supply import Counter
from agent.core.explain.values import HintList, ListStance, Merge, MergeRule
from agent.core.explain.words import amount, nodes_count, sets, spread
from agent.core.merge.demand import Demand, fewest
from agent.core.merge.needs import Budget
from agent.core.merge.order import Order
from agent.core.merge.provider import Offer
from agent.core.merge.reasons import Voice
from agent.model.hint import IMPOSSIBLE, Stance
from agent.model.outcome import RefusalCause
from agent.model.rules import Policy

SHOWN = 24
"""Losers and preferred sets that are kept."""
NAMED = 4
"""Node sets that a sentence names."""


@dataclass(frozen=True, slots=True)
class MergeExplainer:
    """Tells the merges of one pod's admission.

    Attributes:
        node: the managers.
        counter: counts what is free.
        closest: prefer-closest-numa-nodes is in force.
    """

    node: Node
    counter: Counter
    closest: bool

    def merge(self, step: Step) -> Merge:
        """One step of an admission."""
        views = self._views(step)
        reasons, policy = step.reasons, step.reasons.policy
        order = self.node.order if self.closest and policy is not Policy.SINGLE_NUMA_NODE else Order()
        winner = reasons.hint.nodes if step.merged.admit else reasons.best
        preferred = step.merged.hint.preferred if step.merged.admit else reasons.preferred
        requests = requested_resources(self.node, self.counter.pod)
        contest = Ranking(self.node, step, views, winner, order, preferred, requests)
        common, losers = contest.outcome()
        rule = contest.rule(common)
        good = step.merged.admit and preferred
        return Merge(
            container=step.container,
            hint_lists=tuple(view.hint_list for view in views),
            winner=None if rule is MergeRule.INDIFFERENT else winner,
            preferred=preferred,
            admit=step.merged.admit,
            exact=step.merged.exact,
            rule=rule,
            rule_text=contest.words(rule, common),
            losers=tuple(losers[:SHOWN]),
            more_losers=max(0, len(losers) - SHOWN),
            obstacles=() if good else obstacles(self.node, self.counter.pod, views, step.ledger, policy),
        )

    def cause(self, step: Step) -> RefusalCause:
        """Why a step refused the pod, without the rest of the story: the first sentence says most."""
        views, policy = self._views(step), step.reasons.policy
        said = obstacles(self.node, self.counter.pod, views, step.ledger, policy)
        return RefusalCause("".join(said[:1]), lacks(self.node, views, policy))

    def _views(self, step: Step) -> list[ObstacleView]:
        names, voices = list(step.answers), {}
        for voice in step.reasons.voices:
            voices[names[voice.provider], voice.resource] = voice
        views = []
        for (provider, resource), voice in voices.items():
            answer = step.answers[provider]
            offer: Offer = answer if isinstance(answer, Stance) else answer[resource]
            demand = offer if isinstance(offer, Demand) and offer.possible and not offer.optional else None
            left = leftover(self.node, self.counter.pod, step.container, step.ledger, resource)
            views.append(ObstacleView(self._said(step, provider, voice), demand, left))
        return views

    def _said(self, step: Step, provider: str, voice: Voice) -> HintList:
        supply = self.counter.supply(step.ledger, step.container, provider, voice.resource)
        if voice.stance is not None:
            stand = ListStance.IMPOSSIBLE if voice.stance is IMPOSSIBLE else ListStance.INDIFFERENT
            said = HintList(provider, voice.resource, stand, supply.amount, supply.free, supply.capacity)
            return _with_sentence(said, supply.total)
        hints = voice.hints
        liked = [hint.nodes for hint in hints or () if hint.preferred and hint.nodes is not None]
        demand = voice.demand
        least = min((len(hint.nodes) for hint in hints or () if hint.nodes is not None), default=None)
        if demand is not None and hints is None:
            least = _least(demand)
            if demand.size == 1:
                places = range(len(self.node.positions))
                liked = [self.node.positions.nodes(1 << j) for j in places if demand.prefers(1 << j)]
        said = HintList(
            provider,
            voice.resource,
            ListStance.HINTS,
            supply.amount,
            supply.free,
            supply.capacity,
            size=voice.size if voice.size is not None else min(map(len, liked), default=None),
            least=least,
            preferred=tuple(liked[:SHOWN]),
            preferred_count=len(liked) if hints is not None else None,
            other_count=len(hints) - len(liked) if hints is not None else None,
            hints=hints,
        )
        return _with_sentence(said, supply.total)


def _least(demand: Demand) -> int | None:
    """The fewest nodes that would do; None where the search ended before that was known."""
    counts = [mask.bit_count() for mask in demand.fixed]
    if demand.family is not None and demand.family.possible:
        found = fewest(demand.family, Budget())
        if found is None:
            return None
        counts.append(found)
    return min(counts, default=None)


def _with_sentence(said: HintList, total: int) -> HintList:
    return replace(said, sentence=_sentence(said, total))


def _sentence(said: HintList, total: int) -> str:
    if said.stand is ListStance.INDIFFERENT:
        what = f"{said.provider} ({said.resource})" if said.resource else said.provider
        return f"{what}: nothing to place, any NUMA node will do"
    if said.provider == AHEAD:
        left = sets(said.preferred) or nodes_count(said.size or 1)
        return f"{said.resource}, which comes later, leaves {left} to it"
    head = f"{amount(said.resource, said.amount)}" if said.amount else said.resource or said.provider
    free = f"; free: {spread(said.resource, said.free)}" if said.free else ""
    if said.stand is ListStance.IMPOSSIBLE:
        short = total < said.amount
        whole = f" ({total} free on the whole machine)" if short and said.resource == "cpu" else ""
        return f"{head}: no set of NUMA nodes will do{whole}{free}"
    text = f"{head}{free}"
    if said.size:
        text += f". On an empty machine it needs {nodes_count(said.size)}"
    if said.preferred:
        more = (said.preferred_count or len(said.preferred)) - NAMED
        text += f"; preferred: {sets(said.preferred[:NAMED], more=more > 0)}" + (
            f" and {more} more" if more > 0 else ""
        )
    elif said.least:
        text += f", now at least {said.least}: nothing is preferred" if said.preferred_count == 0 else ""
    if said.other_count:
        text += f"; {said.other_count} wider sets would do"
    return text
