"""What `numalign simulate --cluster` is asked; `agent.app.simulate.cluster` answers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from agent.forecast.scheduling import Strategy
from agent.model.rules import Minor, Policy, Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfOptions:
    """What is asked; see `numalign simulate --help`.

    Attributes:
        pods: manifests.
        replicas: of each of them; None for what they say.
        policy, scope, kubelet: of the nodes, instead of their own.
        nodes: which nodes that concerns: names, or a label selector; "" for all.
        drained: nodes that are emptied.
        added: (how many, like which node).
        strategy: how the scheduler scores.
        retries: how often an owner makes a refused pod again.
        gatekeeper: forecast with a gatekeeper, too.
        smallest: search for the smallest change that lets all in.
    """

    pods: tuple[Path, ...] = ()
    replicas: int | None = None
    policy: Policy | None = None
    scope: Scope | None = None
    kubelet: Minor | None = None
    nodes: str = ""
    drained: tuple[str, ...] = ()
    added: tuple[tuple[int, str], ...] = ()
    strategy: Strategy = Strategy.LEAST_ALLOCATED
    retries: int = 0
    gatekeeper: bool = False
    smallest: bool = True

    @property
    def changes(self) -> bool:
        """True if nodes get other rules."""
        return bool(self.policy or self.scope or self.kubelet)

    @property
    def comes_back(self) -> bool:
        """True if the pods of changed nodes are needed; pods of other nodes are not."""
        return self.changes and not self.pods
