"""What explanations say of a merge, against the kubelet's own definition: all hints listed, all ANDs taken.

The merge itself never lists hints on machines with many nodes, and explanations do not there either; here both are
held against lists all the same, with up to ten nodes.
"""

from __future__ import annotations

from itertools import product
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from agent.core.admission.ahead import AHEAD
from agent.core.admission.node import Node
from agent.core.admission.pod import Step
from agent.core.explain.explainer import explain
from agent.core.explain.standing import PodStanding
from agent.core.explain.values import Merge, MergeRule
from agent.core.machines.synthetic import parse_synthetic
from agent.core.merge.demand import listed
from agent.core.merge.masks import Positions
from agent.core.merge.order import Order
from agent.model.devices import DeviceInventory
from agent.model.hint import Stance
from agent.model.ledger import Ledger
from agent.model.pod import Pod
from agent.model.podspec import pod_from
from agent.model.rules import Policy
from agent.settings import parse, rules_of
from tests.examples import examples
from tests.world.nodes import managers_of
from tests.world.strategies import case_of, pods

MACHINES = (
    "2 sockets x 2 nodes x 3 cores, 4G per node, distance 10 12 21, nic on 0 and 3",
    "2 sockets x 5 nodes x 2 cores, 4G per node, distance 10 12 21, nic on 1 and 9",
    "3 sockets x 3 nodes x 2 cores, 2G per node, nic on 2",
)


@st.composite
def merged(draw: st.DrawFn) -> tuple[Node, Ledger, Pod]:
    """A node, partly filled, and a newcomer."""
    machine = draw(st.sampled_from(MACHINES))
    body: dict[str, Any] = {
        "topologyManagerPolicy": draw(st.sampled_from(["best-effort", "restricted", "single-numa-node"])),
        "topologyManagerPolicyOptions": {
            "prefer-closest-numa-nodes": draw(st.sampled_from(["true", "false"])), "max-allowable-numa-nodes": "16",
        },
        "reservedSystemCPUs": "0",
        "devices": [{"resource": "numalign.io/nic", "class": "02", "namespaces": ["*"]}],
    }  # fmt: skip
    if draw(st.booleans()):
        body |= {
            "memoryManagerPolicy": "Static", "kubeReserved": {"memory": "412Mi"},
            "reservedMemory": [{"numaNode": 0, "limits": {"memory": "512Mi"}}],
        }  # fmt: skip
    node = managers_of(machine, body)
    ledger = node.start()
    for number in range(draw(st.integers(0, 5))):
        ledger = case_of(node, ledger, draw(pods(number))).admit(node).ledger
    return node, ledger, draw(st.one_of(pods(19), pods(19, (5, 6, 7, 8))))  # wide sets may be preferred, too


def lists_of(step: Step, positions: Positions) -> tuple[list[list[tuple[int, bool]]], bool]:
    """Every hint list of a merge with masks in it, and whether some list is impossible."""
    found, hopeless = [], False
    for answer in step.answers.values():
        for offer in answer.values() if not isinstance(answer, Stance) else ():
            if isinstance(offer, Stance):
                hopeless |= offer is Stance.IMPOSSIBLE
                continue
            hints = listed(offer, positions)
            found.append([(positions.mask(hint.nodes), hint.preferred) for hint in hints if hint.nodes is not None])
    return found, hopeless


def check(node: Node, step: Step, merge: Merge, closest: Order) -> None:
    """One merge's winner and rule, from the lists alone."""
    lists, hopeless = lists_of(step, node.positions)
    policy = step.reasons.policy
    single = policy is Policy.SINGLE_NUMA_NODE
    order = Order() if single and merge.admit else closest

    def rank(mask: int) -> tuple[int, int, int]:
        return mask.bit_count(), order.spread(mask), mask

    common: set[int] = set()
    if lists and not hopeless:
        common = set.intersection(*({mask for mask, preferred in hints if preferred} for hints in lists))
    if single and merge.admit:
        common = {mask for mask in common if mask.bit_count() == 1}
    if not lists:
        assert merge.rule is (MergeRule.NOTHING if hopeless else MergeRule.INDIFFERENT)
        return
    assert merge.preferred == bool(common)
    winner = node.positions.mask(merge.winner) if merge.winner is not None else node.positions.everything
    if not common:
        unpreferred(merge, winner, lists, node.positions.everything, Order() if single else closest)
    elif merge.admit or not single:  # else it is what best-effort would have taken, distances included
        first, *others = sorted(common, key=rank)
        assert winner == first
        if AHEAD in step.answers:
            assert (merge.rule, others) == (MergeRule.AHEAD, [])  # one of the lists leaves one set alone
        elif not others:
            assert merge.rule in {MergeRule.ONLY, MergeRule.FIRST}  # with many nodes nobody looks for a second
        elif merge.rule is not MergeRule.FIRST:
            mine, second = rank(first), rank(others[0])
            expected = (
                MergeRule.NARROWER
                if mine[0] != second[0]
                else MergeRule.CLOSER
                if mine[1] != second[1]
                else MergeRule.LOWER
            )
            assert merge.rule is expected


def unpreferred(
    merge: Merge, winner: int, lists: list[list[tuple[int, bool]]], everything: int, order: Order
) -> None:
    """Nothing is preferred by all: the overlap nearest to what the neediest list takes at least."""
    reached = {everything}
    for hints in lists:
        reached = {mask & other for mask in reached for other, _ in hints} - {0}
    together = merge.rule is MergeRule.TOGETHER  # CPUs and memory: tests/property/test_firm.py
    assert (merge.rule is MergeRule.NOTHING) == (not reached and not together)
    if not reached or together:
        return
    goal = max(min(mask.bit_count() for mask, _ in hints) for hints in lists)

    def near(mask: int) -> tuple[bool, int, int, int]:
        return mask.bit_count() > goal, abs(mask.bit_count() - goal), order.spread(mask), mask

    assert winner == min(reached, key=near)


@settings(max_examples=examples(120), deadline=None)
@given(merged())
def test_winner_and_rule_are_those_of_the_lists(world: tuple[Node, Ledger, Pod]) -> None:
    """Whoever wins is first by the kubelet's order, and the rule that is named tells it from the second."""
    checked(*world)


def test_every_rule_is_met_and_right() -> None:
    """A sweep over requests, with and without distances and align-by-socket: each rule decides some merge."""
    met: set[MergeRule] = set()
    for text, policy, closest, by_socket in product(
        MACHINES[:2], ("best-effort", "restricted", "single-numa-node"), ("true", "false"), ("true", "false")
    ):
        if by_socket == "true" and (policy == "single-numa-node" or not text.startswith("2 sockets x 2")):
            continue  # excluded by the CPU manager
        machine = parse_synthetic(text)
        settings, _ = parse({
            "topologyManagerPolicy": policy, "reservedSystemCPUs": "0",
            "topologyManagerPolicyOptions": {
                "prefer-closest-numa-nodes": closest, "max-allowable-numa-nodes": "16",
            },
            "cpuManagerPolicyOptions": {"align-by-socket": by_socket},
        })  # fmt: skip
        rules = rules_of(settings, machine)
        node = Node(machine, rules, DeviceInventory())
        for held, cpus in product(((), (4,), (2,) * len(machine.nodes)), (0, 1, 2, 4, 6, 12)):
            ledger = node.start()
            for number, count in enumerate(held):
                ledger = case_of(node, ledger, sized(number, count)).admit(node).ledger
            met |= {merge.rule for merge in checked(node, ledger, sized(99, cpus))}
    # these need devices, or several containers: tests/unit/test_firm.py, tests/unit/test_look_ahead.py
    assert met == set(MergeRule) - {MergeRule.TOGETHER, MergeRule.AHEAD}


def sized(number: int, cpus: int) -> Pod:
    """A pod of so many CPUs; of half a one for 0."""
    limits = {"cpu": cpus or "500m", "memory": "64Mi"}
    return pod_from({
        "metadata": {"name": f"p{number}", "uid": f"p{number}"},
        "spec": {"containers": [{"name": "c", "resources": {"limits": limits}}]},
    })  # fmt: skip


def checked(node: Node, ledger: Ledger, pod: Pod) -> tuple[Merge, ...]:
    """The merges of a newcomer, each held against its lists."""
    steps: list[Step] = []
    case_of(node, ledger, pod).admit(node, steps.append)
    found = explain(node, ledger, pod, standing=PodStanding(hypothetical=True), search=False)
    closest = node.order if node.rules.topology.prefer_closest else Order()
    assert len(steps) == len(found.merges)
    for step, merge in zip(steps, found.merges, strict=True):
        if step.merged.exact:
            check(node, step, merge, closest)
    return found.merges
