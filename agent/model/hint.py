"""Hints: what a provider can say about one resource, with three names for three things.

The kubelet says all of this with nil maps, nil lists and empty lists (kubelet rule 3.3); here:

    NO_PREFERENCE   any placement will do                       kubelet: nil, or an empty map
    IMPOSSIBLE      no placement will do                        kubelet: an empty list
    Demand          which node sets will do, described, not listed (`agent.core.merge.demand`)

A `Hint` is what the merge makes of all answers. Listed hints (`agent.core.merge.demand.listed`) are for explanations.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from agent.model.idset import NodeSet


@dataclass(frozen=True, slots=True)
class Hint:
    """An affinity: NUMA nodes (None: any), and whether it is as good as the machine allows."""

    nodes: NodeSet | None
    preferred: bool


class Stance(Enum):
    """A provider's answer for a resource when it names no nodes."""

    NO_PREFERENCE = "no preference"
    IMPOSSIBLE = "impossible"


NO_PREFERENCE = Stance.NO_PREFERENCE
IMPOSSIBLE = Stance.IMPOSSIBLE
ANY_NODES = Hint(None, preferred=False)
"""What a lookup of a hint that was never stored answers (policy none)."""
