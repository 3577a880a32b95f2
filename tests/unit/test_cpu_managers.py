"""The smaller set of answers of the kubelet's CPU manager (kubelet rule 12.2), where the shared folder is there."""

from __future__ import annotations

import json
from typing import Any

from agent.core.cpus.distributed import distributed
from agent.core.cpus.hints import Hinter
from agent.core.cpus.packed import CannotTake, packed
from agent.core.cpus.topology import CpuTopology
from agent.core.kubelets import kubelet_rules
from agent.core.merge.demand import Demand, Positions, listed
from agent.model.idset import CpuSet
from agent.model.machine import Cpu, Machine, NumaNode
from agent.model.rules import Compatibility, Rules
from tests.reference import vectors

Json = dict[str, Any]

OLD = kubelet_rules(Rules(compatibility=Compatibility.KUBELET))
"""As kubelet 1.36 does it."""


def test_managers_vectors() -> None:
    """Every case is answered alike; where the kubelet gives no answer, with what is free."""
    data = json.loads(vectors("managers/cpu.json").read_text())
    machines = {name: _machine(raw) for name, raw in data["topologies"].items()}
    different = [case for case in data["cases"] if not _alike(machines[case["topo"]], case)]
    assert len(data["cases"]) > 1000
    assert not different


def _machine(raw: Json) -> Machine:
    cpus = tuple(
        Cpu(int(cpu), node=node, core=core, package=socket, die=socket, uncore=uncore)
        for cpu, (core, socket, node, uncore) in sorted(raw["CPUs"].items(), key=lambda item: int(item[0]))
    )
    nodes = tuple(
        NumaNode(node, CpuSet.from_ids(cpu.id for cpu in cpus if cpu.node == node), memory=0)
        for node in sorted({cpu.node for cpu in cpus})
    )
    return Machine(cpus=cpus, nodes=nodes, sockets=raw["Sockets"])


def _alike(machine: Machine, case: Json) -> bool:
    topology, free = CpuTopology.of(machine), CpuSet.parse(case["free"])
    if case["algo"] == "hints":
        positions = Positions.of(machine.node_set)
        hinter = Hinter(topology, positions, machine.usable, by_socket=case.get("align_by_socket", False))
        offer = hinter.offer(free, case["n"], CpuSet.parse(case.get("reuse") or ""))
        hints = listed(offer, positions) if isinstance(offer, Demand) else ()
        return [[list(hint.nodes or ()), hint.preferred] for hint in hints] == (case.get("hints") or [])
    spread = case.get("strategy") == "spread"
    try:
        if case["algo"] == "packed":
            uncore = case.get("uncore", False)
            taken = packed(topology, free.bits, case["n"], spread=spread, uncore=uncore, literal=True, kubelet=OLD)
        else:
            group = case.get("group", 1)
            taken = distributed(topology, free.bits, case["n"], group=group, spread=spread, literal=True, kubelet=OLD)
    except CannotTake as error:
        return str(error) == case.get("err")
    if case.get("err") == "HANG":
        return taken.bit_count() == case["n"] and not taken & ~free.bits
    return str(CpuSet(taken)) == case.get("result", "") and not case.get("err")
