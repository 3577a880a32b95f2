"""S11: the rule of who has a place in the line of waiting pods (agent.core.admission.waiting.crowded)."""

from __future__ import annotations

import random
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from agent.core.admission.waiting import Waiting, by_arrival, crowded
from agent.core.request.annotations import PodSettings
from agent.model.podspec import pod_from
from tests.examples import examples

LINES = st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 3), st.integers(0, 2)), max_size=14)
"""Namespace, when it began to wait, when it was created."""


def waiting(number: int, namespace: str, since: int, created: int) -> Waiting:
    """One in line."""
    stamp = f"2026-01-01T00:00:0{created}Z"
    metadata = {"name": "p", "uid": f"p{number}", "namespace": namespace, "creationTimestamp": stamp}
    pod = pod_from({"metadata": metadata, "spec": {"containers": [{"name": "c"}]}})
    return Waiting(pod, PodSettings(), float(since))


@settings(max_examples=examples(300), deadline=None)
@given(LINES, st.integers(1, 8), st.randoms(use_true_random=False))
def test_the_rule_of_places(line: list[tuple[str, int, int]], most: int, dice: random.Random) -> None:
    """As many wait as may; nobody yields to a namespace with as many; the latest of each go; order is no matter.

    Finding 15.
    """
    places = [waiting(number, *each) for number, each in enumerate(line)]
    out = [each.pod.uid for each in crowded(places, most)]
    kept = [each for each in by_arrival(places) if each.pod.uid not in out]
    assert len(kept) == min(most, len(line))
    left = Counter(each.pod.namespace for each in kept)
    lost = Counter(each.pod.namespace for each in places if each.pod.uid in out)
    for space in lost:
        assert all(left[other] <= left[space] + 1 for other in left), "shares differ by one place at most"
        mine = [each.pod.uid for each in by_arrival(places) if each.pod.namespace == space]
        assert set(mine[len(mine) - lost[space] :]) == set(mine) & set(out), "the latest of it"
    dice.shuffle(places)
    assert [each.pod.uid for each in crowded(places, most)] == out
