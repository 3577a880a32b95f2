"""The order of writes on a real kernel: without NRI every grant takes CPUs from those that share them.

The sampler looks on (`conftest.sampler`): nobody may be on CPUs that another one has for himself, at no moment.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lab import agent
from tests.lab.cluster import Lab
from tests.lab.pods import container, pod, resources

ROUNDS, AT_ONCE = 3, 3
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
    """Pods of one CPU come three at a time and go again: each grant is in force, and no sweep has an overlap."""
    lab, node = crowd, crowd.numalign
    for round_ in range(ROUNDS):
        names = [f"own-{round_}-{number}" for number in range(AT_ONCE)]
        made = [lab.create(pod(name, cpu="1", annotations=MOVED), node) for name in names]
        for name in names:
            lab.wait_running(name)
        lab.wait_enforced(node, *names)
        held = [sets["c"].cpus for sets in lab.assigned(node, names).values()]
        assert len(set(held)) == AT_ONCE, held
        for name in names:
            lab.delete(name)
        lab.wait_gone(*made)
