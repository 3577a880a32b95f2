"""Defect D19 mended (agent.core.admission.ahead): no pod is placed worse, and what can be aligned is."""

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
from agent.core.admission.pod import Admission
from agent.core.devices.kubelet import Offered, handed_over
from agent.core.merge.demand import enumeration
from agent.core.merge.inputs import question_of
from agent.core.merge.order import Order
from agent.model.devices import Device, DeviceInventory
from agent.model.hint import Hint
from agent.model.idset import NodeSet
from agent.model.ledger import Ledger
from agent.model.outcome import Admitted
from agent.model.pod import Container, Pod
from tests.examples import examples
from tests.world.nodes import managers_of
from tests.world.pods import APP, INIT, SIDECAR, container, pod

NIC, PLUGIN = "numalign.io/nic", "example.com/gpu"
MIB = 2**20
STATIC: dict[str, Any] = {
    "memoryManagerPolicy": "Static", "kubeReserved": {"memory": "412Mi"},
    "reservedMemory": [{"numaNode": 0, "limits": {"memory": "512Mi"}}],
}  # fmt: skip
GATES = {"CPUManagerPolicyAlphaOptions": True}
MACHINES = (
    "2 sockets x 1 node x 4 cores x 2 threads, 4G per node, nic on 0, 2 nics on 1",
    "2 sockets x 1 node x 6 cores, 4G per node, 2 nics on 1",
    "1 socket x 3 nodes x 3 cores x 2 threads, 4G per node, 6G on 4, node ids 0,4,9, nic on 0, 2 nics on 4",
    "2 sockets x 2 nodes x 4 cores, 4G per node, distance 10 12 21, 2 nics on 0, nic on 3",
    "2 sockets x 1 node x 6 cores, 4G per node, 2 nics on 0, memory node 4G hbm near 1",
)


@contextmanager
def as_before() -> Iterator[None]:
    """Placed without a look ahead, with all other mends in force."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(admission.Admission, "_ahead", lambda *_: None)
        yield


def drawn_node(dice: Random, mode: str = "fixed") -> Node:
    """A machine under scope container and a policy that aligns, with devices of our own and of a plugin."""
    policy = dice.choice(("best-effort", "restricted", "single-numa-node"))
    option = dice.choice(("", "", "distribute-cpus-across-numa", "full-pcpus-only", "align-by-socket"))
    machine = dice.choice(MACHINES)
    if policy == "single-numa-node" or "3 nodes" in machine:
        option = ""
    closest = "false" if "node ids" in machine else dice.choice(("true", "false"))
    body: dict[str, Any] = {
        "compatibility": mode, "reservedSystemCPUs": "0",
        "topologyManagerPolicy": policy, "topologyManagerScope": "container",
        "topologyManagerPolicyOptions": {"prefer-closest-numa-nodes": closest},
        "cpuManagerPolicyOptions": {option: "true"} if option else {}, "featureGates": GATES,
        "devices": [{"resource": NIC, "class": "02", "namespaces": ["*"]}],
    }  # fmt: skip
    if dice.random() < 0.4:
        body |= STATIC
    node = managers_of(machine, body)
    gpus = tuple(Device(f"g{each}", NodeSet.of(each)) for each in node.seen.node_set)
    return node.with_inventory(DeviceInventory({**node.inventory.resources, PLUGIN: gpus}, frozenset({PLUGIN})))


def drawn_pod(dice: Random, uid: str, most: int = 4) -> Pod:
    """Init containers, sidecars and app containers, some with devices, few of them large."""
    kinds = sorted((dice.choice((INIT, INIT, SIDECAR, APP, APP)) for _ in range(dice.randint(1, most))),
                   key=lambda kind: kind is APP)  # fmt: skip
    made = [
        container(
            f"c{n}", kind, cpus=dice.choice((0.5, 1, 1, 2, 2, 3, 4, 5, 6)),
            memory=dice.choice((1, 1, 10, 30)) * 100 * MIB,
            limits={NIC: dice.choice((1, 1, 2))} if dice.random() < 0.3 else None,
        )
        for n, kind in enumerate(kinds)
    ]  # fmt: skip
    return pod(uid, *made)


def with_devices(dice: Random, node: Node, ledger: Ledger, newcomer: Pod) -> Ledger:
    """The ledger in which the kubelet has given a device to an app container of the newcomer, now and then."""
    apps = [each.name for each in newcomer.containers if each.kind is APP]
    if not apps or dice.random() < 0.5:
        return ledger
    place = dice.choice(list(node.seen.node_set))
    return handed_over(ledger, newcomer, {dice.choice(apps): (Offered(PLUGIN, f"g{place}", NodeSet.of(place)),)})


def drawn_world(dice: Random) -> tuple[Node, Ledger, Pod]:
    """A node with some pods on it, of which some have ended, and a newcomer."""
    node = drawn_node(dice)
    ledger = node.start()
    for number in range(dice.randint(0, 4)):
        ledger = node.admit(ledger, drawn_pod(dice, f"p{number}", 2)).ledger
    for uid in [uid for uid in ledger.pods if dice.random() < 0.4]:
        ledger = node.release(ledger, uid)
    newcomer = drawn_pod(dice, "new")
    return node, with_devices(dice, node, ledger, newcomer), newcomer


def lacking(ledger: Ledger) -> list[str]:
    """The newcomer's containers that are not preferred."""
    return [name for name, hint in ledger.pods["new"].affinity.items() if not hint.preferred]


Cost = tuple[int, int, int]


def cost(node: Node, ledger: Ledger) -> Cost:
    """Containers that are not preferred, the NUMA nodes of these, and the distances within preferred node sets."""
    lacking = width = distances = 0
    for name, hint in ledger.pods["new"].affinity.items():
        grant = ledger.grant("new", name)
        nodes = (node.seen.nodes_of(grant.cpus) if grant.cpus else NodeSet()) | (grant.mems or NodeSet())
        lacking, width = (lacking, width) if hint.preferred else (lacking + 1, width + len(nodes))
        distances += apart(node, hint)
    return lacking, width, distances


def apart(node: Node, hint: Hint) -> int:
    """The distances within several NUMA nodes, where the options let them count."""
    topology, nodes = node.rules.topology, hint.nodes or NodeSet()
    counts = topology.prefer_closest and topology.policy != "single-numa-node" and hint.preferred
    return node.order.spread(node.positions.mask(nodes)) if counts and 1 < len(nodes) < len(node.positions) else 0


@settings(max_examples=examples(600), deadline=None)
@given(st.randoms(use_true_random=False))
def test_nothing_gets_worse_and_what_was_well_placed_stays_the_same(dice: Random) -> None:
    """What got in does; it is the same, or has fewer that are not preferred, fewer nodes, or closer ones."""
    before_and_after(dice)


def test_the_look_ahead_makes_a_difference() -> None:
    """Among some hundred worlds it lets pods in and places some better: the property is not true of nothing."""
    found = [before_and_after(Random(seed)) for seed in range(400)]
    assert found.count("let in") > 5
    assert found.count("better") > 5


def before_and_after(dice: Random) -> str:
    """What the look ahead changed for a newcomer."""
    node, ledger, newcomer = drawn_world(dice)
    with as_before():
        before = node.admit(ledger, newcomer)
    after = node.admit(ledger, newcomer)
    if isinstance(after, Admitted):
        check(after.ledger, node)
    if not isinstance(before, Admitted):
        return "let in" if isinstance(after, Admitted) else ""
    assert isinstance(after, Admitted)
    first, second = cost(node, before.ledger), cost(node, after.ledger)
    assert second <= first
    assert second < first or after == before
    return "better" if second < first else ""


@settings(max_examples=examples(400), deadline=None)
@given(st.randoms(use_true_random=False))
def test_a_pod_that_can_be_aligned_is(dice: Random) -> None:
    """Every choice of preferred node sets for all containers is tried: the closest that goes through is the pod's."""
    can_be_aligned(dice)


def test_pods_that_can_be_aligned_are_among_them() -> None:
    """Among some hundred worlds are many whose first choice fails and another goes through, and many without any."""
    found = [can_be_aligned(Random(seed)) for seed in range(300)]
    assert found.count("first") > 20
    assert found.count("later") > 5
    assert found.count("none") > 20


def can_be_aligned(dice: Random) -> str:
    """Which choice goes through: the kubelet's, a later one, or none."""
    node, ledger, newcomer = drawn_world(dice)
    after = node.admit(ledger, newcomer)
    choices = every_choice(node, ledger, newcomer)
    if node.rules.topology.prefer_closest:
        choices = iter(sorted(choices, key=lambda hints: sum(apart(node, hint) for hint in hints.values()))[:1])
    found = next(choices, None)
    if found is not None:
        assert isinstance(after, Admitted)
        assert not lacking(after.ledger)
        assert after.ledger.pods["new"].affinity == found
    with as_before():
        before = node.admit(ledger, newcomer)
    first = isinstance(before, Admitted) and not lacking(before.ledger)
    return "first" if first else "none" if found is None else "later"


def every_choice(node: Node, ledger: Ledger, newcomer: Pod) -> Iterator[dict[str, Hint]]:
    """The choices of preferred node sets that go through, in the order of the rule; nothing is left out."""
    topology = node.rules.topology
    way = Admission(
        newcomer, ledger, topology, node.providers, node.positions, node.order, as_whole=False, trace=None
    )
    order = node.order if topology.prefer_closest and topology.policy != "single-numa-node" else Order()
    every = sorted(enumeration(len(node.positions)), key=lambda mask: (mask.bit_count(), order.spread(mask), mask))

    def walk(now: Ledger, left: tuple[Container, ...]) -> Iterator[dict[str, Hint]]:
        if not left:
            yield {}
            return
        answers = way.ask(now, left[0])
        question = question_of(list(answers.values()), node.positions)
        masks = [mask for mask in every if all(demand.prefers(mask) for demand in question.demands)]
        if topology.policy == "single-numa-node":
            masks = [mask for mask in masks if mask.bit_count() == 1]
        hints = [] if question.hopeless else [Hint(node.positions.nodes(mask), preferred=True) for mask in masks]
        for hint in hints if question.demands else [way.merge(answers).hint]:
            after, refusal = way.place(now, left[0], hint)
            if refusal is None:
                yield from ({left[0].name: hint, **rest} for rest in walk(after, left[1:]))

    yield from walk(ledger, newcomer.containers)


@settings(max_examples=examples(300), deadline=None)
@given(st.integers(0, 10**9))
def test_fixed_lets_in_and_aligns_what_the_kubelet_does(seed: int) -> None:
    """What `compatibility: kubelet` lets in on an empty node, all preferred, fixed does as well."""
    found = []
    for mode in ("kubelet", "fixed"):
        dice = Random(seed)
        node, newcomer = drawn_node(dice, mode), drawn_pod(dice, "new")
        found.append(node.admit(with_devices(dice, node, node.start(), newcomer), newcomer))
    theirs, ours = found
    if isinstance(theirs, Admitted) and not lacking(theirs.ledger):
        assert isinstance(ours, Admitted)
        assert not lacking(ours.ledger)
