"""The node's summary: what it costs, who makes it, and what a reader does with one that is damaged or newer."""

from __future__ import annotations

import base64
import json
import random
import zlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.app.cluster.summary import SummaryText, says_the_same
from agent.core.request.exempt import Exemptions
from agent.errors import SummaryError
from agent.forecast.dry_run import DryRun
from agent.forecast.nameless import nameless
from agent.forecast.node_summary import LARGEST, TOO_LARGE, VERSION, NodeSummary, decode, encode, summarize
from agent.kube.topology_crd import SUMMARY, _difference, mark_of, topology_object
from agent.model.idset import CpuSet
from agent.model.pod import Container, ContainerKind, Pod, Qos
from agent.node.tracked_pod import Switches
from agent.settings import parse
from tests.examples import examples
from tests.unit.test_pcie import MACHINE, SWITCHES, function
from tests.world.nodes import managers_of
from tests.world.pods import container, pod

MI = 2**20


def full(machine: str, grants: int) -> DryRun:
    """A node with so many containers that hold CPUs and memory of their own, of odd sizes; some have sidecars."""
    kept = {"reservedMemory": [{"numaNode": 0, "limits": {"memory": "512Mi"}}], "kubeReserved": {"memory": "412Mi"}}
    config = {"memoryManagerPolicy": "Static", "reservedSystemCPUs": "0", "topologyManagerPolicy": "restricted"}
    run = DryRun(managers_of(machine, {**config, **kept}))
    rnd, number = random.Random(1), 0
    while sum(map(len, run.ledger.cpus.assigned.values())) < grants:
        containers = []
        for name in ("main", "side")[: 1 + (number % 3 == 0)]:
            amounts = {"cpu": 1000 * rnd.choice((1, 1, 1, 2)), "memory": 1000 * MI * rnd.randrange(200, 2000)}
            containers.append(Container(name, requests=amounts, limits=amounts))
        number += 1
        run.see(Pod(f"{number}", f"app-{number}", "shop", tuple(containers), Qos.GUARANTEED, created=number), number)
    return run


@pytest.mark.parametrize(
    ("machine", "grants", "most"),
    [
        ("2 sockets x 4 nodes x 8 cores x 2 threads, 64G per node", 60, 4096),
        ("2 sockets x 8 nodes x 16 cores x 2 threads, 64G per node", 250, LARGEST),
    ],
)
def test_what_a_summary_costs(machine: str, grants: int, most: int) -> None:
    """4 kB for 128 CPUs and 60 grants, 24 kB for 512 CPUs and 250: an API server with 5,000 nodes keeps them all."""
    text = encode(summarize(full(machine, grants).state, began=0.0, enforcing=True))
    assert 1000 < len(text) <= most


def maker(publish: bool = True) -> tuple[SummaryText, dict[str, Any]]:  # noqa: FBT001, FBT002 - what is tried
    """Whoever makes summaries, with settings and clocks that the test turns."""
    world: dict[str, Any] = {"settings": parse({"fleet": {"publish": publish}})[0], "now": 1000.0}
    made = SummaryText(lambda: world["settings"], lambda: world["now"], lambda: 5e8 + world["now"])
    return made, world


SMALL = "1 socket x 2 nodes x 4 cores, 4G per node"


def test_a_hybrid_machine_is_read_as_it_is() -> None:
    """A node whose cores are of two kinds is not left out of `simulate --cluster`, and says which are which."""
    run = DryRun(managers_of(f"{SMALL}, efficiency 4-7", {"reservedSystemCPUs": "0"}))
    read = decode(encode(summarize(run.state, began=0.0, enforcing=True)))
    assert read.machine.cpus == run.node.machine.cpus
    assert {cpu.kind for cpu in read.machine.cpus} == {"performance", "efficiency"}


def test_nothing_is_made_unless_it_is_asked_for() -> None:
    """The default costs nothing: no summary, also after it was switched off again."""
    made, world = maker(publish=False)
    run = DryRun(managers_of(SMALL, {}))
    assert made.of(run.state, True) == ""  # noqa: FBT003 - it enforces
    world["settings"] = parse({"fleet": {"publish": True}})[0]
    assert made.of(run.state, True)  # noqa: FBT003 - it enforces
    world["settings"] = parse({})[0]
    assert made.of(run.state, True) == ""  # noqa: FBT003 - it enforces


def test_a_generation_for_each_change_and_none_without() -> None:
    """What has not changed is the very same text an hour later; a new grant is a higher generation, and says when."""
    made, world = maker()
    run = DryRun(managers_of(SMALL, {"reservedSystemCPUs": "0"}))
    first = made.of(run.state, True)  # noqa: FBT003 - it enforces
    world["now"] += 3600
    assert made.of(run.state, True) == first  # noqa: FBT003 - it enforces
    amounts = {"cpu": 2000, "memory": 1000 * MI}
    run.see(Pod("u", "p", "n", (Container("c", requests=amounts, limits=amounts),), Qos.GUARANTEED), 1.0)
    before, after = decode(first), decode(made.of(run.state, True))  # noqa: FBT003 - it enforces
    assert after.generation > before.generation
    assert (before.changed, after.changed) == (5e8 + 1000, 5e8 + 4600)
    assert (before.held, after.held) == ({}, {"cpu": 2000, "memory": 1000 * MI, "pods": 1000})
    assert decode(made.of(run.state, False)).enforcing is False  # noqa: FBT003 - it only observes


def test_a_restart_changes_nothing_that_is_stored() -> None:
    """Another life of the agent numbers anew what it tells: the object keeps the text that says the same."""
    run = DryRun(managers_of(SMALL, {"reservedSystemCPUs": "0"}))
    before = maker()[0].of(run.state, True)  # noqa: FBT003 - it enforces
    made, world = maker()
    world["now"] += 60
    after = made.of(run.state, True)  # noqa: FBT003 - it enforces
    assert before != after
    assert says_the_same(before, after)
    run.see(Pod("u", "p", "n", (Container("c"),), Qos.BEST_EFFORT), 1.0)
    assert not says_the_same(before, made.of(run.state, True))  # noqa: FBT003 - it enforces
    for stored in ("", "x", before[:-9], packed({**unpacked(before), "version": VERSION + 1}), packed([])):
        assert not says_the_same(stored, after), "whatever stands there"


def test_who_waits_still_is_no_change_after_a_restart() -> None:
    """The agent knows since when only of its own life: a text with another moment would be written again."""
    settings = {"reservedSystemCPUs": "0", "topologyManagerPolicy": "single-numa-node", "onMisalignment": "wait"}
    amounts = {"cpu": 4000, "memory": 1000 * MI}
    texts = []
    for since in (1.0, 61.0):
        run = DryRun(managers_of(SMALL, settings))
        for name in ("first", "second"):
            run.see(Pod(name, name, "n", (Container("c", requests=amounts, limits=amounts),), Qos.GUARANTEED), since)
        texts.append(maker()[0].of(run.state, True))  # noqa: FBT003 - it enforces
    before, after = (decode(text).waiting for text in texts)
    assert [each.pod.name for each in before] == [each.pod.name for each in after] != []
    assert before[0].since != after[0].since
    assert says_the_same(*texts)


def test_one_that_is_too_large_is_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node whose summary does not fit is left out, and whoever reads it learns why."""
    monkeypatch.setattr("agent.forecast.node_summary.LARGEST", 10)
    made, _ = maker()
    text = made.of(DryRun(managers_of(SMALL, {})).state, True)  # noqa: FBT003 - it enforces
    assert text.startswith(TOO_LARGE)
    with pytest.raises(SummaryError, match=r"is not published: it is too large: [0-9]+ characters, 10 at most"):
        decode(text)


def packed(body: object) -> str:
    """Any JSON as the text of a summary."""
    return base64.b64encode(zlib.compress(json.dumps(body).encode())).decode()


def unpacked(text: str) -> dict[str, Any]:
    """The JSON in the text of a summary, as the docs say that anybody may read it."""
    return dict(json.loads(zlib.decompress(base64.b64decode(text))))


def with_a_node(body: dict[str, Any], number: int) -> dict[str, Any]:
    """The JSON of a summary whose machine has one more node, without CPUs: a set that holds it is that many bits."""
    machine = body["machine"]
    return {**body, "machine": {**machine, "nodes": [*machine["nodes"], {"id": number, "cpus": "", "memory": 0}]}}


GOOD = encode(summarize(full(SMALL, 3).state, began=0.0, enforcing=True))


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda _: "", "is damaged"),
        (lambda text: text[:-9], "is damaged"),
        (lambda text: text[:40] + "é" + text[40:], "is damaged"),
        (lambda _: packed([1]), "must be a mapping"),
        (lambda _: base64.b64encode(zlib.compress(b" " * 2**26)).decode(), "is damaged, or has more than"),
        (lambda text: packed({**unpacked(text), "version": VERSION + 1}), "of version 2, .* use a newer numalign"),
        (lambda text: packed({**unpacked(text), "moons": 3}), "moons: is not known to this version"),
        (lambda text: packed({**unpacked(text), "ledger": None}), "ledger"),
        (lambda text: packed({**unpacked(text), "generation": "x"}), "generation: must be a whole number"),
        (lambda text: packed(with_a_node(unpacked(text), 2**40)), "has a NUMA node that is not between 0 and"),
    ],
    ids=["empty", "cut", "letter", "list", "bomb", "newer", "unknown", "missing", "wrong kind", "far node"],
)
def test_a_summary_that_cannot_be_read_says_why(damage: Callable[[str], str], told: str) -> None:
    """Whatever stands in the annotation ends in one sentence: that node is left out, and the others are read."""
    with pytest.raises(SummaryError, match=told):
        decode(damage(GOOD))


ODD: st.SearchStrategy[Any] = st.sampled_from(
    [None, True, -1, 2**90, 1e300, "", "0-99999", "x" * 9, [], [[1]], {}, {"a": {}}]
)


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(st.integers(0, 50), min_size=1, max_size=6), ODD)
def test_no_odd_value_does_more_than_leave_the_node_out(path: list[int], value: object) -> None:
    """Any one value of a summary replaced by another: it is read, or refused in a sentence of ours."""
    body: Any = unpacked(GOOD)
    here = body
    for number, step in enumerate(path):
        keys = sorted(here) if isinstance(here, dict) else list(range(len(here)))
        if not keys:
            return
        key = keys[step % len(keys)]
        if number == len(path) - 1 or not isinstance(here[key], dict | list):
            here[key] = value
            break
        here = here[key]
    try:
        found = decode(packed(body))
    except SummaryError as error:
        assert str(error)  # noqa: PT017 - either is right
    else:
        assert isinstance(found, NodeSummary)


def test_the_object_carries_it_and_loses_it() -> None:
    """It travels in the patch that is made anyway, and goes when the setting is switched off."""
    run = DryRun(managers_of(SMALL, {}))

    def body(summary: str) -> dict[str, Any]:
        node = run.node
        return topology_object(
            node.machine, run.ledger, node.rules, reserved=node.reserved, node="n", node_uid="u", pods=(),
            summary=summary,
        )  # fmt: skip

    assert SUMMARY not in body("")["metadata"]["annotations"]
    for before, after in (("", "new"), ("old", "new"), ("old", "")):
        patch = _difference(body(before), body(after))
        assert patch["metadata"] == {"annotations": {SUMMARY: after or None}}
        assert patch.keys() == {"metadata", "attributes"}
        marks = [each["value"] for each in patch["attributes"] if each["name"] == SUMMARY]
        assert marks == ([mark_of(after)] if after else [])
    assert _difference(body("old"), body("old")) == {}


@pytest.mark.parametrize("annotation", ["numalign.io/exclusive", "numalign.io/mixed"])
@pytest.mark.parametrize(("value", "told"), [
    ("auto", "auto"), ("auto,-side", "auto,-1"), ("side, main", "0,1"), ("auto,-secret", "auto,-2"),
    ("main,secret,other", "0,2"), ("no wish", "?"), ("main," * 200 + "side", "?"),
])  # fmt: skip
def test_a_wish_names_containers_by_number_only(annotation: str, value: str, told: str) -> None:
    """Words that are no container's name are left out, and the wish still means the same to who reads it."""
    run = DryRun(managers_of(SMALL, {"exclusiveContainers": "auto"}), Switches(most_waiting=1))
    six = {"cpu": 6000, "memory": 1000 * MI}
    run.see(Pod("0", "first", "shop", (Container("app", requests=six, limits=six),), Qos.GUARANTEED), 0.0)
    notes = {annotation: value, "numalign.io/on-misalignment": "wait"}
    containers = (Container("main", requests=six, limits=six), Container("side"))
    run.see(Pod("1", "p", "shop", containers, Qos.BURSTABLE, created=1.0, annotations=notes), 1.0)
    (waiting,) = summarize(run.state, began=0.0, enforcing=True).waiting
    assert waiting.pod.annotations[annotation] == told


@pytest.mark.parametrize(("how", "nic"), [("tell", "0000:03:00.0"), ("choose", "0000:07:00.0")])
def test_a_device_that_is_chosen_by_its_place_is_the_nodes_own_choice(how: str, nic: str) -> None:
    """`pcieLocality: choose` goes by bridges: a summary has the PCI functions then, and only then."""
    gpu = function("0000:07:00.1", "0000:06:00.0", kind="030200")
    devices = [
        {"resource": f"example.com/{name}", "class": number} for name, number in (("gpu", "03"), ("nic", "02"))
    ]
    settings = {"devices": devices, "kubeReserved": {"cpu": "1"}, "pcieLocality": how}
    run = DryRun(managers_of(replace(MACHINE, devices=(*SWITCHES, gpu)), settings))
    read = decode(encode(summarize(run.state, began=0.0, enforcing=True)))
    assert bool(read.machine.devices) is (how == "choose")
    newcomer = pod("p", container("c", cpus=2, limits={"example.com/gpu": 1, "example.com/nic": 1}))
    for each in (run, read.begin()):
        each.see(newcomer, 1.0)
        assert each.ledger.grant("p", "c").devices["example.com/nic"] == (nic,)


def test_what_init_containers_left_is_nobodys() -> None:
    """A pod's first containers leave CPUs, memory and devices to it alone: no book tells a reader its uid."""
    two = {"cpu": 2000, "memory": 1000 * MI}
    first, main = (Container(name, kind, requests=two, limits=two) for name, kind in
                   (("first", ContainerKind.INIT), ("main", ContainerKind.APP)))  # fmt: skip
    kept = {
        "reservedMemory": [{"numaNode": 0, "limits": {"memory": "512Mi"}}],
        "kubeReserved": {"memory": "412Mi"},
        "compatibility": "kubelet",
    }  # only the kubelet's own arithmetic has an account of the memory
    run = DryRun(managers_of(SMALL, {"memoryManagerPolicy": "Static", "reservedSystemCPUs": "0", **kept}))
    run.see(Pod("its-own-uid", "p", "shop", (first, main), Qos.GUARANTEED), 1.0)
    held = (run.ledger.cpus, run.ledger.memory, run.ledger.devices)
    assert [each.reusable for each in held] == [None] * 3, "it is of one admission, which has ended"
    books = replace(run.ledger.cpus, reusable=("its-own-uid", CpuSet.of(7)))
    ledger = nameless(replace(run.ledger, cpus=books), digests=False)
    assert (ledger.cpus.reusable, ledger.memory.reusable, ledger.devices.reusable) == (None, None, None)
    read = decode(encode(summarize(run.state, began=0.0, enforcing=True)))
    assert list(read.ledger.pods) == ["0"]
    assert "its-own-uid" not in json.dumps(unpacked(encode(summarize(run.state, began=0.0, enforcing=True))))


def test_who_waits_is_left_alone_by_no_reader() -> None:
    """A pod that includedPods names is known to the node by its name, and stands in line without one."""
    alone = Exemptions(("shop",), ("shop/p*",))
    run = DryRun(managers_of(SMALL, {"topologyManagerPolicy": "single-numa-node"}), exempt=alone.why)
    three = {"cpu": 3000, "memory": 1000 * MI}
    for number in range(3):
        notes = {"numalign.io/on-misalignment": "wait"}
        containers = (Container("c", requests=three, limits=three),)
        each = Pod(f"{number}", f"p{number}", "shop", containers, Qos.GUARANTEED, created=number, annotations=notes)
        run.see(each, number + 1.0)
    assert run.waits("2")
    made = summarize(run.state, began=0.0, enforcing=True, excluded=alone.namespaces, included=alone.included)
    there = decode(encode(made)).named(["shop"]).begin()
    assert there.waits("w0")
    there.end(["0"], 9.0)
    assert there.runs("w0"), "it comes in when there is room, before anybody new"
