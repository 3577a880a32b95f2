"""Settings of `numalign gatekeeper`."""

from __future__ import annotations

from dataclasses import dataclass, field

from agent.forecast.gate.values import GateOptions
from agent.kube.access import ApiAccess
from agent.kube.gate.lease import DURATION

AGENTS = "app.kubernetes.io/name=numalign,app.kubernetes.io/component=agent"


@dataclass(frozen=True, slots=True, kw_only=True)
class GatekeeperOptions:
    """What a replica is started with.

    Attributes:
        access: to the API server.
        namespace: of the gatekeeper, its lease, its switch and the agents.
        name: of the Deployment; the lease has it, too.
        switch: name of the ConfigMap that the admission policy's binding refers to.
        identity: of this replica.
        agents: label selector of the agents' pods.
        metrics_address: "" for no pages.
        lease_seconds: after which a silent leader is gone.
        decisions: settings of `agent.forecast.gate`.
    """

    access: ApiAccess
    namespace: str
    name: str
    switch: str
    identity: str
    agents: str = AGENTS
    metrics_address: str = ""
    lease_seconds: float = DURATION
    decisions: GateOptions = field(default_factory=GateOptions)
