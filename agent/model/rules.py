"""Rules: the settings that decisions depend on, already checked. Made by `agent.settings`, read by `agent.core`.

Names in comments are those of KubeletConfiguration
(https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from agent.model.idset import CpuSet


class Compatibility(StrEnum):
    """Whether the kubelet's defects (D1 to D16) are answered alike or mended."""

    FIXED = "fixed"
    KUBELET = "kubelet"


class Policy(StrEnum):
    """topologyManagerPolicy."""

    NONE = "none"
    BEST_EFFORT = "best-effort"
    RESTRICTED = "restricted"
    SINGLE_NUMA_NODE = "single-numa-node"


class Scope(StrEnum):
    """topologyManagerScope."""

    CONTAINER = "container"
    POD = "pod"


class OnMisalignment(StrEnum):
    """What happens to a pod that its policy refuses."""

    FAIL = "fail"
    WAIT = "wait"
    EVICT = "evict"
    RUN = "run"


class Enforcement(StrEnum):
    """How grants reach the kernel."""

    AUTO = "auto"
    NRI = "nri"
    CGROUP = "cgroup"
    DRY_RUN = "dry-run"


class MemoryTier(StrEnum):
    """Which nodes' memory counts for a request under Compatibility.FIXED (nodes without CPUs are another tier)."""

    LOCAL = "local"  # nodes with CPUs only
    ANY = "any"  # a node without CPUs counts for the CPU nodes nearest to it
    FAR = "far"  # only nodes without CPUs


class OnMemoryShortage(StrEnum):
    """What happens where a grant does not fit the node's real memory (safety rule S7)."""

    WIDEN = "widen"  # the pod's memory may lie on all nodes
    REFUSE = "refuse"  # as a misalignment
    OPEN = "open"  # bound by the ledger's books, whatever is free


@dataclass(frozen=True, slots=True)
class TopologyRules:
    """Topology Manager: policy, scope and policy options."""

    policy: Policy = Policy.NONE
    scope: Scope = Scope.CONTAINER
    prefer_closest: bool = False  # prefer-closest-numa-nodes
    max_nodes: int = 8  # max-allowable-numa-nodes; enforced under Compatibility.KUBELET only


@dataclass(frozen=True, slots=True)
class CpuOptions:
    """cpuManagerPolicyOptions."""

    full_pcpus_only: bool = False
    distribute_across_numa: bool = False  # distribute-cpus-across-numa
    align_by_socket: bool = False
    distribute_across_cores: bool = False  # distribute-cpus-across-cores
    strict_reservation: bool = False  # strict-cpu-reservation
    prefer_uncore: bool = False  # prefer-align-cpus-by-uncorecache


@dataclass(frozen=True, slots=True)
class CpuRules:
    """CPU Manager: static or none, its options, and what is reserved.

    Attributes:
        static: cpuManagerPolicy is "static"; "none" grants nothing and writes nothing.
        options: policy options.
        reserved: reservedSystemCPUs, or None: `reserved_count` CPUs are then chosen by the manager's own rule.
        reserved_count: whole CPUs of kubeReserved + systemReserved, rounded up.
    """

    static: bool = True
    options: CpuOptions = CpuOptions()
    reserved: CpuSet | None = None
    reserved_count: int = 1


@dataclass(frozen=True, slots=True)
class MemoryRules:
    """Memory Manager: Static or None, and what each node keeps back: node id -> resource -> bytes."""

    static: bool = False
    reserved: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    tier: MemoryTier = MemoryTier.LOCAL


@dataclass(frozen=True, slots=True)
class DeviceSelector:
    """PCI devices that numalign hands out itself, as a resource. All fields that are set must match.

    Attributes:
        resource: the resource name that containers ask for in their limits, e.g. "numalign.io/nic".
        class_prefix: start of the six hex digits of the class, e.g. "02" for network controllers.
        vendor, device: four hex digits.
        driver: bound driver.
        addresses: PCI addresses; empty for any.
        namespaces: whose pods may take them past the scheduler; "*" for all.
    """

    resource: str
    class_prefix: str = ""
    vendor: str = ""
    device: str = ""
    driver: str = ""
    addresses: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rules:
    """All of it.

    Attributes:
        pod_level_managers: gate PodLevelResourceManagers (kubelet rule 0.3).
        keep_shared: refuse a grant that would empty the shared pool (safety rule S5); off only in the parity harness.
        only_offered: never hand out a CPU that somebody else holds or that is reserved, where the kubelet's averages
            would (kubernetes issues 124066, 140495); off only in the parity harness.
        advertised: resources that the Node has, so that scheduler and kubelet count who asks for them in his limits;
            None where there is no Node to ask (a recorded machine, a folder of manifests).
    """

    topology: TopologyRules = TopologyRules()
    cpu: CpuRules = CpuRules()
    memory: MemoryRules = MemoryRules()
    devices: tuple[DeviceSelector, ...] = ()
    compatibility: Compatibility = Compatibility.FIXED
    pod_level_managers: bool = False
    keep_shared: bool = True
    only_offered: bool = True
    on_misalignment: OnMisalignment = OnMisalignment.RUN
    on_memory_shortage: OnMemoryShortage = OnMemoryShortage.OPEN
    enforcement: Enforcement = Enforcement.AUTO
    advertised: frozenset[str] | None = None

    def may_take(self, resource: str, namespace: str, *, by_limit: bool = False) -> bool:
        """Whether pods of a namespace may have devices of a resource that numalign hands out itself.

        By a limit, whoever the scheduler sent: where the Node has the resource. Past it (by annotation, or by a limit
        on a resource that no Node has: the kubelet lets that in where the pod names its node) those of the settings.
        """
        if by_limit and (self.advertised is None or resource in self.advertised):
            return True
        lists = [each.namespaces for each in self.devices if each.resource == resource]
        return not lists or any(namespace in each or "*" in each for each in lists)
