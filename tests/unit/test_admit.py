"""agent.core.admission.node: one pod through all providers: order, scopes, refusals, overrides."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agent.core.accounting.invariants import check
from agent.core.admission.alignment import UNPREFERRED
from agent.core.admission.node import Node
from agent.core.admission.pod import NO_LOCALITY, NO_LOCALITY_CONTAINER, NO_LOCALITY_POD, Step
from agent.core.machines.synthetic import parse_synthetic
from agent.core.request.annotations import PodSettings
from agent.model.devices import Device, DeviceInventory
from agent.model.hint import Hint
from agent.model.idset import CpuSet, NodeSet
from agent.model.ledger import Ledger
from agent.model.outcome import Admitted, Outcome, Reason, Refusal, Refused
from agent.model.pod import Pod
from agent.model.podspec import pod_from
from agent.model.rules import (
    Compatibility,
    CpuOptions,
    CpuRules,
    MemoryRules,
    Policy,
    Rules,
    Scope,
    TopologyRules,
)  # fmt: skip

TWO = parse_synthetic("2 sockets x 1 nodes x 4 cores x 1 threads, 4G per node")
"""CPUs 0-3 on node 0, 4-7 on node 1; CPU 0 is reserved by the rules below."""
GPU = "example.com/gpu"


def rules(policy: Policy = Policy.RESTRICTED, scope: Scope = Scope.CONTAINER, **more: Any) -> Rules:  # noqa: ANN401 - any field
    """Static CPUs, no memory, one reserved CPU."""
    return Rules(topology=TopologyRules(policy, scope), cpu=CpuRules(reserved_count=1), **more)


def pod(uid: str, *cpus: object, notes: dict[str, str] | None = None, gpus: int = 0, **spec: object) -> Pod:
    """A Guaranteed pod with one app container for each CPU count."""
    containers = []
    for number, each in enumerate(cpus):
        limits = {"cpu": each, "memory": "64Mi", **({GPU: gpus} if gpus else {})}
        containers.append({"name": f"c{number}", "resources": {"limits": limits}})
    metadata = {"name": uid, "uid": uid, "annotations": notes or {}}
    return pod_from({"metadata": metadata, "spec": {"containers": containers, **spec}})


def node(of: Rules, inventory: DeviceInventory | None = None, *extra: Any) -> tuple[Node, Ledger]:  # noqa: ANN401 - providers
    """A node under the rules, and its empty ledger."""
    made = Node(TWO, of, inventory or DeviceInventory(), extra)
    return made, made.start()


def admitted(outcome: Outcome) -> Ledger:
    """The ledger of a pod that got in."""
    assert isinstance(outcome, Admitted), outcome
    return outcome.ledger


def refused(outcome: Outcome) -> Refusal:
    """The refusal of one that did not."""
    assert isinstance(outcome, Refused), outcome
    return outcome.refusal


def test_container_scope_places_each_container_by_itself() -> None:
    """Two containers of three CPUs each lie on different nodes, each with its own affinity."""
    managers, empty = node(rules())
    ledger = admitted(managers.admit(empty, pod("a", 3, 3)))
    record = ledger.pods["a"]
    assert [str(ledger.grant("a", name).cpus) for name in ("c0", "c1")] == ["1-3", "4-6"]
    assert record.affinity == {"c0": Hint(NodeSet.of(0), True), "c1": Hint(NodeSet.of(1), True)}  # noqa: FBT003 - preferred
    assert (record.policy, record.scope, record.aligned, record.why) == (
        "restricted", "container", {"c0": True, "c1": True}, {},
    )  # fmt: skip
    check(ledger, managers)


def test_pod_scope_places_all_containers_together() -> None:
    """The same pod as a whole needs both nodes; one that fits a node gets one affinity for all."""
    managers, empty = node(rules(scope=Scope.POD))
    ledger = admitted(managers.admit(empty, pod("a", 3, 3)))
    assert {str(hint.nodes) for hint in ledger.pods["a"].affinity.values()} == {"0-1"}
    small = admitted(managers.admit(empty, pod("b", 2, 1)))
    assert {str(hint.nodes) for hint in small.pods["b"].affinity.values()} == {"0"}


def test_a_refusal_is_a_value_and_leaves_the_ledger_as_it_was() -> None:
    """Restricted refuses four CPUs once both nodes are used; the first container's CPUs are back too."""
    managers, empty = node(rules())
    first = admitted(managers.admit(empty, pod("a", 2, 2)))
    outcome = managers.admit(first, pod("b", 1, 4))
    refusal = refused(outcome)
    assert (refusal.reason, refusal.message, refusal.container) == (Reason.TOPOLOGY, NO_LOCALITY, "c1")
    assert refusal.facts["policy"] == "restricted"
    assert outcome.ledger == first


@pytest.mark.parametrize(
    ("policy", "fits"),
    [(Policy.NONE, True), (Policy.BEST_EFFORT, True), (Policy.RESTRICTED, False), (Policy.SINGLE_NUMA_NODE, False)],
)
def test_the_four_policies(policy: Policy, *, fits: bool) -> None:
    """Three CPUs that only two nodes together have: two policies let the pod in, and say it is not aligned."""
    managers, empty = node(rules(policy))
    used = admitted(managers.admit(empty, pod("a", 2, 2), PodSettings(policy=Policy.RESTRICTED)))
    outcome = managers.admit(used, pod("b", 3))
    assert isinstance(outcome, Admitted) is fits
    if fits:
        record = outcome.ledger.pods["b"]
        assert record.aligned == {"c0": False}
        assert record.why["c0"].startswith("policy none aligns nothing" if policy is Policy.NONE else UNPREFERRED)


def test_a_pod_brings_its_own_policy_scope_and_options() -> None:
    """Overrides count for this pod alone and are recorded; the node's pool and reservation stay."""
    managers, empty = node(rules(Policy.NONE))
    ledger = admitted(
        managers.admit(
            empty,
            pod("a", 2, 1),
            PodSettings(Policy.SINGLE_NUMA_NODE, Scope.POD, cpu_options=CpuOptions(distribute_across_numa=True)),
        )
    )
    record = ledger.pods["a"]
    assert (record.policy, record.scope, record.asked) == ("single-numa-node", "pod", "single-numa-node")
    assert {str(hint.nodes) for hint in record.affinity.values()} == {"0"}
    distribute = PodSettings(cpu_options=CpuOptions(distribute_across_numa=True))
    spread = admitted(managers.admit(empty, pod("b", 5), distribute))
    plain = admitted(managers.admit(empty, pod("b", 5)))
    assert [str(each.grant("b", "c0").cpus) for each in (spread, plain)] == ["1-2,4-6", "1,4-7"]
    assert [str(each.cpus.shared) for each in (spread, plain)] == ["0,3,7", "0,2-3"]
    assert managers.reserved == CpuSet.of(0)


def test_errors_without_a_type_are_wrapped_as_the_kubelet_does() -> None:
    """Too few CPUs under policy none is UnexpectedAdmissionError with the wrapped sentence (kubelet rule 2.2)."""
    managers, empty = node(rules(Policy.NONE, compatibility=Compatibility.KUBELET, keep_shared=False))
    refusal = refused(managers.admit(empty, pod("a", 8)))
    assert refusal.reason is Reason.UNEXPECTED
    assert refusal.message == (
        "Allocate failed due to not enough cpus available to satisfy request: requested=8, available=7, "
        "which is unexpected"
    )


@pytest.mark.parametrize(
    ("scope", "message"), [(Scope.POD, NO_LOCALITY_POD), (Scope.CONTAINER, NO_LOCALITY_CONTAINER)]
)
def test_pods_managed_as_a_whole_have_sentences_of_their_own(scope: Scope, message: str) -> None:
    """With PodLevelResourceManagers the refusal names the scope, as the kubelet's does (kubelet rule 2.2)."""
    managers, empty = node(rules(Policy.SINGLE_NUMA_NODE, scope, pod_level_managers=True))
    resources = {key: {"cpu": 6, "memory": "1Gi"} for key in ("requests", "limits")}
    assert refused(managers.admit(empty, pod("a", 5, resources=resources))).message == message


def test_a_restart_asks_again_and_changes_nothing() -> None:
    """A pod in the ledger keeps what it holds, whatever the policy says now."""
    managers, empty = node(rules(Policy.NONE))
    ledger = admitted(managers.admit(empty, pod("a", 6)))
    stricter, _ = node(rules(Policy.SINGLE_NUMA_NODE))
    assert admitted(stricter.admit(ledger, pod("a", 6))) == ledger


def test_release_gives_everything_back() -> None:
    """After the last pod the ledger is the empty one; an unknown pod changes nothing."""
    managers, empty = node(rules(Policy.BEST_EFFORT))
    ledger = admitted(managers.admit(empty, pod("a", 3, 2)))
    assert managers.release(ledger, "nobody") == ledger
    assert managers.release(ledger, "a") == empty
    assert managers.container_started(ledger, "a", "nobody") == ledger
    assert managers.container_started(ledger, "nobody", "c0") == ledger


def test_the_trace_tells_every_merge() -> None:
    """Each merge is told with what the providers said, in their order, and the reasons."""
    managers, empty = node(rules())
    steps: list[Step] = []
    managers.admit(empty, pod("a", 1, 2), trace=steps.append)
    assert [step.container for step in steps] == ["c0", "c1"]
    assert list(steps[0].answers) == ["devices", "cpus", "memory", "confine"]
    assert steps[1].merged.hint == Hint(NodeSet.of(0), preferred=True)


def test_s5_the_shared_pool_is_never_emptied() -> None:
    """Safety rule S5: under strict reservation the last shared CPUs are not granted."""
    strict = replace(rules(Policy.NONE), cpu=CpuRules(options=CpuOptions(strict_reservation=True), reserved_count=1))
    managers, empty = node(strict)
    refusal = refused(managers.admit(empty, pod("a", 7)))
    assert refusal.reason is Reason.SHARED_POOL
    admitted(managers.admit(empty, pod("a", 6)))


def test_confined_pods_and_exclusive_ones_leave_each_other_room() -> None:
    """Exclusive CPUs are not taken from the room of a confined pod, nor is it promised room that is taken."""
    managers, empty = node(rules())
    confined = pod("a", "2500m", notes={"numalign.io/align": "numa"})
    ledger = admitted(managers.admit(empty, confined))
    assert str(ledger.cpus.confined["a"].nodes) == "0"
    assert ledger.pods["a"].aligned == {"c0": True}
    assert refused(managers.admit(ledger, pod("b", 4, 1))).reason is Reason.TOPOLOGY
    full = admitted(managers.admit(ledger, pod("b", 4)))
    assert str(full.grant("b", "c0").cpus) == "4-7"
    check(full, managers)
    late = pod("c", "2500m", notes={"numalign.io/align": "numa"})
    assert refused(managers.admit(full, late)).reason is Reason.TOPOLOGY
    unconfined = admitted(managers.admit(full, late, PodSettings(policy=Policy.BEST_EFFORT)))
    assert "it is not confined" in unconfined.pods["c"].why[""]


def test_devices_memory_and_cpus_meet_on_one_node() -> None:
    """The GPU is on node 1, so CPUs and memory go there too: three providers, one affinity."""
    inventory = DeviceInventory({GPU: (Device("g", NodeSet.of(1)),)})
    kept = {0: {"memory": 64 << 20}}
    managers, empty = node(rules(Policy.SINGLE_NUMA_NODE, memory=MemoryRules(static=True, reserved=kept)), inventory)
    ledger = admitted(managers.admit(empty, pod("a", 2, gpus=1)))
    grant = ledger.grant("a", "c0")
    assert (str(grant.cpus), grant.mems, grant.devices) == ("4-5", NodeSet.of(1), {GPU: ("g",)})
    assert ledger.pods["a"].aligned == {"c0": True}
    check(ledger, managers)
