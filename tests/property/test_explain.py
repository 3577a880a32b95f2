"""agent.core.explain on random nodes: it tells what was decided, and every change that it proposes helps."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import combinations

from hypothesis import given, settings

from agent.core.admission.node import Node
from agent.core.explain.case import Case
from agent.core.explain.explainer import explain
from agent.core.explain.serialize import lines, to_json
from agent.core.explain.standing import PodStanding
from agent.core.explain.values import AsOf, Explanation, Lever, Merge, MergeRule, Verdict
from agent.model.ledger import Ledger
from agent.model.outcome import Admitted, Reason
from agent.model.pod import Pod
from tests.examples import examples
from tests.world.strategies import case_of, worlds


def fits(node: Node, case: Case, found: Explanation) -> bool:
    """Whether it gets in; for one that did, whether it is aligned."""
    outcome = case.admit(node)
    if not isinstance(outcome, Admitted):
        return False
    return found.verdict is Verdict.REFUSED or outcome.ledger.pods[case.pod.uid].is_aligned


def sound(node: Node, case: Case, found: Explanation) -> None:
    """Every remedy helps, by no more than it takes."""
    for remedy in found.remedies:
        assert fits(node, case.changed(node, remedy), found), remedy.sentence
        if remedy.lever is Lever.REQUEST:
            more = case.asking(remedy.container, remedy.resource, remedy.amount + remedy.unit)
            assert not fits(node, more, found), f"a unit more: {remedy.sentence}"
        if remedy.lever is Lever.DEPARTURE:
            for count in range(len(remedy.departures)):
                for some in combinations(remedy.departures, count) if len(remedy.departures) < 3 else ():
                    assert not fits(node, case.without(node, *some), found), f"fewer: {remedy.sentence}"


def told(merge: Merge) -> None:
    """A merge's report agrees with itself."""
    if merge.rule in {MergeRule.ONLY, MergeRule.NARROWER, MergeRule.CLOSER, MergeRule.LOWER}:
        assert merge.preferred
        assert merge.winner is not None
        for said in merge.hint_lists:
            if said.hints is not None and merge.winner and any(h.nodes is not None for h in said.hints):
                assert any(hint.preferred and hint.nodes == merge.winner for hint in said.hints)
    for loser in merge.losers:
        assert loser.nodes != merge.winner or not (merge.preferred and merge.admit)
    assert bool(merge.obstacles) == (not (merge.preferred and merge.admit))


@settings(max_examples=examples(80), deadline=None)
@given(worlds())
def test_a_newcomer_is_told_what_it_would_get(world: tuple[Node, Ledger, Pod]) -> None:
    """The verdict is that of the admission, what it gets is what it would get, and every remedy was tried."""
    node, ledger, pod = world
    case = case_of(node, ledger, pod)
    found = explain(node, ledger, pod, standing=PodStanding(hypothetical=True))
    outcome = case.admit(node)
    assert (found.verdict is Verdict.REFUSED) == (not isinstance(outcome, Admitted))
    if isinstance(outcome, Admitted):
        assert {got.container: got.cpus for got in found.holdings} == {
            each.name: outcome.ledger.grant(pod.uid, each.name).cpus for each in pod.containers
        }
        assert (found.verdict is Verdict.NOT_PREFERRED) == (not outcome.ledger.pods[pod.uid].is_aligned)
    else:
        assert found.refusal is not None
        assert found.refusal.reason is outcome.refusal.reason
        refusing = [merge for merge in found.merges if not merge.admit]
        assert bool(refusing) == (outcome.refusal.reason is Reason.TOPOLOGY)
    for merge in found.merges:
        told(merge)
    sound(node, case, found)
    assert json.loads(json.dumps(to_json(found)))["summary"] == found.summary
    assert all(line.endswith(".") for line in lines(found))


@settings(max_examples=examples(60), deadline=None)
@given(worlds())
def test_pods_in_the_ledger_keep_what_they_have(world: tuple[Node, Ledger, Pod]) -> None:
    """Whatever is said of a pod in the ledger, it holds what that says; as of admission, the merge gave that."""
    node, ledger, _ = world
    for uid, record in ledger.pods.items():
        found = explain(node, ledger, record.pod, search=False)
        assert {got.container: got.cpus for got in found.holdings} == {
            each.name: ledger.grant(uid, each.name).cpus for each in record.pod.containers
        }
        if found.as_of is AsOf.ADMISSION and len(found.merges) == 1:
            hint = record.affinity[record.pod.containers[0].name]
            if hint.nodes is not None and found.merges[0].rule is not MergeRule.INDIFFERENT:
                assert found.merges[0].winner == hint.nodes
        assert (found.verdict is Verdict.NOT_PREFERRED) == (not ledger.pods[record.pod.uid].is_aligned)


@settings(max_examples=examples(15), deadline=None)
@given(worlds())
def test_nothing_is_changed(world: tuple[Node, Ledger, Pod]) -> None:
    """Explaining is pure: the same question has the same answer, and the ledger is as before."""
    node, ledger, pod = world
    before = replace(ledger)
    first = to_json(explain(node, ledger, pod))
    assert to_json(explain(node, ledger, pod)) == first
    assert ledger == before
