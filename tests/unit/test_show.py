"""What people are shown: rows, words, and tables that a pipe can take."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import replace

import pytest
from rich.console import Console

from agent.app.page.views import NodeView, as_json, view_of
from agent.cli import show
from agent.core.accounting.usage import usage
from agent.core.admission.alignment import UNPREFERRED
from agent.core.admission.node import Node
from agent.core.explain.refusals import in_plain_words
from agent.core.request.annotations import PodSettings
from agent.host.processes import Allowed
from agent.model.idset import CpuSet, NodeSet
from agent.model.ledger import Ledger
from agent.model.outcome import Admitted, Reason, Refusal, RefusalCause
from agent.model.podspec import pod_from
from agent.node.tracked_pod import TrackedPod
from tests.flow.world import container, manifest
from tests.world.nodes import managers_of

SETTINGS = {
    "kubeReserved": {"cpu": "1"}, "memoryManagerPolicy": "Static",
    "reservedMemory": [{"numaNode": 0, "limits": {"memory": "100Mi"}}],
}  # fmt: skip


def a_node(settings: Mapping[str, object] = SETTINGS) -> Node:
    """Two nodes of four CPUs, 1 GiB each."""
    return managers_of("2 sockets x 4 cores, 1G per node", settings)


def admitted(node: Node, *bodies: dict[str, object]) -> Ledger:
    """The ledger after these pods."""
    ledger = node.start()
    for body in bodies:
        outcome = node.admit(ledger, pod_from(body))
        assert isinstance(outcome, Admitted)
        ledger = outcome.ledger
    return ledger


def text_of(view: NodeView, width: int = 200) -> str:
    """Both tables as a pipe gets them."""
    stream = io.StringIO()
    target = Console(file=stream, width=width, highlight=False)
    show.pods_grid(view, width).print(target)
    show.nodes_grid(view, width).print(target)
    return stream.getvalue()


def test_rows_say_who_has_what() -> None:
    """Exclusive CPUs and memory per node; who shares; who is confined; what the kernel said."""
    node = a_node()
    ledger = admitted(
        node,
        manifest("db", container(cpu="2", memory="256Mi")),
        manifest("kept", container(cpu="500m", memory=""), align="numa"),
        manifest("web", container(cpu="", memory="")),
    )
    words = {("db", "app"): Allowed(CpuSet.parse("1-2"), NodeSet.parse("0"))}
    view = view_of(ledger, node, words=words)
    db, kept, web = view.rows
    assert (str(db.cpus), str(db.nodes), db.memory, db.state) == ("1-2", "0", {0: {"memory": 256 << 20}}, "aligned")
    assert (kept.cpus, kept.state, len(kept.nodes)) == (None, "aligned", 1)
    assert kept.pool != web.pool == ledger.cpus.shared
    assert (web.state, web.why) == ("shared", "")
    lines = {line.split()[0]: line for line in text_of(view).splitlines() if line.strip()}
    assert "1-2" in lines["default/db"]
    assert "256Mi" in lines["default/db"]
    assert "shared, on " in lines["default/kept"]
    assert json.loads(json.dumps(as_json(view)))["containers"][0]["kernel"]["cpusAllowed"] == "1-2"


def test_a_reason_is_said_once_per_pod() -> None:
    """Containers of one pod with the same reason do not repeat it."""
    node = a_node()
    pod = pod_from(manifest("big", container("a", cpu="9"), container("b", cpu="9")))
    why = Refusal(Reason.UNEXPECTED, "not enough of it")
    known = {"big": TrackedPod(pod, PodSettings(), refusal=why)}
    view = view_of(node.start(), node, known)
    assert [row.state for row in view.rows] == ["refused", "refused"]
    assert text_of(view).count("not enough of it") == 1
    assert view.refused == {"big": why}


def test_of_two_nodes_it_is_not_said_that_an_empty_machine_would_do_better() -> None:
    """Memory that needs both NUMA nodes and a CPU that needs one: the sentence names no better machine."""
    node = a_node()
    ledger = admitted(node, manifest("wide", container("app", cpu="1", memory="1300Mi")))
    (row,) = view_of(ledger, node).rows
    assert (row.state, str(row.nodes), row.why) == ("not aligned", "0-1", UNPREFERRED)
    assert UNPREFERRED == "no set of NUMA nodes was the best for all that it asks for"


def test_words_for_the_commonest_refusal() -> None:
    """The kubelet's sentence says little; the cause is said instead, where it is known."""
    refusal = Refusal(Reason.TOPOLOGY, "Resources cannot ...", facts={"policy": "single-numa-node"})
    assert refusal.plain == "Resources cannot ..."
    numbers = replace(refusal, cause=RefusalCause("it asks for 5 CPUs, and 3 are free"))
    assert numbers.plain == "it asks for 5 CPUs, and 3 are free"
    assert numbers.text == "Resources cannot ...: it asks for 5 CPUs, and 3 are free"
    odd = Refusal(Reason.SMT, "SMT Alignment Error: ...", facts={"requested": 3, "cpus_per_core": 2})
    assert in_plain_words(odd) == "it asks for 3 CPUs, and with full-pcpus-only whole cores are given: multiples of 2"


def test_each_cpu_of_a_node_is_counted_once() -> None:
    """Exclusive, shared, reserved and free of a node; under strict reservation the pool lacks the reserved ones."""
    node = a_node()
    first, second = usage(admitted(node, manifest("db", container(cpu="2", memory="256Mi"))), node)
    assert [str(each) for each in (first.exclusive, first.shared, first.reserved, first.free)] == [
        "1-2",
        "0,3",
        "0",
        "3",
    ]
    assert [str(each) for each in (second.exclusive, second.shared, second.free)] == ["", "4-7", "4-7"]
    memory = first.memory["memory"]
    assert (memory.total, memory.system, memory.granted, memory.free) == (1 << 30, 100 << 20, 256 << 20, 668 << 20)
    strict = a_node({**SETTINGS, "cpuManagerPolicyOptions": {"strict-cpu-reservation": "true"}})
    alone = usage(strict.start(), strict)[0]
    assert (str(alone.shared), str(alone.free)) == ("1-3", "1-3")


@pytest.mark.parametrize(
    ("amount", "shown"),
    [
        (0, "0"),
        (999, "999"),
        (1024, "1Ki"),
        (1536, "1.5Ki"),
        (1_048_575, "1024Ki"),
        (5 << 30, "5Gi"),
        (3 << 60, "3072Pi"),
    ],
)
def test_sizes_for_people(amount: int, shown: str) -> None:
    """Three digits and a binary suffix."""
    assert show.size(amount) == shown


def test_names_from_outside_are_not_markup() -> None:
    """A pod called [red] is shown as that."""
    node = a_node()
    view = view_of(admitted(node, manifest("db", container(cpu="1"))), node)
    sneaky = NodeView(tuple(replace(row, why="[bold]x[/]", state="not aligned") for row in view.rows))
    assert "  [bold]x[/]\n" in text_of(sneaky)
