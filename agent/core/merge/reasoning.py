"""The reasons of one merge, found after it: `agent.core.merge.merge` calls this only on request.

It never changes an answer: it searches with a budget of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from agent.core.merge.demand import listed
from agent.core.merge.described import cover, goal_of, merge_described
from agent.core.merge.inputs import MergeQuestion, question_of
from agent.core.merge.masks import Positions, members
from agent.core.merge.needs import Budget
from agent.core.merge.order import Order
from agent.core.merge.provider import Answer, Offer
from agent.core.merge.reasons import MergeReasons, Voice
from agent.model.hint import Hint, Stance
from agent.model.rules import Policy

LISTED_UP_TO = 8
"""Nodes up to which the reasons list all hints: 255 per resource, as many as the kubelet's default limit allows."""


def reasons_of(
    answers: Sequence[Answer],
    positions: Positions,
    policy: Policy,
    order: Order,
    hint: Hint,
    *,
    admit: bool,
    exact: bool,
) -> MergeReasons:
    """Explain an answer that the merge of these answers gave."""
    question = question_of(answers, positions)
    best, preferred, _ = merge_described(question, order, Budget())
    after = _next_cover(question, best, order) if preferred else None
    return MergeReasons(
        policy=policy,
        voices=tuple(
            _voice(provider, resource, offer, positions)
            for provider, answer in enumerate(answers)
            for resource, offer in (sorted(answer.items()) if not isinstance(answer, Stance) else [("", answer)])
        ),
        hint=hint,
        admit=admit,
        exact=exact,
        best=positions.nodes(best),
        preferred=preferred,
        runner_up=None if after is None else positions.nodes(after),
        goal=None if preferred else goal_of(question, Budget())[0],
    )


def _voice(provider: int, resource: str, offer: Offer, positions: Positions) -> Voice:
    if isinstance(offer, Stance):
        return Voice(provider, resource, stance=offer)
    hints = listed(offer, positions) if len(positions) <= LISTED_UP_TO else None
    return Voice(provider, resource, hints=hints, demand=offer, size=offer.size)


def _next_cover(question: MergeQuestion, best: int, order: Order) -> int | None:
    """The best mask of as many nodes that all families serve, `best` left out: it lacks one of best's nodes."""
    families = [demand.family for demand in question.demands]
    if any(demand.sockets for demand in question.demands):
        return None
    domain = question.everything
    for family in families:
        if family is None:
            return None
        domain &= family.domain
    needs = tuple(dict.fromkeys(need for family in families if family is not None for need in family.needs))
    found = [cover(domain & ~(1 << node), needs, best.bit_count(), order, Budget(), ())[0] for node in members(best)]
    return order.best(
        mask for mask in found if mask is not None and all(demand.prefers(mask) for demand in question.demands)
    )
