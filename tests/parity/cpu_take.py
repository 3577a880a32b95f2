"""Family cpu-take: one taking of CPUs (takeByTopologyNUMAPacked, takeByTopologyNUMADistributed)."""

from __future__ import annotations

from typing import Any

from agent.core.cpus.distributed import distributed
from agent.core.cpus.packed import CannotTake, packed
from agent.core.cpus.topology import CpuTopology
from agent.core.kubelets import kubelet_rules
from agent.model.idset import CpuSet
from agent.model.rules import Compatibility, Rules
from tests.parity.machines import machine_of, minor_of


def answer(given: dict[str, Any], *, literally: bool = False) -> tuple[dict[str, Any], list[str]]:
    """What our algorithms take, in the shape of `expected`."""
    topology = CpuTopology.of(machine_of(given["machine"]))
    available, count = CpuSet.parse(given.get("available", "")).bits, given["count"]
    spread = given.get("sorting") == "spread"
    how = kubelet_rules(Rules(compatibility=Compatibility.KUBELET, minor=minor_of(given)))
    try:
        if given["algorithm"] == "packed":
            uncore = given.get("prefer_uncore", False)
            taken = packed(topology, available, count, spread=spread, uncore=uncore, literal=True, kubelet=how)
        else:
            group = given.get("group_size", 1)
            taken = distributed(
                topology,
                available,
                count,
                group=group,
                spread=spread,
                literal=True,
                by_socket=given.get("align_by_socket", False) and how.distribute_in_socket,
                at_least=given.get("min_numa_nodes", 0),
                kubelet=how,
            )
    except CannotTake as error:
        return {"error": str(error)}, []
    return {"cpus": str(CpuSet(taken))}, []
