"""Rules: the settings that decisions depend on, already checked. Made by `agent.settings`, read by `agent.core`.

Names in comments are those of KubeletConfiguration
(https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import IntEnum, StrEnum
from typing import Annotated, get_type_hints

from agent.model.exclusive import NO_CONTAINER, Selection
from agent.model.idset import CpuSet

WAITING_LIMIT, HOLD_BACK_OTHERS = 600.0, 60.0
"""Defaults of the settings `waiting.limit` and `waiting.holdBackOthers`, in seconds (safety.md S11)."""
SANDBOXES_PER_MINUTE = 30
"""Default of the setting `waiting.sandboxesPerMinute`."""


class Compatibility(StrEnum):
    """Whether the kubelet's defects (deploy/docs/dev/kubelet-defects.md) are reproduced or fixed."""

    FIXED = "fixed"
    KUBELET = "kubelet"


class Minor(IntEnum):
    """A minor version of the kubelet whose answers are known; `agent.core.kubelets` says what differs."""

    V1_34 = 34
    V1_35 = 35
    V1_36 = 36
    V1_37 = 37
    V1_38 = 38

    def __str__(self) -> str:
        return f"1.{self.value}"


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


class NriFailurePolicy(StrEnum):
    """What a runtime does with the agent, and with the request, when an answer is late (NRI 0.12.5 and newer)."""

    DROP = "drop"
    KEEP_CONNECTED = "keep-connected"
    FAIL_REQUEST = "fail-request"


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


class Maturity(StrEnum):
    """How finished an option is in the kubelet; feature gates open what is not stable."""

    STABLE = "stable"
    BETA = "beta"
    ALPHA = "alpha"


@dataclass(frozen=True, slots=True)
class CpuOption:
    """What there is to know of one of cpuManagerPolicyOptions, beside its algorithm.

    Attributes:
        name: the kubelet's.
        maturity: stable, beta or alpha, in the newest minor.
        beta_to: the last known minor in which it is beta, of an option that is stable in the newest.
        per_pod: whether a pod may have it of its own (numalign.io/cpu-options); otherwise it is the node's alone.
        excludes: names of options that cannot be on beside it; of two, the one that the kubelet names first says so.
        never_under: the policy under which it cannot be on.
        field: its field of CpuOptions; filled in by the table.
    """

    name: str
    maturity: Maturity = Maturity.STABLE
    beta_to: Minor | None = None
    per_pod: bool = True
    excludes: tuple[str, ...] = ()
    never_under: Policy | None = None
    field: str = ""

    def stage(self, minor: Minor | None) -> Maturity:
        """How finished it is in a kubelet; None: the newest."""
        return Maturity.BETA if self.beta_to and minor and minor <= self.beta_to else self.maturity


@dataclass(frozen=True, slots=True)
class CpuOptions:
    """cpuManagerPolicyOptions, on or off: the table of them all.

    Whatever else knows the options reads this: the checks of settings and annotations, the settings' page and schema,
    explanations. The order is that of pages and sentences, and of the kubelet's checks for what excludes what.
    """

    full_pcpus_only: Annotated[bool, CpuOption("full-pcpus-only", excludes=("distribute-cpus-across-cores",))] = False
    distribute_across_numa: Annotated[
        bool, CpuOption("distribute-cpus-across-numa", Maturity.BETA, excludes=("distribute-cpus-across-cores",))
    ] = False
    align_by_socket: Annotated[
        bool, CpuOption("align-by-socket", Maturity.ALPHA, never_under=Policy.SINGLE_NUMA_NODE)
    ] = False
    distribute_across_cores: Annotated[bool, CpuOption("distribute-cpus-across-cores", Maturity.ALPHA)] = False
    strict_reservation: Annotated[
        bool, CpuOption("strict-cpu-reservation", beta_to=Minor.V1_34, per_pod=False)  # about the node's shared pool
    ] = False
    prefer_uncore: Annotated[
        bool,
        CpuOption(
            "prefer-align-cpus-by-uncorecache",
            beta_to=Minor.V1_35,
            excludes=("distribute-cpus-across-cores", "distribute-cpus-across-numa"),
        ),
    ] = False

    def on(self) -> Iterator[CpuOption]:
        """Those that are on."""
        return (option for option in NODE_OPTIONS.values() if getattr(self, option.field))

    def clash(self) -> tuple[str, str] | None:
        """The first two that exclude each other, in the kubelet's order; None where all go together."""
        names = [option.name for option in self.on()]
        return next(((each.name, name) for each in self.on() for name in each.excludes if name in names), None)

    def barred(self, policy: Policy) -> str | None:
        """The first that cannot be on under a policy."""
        return next((option.name for option in self.on() if option.never_under is policy), None)

    def for_pod(self, asked: CpuOptions) -> CpuOptions:
        """What a pod asks for, with what is the node's alone as it is here."""
        return replace(
            asked, **{each.field: getattr(self, each.field) for each in NODE_OPTIONS.values() if not each.per_pod}
        )


def _cpu_options() -> Iterator[CpuOption]:
    hints = get_type_hints(CpuOptions, include_extras=True)
    for each in fields(CpuOptions):
        (option,) = hints[each.name].__metadata__
        yield replace(option, field=each.name)


NODE_OPTIONS: Mapping[str, CpuOption] = {option.name: option for option in _cpu_options()}
"""All of cpuManagerPolicyOptions by name, in the order of the table."""
POD_OPTIONS: Mapping[str, CpuOption] = {name: option for name, option in NODE_OPTIONS.items() if option.per_pod}
"""Those that a pod may have of its own."""


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
class Ceilings:
    """How many exclusive CPUs the pods of one namespace may hold together on this node.

    Attributes:
        each: of a namespace that is not named; None for no ceiling.
        named: namespace -> its own.
    """

    each: int | None = None
    named: Mapping[str, int] = field(default_factory=dict)

    def of(self, namespace: str) -> int | None:
        """Of a namespace; None for no ceiling."""
        return self.named.get(namespace, self.each)


@dataclass(frozen=True, slots=True)
class MemoryRules:
    """Memory Manager: Static or None, and what each node keeps back: node id -> resource -> bytes."""

    static: bool = False
    reserved: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    tier: MemoryTier = MemoryTier.LOCAL


class MixedCpus(StrEnum):
    """Which CPUs a container has beside its own that asks for that (`agent.core.request.mixed`)."""

    RESERVED = "reserved"
    POOL = "pool"
    NONE = "none"


class PcieLocality(StrEnum):
    """Whether it counts how near devices are within a NUMA node (`agent.core.machines.pcie`)."""

    OFF = "off"
    TELL = "tell"  # of the devices of one pod
    CHOOSE = "choose"  # and devices of ours are chosen by it, after the NUMA nodes


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
        minor: the kubelet whose answers are given under Compatibility.KUBELET.
        pod_level_managers: gate PodLevelResourceManagers (kubelet rule 0.3).
        empty_resources_ignored: gate PodLevelResourcesFixKubeletQOSClass of 1.37 (kubelet rule 8.1).
        requests_as_written: gate PodLevelResourcesFixDefaulting of 1.37 (kubelet rule 8.1).
        keep_shared: refuse a grant that would empty the shared pool (safety rule S5); off only in the parity harness.
        only_offered: never hand out a CPU that another pod holds or that is reserved, where the kubelet's averages
            would (kubernetes issues 124066, 140495); off only in the parity harness.
        advertised: resources that the Node has, so that scheduler and kubelet count the pods with limits on them;
            None where there is no Node to ask (a recorded machine, a folder of manifests).
        pcie: whether it counts how near devices are within a NUMA node.
        exclusive: which containers of pods that are not Guaranteed get their whole CPUs for themselves, where neither
            pod nor namespace says (`agent.core.request.exclusive`).
        exclusive_namespaces: whose pods may have that; "*" for all.
        mixed: which CPUs containers have beside their own that ask for that (`agent.core.request.mixed`).
        memory_policies: whether containers get the memory policy that they ask for.
    """

    topology: TopologyRules = TopologyRules()
    cpu: CpuRules = CpuRules()
    memory: MemoryRules = MemoryRules()
    ceilings: Ceilings = Ceilings()
    devices: tuple[DeviceSelector, ...] = ()
    compatibility: Compatibility = Compatibility.FIXED
    minor: Minor = Minor.V1_36
    pod_level_managers: bool = False
    empty_resources_ignored: bool = True
    requests_as_written: bool = True
    keep_shared: bool = True
    only_offered: bool = True
    on_misalignment: OnMisalignment = OnMisalignment.RUN
    on_memory_shortage: OnMemoryShortage = OnMemoryShortage.OPEN
    enforcement: Enforcement = Enforcement.AUTO
    advertised: frozenset[str] | None = None
    pcie: PcieLocality = PcieLocality.OFF
    exclusive: Selection = NO_CONTAINER
    exclusive_namespaces: tuple[str, ...] = ("*",)
    mixed: MixedCpus = MixedCpus.RESERVED
    memory_policies: bool = False

    @property
    def answers(self) -> str:
        """Whose answers these are, in one word: "fixed", or "kubelet-1.37"."""
        fixed = self.compatibility is Compatibility.FIXED
        return self.compatibility.value if fixed else f"{self.compatibility.value}-{self.minor}"

    def may_take(self, resource: str, namespace: str, *, by_limit: bool = False) -> bool:
        """Whether pods of a namespace may have devices of a resource that numalign hands out itself.

        By a limit, every pod that the scheduler sent: where the Node has the resource. Past it (by annotation, or by
        a limit on a resource that no Node has: the kubelet lets that in where the pod names its node) those of the
        settings.
        """
        if by_limit and (self.advertised is None or resource in self.advertised):
            return True
        lists = [each.namespaces for each in self.devices if each.resource == resource]
        return not lists or any(namespace in each or "*" in each for each in lists)
