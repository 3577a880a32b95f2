"""What DRA says, read: the ledger's texts, and documents of any shape."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from agent.core.devices.claims import ClaimFollower, claimed, claims_of, noted
from agent.core.machines.synthetic import parse_synthetic
from agent.kube import claims as read
from agent.kube.objects.read_fields import brief
from agent.kube.pod_report import MAX_MESSAGE
from agent.model.claims import MOST_CLAIMS, MOST_DEVICES, ClaimDevice, from_text, to_text
from agent.model.idset import CpuSet, NodeSet
from agent.model.ledgerjson import ledger_from_json, ledger_to_json
from agent.model.rules import Rules
from tests.examples import examples
from tests.flow.claims import claim, device, result, slices, using
from tests.world.documents import anything
from tests.world.nodes import managers_of
from tests.world.pods import container, pod

MACHINE = parse_synthetic("2 nodes x 4 cores, 16G per node, gpu on 1")
WORD = st.text(st.characters(codec="utf-8", exclude_characters="\t"), min_size=1, max_size=20)
NODES = st.none() | st.sets(st.integers(0, 70), min_size=1, max_size=3).map(NodeSet.from_ids)
DEVICES = st.builds(ClaimDevice, WORD, WORD, WORD, WORD, NODES, WORD, WORD, WORD)


@given(DEVICES)
def test_a_text_of_the_ledger_is_read_back(of: ClaimDevice) -> None:
    """Whatever a device is called, it is the same after a restart."""
    assert from_text(to_text(of)) == of


@given(st.text() | DEVICES.map(to_text).map(lambda text: text.replace("\t", "\t\t", 1)))
def test_any_other_text_is_nobody(text: str) -> None:
    """A text of another version is left out; what is taken is written the same again."""
    found = from_text(text)
    assert found is None or from_text(to_text(found)) == found


def _spoiled(whole: Any, at: list[int], by: Any) -> Any:  # noqa: ANN401 - JSON
    """A document in which one part, found by numbers, is another."""
    if not at or not isinstance(whole, dict | list) or not whole:
        return by
    keys = list(whole) if isinstance(whole, dict) else range(len(whole))
    key = keys[at[0] % len(keys)]
    copy = dict(whole) if isinstance(whole, dict) else list(whole)
    copy[key] = _spoiled(whole[key], at[1:], by)
    return copy


def _pod() -> dict[str, Any]:
    body = using("c", "d")
    body["status"] = {
        "resourceClaimStatuses": [{"name": "d", "resourceClaimName": "made"}],
        "extendedResourceClaimStatus": {
            "resourceClaimName": "own", "requestMappings": [{"containerName": "app", "requestName": "r"}]
        },
    }  # fmt: skip
    return body


@settings(max_examples=examples(400), deadline=None)
@given(st.sampled_from(["pod", "claim", "slices"]), st.lists(st.integers(0, 9), max_size=10), anything)
def test_documents_of_any_shape_are_survived(which: str, at: list[int], by: object) -> None:
    """Pods, claims and slices in which any part is anything: nothing raises, what is taken is bounded."""
    whole: dict[str, Any] = {
        "pod": _pod(),
        "claim": claim(result("d1"), result("d0", "q", adminAccess=True)),
        "slices": [slices(device("d0", 0), device("d1", 0, 1), device("d2", pciBusID="0000:01:00.0"))],
    }
    whole[which] = _spoiled(whole[which], at, by)
    uses = read.uses_of(brief(whole["pod"]) if isinstance(whole["pod"], dict) else whole["pod"])
    results = read.allocated(whole["claim"]) or ()
    pools = read.published(whole["slices"], ["gpu.example.com/socket"])
    found = read.located(read.chosen(uses, {use.claim: results for use in uses}), pools, MACHINE)
    node = managers_of(MACHINE, {"dra": {"enabled": True}, "kubeReserved": {"cpu": "1"}})
    newcomer = pod("p", container("app", cpus=1))
    ledger = claimed(node.start(), newcomer, found)
    outcome = node.admit(ledger, newcomer)
    assert ledger_from_json(json.loads(json.dumps(ledger_to_json(outcome.ledger)))) == outcome.ledger
    for each in claims_of(outcome.ledger, "p").get("app", ()):
        assert each.nodes is None or each.nodes.issubset(MACHINE.node_set)
    assert len(results) <= MOST_DEVICES


def test_more_than_is_followed_is_left_out() -> None:
    """A pod of a thousand claims and devices costs the ledger and the annotation a bounded part."""
    body = using(*(f"c{number}" for number in range(1000)))
    uses = read.uses_of(brief(body))
    assert len(uses) == MOST_CLAIMS
    results = read.allocated(claim(*(result(f"d{number}") for number in range(1000)))) or ()
    found = read.chosen(uses, {use.claim: results for use in uses})
    newcomer = pod("p", container("app", cpus=1))
    ledger = claimed(managers_of(MACHINE).start(), newcomer, found)
    held = ledger.others["claims"]["p"]["app"]
    assert (len(held), sum(map(len, held)) < 4096) == (MOST_DEVICES, True)
    assert len(json.dumps(noted(claims_of(ledger, "p")["app"]))) < 2 * MAX_MESSAGE


@settings(max_examples=examples(60))
@given(st.lists(st.integers(1, 400), min_size=5, max_size=5), st.sets(st.integers(0, 1023), max_size=300))
def test_the_longest_names_are_read_back(sizes: list[int], nodes: set[int]) -> None:
    """A saved ledger is never unreadable for a claim's names: what has no place in it is left out."""
    claim_, driver, pool, name, why = ("x" * size for size in sizes)
    newcomer = pod("p", container("app", cpus=1))
    of = ClaimDevice(claim_, driver, pool, name, NodeSet.from_ids(nodes) or None, why)
    ledger = claimed(managers_of(MACHINE).start(), newcomer, {"app": (of,)})
    assert ledger_from_json(json.loads(json.dumps(ledger_to_json(ledger)))) == ledger
    short = all(size <= 63 for size in sizes) and len(str(of.nodes)) < 200
    assert not short or claims_of(ledger, "p")["app"] == (of,)


def test_containers_that_a_pod_lacks_follow_nothing() -> None:
    """What is told of a container that is not the pod's stands in no ledger."""
    newcomer = pod("p", container("app", cpus=1))
    start = managers_of(MACHINE).start()
    assert claimed(start, newcomer, {"ghost": (ClaimDevice("c", "d", "p", "x", NodeSet.of(1)),)}) is start


def test_a_root_bus_says_where_a_device_is() -> None:
    """`pcieRoot` alone: the functions on that root bus agree on a node; one that nobody lies on says nothing."""
    (function,) = MACHINE.devices
    root = f"pci{function.address[:7]}"
    pools = read.published([slices(device("d0", pcieRoot=root), device("d1", pcieRoot="pci0000:ee"))])
    found = read.located(read.chosen(read.uses_of(using("c")), {"c": read.allocated(
        claim(result("d0"), result("d1"))) or ()}), pools, MACHINE)["app"]  # fmt: skip
    assert [(each.nodes, each.why) for each in found] == [
        (function.numa_nodes, f"PCIe root {root}"), (None, "nothing says where PCIe root pci0000:ee is"),
    ]  # fmt: skip


def test_a_node_that_the_machine_lacks_gives_no_hint() -> None:
    """An attribute may be wrong: the device is told as unknown, with what the driver said."""
    pools = read.published([slices(device("d0", 9))])
    (found,) = read.located(
        read.chosen(read.uses_of(using("c")), {"c": read.allocated(claim(result("d0"))) or ()}), pools, MACHINE
    )["app"]
    assert (found.nodes, "names NUMA node 9, which this machine does not have" in found.why) == (None, True)


def test_a_device_on_a_node_that_went_gives_no_hint() -> None:
    """The ledger has what was known when the claim was looked up: a node offline since then refuses nobody."""
    newcomer = pod("p", container("app", cpus=1))
    node = managers_of(MACHINE, {"dra": {"enabled": True}, "topologyManagerPolicy": "single-numa-node"})
    for nodes, granted in ((NodeSet.of(1), NodeSet.of(1)), (NodeSet.of(9), NodeSet.of(0))):
        ledger = claimed(node.start(), newcomer, {"app": (ClaimDevice("c", "d", "p", "x", nodes),)})
        outcome = node.admit(ledger, newcomer)
        assert node.machine.nodes_of(outcome.ledger.grant("p", "app").cpus or CpuSet()) == granted


def test_a_release_forgets_the_claims() -> None:
    """What a pod followed goes with it, by the managers and by the provider alone."""
    newcomer = pod("p", container("app", cpus=1))
    node = managers_of(MACHINE, {"dra": {"enabled": True}})
    ledger = claimed(node.start(), newcomer, {"app": (ClaimDevice("c", "d", "p", "x", NodeSet.of(1)),)})
    assert "claims" not in node.release(ledger, "p").others
    assert "claims" not in ClaimFollower(MACHINE, Rules()).release(ledger, "p").others
