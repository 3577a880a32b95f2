"""Family `merge`: one call of a topology manager policy's Merge, start checks included."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from agent.core.merge.demand import Demand
from agent.core.merge.masks import Positions
from agent.core.merge.merge import Merged, merge_answers
from agent.core.merge.order import Order
from agent.core.merge.provider import Answer, Offer
from agent.errors import SettingsError
from agent.model.hint import IMPOSSIBLE, NO_PREFERENCE, Hint, Stance
from agent.model.idset import CpuSet, NodeSet
from agent.model.machine import Machine, NumaNode
from agent.model.rules import Compatibility, Policy, TopologyRules
from agent.settings.topology_options import topology_rules

Given = Answer | Mapping[str, Offer | tuple[Hint, ...]]
"""An answer some of whose offers are lists of hints."""


def answer(given: dict[str, Any], *, literally: bool = False) -> tuple[dict[str, Any], list[str]]:
    """The merged hint and whether the pod is admitted, or why the kubelet would not start; and what is impossible."""
    machine = _machine(given)
    try:
        rules = topology_rules(
            given["policy"],
            options=given.get("options"),
            machine=machine,
            compatibility=Compatibility.KUBELET,
        )
    except SettingsError as error:
        return {"init_error": sentence(error)}, ["the kubelet got as far as merging, ours did not"]
    positions = Positions.of(machine.node_set)
    answers = [answer_of(each, positions) for each in given["providers"]]
    order = Order([node.distances for node in machine.nodes] if rules.prefer_closest else None)
    merged = merge_as_kubelet(answers, positions, rules, order)
    got = {"hint": hint_out(merged.hint), "admit": merged.admit}
    return got, broken(given, got)


def broken(given: dict[str, Any], got: dict[str, Any]) -> list[str]:
    """Where the kubelet gives no answer, ours owes one that is possible: nodes that exist, refused or not."""
    mask, preferred = got["hint"]
    everything = sum(1 << node for node in given["numa_nodes"])
    sentences = []
    if mask is not None and (mask == 0 or mask & ~everything):
        sentences.append("the mask holds nodes that do not exist, or none")
    if given["policy"] != "best-effort" and got["admit"] != bool(preferred):
        sentences.append("admitted without a preferred hint, or refused with one")
    return sentences


def sentence(error: SettingsError) -> str:
    """The kubelet's sentence in one of our errors: without the key before and the remedy after it."""
    return str(error).removeprefix(f"{error.key}: ").split("; ", 1)[0]


def answer_of(hint_map: dict[str, Any] | None, positions: Positions) -> Answer:
    """A vector's hint map: null, or resource -> null, [] or hints."""
    if hint_map is None:
        return Stance.NO_PREFERENCE
    return {resource: _offer(hints, positions) for resource, hints in hint_map.items()}


def hint_of(raw: list[Any]) -> Hint:
    """A vector's hint: [mask or null, 0 or 1]."""
    mask, preferred = raw
    return Hint(None if mask is None else NodeSet(mask), bool(preferred))


def hint_out(hint: Hint) -> list[Any]:
    """The inverse of hint_of."""
    return [None if hint.nodes is None else hint.nodes.bits, int(hint.preferred)]


def _offer(hints: list[Any] | None, positions: Positions) -> Offer:
    return NO_PREFERENCE if hints is None else offer_of(map(hint_of, hints), positions)


def _machine(given: dict[str, Any]) -> Machine:
    rows = given.get("distances") or [[] for _ in given["numa_nodes"]]
    nodes = [
        NumaNode(node, CpuSet(), memory=0, distances=tuple(row or ()))
        for node, row in zip(given["numa_nodes"], rows, strict=True)
    ]
    return Machine(cpus=(), nodes=tuple(sorted(nodes, key=lambda node: node.id)))


def merge_as_kubelet(answers: Iterable[Given], positions: Positions, rules: TopologyRules, order: Order) -> Merged:
    """The agent's merge of hints, and with a refusal under restricted the node set that the kubelet names.

    The agent looks for no node set that would be refused; best-effort merges the same lists.
    """
    offers = [offered(each, positions) for each in answers]
    merged = merge_answers(offers, positions, rules, order)
    if merged.admit or rules.policy is not Policy.RESTRICTED:
        return merged
    return replace(merge_answers(offers, positions, replace(rules, policy=Policy.BEST_EFFORT), order), admit=False)


def offered(answer: Given, positions: Positions) -> Answer:
    """The answer as a provider says it."""
    if isinstance(answer, Stance):
        return answer
    return {name: offer_of(each, positions) if isinstance(each, tuple) else each for name, each in answer.items()}


def offer_of(hints: Iterable[Hint], positions: Positions) -> Offer:
    """A kubelet's list of hints as a provider says it: masks one by one."""
    fixed, free = dict[int, bool](), list[bool]()
    for hint in hints:
        if hint.nodes is None:
            free.append(hint.preferred)
        else:
            mask = positions.mask(hint.nodes)
            fixed[mask] = hint.preferred or fixed.get(mask, False)
    if not fixed:
        return NO_PREFERENCE if any(free) else IMPOSSIBLE
    return Demand(fixed=fixed, optional=any(free) if free else None)
