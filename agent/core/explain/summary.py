"""The answer in plain words: one summary, the reasons, and what happens to the pod. Read first, so written last."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from agent.core.admission.alignment import UNPREFERRED
from agent.core.admission.node import Node
from agent.core.admission.waiting import FINAL
from agent.core.explain.grants import words_of
from agent.core.explain.values import Explanation, Holding, Merge, RequestedResources, Verdict
from agent.core.explain.words import cpus, listing, on
from agent.model.idset import CpuSet
from agent.model.outcome import Reason, Refusal
from agent.model.rules import OnMisalignment, Policy

MOST = 4
"""Containers whose shares the summary names one by one."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What the words are made of; see Explanation.

    Attributes:
        key: namespace/name.
        hypothetical: no agent has seen the pod yet.
        on_misalignment: what happens to it when it is refused.
        runs: it was refused, and runs all the same.
        adopted: it ran before the agent.
        fits_now: it was refused, and would get in now.
        beyond: why it does not fit on the machine, even when empty.
        partly: devices or claims of it were not looked at.
    """

    node: Node
    key: str
    verdict: Verdict
    policy: Policy
    requests: tuple[RequestedResources, ...]
    merges: tuple[Merge, ...]
    holdings: tuple[Holding, ...]
    refusal: Refusal | None
    on_misalignment: OnMisalignment
    hypothetical: bool = False
    runs: bool = False
    adopted: bool = False
    fits_now: bool = False
    beyond: tuple[str, ...] = ()
    partly: bool = False


def answer(facts: Facts) -> tuple[str, tuple[str, ...]]:
    """Summary and reasons."""
    if facts.verdict is Verdict.UNSCHEDULABLE:
        return f"{facts.key} would not be scheduled here: {facts.beyond[0]}", facts.beyond[1:]
    if facts.verdict is Verdict.REFUSED:
        why = tuple(dict.fromkeys(_refused(facts))) or ("no reason is known",)
        asked = {each: each.removeprefix("it requests ").partition(",")[0] for each in facts.beyond}
        why += tuple(each for each, amount in asked.items() if amount not in why[0])
        code = f" ({facts.refusal.reason.value})" if facts.refusal else ""
        verb = "would be" if facts.hypothetical else "was" if facts.fits_now else "is"
        return f"{facts.key} {verb} refused{code}: {why[0]}", why[1:]
    if facts.verdict is Verdict.NOT_PREFERRED:
        why = tuple(dict.fromkeys(_not_preferred(facts))) or ("no better place was to be had when it came",)
        verb = "would get in" if facts.hypothetical else "is in"
        rest = (
            f"it {'would get' if facts.hypothetical else 'has'} {_shares(facts)}",
            *_beside(facts),
            *_sharing(facts),
        )
        return f"{facts.key} {verb}, but {'would not be' if facts.hypothetical else 'is not'} aligned: {why[0]}", (
            *why[1:], *rest,
        )  # fmt: skip
    if facts.verdict is Verdict.SHARED:
        shares = tuple(_shared(facts))
        pool = facts.holdings[0].pool if facts.holdings else CpuSet()
        verb = "would run" if facts.hypothetical else "runs"
        text = f"{facts.key} {verb} on the shared pool, {cpus(pool)}"
        return f"{text}: {shares[0]}" if shares else text, shares[1:]
    verb = "would be" if facts.hypothetical else "is"
    what = facts.key
    if facts.partly:
        what, verb = f"{facts.key}'s CPUs", "would be" if facts.hypothetical else "are"
    return f"{what} {verb} aligned: {_shares(facts)}", (*_chosen(facts), *_beside(facts), *_sharing(facts))


def _refused(facts: Facts) -> Iterator[str]:
    refusal = facts.refusal
    if refusal is None:
        return
    prefix = _of(facts, refusal.container)
    told = False
    if refusal.reason is Reason.TOPOLOGY:
        for merge in facts.merges:
            for obstacle in merge.obstacles if not merge.admit else ():
                yield _of(facts, merge.container) + obstacle
                told = True
        if "devices" in refusal.facts:  # what the kubelet gave is part of the message
            yield prefix + refusal.message.partition(": ")[2]
            told = True
    if not told:
        yield prefix + refusal.plain


def _not_preferred(facts: Facts) -> Iterator[str]:
    for merge in facts.merges:
        for obstacle in merge.obstacles:
            yield _of(facts, merge.container) + obstacle
    for got in facts.holdings:
        if got.why and got.why != UNPREFERRED:
            yield _of(facts, got.container) + got.why


def _chosen(facts: Facts) -> Iterator[str]:
    if facts.policy is Policy.NONE:
        yield "policy none aligns nothing: its CPUs, memory and devices were taken wherever they are"
    for merge in facts.merges:
        binding = any(said.sentence and said.amount for said in merge.hint_lists)
        if binding and merge.winner is not None:
            yield f"why {on(merge.winner)}{_which(facts, merge.container)}: {merge.rule_text}"


def _sharing(facts: Facts) -> Iterator[str]:
    confined = any(got.confined for got in facts.holdings)
    for why, names in _shared(facts).items():
        one = len(names) == 1
        whose = f"container{'' if one else 's'} {listing(names)}"
        if confined:
            yield (
                f"{whose} {'shares' if one else 'share'} these CPUs: {why}; {'it is' if one else 'they are'} kept on "
                f"them because {'its' if one else 'their'} pod asks for that (numalign.io/align)"
            )
        else:
            yield f"{whose} {'runs' if one else 'run'} on the shared pool: {why}"


def _shared(facts: Facts) -> dict[str, list[str]]:
    """Why containers share: sentence -> their names. A sentence that another one begins with is that one."""
    every = dict.fromkeys(each.shares for each in facts.requests if each.shares)
    found = dict[str, list[str]]()
    for each in facts.requests:
        if each.shares:
            longest = max((why for why in every if why.startswith(each.shares)), key=len)
            found.setdefault(longest, []).append(each.container)
    return found


def _beside(facts: Facts) -> Iterator[str]:
    """What mixed containers have beside their own CPUs (numalign.io/mixed)."""
    for got in facts.holdings:
        if not got.beside or not got.cpus:
            continue
        apart = facts.node.seen.nodes_of(got.beside) - facts.node.seen.nodes_of(got.cpus)
        far = (
            f", on {on(apart)} too, where none of its own lies: policies and memory count its own alone"
            if apart
            else ""
        )
        yield f"container {got.container} may also run on the shared {cpus(got.beside)} (numalign.io/mixed){far}"


def _shares(facts: Facts) -> str:
    words = {got.container: words_of(facts.node, got) for got in facts.holdings}
    if len(words) == 1:
        return next(iter(words.values()))
    shown = list(words.items())[:MOST]
    left = len(words) - MOST
    more = f"; and {left} more container{'s' if left > 1 else ''}" if left > 0 else ""
    return "; ".join(f"{name}: {text}" for name, text in shown) + more


def _of(facts: Facts, container: str) -> str:
    return f"container {container}: " if container and len(facts.requests) > 1 else ""


def _which(facts: Facts, container: str) -> str:
    return f" (container {container})" if container and len(facts.requests) > 1 else ""


def fate(facts: Facts) -> str:
    """What happens to a refused pod; "" for others."""
    refusal = facts.refusal
    final = refusal is not None and facts.on_misalignment is OnMisalignment.WAIT and FINAL in refusal.facts
    if facts.beyond and not final:
        return "it stays Pending on a cluster of such nodes, whatever its policy is"
    if facts.verdict is not Verdict.REFUSED or refusal is None:
        return ""
    if facts.adopted:
        return "it ran before the agent, so it is left running, on the shared pool"
    if facts.on_misalignment is OnMisalignment.RUN or facts.runs:
        verb = "would run" if facts.hypothetical else "runs"
        return f"it {verb} all the same, on the shared pool (onMisalignment: run)"
    if final:
        return f"{refusal.message.rpartition('; ')[2]} (onMisalignment: wait)"
    would = facts.hypothetical
    return {
        OnMisalignment.WAIT: f"it {'would wait' if would else 'waits'} for room (onMisalignment: wait)",
        OnMisalignment.FAIL: f"it {'would' if would else 'does'} not run (onMisalignment: fail)",
        OnMisalignment.EVICT: f"it {'would be' if would else 'is'} evicted (onMisalignment: evict)",
    }[facts.on_misalignment]


def bare_reason(found: Explanation) -> str:
    """The first reason of an explanation, without the pod's name: for tables. "" where there is none."""
    if found.verdict in (Verdict.REFUSED, Verdict.NOT_PREFERRED):
        return found.summary.partition(": ")[2]
    return next((each for each in found.reasons if each.startswith("why ")), "")
