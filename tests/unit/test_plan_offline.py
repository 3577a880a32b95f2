"""Plans while CPUs are offline: what is asked for, and what a CPU that comes back amid a plan finds."""

from __future__ import annotations

from dataclasses import replace

from agent.core.cgroups.desired import desired_sets
from agent.core.cgroups.plan import plan
from agent.model.cgroup import Write
from agent.model.idset import CpuSet, NodeSet
from agent.model.ledger import Ledger
from agent.model.machine import Machine
from tests.property.plan_worlds import MACHINE, RULES, World, carry_out
from tests.unit.test_plan import LEDGER, LESS, enforce, in_force, node


def test_an_offline_cpu_is_not_asked_for_on_v1() -> None:
    """V1 refuses an offline CPU, and took it out of the set itself: nothing to write. v2 keeps the wish."""
    for version in (1, 2):
        world = node(version)
        enforce(world)
        online = MACHINE.online - CpuSet.of(5)
        world.kernel.online(online, NodeSet.of(0, 1, 2, 3))
        machine: Machine = replace(MACHINE, cpus=tuple(cpu for cpu in MACHINE.cpus if cpu.id != 5))
        assert plan(world.observe(), desired_sets(LEDGER, world.names, world.observe(), RULES, machine)) == ()
        assert in_force(world)["main"] == "4"


def test_a_cpu_that_comes_back_amid_a_plan_is_its_containers_at_once() -> None:
    """Offline when the plan was made, its pod keeps it in every write: without that, a pod would be moved off it."""
    for back in range(len(_while_offline()[1])):
        world, writes = _while_offline()
        for number, write in enumerate(writes):
            if number == back:
                world.kernel.online(MACHINE.online, NodeSet.of(0, 1, 2, 3))
            carry_out(world, write)
            assert in_force(world)["main"] == ("4-5" if number >= back else "4")


def _while_offline() -> tuple[World, tuple[Write, ...]]:
    """A node where all is in force, CPU 5 offline since; and the plan for a pool that has shrunk."""
    world = node(2)
    enforce(world)
    world.kernel.online(MACHINE.online - CpuSet.of(5), NodeSet.of(0, 1, 2, 3))
    ledger: Ledger = replace(LEDGER, cpus=replace(LEDGER.cpus, shared=LESS))
    return world, plan(world.observe(), desired_sets(ledger, world.names, world.observe(), RULES, MACHINE))
