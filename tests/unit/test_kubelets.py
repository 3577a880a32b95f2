"""What the kubelets 1.34 to 1.38 answer otherwise, one small case for each rule (agent.core.kubelets)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.core.admission.empty_resources import as_the_kubelet_sees
from agent.core.cpus.packed import packed
from agent.core.cpus.topology import CpuTopology
from agent.core.kubelets import MENDED, kubelet_rules
from agent.core.request.amounts import exclusive_count
from agent.errors import SettingsError
from agent.model.hint import Hint
from agent.model.idset import CpuSet, NodeSet
from agent.model.machine import Machine
from agent.model.outcome import Refusal
from agent.model.pod import ContainerKind, Pod, Qos
from agent.model.podspec import pod_from
from agent.model.rules import Compatibility, Minor, Rules
from agent.settings import parse, rules_of
from tests.unit.cpu_machines import D2, UNEVEN, Node, container, machine, pod, shown, smt
from tests.unit.devices_cases import GPU, Rack, asking, gpus
from tests.unit.memory_cases import GIB, NO_HINT, Desk, even
from tests.world.pods import HUGE_2M
from tests.world.pods import container as wanting
from tests.world.pods import pod as whole_pod

KUBELET = Compatibility.KUBELET


def minors(*holding: Minor) -> pytest.MarkDecorator:
    """Every minor, and whether the rule holds in it."""
    return pytest.mark.parametrize(
        ("minor", "holds"), [(each, each in holding) for each in Minor], ids=[str(each) for each in Minor]
    )


def test_the_mended_answer_is_the_same_for_every_kubelet() -> None:
    """Under compatibility: fixed no rule of one kubelet alone holds."""
    assert {kubelet_rules(Rules(minor=minor)) for minor in Minor} == {MENDED}


@pytest.mark.parametrize(
    ("written", "mode", "minor"),
    [
        ("fixed", Compatibility.FIXED, Minor.V1_36),
        ("kubelet", KUBELET, Minor.V1_36),
        *((f"kubelet-{minor}", KUBELET, minor) for minor in Minor),
    ],
)
def test_a_setting_names_the_kubelet(written: str, mode: Compatibility, minor: Minor) -> None:
    """compatibility: kubelet-1.37 answers as kubelet 1.37; kubelet alone, where no Node was read, as 1.36."""
    settings, _ = parse({"compatibility": written, "reservedSystemCPUs": "0"})
    rules = rules_of(settings, D2)
    assert (rules.compatibility, rules.minor) == (mode, minor)


def test_a_kubelet_that_nobody_knows_is_refused() -> None:
    """compatibility: kubelet-1.99 is an error that names the key."""
    with pytest.raises(SettingsError, match=r"^compatibility: "):
        parse({"compatibility": "kubelet-1.99"})


@minors(Minor.V1_37, Minor.V1_38)
def test_a_pod_keeps_its_cores_from_1_37_on(minor: Minor, *, holds: bool) -> None:
    """D1: a pod that has its whole cores is admitted again without a look at what is free."""
    node = Node(D2, "0,6", minor=minor, full_pcpus_only=True)
    first = node.admit(pod("p", container("c", 6)))
    again = node.admit(pod("p", container("c", 6)))
    assert (again == first) is holds
    assert isinstance(again, Refusal) is not holds


@minors(Minor.V1_37, Minor.V1_38)
def test_distributing_stays_in_a_socket_from_1_37_on(minor: Minor, *, holds: bool) -> None:
    """With align-by-socket two nodes of one socket go before two that leave a better balance."""
    four = machine(*([(n // 2, None, [n * 2]), (n // 2, None, [n * 2 + 1])] for n in range(4)))
    node = Node(four, "7", minor=minor, distribute_across_numa=True, align_by_socket=True)
    assert node.admit(pod("p", container("c", 4))) == {"c": "0-3" if holds else "0-1,4-5"}


@minors(Minor.V1_37, Minor.V1_38)
def test_a_container_that_shares_asks_for_no_memory_from_1_37_on(minor: Minor, *, holds: bool) -> None:
    """D10: a container of a pod-level pod without a memory request of its own was refused without an affinity."""
    desk = Desk(even(2, 4 * GIB), KUBELET, pod_level=True, minor=minor)
    sharing = whole_pod("w", wanting("c"), whole={"cpu": 2, "memory": GIB})
    assert desk.hints(sharing, "c") == ("no preference" if holds else {})
    assert (desk.allocate(sharing, NO_HINT) is None) is holds
    assert desk.blocks(sharing, "c") is None


@minors(Minor.V1_34, Minor.V1_35)
def test_devices_name_nodes_without_any_up_to_1_35(minor: Minor, *, holds: bool) -> None:
    """A device on node 0 is offered with node 0 alone, and before 1.36 with both nodes too."""
    rack = Rack(gpus([[0]]), KUBELET, minor=minor)
    assert rack.hints(asking("p", 1)) == {GPU: "{0}p {0,1}n" if holds else "{0}p"}


@minors(Minor.V1_37, Minor.V1_38)
def test_empty_pod_level_resources_do_not_count_from_1_37_on(minor: Minor, *, holds: bool) -> None:
    """`resources: {}` made a static pod BestEffort; since 1.37 it is the class of its containers."""
    rules = Rules(compatibility=KUBELET, minor=minor)
    seen = as_the_kubelet_sees(empty(), rules)
    assert seen.qos is (Qos.GUARANTEED if holds else Qos.BEST_EFFORT)
    assert as_the_kubelet_sees(empty(), replace(rules, empty_resources_ignored=False)).qos is Qos.BEST_EFFORT
    assert as_the_kubelet_sees(empty(), replace(rules, compatibility=Compatibility.FIXED)).qos is Qos.BEST_EFFORT


def limited(*also: str) -> Pod:
    """A static pod with pod-level limits alone, or with the same as `also`; its container has the same limits."""
    amounts = {"cpu": "2", "memory": "64Mi"}
    resources: dict[str, object] = dict.fromkeys(("limits", *also), amounts)
    return pod_from({
        "metadata": {"name": "p", "annotations": {"kubernetes.io/config.source": "file"}},
        "spec": {"resources": resources, "containers": [{"name": "c", "resources": {"limits": amounts}}]},
    })  # fmt: skip


@minors(Minor.V1_37, Minor.V1_38)
def test_pod_level_limits_alone_make_a_static_pod_burstable_from_1_37_on(minor: Minor, *, holds: bool) -> None:
    """The kubelet fills in no pod-level requests since 1.37: the pod gets no CPUs of its own; gate off, as before."""
    rules = Rules(compatibility=KUBELET, minor=minor, pod_level_managers=True)
    seen = as_the_kubelet_sees(limited(), rules)
    assert seen.qos is (Qos.BURSTABLE if holds else Qos.GUARANTEED)
    assert exclusive_count(seen, seen.containers[0], rules) == (0 if holds else 2)
    assert as_the_kubelet_sees(limited(), replace(rules, requests_as_written=False)).qos is Qos.GUARANTEED
    assert as_the_kubelet_sees(limited(), replace(rules, compatibility=Compatibility.FIXED)).qos is Qos.GUARANTEED
    made = (limited("requests"), replace(limited(), static=False))
    assert [as_the_kubelet_sees(each, rules).qos for each in made] == [Qos.GUARANTEED] * 2
    assert as_the_kubelet_sees(limited(), rules, known=limited()).qos is Qos.GUARANTEED


def test_whose_class_the_api_server_says_keeps_it() -> None:
    """A pod that is not static, one that is known already, and one that asks for something are left as they are."""
    rules = Rules(compatibility=KUBELET, minor=Minor.V1_37)
    made = replace(empty(), static=False)
    asking_ = replace(empty(), requests={"cpu": 1000}, qos=Qos.BURSTABLE)
    assert [as_the_kubelet_sees(each, rules) for each in (made, asking_)] == [made, asking_]
    assert as_the_kubelet_sees(empty(), rules, known=empty()) == empty()
    known = as_the_kubelet_sees(empty(), rules)
    assert as_the_kubelet_sees(empty(), replace(rules, minor=Minor.V1_36), known=known) == known


def empty() -> Pod:
    """A static pod of a Guaranteed container with `spec.resources: {}`, as its manifest says."""
    amounts = {"cpu": "2", "memory": "64Mi"}
    spec = {"containers": [{"name": "c", "resources": {"limits": amounts}}], "resources": {}}
    return replace(pod_from({"metadata": {"name": "p", "uid": "p"}, "spec": spec}), static=True)


def taken(minor: Minor, mode: Compatibility, on: Machine, free: str, count: int, **options: bool) -> str:
    """What the packed algorithm takes of these CPUs."""
    rules = Rules(compatibility=mode, minor=minor)
    literal = mode is KUBELET
    offered = CpuSet.parse(free).bits
    return str(
        CpuSet(packed(CpuTopology.of(on), offered, count, literal=literal, kubelet=kubelet_rules(rules), **options))
    )


OLDER = (Minor.V1_34, Minor.V1_35, Minor.V1_36, Minor.V1_37)
EIGHT = machine(smt(0, range(8), 8))


@minors(*OLDER)
def test_averages_decide_up_to_1_37(minor: Minor, *, holds: bool) -> None:
    """D15: a core of two threads with one free counts as whole, where cores have 1.5 threads on average."""
    assert taken(minor, KUBELET, UNEVEN, "4-7", 2) == ("4,8" if holds else "4-5")
    assert taken(minor, Compatibility.FIXED, UNEVEN, "4-7", 2) == "4-5"


@minors(*OLDER)
def test_a_cache_that_spans_nodes_counts_twice_up_to_1_37(minor: Minor, *, holds: bool) -> None:
    """D18: the container of 9 CPUs gets 5; mended, and since 1.38, it gets 9."""
    nodes = [
        [(0, 0 if cpu % 8 < 2 else 1 + node, [cpu]) for cpu in range(node * 8, node * 8 + 8)] for node in range(2)
    ]
    spanning = machine(*nodes)
    got = [taken(minor, mode, spanning, "0-1,3-9,11-15", 9, uncore=True) for mode in Compatibility]
    assert [len(CpuSet.parse(each)) for each in got] == [9, 5 if holds else 9]


@minors(Minor.V1_38)
def test_a_cache_below_the_average_is_whole_since_1_38(minor: Minor, *, holds: bool) -> None:
    """Of caches of 5 and 3 CPUs with 3 free in each, the whole one is taken for 3; before, the first was broken."""
    two = machine([(0, 0, [cpu]) for cpu in range(5)] + [(0, 1, [cpu]) for cpu in range(5, 8)])
    assert taken(minor, KUBELET, two, "0-2,5-7", 3, uncore=True) == ("5-7" if holds else "0-2")


@minors(Minor.V1_38)
def test_spreading_shares_cores_since_1_38(minor: Minor, *, holds: bool) -> None:
    """D26: the second pod gets the siblings of the first; mended, and before, it gets cores of its own."""
    for mode in Compatibility:
        node = Node(EIGHT, "0,8", mode=mode, minor=minor, distribute_across_cores=True)
        assert node.admit(pod("p", container("c", 3))) == {"c": "1-3"}
        shared = holds and mode is KUBELET
        assert node.admit(pod("q", container("c", 3))) == {"c": "9-11" if shared else "4-6"}


def test_mended_spreading_goes_round_the_cores_by_how_busy_they_are() -> None:
    """Siblings are numbered one after the other: a container of 3 CPUs gets three cores, the next one the others."""
    six = machine([(0, None, [core * 2, core * 2 + 1]) for core in range(6)])
    assert taken(Minor.V1_38, Compatibility.FIXED, six, "0-11", 3, spread=True) == "0,2,4"
    assert taken(Minor.V1_38, Compatibility.FIXED, six, "1,3,5,6-11", 3, spread=True) == "6,8,10"
    assert taken(Minor.V1_38, Compatibility.FIXED, six, "0-11", 8, spread=True) == "0-4,6,8,10"
    assert taken(Minor.V1_37, KUBELET, six, "0-11", 3, spread=True) == "0-2"


@minors(Minor.V1_38)
def test_the_affinitys_nodes_count_since_1_38(minor: Minor, *, holds: bool) -> None:
    """D6: two CPUs with an affinity of two nodes lie on both; of more nodes than CPUs the affinity is ignored."""
    four = machine(*([(0, None, [n * 4 + cpu]) for cpu in range(4)] for n in range(4)))
    node = Node(four, "15", minor=minor, distribute_across_numa=True)
    assert node.admit(pod("p", container("c", 2)), [0, 1]) == {"c": "0,4" if holds else "0-1"}
    assert node.admit(pod("q", container("c", 2)), [1, 2, 3]) == {"c": "8-9" if holds else "4-5"}


@minors(Minor.V1_38)
def test_containers_of_a_whole_pod_lie_on_its_nodes_since_1_38(minor: Minor, *, holds: bool) -> None:
    """A container of 2 CPUs in a pod over two nodes gets one on each."""
    if minor < Minor.V1_36:
        return
    two = machine(*([(0, None, [n * 4 + cpu]) for cpu in range(4)] for n in range(2)))
    node = Node(two, "7", minor=minor, gate=True, distribute_across_numa=True)
    whole = pod("p", container("a", 2), container("b", 1), container("c", 0), whole=5)
    held = node.admit(whole, [0, 1])
    assert isinstance(held, dict)
    assert held["a"] == ("0,4" if holds else "0-1")


def test_a_whole_pod_is_completed_or_begins_again_since_1_38() -> None:
    """D9: what is there stays; no prefix of the containers, and all is released and taken as of a new pod."""
    whole = pod("p", container("a", 2), container("b", 1), container("c", 0), whole=4)
    node = Node(EIGHT, "0", minor=Minor.V1_38, gate=True)
    node.admit(pod("q", container("c", 2)))
    first = node.admit(whole)
    assert first == {"a": "2,10", "b": "3", "c": "11"}
    for gone in ("b", "c"):
        node.release("p", gone)
    node.release("q")
    assert shown(node.provider.pod_hints(node.ledger, whole), EIGHT) == "{0}p"
    assert node.admit(whole) == first == node.admit(whole)
    larger = pod("p", container("a", 2), container("b", 1), container("c", 0), whole=5)
    assert shown(node.provider.pod_hints(node.ledger, larger), EIGHT) == "[]"
    node.release("p", "a")
    assert node.admit(whole) == {"a": "1,9", "b": "2", "c": "10"}
    assert node.shared == "0,3-8,11-15"


def test_a_whole_pod_whose_release_was_cut_off_begins_again_since_1_38() -> None:
    """Its CPUs are in the shared pool already: it is taken as a new one, and its hints are those of a new one."""
    whole = pod("p", container("a", 2), whole=2)
    node = Node(EIGHT, "0", minor=Minor.V1_38, gate=True)
    node.admit(pod("q", container("c", 2)))
    assert node.admit(whole) == {"a": "2,10"}
    node.release("q")
    books = node.ledger.cpus
    cut = replace(books, assigned={}, shared=books.shared | books.pools["p"])
    node.ledger = replace(node.ledger, cpus=cut)
    assert shown(node.provider.pod_hints(node.ledger, whole), EIGHT) == "{0}p"
    assert node.admit(whole) == {"a": "1,9"}
    assert node.shared == "0,2-8,10-15"


def test_a_whole_pods_memory_is_kept_and_not_completed_since_1_38() -> None:
    """D9 and D27: the pod's blocks are its hint, and a container that lost its own gets none again."""
    desk = Desk(even(2, 4 * GIB), KUBELET, pod_level=True, minor=Minor.V1_38)
    whole = whole_pod("w", wanting("a", memory=GIB), wanting("b"), whole={"cpu": 2, "memory": 2 * GIB})
    assert desk.allocate_pod(whole, Hint(NodeSet.of(1), preferred=True)) is None
    desk.release(whole, "a")
    before = desk.free()
    assert desk.hints(whole) == {"memory": "{1}p"}
    assert desk.allocate_pod(whole, NO_HINT) is None
    assert (desk.free(), desk.blocks(whole, "a")) == (before, None)


@minors(Minor.V1_38)
def test_the_first_container_speaks_for_the_pod_since_1_38(minor: Minor, *, holds: bool) -> None:
    """D11 and D28: its blocks are compared with its own request, and what others ask for has no entry."""
    desk = Desk(even(2, 4 * GIB, {HUGE_2M: GIB}), KUBELET, minor=minor)
    both = whole_pod("w", wanting("a", memory=GIB), wanting("b", memory=GIB, huge2m=2**21))
    desk.admit(both, Hint(NodeSet.of(1), preferred=True))
    assert desk.hints(both) == ({"memory": "{1}p"} if holds else "no preference")


@minors(Minor.V1_38)
def test_memory_types_of_init_containers_count_since_1_38(minor: Minor, *, holds: bool) -> None:
    """With pod scope, huge pages that an init container alone asks for have hints."""
    desk = Desk(even(1, 4 * GIB, {HUGE_2M: GIB}), KUBELET, minor=minor)
    of = whole_pod("w", wanting("i", ContainerKind.INIT, memory=GIB, huge2m=2**21), wanting("a", memory=GIB))
    hints = desk.hints(of)
    assert isinstance(hints, dict)
    assert ("hugepages-2Mi" in hints) is holds
