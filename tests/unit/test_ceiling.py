"""agent.core.accounting.ceiling: how many exclusive CPUs a namespace may hold on a node (exclusiveCPUs)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agent.core.accounting.ceiling import held_by
from agent.core.admission.node import Node
from agent.core.admission.resize import resized
from agent.errors import SettingsError
from agent.model.ledger import Ledger
from agent.model.outcome import Admitted, Reason, Refused
from agent.model.pod import Pod
from agent.settings import parse
from tests.world.nodes import managers_of
from tests.world.pods import INIT, container, pod

MACHINE = "2 sockets x 1 node x 8 cores x 1 thread, 8G per node"
GATE = {"featureGates": {"PodLevelResourceManagers": True}, "topologyManagerScope": "pod"}


def node_of(ceilings: dict[str, Any], **settings: Any) -> Node:  # noqa: ANN401 - a document's values
    """16 CPUs, one of them reserved."""
    return managers_of(MACHINE, {"kubeReserved": {"cpu": "1"}, "exclusiveCPUs": ceilings, **settings})


def of(namespace: str, name: str, *cpus: int) -> Pod:
    """A pod of a namespace, with one container for each number of CPUs."""
    containers = (container(f"c{number}", cpus=each, memory=1 << 20) for number, each in enumerate(cpus))
    return replace(pod(name, *containers), namespace=namespace)


def admitted(node: Node, ledger: Ledger, *pods: Pod) -> Ledger:
    """All of them are let in."""
    for each in pods:
        outcome = node.admit(ledger, each)
        assert isinstance(outcome, Admitted), outcome
        ledger = outcome.ledger
    return ledger


def test_a_pod_past_the_ceiling_is_refused_with_its_own_sentence() -> None:
    """The sentence has the namespace, its ceiling, what it holds, and what it would hold; nothing is taken."""
    node = node_of({"perNamespace": 4})
    ledger = admitted(node, node.start(), of("shop", "a", 3))
    outcome = node.admit(ledger, of("shop", "b", 2))
    assert isinstance(outcome, Refused)
    assert outcome.refusal.reason is Reason.CEILING
    assert outcome.refusal.message == (
        "namespace shop may hold 4 exclusive CPUs on this node (exclusiveCPUs in numalign's settings); it holds 3 "
        "and would hold 5"
    )
    assert outcome.refusal.facts == {"namespace": "shop", "ceiling": 4, "held": 3, "requested": 2}
    assert outcome.ledger == ledger


def test_the_ceiling_is_reached_and_counts_one_namespace_alone() -> None:
    """Exactly the ceiling is let in; what other namespaces hold, and pods that share, count nothing."""
    node = node_of({"perNamespace": 4})
    ledger = admitted(node, node.start(), of("shop", "a", 3), of("shop", "b", 1), of("other", "c", 4))
    assert (held_by(ledger, "shop"), held_by(ledger, "other"), held_by(ledger, "nobody")) == (4, 4, 0)
    sharing = replace(pod("d", container("app", cpus=0.5, memory=1 << 20)), namespace="shop")
    assert held_by(admitted(node, ledger, sharing), "shop") == 4


def test_a_namespace_may_have_its_own_ceiling_or_none_at_all() -> None:
    """`limits` replaces the ceiling of all; 0 gives nothing, and a namespace that is not named has that of all."""
    node = node_of({"perNamespace": 2, "limits": {"trading": 8, "batch": 0}})
    ledger = admitted(node, node.start(), of("trading", "a", 8))
    batch = node.admit(ledger, of("batch", "b", 1))
    assert isinstance(batch, Refused)
    assert batch.refusal.message.startswith("namespace batch may hold no exclusive CPU on this node")
    assert isinstance(node.admit(ledger, of("else", "c", 3)), Refused)
    assert isinstance(node_of({}).admit(node.start(), of("else", "c", 8)), Admitted)


def test_what_an_init_container_leaves_is_counted_once() -> None:
    """CPUs that an init container and an app container hold one after the other are one grant."""
    node = node_of({"perNamespace": 4})
    both = replace(pod("a", container("i", INIT, cpus=4), container("c", cpus=4)), namespace="shop")
    assert held_by(admitted(node, node.start(), both), "shop") == 4


def test_the_cpus_of_a_pod_as_a_whole_count() -> None:
    """A pod with pod-level resources holds its own pool, the part that its containers share too."""
    whole = {"cpu": 6, "memory": 1 << 30}
    shared = replace(container("s"), requests={}, limits={})
    one = replace(pod("a", container("c", cpus=2, memory=1 << 20), shared, whole=whole), namespace="shop")
    assert held_by(admitted(node_of({"perNamespace": 6}, **GATE), node_of({}).start(), one), "shop") == 6
    assert isinstance(node_of({"perNamespace": 5}, **GATE).admit(node_of({}).start(), one), Refused)


def test_a_resize_stays_below_the_ceiling() -> None:
    """A growth past it is not followed: the container keeps its CPUs, and the sentence says why."""
    node = node_of({"perNamespace": 4})
    ledger = admitted(node, node.start(), of("shop", "a", 2), of("shop", "b", 1))
    done = resized(node, ledger, of("shop", "a", 4))
    assert done.ledger.cpus == ledger.cpus
    assert done.refused["c0"] == (
        "resize not followed from 2 to 4 CPUs: namespace shop may hold 4 exclusive CPUs on this node (exclusiveCPUs "
        "in numalign's settings); it holds 3 and would hold 5; it keeps CPUs 1-2"
    )
    assert held_by(resized(node, ledger, of("shop", "a", 3)).ledger, "shop") == 4


def test_a_lower_ceiling_moves_nobody() -> None:
    """Who holds more keeps it, may give back, and may not grow; new pods wait until there is room below it."""
    ledger = admitted(node_of({}), node_of({}).start(), of("shop", "a", 6))
    node = node_of({"perNamespace": 2})
    assert node.admit(ledger, of("shop", "a", 6)).ledger == ledger
    assert held_by(resized(node, ledger, of("shop", "a", 4)).ledger, "shop") == 4
    assert resized(node, ledger, of("shop", "a", 7)).ledger.cpus == ledger.cpus
    assert isinstance(node.admit(ledger, of("shop", "b", 1)), Refused)


@pytest.mark.parametrize(
    ("ceilings", "sentence"),
    [
        ({"perNamespace": -1}, "exclusiveCPUs.perNamespace: -1 is less than 0"),
        ({"perNamespace": "8"}, "write a number of CPUs, like 8"),
        ({"limits": {"Shop": 1}}, "write numbers of CPUs, like {perNamespace: 8, limits: {batch: 0}}"),
        ({"limits": {"shop": True}}, "exclusiveCPUs.limits.shop: True is not a whole number"),
        ({"default": 1}, "possible are perNamespace, limits"),
        (8, "exclusiveCPUs: 8 is not a mapping; write numbers of CPUs"),
    ],
)
def test_a_wrong_ceiling_is_told(ceilings: object, sentence: str) -> None:
    """The sentence names the key and says what to write."""
    with pytest.raises(SettingsError) as told:
        parse({"exclusiveCPUs": ceilings})
    assert sentence in str(told.value)
