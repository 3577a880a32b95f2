"""Defect D17 (kubernetes issue 106270): where not all can be preferred, devices give way to CPUs and memory."""

from __future__ import annotations

from typing import Any

import pytest

from agent.core.admission.node import Node
from agent.core.explain.explainer import explain
from agent.core.explain.standing import PodStanding
from agent.core.explain.values import MergeRule
from agent.model.idset import CpuSet
from agent.model.ledger import Ledger
from agent.model.outcome import Admitted
from agent.model.pod import Pod
from tests.world.nodes import managers_of
from tests.world.pods import container, pod

NIC, GIB = "numalign.io/nic", 2**30
ISSUE = "2 sockets x 1 node x 20 cores x 2 threads, 64G per node, 2 nics on 0"
"""The machine of the issue: 80 CPUs, all NICs near node 0; CPUs 0-19 and 40-59 are node 0's."""
STATIC: dict[str, Any] = {
    "memoryManagerPolicy": "Static", "kubeReserved": {"memory": "412Mi"},
    "reservedMemory": [{"numaNode": 0, "limits": {"memory": "512Mi"}}],
}  # fmt: skip
LARGE: dict[str, Any] = {"cpus": 32, "memory": 8 * GIB, "limits": {NIC: 1}}


def node_of(machine: str, **body: Any) -> Node:  # noqa: ANN401 - fields of a settings document
    """A machine under best-effort, unless the settings say otherwise."""
    asked = {
        "topologyManagerPolicy": "best-effort",
        "devices": [{"resource": NIC, "class": "02", "namespaces": ["*"]}],
    }
    return managers_of(machine, {**asked, **body})


def with_pods(node: Node, *pods: Pod) -> Ledger:
    """A node's ledger after these were admitted."""
    ledger = node.start()
    for each in pods:
        outcome = node.admit(ledger, each)
        assert isinstance(outcome, Admitted)
        ledger = outcome.ledger
    return ledger


def large(uid: str) -> Pod:
    """One of the issue's two pods."""
    return pod(uid, container("c", **LARGE))


@pytest.mark.parametrize("scope", ["container", "pod"])
@pytest.mark.parametrize(("mode", "nodes"), [("fixed", "1"), ("kubelet", "0-1")])
def test_32_cpus_lie_on_the_node_with_40_free(mode: str, nodes: str, scope: str) -> None:
    """fixed: 32 and 32, one node each, though both NICs are near node 0; kubelet: the second pod gets 6 and 26."""
    node = node_of(ISSUE, compatibility=mode, topologyManagerScope=scope, reservedSystemCPUs="0,40")
    ledger = with_pods(node, large("first"), large("second"))
    first, second = (ledger.grant(uid, "c").cpus for uid in ("first", "second"))
    assert first
    assert second
    assert str(node.machine.nodes_of(first)) == "0"
    assert str(node.machine.nodes_of(second)) == nodes
    split = [len(second & each.cpus) for each in node.machine.nodes]
    assert split == ([0, 32] if mode == "fixed" else [6, 26])


def test_memory_goes_where_the_cpus_go() -> None:
    """With the memory manager both lie on node 1; the NIC alone is far."""
    node = node_of(ISSUE, reservedSystemCPUs="0,40", **STATIC)
    ledger = with_pods(node, large("first"), large("second"))
    grant = ledger.grant("second", "c")
    assert str(grant.mems) == "1"
    near = "device 0000:02:00.0 of numalign.io/nic is local to NUMA node 0, outside the affinity 1"
    assert ledger.pods["second"].why["c"] == near


def test_why_says_that_the_devices_gave_way() -> None:
    """The merge names the rule, and what the kubelet would have taken."""
    node = node_of(ISSUE, reservedSystemCPUs="0,40")
    ledger = with_pods(node, large("first"))
    found = explain(node, ledger, large("second"), standing=PodStanding(hypothetical=True), search=False)
    merge = found.merges[0]
    assert (merge.rule, str(merge.winner), merge.preferred) == (MergeRule.TOGETHER, "1", False)
    assert merge.rule_text == (
        "no set of nodes is preferred by every hint provider: CPUs and memory stay together, and devices may be "
        "elsewhere; the kubelet would take NUMA node 0"
    )


def test_without_any_overlap_memory_does_not_lie_on_all_nodes() -> None:
    """A NIC near node 0 and a GPU near node 3: the kubelet makes all four nodes one group for the memory."""
    held = {mode: grants_beside(mode)[1] for mode in ("kubelet", "fixed")}
    assert held == {"kubelet": "0-3", "fixed": "3"}


def test_a_device_is_near_where_that_costs_no_node() -> None:
    """The NIC near node 0 is given up; of the nodes that hold the CPUs, the GPU's is taken, not the lowest."""
    assert grants_beside("fixed")[0] == "3"


def grants_beside(mode: str) -> tuple[str, str]:
    """The nodes of the CPUs, and of the memory, of a pod with a NIC near node 0 and a GPU near node 3."""
    gpu = "numalign.io/gpu"
    devices = [{"resource": name, "class": kind, "namespaces": ["*"]} for name, kind in ((NIC, "02"), (gpu, "03"))]
    four = "4 sockets x 1 node x 8 cores, nic on 0, gpu on 3"
    node = node_of(four, compatibility=mode, reservedSystemCPUs="0", devices=devices, **STATIC)
    ledger = with_pods(node, pod("p", container("c", cpus=8, memory=GIB, limits={NIC: 1, gpu: 1})))
    grant = ledger.grant("p", "c")
    return str(node.machine.nodes_of(grant.cpus or CpuSet())), str(grant.mems)


@pytest.mark.parametrize("policy", ["none", "restricted", "single-numa-node"])
def test_other_policies_are_as_they_were(policy: str) -> None:
    """Only best-effort takes what not all prefer."""
    node = node_of(ISSUE, topologyManagerPolicy=policy, reservedSystemCPUs="0,40")
    outcome = node.admit(with_pods(node, large("first")), large("second"))
    assert isinstance(outcome, Admitted) is (policy == "none")


def test_with_align_by_socket_the_affinity_stays() -> None:
    """CPUs may then lie on any node of the affinity's sockets, so that a node is not too small for them."""
    node = node_of(ISSUE, cpuManagerPolicyOptions={"align-by-socket": "true"}, reservedSystemCPUs="0,40")
    ledger = with_pods(node, large("first"), large("second"))
    assert str(ledger.pods["second"].affinity["c"].nodes) == "0"
