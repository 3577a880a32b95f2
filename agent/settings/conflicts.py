"""Settings that cannot stand together, whatever the machine. Used by `agent.settings.parsing`.

What needs the machine as well (CPUs that exist, nodes that exist, sums) is checked by `agent.settings.to_rules`. The
kernel's release comes from `agent.app.setup`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from agent.errors import SettingsError
from agent.model.machine import Machine
from agent.model.quantity import nano_of
from agent.model.rules import Compatibility, Enforcement, Minor, MixedCpus, OnMisalignment
from agent.settings.cpu_options import check_machine
from agent.settings.gates import POD_LEVEL, POD_LEVEL_MANAGERS, check_gates, in_force
from agent.settings.kinds import CpuPolicy, MemoryPolicy
from agent.settings.memory_reserved import check_sums
from agent.settings.model import Settings
from agent.settings.to_rules import (
    cpu_options_of,
    eviction_needs_machine,
    reserved_by_node,
    reserved_memory,
    sum_of_memory,
    told_memory,
    topology_rules_of,
)

KEEPS_AFFINITIES = (6, 2)
"""The first kernel that remembers what a thread chose when its cpuset is written (8f9ea86fdf99, user_cpus_ptr)."""
PREFERS_MANY = (5, 15)
"""The first kernel that prefers several NUMA nodes (MPOL_PREFERRED_MANY): set_mempolicy(2) fails before."""
_RELEASE = re.compile(r"([0-9]{1,4})\.([0-9]{1,4})", re.ASCII)


def check_together(settings: Settings, *, beside: Mapping[str, object]) -> None:
    """Refuse combinations that cannot be; `beside`: the settings of the kubelet that numalign does not need.

    Raises:
        SettingsError: names the key to change and what to do.
    """
    topology_rules_of(settings, settings.compatibility.minor)
    _cpus(settings, beside)
    _memory(settings)
    check_gates(settings.feature_gates, settings.compatibility)
    gates = in_force(settings.feature_gates, settings.compatibility, settings.compatibility.minor or max(Minor))
    if gates.get(POD_LEVEL_MANAGERS) and gates.get(POD_LEVEL) is False:
        raise SettingsError(
            "featureGates.PodLevelResourceManagers", "needs the gate PodLevelResources; do not switch that one off"
        )
    if settings.on_misalignment is OnMisalignment.WAIT and settings.enforcement is Enforcement.CGROUP:
        raise SettingsError(
            "onMisalignment",
            "wait holds a pod through the container runtime's NRI, which enforcement: cgroup does without; "
            "set enforcement to auto or nri, or onMisalignment to fail, evict or run",
        )
    seen: set[str] = set()
    takers: dict[str, set[str]] = {}
    for number, device in enumerate(settings.devices):
        if takers.setdefault(device.resource, set(device.namespaces)) != set(device.namespaces):
            raise SettingsError(
                f"devices[{number}].namespaces",
                f"{device.resource} has other namespaces above; a resource has one list",
            )
        for address in device.addresses:
            if address in seen:
                raise SettingsError(
                    f"devices[{number}].addresses", f"{address} is selected twice; a device has one resource"
                )
            seen.add(address)


def check_kernel(settings: Settings, release: str) -> None:
    """Refuse what the kernel cannot do without harm; `release` as uname has it.

    Before 6.2 each write of a cpuset resets the affinities that the threads below it chose (safety
    rule S6: no container runs on another's CPUs). The pool
    changes with every pod, and a mixed container's threads choose theirs: its shared part must then never change.

    Before 5.15 a memory policy cannot prefer several NUMA nodes: the runtime would fail the container.

    Raises:
        SettingsError: names the key to change and what to do.
    """
    found = _RELEASE.match(release)
    version = (int(found[1]), int(found[2])) if found else (0, 0)
    if settings.nri.memory_policy and version < PREFERS_MANY:
        raise SettingsError(
            "nri.memoryPolicy",
            f"needs Linux 5.15 or newer, and this is {release[:40] or 'unknown'}: before, containers that ask for "
            "preferred would not start; set it to false",
        )
    if settings.mixed_shared_cpus is MixedCpus.POOL and version < KEEPS_AFFINITIES:
        raise SettingsError(
            "mixedSharedCPUs",
            f"pool needs Linux 6.2 or newer, and this is {release[:40] or 'unknown'}: before, a change of the pool "
            "resets the affinities that the program's threads chose; set mixedSharedCPUs to reserved",
        )


def _cpus(settings: Settings, beside: Mapping[str, object]) -> None:
    options = settings.cpu_manager_policy_options
    if settings.cpu_manager_policy is CpuPolicy.NONE and options:
        raise SettingsError(
            "cpuManagerPolicyOptions",
            f"None policy: received unsupported options={','.join(sorted(options))[:120]}; "
            "set cpuManagerPolicy to static, or remove the options",
        )
    if options:
        chosen = cpu_options_of(settings, settings.compatibility.minor)
        # no machine is needed for this half of the check: zero sockets are never too many
        check_machine(chosen, settings.topology_manager_policy, sockets=0, nodes=0)
    for key in ("kubeReservedCgroup", "systemReservedCgroup"):
        if settings.reserved_system_cpus and beside.get(key):
            raise SettingsError(
                "reservedSystemCPUs",
                f'cannot be combined with {key} (the kubelet refuses it too); remove one of them, or set {key}: ""',
            )


def _memory(settings: Settings) -> None:
    seen: set[tuple[int, str]] = set()
    for number, reservation in enumerate(settings.reserved_memory):
        for resource in reservation.limits:
            if (reservation.numa_node, resource) in seen:
                raise SettingsError(
                    f"reservedMemory[{number}].limits.{resource}",
                    f"NUMA node {reservation.numa_node} has this resource twice; add the amounts up in one entry",
                )
            seen.add((reservation.numa_node, resource))
    static = settings.memory_manager_policy is MemoryPolicy.STATIC and settings.reserved_memory
    kubelet = settings.compatibility.mode is Compatibility.KUBELET
    for number, reservation in enumerate(settings.reserved_memory if static else ()):
        for resource, milli in reservation.limits.items():
            key = f"reservedMemory[{number}].limits.{resource}"
            if milli < 0:
                raise SettingsError(key, "is negative; write a positive amount, or remove the line")
            if kubelet and nano_of(milli) % 10**9:
                raise SettingsError(key, "is no whole number of bytes (the kubelet refuses it too); write one")
    if static and told_memory(settings) and not eviction_needs_machine(settings):
        none = Machine((), ())
        check_sums(
            reserved_by_node(settings), {"memory": reserved_memory(settings, none)},
            every=kubelet, parts=sum_of_memory(settings, none),
        )  # fmt: skip
