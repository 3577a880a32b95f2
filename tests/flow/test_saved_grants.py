"""A disk that refuses while the ledger differs from what it holds: what is saved stays in force, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.core.cgroups.desired import DesiredSets
from agent.core.machines.synthetic import parse_synthetic
from agent.host.device_nodes import Usable
from agent.host.nri.decisions import EngineDecisions
from agent.host.scratch import Layout, Scratch
from agent.host.standin import container_id
from agent.model.idset import CpuSet, NodeSet
from agent.model.machine import Machine
from tests.flow.world import World, container, manifest

RO = "cannot be saved: Read-only file system"
TEXT = "2 sockets x 1 node x 4 cores x 1 thread, 4G per node"
MACHINE = parse_synthetic(TEXT)


def _less(machine: Machine) -> Machine:
    """The same with a few pages less, as after an update of its kernel."""
    return replace(machine, nodes=tuple(replace(each, memory=each.memory - (4 << 20)) for each in machine.nodes))


OTHER_SETTINGS: dict[str, Mapping[str, Any]] = {
    "the same": {},
    "memory manager": {
        "memoryManagerPolicy": "Static", "reservedMemory": [{"numaNode": 0, "limits": {"memory": "100Mi"}}],
    },
    "reserved CPUs": {"kubeReserved": {}, "reservedSystemCPUs": "4"},
    "strict": {"cpuManagerPolicyOptions": {"strict-cpu-reservation": "true"}},
    "alignment": {"topologyManagerPolicy": "single-numa-node"},
    "no CPU manager": {"cpuManagerPolicy": "none"},
}  # fmt: skip


def _node(folder: Path, *, v1: bool = False, **settings: Any) -> World:  # noqa: ANN401 - a document's values
    """A node where rt runs on CPUs 1-3 and web shares the others."""
    if v1:
        Scratch.create(folder, cpus=MACHINE.online, nodes=MACHINE.node_set, setup=Layout(version=1))
    world = World(folder, machine=MACHINE, settings=settings)
    world.engine.pods_listed({"rt", "web"})
    world.run(manifest("rt", container(cpu="3"), container("log", "500m")))
    world.run(manifest("web", container(cpu="500m"), created=1))
    assert (world.effective("rt"), world.effective("web")) == ("1-3", "0,4-7")
    return world


def _again(before: World, machine: Machine, settings: Mapping[str, Any], *, late: bool = False) -> World:
    """The node after the agent has begun again, with all that API and runtime tell; `late`: after the start."""
    world = World(
        before.tree.folder, machine=machine, settings={**before.settings, **settings},
        store=before.store, pods=() if late else before.pods.values(),
    )  # fmt: skip
    if late:
        world.pods = dict(before.pods)
        world.engine.adopt(before.pods.values(), world.names(), {}, set(before.pods))
    world.engine.pods_seen(list(before.pods.values()), ran=set(before.pods))
    world.engine.containers_seen(world.names())
    world.engine.all_named()
    world.engine.pods_listed(set(before.pods))
    return world


def _answer(world: World, uid: str, name: str = "app") -> DesiredSets:
    return EngineDecisions(world.engine, lambda _address: Usable((), "")).desired(uid, name)


def _a_pod_comes(world: World) -> None:
    """One that shares the pool, and one that asks for CPUs of its own; both are started."""
    world.engine.reconcile()
    world.run(manifest("late", container(cpu="500m"), created=5))
    world.run(manifest("more", container(cpu="1"), created=6))
    assert not CpuSet.parse(world.effective("late")) & CpuSet.parse("1-3")
    assert not CpuSet.parse(world.effective("more")) & CpuSet.parse("1-3")
    assert world.holds("more") == ""
    if world.engine.node.rules.cpu.static:  # else it asks for nothing that must be saved
        assert "Read-only" in world.ears.refused_["more"].message


@pytest.mark.parametrize("other", OTHER_SETTINGS)
@pytest.mark.parametrize("v1", [False, True])
def test_after_a_start_on_a_read_only_disk_what_is_saved_is_in_force(tmp_path: Path, other: str, *, v1: bool) -> None:
    """Memory, machine or settings differ and cannot be saved: the owner keeps its CPUs, pods that come stay off them.

    A container of the owner that starts again is answered with its saved set.
    """
    first = _node(tmp_path, v1=v1)
    saved = first.store.saved
    first.store.full = RO
    again = _again(first, _less(MACHINE), OTHER_SETTINGS[other])
    assert not again.engine.snapshot.stands
    assert again.store.saved is saved
    _a_pod_comes(again)
    assert again.effective("rt") == "1-3"
    assert (_answer(again, "rt").cpus, _answer(again, "rt").exclusive) == (CpuSet.parse("1-3"), True)
    again.tree.remove_container("rt", container_id("rt", "app"))
    again.tree.add_container("rt", container_id("rt", "app"))
    again.engine.reconcile()
    assert again.effective("rt") == "1-3"
    assert again.engine.snapshot.unenforced == {}
    assert not CpuSet.parse(again.effective("rt", "log")) & CpuSet.parse("1-3")
    third = _again(again, _less(MACHINE), OTHER_SETTINGS[other])  # killed in the middle
    assert (third.effective("rt"), third.holds("rt"), third.store.saved) == ("1-3", "1-3", saved)
    third.store.full = ""
    third.engine.reconcile()
    assert third.store.saved == third.engine.ledger
    assert third.effective("rt") == "1-3"


@pytest.mark.parametrize("other", OTHER_SETTINGS)
def test_what_changes_on_a_full_disk_leaves_what_is_saved_in_force(tmp_path: Path, other: str) -> None:
    """The same on an agent that runs on: the kernel tells another MemTotal, or the settings change."""
    world = _node(tmp_path)
    world.store.full = RO
    world.engine.changed(world.node(_less(MACHINE), **OTHER_SETTINGS[other]))
    assert not world.engine.snapshot.stands
    _a_pod_comes(world)
    world.tree.kernel_write(world.path("web", "app"), "cpuset.cpus", "0-7")
    world.engine.reconcile()
    assert (world.effective("rt"), world.effective("web")) == ("1-3", "0,4-7")


@pytest.mark.parametrize("less", [False, True])
def test_a_cpu_that_is_back_goes_to_no_pod_while_the_store_grants_it(tmp_path: Path, *, less: bool) -> None:
    """It went offline and came back while nothing could be saved: the pool does not widen before a save.

    Its container lost it, and does not get it back, whether or not memory differs meanwhile.
    """
    world = _node(tmp_path)
    world.store.full = RO
    for online in ("0-2,4-7", "0-7"):
        machine = parse_synthetic(f"{TEXT}, offline 3" if online != "0-7" else TEXT)
        world.tree.online(CpuSet.parse(online))
        world.engine.changed(world.node(_less(machine) if less else machine))
        world.engine.reconcile()
        assert world.holds("rt") == "1-2"
        assert world.effective("web") == "0,4-7"
    world.store.full = ""
    world.engine.reconcile()
    assert (world.holds("rt"), world.effective("rt"), world.effective("web")) == ("1-2", "1-2", "0,3-7")


@pytest.mark.parametrize("late", [False, True])
def test_what_was_found_by_its_cgroups_is_left_alone_until_it_is_saved(tmp_path: Path, *, late: bool) -> None:
    """Ledger lost on a disk that refuses: what was found gets nothing new, and pods that come stay off its CPUs."""
    first = _node(tmp_path)
    first.store.full, first.store.saved = RO, None
    again = _again(first, MACHINE, {}, late=late)
    assert again.store.saved is None
    _a_pod_comes(again)
    assert (again.holds("rt"), again.effective("rt")) == ("1-3", "1-3")
    assert _answer(again, "rt") == DesiredSets()
    again.tree.kernel_write(again.path("rt", "app"), "cpuset.cpus", "1-2,5")
    again.engine.reconcile()
    assert again.effective("rt") == "1-2,5"
    assert "unsaved: the ledger that has it cannot be saved" in again.ears.unenforced["rt"]["app"]
    again.store.full = ""
    again.engine.reconcile()
    assert again.effective("rt") == "1-3"
    assert _answer(again, "rt").cpus == CpuSet.parse("1-3")


def test_memory_nodes_that_are_saved_are_answered_though_another_node_is_gone(tmp_path: Path) -> None:
    """A node of the machine is gone and cannot be saved: bound memory on the other one is told the runtime still."""
    world = _node(tmp_path, **OTHER_SETTINGS["memory manager"])
    world.store.full = RO
    world.engine.changed(world.node(parse_synthetic("1 socket x 1 node x 4 cores x 1 thread, 4G per node")))
    assert _answer(world, "rt") == DesiredSets(CpuSet.parse("1-3"), NodeSet.of(0), exclusive=True)


@pytest.mark.parametrize("full", ["", RO])
def test_a_cpu_that_went_offline_costs_no_other_one_where_the_ledger_is_lost(tmp_path: Path, full: str) -> None:
    """The container's set still names it; the rest of the set stays its own, also while nothing can be saved."""
    first = _node(tmp_path)
    first.store.full, first.store.saved = full, None
    first.tree.online(CpuSet.parse("0,2-7"))
    again = _again(first, parse_synthetic(f"{TEXT}, offline 1"), {})
    assert CpuSet.parse("2-3").issubset(CpuSet.parse(again.holds("rt")))
    assert not CpuSet.parse(again.effective("web")) & CpuSet.parse("2-3")


@pytest.mark.parametrize("late", [False, True], ids=["API at the start", "API late"])
def test_cpus_that_are_reserved_since_stay_with_their_container(tmp_path: Path, *, late: bool) -> None:
    """A reservation moved (by settings, or a CPU that went offline), and the ledger is lost: its set stands alone."""
    first = _node(tmp_path)
    first.store.saved = None
    again = _again(first, MACHINE, {"kubeReserved": {}, "reservedSystemCPUs": "3"}, late=late)
    assert (again.holds("rt"), again.effective("rt")) == ("1-3", "1-3")
    assert not CpuSet.parse(again.effective("web")) & CpuSet.parse("1-3")
