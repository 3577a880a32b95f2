"""A hint provider beyond devices, CPUs and memory: one file and one word to `Node` (`agent.core.merge.provider`)."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from agent.core.admission.node import Node
from agent.core.explain.explainer import explain
from agent.core.merge.demand import Demand, Family
from agent.core.merge.masks import Positions
from agent.core.merge.provider import Answer, Provider
from agent.model.hint import Hint
from agent.model.idset import NodeSet
from agent.model.ledger import Ledger
from agent.model.outcome import Reason, Refused
from agent.model.pod import Container, Pod
from tests.world.nodes import managers_of
from tests.world.pods import APP, container, pod

GIB = 2**30
RESOURCE = "near the switch"


@dataclass(frozen=True)
class FixedNodes:
    """Prefers some NUMA nodes, whatever a pod asks for; takes nothing."""

    positions: Positions
    preferred: NodeSet
    name: str = "fixed"

    def container_hints(self, ledger: Ledger, pod: Pod, container: Container) -> Answer:
        """Any set of nodes will do; this one is preferred."""
        anything = Family(self.positions.everything, ())
        return {RESOURCE: Demand(anything, fixed={self.positions.mask(self.preferred): True})}

    def pod_hints(self, ledger: Ledger, pod: Pod) -> Answer:
        """As for a container."""
        return self.container_hints(ledger, pod, pod.containers[0])

    def allocate(self, ledger: Ledger, pod: Pod, container: Container, affinity: Hint) -> Ledger:
        """Take nothing."""
        return ledger

    def allocate_pod(self, ledger: Ledger, pod: Pod, affinity: Hint) -> Ledger:
        """Take nothing."""
        return ledger

    def started(self, ledger: Ledger, pod: Pod, container: Container) -> Ledger:
        """Hold nothing that could go."""
        return ledger

    def release(self, ledger: Ledger, uid: str, container: str | None = None) -> Ledger:
        """Give back nothing."""
        return ledger


def node(policy: str) -> Node:
    """Two NUMA nodes of four CPUs, one CPU reserved, of which pods prefer the second."""
    plain = managers_of(
        "2 sockets x 1 node x 4 cores x 1 thread, 8G per node",
        {"topologyManagerPolicy": policy, "reservedSystemCPUs": "0"},
    )
    provider: Provider = FixedNodes(plain.positions, NodeSet.of(1))
    return Node(plain.machine, plain.rules, plain.inventory, (provider,))


def one(uid: str, cpus: int) -> Pod:
    """A pod of one container."""
    return pod(uid, container("app", APP, cpus=cpus, memory=GIB))


@pytest.mark.parametrize("policy", ["best-effort", "restricted", "single-numa-node"])
def test_its_nodes_are_taken_first(policy: str) -> None:
    """Node 0 would do as well; the merge takes the one that all providers prefer."""
    managers = node(policy)
    after = managers.admit(managers.start(), one("a", 2)).ledger
    assert str(after.grant("a", "app").cpus) == "4-5"
    assert after.pods["a"].is_aligned
    assert managers.release(after, "a").cpus == managers.start().cpus


def test_where_they_are_full_the_policy_decides() -> None:
    """best-effort takes the other node; restricted refuses, and the cause has the numbers of both."""
    lax, strict = node("best-effort"), node("restricted")
    full = lax.admit(lax.start(), one("a", 4)).ledger
    after = lax.admit(full, one("b", 2)).ledger
    assert str(after.grant("b", "app").cpus) == "1-2"
    outcome = strict.admit(full, one("b", 2))
    assert isinstance(outcome, Refused)
    assert outcome.refusal.reason is Reason.TOPOLOGY
    refusal = explain(strict, full, one("b", 2)).refusal
    assert refusal is not None
    assert refusal.plain.endswith(f"2 CPUs fit on NUMA node 0 and {RESOURCE} fits on NUMA node 1")
    assert [each.resource for each in refusal.cause.lacks] == ["cpu", RESOURCE]
