"""Settings: the one model of everything that can be configured, as the file names it.

Read through `agent.settings.parse`; turned into decisions' Rules by `agent.settings.to_rules`. Names that
KubeletConfiguration has are its names and take its values verbatim
(https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/); defaults are those of safety rule S1, which
are not the kubelet's. Every field's description goes into the chart's schema.
"""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StrictInt,
    StrictStr,
    field_validator,
    model_validator,
)
from pydantic.alias_generators import to_camel

from agent.model.exclusive import NO_CONTAINER
from agent.model.idset import MAX_ID
from agent.model.rules import (
    HOLD_BACK_OTHERS,
    NODE_OPTIONS,
    SANDBOXES_PER_MINUTE,
    WAITING_LIMIT,
    DeviceSelector,
    Enforcement,
    MemoryTier,
    Minor,
    MixedCpus,
    NriFailurePolicy,
    OnMemoryShortage,
    OnMisalignment,
    PcieLocality,
    Policy,
    Scope,
)
from agent.settings.gates import QUOTA, in_force
from agent.settings.kinds import Answers, CpuPolicy, Fallback, MemoryPolicy
from agent.settings.topology_options import MAX_NODES, PREFER_CLOSEST
from agent.settings.values import (
    RECONCILE_PERIOD,
    WHOLE,
    YES_OR_NO,
    Attribute,
    CpuList,
    ExclusiveCount,
    ExclusiveSelection,
    Hex4,
    HostName,
    IpAddress,
    Namespace,
    NodeLimits,
    Options,
    PciAddress,
    Period,
    PodPattern,
    Reservation,
    Seconds,
    Taker,
    Thresholds,
    closed,
)

SHORTEST_PERIOD = 1.0
"""Seconds; the kubelet takes shorter and negative periods, which would keep a node busy with reading."""


class Section(BaseModel):
    """Frozen, camelCase in the file, nothing unknown."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, hide_input_in_errors=True)


class DeviceSettings(Section):
    """PCI devices that numalign hands out itself as a resource; every field that you set must match."""

    resource: Annotated[
        str,
        Field(
            strict=True,
            max_length=317,
            description="What pods ask for, like numalign.io/nic.",
            json_schema_extra={
                "pattern": r"^[^/\s]*\.[^/\s]*/[^/\s]+$",
                "not": {"pattern": r"^(?:[^/]*\.)?kubernetes\.io/"},
            },
        ),
    ]
    device_class: Annotated[
        str,
        Field(
            strict=True,
            alias="class",
            pattern=r"^(?:[0-9a-f]{2}){0,3}$",
            description="PCI class, or its beginning: 02 is network.",
        ),
    ] = ""
    vendor: Annotated[Hex4, Field(description="PCI vendor id.")] = ""
    device: Annotated[Hex4, Field(description="PCI device id.")] = ""
    driver: Annotated[str, Field(strict=True, pattern=r"^[A-Za-z0-9_.-]{0,64}$", description="Its driver.")] = ""
    addresses: Annotated[tuple[PciAddress, ...], Field(max_length=1024, description="PCI addresses.")] = ()
    namespaces: Annotated[
        tuple[Taker, ...],
        Field(
            max_length=1024,
            description="Whose pods may take them without the scheduler, by the annotation numalign.io/devices or by "
            'a limit that the Node does not advertise; "*" for all.',
        ),
    ] = ()

    @field_validator("resource")
    @classmethod
    def _own_resource(cls, name: str) -> str:
        domain, slash, rest = name.partition("/")
        if not slash or "." not in domain or not rest or "/" in rest or any(c.isspace() for c in name):
            raise ValueError(
                f'"{name[:60]}" is not a resource of ours; write a domain and a name, like numalign.io/nic'
            )
        if domain == "kubernetes.io" or domain.endswith(".kubernetes.io"):
            raise ValueError(f'"{name[:60]}" belongs to Kubernetes; use a domain of your own, like numalign.io/nic')
        return name

    @model_validator(mode="after")
    def _selects(self) -> Self:
        if not (self.device_class or self.vendor or self.device or self.driver or self.addresses):
            raise ValueError("selects every device; set at least one of class, vendor, device, driver, addresses")
        return self

    def selector(self) -> DeviceSelector:
        """The same, as decisions read it."""
        return DeviceSelector(
            self.resource, self.device_class, self.vendor, self.device, self.driver, self.addresses, self.namespaces
        )


class NodeReservation(Section):
    """What one NUMA node keeps back for the system (KubeletConfiguration's MemoryReservation)."""

    numa_node: Annotated[StrictInt, Field(ge=0, le=MAX_ID, description="Which NUMA node.")]
    limits: Annotated[NodeLimits, Field(description="memory and hugepages-<size>, each a quantity.")]


class WaitingSettings(Section):
    """Bounds of onMisalignment: wait (safety rule S11)."""

    limit: Annotated[Seconds, Field(description="numalign refuses a pod that waited longer.")] = WAITING_LIMIT
    sandboxes_per_minute: Annotated[
        StrictInt,
        Field(
            ge=1,
            le=600,
            description="Refused sandboxes of this node; each retry of the kubelet makes one. A fifth as many pods, "
            "rounded down, may wait at once, at least one. Namespaces share these places evenly.",
        ),
    ] = SANDBOXES_PER_MINUTE
    hold_back_others: Annotated[
        Seconds,
        Field(
            description="How long a waiting pod holds back later pods of other namespaces that would delay it. It "
            "holds back those of its own namespace as long as it waits."
        ),
    ] = HOLD_BACK_OTHERS


class ExclusiveSettings(Section):
    """How many exclusive CPUs the pods of one namespace may hold together, on each node."""

    per_namespace: Annotated[
        ExclusiveCount | None,
        Field(description="For each namespace that limits does not name. Unset: no ceiling. 0: no exclusive CPUs."),
    ] = None
    limits: Annotated[
        dict[Namespace, ExclusiveCount],
        Field(
            max_length=1024,
            description="Namespace to its own ceiling, such as {batch: 0, trading: 16}.",
        ),
    ] = Field(default_factory=dict)


class RefusalSettings(Section):
    """What keeps a refused pod's owner from a storm of replicas (safety rule S12)."""

    per_owner_per_hour: Annotated[
        StrictInt, Field(ge=1, le=1000, description="After so many, fail and evict fall back.")
    ] = 5
    fallback: Annotated[Fallback, Field(description="What fail and evict fall back to.")] = Fallback.RUN
    delete_after: Annotated[
        Seconds | None,
        Field(
            description="How long after their end numalign deletes pods that it ended (fail), like 24h. Unset: "
            "never. The chart's rbac.cleanup allows it."
        ),
    ] = None


class DraSettings(Section):
    """Devices of DRA claims: CPUs and memory follow what the scheduler chose. numalign is no DRA driver."""

    enabled: Annotated[
        StrictBool,
        Field(
            description="Whether numalign follows claims. The chart then lets the agents read claims, of all "
            "namespaces under RBAC."
        ),
    ] = False
    numa_attributes: Annotated[
        tuple[Attribute, ...],
        Field(
            max_length=16,
            description="Drivers' own attributes that name a device's NUMA node, or a list of them, as DOMAIN/NAME. "
            "numalign always reads resource.kubernetes.io/numaNode first.",
        ),
    ] = ()


class Page(Section):
    """The node page (safety rule S20): what each pod holds on this node, with pods' names, read only."""

    enabled: Annotated[StrictBool, Field(description="Whether the agent serves the page.")] = True
    address: Annotated[
        IpAddress,
        Field(description="Loopback by default: use kubectl port-forward. 0.0.0.0 or :: shows it to all."),
    ] = "127.0.0.1"
    port: Annotated[StrictInt, Field(ge=0, le=65535, description="0 takes a free one; the log says which.")] = 9178
    hosts: Annotated[
        tuple[HostName, ...],
        Field(max_length=64, description="Host names to answer to beside loopback's, against DNS rebinding."),
    ] = ()


class NriSettings(Section):
    """What is agreed with the container runtime over NRI."""

    failure_policy: Annotated[
        NriFailurePolicy,
        Field(
            description="What the runtime does when the agent's answer is late (NRI 0.12.5): keep-connected: it goes "
            "on without the answer, and asks again; drop: it also ends the connection; fail-request: it fails the "
            "request, of every pod, static and kube-system ones too."
        ),
    ] = NriFailurePolicy.KEEP_CONNECTED
    refuse_on_leaking_containerd: Annotated[
        StrictBool,
        Field(
            description="Whether wait and fail refuse sandboxes also on a containerd that keeps the remains of each "
            "(2.0, 2.1, 2.2 before 2.2.6, 2.3 before 2.3.3), which its next restart may not survive."
        ),
    ] = False


class FleetSettings(Section):
    """What the node tells for decisions elsewhere (`numalign fleet`)."""

    publish: Annotated[
        StrictBool,
        Field(
            description="Whether the NodeResourceTopology object carries a summary of the node: machine, rules, what "
            "pods hold. It names no pod."
        ),
    ] = False
    placement: Annotated[
        StrictBool,
        Field(
            description="Whether the NodeResourceTopology object says which container has all of its own on which "
            "NUMA node, as NodeResourceTopologyMatch reads it for preemption (numaplacement). It names no pod."
        ),
    ] = False


class Settings(Section):
    """All settings, with the defaults of safety rule S1."""

    topology_manager_policy: Annotated[
        Policy, Field(description="How strictly a pod's CPUs, memory and devices must share NUMA nodes.")
    ] = Policy.BEST_EFFORT
    topology_manager_scope: Annotated[
        Scope, Field(description="What numalign aligns as one: each container, or the pod as a whole.")
    ] = Scope.CONTAINER
    topology_manager_policy_options: Annotated[
        Options,
        Field(
            description="prefer-closest-numa-nodes, max-allowable-numa-nodes.",
            json_schema_extra=closed({PREFER_CLOSEST: YES_OR_NO, MAX_NODES: WHOLE}),
        ),
    ] = Field(default_factory=dict)
    cpu_manager_policy: Annotated[
        CpuPolicy, Field(description="static: Guaranteed pods that ask for whole CPUs get their own; none: no CPUs.")
    ] = CpuPolicy.STATIC
    cpu_manager_policy_options: Annotated[
        Options,
        Field(
            description=f"{', '.join(NODE_OPTIONS)}.",
            json_schema_extra=closed(dict.fromkeys(NODE_OPTIONS, YES_OR_NO)),
        ),
    ] = Field(default_factory=dict)
    cpu_manager_reconcile_period: Annotated[
        Period,
        Field(description="How often numalign compares the cgroups with the ledger; at most once a second."),
    ] = RECONCILE_PERIOD
    reserved_system_cpus: Annotated[
        CpuList | None,
        Field(
            alias="reservedSystemCPUs",
            description="CPUs that numalign grants to no pod; they replace the reserved number.",
        ),
    ] = None
    exclusive_containers: Annotated[
        ExclusiveSelection,
        Field(
            description=(
                "Which containers of pods that are not Guaranteed get their whole CPUs for themselves, where neither "
                "pod nor namespace says (numalign.io/exclusive): none, auto, names, or auto,-NAME."
            ),
        ),
    ] = NO_CONTAINER
    exclusive_namespaces: Annotated[
        tuple[Taker, ...],
        Field(max_length=1024, description='Whose pods may have that, by annotation or by the setting; "*" for all.'),
    ] = ("*",)
    mixed_shared_cpus: Annotated[
        MixedCpus,
        Field(
            alias="mixedSharedCPUs",
            description=(
                "What a container that asks for shared CPUs (numalign.io/mixed) has beside its own, and may use "
                "beyond its limit: reserved, the reserved CPUs; pool, the shared pool, on Linux 6.2 and newer only; "
                "none, nothing."
            ),
        ),
    ] = MixedCpus.RESERVED
    memory_manager_policy: Annotated[
        MemoryPolicy, Field(description="Static: numalign grants Guaranteed pods memory by NUMA node, and binds it.")
    ] = MemoryPolicy.NONE
    reserved_memory: Annotated[
        tuple[NodeReservation, ...],
        Field(max_length=1024, description="Memory that each NUMA node keeps back. Unset: it follows from the Node."),
    ] = ()
    feature_gates: Annotated[
        dict[StrictStr, StrictBool], Field(description="Feature gates of the kubelet that its managers read.")
    ] = Field(default_factory=dict)
    kube_reserved: Annotated[
        Reservation,
        Field(description="What the node keeps for kubelet and runtime. Unset: capacity less allocatable."),
    ] = Field(default_factory=dict)
    system_reserved: Annotated[Reservation, Field(description="What the node keeps for the rest of the system.")] = (
        Field(default_factory=dict)
    )
    eviction_hard: Annotated[
        Thresholds | None, Field(description="Unset: memory.available 100Mi, as the kubelet.")
    ] = None
    merge_default_eviction_settings: Annotated[
        StrictBool, Field(description="Signals that evictionHard leaves out keep their defaults.")
    ] = False

    on_misalignment: Annotated[
        OnMisalignment,
        Field(
            description="What becomes of a pod that its policy refuses: run (on the shared pool), wait, fail, evict. "
            "While only a pod that is about to leave holds the room, fail and evict wait for it, ten seconds at most."
        ),
    ] = OnMisalignment.RUN
    enforcement: Annotated[
        Enforcement,
        Field(description="auto: NRI where there is one, and cgroups; nri, cgroup: only that; dry-run: neither."),
    ] = Enforcement.AUTO
    observe_only: Annotated[
        StrictBool,
        Field(description="The kill switch: numalign writes, refuses and holds nothing. It publishes results."),
    ] = False
    compatibility: Annotated[
        Answers,
        Field(
            description=(
                "kubelet: numalign answers as the node's own kubelet does, kubelet-MINOR: as that minor does, even "
                "where they err; fixed: mended, the same for all."
            )
        ),
    ] = Answers.FIXED
    devices: Annotated[
        tuple[DeviceSettings, ...],
        Field(max_length=256, description="PCI devices that numalign hands out; all fields that you set must match."),
    ] = ()
    pcie_locality: Annotated[
        PcieLocality,
        BeforeValidator(lambda value: PcieLocality.OFF if value is False else value),
        Field(
            description="How near the devices of a pod are on the PCIe tree (PIX, PXB, PHB, NODE, SYS): tell says so "
            "in explain, the annotation and the page; with choose, the fewest hops to what the container "
            "holds already also decide which devices numalign hands out, after the NUMA nodes."
        ),
    ] = PcieLocality.OFF
    excluded_namespaces: Annotated[
        tuple[Namespace, ...],
        Field(
            max_length=1024, description="numalign leaves their pods alone, and always those of its own namespace."
        ),
    ] = ("kube-system",)
    included_pods: Annotated[
        tuple[PodPattern, ...],
        Field(
            max_length=1024,
            description="Pods that numalign would leave alone otherwise (kube-system, static, critical), as "
            "namespace/name.",
        ),
    ] = ()
    pin_adopted: Annotated[
        StrictBool, Field(description="Pods that ran before the agent get exclusive CPUs too.")
    ] = True
    memory_tier: Annotated[
        MemoryTier, Field(description="Which nodes' memory counts: local, any (with far memory), or far alone.")
    ] = MemoryTier.LOCAL
    on_memory_shortage: Annotated[
        OnMemoryShortage,
        Field(
            description=(
                "If memory to bind does not fit what a NUMA node really has: numalign does not bind the pod's memory "
                "(widen), refuses the pod (refuse), or lets the ledger's books alone decide (open). Under open, "
                "too, it widens what a pod's own annotation asks for."
            )
        ),
    ] = OnMemoryShortage.OPEN
    lift_cpu_quota: Annotated[
        StrictBool, Field(description="Pods with exclusive CPUs have no CFS quota, as with the kubelet.")
    ] = True
    exclusive_cpus: Annotated[ExclusiveSettings, Field(alias="exclusiveCPUs")] = ExclusiveSettings()
    waiting: WaitingSettings = WaitingSettings()
    refusals: RefusalSettings = RefusalSettings()
    dra: DraSettings = DraSettings()
    page: Page = Page()
    nri: NriSettings = NriSettings()
    fleet: FleetSettings = FleetSettings()

    @property
    def reconcile_seconds(self) -> float:
        """Seconds between two comparisons of the cgroups with the ledger."""
        return max(SHORTEST_PERIOD, self.cpu_manager_reconcile_period)

    @property
    def lifts_quota(self) -> bool:
        """Whether pods with exclusive CPUs lose their CFS quota: liftCpuQuota, unless the gate is switched off."""
        gates = in_force(self.feature_gates, self.compatibility, self.compatibility.minor or max(Minor))
        return self.lift_cpu_quota and gates.get(QUOTA, True)

    def shown(self) -> dict[str, Any]:
        """All settings as the file would write them: parsed again they are the same."""
        return self.model_dump(mode="json", by_alias=True)
