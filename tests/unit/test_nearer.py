"""A pod on far NUMA nodes is told which nearer ones an option would take."""

from __future__ import annotations

from typing import Any

import pytest

from agent.core.explain.explainer import explain
from agent.model.podspec import pod_from
from tests.world.manifests import container, manifest
from tests.world.nodes import managers_of

FAR = "2 sockets x 2 nodes x 4 cores x 1 thread, 8G per node, distance 10 12 21"
FLAT = "2 sockets x 2 nodes x 4 cores x 1 thread, 8G per node, distance 10 20 20"
CLOSEST = {"topologyManagerPolicyOptions": {"prefer-closest-numa-nodes": "true"}}


@pytest.mark.parametrize(
    ("machine", "cpu", "settings", "words"),
    [
        (
            FAR,
            "8",
            {},
            "NUMA nodes 1-2 are on 2 sockets; 2-3 are nearer (12 instead of 21): prefer-closest-numa-nodes",
        ),
        (FAR, "8", CLOSEST, ""),
        (FAR, "8", {"topologyManagerPolicy": "restricted"}, "2-3 are nearer (12 instead of 21)"),
        (FAR, "8", {"topologyManagerPolicy": "none"}, ""),
        (FAR, "4", {}, ""),
        (FAR, "12", {}, ""),
        (FLAT, "8", {}, ""),
    ],
    ids=["far", "option", "restricted", "none", "one-node", "no-nearer", "flat"],
)
def test_nearer_numa_nodes_are_named(machine: str, cpu: str, settings: dict[str, Any], words: str) -> None:
    """Without the option distances do not count, as in the kubelet; the note says that two sockets are used."""
    node = managers_of(machine, {"kubeReserved": {"cpu": "1"}, **settings})
    found = explain(node, node.start(), pod_from(manifest("p", container(cpu=cpu, memory="1Gi"))))
    told = [each for each in found.notes if "nearer" in each]
    assert bool(told) == bool(words)
    assert words in "".join(told)


def test_nodes_that_another_pod_holds_are_not_nearer() -> None:
    """Of a pod that is in: the nearer nodes are named as long as they are free."""
    node = managers_of(FAR, {"kubeReserved": {"cpu": "1"}})
    pod = pod_from(manifest("p", container(cpu="8", memory="1Gi"), created=1))
    ledger = node.admit(node.start(), pod).ledger
    assert any("2-3 are nearer" in each for each in explain(node, ledger, pod).notes)
    later = pod_from(manifest("later", container(cpu="4", memory="1Gi"), created=2))
    ledger = node.admit(ledger, later).ledger
    assert not any("nearer" in each for each in explain(node, ledger, pod).notes)
