"""How near the devices of one pod are to each other, for people (`pcieLocality: tell` or `choose`). Pure.

Only PCI functions have a place on the tree: devices whose id is an address. A plugin that
names its devices by other ids (NVIDIA's UUIDs) leaves them out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from agent.core.devices.claims import claims_of
from agent.core.machines.pcie import MEANING, Pair, PciTree
from agent.model.ledger import Ledger
from agent.model.machine import Machine
from agent.model.rules import PcieLocality, Rules

MOST_PAIRS = 28
"""Pairs that are told one by one, of eight functions; of more functions only how many pairs are how near is told."""


def functions(ledger: Ledger, uid: str) -> frozenset[str]:
    """The ids of all devices that a pod holds, and the addresses of those that its claims gave."""
    held = ledger.devices.held.get(uid, {})
    claimed = {each.address for own in claims_of(ledger, uid).values() for each in own if each.address}
    return frozenset({each for own in held.values() for ids in own.values() for each in ids} | claimed)


def pairs_of(ledger: Ledger, uid: str, machine: Machine, rules: Rules) -> tuple[Pair, ...]:
    """All pairs of a pod's functions; none while it does not count how near they are."""
    held = functions(ledger, uid) if rules.pcie is not PcieLocality.OFF else ()
    return PciTree(machine).pairs(held) if len(held) > 1 else ()


def noted(pairs: tuple[Pair, ...]) -> Mapping[str, str | int]:
    """For an annotation: "ADDRESS ADDRESS" -> word; of many pairs word -> how many."""
    if len(pairs) <= MOST_PAIRS:
        return {f"{each.one} {each.other}": each.distance.value for each in pairs}
    return dict(sorted(Counter(each.distance.value for each in pairs).items()))


def sentences(pairs: tuple[Pair, ...]) -> Iterator[str]:
    """The same for people."""
    if len(pairs) <= MOST_PAIRS:
        yield from (
            f"devices {each.one} and {each.other} are {each.distance.value}: {MEANING[each.distance]}"
            for each in pairs
        )
        return
    counts = Counter(each.distance for each in pairs)
    listed = ", ".join(f"{counts[each]} {each.value} ({MEANING[each]})" for each in MEANING if counts[each])
    yield f"{len(pairs)} pairs of its devices: {listed}"
