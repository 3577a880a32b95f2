"""Machines whose numbers say otherwise than their sets, on a running node, by the kubelet's view and without it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent.app.page.views import view_of
from agent.errors import SettingsError
from agent.host.machines import open_machine
from agent.model.cgroup import Level
from agent.model.idset import NodeSet
from agent.model.machine import Machine
from agent.model.outcome import Admitted, Refused
from agent.model.podspec import pod_from
from tests.flow.world import MemoryStore, World, container, manifest
from tests.replay.odd import NUMBERS, PLACE, Odd
from tests.world.nodes import managers_of

SETTINGS: dict[str, Any] = {"kubeReserved": {"cpu": "1"}, "topologyManagerPolicy": "best-effort"}
FIXED, KUBELET = "fixed", "kubelet-1.36"
WIDER = "missing-package-id"
"""There the pool of shared CPUs itself differs: the kubelet does not know one of them."""


def recorded(name: str) -> Machine:
    """An odd machine."""
    return open_machine(str(PLACE / f"{name}.tar.xz"))


def sets(world: World) -> dict[str, tuple[str, str]]:
    """Cgroup of a container -> the CPUs and NUMA nodes that it may use."""
    return {
        each.path: (str(each.effective_cpus), str(each.mems))
        for each in world.cgroups.observe().cgroups
        if each.level is Level.CONTAINER
    }


@pytest.mark.parametrize("first", [FIXED, KUBELET])
@pytest.mark.parametrize("odd", [each for each in NUMBERS if each.name != WIDER], ids=lambda odd: odd.name)
def test_another_compatibility_moves_no_container(odd: Odd, first: str, tmp_path: Path) -> None:
    """Exclusive, shared and confined pods keep their sets at a restart under the other answer."""
    machine, store = recorded(odd.name), MemoryStore()
    world = World(tmp_path, machine=machine, store=store, settings={**SETTINGS, "compatibility": first})
    world.engine.pods_listed({"db", "web", "near"})
    world.run(manifest("db", container(cpu="1")))
    world.run(manifest("web", container(cpu="", memory=""), created=1))
    world.run(manifest("near", container(cpu="200m"), created=2, align="numa,memory"))
    before, held = sets(world), world.holds("db")
    second = FIXED if first == KUBELET else KUBELET
    pods = tuple(world.pods.values())
    world = World(tmp_path, machine=machine, store=store, pods=pods, settings={**SETTINGS, "compatibility": second})
    world.engine.pods_listed({"db", "web", "near"})
    world.see(manifest("db", container(cpu="1")))
    assert (sets(world), world.holds("db")) == (before, held)
    assert held


@pytest.mark.parametrize("odd", [each for each in NUMBERS if "numa" in each.name], ids=lambda odd: odd.name)
def test_nodes_that_are_packages_are_never_written(odd: Odd, tmp_path: Path) -> None:
    """Without NUMA the kernel has node 0 alone: no cgroup asks for another, whatever the kubelet calls a node."""
    machine = recorded(odd.name)
    world = World(tmp_path, machine=machine, settings={**SETTINGS, "compatibility": KUBELET})
    world.engine.pods_listed({"db", "near"})
    world.run(manifest("db"))
    world.run(manifest("near", container(cpu="200m"), created=1, align="numa,memory"))
    assert world.holds("db")
    assert all(each.mems.issubset(NodeSet.of(0)) for each in world.cgroups.observe().cgroups)


@pytest.mark.parametrize(
    ("name", "fixed", "kubelet"),
    [
        ("clusters", "1-3", "1,4-5"),  # cores 0 and 4, 1 and 5, ... are one for the kubelet
        ("dies", "1-3", "1,3,5"),
        ("one-package-set", "1-3", "1-3"),
    ],
)
def test_cpus_are_chosen_by_the_cores_that_each_knows(name: str, fixed: str, kubelet: str, tmp_path: Path) -> None:
    """Three CPUs on machines where the kernel's numbers join what the hardware keeps apart (defects D21, D24)."""
    for answer, expected in ((FIXED, fixed), (KUBELET, kubelet)):
        world = World(tmp_path / answer, machine=recorded(name), settings={**SETTINGS, "compatibility": answer})
        world.engine.pods_listed({"db"})
        world.run(manifest("db", container(cpu="3")))
        assert world.holds("db") == expected, answer


@pytest.mark.parametrize(("name", "fixed", "kubelet"), [("clusters", True, False), ("no-numa", True, True)])
def test_whole_cores_are_those_that_each_knows(name: str, fixed: bool, kubelet: bool) -> None:  # noqa: FBT001 - a table
    """One CPU is a whole core of the hardware, and half a core for a kubelet that takes two for one (defect D21)."""
    options = {"cpuManagerPolicyOptions": {"full-pcpus-only": "true"}}
    for answer, expected in ((FIXED, fixed), (KUBELET, kubelet)):
        node = managers_of(recorded(name), {**SETTINGS, **options, "compatibility": answer})
        assert (
            isinstance(node.admit(node.start(), pod_from(manifest("db", container(cpu="1")))), Admitted) is expected
        )


def test_packages_that_are_nodes_hold_a_pod_apart() -> None:
    """Five CPUs fit the one node of a kernel without NUMA, and neither package of four (defect D23)."""
    settings = {**SETTINGS, "topologyManagerPolicy": "single-numa-node"}
    for answer, expected in ((FIXED, Admitted), (KUBELET, Refused)):
        node = managers_of(recorded("no-numa"), {**settings, "compatibility": answer})
        assert isinstance(node.admit(node.start(), pod_from(manifest("db", container(cpu="5")))), expected)


@pytest.mark.parametrize(
    ("name", "fixed", "kubelet"),
    [
        ("caches-without-ids", ["4-7", "1-3"], ["1-4", "5-7"]),
        ("inner-caches-without-ids", ["4-7", "1-3"], ["1-4", "5-7"]),
    ],
)
def test_a_cache_without_id_attracts_only_under_fixed(name: str, fixed: list[str], kubelet: list[str]) -> None:
    """Pods of four and three CPUs: a whole cache where it is known, the lowest CPUs where it is not (defect D22)."""
    options = {
        "cpuManagerPolicyOptions": {"prefer-align-cpus-by-uncorecache": "true"},
        "topologyManagerPolicy": "none",
    }
    for answer, expected in ((FIXED, fixed), (KUBELET, kubelet)):
        node = managers_of(recorded(name), {**SETTINGS, **options, "compatibility": answer})
        ledger = node.start()
        for count in ("4", "3"):
            ledger = node.admit(ledger, pod_from(manifest(f"db{count}", container(cpu=count)))).ledger
        assert [str(ledger.grant(f"db{count}", "app").cpus) for count in ("4", "3")] == expected, answer


def test_what_is_told_of_pods_names_the_nodes_that_decided(tmp_path: Path) -> None:
    """Two pods on the packages of a kernel without NUMA: table and books call these nodes 0 and 1."""
    world = World(tmp_path, machine=recorded("no-numa"), settings={**SETTINGS, "compatibility": KUBELET})
    world.engine.pods_listed({"db", "next"})
    for number, name in enumerate(("db", "next")):
        world.run(manifest(name, container(cpu="3"), created=number))
    told = view_of(world.engine.ledger, world.engine.node)
    assert [str(row.nodes) for row in told.rows] == ["0", "1"]
    assert [(use.id, str(use.exclusive)) for use in told.nodes] == [(0, "1-3"), (1, "4-6")]
    assert [str(each.affinity["app"].nodes) for each in world.engine.ledger.pods.values()] == ["0", "1"]


def test_a_kernel_without_numa_has_no_memory_to_manage() -> None:
    """The kubelet knows no memory of the packages that it takes for nodes: a setting that needs it is refused.

    Where node 0 is all that there is, it keeps the machine's memory.
    """
    memory = {"memoryManagerPolicy": "Static", "reservedMemory": [{"numaNode": 0, "limits": {"memory": "100Mi"}}]}
    assert managers_of(recorded("no-numa"), {**SETTINGS, **memory}).start().memory.nodes
    with pytest.raises(SettingsError, match="no NUMA nodes"):
        managers_of(recorded("no-numa"), {**SETTINGS, **memory, "compatibility": KUBELET})
    (book,) = (
        managers_of(recorded("no-numa-unknown"), {**SETTINGS, **memory, "compatibility": KUBELET})
        .start()
        .memory.nodes
    )
    assert (book.id, book.free("memory")) == (0, (4 << 30) - (100 << 20))
