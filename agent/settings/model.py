"""Settings: the one model of everything that can be configured, as the file names it.

Read through `agent.settings.parse`; turned into decisions' Rules by `agent.settings.rules`. Names that
KubeletConfiguration has are its names and take its values verbatim
(https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/); defaults are those of safety rule S1, which
are not the kubelet's. Every field's description goes into the chart's schema.
"""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, StrictStr, field_validator, model_validator
from pydantic.alias_generators import to_camel

from agent.model.idset import MAX_ID
from agent.model.machine import Machine
from agent.model.rules import (
    Compatibility,
    DeviceSelector,
    Enforcement,
    MemoryTier,
    OnMisalignment,
    Policy,
    Rules,
    Scope,
)
from agent.settings.effective import rules_of
from agent.settings.kinds import CpuPolicy, Fallback, MemoryPolicy, OnMemoryShortage
from agent.settings.values import CpuList, NodeLimits, Options, Reservation, Seconds, Thresholds

_DNS = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
Namespace = Annotated[str, Field(strict=True, pattern=rf"^{_DNS}$", description="A namespace's name.")]
PodPattern = Annotated[
    str,
    Field(
        strict=True,
        pattern=r"^[a-z0-9*?.-]{1,253}/[a-z0-9*?.-]{1,253}$",
        description="namespace/name, * and ? allowed.",
    ),
]
Hex4 = Annotated[str, Field(strict=True, pattern=r"^(?:[0-9a-f]{4})?$")]
PciAddress = Annotated[str, Field(strict=True, pattern=r"^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$")]


class Section(BaseModel):
    """Frozen, camelCase in the file, nothing unknown."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, hide_input_in_errors=True)


class Device(Section):
    """PCI devices that numalign hands out itself as a resource; every field that is set must match."""

    resource: Annotated[str, Field(strict=True, max_length=317)]
    device_class: Annotated[str, Field(strict=True, alias="class", pattern=r"^(?:[0-9a-f]{2}){0,3}$")] = ""
    vendor: Hex4 = ""
    device: Hex4 = ""
    driver: Annotated[str, Field(strict=True, pattern=r"^[A-Za-z0-9_.-]{0,64}$")] = ""
    addresses: Annotated[tuple[PciAddress, ...], Field(max_length=1024)] = ()

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
        return DeviceSelector(self.resource, self.device_class, self.vendor, self.device, self.driver, self.addresses)


class NodeReservation(Section):
    """What one NUMA node keeps back for the system (KubeletConfiguration's MemoryReservation)."""

    numa_node: Annotated[StrictInt, Field(ge=0, le=MAX_ID)]
    limits: NodeLimits


class Waiting(Section):
    """Bounds of onMisalignment: wait (safety rule S11)."""

    limit: Annotated[Seconds, Field(description="A pod that waited longer is refused.")] = 600.0
    sandboxes_per_minute: Annotated[
        StrictInt,
        Field(ge=1, le=600, description="Refused sandboxes of this node; each retry of the kubelet makes one."),
    ] = 10


class Refusals(Section):
    """What keeps a refused pod's owner from a storm of replicas (safety rule S12)."""

    per_owner_per_hour: Annotated[
        StrictInt, Field(ge=1, le=1000, description="After so many, fail and evict fall back.")
    ] = 5
    fallback: Annotated[Fallback, Field(description="What fail and evict fall back to.")] = Fallback.RUN
    delete_after: Annotated[
        Seconds | None, Field(description="Failed pods that we refused are deleted after this time; unset: never.")
    ] = None


class Settings(Section):
    """All settings, with the defaults of safety rule S1."""

    topology_manager_policy: Policy = Policy.BEST_EFFORT
    topology_manager_scope: Scope = Scope.CONTAINER
    topology_manager_policy_options: Options = Field(default_factory=dict)
    cpu_manager_policy: CpuPolicy = CpuPolicy.STATIC
    cpu_manager_policy_options: Options = Field(default_factory=dict)
    cpu_manager_reconcile_period: Annotated[
        Seconds, Field(ge=1.0, description="How often the cgroups are compared with the ledger.")
    ] = 10.0
    reserved_system_cpus: Annotated[CpuList | None, Field(alias="reservedSystemCPUs")] = None
    memory_manager_policy: MemoryPolicy = MemoryPolicy.NONE
    reserved_memory: Annotated[tuple[NodeReservation, ...], Field(max_length=1024)] = ()
    feature_gates: dict[StrictStr, StrictBool] = Field(default_factory=dict)
    kube_reserved: Reservation = Field(default_factory=dict)
    system_reserved: Reservation = Field(default_factory=dict)
    eviction_hard: Annotated[
        Thresholds | None, Field(description="Unset: memory.available 100Mi, as the kubelet.")
    ] = None
    merge_default_eviction_settings: StrictBool = False

    on_misalignment: Annotated[
        OnMisalignment, Field(description="What happens to a pod that its policy refuses.")
    ] = OnMisalignment.RUN
    enforcement: Annotated[Enforcement, Field(description="How grants reach the kernel.")] = Enforcement.AUTO
    observe_only: Annotated[
        StrictBool,
        Field(description="The kill switch (S3): nothing is written, refused or held; results are published."),
    ] = False
    compatibility: Annotated[
        Compatibility, Field(description="kubelet: answer alike even where the kubelet errs; fixed: mended.")
    ] = Compatibility.FIXED
    devices: Annotated[tuple[Device, ...], Field(max_length=256)] = ()
    excluded_namespaces: Annotated[
        tuple[Namespace, ...],
        Field(max_length=1024, description="Their pods are left alone (S2); our own always is."),
    ] = ("kube-system",)
    included_pods: Annotated[
        tuple[PodPattern, ...],
        Field(max_length=1024, description="Pods that S2 would leave alone, named as namespace/name patterns."),
    ] = ()
    pin_adopted: Annotated[
        StrictBool, Field(description="Pods that ran before the agent get exclusive CPUs too (S4).")
    ] = True
    memory_tier: Annotated[
        MemoryTier, Field(description="Which nodes' memory counts: local, any (with far memory), or far alone.")
    ] = MemoryTier.LOCAL
    on_memory_shortage: Annotated[
        OnMemoryShortage, Field(description="What happens where bound memory would not fit really (S7).")
    ] = OnMemoryShortage.OPEN
    lift_cpu_quota: Annotated[
        StrictBool, Field(description="No CFS quota for pods with exclusive CPUs (S16), as the kubelet does.")
    ] = True
    waiting: Waiting = Waiting()
    refusals: Refusals = Refusals()

    def rules(self, machine: Machine, *, node_reserved: int = 0) -> Rules:
        """The rules that decisions follow on a machine; raises SettingsError for what it cannot give.

        Args:
            machine: the hardware.
            node_reserved: thousandths of a CPU that the kubelet keeps from pods (capacity less allocatable).
        """
        return rules_of(self, machine, node_reserved)

    @property
    def lifts_quota(self) -> bool:
        """Whether pods with exclusive CPUs lose their CFS quota: liftCpuQuota, unless the gate is switched off."""
        return self.lift_cpu_quota and self.feature_gates.get("DisableCPUQuotaWithExclusiveCPUs", True)

    def shown(self) -> dict[str, Any]:
        """All settings as the file would write them: parsed again they are the same."""
        return self.model_dump(mode="json", by_alias=True)
