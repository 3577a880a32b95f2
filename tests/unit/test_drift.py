"""Who changed a set: every cause by example, from a modelled kernel."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from agent.core.cgroups.desired import desired_sets
from agent.core.cgroups.drift import Last, classify, find, label, trespassing
from agent.core.cgroups.plan import CPUS, plan
from agent.core.cgroups.verify import CgroupCase, Narrow, check
from agent.host.cgroups.mounts import find_mounts
from agent.host.scratch import Layout, Scratch
from agent.model.cgroup import Cause, Drift, Level, Observed
from agent.model.idset import CpuSet, NodeSet
from agent.model.machine import Machine
from agent.model.pod import Qos
from tests.property.plan_worlds import MACHINE, RULES, World
from tests.unit.test_plan import LEDGER, OWN, POD, POOL, enforce, node

MAIN = f"{POD}/main"
V2_OR_V1 = pytest.mark.parametrize("version", [1, 2])


def enforced(version: int) -> tuple[World, Last]:
    """A node where the ledger is in force, and what was written."""
    world = node(version)
    enforce(world)
    wanted = desired_sets(LEDGER, world.names, world.observe(), RULES, MACHINE)
    return world, {(path, "cpuset.cpus"): str(want.cpus) for path, want in wanted.items()}


def drifts(world: World, last: Last, machine: Machine = MACHINE) -> list[tuple[str, Cause]]:
    """Path and cause of every drift."""
    return [(drift.path, drift.cause) for drift in found(world, last, machine)]


def found(world: World, last: Last, machine: Machine = MACHINE) -> tuple[Drift, ...]:
    """Every drift."""
    observed = world.observe()
    return find(desired_sets(LEDGER, world.names, observed, RULES, machine), last, observed, machine)


@V2_OR_V1
def test_no_drift_where_all_is_well(version: int) -> None:
    """A node in order has none; nor has one that was never written: that is work, not drift."""
    world, last = enforced(version)
    assert drifts(world, last) == []
    assert drifts(node(version), {}) == []


@V2_OR_V1
def test_another_writer(version: int) -> None:
    """A set that is neither ours, nor empty, nor the parent's: foreign; the repair carries the cause."""
    world, last = enforced(version)
    world.kernel.write(MAIN, "cpuset.cpus", "5-6")
    assert drifts(world, last) == [(MAIN, Cause.DRIFT_FOREIGN)]
    writes = label(
        plan(world.observe(), desired_sets(LEDGER, world.names, world.observe(), RULES, MACHINE)), found(world, last)
    )
    assert {(write.path, write.cause) for write in writes} == {(MAIN, Cause.DRIFT_FOREIGN)}


@pytest.mark.parametrize(
    ("populated", "effective", "cause"),
    [
        (False, "0-7", Cause.DRIFT_EMPTIED), (True, "0-7", Cause.DRIFT_UNDONE), (True, "own", Cause.DRIFT_EMPTIED),
    ],
)  # fmt: skip
def test_systemd_emptied_it(*, populated: bool, effective: str, cause: Cause) -> None:
    """V2, daemon-reload: no fault without processes; with some, which Linux 7 takes, a cause of its own.

    It is no fault either where they may use nothing but what is their own, as in a pod's slice that may use all CPUs.
    """
    world, last = enforced(2)
    world.kernel.store.put(MAIN, "cpuset.cpus", "")
    cgroup = next(each for each in world.observe().cgroups if each.path == MAIN)
    cpus = OWN if effective == "own" else CpuSet.parse(effective)
    seen = replace(cgroup, populated=populated, effective_cpus=cpus)
    assert classify(CPUS, OWN, last, seen, None, MACHINE) is cause


def test_s6_processes_on_cpus_of_another_pod_are_seen_whatever_the_cause() -> None:
    """A slice that has more than the pool, with processes in it; not an empty one, nor one that has less."""
    world, _ = enforced(2)
    shared = next(each.path for each in world.observe().cgroups if each.level is Level.QOS)

    def seen(*, populated: bool = True) -> frozenset[str]:
        cgroups = tuple(replace(each, populated=populated) for each in world.observe().cgroups)
        observed = Observed(2, cgroups)
        return trespassing(LEDGER, desired_sets(LEDGER, world.names, observed, RULES, MACHINE), observed)

    assert seen() == frozenset()
    world.kernel.write(shared, "cpuset.cpus", "0-15")
    assert seen() == {shared}
    assert seen(populated=False) == frozenset()
    world.kernel.write(shared, "cpuset.cpus", "0")
    assert seen() == frozenset()


@V2_OR_V1
def test_the_runtime_put_the_parents_set_back(version: int) -> None:
    """All that the parent has: what a runtime or systemd writes that knows of no set."""
    world, last = enforced(version)
    world.kernel.write(MAIN, "cpuset.cpus", "0-15")
    assert drifts(world, last) == [(MAIN, Cause.DRIFT_RESET)]


def test_an_old_runc_told_systemd_another_set() -> None:
    """V2, daemon-reload, runc before 1.1.6: the bytes of the set in reverse are systemd's, and nobody fights."""
    world, _ = enforced(2)
    cgroup = next(each for each in world.observe().cgroups if each.path == MAIN)
    now = replace(cgroup, cpus=CpuSet.parse("0-3"))
    last = {(MAIN, CPUS): "8-11"}
    assert classify(CPUS, CpuSet.parse("8-11"), last, now, None, MACHINE) is Cause.DRIFT_RESET


def test_the_parent_shrank() -> None:
    """V2: the container asks for what it should, and its parent no longer has it."""
    world, last = enforced(2)
    world.kernel.write(POD, "cpuset.cpus", "0-4")
    assert (MAIN, Cause.DRIFT_PARENT) in drifts(world, last)
    assert (POD, Cause.DRIFT_FOREIGN) in drifts(world, last)


def test_the_parent_shrank_on_v1() -> None:
    """V1: whoever shrinks the parent must shrink the child first."""
    world, last = enforced(1)
    world.kernel.write(MAIN, "cpuset.cpus", "4")
    for name in ("box", "side", "conmon-main"):
        world.kernel.write(f"{POD}/{name}", "cpuset.cpus", str(POOL))
    world.kernel.write(POD, "cpuset.cpus", str(POOL | CpuSet.of(4)))
    assert (MAIN, Cause.DRIFT_PARENT) in drifts(world, last)


@V2_OR_V1
def test_a_cpu_went_offline(version: int) -> None:
    """The kernel took it away; on v1 out of the set, on v2 out of what is in force."""
    world, last = enforced(version)
    world.kernel.online(MACHINE.online - CpuSet.of(5), NodeSet.of(0, 1, 2, 3))
    machine = replace(MACHINE, cpus=tuple(cpu for cpu in MACHINE.cpus if cpu.id != 5))
    causes = dict(drifts(world, last, machine))
    assert causes.get(MAIN) == (Cause.DRIFT_OFFLINE if version == 2 else None)
    # on v1 the wanted set is cut to what is online, so that it is in order until the CPU is back
    world.kernel.online(MACHINE.online, NodeSet.of(0, 1, 2, 3))
    back = dict(drifts(world, last))
    assert back.get(MAIN) == (Cause.DRIFT_PARENT if version == 1 else None)  # v1: its pod lost the CPU for good too


@pytest.mark.parametrize(
    ("cpus", "nodes", "stay"), [("0-1", "0-1", True), ("0", "0-1", True), ("2-3", "0-1", False), ("0-3", "1", False)]
)
def test_on_v1_processes_leave_a_cgroup_that_lost_all_its_cpus_or_nodes(
    tmp_path: Path, cpus: str, nodes: str, *, stay: bool
) -> None:
    """As the kernel has it: else what a trial run shows of a CPU that goes would be wrong for everybody else."""
    tree = Scratch.create(tmp_path / "tree", cpus=CpuSet.parse("0-3"), nodes=NodeSet.of(0, 1), setup=Layout(1))
    tree.add_pod("db", Qos.GUARANTEED)
    path = tree.add_container("db", "a" * 64)
    tree.kernel_write(path, "cpuset.cpus", "0-1")
    tree.kernel_write(path, "cpuset.mems", "0")
    tree.online(CpuSet.parse(cpus), NodeSet.parse(nodes))
    file = Path(find_mounts(str(tree.folder)).cpuset + path, "cgroup.procs")
    assert bool(file.read_text("ascii").split()) is stay


@V2_OR_V1
def test_a_new_grant_is_no_drift(version: int) -> None:
    """What differs because the ledger changed is for the plan alone."""
    world, last = enforced(version)
    changed = replace(
        LEDGER, cpus=replace(LEDGER.cpus, assigned={"db": {"main": CpuSet.of(4)}}, shared=POOL | CpuSet.of(5))
    )
    observed = world.observe()
    wanted = desired_sets(changed, world.names, observed, RULES, MACHINE)
    assert find(wanted, last, observed, MACHINE) == ()


def test_nonsense_in_the_memory_of_writes_is_no_drift() -> None:
    """A text that is no set (read back from a file that is not ours) counts as never written."""
    world, _ = enforced(2)
    world.kernel.write(MAIN, "cpuset.cpus", "4")
    assert drifts(world, {(MAIN, "cpuset.cpus"): "max"}) == []


@V2_OR_V1
def test_s15_a_thread_that_chose_fewer_cpus_is_told_and_is_no_drift(version: int) -> None:
    """Who wonders why granted CPUs are idle finds the thread. One on all of them, or on others, is not named."""
    world, _ = enforced(version)
    affinities = {MAIN: {7: CpuSet.of(4), 8: OWN, 9: CpuSet.of(4, 6)}}
    report = check(CgroupCase(LEDGER, world.names, world.observe(), RULES, MACHINE, affinities=affinities))
    assert report.narrow == (Narrow(MAIN, "ns/db", "main", 7, "4", "4-5"),)
    assert report.drifted == ()


@pytest.mark.parametrize(
    ("threads", "inherited"),
    [
        ({7: "4"}, [True]),
        ({7: "4", 8: "4"}, [True, True]),
        ({8: "4-5", 7: "4"}, [False]),
        ({7: "4-5", 8: "4"}, [False]),
        ({7: "4", 8: "5"}, [False, False]),
    ],
)
def test_s15_what_a_container_was_started_with_is_told_apart(threads: dict[int, str], inherited: list[bool]) -> None:
    """A runtime's CPUAffinity= shows in the first thread and in all beside it; else the threads chose their own."""
    world, _ = enforced(2)
    affinities = {MAIN: {number: CpuSet.parse(cpus) for number, cpus in threads.items()}}
    report = check(CgroupCase(LEDGER, world.names, world.observe(), RULES, MACHINE, affinities=affinities))
    assert [each.inherited for each in report.narrow] == inherited
    assert report.drifted == ()
