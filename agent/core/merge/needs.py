"""Needs: sums that a set of NUMA nodes must reach, and the step budget of searches for such sets."""

from __future__ import annotations

from dataclasses import dataclass

from agent.core.merge.masks import members


@dataclass(frozen=True, slots=True)
class Need:
    """One sum that a mask must reach.

    Attributes:
        amount: CPUs, bytes or devices; 0 or less is always served.
        weights: what each node contributes, by position; never negative.
        shared: (mask, amount) pairs: an amount that counts once if any of the mask's nodes is in. A device that is
            near two nodes, or memory on a node without CPUs that counts for the CPU nodes around it.
    """

    amount: int
    weights: tuple[int, ...]
    shared: tuple[tuple[int, int], ...] = ()

    def total(self, mask: int) -> int:
        """What the nodes of a mask contribute together."""
        weights = self.weights
        total = sum([weights[j] for j in members(mask)])
        for nodes, amount in self.shared:
            if nodes & mask:
                total += amount
        return total

    def serves(self, mask: int) -> bool:
        """Whether the mask reaches the amount."""
        return self.total(mask) >= self.amount


@dataclass(frozen=True, slots=True)
class Family:
    """All non-empty masks within `domain` that serve every need. Upward closed within the domain."""

    domain: int
    needs: tuple[Need, ...]

    def holds(self, mask: int) -> bool:
        """Whether the mask is one of the family."""
        if not mask or mask & ~self.domain:
            return False
        return all([need.serves(mask) for need in self.needs])  # noqa: C419 - a short list beats a generator

    @property
    def possible(self) -> bool:
        """Whether the family has any mask: if so, its whole domain is one."""
        return self.holds(self.domain)


class Budget:
    """Steps that a search may still take. Counted, not timed, so that a replayed decision is the same decision."""

    __slots__ = ("left",)

    def __init__(self, steps: int = 20_000) -> None:
        self.left = steps

    def spend(self) -> bool:
        """Take one step; False when there is none left."""
        self.left -= 1
        return self.left >= 0
