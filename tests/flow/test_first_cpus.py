"""A running container asks for whole CPUs for the first time, or again: they lie where the rest of its pod's is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.flow.world import World, container, manifest

GPU = "numalign.io/gpu"
MACHINE = "2 sockets x 1 node x 8 cores x 1 thread, 16G per node, gpu on 0"
MEMORY: dict[str, Any] = {
    "memoryManagerPolicy": "Static", "reservedMemory": [{"numaNode": 0, "limits": {"memory": "100Mi"}}],
}  # fmt: skip
POLICIES = ["none", "best-effort", "restricted", "single-numa-node"]


def node(folder: Path, policy: str, **settings: Any) -> World:  # noqa: ANN401 - of a settings document
    """Node 0 has 7 CPUs for pods and the GPU, node 1 has 8."""
    devices = [{"resource": GPU, "class": "03", "namespaces": ["*"]}]
    made = World(
        folder, machine=MACHINE,
        settings={"kubeReserved": {"cpu": "1"}, "topologyManagerPolicy": policy, "devices": devices, **settings},
    )  # fmt: skip
    made.engine.pods_listed(set())
    return made


def body(cpu: str, ran: str = "", *, gpus: int = 0) -> dict[str, Any]:
    """A pod that asks for CPUs; with `ran` its status says that the kubelet has followed the resize."""
    asked = container(cpu=cpu, memory="1Gi")
    if gpus:
        asked["resources"]["limits"][GPU] = str(gpus)
    found = manifest("a", asked, created=1)
    if ran:
        resources = {"cpu": ran, "memory": "1Gi", **({GPU: str(gpus)} if gpus else {})}
        status = {
            "name": "app", "containerID": "containerd://x", "allocatedResources": resources,
            "resources": {"limits": resources, "requests": resources},
        }  # fmt: skip
        found["status"] = {"phase": "Running", "containerStatuses": [status]}
    return found


def resized(world: World, *sizes: str, gpus: int = 0) -> list[str]:
    """A pod starts with the first size and is resized to each next one; its CPUs after each."""
    world.heard(body(sizes[0], gpus=gpus))
    world.start("a")
    found = []
    for size in sizes:
        world.heard(body(size, size, gpus=gpus))
        found.append(world.holds("a"))
    return found


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("gpus", [0, 1])
def test_the_first_cpus_are_near_memory_and_devices(tmp_path: Path, policy: str, gpus: int) -> None:
    """Memory, and a GPU, on node 0: 1500m -> 2 -> 1500m -> 4 CPUs are all on node 0, though node 1 has more free."""
    world = node(tmp_path, policy, **MEMORY)
    assert resized(world, "1500m", "2", "1500m", "4", gpus=gpus) == ["", "1-2", "", "1-4"]
    assert world.condition("a") == "True Aligned"


@pytest.mark.parametrize("policy", ["best-effort", "restricted"])
def test_a_device_alone_decides(tmp_path: Path, policy: str) -> None:
    """Without the memory manager the GPU says where the first CPUs are."""
    assert resized(node(tmp_path, policy), "1500m", "3", gpus=1) == ["", "1-3"]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_container_gets_the_cpus_of_its_first_affinity_again(tmp_path: Path, policy: str) -> None:
    """With all defaults: 2 -> 1500m -> 2 is what it had, and 1500m -> 2 what a fresh pod of 2 gets."""
    assert resized(node(tmp_path / "again", policy), "2", "1500m", "2") == ["1-2", "", "1-2"]
    assert resized(node(tmp_path / "first", policy), "1500m", "2") == ["", "1-2"]


def full_home(folder: Path, policy: str) -> World:
    """Make a node where the memory of pod a is on node 0, which has one CPU left beside another pod."""
    world = node(folder, policy, **MEMORY)
    world.heard(body("1500m"))
    world.start("a")
    world.heard(body("1500m", "1500m"))
    world.see(manifest("other", container(cpu="6", memory="1Gi"), created=2))
    return world


@pytest.mark.parametrize("policy", ["none", "best-effort"])
def test_a_full_home_is_left_as_a_whole(tmp_path: Path, policy: str) -> None:
    """Memory on node 0, which has one CPU left: the three first CPUs are not split, and the pod is told so."""
    world = full_home(tmp_path, policy)
    assert world.holds("other") == "1-6"
    world.heard(body("3", "3"))
    assert (world.holds("a"), world.condition("a")) == ("8-10", "False NotAligned")


@pytest.mark.parametrize("policy", ["restricted", "single-numa-node"])
def test_a_strict_policy_does_not_leave_the_affinity(tmp_path: Path, policy: str) -> None:
    """The same under a policy that promises alignment: the resize is not followed, and says so."""
    world = full_home(tmp_path, policy)
    world.heard(body("3", "3"))
    assert world.holds("a") == ""
    assert "resize not followed from 0 to 3 CPUs" in world.engine.ledger.pods["a"].why["app"]
