"""Files that a person, a tool or a mistake could write: a plain configuration with nothing to two odd things in it.

Every top-level key has a line of its own, so that a file can be made smaller line by line. A gate is named only where
the kubelet that is asked knows it and lets it have that value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.kubeletconfig.draw import Draw
from tests.kubeletconfig.machines import FIRST, MACHINES, machine
from tests.kubeletconfig.odd import ODD
from tests.kubeletconfig.plain import plain
from tests.kubeletconfig.written import HEAD, WRITTEN

DISTRIBUTED, MOST_DISTRIBUTED = "distribute-cpus-across-numa", 4
"""On more NUMA nodes the kubelet reserves other CPUs than it chose (defect D2)."""


@dataclass(frozen=True)
class File:
    """A text, and the machine that it is tried on."""

    text: str
    machine: str = FIRST


class Grammar:
    """Files for one kubelet, by the gates that it knows (`tests.peers.decoders.gates`)."""

    def __init__(self, seed: int, gates: Mapping[str, Mapping[str, Any]]) -> None:
        self._draw = Draw(seed, sorted(name for name, spec in gates.items() if not spec["locked"]))

    def file(self) -> File:
        draw = self._draw
        where = draw.one([*MACHINES, FIRST])
        pairs = plain(draw, where)
        for _ in range(draw.one((0, 1, 1, 1, 2, 2))):
            draw.one(ODD)(draw, pairs)
        if any(DISTRIBUTED in value for _, value in pairs) and len(machine(where).nodes) > MOST_DISTRIBUTED:
            where = FIRST
        own = {key for key, _ in pairs}
        lines = [line for line in HEAD if line.partition(":")[0] not in own]
        lines += [f"{key}: {value}" for key, value in pairs]
        if draw.chance(0.3):
            lines = draw.one(WRITTEN)(draw, lines)
        return File("\n".join(lines) + ("" if draw.chance(0.1) else "\n"), where)
