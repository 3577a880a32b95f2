"""Family cpu-take: one taking of CPUs (takeByTopologyNUMAPacked, takeByTopologyNUMADistributed)."""

from __future__ import annotations

from typing import Any

from agent.core.cpus.distributed import distributed
from agent.core.cpus.packed import CannotTake, packed
from agent.core.cpus.topology import CpuTopology
from agent.model.idset import CpuSet
from tests.parity.machines import machine_of


def answer(given: dict[str, Any]) -> dict[str, Any]:
    """What our algorithms take, in the shape of `expected`."""
    topology = CpuTopology.of(machine_of(given["machine"]))
    available, count = CpuSet.parse(given.get("available", "")).bits, given["count"]
    spread = given.get("sorting") == "spread"
    try:
        if given["algorithm"] == "packed":
            taken = packed(
                topology, available, count, spread=spread, uncore=given.get("prefer_uncore", False), literal=True
            )
        else:
            group = given.get("group_size", 1)
            taken = distributed(topology, available, count, group=group, spread=spread, literal=True)
    except CannotTake as error:
        return {"error": str(error)}
    return {"cpus": str(CpuSet(taken))}
