"""From Settings and a machine to Rules: what the reservations come to, and what the machine cannot give.

Sources: kubelet rule 4.1 (reserved CPUs: `agent.settings.reserved_cpus`), 5.1 (reserved memory),
https://kubernetes.io/docs/tasks/administer-cluster/reserve-compute-resources/.
"""

from __future__ import annotations

import struct

from agent.errors import SettingsError
from agent.model.machine import Machine
from agent.model.quantity import nano_of, parse_milli, show_bytes, units
from agent.model.rules import (
    Ceilings,
    Compatibility,
    CpuOptions,
    CpuRules,
    MemoryRules,
    Minor,
    Policy,
    Rules,
    TopologyRules,
)
from agent.settings.cpu_options import check_machine, cpu_options
from agent.settings.gates import (
    ALPHA_OPTIONS,
    BETA_OPTIONS,
    EMPTY_RESOURCES,
    FIX_DEFAULTING,
    POD_LEVEL_MANAGERS,
    TOPOLOGY_BETA_OPTIONS,
    TOPOLOGY_OPTIONS,
    gate_on,
    in_force,
    switched_off,
)
from agent.settings.kinds import CpuPolicy, MemoryPolicy
from agent.settings.memory_reserved import memory_rules
from agent.settings.model import Settings
from agent.settings.node_kubelet import followed
from agent.settings.reserved_cpus import (
    check_capacity,
    reserved_count,
    reserved_cpus,
    reserved_milli,
    shares_one_cpu,
)
from agent.settings.topology_options import no_options, topology_rules

DEFAULT_EVICTION = "100Mi"
"""evictionHard's memory.available where the kubelet is told none."""
_MEMORY_SIGNAL = "memory.available"
_NO_THRESHOLD = ("0%", "100%")
"""The kubelet drops a threshold of these texts."""


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
    topology = topology_rules_of(settings, minor, machine)
    if answers.mode is Compatibility.KUBELET:
        check_capacity(
            {"cpu": reserved_milli(settings, minor), "memory": reserved_memory(settings, machine)}, machine
        )
    return Rules(
        topology=topology,
        cpu=_cpu_rules(settings, machine, topology.policy, node_reserved, minor),
        memory=_memory_rules(settings, machine),
        ceilings=Ceilings(settings.exclusive_cpus.per_namespace, settings.exclusive_cpus.limits),
        devices=tuple(device.selector() for device in settings.devices),
        compatibility=settings.compatibility.mode,
        minor=minor,
        pod_level_managers=gate_on(gates, POD_LEVEL_MANAGERS, answers, minor, default=False),
        empty_resources_ignored=gate_on(gates, EMPTY_RESOURCES, answers, minor, default=True),
        requests_as_written=gate_on(gates, FIX_DEFAULTING, answers, minor, default=True),
        on_misalignment=settings.on_misalignment,
        on_memory_shortage=settings.on_memory_shortage,
        enforcement=settings.enforcement,
        pcie=settings.pcie_locality,
        exclusive=settings.exclusive_containers,
        exclusive_namespaces=settings.exclusive_namespaces,
        mixed=settings.mixed_shared_cpus,
        memory_policies=settings.nri.memory_policy,
    )


def topology_rules_of(settings: Settings, minor: Minor | None, machine: Machine | None = None) -> TopologyRules:
    """The Topology Manager's rules, checked against a machine too where one is given.

    Args:
        settings: as parsed.
        minor: the kubelet whose answers are given; None where that is not known.
        machine: whose NUMA nodes count.

    Raises:
        SettingsError: the first of the kubelet's checks that fails.
    """
    answers, gates = settings.compatibility, settings.feature_gates
    options = settings.topology_manager_policy_options
    if options and switched_off(gates, TOPOLOGY_OPTIONS, answers, minor):
        raise no_options(options)
    return topology_rules(
        settings.topology_manager_policy,
        settings.topology_manager_scope,
        options,
        machine=machine,
        compatibility=answers.mode,
        beta=not (minor is Minor.V1_34 and switched_off(gates, TOPOLOGY_BETA_OPTIONS, answers, minor)),
    )


def cpu_options_of(settings: Settings, minor: Minor | None = None) -> CpuOptions:
    """The CPU manager's options, checked without a machine.

    Args:
        settings: whose options.
        minor: the kubelet whose answers are given; None where that is not known.

    The gates for alpha and beta options are open under Compatibility.FIXED unless the file closes them: what is alpha
    in the kubelet is not less finished here.
    """
    fixed = settings.compatibility.mode is Compatibility.FIXED
    gates = in_force(settings.feature_gates, settings.compatibility, max(Minor))  # of one stage in all minors
    return cpu_options(
        settings.cpu_manager_policy_options,
        alpha=gates.get(ALPHA_OPTIONS, fixed),
        beta=gates.get(BETA_OPTIONS, True),
        minor=None if fixed else minor,
    )


def _cpu_rules(
    settings: Settings, machine: Machine, policy: Policy, node_reserved: int, minor: Minor
) -> CpuRules:  # fmt: skip
    if settings.cpu_manager_policy is CpuPolicy.NONE:
        if settings.compatibility.mode is Compatibility.KUBELET:
            reserved_cpus(settings, machine)  # the kubelet looks for these CPUs under either policy
        return CpuRules(static=False)
    options = cpu_options_of(settings, minor)
    sockets = len(machine.packages) if machine.sockets is None else machine.sockets
    check_machine(options, policy, sockets=sockets, nodes=sum(1 for node in machine.nodes if node.cpus))
    reserved, count = reserved_cpus(settings, machine), reserved_count(settings, machine, node_reserved, minor)
    if shares_one_cpu(settings, machine):
        return CpuRules(static=False)
    return CpuRules(options=options, reserved=reserved, reserved_count=count)


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
        reserved_by_node(settings),
        {"memory": reserved_memory(settings, machine)},
        machine,
        tier=settings.memory_tier,
        compatibility=settings.compatibility.mode,
        parts=sum_of_memory(settings, machine),
    )


def reserved_by_node(settings: Settings) -> list[tuple[int, dict[str, int]]]:
    """Bytes that reservedMemory keeps: (NUMA node, amounts), in the order of the file."""
    return [
        (each.numa_node, {name: units(milli) for name, milli in each.limits.items()})
        for each in settings.reserved_memory
    ]


def eviction_memory(settings: Settings, machine: Machine) -> int:
    """Bytes of evictionHard's memory.available; a percentage is of the machine's memory."""
    text = _eviction_text(settings)
    if not text.endswith("%"):
        return units(parse_milli(text))
    if text in _NO_THRESHOLD:
        return 0
    capacity = sum(node.memory for node in machine.nodes)
    # The kubelet keeps the share as a float32 and multiplies as float64: the sums of reserved memory are
    # compared exactly (kubelet rule 5.1).
    return int(capacity * _float32(_float32(float(text[:-1])) / 100))


def eviction_needs_machine(settings: Settings) -> bool:
    """Whether evictionHard's memory.available is a share of the machine's memory."""
    text = _eviction_text(settings)
    return text.endswith("%") and text not in _NO_THRESHOLD


def _eviction_text(settings: Settings) -> str:
    signals = settings.eviction_hard
    if signals is None or (settings.merge_default_eviction_settings and _MEMORY_SIGNAL not in signals):
        return DEFAULT_EVICTION
    return signals.get(_MEMORY_SIGNAL, "0")


def reserved_memory(settings: Settings, machine: Machine) -> int:
    """Bytes of memory that Node Allocatable keeps back: kubeReserved + systemReserved + hard eviction (rule 5.1)."""
    return told_memory(settings) + eviction_memory(settings, machine)


def told_memory(settings: Settings) -> int:
    """Bytes of memory that kubeReserved and systemReserved come to, without hard eviction."""
    parts = (nano_of(each.get("memory", 0)) for each in (settings.kube_reserved, settings.system_reserved))
    return -(-sum(parts) // 10**9)


def sum_of_memory(settings: Settings, machine: Machine) -> str:
    """The parts of `reserved_memory`, as a refusal names them: "2Gi + 2Gi + 100Mi"."""
    parts = (settings.kube_reserved.get("memory", 0), settings.system_reserved.get("memory", 0))
    return " + ".join(show_bytes(size) for size in (*map(units, parts), eviction_memory(settings, machine)))


def _float32(number: float) -> float:
    return float(struct.unpack("f", struct.pack("f", number))[0])
