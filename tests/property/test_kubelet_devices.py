"""Whatever the kubelet says of its devices, and in whatever order: no rule breaks, and its last word counts."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from agent.core.accounting import invariants
from agent.core.admission.node import Node
from agent.core.devices.kubelet import Given, Offered, apart, explained, handed_over, merged, places
from agent.core.machines.synthetic import parse_synthetic
from agent.model.devices import DeviceInventory
from agent.model.idset import NodeSet
from agent.model.ledgerjson import ledger_from_json, ledger_to_json
from agent.model.outcome import Admitted, Reason, Refusal
from agent.model.podspec import pod_from
from agent.model.rules import CpuRules, Policy, Rules, TopologyRules
from agent.node.device_tracker import DeviceTracker, reported_before
from tests.examples import examples
from tests.world.manifests import container, manifest

MACHINE = parse_synthetic("2 sockets x 1 node x 4 cores x 1 thread")
PODS = {name: pod_from(manifest(name, container("a", "1"), container("b", "1"))) for name in ("p", "q", "r")}

DEVICES = st.builds(
    Offered,
    st.sampled_from(["v.com/gpu", "v.com/nic", "numalign.io/own"]),
    st.sampled_from(["0", "1", "2", "0000:01:00.0"]),
    st.sampled_from([NodeSet(), NodeSet.of(0), NodeSet.of(1), NodeSet.of(0, 1), NodeSet.of(9)]),
)
GIVEN = st.dictionaries(st.sampled_from(["a", "b", "ghost"]), st.lists(DEVICES, max_size=4).map(tuple), max_size=3)
WORDS = st.lists(st.tuples(st.sampled_from(sorted(PODS)), GIVEN), max_size=8)


@settings(max_examples=examples(150), deadline=None)
@given(WORDS, st.sampled_from(list(Policy)))
def test_no_rule_breaks(words: list[tuple[str, Given]], policy: Policy) -> None:
    """Devices wander between pods and containers, repeat and contradict themselves: the ledger stays coherent."""
    plain = Node(MACHINE, Rules(TopologyRules(policy), CpuRules(reserved_count=1)), DeviceInventory())
    following, node, ledger = DeviceTracker(plain), plain, plain.start()
    for uid, told in words:
        following = following.with_given(uid, told)
        node = following.node(node)
        if uid in ledger.pods:
            ledger, again = following.late(node, ledger, uid, started=False)
            following, ledger = (
                (following.once_more(uid), node.release(ledger, uid)) if again else (following, ledger)
            )
        outcome = node.admit(handed_over(ledger, PODS[uid], told), PODS[uid])
        ledger = outcome.ledger if isinstance(outcome, Admitted) else node.release(outcome.ledger, uid)
        invariants.check(ledger, node, earlier=tuple(ledger.pods))
        assert ledger_from_json(ledger_to_json(ledger)) == ledger
        names = {each.name for each in PODS[uid].containers}
        mine = [each for name, by in told.items() if name in names for each in by]
        said = {(each.resource, each.id) for each in mine if isinstance(each, Offered)}
        held = ledger.devices.held.get(uid, {})
        has = {(resource, each) for by in held.values() for resource in by for each in by[resource]}
        assert uid not in ledger.pods or said <= has
        assert set(apart(ledger, node.inventory, MACHINE, uid)) <= set(places(ledger, node.inventory, uid)) <= names
        refusal = explained(Refusal(Reason.TOPOLOGY, "no"), ledger, node.inventory, PODS[uid])
        assert refusal.message.startswith("no")
    assert {each.resource for each in reported_before(ledger, plain)} <= node.inventory.reported


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.lists(DEVICES, max_size=6), max_size=4))
def test_listings_are_merged_without_doubles(listings: list[list[Offered]]) -> None:
    """Each device once, in order, with the nodes of the last listing that has it."""
    found = merged(listings)
    keys = [(each.resource, each.id) for each in found]
    assert keys == sorted(set(keys))
    for each in found:
        last = [other for listing in listings for other in listing if other[:2] == each[:2]][-1]
        assert last == each
