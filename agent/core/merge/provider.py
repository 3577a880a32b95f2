"""Provider: what the admission asks of each manager of resources with a place. A fourth one is one file.

Order everywhere (kubelet rule 2.3): devices, CPUs, memory, then others by name. Each method is a pure function of its
arguments; state lives in the Ledger, and a new Ledger is the result.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Protocol

from agent.core.merge.demand import Demand
from agent.model.hint import Hint, Stance
from agent.model.ledger import Ledger
from agent.model.outcome import Refusal
from agent.model.pod import Container, Pod

Offer = Demand | Stance
"""What a provider says about one resource."""

Answer = Mapping[str, Offer] | Literal[Stance.NO_PREFERENCE]
"""Offers by resource name, or NO_PREFERENCE when the provider has nothing to say (the kubelet's nil)."""


class Provider(Protocol):
    """One hint provider."""

    @property
    def name(self) -> str:
        """One word, for reasons and metrics."""

    def container_hints(self, ledger: Ledger, pod: Pod, container: Container) -> Answer:
        """Where this container's share could lie."""

    def pod_hints(self, ledger: Ledger, pod: Pod) -> Answer:
        """Where the whole pod's share could lie (scope pod)."""

    def allocate(self, ledger: Ledger, pod: Pod, container: Container, affinity: Hint) -> Ledger | Refusal:
        """Take what the container asks for, within the affinity as far as the rules say."""

    def allocate_pod(self, ledger: Ledger, pod: Pod, affinity: Hint) -> Ledger | Refusal:
        """Take what a pod with pod-level resources asks for (PodLevelResourceManagers, scope pod)."""

    def started(self, ledger: Ledger, pod: Pod, container: Container) -> Ledger:
        """The runtime created the container: what earlier init containers held may go (kubelet rule 5.9)."""

    def release(self, ledger: Ledger, uid: str, container: str | None = None) -> Ledger:
        """Give back what one container (or, with None, the whole pod, inits first) holds."""
