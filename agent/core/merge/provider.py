"""Provider: what the admission asks of each manager of resources with a place.

Devices, CPUs and memory are asked in this order, then all further ones by name (kubelet rule 2.3). Each method is a
pure function of its arguments: what pods hold is in the Ledger, and a new Ledger is the result. A further provider
keeps it in `Ledger.others` under its name, if it holds anything.

A further provider is one class, and one of the `extra_providers` that `agent.app.setup` gives `Node`;
`agent.core.devices.claims` is an example. Merge, policy and explanations take it as any other. Three things know the
managers by name: the numbers of an explanation (`agent.core.explain.supply`), the judgement whether a grant is
aligned (`agent.core.admission.alignment`), and the summary of a node for forecasts (`agent.forecast.node_summary`).

A decision asks once for each container, or once for the pod under scope pod. Looks ahead, explanations and forecasts
ask hundreds of times: an answer takes microseconds, and it is the same for the same arguments.
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
        """Name the provider in one word: the order of further ones, their key in the ledger, explanations."""

    def container_hints(self, ledger: Ledger, pod: Pod, container: Container) -> Answer:
        """Say where a container's share could lie (scope container). The containers before it hold theirs already.

        Called before `allocate` of the same container, and again in looks ahead. Never under policy none.
        """

    def pod_hints(self, ledger: Ledger, pod: Pod) -> Answer:
        """Say where the whole pod's share could lie (scope pod). Called once, before any `allocate`."""

    def allocate(self, ledger: Ledger, pod: Pod, container: Container, affinity: Hint) -> Ledger | Refusal:
        """Take what the container asks for, within the affinity as far as the rules say.

        Called for each container in order, once the policy has accepted the merged affinity, and in looks ahead. A
        refusal ends the admission of the pod; what was taken before is dropped with the ledger that has it.
        """

    def allocate_pod(self, ledger: Ledger, pod: Pod, affinity: Hint) -> Ledger | Refusal:
        """Take what a pod with pod-level resources asks for (PodLevelResourceManagers, scope pod).

        Called once, instead of `allocate`.
        """

    def started(self, ledger: Ledger, pod: Pod, container: Container) -> Ledger:
        """Release what earlier init containers held: the runtime created this container (kubelet rule 5.9)."""

    def release(self, ledger: Ledger, uid: str, container: str | None = None) -> Ledger:
        """Give back what one container (or, with None, the whole pod, inits first) holds.

        Called when a pod leaves, and in each search for what its departure would make possible. For a pod that holds
        nothing it returns the same ledger.
        """
