"""merge stub docstring."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agent.core.masks import Positions
from agent.core.merge_demands import other_mask, preferred_mask, single_node
from agent.core.merge_lists import merge_lists
from agent.core.needs import Budget
from agent.core.order import Order
from agent.core.provider import Answer
from agent.core.sides import Question, question_of
from agent.model.hint import ANY_NODES, Hint
from agent.model.rules import Policy, TopologyRules

_PLAIN = Order()


@dataclass(frozen=True, slots=True)
class Merged:
    """The Topology Manager's answer.

    Attributes:
        hint: the merged affinity, None for any node (spec 3.6). After a refusal under restricted, None too.
        admit: whether the policy lets the pod in.
        exact: False if the budget ran out before the answer was proved.
    """

    hint: Hint
    admit: bool
    exact: bool = True


def merge_answers(
    answers: Sequence[Answer],
    positions: Positions,
    rules: TopologyRules,
    order: Order,
    budget: Budget | None = None,
) -> Merged:
    """Merge."""
    if rules.policy is Policy.NONE:
        return Merged(ANY_NODES, admit=True)
    question = question_of(answers, positions)
    single = rules.policy is Policy.SINGLE_NUMA_NODE
    order = order if rules.prefer_closest and not single else _PLAIN
    mask, preferred, exact = _merge(question, rules.policy, order, budget or Budget())
    nodes = None if mask is None or (single and mask == question.everything) else positions.nodes(mask)
    return Merged(Hint(nodes, preferred), preferred or rules.policy is Policy.BEST_EFFORT, exact)


def _merge(question: Question, policy: Policy, order: Order, budget: Budget) -> tuple[int | None, bool, bool]:
    if (lists := question.listed()) is not None:
        mask, preferred = merge_lists(lists, question.everything, order, single=policy is Policy.SINGLE_NUMA_NODE)
        return mask, preferred, True
    if policy is Policy.SINGLE_NUMA_NODE:
        return *single_node(question), True
    best, proved = preferred_mask(question, order, budget)
    if best is not None:
        return best, True, proved
    if policy is Policy.RESTRICTED:
        return None, False, proved
    mask, found = other_mask(question, order, budget)
    return mask, False, proved and found
