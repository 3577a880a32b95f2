"""A containerd that keeps the remains of refused sandboxes: the agent refuses none, and its restart is survived."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lab import agent
from tests.lab.cluster import Lab
from tests.lab.node import RESERVED, Node, Plan
from tests.lab.pods import pod

PLAN = Plan(
    number=4, runtime="containerd-2.2", config={**RESERVED, "topologyManagerPolicy": "single-numa-node"}
)  # fmt: skip
WAITING = {"numalign.io/on-misalignment": "wait"}
TIMES = 12
FULL = {"full-0": "2", "full-1": "4", "full-2": "4", "full-3": "3"}
"""One CPU of 16 is free, on the last of four NUMA nodes; two are reserved."""


@pytest.fixture
def spare(lab: Lab) -> Iterator[Node]:
    """A node with containerd 2.2.5, and numalign on it; gone afterwards, and the configuration is back."""
    with lab.spare(PLAN) as node:
        yield node
    agent.configure(lab.numalign, {})


def test_s11_a_containerd_that_keeps_refused_sandboxes_is_asked_to_refuse_none(lab: Lab, spare: Node) -> None:
    """S11: twelve pods that are to wait start instead, the log says why, and containerd comes back from a restart."""
    for name, cpu in FULL.items():
        lab.create(pod(name, cpu=cpu), spare, wait=True)
    for number in range(TIMES):
        made = lab.create(pod(f"waits-{number}", cpu="2", annotations=WAITING), spare, wait=True)
        lab.delete(made["metadata"]["name"])
        lab.wait_gone(made)
    found = agent.metrics(spare)
    assert found['numalign_nri_answers_total{what="unrefused"}'] == TIMES
    assert 'numalign_nri_answers_total{what="refused"}' not in found
    assert "keeps the remains of every refused sandbox" in agent.log(spare, 2000)
    spare.restart("containerd")
    spare.wait_ready()
    assert lab.create(pod("after", cpu="1"), spare, wait=True)
