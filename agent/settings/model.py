"""Settings: the one model of everything that can be configured, as the file names it.

Read through `agent.settings.parse`; turned into decisions' Rules by `agent.settings.to_rules`. Names that
KubeletConfiguration has are its names and take its values verbatim
(https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/); defaults are those of safety rule S1, which
are not the kubelet's. Every field's description goes into the chart's schema.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from agent.model.exclusive import NO_CONTAINER, Selection
from agent.model.idset import MAX_ID, CpuSet
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
from agent.settings import values
from agent.settings.fields import (
    SWITCH,
    Place,
    Section,
    choice,
    listed,
    mapped,
    optional,
    required,
    section,
    setting,
    switch,
    text,
    whole,
)
from agent.settings.gates import QUOTA, in_force
from agent.settings.kinds import Answers, CpuPolicy, Fallback, MemoryPolicy
from agent.settings.topology_options import MAX_NODES, PREFER_CLOSEST

SHORTEST_PERIOD = 1.0
"""Seconds; the kubelet takes shorter and negative periods, which would keep a node busy with reading."""
_LOCALITY = choice(PcieLocality)


def _locality(value: object, place: Place) -> PcieLocality:
    """YAML reads off without quotes as false."""
    return PcieLocality.OFF if value is False else _LOCALITY.read(value, place)


@dataclass(frozen=True)
class DeviceSettings(Section):
    """PCI devices that numalign hands out itself as a resource; every field that you set must match."""

    resource: str = required(values.RESOURCE, "What pods ask for, like numalign.io/nic.")
    device_class: str = setting(
        text(r"(?:[0-9a-f]{2}){0,3}"), "PCI class, or its beginning: 02 is network.", "", key="class"
    )
    vendor: str = setting(values.HEX4, "PCI vendor id.", "")
    device: str = setting(values.HEX4, "PCI device id.", "")
    driver: str = setting(text(r"[A-Za-z0-9_.-]{0,64}"), "Its driver.", "")
    addresses: tuple[str, ...] = setting(listed(values.PCI_ADDRESS_TEXT, 1024), "PCI addresses.", ())
    namespaces: tuple[str, ...] = setting(
        listed(values.TAKER, 1024),
        "Whose pods may take them without the scheduler, by the annotation numalign.io/devices or by a limit that "
        'the Node does not advertise; "*" for all.',
        (),
    )

    def __post_init__(self) -> None:
        if not (self.device_class or self.vendor or self.device or self.driver or self.addresses):
            raise ValueError("selects every device; set at least one of class, vendor, device, driver, addresses")

    def selector(self) -> DeviceSelector:
        """The same, as decisions read it."""
        return DeviceSelector(
            self.resource, self.device_class, self.vendor, self.device, self.driver, self.addresses, self.namespaces
        )


@dataclass(frozen=True)
class NodeReservation(Section):
    """What one NUMA node keeps back for the system (KubeletConfiguration's MemoryReservation)."""

    numa_node: int = required(whole(0, MAX_ID), "Which NUMA node.")
    limits: dict[str, int] = required(values.NODE_LIMITS, "memory and hugepages-<size>, each a quantity.")


@dataclass(frozen=True)
class WaitingSettings(Section):
    """Bounds of onMisalignment: wait (safety rule S11)."""

    limit: float = setting(values.SECONDS, "numalign refuses a pod that waited longer.", WAITING_LIMIT)
    sandboxes_per_minute: int = setting(
        whole(1, 600),
        "Refused sandboxes of this node; each retry of the kubelet makes one. A fifth as many pods, rounded down, "
        "may wait at once, at least one. Namespaces share these places evenly.",
        SANDBOXES_PER_MINUTE,
    )
    hold_back_others: float = setting(
        values.SECONDS,
        "How long a waiting pod holds back later pods of other namespaces that would delay it. It holds back those "
        "of its own namespace as long as it waits.",
        HOLD_BACK_OTHERS,
    )


@dataclass(frozen=True)
class ExclusiveSettings(Section):
    """How many exclusive CPUs the pods of one namespace may hold together, on each node."""

    per_namespace: int | None = setting(
        optional(values.EXCLUSIVE_COUNT),
        "For each namespace that limits does not name. Unset: no ceiling. 0: no exclusive CPUs.",
        None,
    )
    limits: dict[str, int] = setting(
        mapped(
            values.NAMESPACE,
            values.EXCLUSIVE_COUNT,
            1024,
            patternProperties={values.NAMESPACE.schema["pattern"]: values.EXCLUSIVE_COUNT.schema},
            propertyNames={"description": values.NAMESPACE.schema["description"]},
        ),
        "Namespace to its own ceiling, such as {batch: 0, trading: 16}.",
        {},
    )


@dataclass(frozen=True)
class RefusalSettings(Section):
    """What keeps a refused pod's owner from a storm of replicas (safety rule S12)."""

    per_owner_per_hour: int = setting(whole(1, 1000), "After so many, fail and evict fall back.", 5)
    fallback: Fallback = setting(choice(Fallback), "What fail and evict fall back to.", Fallback.RUN)
    delete_after: float | None = setting(
        optional(values.SECONDS),
        "How long after their end numalign deletes pods that it ended (fail), like 24h. Unset: never. The chart's "
        "rbac.cleanup allows it.",
        None,
    )


@dataclass(frozen=True)
class DraSettings(Section):
    """Devices of DRA claims: CPUs and memory follow what the scheduler chose. numalign is no DRA driver."""

    enabled: bool = switch(
        "Whether numalign follows claims. The chart then lets the agents read claims, of all namespaces under RBAC.",
        on=False,
    )
    numa_attributes: tuple[str, ...] = setting(
        listed(values.ATTRIBUTE, 16),
        "Drivers' own attributes that name a device's NUMA node, or a list of them, as DOMAIN/NAME. numalign always "
        "reads resource.kubernetes.io/numaNode first.",
        (),
    )


@dataclass(frozen=True)
class Page(Section):
    """The node page (safety rule S20): what each pod holds on this node, with pods' names, read only."""

    enabled: bool = switch("Whether the agent serves the page.", on=True)
    address: str = setting(
        values.IP_ADDRESS,
        "Loopback by default: use kubectl port-forward. 0.0.0.0 or :: shows it to all.",
        "127.0.0.1",
    )
    port: int = setting(whole(0, 65535), "0 takes a free one; the log says which.", 9178)
    hosts: tuple[str, ...] = setting(
        listed(values.HOST_NAME, 64), "Host names to answer to beside loopback's, against DNS rebinding.", ()
    )


@dataclass(frozen=True)
class NriSettings(Section):
    """What is agreed with the container runtime over NRI."""

    failure_policy: NriFailurePolicy = setting(
        choice(NriFailurePolicy),
        "What the runtime does when the agent's answer is late (NRI 0.12.5): keep-connected: it goes on without the "
        "answer, and asks again; drop: it also ends the connection; fail-request: it fails the request, of every "
        "pod, static and kube-system ones too.",
        NriFailurePolicy.KEEP_CONNECTED,
    )
    refuse_on_leaking_containerd: bool = switch(
        "Whether wait and fail refuse sandboxes also on a containerd that keeps the remains of each (2.0, 2.1, 2.2 "
        "before 2.2.6, 2.3 before 2.3.3), which its next restart may not survive.",
        on=False,
    )
    memory_policy: bool = switch(
        "Whether a container whose memory is bound to several NUMA nodes gets the memory policy that it asks for "
        "(numalign.io/memory-policy): NRI 0.12, runc 1.4, and Linux 5.15 and newer only.",
        on=False,
    )


@dataclass(frozen=True)
class FleetSettings(Section):
    """What the node tells for decisions elsewhere (`numalign fleet`)."""

    publish: bool = switch(
        "Whether the NodeResourceTopology object carries a summary of the node: machine, rules, what pods hold. It "
        "names no pod.",
        on=False,
    )
    placement: bool = switch(
        "Whether the NodeResourceTopology object says which container has all of its own on which NUMA node, as "
        "NodeResourceTopologyMatch reads it for preemption (numaplacement). It names no pod.",
        on=False,
    )


@dataclass(frozen=True)
class Settings(Section):
    """All settings, with the defaults of safety rule S1."""

    topology_manager_policy: Policy = setting(
        choice(Policy), "How strictly a pod's CPUs, memory and devices must share NUMA nodes.", Policy.BEST_EFFORT
    )
    topology_manager_scope: Scope = setting(
        choice(Scope), "What numalign aligns as one: each container, or the pod as a whole.", Scope.CONTAINER
    )
    topology_manager_policy_options: dict[str, str] = setting(
        values.OPTIONS,
        "prefer-closest-numa-nodes, max-allowable-numa-nodes.",
        {},
        **values.closed({PREFER_CLOSEST: values.YES_OR_NO, MAX_NODES: values.WHOLE}),
    )
    cpu_manager_policy: CpuPolicy = setting(
        choice(CpuPolicy),
        "static: Guaranteed pods that ask for whole CPUs get their own; none: no CPUs.",
        CpuPolicy.STATIC,
    )
    cpu_manager_policy_options: dict[str, str] = setting(
        values.OPTIONS,
        f"{', '.join(NODE_OPTIONS)}.",
        {},
        **values.closed(dict.fromkeys(NODE_OPTIONS, values.YES_OR_NO)),
    )
    cpu_manager_reconcile_period: float = setting(
        values.PERIOD,
        "How often numalign compares the cgroups with the ledger; at most once a second.",
        values.RECONCILE_PERIOD,
    )
    reserved_system_cpus: CpuSet | None = setting(
        optional(values.CPU_LIST),
        "CPUs that numalign grants to no pod; they replace the reserved number.",
        None,
        key="reservedSystemCPUs",
    )
    exclusive_containers: Selection = setting(
        values.EXCLUSIVE_SELECTION,
        "Which containers of pods that are not Guaranteed get their whole CPUs for themselves, where neither pod nor "
        "namespace says (numalign.io/exclusive): none, auto, names, or auto,-NAME.",
        NO_CONTAINER,
    )
    exclusive_namespaces: tuple[str, ...] = setting(
        listed(values.TAKER, 1024), 'Whose pods may have that, by annotation or by the setting; "*" for all.', ("*",)
    )
    mixed_shared_cpus: MixedCpus = setting(
        choice(MixedCpus),
        "What a container that asks for shared CPUs (numalign.io/mixed) has beside its own, and may use beyond its "
        "limit: reserved, the reserved CPUs; pool, the shared pool, on Linux 6.2 and newer only; none, nothing.",
        MixedCpus.RESERVED,
        key="mixedSharedCPUs",
    )
    memory_manager_policy: MemoryPolicy = setting(
        choice(MemoryPolicy),
        "Static: numalign grants Guaranteed pods memory by NUMA node, and binds it.",
        MemoryPolicy.NONE,
    )
    reserved_memory: tuple[NodeReservation, ...] = setting(
        listed(section(NodeReservation), 1024),
        "Memory that each NUMA node keeps back. Unset: it follows from the Node.",
        (),
    )
    feature_gates: dict[str, bool] = setting(
        mapped(text("(?s:.*)"), SWITCH, additionalProperties=SWITCH.schema),
        "Feature gates of the kubelet that its managers read.",
        {},
    )
    kube_reserved: dict[str, int] = setting(
        values.RESERVATION, "What the node keeps for kubelet and runtime. Unset: capacity less allocatable.", {}
    )
    system_reserved: dict[str, int] = setting(
        values.RESERVATION, "What the node keeps for the rest of the system.", {}
    )
    eviction_hard: dict[str, str] | None = setting(
        optional(values.THRESHOLDS), "Unset: memory.available 100Mi, as the kubelet.", None
    )
    merge_default_eviction_settings: bool = switch(
        "Signals that evictionHard leaves out keep their defaults.", on=False
    )

    on_misalignment: OnMisalignment = setting(
        choice(OnMisalignment),
        "What becomes of a pod that its policy refuses: run (on the shared pool), wait, fail, evict. While only a "
        "pod that is about to leave holds the room, fail and evict wait for it, ten seconds at most.",
        OnMisalignment.RUN,
    )
    enforcement: Enforcement = setting(
        choice(Enforcement),
        "auto: NRI where there is one, and cgroups; nri, cgroup: only that; dry-run: neither.",
        Enforcement.AUTO,
    )
    observe_only: bool = switch(
        "The kill switch: numalign writes, refuses and holds nothing. It publishes results.", on=False
    )
    compatibility: Answers = setting(
        choice(Answers),
        "kubelet: numalign answers as the node's own kubelet does, kubelet-MINOR: as that minor does, even where "
        "they err; fixed: mended, the same for all.",
        Answers.FIXED,
    )
    devices: tuple[DeviceSettings, ...] = setting(
        listed(section(DeviceSettings), 256),
        "PCI devices that numalign hands out; all fields that you set must match.",
        (),
    )
    pcie_locality: PcieLocality = setting(
        replace(_LOCALITY, read=_locality),
        "How near the devices of a pod are on the PCIe tree (PIX, PXB, PHB, NODE, SYS): tell says so in explain, the "
        "annotation and the page; with choose, the fewest hops to what the container holds already also decide which "
        "devices numalign hands out, after the NUMA nodes.",
        PcieLocality.OFF,
    )
    excluded_namespaces: tuple[str, ...] = setting(
        listed(values.NAMESPACE, 1024),
        "numalign leaves their pods alone, and always those of its own namespace.",
        ("kube-system",),
    )
    included_pods: tuple[str, ...] = setting(
        listed(values.POD_PATTERN, 1024),
        "Pods that numalign would leave alone otherwise (kube-system, static, critical), as namespace/name.",
        (),
    )
    pin_adopted: bool = switch("Pods that ran before the agent get exclusive CPUs too.", on=True)
    memory_tier: MemoryTier = setting(
        choice(MemoryTier),
        "Which nodes' memory counts: local, any (with far memory), or far alone.",
        MemoryTier.LOCAL,
    )
    on_memory_shortage: OnMemoryShortage = setting(
        choice(OnMemoryShortage),
        "If memory to bind does not fit what a NUMA node really has: numalign does not bind the pod's memory "
        "(widen), refuses the pod (refuse), or lets the ledger's books alone decide (open). Under open, too, it "
        "widens what a pod's own annotation asks for.",
        OnMemoryShortage.OPEN,
    )
    lift_cpu_quota: bool = switch("Pods with exclusive CPUs have no CFS quota, as with the kubelet.", on=True)
    exclusive_cpus: ExclusiveSettings = setting(
        section(ExclusiveSettings), "", ExclusiveSettings(), key="exclusiveCPUs"
    )
    waiting: WaitingSettings = setting(section(WaitingSettings), "", WaitingSettings())
    refusals: RefusalSettings = setting(section(RefusalSettings), "", RefusalSettings())
    dra: DraSettings = setting(section(DraSettings), "", DraSettings())
    page: Page = setting(section(Page), "", Page())
    nri: NriSettings = setting(section(NriSettings), "", NriSettings())
    fleet: FleetSettings = setting(section(FleetSettings), "", FleetSettings())

    @property
    def reconcile_seconds(self) -> float:
        """Seconds between two comparisons of the cgroups with the ledger."""
        return max(SHORTEST_PERIOD, self.cpu_manager_reconcile_period)

    @property
    def lifts_quota(self) -> bool:
        """Whether pods with exclusive CPUs lose their CFS quota: liftCpuQuota, unless the gate is switched off."""
        gates = in_force(self.feature_gates, self.compatibility, self.compatibility.minor or max(Minor))
        return self.lift_cpu_quota and gates.get(QUOTA, True)
