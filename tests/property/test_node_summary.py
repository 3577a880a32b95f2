"""What a node publishes of itself decides as the node does: its summary, packed and read again, in place of it."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from agent.core.admission.node import Node
from agent.engine.dry_run import DryRun
from agent.engine.node_summary import NodeSummary, decode, encode, summarize
from agent.engine.tracked_pod import Switches
from agent.model.ledger import Grant
from agent.model.pod import Pod
from agent.model.rules import Ceilings
from tests.world import strategies

WISHES = st.sampled_from(["", "", "wait", "fail", "run"])


@st.composite
def pods(draw: st.DrawFn, number: int) -> Pod:
    """A pod that may wait, in one of two namespaces."""
    pod, wish = draw(strategies.pods(number)), draw(WISHES)
    notes = {**pod.annotations, **({"numalign.io/on-misalignment": wish} if wish else {})}
    own = draw(st.sampled_from(["", "", "c0", "auto", "auto,-c1", "none"]))
    notes |= {"numalign.io/exclusive": own} if own else {}
    return replace(pod, annotations=notes, namespace=draw(st.sampled_from(["blue", "green"])))


@st.composite
def served(draw: st.DrawFn) -> tuple[DryRun, float]:
    """A node on which pods came and went, some of them waiting, and the time since it began."""
    node = draw(strategies.nodes())
    if draw(st.booleans()):
        rules = replace(node.rules, ceilings=Ceilings(draw(st.integers(0, 6)), {"blue": draw(st.integers(0, 6))}))
        node = Node(node.machine, rules, node.inventory)
    run = DryRun(node, Switches(most_waiting=draw(st.integers(1, 3))))
    now = 1.0
    for number in range(draw(st.integers(0, 8))):
        now += draw(st.sampled_from([1.0, 40.0]))
        run.see(draw(pods(number)), now)
        if draw(st.integers(0, 3)) == 0 and run.known:
            run.end([draw(st.sampled_from(sorted(run.known)))], now)
    return run, now


def published(run: DryRun) -> NodeSummary:
    """What anybody reads of the node."""
    made = summarize(run.state, began=1000.0, enforcing=True)
    return decode(encode(made)).named(["blue", "green"])


def lot(run: DryRun, pod: Pod) -> tuple[object, ...]:
    """What became of a pod: its grants, how they lie, or why there are none."""
    record, refusal = run.ledger.pods.get(pod.uid), run.known[pod.uid].refusal
    grants: dict[str, Grant] = {each.name: run.ledger.grant(pod.uid, each.name) for each in pod.containers}
    told = (record.aligned, record.affinity, record.policy, record.scope) if record else ()
    return grants, run.ledger.cpus.confined.get(pod.uid), told, refusal and (refusal.reason, refusal.message)


@settings(max_examples=150, deadline=None)
@given(served(), st.data())
def test_the_summary_decides_as_the_node(world: tuple[DryRun, float], data: st.DataObject) -> None:
    """The next pods get the same CPUs, memory and devices from the summary as from the node, or the same refusal."""
    run, now = world
    there = published(run).begin()
    for number in range(50, 53):
        pod = data.draw(pods(number))
        run.see(pod, now + 1)
        there.see(pod, 1000.0 + now + 1)
        assert lot(there, pod) == lot(run, pod)


@settings(max_examples=60, deadline=None)
@given(served())
def test_nothing_in_a_summary_names_a_pod(world: tuple[DryRun, float]) -> None:
    """S20: whoever may read a node's summary learns what is held, and no pod's or namespace's name."""
    run, _ = world
    told = published(run)
    assert {pod.pod.name for pod in told.ledger.pods.values()} <= {""}
    assert decode(encode(told)) == told
    hidden = decode(encode(summarize(run.state, began=1000.0, enforcing=True)))
    assert not {each.pod.namespace for each in hidden.waiting} & {"blue", "green"}
