"""How many CPUs the system keeps (kubelet rule 4.1), and how many of a small machine (safety rule S14).

Used by `agent.settings.to_rules`, and by `agent.settings.remarks`, which says it.
https://kubernetes.io/docs/tasks/administer-cluster/reserve-compute-resources/
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

from agent.errors import SettingsError
from agent.model.idset import CpuSet
from agent.model.machine import Machine
from agent.model.quantity import nano_of, show_bytes, units
from agent.model.rules import Compatibility, Minor
from agent.settings.kinds import CpuPolicy
from agent.settings.model import Settings
from agent.settings.node_kubelet import UNTOLD

_UNDETERMINED = (
    "[cpumanager] unable to determine reserved CPU resources for static policy; "
    "set kubeReserved.cpu, systemReserved.cpu or reservedSystemCPUs"
)


def reserved_cpus(settings: Settings, machine: Machine) -> CpuSet | None:
    """reservedSystemCPUs, None where it is unset (an empty text is unset, as for the kubelet).

    Raises:
        SettingsError: a CPU that this machine does not have online, or all that it has.
    """
    asked = settings.reserved_system_cpus
    if not asked:
        return None
    if not asked.issubset(machine.online):
        raise SettingsError(
            "reservedSystemCPUs",
            f"reserved-cpus: {asked} is not a subset of online-cpus: {machine.online}; name CPUs that are online",
        )
    everything = machine.online | machine.offline
    if asked == everything and len(everything) > 1 and settings.compatibility.mode is Compatibility.FIXED:
        raise SettingsError("reservedSystemCPUs", "reserves every CPU of this machine; leave some to the pods")
    return asked


def shares_one_cpu(settings: Settings, machine: Machine) -> bool:
    """Whether nothing is reserved and nothing is pinned, because this machine has one CPU (safety rule S14)."""
    fixed = settings.compatibility.mode is Compatibility.FIXED
    return fixed and settings.cpu_manager_policy is CpuPolicy.STATIC and len(machine.online) == 1


def reserved_count(settings: Settings, machine: Machine, node_reserved: int, minor: Minor = UNTOLD) -> int:
    """How many whole CPUs are reserved (kubelet rule 4.1).

    Where neither the settings nor the kubelet reserve any, one core is (safety rule S14): a node whose every CPU is
    exclusive has none left for the kubelet itself. Where that core is all that the machine has, it is one CPU of it.

    Args:
        settings: whose kubeReserved and systemReserved count; reservedSystemCPUs replaces both.
        machine: for the size of a core.
        node_reserved: thousandths of a CPU that the kubelet reserves (capacity less allocatable), 0 when not known.
        minor: the kubelet whose rounding counts under Compatibility.KUBELET.

    Raises:
        SettingsError: more than the machine has; or none at all, under Compatibility.KUBELET.
    """
    named = reserved_cpus(settings, machine)
    if shares_one_cpu(settings, machine):
        return 0
    if named is not None:
        return len(named)
    kubelet = settings.compatibility.mode is Compatibility.KUBELET
    milli = _asked(settings, minor if kubelet else None)
    if milli == 0 and kubelet:
        raise SettingsError("kubeReserved.cpu", _UNDETERMINED)
    online, there = len(machine.online), len(machine.online | machine.offline)
    if not milli and node_reserved:
        return min(units(node_reserved), online - 1)
    if not milli:
        return _core(machine) if _core(machine) < online else 1
    count = units(milli)
    if count > there or (count == there > 1 and not kubelet):
        raise SettingsError(
            "kubeReserved.cpu",
            f"{count} CPUs are reserved, and this machine has {there}; leave some to the pods",
        )
    return min(count, online)  # those that went offline are no mistake of the settings


def small_machine(settings: Settings, machine: Machine, node_reserved: int) -> str:
    """What is reserved otherwise because the machine is small, as a sentence; "" where nothing is."""
    if shares_one_cpu(settings, machine):
        return "this machine has one CPU: none is reserved, no pod gets a CPU of its own, and all pods share it"
    if settings.cpu_manager_policy is CpuPolicy.NONE or settings.reserved_system_cpus:
        return ""
    online, asked = len(machine.online), units(node_reserved)
    if settings.compatibility.mode is Compatibility.KUBELET or _asked(settings, None):
        return ""
    if asked >= online:
        return (
            f"the kubelet keeps {node_reserved}m CPU from pods, which is all of this machine's {_cpus(online)}: "
            f"numalign reserves {online - 1} of them"
        )
    if not asked and _core(machine) >= online:
        return (
            f"no setting reserves CPUs, and the one core of this machine has all its {_cpus(online)}: "
            "numalign reserves one CPU instead of the whole core"
        )
    return ""


def reserved_milli(settings: Settings, minor: Minor) -> int:
    """Thousandths of a CPU that a kubelet keeps from pods, under either policy."""
    named = settings.reserved_system_cpus
    return 1000 * len(named) if named else _asked(settings, minor)


def check_capacity(kept: Mapping[str, int], machine: Machine) -> None:
    """Refuse more than the machine has, as the kubelet does at its start (kubelet rule 5.1).

    Args:
        kept: thousandths of a CPU and bytes of memory that Node Allocatable keeps back, hard eviction included.
        machine: that has them, CPUs that are offline and memory that it does not tell included.

    Raises:
        SettingsError: with the kubelet's sentence.
    """
    cpus, memory = len(machine.online | machine.offline), sum(node.memory for node in machine.nodes)
    if kept["cpu"] > 1000 * cpus:
        _refuse("cpu", f"{kept['cpu']}m", str(cpus))
    if memory and kept["memory"] > memory:
        _refuse("memory", show_bytes(kept["memory"]), show_bytes(memory))


def _refuse(resource: str, reservation: str, capacity: str) -> NoReturn:
    raise SettingsError(
        f"systemReserved.{resource}",
        f'invalid Node Allocatable configuration. Resource "{resource}" has a reservation of {reservation} but '
        f"capacity of {capacity}. Expected capacity >= reservation; reserve less in kubeReserved, systemReserved"
        + (" and evictionHard" if resource == "memory" else ""),
    )


def _core(machine: Machine) -> int:
    return max((len(core) for core in machine.cores), default=1)


def _asked(settings: Settings, minor: Minor | None) -> int:
    """Thousandths of a CPU that kubeReserved and systemReserved come to; `minor`: as that kubelet rounds."""
    parts = [nano_of(each["cpu"]) for each in (settings.kube_reserved, settings.system_reserved) if "cpu" in each]
    if minor is not None and minor >= Minor.V1_37:  # each by itself, to the nearest: parseResourceList
        return sum((-(-nano // 1000) + 500) // 1000 for nano in parts)
    return -(-sum(parts) // 10**6)


def _cpus(count: int) -> str:
    return f"{count} CPU" if count == 1 else f"{count} CPUs"
