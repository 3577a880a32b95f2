"""The ceiling of a namespace: no history of admissions and resizes passes it, and lowering it moves nobody."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from agent.core.accounting import invariants
from agent.core.accounting.ceiling import held_by
from agent.core.admission.node import Node
from agent.core.admission.resize import resized
from agent.model.ledger import Ledger
from agent.model.pod import Pod
from tests.examples import examples
from tests.world.nodes import managers_of
from tests.world.pods import INIT, container, pod

MACHINE = "2 sockets x 2 nodes x 4 cores x 1 thread, 8G per node"
NAMESPACES = ("shop", "trading", "batch")
CEILINGS = st.fixed_dictionaries(
    {},
    optional={
        "perNamespace": st.integers(0, 16),
        "limits": st.dictionaries(st.sampled_from(NAMESPACES), st.integers(0, 16)),
    },
)
COUNTS = st.sampled_from((0.5, 1, 2, 3, 5, 8))
STEPS = st.lists(st.tuples(st.integers(0, 5), COUNTS, COUNTS, st.booleans()), max_size=16)


def node_of(ceilings: dict[str, object], policy: str) -> Node:
    """The managers under ceilings."""
    reserved = {"topologyManagerPolicy": policy, "kubeReserved": {"cpu": "1"}}
    return managers_of(MACHINE, {**reserved, "exclusiveCPUs": ceilings})


def pod_of(number: int, one: float, two: float) -> Pod:
    """One of six pods, two in each namespace: an init container and two that run."""
    containers = (container("i", INIT, cpus=two), container("a", cpus=one), container("b", cpus=two))
    return replace(pod(f"p{number}", *containers), namespace=NAMESPACES[number % 3])


def held(ledger: Ledger) -> dict[str, int]:
    """By namespace."""
    return {each: held_by(ledger, each) for each in NAMESPACES}


@settings(max_examples=examples(150), deadline=None)
@given(ceilings=CEILINGS, lower=CEILINGS, policy=st.sampled_from(("none", "best-effort", "restricted")), steps=STEPS)
def test_no_history_passes_the_ceiling(
    ceilings: dict[str, object], lower: dict[str, object], policy: str, steps: list[tuple[int, float, float, bool]]
) -> None:
    """Pods come, are resized and go, and half-way other ceilings count: nobody is above, but who was before."""
    node, ledger = node_of(ceilings, policy), node_of(ceilings, policy).start()
    for place, (number, one, two, goes) in enumerate(steps):
        if place == len(steps) // 2:
            node = node_of(lower, policy)
        each, before = pod_of(number, one, two), held(ledger)
        others = {uid: mine for uid, mine in ledger.cpus.assigned.items() if uid != each.uid}
        if each.uid not in ledger.pods:
            ledger = node.admit(ledger, each).ledger
        elif goes:
            ledger = node.release(ledger, each.uid)
        else:
            ledger = resized(node, ledger, each).ledger
        invariants.check(ledger, node, earlier=tuple(ledger.pods))
        for name, count in held(ledger).items():
            ceiling = node.rules.ceilings.of(name)
            assert ceiling is None or count <= max(ceiling, before[name])
        assert {uid: mine for uid, mine in ledger.cpus.assigned.items() if uid != each.uid} == others
