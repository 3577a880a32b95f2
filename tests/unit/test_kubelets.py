"""What the kubelets 1.34 to 1.37 answer otherwise, one small case for each rule (agent.core.kubelets)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.core.admission.empty_resources import as_the_kubelet_sees
from agent.core.kubelets import MENDED, kubelet_rules
from agent.core.request.amounts import exclusive_count
from agent.errors import SettingsError
from agent.model.outcome import Refusal
from agent.model.pod import Pod, Qos
from agent.model.podspec import pod_from
from agent.model.rules import Compatibility, Minor, Rules
from agent.settings import parse, rules_of
from tests.unit.cpu_machines import D2, Node, container, machine, pod
from tests.unit.devices_cases import GPU, NO_HINT, Rack, asking, gpus
from tests.unit.memory_cases import GIB, Desk, even
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


@minors(Minor.V1_37)
def test_a_pod_keeps_its_cores_from_1_37_on(minor: Minor, *, holds: bool) -> None:
    """D1: a pod that has its whole cores is admitted again without a look at what is free."""
    node = Node(D2, "0,6", minor=minor, full_pcpus_only=True)
    first = node.admit(pod("p", container("c", 6)))
    again = node.admit(pod("p", container("c", 6)))
    assert (again == first) is holds
    assert isinstance(again, Refusal) is not holds


@minors(Minor.V1_37)
def test_distributing_stays_in_a_socket_from_1_37_on(minor: Minor, *, holds: bool) -> None:
    """With align-by-socket two nodes of one socket go before two that leave a better balance."""
    four = machine(*([(n // 2, None, [n * 2]), (n // 2, None, [n * 2 + 1])] for n in range(4)))
    node = Node(four, "7", minor=minor, distribute_across_numa=True, align_by_socket=True)
    assert node.admit(pod("p", container("c", 4))) == {"c": "0-3" if holds else "0-1,4-5"}


@pytest.mark.parametrize("minor", list(Minor))
def test_a_pass_without_progress_ends_in_every_minor(minor: Minor) -> None:
    """Where the best nodes were overwritten (D2) kubelet 1.37 never returns; numalign refuses as 1.36 does."""
    eight = machine(*([(n // 2, None, [cpu]) for cpu in range(n * 6, n * 6 + 6)] for n in range(8)))
    node = Node(eight, "5", minor=minor, distribute_across_numa=True)
    node.free("0-1,6-7,12,18-25,30-32,36-37,42-44")
    refused = node.admit(pod("p", container("c", 18)))
    assert isinstance(refused, Refusal)
    assert refused.message.startswith("accounting error, not enough CPUs allocated")


@minors(Minor.V1_37)
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


@minors(Minor.V1_37)
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


@minors(Minor.V1_37)
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
