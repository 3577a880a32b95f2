"""The order of the pods that wait, gangs, and the head of the line. Pure.

Pods are tried by priority, then by age. A pod that fits nowhere is not waited for: later pods go before it, but not
to its harm. The first such pod of each namespace is a head: the node where it comes closest is kept for it, so that a
later pod goes there only where the node's own rule of waiting lets it pass (`agent.core.admission.waiting`, safety
rule S11): whichever pod of the node ends next, the head would fit as well as without it. A head holds back pods of
other namespaces only while its wait is young.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from agent.forecast.gate.books import NodeSite, PodKind
from agent.forecast.gate.rules import last_gate
from agent.forecast.gate.state import Waiter

HEADS = 8
"""Namespaces whose first pod has a node kept for it, at most."""


def in_order(waiting: Mapping[str, Waiter]) -> list[Waiter]:
    """Sort pods by priority, then age, then uid."""
    return sorted(waiting.values(), key=rank)


def rank(waiter: Waiter) -> tuple[int, float, str]:
    """Return the place of a pod in the order."""
    pod = waiter.pod.pod
    return -pod.priority, pod.created, pod.uid


def in_turns(kinds: Iterable[PodKind]) -> list[PodKind]:
    """Sort kinds of pods so that namespaces take turns: one with thousands of kinds delays no other."""
    found, before = list[tuple[int, int, PodKind]](), Counter[str]()
    for number, kind in enumerate(kinds):
        space = kind.pod.namespace
        found.append((before[space], number, kind))
        before[space] += 1
    return [kind for *_, kind in sorted(found, key=lambda each: each[:2])]


def heads(stuck: Iterable[Waiter]) -> list[Waiter]:
    """Return the first pod of each namespace among those that no node takes; they come in order.

    One that no wait lets in anywhere is none: it would hide the first one that waits for something.
    """
    found = dict[str, Waiter]()
    for each in stuck:
        never = each.cause is not None and each.cause.never
        if len(found) < HEADS and not never and not last_gate(each.pod):
            found.setdefault(each.pod.pod.namespace, each)
    return [*found.values()]


def delays(pod: Waiter, kind: PodKind, site: NodeSite, kept: Mapping[str, Waiter], now: float) -> bool:
    """Tell whether a pod would delay an earlier one for which a node is kept.

    Args:
        pod: the newcomer.
        kind: of the newcomer.
        site: where it would go.
        kept: node -> the pod that it is kept for.
        now: the time.
    """
    head = kept.get(site.name)
    if head is None or head.pod.pod.uid == pod.pod.pod.uid or rank(head) > rank(pod) or site.books is None:
        return False
    return site.books.delays(kind, head.pod.pod, head.since, now)


def gangs(waiting: Iterable[Waiter]) -> dict[str, list[Waiter]]:
    """Gather the pods of each gang, in order."""
    found: dict[str, list[Waiter]] = {}
    for each in waiting:
        if each.pod.gang is not None:
            found.setdefault(each.pod.gang.key, []).append(each)
    return found
