"""From Settings and a machine to Rules: what the reservations come to, and what the machine cannot give.

Used by `agent.settings.model.Settings.rules` only. Sources: spec 4.1 (reserved CPUs), 5.1 (reserved memory),
https://kubernetes.io/docs/tasks/administer-cluster/reserve-compute-resources/.
"""

from __future__ import annotations

import struct

from agent.errors import SettingsError
from agent.model.idset import CpuSet
from agent.model.machine import Machine
from agent.model.quantity import parse_milli, units
from agent.model.rules import Compatibility
from agent.settings.model import Settings

DEFAULT_EVICTION = "100Mi"
"""evictionHard's memory.available where the kubelet is told none."""
_MEMORY_SIGNAL = "memory.available"


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
    if asked == machine.online and settings.compatibility is Compatibility.FIXED:
        raise SettingsError("reservedSystemCPUs", "reserves every CPU of this machine; leave some to the pods")
    return asked


def reserved_count(settings: Settings, machine: Machine, node_reserved: int) -> int:
    """How many whole CPUs are reserved (spec 4.1).

    Where neither the settings nor the kubelet reserve any, one core is (safety rule S14): a node whose every CPU is
    exclusive has none left for the kubelet itself.

    Args:
        settings: whose kubeReserved and systemReserved count; reservedSystemCPUs replaces both.
        machine: for the size of a core.
        node_reserved: thousandths of a CPU that the kubelet reserves (capacity less allocatable), 0 when not known.

    Raises:
        SettingsError: more than the machine has; or none at all, under Compatibility.KUBELET.
    """
    named = reserved_cpus(settings, machine)
    if named is not None:
        return len(named)
    milli = sum(part.get("cpu", 0) for part in (settings.kube_reserved, settings.system_reserved))
    if milli == 0 and settings.compatibility is Compatibility.KUBELET:
        raise SettingsError(
            "kubeReserved.cpu",
            "[cpumanager] unable to determine reserved CPU resources for static policy; "
            "set kubeReserved.cpu, systemReserved.cpu or reservedSystemCPUs",
        )
    count = units(milli or node_reserved) or max((len(core) for core in machine.cores), default=1)
    if count >= len(machine.online) > 1 or count > len(machine.online):
        raise SettingsError(
            "kubeReserved.cpu",
            f"{count} CPUs are reserved, and this machine has {len(machine.online)}; leave some to the pods",
        )
    return count


def eviction_memory(settings: Settings, machine: Machine) -> int:
    """Bytes of evictionHard's memory.available; a percentage is of the machine's memory."""
    signals = settings.eviction_hard
    if signals is None or (settings.merge_default_eviction_settings and _MEMORY_SIGNAL not in signals):
        text = DEFAULT_EVICTION
    else:
        text = signals.get(_MEMORY_SIGNAL, "0")
    if not text.endswith("%"):
        return units(parse_milli(text))
    if text in {"0%", "100%"}:
        return 0  # the kubelet drops such a threshold
    capacity = sum(node.memory for node in machine.nodes)
    # The kubelet keeps the share as a float32 and multiplies as float64: the sums of spec 5.1 are compared exactly.
    return int(capacity * _float32(_float32(float(text[:-1])) / 100))


def reserved_memory(settings: Settings, machine: Machine) -> int:
    """Bytes of memory that Node Allocatable keeps back: kubeReserved + systemReserved + hard eviction (spec 5.1)."""
    kept = sum(units(part.get("memory", 0)) for part in (settings.kube_reserved, settings.system_reserved))
    return kept + eviction_memory(settings, machine)


def _float32(number: float) -> float:
    return float(struct.unpack("f", struct.pack("f", number))[0])
