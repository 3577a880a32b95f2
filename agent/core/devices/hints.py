"""Where devices for one request could lie: the kubelet's hint rules as a Demand (kubelet rule 6.2).

Used by `agent.core.devices.provider`.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from agent.core.merge.demand import Demand, capacity_size
from agent.core.merge.needs import Family, Need
from agent.model.hint import IMPOSSIBLE, Stance


def device_demand(
    everything: int,
    devices: Iterable[int],
    available: Iterable[int],
    reusable: Iterable[int | None],
    size: int,
    *,
    everywhere: bool = False,
) -> Demand | Stance:
    """The node sets that touch enough devices.

    Args:
        everything: mask of all nodes.
        devices: node mask of every device of the resource, healthy or not; 0 for one near no known node.
        available: the same of those that can be had.
        reusable: the same of those left by init containers: every mask must touch them all. None for one whose
            place is unknown.
        size: how many are asked for.
        everywhere: sets with nodes that have no device count too (`KubeletRules.devices_everywhere`).
    """
    left = [nodes for nodes in reusable if nodes is not None]
    if 0 in left:
        return IMPOSSIBLE
    domain, count = _by_capacity(everything, tuple(devices), size, everywhere=everywhere)
    held = tuple(touching(everything, [nodes], 1) for nodes in sorted(set(left)))
    family = Family(domain, (touching(everything, [*available, *left], size), *held))
    return Demand(family, count) if family.possible else IMPOSSIBLE


@lru_cache(maxsize=1024)
def _by_capacity(everything: int, devices: tuple[int, ...], size: int, *, everywhere: bool) -> tuple[int, int | None]:
    """The nodes of which sets are made, and the node count of the preferred ones: inventories seldom change."""
    domain = everything if everywhere else 0
    for nodes in devices:
        domain |= nodes
    domain = domain or everything
    whole = Family(domain, (touching(everything, devices, size),))
    return domain, capacity_size(whole) if whole.possible else domain.bit_count()


def held_demand(everything: int, held: Iterable[int]) -> Demand | Stance:
    """The node sets that touch all of some devices that are chosen already; the smallest are preferred.

    For devices that the kubelet gave: they cannot be chosen again, so nothing better is possible.
    """
    needs = tuple(touching(everything, [nodes], 1) for nodes in sorted({nodes for nodes in held if nodes}))
    if not needs:
        return Stance.NO_PREFERENCE
    family = Family(everything, needs)
    return Demand(family, capacity_size(family))


def touching(everything: int, devices: Iterable[int], amount: int) -> Need:
    """The need of `amount` devices; one near several nodes counts once."""
    weights = [0] * everything.bit_length()
    shared: dict[int, int] = {}
    for nodes in devices:
        if nodes.bit_count() > 1:
            shared[nodes] = shared.get(nodes, 0) + 1
        elif nodes:
            weights[nodes.bit_length() - 1] += 1
    return Need(amount, tuple(weights), tuple(sorted(shared.items())))
