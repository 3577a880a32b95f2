"""Hypothesis: nodes under settings, pods, and nodes with pods on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from agent.core.admission.node import Node
from agent.core.explain.case import Case
from agent.core.request.annotations import pod_settings
from agent.errors import SettingsError
from agent.model.ledger import Ledger
from agent.model.outcome import Admitted
from agent.model.pod import Pod
from agent.model.podspec import pod_from
from agent.model.rules import CpuOptions
from tests.world.nodes import managers_of

MACHINES = (
    "2 sockets x 1 node x 4 cores, 4G per node, 8 2Mi pages, nic on 1",
    "1 socket x 2 nodes x 2 cores x 2 threads, 4G per node, 64 2Mi pages, 2 nics on 0",
    "2 sockets x 2 nodes x 2 cores x 2 threads, 4G per node, 2G on 1, 8 2Mi pages, distance 10 12 21, nic on 0 and 3",
    "3 sockets x 3 nodes x 2 cores, 4G per node, 64 2Mi pages",
)
NIC = "numalign.io/nic"

OPTIONS = (
    CpuOptions(),
    CpuOptions(full_pcpus_only=True),
    CpuOptions(distribute_across_numa=True),
    CpuOptions(distribute_across_cores=True),
    CpuOptions(align_by_socket=True),
    CpuOptions(prefer_uncore=True),
    CpuOptions(strict_reservation=True),
    CpuOptions(prefer_uncore=True, strict_reservation=True),
    CpuOptions(full_pcpus_only=True, distribute_across_numa=True, align_by_socket=True),
    CpuOptions(full_pcpus_only=True, distribute_across_numa=True, strict_reservation=True),
)
"""Options of the CPU manager, one by one and as they are used together."""
cpu_options = st.sampled_from(OPTIONS)
policies = st.sampled_from(["none", "best-effort", "restricted", "single-numa-node"])
scopes = st.sampled_from(["container", "pod"])


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    """A node of one of a few machines under any settings that go together."""
    machine = draw(st.sampled_from(MACHINES))
    body: dict[str, Any] = {
        "topologyManagerPolicy": draw(policies),
        "topologyManagerScope": draw(scopes),
        "reservedSystemCPUs": "0",
        "onMisalignment": "fail",
        "devices": [{"resource": NIC, "class": "02"}],
    }
    if draw(st.booleans()):
        body |= {
            "memoryManagerPolicy": "Static", "kubeReserved": {"memory": "412Mi"},
            "reservedMemory": [{"numaNode": 0, "limits": {"memory": "512Mi"}}],
        }  # fmt: skip
    options = draw(st.sampled_from([{}, {"full-pcpus-only": "true"}, {"distribute-cpus-across-numa": "true"}]))
    body["cpuManagerPolicyOptions"] = options
    if draw(st.booleans()) and "3 sockets" not in machine:
        body["topologyManagerPolicyOptions"] = {"prefer-closest-numa-nodes": "true"}
    try:
        return managers_of(machine, body)
    except SettingsError:  # what this machine cannot give
        return managers_of(machine, {**body, "cpuManagerPolicyOptions": {}, "topologyManagerPolicyOptions": {}})


@st.composite
def pods(draw: st.DrawFn, number: int, cpus: Sequence[object] = (1, 2, 2, 3, 4, 6, "500m")) -> Pod:
    """A pod of one or two containers."""
    containers = []
    for place in range(draw(st.integers(1, 2))):
        limits: dict[str, Any] = {
            "cpu": draw(st.sampled_from(cpus)),
            "memory": draw(st.sampled_from(["64Mi", "1Gi", "2500Mi", "5Gi"])),
        }
        if draw(st.integers(0, 3)) == 0:
            limits[NIC] = draw(st.integers(1, 2))
        if draw(st.integers(0, 5)) == 0:
            limits["hugepages-2Mi"] = "32Mi"
        containers.append({"name": f"c{place}", "resources": {"limits": limits}})
    notes = {"numalign.io/policy": draw(policies)} if draw(st.integers(0, 2)) == 0 else {}
    if draw(st.integers(0, 6)) == 0:
        notes["numalign.io/align"] = "numa"
    metadata = {
        "name": f"p{number}", "uid": f"p{number}", "annotations": notes,
        "creationTimestamp": f"2026-01-01T00:{number:02}:00Z",
    }  # fmt: skip
    return pod_from({"metadata": metadata, "spec": {"containers": containers}})


@st.composite
def worlds(draw: st.DrawFn) -> tuple[Node, Ledger, Pod]:
    """A node with some pods on it, of which some have ended, and a newcomer."""
    node = draw(nodes())
    ledger = node.start()
    for number in range(draw(st.integers(0, 5))):
        ledger = case_of(node, ledger, draw(pods(number))).admit(node).ledger
    for uid in sorted(ledger.pods):
        if draw(st.integers(0, 4)) == 0:
            ledger = node.release(ledger, uid)
    return node, ledger, draw(pods(9))


def case_of(node: Node, ledger: Ledger, pod: Pod) -> Case:
    """The admission of a pod with its wishes."""
    return Case(ledger, pod, pod_settings(pod, node.rules.cpu.options, node.rules.topology.policy))


@st.composite
def filled(draw: st.DrawFn) -> tuple[Node, Ledger, list[Pod]]:
    """A node, the pods that came and got in, and those that were refused."""
    node = draw(nodes())
    ledger, refused = node.start(), list[Pod]()
    for number in range(draw(st.integers(1, 6))):
        pod = draw(pods(number))
        outcome = case_of(node, ledger, pod).admit(node)
        ledger = outcome.ledger
        refused += [] if isinstance(outcome, Admitted) else [pod]
    return node, ledger, refused
