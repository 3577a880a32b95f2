"""The order of writes on a real kernel: without NRI every grant takes CPUs from those that share them.

The sampler looks on (`conftest.sampler`): nobody may be on CPUs that another one has for himself, at no moment.

A pod is decided on seconds before its containers run, and who shares has left its CPUs by then: whatever the order,
nobody would meet. So the kill switch is on while pods start, and what they were granted is written in one plan when
it is off again. The same plan is made where an agent was away for a while.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lab import agent
from tests.lab.cluster import Lab
from tests.lab.pods import container, pod, resources
from tests.lab.stage import Stage

ROUNDS, AT_ONCE = 2, 6
"""A product with two passes swapped was caught in each of ten runs: the more a plan writes, the longer it
lasts. With six at once the sampler saw each of them beside each that shared, for two sweeps in a row or longer."""
MOVED = {"numalign.io/move-memory": "true"}
"""Without NRI a container begins wherever the kernel puts it, and its first pages lie there."""
SHARING = 4


@pytest.fixture(scope="module")
def crowd(alone: Lab) -> Iterator[Lab]:
    """The node without NRI, and pods that share: each has a cgroup that must shrink before anybody gets a CPU."""
    lab, node = alone, alone.numalign
    lab.clear(node)
    agent.configure(node, {"enforcement": "cgroup"})
    half = resources("100m", "16Mi", limits={"cpu": "500m", "memory": "16Mi"})
    for number in range(SHARING):
        lab.create(pod(f"shares-{number}", container(resources=half)), node)
    for number in range(SHARING):
        lab.wait_running(f"shares-{number}")
    lab.wait_enforced(node)
    yield lab
    lab.clear(node)
    agent.configure(node, {})


def test_nobody_is_on_cpus_that_another_one_gets(crowd: Lab) -> None:
    """Of pods that run already when their grants are written, none is on CPUs that others still use, in any sweep."""
    lab, node = crowd, crowd.numalign
    stage = Stage(lab, node)
    for round_ in range(ROUNDS):
        names = [f"own-{round_}-{number}" for number in range(AT_ONCE)]
        with stage.observing():
            made = [lab.create(pod(name, cpu="1", annotations=MOVED), node) for name in names]
            for name in names:
                lab.wait_running(name)
                lab.wait_told(name)
        lab.wait_enforced(node, *names)
        held = [sets["c"].cpus for sets in lab.assigned(node, names).values()]
        assert len(set(held)) == AT_ONCE, held
        for name in names:
            lab.delete(name)
        lab.wait_gone(*made)
