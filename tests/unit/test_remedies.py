"""The smallest changes that would let a pod in, held against what the managers say of every amount."""

from __future__ import annotations

from typing import Any

import pytest

from agent.core.explain import remedies as search
from agent.core.explain.candidates import edges
from agent.core.explain.case import Case
from agent.core.explain.remedies import Found, remedies
from agent.core.explain.values import Lever
from agent.core.request.annotations import pod_settings
from agent.model.outcome import Admitted
from agent.model.pod import Pod
from agent.model.podspec import pod_from
from tests.world.manifests import container, manifest
from tests.world.nodes import managers_of

THREE = "1 socket x 3 nodes x 4 cores x 1 thread, 8G per node"
SIX = "2 sockets x 3 nodes x 4 cores x 1 thread, 4G per node"
UNEVEN = "2 sockets x 1 node x 4 cores x 1 thread, 8G per node, 3G on 1"
STEP, GIB = 256 << 20, 1 << 30
SETTINGS = {
    "memoryManagerPolicy": "Static", "kubeReserved": {"cpu": "1"},
    "reservedMemory": [{"numaNode": 0, "limits": {"memory": "100Mi"}}],
}  # fmt: skip


def searched(
    machine: str, body: dict[str, Any], before: list[dict[str, Any]], policy: str, scope: str, *, aligned: bool
) -> tuple[Found, set[int]]:
    """What the search found for a pod, and the amounts of its first container's memory that would do, in steps."""
    node = managers_of(machine, {**SETTINGS, "topologyManagerPolicy": policy, "topologyManagerScope": scope})
    ledger = node.start()
    for each in before:
        ledger = node.admit(ledger, pod_from(each)).ledger
    pod = pod_from(body)
    case = Case(ledger, pod, pod_settings(pod, node.rules.cpu.options, node.rules.topology.policy))

    def fits(size: int) -> bool:
        found = case.asking(pod.containers[0].name, "memory", size).admit(node)
        return isinstance(found, Admitted) and (not aligned or found.ledger.pods[pod.uid].is_aligned)

    asked = pod.containers[0].requests["memory"] // 1000
    assert not fits(asked)
    return remedies(node, case, aligned=aligned), {size for size in range(STEP, asked, STEP) if fits(size)}


def memory_of(found: Found, pod: Pod) -> int:
    """The amount of memory that the search names, 0 for none."""
    name = pod.containers[0].name
    return max(
        (each.amount for each in found.remedies
         if (each.lever, each.resource, each.container) == (Lever.REQUEST, "memory", name)), default=0
    )  # fmt: skip


@pytest.mark.parametrize(
    ("machine", "cpu", "memory", "before", "policy", "scope"),
    [
        (THREE, "6", "20Gi", (), "restricted", "container"),
        (THREE, "6", "7Gi", (), "restricted", "container"),
        (THREE, "6", "20Gi", ("1Gi",), "restricted", "container"),
        (SIX, "6", "20Gi", (), "restricted", "container"),
        (SIX, "9", "20Gi", ("2Gi", "1Gi"), "restricted", "container"),
        (SIX, "9", "20Gi", (), "restricted", "pod"),
        (SIX, "3", "9Gi", ("2Gi",), "single-numa-node", "container"),
        (UNEVEN, "6", "17Gi", (), "restricted", "container"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("beside", [False, True])
def test_the_largest_amount_of_memory_that_fits_is_named(
    machine: str, cpu: str, memory: str, before: tuple[str, ...], policy: str, scope: str, *, beside: bool
) -> None:
    """Small amounts may be refused where middle ones fit: 1Gi needs one NUMA node and 6 CPUs need two."""
    others = [container("other", cpu="1", memory="1Gi")] if beside else []
    body = manifest("p", container(cpu=cpu, memory=memory), *others)
    held = [manifest(f"b{number}", container(cpu="1", memory=each)) for number, each in enumerate(before)]
    found, good = searched(machine, body, held, policy, scope, aligned=False)
    named = memory_of(found, pod_from(body))
    assert named >= max(good, default=0)
    said = any("no smaller request" in each for each in found.searched)
    assert not (said and good)
    assert bool(named) or not good


def test_more_cpus_than_a_numa_node_has_and_much_memory_are_aligned_by_less_memory() -> None:
    """Under best-effort the pod gets in, and what would have aligned it is looked for in the same way."""
    body = manifest("p", container(cpu="8", memory="17Gi"))
    found, good = searched(THREE, body, [], "best-effort", "container", aligned=True)
    assert 8 * GIB < max(good) <= memory_of(found, pod_from(body)) <= 16 * GIB


def test_what_was_not_tried_is_not_denied(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the edges are too many, only those that were tried are spoken of."""
    monkeypatch.setattr(search, "MOST_EDGES", 1)
    body = manifest("p", container(cpu="6", memory="20Gi"))
    found, good = searched(THREE, body, [], "restricted", "container", aligned=False)
    assert good
    assert "no smaller request that was tried is enough, of one resource in one container at a time" in found.searched


def test_edges_are_the_sums_of_the_largest_nodes() -> None:
    """In Mi: one, two and three NUMA nodes as they are when empty, and one more of each; the largest first."""
    node = managers_of(THREE, SETTINGS)
    found = edges(node.start(), "memory", 1 << 20)
    assert found == [24476 + 1, 24476, 16384 + 1, 16384, 8192 + 1, 8192, 1]
    assert set(edges(node.start(), "memory", 1 << 20, 1 << 30)) > {*found, 8192 - 1024}
