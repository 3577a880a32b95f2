"""Reasons: why a merge came out as it did, as data. Made only if a recorder is passed, for `explain` and `simulate`.

Nothing here is prose; the readers of reasons make the sentences. Provider numbers are places in the answers that
were merged.
"""

from __future__ import annotations

from dataclasses import dataclass

from agent.core.merge.demand import Demand
from agent.model.hint import Hint, Stance
from agent.model.idset import NodeSet
from agent.model.rules import Policy


@dataclass(frozen=True, slots=True)
class Voice:
    """What one hint list said.

    Attributes:
        provider: place of the provider in the answers.
        resource: its name; "" where the provider as a whole had nothing to say.
        stance: set where the offer named no nodes.
        hints: the list in the kubelet's order; None on machines with too many nodes, and with a stance.
        demand: the offer; None with a stance.
        size: node count of the preferred masks.
    """

    provider: int
    resource: str
    stance: Stance | None = None
    hints: tuple[Hint, ...] | None = None
    demand: Demand | None = None
    size: int | None = None


@dataclass(frozen=True, slots=True)
class MergeReasons:
    """One merge.

    Attributes:
        policy: the policy that judged it.
        voices: all hint lists, by provider, then resource.
        hint: the answer; admit: whether the pod was let in; exact: whether it is proved.
        best: the best node set regardless of the policy (what best-effort answers), also after a refusal.
        instead_of: the kubelet's best, where `agent.core.merge.firm`, or a look ahead
            (`agent.core.admission.ahead`), found a better one.
        preferred: whether every list prefers `best`.
        runner_up: the node set of as many nodes that would have been next; None where there is none, or nothing is
            preferred by all.
        goal: node count that a non-preferred answer tries to come near (B of rule 3.5); None for a preferred one.
    """

    policy: Policy
    voices: tuple[Voice, ...]
    hint: Hint
    admit: bool
    exact: bool
    best: NodeSet
    preferred: bool
    runner_up: NodeSet | None
    goal: int | None
    instead_of: NodeSet | None = None
