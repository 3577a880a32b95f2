"""Defect D17 mended (agent.core.merge.firm): CPUs and memory together lie on no more NUMA nodes than before."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import agent.core.admission.pod as admission
from agent.core.accounting.invariants import check
from agent.core.admission.node import Node
from agent.model.idset import CpuSet, NodeSet
from agent.model.ledger import Ledger
from agent.model.outcome import Admitted
from agent.model.pod import Pod
from tests.examples import examples
from tests.unit.test_firm import NIC, STATIC
from tests.world.nodes import managers_of
from tests.world.pods import container, pod

MIB = 2**20
MACHINES = (
    "2 sockets x 1 node x 8 cores x 2 threads, 8G per node, 3 nics on 0",
    "2 sockets x 2 nodes x 4 cores, 8G per node, distance 10 12 21, 2 nics on 0, nic on 3",
    "1 socket x 3 nodes x 3 cores x 2 threads, 4G per node, 6G on 4, node ids 0,4,9, 2 nics on 4",
    "2 sockets x 3 nodes x 3 cores, 4G per node, 2 nics on 1, nic on 5, memory node 4G hbm near 0",
)


@contextmanager
def as_before() -> Iterator[None]:
    """The kubelet's affinity, with all other mends in force."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(admission, "held_together", lambda hint, *_: hint)
        yield


def spanned(node: Node, ledger: Ledger, uid: str) -> NodeSet:
    """The NUMA nodes of a pod's CPUs and memory."""
    cpus = CpuSet.union(ledger.cpus.assigned.get(uid, {}).values())
    mems = [block.nodes for held in ledger.memory.blocks.get(uid, {}).values() for block in held]
    return NodeSet.union([node.machine.nodes_of(cpus), *mems])


def drawn_node(dice: Random) -> Node:
    """A machine under best-effort, with and without the memory manager and the CPU manager's options."""
    options = dice.choice(
        ({}, {}, {"distribute-cpus-across-numa": "true"}, {"full-pcpus-only": "true"},
         {"distribute-cpus-across-cores": "true"}, {"prefer-align-cpus-by-uncorecache": "true"})
    )  # fmt: skip
    machine = dice.choice(MACHINES)
    closest = "false" if "node ids" in machine else dice.choice(("true", "false"))
    body: dict[str, Any] = {
        "topologyManagerPolicy": "best-effort", "topologyManagerScope": dice.choice(("container", "pod")),
        "topologyManagerPolicyOptions": {"prefer-closest-numa-nodes": closest},
        "cpuManagerPolicyOptions": options,
        "devices": [{"resource": NIC, "class": "02", "namespaces": ["*"]}],
    }  # fmt: skip
    if dice.random() < 0.6:
        body |= STATIC
    return managers_of(machine, body)


def drawn_pod(dice: Random, uid: str, containers: int = 1) -> Pod:
    """CPUs, memory and now and then a NIC for each container."""
    made = [
        container(
            f"c{n}", cpus=dice.choice((2, 2, 4, 6, 8)), memory=dice.randint(1, 40) * 100 * MIB,
            limits={NIC: 1} if dice.random() < 0.6 else None,
        )
        for n in range(containers)
    ]  # fmt: skip
    return pod(uid, *made)


@settings(max_examples=examples(300), deadline=None)
@given(st.randoms(use_true_random=False))
def test_cpus_and_memory_lie_on_no_more_nodes_than_before(dice: Random) -> None:
    """What was admitted still is, on at most as many nodes: a container's, in scope pod the whole pod's."""
    nodes_before_and_after(dice)


def test_the_rule_makes_a_difference() -> None:
    """Among some hundred worlds it saves nodes in several: the property above is not true of nothing."""
    pairs = [nodes_before_and_after(Random(seed)) for seed in range(300)]
    assert sum(after < before for before, after in pairs) > 5


def nodes_before_and_after(dice: Random) -> tuple[int, int]:
    """How many nodes a newcomer's CPUs and memory lie on, by the kubelet's affinity and by the mended one."""
    node = drawn_node(dice)
    ledger = node.start()
    for number in range(dice.randint(1, 5)):
        ledger = node.admit(ledger, drawn_pod(dice, f"p{number}")).ledger
    for uid in [uid for uid in ledger.pods if dice.random() < 0.4]:
        ledger = node.release(ledger, uid)
    newcomer = drawn_pod(dice, "new", dice.randint(1, 3) if node.rules.topology.scope == "pod" else 1)
    with as_before():
        before = node.admit(ledger, newcomer)
    after = node.admit(ledger, newcomer)
    if not isinstance(before, Admitted):
        return 0, 0
    assert isinstance(after, Admitted)
    check(after.ledger, node)
    found = len(spanned(node, before.ledger, "new")), len(spanned(node, after.ledger, "new"))
    assert found[1] <= found[0]
    return found
