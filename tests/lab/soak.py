"""Kills of the agent while pods come and go: of `test_faults.py`, and of `test_soak.py`, which adds faults."""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator

from tests.lab.stage import Churn, Stage


def some(chance: random.Random, number: int) -> Iterator[int]:
    """Parts of a number of kills, one to four each: the second and later kills of a part hit an agent that starts."""
    while number > 0:
        part = min(chance.choice((1, 2, 3, 4)), number)
        number -= part
        yield part


def kills(stage: Stage, parts: Iterable[int]) -> Counter[str]:
    """Kill the agent while pods come and go; what churn did.

    Args:
        stage: the node.
        parts: how many kills follow each other before anything is checked. The first one hits an agent that has just
            recovered, the others one that is still starting.
    """
    before = stage.agreed()
    with Churn(stage, most=2) as churn:
        for times in parts:
            killed = -1
            for _ in range(times):
                time.sleep(stage.random.uniform(0.0, 3.0))
                killed = stage.kill()
            began = time.monotonic()
            stage.said("recovered", after=killed)
            back = time.monotonic() - began
            stage.unmoved(before, stage.agreed())
            took = time.monotonic() - began
            said = f"killed {times} times: back after {back:.1f} s, all agreed after {took:.1f} s"
            print(said, file=sys.__stderr__, flush=True)
    stage.lab.wait_gone(*churn.pods())
    return churn.counts
