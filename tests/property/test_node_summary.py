"""What a node publishes of itself decides as the node does: its summary, packed and read again, in place of it."""

from __future__ import annotations

import base64
import re
import zlib
from contextlib import suppress
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from agent.core.admission.node import Node
from agent.core.request.exempt import Exemptions
from agent.errors import SettingsError
from agent.forecast.dry_run import DryRun
from agent.forecast.node_summary import NodeSummary, decode, encode, summarize
from agent.model.exclusive import Selection
from agent.model.ledger import Grant
from agent.model.pod import Container, ContainerKind, Pod, Qos
from agent.model.rules import Ceilings, Compatibility, Minor, MixedCpus, PcieLocality
from agent.node.tracked_pod import Switches
from tests.examples import examples
from tests.world import strategies

WISHES = st.sampled_from(["", "", "wait", "fail", "run"])
NOTES = {
    "exclusive": ["", "", "c0", "auto", "auto,-c1", "none"], "mixed": ["", "", "c0", "c0,c1", "nobody", "c-"],
    "scope": ["", "", "pod", "container"], "cpu-options": ["", "", "full-pcpus-only=true", "align-by-socket=true"],
}  # fmt: skip


@st.composite
def pods(draw: st.DrawFn, number: int) -> Pod:
    """A pod of any class that may wait, in one of two namespaces; some have an init container or a sidecar."""
    pod, wish = draw(strategies.pods(number)), draw(WISHES)
    notes = {**pod.annotations, **({"numalign.io/on-misalignment": wish} if wish else {})}
    asked = {name: draw(st.sampled_from(values)) for name, values in NOTES.items()}
    notes |= {f"numalign.io/{name}": value for name, value in asked.items() if value}
    containers, qos = pod.containers, pod.qos
    if draw(st.booleans()):
        kind = draw(st.sampled_from([ContainerKind.INIT, ContainerKind.SIDECAR]))
        containers = (replace(containers[0], name="before", kind=kind), *containers)
    if draw(st.booleans()):
        containers, qos = (*containers, Container("beside")), Qos.BURSTABLE
    space = draw(st.sampled_from(["blue", "green"]))
    return replace(pod, annotations=notes, containers=containers, qos=qos, namespace=space)


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    """A node under all that rules can say, as far as it goes together."""
    node = draw(strategies.nodes())
    ceilings = Ceilings(draw(st.integers(0, 6)), {"blue": draw(st.integers(0, 6))})
    rules = replace(
        node.rules, ceilings=ceilings if draw(st.booleans()) else Ceilings(),
        mixed=draw(st.sampled_from(MixedCpus)), exclusive=Selection(auto=draw(st.booleans())),
        pcie=draw(st.sampled_from(PcieLocality)), compatibility=draw(st.sampled_from(Compatibility)),
        minor=draw(st.sampled_from(Minor)), cpu=replace(node.rules.cpu, options=draw(strategies.cpu_options)),
        exclusive_namespaces=draw(st.sampled_from([("*",), ("blue",), ("blue", "green")])),
    )  # fmt: skip
    with suppress(SettingsError):  # what does not go together
        return Node(node.machine, rules, node.inventory)
    return Node(node.machine, replace(rules, cpu=node.rules.cpu), node.inventory)


@st.composite
def served(draw: st.DrawFn) -> tuple[DryRun, float, Exemptions]:
    """A node on which pods came and went, some of them waiting, the time since it began, and whom it leaves alone."""
    alone = Exemptions(draw(st.sampled_from([(), ("green",)])), draw(st.sampled_from([(), ("green/p*",)])))
    run = DryRun(draw(nodes()), Switches(most_waiting=draw(st.integers(1, 3))), alone.why)
    now = 1.0
    for number in range(draw(st.integers(0, 8))):
        now += draw(st.sampled_from([1.0, 40.0]))
        run.see(draw(pods(number)), now)
        if draw(st.integers(0, 3)) == 0 and run.pods:
            run.end([draw(st.sampled_from(sorted(run.pods)))], now)
    return run, now, alone


def published(run: DryRun, alone: Exemptions) -> NodeSummary:
    """What anybody reads of the node."""
    made = summarize(run.state, began=1000.0, enforcing=True, excluded=alone.namespaces, included=alone.included)
    return decode(encode(made)).named(["blue", "green"])


def lot(run: DryRun, pod: Pod) -> tuple[object, ...]:
    """What became of a pod: its grants, how they lie, or why there are none."""
    record, known = run.ledger.pods.get(pod.uid), run.pods.get(pod.uid)
    refusal = known.refusal if known else None
    grants: dict[str, Grant] = {each.name: run.ledger.grant(pod.uid, each.name) for each in pod.containers}
    told = (record.aligned, record.affinity, record.policy, record.scope) if record else ()
    cpus = run.ledger.cpus
    return (
        grants,
        cpus.confined.get(pod.uid),
        cpus.mixed.get(pod.uid),
        told,
        refusal and (refusal.reason, refusal.message),
        run.exempts(pod),
        run.waits(pod.uid),
    )


@settings(max_examples=examples(150), deadline=None)
@given(served(), st.data())
def test_the_summary_decides_as_the_node(world: tuple[DryRun, float, Exemptions], data: st.DataObject) -> None:
    """The next pods get the same CPUs, memory and devices from the summary as from the node, or the same refusal."""
    run, now, alone = world
    there = published(run, alone).begin()
    for number in range(50, 53):
        pod = data.draw(pods(number))
        run.see(pod, now + 1)
        there.see(pod, 1000.0 + now + 1)
        assert lot(there, pod) == lot(run, pod)


@settings(max_examples=examples(60), deadline=None)
@given(served())
def test_nothing_in_a_summary_names_a_pod(world: tuple[DryRun, float, Exemptions]) -> None:
    """S20: whoever may read a node's summary learns what is held, and no pod's or namespace's name."""
    run, _, alone = world
    told = published(run, alone)
    text = zlib.decompress(base64.b64decode(encode(summarize(run.state, began=1000.0, enforcing=True)))).decode()
    words = {word for each in re.findall(r'"([^"]*)"', text) for word in re.split("[ ,]|,-|^-", each)}
    assert not words & {"blue", "green", "c0", "c1", "before", "beside", "nobody", *(f"p{n}" for n in range(9))} - (
        {*run.node.rules.exclusive_namespaces, *run.node.rules.ceilings.named}
    ), "namespaces are there as the settings name them"
    assert {pod.pod.name for pod in told.ledger.pods.values()} <= {""}
    assert decode(encode(told)) == told
    hidden = decode(encode(summarize(run.state, began=1000.0, enforcing=True)))
    assert not {each.pod.namespace for each in hidden.waiting} & {"blue", "green"}
