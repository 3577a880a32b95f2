"""From Settings and a machine to Rules: what the reservations come to, and what the machine cannot give.

Sources: kubelet rule 4.1 (reserved CPUs), 5.1 (reserved memory),
https://kubernetes.io/docs/tasks/administer-cluster/reserve-compute-resources/.
"""

from __future__ import annotations

import struct

from agent.errors import SettingsError
from agent.model.idset import CpuSet
from agent.model.machine import Machine
from agent.model.quantity import parse_milli, units
from agent.model.rules import Ceilings, Compatibility, CpuOptions, CpuRules, MemoryRules, Policy, Rules
from agent.settings.cpu_options import check_machine, cpu_options
from agent.settings.gates import EMPTY_RESOURCES, POD_LEVEL_MANAGERS, gate_on
from agent.settings.kinds import CpuPolicy, MemoryPolicy
from agent.settings.memory_reserved import memory_rules
from agent.settings.model import Settings
from agent.settings.node_kubelet import followed
from agent.settings.topology_options import topology_rules

DEFAULT_EVICTION = "100Mi"
"""evictionHard's memory.available where the kubelet is told none."""
_MEMORY_SIGNAL = "memory.available"


def rules_of(settings: Settings, machine: Machine, *, node_reserved: int = 0, kubelet: str = "") -> Rules:
    """The rules that decisions follow on this machine.

    Args:
        settings: as parsed.
        machine: what the reservations and options are checked against.
        node_reserved: thousandths of a CPU that the kubelet keeps from pods (capacity less allocatable), 0 when not
            known. It counts where our own settings reserve nothing (safety rule S14).
        kubelet: the version of the node's kubelet, "" when not known. It counts under `compatibility: kubelet`.

    Raises:
        SettingsError: what this machine cannot give, with the kubelet's sentence where it has one.
    """
    answers = settings.compatibility
    minor = followed(answers, kubelet)
    gates = settings.feature_gates
    topology = topology_rules(
        settings.topology_manager_policy,
        settings.topology_manager_scope,
        settings.topology_manager_policy_options,
        machine=machine,
        compatibility=settings.compatibility.mode,
    )
    return Rules(
        topology=topology,
        cpu=_cpu_rules(settings, machine, topology.policy, node_reserved),
        memory=_memory_rules(settings, machine),
        ceilings=Ceilings(settings.exclusive_cpus.per_namespace, settings.exclusive_cpus.limits),
        devices=tuple(device.selector() for device in settings.devices),
        compatibility=settings.compatibility.mode,
        minor=minor,
        pod_level_managers=gate_on(gates, POD_LEVEL_MANAGERS, answers, minor, default=False),
        empty_resources_ignored=gate_on(gates, EMPTY_RESOURCES, answers, minor, default=True),
        on_misalignment=settings.on_misalignment,
        on_memory_shortage=settings.on_memory_shortage,
        enforcement=settings.enforcement,
        pcie=settings.pcie_locality,
        exclusive=settings.exclusive_containers,
        exclusive_namespaces=settings.exclusive_namespaces,
        mixed=settings.mixed_shared_cpus,
    )


def cpu_options_of(settings: Settings) -> CpuOptions:
    """The CPU manager's options, checked without a machine.

    The gates for alpha and beta options are open under Compatibility.FIXED unless the file closes them: what is alpha
    in the kubelet is not less finished here.
    """
    fixed = settings.compatibility.mode is Compatibility.FIXED
    gates = settings.feature_gates
    return cpu_options(
        settings.cpu_manager_policy_options,
        alpha=gates.get("CPUManagerPolicyAlphaOptions", fixed),
        beta=gates.get("CPUManagerPolicyBetaOptions", True),
    )


def _cpu_rules(settings: Settings, machine: Machine, policy: Policy, node_reserved: int) -> CpuRules:
    if settings.cpu_manager_policy is CpuPolicy.NONE:
        return CpuRules(static=False)
    options = cpu_options_of(settings)
    sockets = len(machine.packages) if machine.sockets is None else machine.sockets
    check_machine(options, policy, sockets=sockets, nodes=sum(1 for node in machine.nodes if node.cpus))
    return CpuRules(
        options=options,
        reserved=reserved_cpus(settings, machine),
        reserved_count=reserved_count(settings, machine, node_reserved),
    )


def _memory_rules(settings: Settings, machine: Machine) -> MemoryRules:
    if settings.memory_manager_policy is MemoryPolicy.NONE:
        return MemoryRules(tier=settings.memory_tier)
    if not machine.kernel_nodes:
        raise SettingsError(
            "memoryManagerPolicy",
            "this kernel has no NUMA nodes, and a kubelet knows no memory of the packages that it takes for nodes "
            "(defect D23); set it to None, or compatibility to fixed",
        )
    return memory_rules(
        [
            (each.numa_node, {name: units(milli) for name, milli in each.limits.items()})
            for each in settings.reserved_memory
        ],
        {"memory": reserved_memory(settings, machine)},
        machine,
        tier=settings.memory_tier,
        compatibility=settings.compatibility.mode,
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
    if asked == machine.online | machine.offline and settings.compatibility.mode is Compatibility.FIXED:
        raise SettingsError("reservedSystemCPUs", "reserves every CPU of this machine; leave some to the pods")
    return asked


def reserved_count(settings: Settings, machine: Machine, node_reserved: int) -> int:
    """How many whole CPUs are reserved (kubelet rule 4.1).

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
    if milli == 0 and settings.compatibility.mode is Compatibility.KUBELET:
        raise SettingsError(
            "kubeReserved.cpu",
            "[cpumanager] unable to determine reserved CPU resources for static policy; "
            "set kubeReserved.cpu, systemReserved.cpu or reservedSystemCPUs",
        )
    count = units(milli or node_reserved) or max((len(core) for core in machine.cores), default=1)
    there = len(machine.online | machine.offline)
    if count >= there > 1 or count > there:
        raise SettingsError(
            "kubeReserved.cpu",
            f"{count} CPUs are reserved, and this machine has {there}; leave some to the pods",
        )
    return min(count, len(machine.online))  # those that went offline are nobody's mistake


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
    # The kubelet keeps the share as a float32 and multiplies as float64: the sums of reserved memory are
    # compared exactly (kubelet rule 5.1).
    return int(capacity * _float32(_float32(float(text[:-1])) / 100))


def reserved_memory(settings: Settings, machine: Machine) -> int:
    """Bytes of memory that Node Allocatable keeps back: kubeReserved + systemReserved + hard eviction (rule 5.1)."""
    kept = sum(units(part.get("memory", 0)) for part in (settings.kube_reserved, settings.system_reserved))
    return kept + eviction_memory(settings, machine)


def _float32(number: float) -> float:
    return float(struct.unpack("f", struct.pack("f", number))[0])
