"""Devices that the kubelet and claims gave to a later container decide where an init container goes (defect D19)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.flow.claims import Api, Node, claim, device, result, slices, using
from tests.flow.gpus import GPU, gpu, nodes, world
from tests.flow.world import MemoryStore, World, container, manifest

POLICIES = ["best-effort", "restricted", "single-numa-node"]


def job(init: str, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - a manifest's fields
    """A pod whose app container asks for two CPUs and a GPU of the kubelet's, after an init container."""
    body = container(cpu="2")
    body["resources"]["limits"][GPU] = "1"
    return manifest("job", body, inits=[container("init", cpu=init)], **more)


def seen(folder: Path, init: str, policy: str, **more: Any) -> World:  # noqa: ANN401 - of World
    """An empty node of two NUMA nodes; the kubelet has given the app the GPU near node 1."""
    made = world(folder, gpu("g0", 0), gpu("g1", 1), **more)
    made.engine.devices_reported("job", {"app": (gpu("g1", 1),)})
    made.see(job(init, policy=policy))
    return made


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("init", ["500m", "1", "2"])
def test_the_init_container_goes_to_the_node_of_the_apps_device(tmp_path: Path, init: str, policy: str) -> None:
    """Kubernetes issues 138446, 124345: app and GPU lie on node 1, whatever the init container asks for."""
    made = seen(tmp_path, init, policy)
    assert (nodes(made), made.condition("job")) == ("1", "True Aligned")
    own = made.engine.ledger.grant("job", "init").cpus
    assert (str(own) if own else "") == {"500m": "", "1": "4", "2": "4-5"}[init]


def test_a_restart_moves_nothing(tmp_path: Path) -> None:
    """What was placed with a look ahead is kept as it was saved."""
    store = MemoryStore()
    before = seen(tmp_path, "1", "restricted", store=store)
    after = World(tmp_path, store=store)
    after.see(job("1", policy="restricted"))
    assert after.engine.ledger.cpus == before.engine.ledger.cpus


def test_as_a_kubelet_the_refusal_names_the_init_container(tmp_path: Path) -> None:
    """`compatibility: kubelet` refuses the pod on an empty node: the sentence says what the app must include."""
    made = seen(
        tmp_path, "1", "single-numa-node", settings={"compatibility": "kubelet-1.36", "kubeReserved": {"cpu": "1"}}
    )
    refusal = made.ears.refused_["job"]
    assert refusal.message.endswith(
        "which cannot be chosen again; what else container app asks for cannot be placed there"
    )
    assert refusal.details == (
        "even an empty node would refuse it: container app: no one NUMA node has room for all of it: vendor.com/gpu "
        "fits on NUMA node 1 and 2 CPUs, which must include CPU 1 of init container init on NUMA node 0, fit on NUMA "
        "node 0"
    )


@pytest.mark.parametrize("policy", POLICIES)
def test_the_init_container_goes_to_the_node_of_the_apps_claim(tmp_path: Path, policy: str) -> None:
    """The same with a device of a DRA claim."""
    node = Node(tmp_path, Api(slices(device("d1", 1)), c=claim(result("d1"))))
    body = using("c", policy=policy)
    body["spec"]["initContainers"] = [container("init", cpu="1")]
    node.known(body)
    assert (node.on(), node.world.condition("job")) == ("1", "True Aligned")
