"""Memory that is to be bound against what its NUMA nodes really have (safety.md S7)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from agent.core.admission.node import Node
from agent.core.admission.pressure import MemoryShortage, Pressure, bound, judged, shortage, still_unbound
from agent.core.machines.synthetic import parse_synthetic
from agent.core.memory.confined import UNBOUND
from agent.model.devices import DeviceInventory
from agent.model.idset import CpuSet, NodeSet
from agent.model.ledger import Block, Confinement, CpuBooks, Ledger, MemoryBooks, PodRecord
from agent.model.outcome import Admitted, Reason, Refused
from agent.model.pod import Pod
from agent.model.podspec import pod_from
from agent.model.rules import MemoryRules, OnMemoryShortage, Rules
from tests.world.manifests import container, manifest

STATIC = Rules(memory=MemoryRules(static=True, reserved={0: {"memory": 1 << 20}}))
Grants = Mapping[str, tuple[str, int]]
"""Pod uid -> (nodes, bytes)."""


def pod(uid: str) -> Pod:
    """A pod with one container."""
    return pod_from(manifest(uid, container(cpu="", memory="")))


def ledger(grants: Grants) -> Ledger:
    """A ledger of pods with one block each."""
    blocks = {
        uid: {
            "app": tuple(
                Block(*each, NodeSet.parse(nodes)) for each in (("hugepages-2Mi", 1 << 40), ("memory", size))
            )
        }
        for uid, (nodes, size) in grants.items()
    }
    pods = {uid: PodRecord(pod(uid), "none", "container", aligned={"app": True}) for uid in grants}
    return Ledger("m", CpuBooks(CpuSet()), memory=MemoryBooks(blocks=blocks), pods=pods)


def short(grants: Grants, room: Mapping[int, int], touched: Mapping[str, Mapping[int, int]] | None = None) -> str:
    """The nodes that are short when pod "new" is in, "" for none."""
    found = shortage(ledger(grants), "new", STATIC, Pressure(room, touched or {}))
    return str(found.nodes) if found else ""


def test_s7_a_grant_fits_up_to_the_last_byte() -> None:
    """As many bytes as can be had fit, one more does not; huge pages have a pool of their own."""
    assert short({"new": ("0", 10)}, {0: 10, 1: 0}) == ""
    assert short({"new": ("0", 11)}, {0: 10, 1: 99}) == "0"
    assert short({"new": ("0-1", 11)}, {0: 10, 1: 1}) == "", "a group gives together"


def test_s7_what_others_have_touched_counts_once_and_what_they_may_still_touch_counts() -> None:
    """8 of 10 bytes touched are gone from the room already; the other 2 are promised, and only those."""
    grants = {"old": ("0", 10), "new": ("0", 10)}
    assert short(grants, {0: 12}, {"old": {0: 8}}) == ""
    assert short(grants, {0: 11}, {"old": {0: 8}}) == "0"
    assert short(grants, {0: 10}, {"old": {0: 50}}) == "", "more than its grant leaves nothing, never less"
    assert short(grants, {0: 19}) == "0", "two pods that start together do not both count on the same bytes"


def test_s7_a_group_that_overlaps_is_looked_at_as_a_whole() -> None:
    """A pod of nodes 0 and 1 takes from node 0 when it must: both together must fit; node 2 does not matter."""
    grants = {"old": ("0-1", 10), "far": ("2", 99), "new": ("0", 5)}
    assert short(grants, {0: 5, 1: 10, 2: 0}) == ""
    assert short(grants, {0: 5, 1: 9, 2: 0}) == "0-1"


def test_s7_only_bound_memory_counts() -> None:
    """Not an unbound pod's, nor under memory policy None; a confined pod's limit does, and a pod's own pool."""
    one = ledger({"new": ("0", 5)})
    record = one.pods["new"]
    assert list(bound(one, record, STATIC)) == [(NodeSet.of(0), 5)]
    assert list(bound(one, replace(record, bind_memory=False), STATIC)) == []
    assert list(bound(one, record, Rules())) == []
    pool = replace(one, memory=replace(one.memory, pools={"new": (Block("memory", 7, NodeSet.of(1)),)}))
    assert list(bound(pool, record, STATIC)) == [(NodeSet.of(1), 7)]
    confined = {"new": Confinement(NodeSet.of(0, 1), (), memory=True, limit=((0, 3), (1, 4)))}
    assert list(bound(replace(one, cpus=replace(one.cpus, confined=confined)), record, Rules())) == [
        (NodeSet.of(0, 1), 7)
    ]


@given(
    grants=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 40), st.integers(0, 60)), min_size=1, max_size=6),
    outside=st.lists(st.integers(0, 100), min_size=3, max_size=3),
)
def test_s7_pods_bound_to_one_node_each_fit_exactly_if_the_last_byte_of_all_does(
    grants: list[tuple[int, int, int]], outside: list[int]
) -> None:
    """Whatever was touched so far, it fits if and only if outsiders and full grants fit the newcomer's node."""
    touched = {f"p{place}": {node: min(size, held)} for place, (node, size, held) in enumerate(grants[1:])}
    room = {node: 100 - outside[node] - sum(each.get(node, 0) for each in touched.values()) for node in range(3)}
    pods = {f"p{place}": (str(node), size) for place, (node, size, _) in enumerate(grants[1:])}
    mine, size, _ = grants[0]
    fits = outside[mine] + size + sum(each for node, each, _ in grants[1:] if node == mine) <= 100
    assert short({**pods, "new": (str(mine), size)}, room, touched) == ("" if fits else str(mine))


def managers(choice: OnMemoryShortage) -> Node:
    """Managers of two nodes under a choice."""
    machine = parse_synthetic("2 sockets x 1 node x 4 cores x 1 thread")
    return Node(machine, replace(STATIC, on_memory_shortage=choice), DeviceInventory())


def test_s7_the_choice_decides_what_becomes_of_it() -> None:
    """Open changes nothing; widen leaves unbound and says why; refuse refuses, but never a pod that ran before."""
    before, after, full = ledger({}), ledger({"new": ("0", 5)}), Pressure({0: 4})
    outcome = Admitted(after)
    assert judged(managers(OnMemoryShortage.OPEN), before, outcome, pod("new"), full) is outcome
    refuse = managers(OnMemoryShortage.REFUSE)
    assert judged(refuse, before, outcome, pod("new"), Pressure({0: 5})) is outcome
    assert judged(refuse, after, outcome, pod("new"), full) is outcome, "who is in stays in"
    refused = judged(refuse, before, outcome, pod("new"), full)
    assert isinstance(refused, Refused)
    assert (refused.ledger, refused.refusal.reason) == (before, Reason.MEMORY)
    assert refused.refusal.facts == {"nodes": "0", "needed": 5, "available": 4}
    assert refused.refusal.message == str(MemoryShortage(NodeSet.of(0), 5, 4))
    widened = judged(managers(OnMemoryShortage.WIDEN), before, outcome, pod("new"), full)
    assert widened == judged(refuse, before, outcome, pod("new"), full, ran=True)
    record = widened.ledger.pods["new"]
    assert (widened.ledger.memory, record.bind_memory, record.aligned) == (after.memory, False, {"app": False})
    assert record.why == {"app": f"{UNBOUND}: {refused.refusal.message}"}


def test_s7_who_had_no_memory_of_its_own_is_not_told_that_it_is_unbound() -> None:
    """A sidecar is no less aligned because its neighbour is left unbound. Of a confined pod all lose their nodes.

    Else a pod is told of a container as not aligned that is, or of none though its memory may lie anywhere.
    """
    one, full = ledger({"new": ("0", 5)}), Pressure({0: 4})
    both = pod_from(manifest("new", container(cpu="", memory=""), container("side", cpu="", memory="")))
    one = replace(one, pods={"new": PodRecord(both, "none", "container", aligned={"app": True, "side": True})})
    wide = managers(OnMemoryShortage.WIDEN)
    told = judged(wide, ledger({}), Admitted(one), both, full).ledger.pods["new"]
    assert (told.aligned, set(told.why)) == ({"app": False, "side": True}, {"app"})
    confined = {"new": Confinement(NodeSet.of(0), (), memory=True, limit=((0, 5),))}
    wish = replace(one, memory=MemoryBooks(), cpus=replace(one.cpus, confined=confined))
    for node in (wide, Node(wide.machine, Rules(), DeviceInventory())):
        told = judged(node, ledger({}), Admitted(wish), both, full).ledger.pods["new"]
        assert (told.aligned, set(told.why)) == ({"app": False, "side": False}, {"app", "side"})


def test_s7_a_record_judged_anew_keeps_saying_that_it_is_unbound() -> None:
    """After a resize, beside what is said anew, and without what was said before."""
    record = replace(ledger({"new": ("0", 5)}).pods["new"], why={"app": f"far; {UNBOUND}: full", "": UNBOUND})
    again = still_unbound(record, replace(record, why={}, aligned={"app": True}))
    assert (again.why, again.aligned) == ({"app": f"{UNBOUND}: full"}, {"app": False})
    assert still_unbound(record, replace(record, why={"app": "near"})).why == {"app": f"near; {UNBOUND}: full"}
