"""A Machine as JSON: what `numalign topology --output json` prints.

Called by the command line and by tests/replay. The first keys are those of recorded facts, so that any tool that
compares topologies can read them; the rest is ours and grows by adding keys, `version` counts changes of meaning.
"""

from __future__ import annotations

from typing import Any

from agent.model.idset import NodeSet
from agent.model.machine import Machine, PciDevice

VERSION = 1
BRIDGE = "0604"
"""PCI class of a bridge: part of the way to a device, no device that anyone is given."""


def to_facts(machine: Machine) -> dict[str, Any]:
    """The JSON object of a machine.

    cpus; cores, packages, dies, l3: sets of CPUs, each ascending, sorted; numa: the online nodes; distances: nodes
    and matrix, null where the kernel gives none or there is one node only; pci: every function but bridges, with the
    nodes local to it (all nodes where nothing says).
    """
    nodes = [node for node in machine.nodes if node.online]
    known = len(nodes) > 1 and all(node.distances for node in nodes)
    return {
        "version": VERSION,
        "name": machine.name,
        "digest": machine.digest,
        "cpus": list(machine.online),
        "cores": _lists(machine.cores),
        "packages": _lists(machine.packages),
        "l3": sorted(list(cpus) for cpus in machine.l3),
        "numa": [
            {
                "node": node.id,
                "cpus": list(node.cpus),
                "memory_bytes": node.memory,
                "hugepages": {str(size): count for size, count in node.hugepages if count},
                "kind": str(node.kind),
                "kind_source": node.kind_source,
                "initiators": list(node.initiators),
                "tier": node.tier,
                "movable": node.movable,
            }
            for node in nodes
        ],
        "distances": {"nodes": [n.id for n in nodes], "matrix": [list(n.distances) for n in nodes]}
        if known
        else None,
        "pci": [_device(machine, device) for device in machine.devices if not device.class_code.startswith(BRIDGE)],
        "bridges": [_device(machine, device) for device in machine.devices if device.class_code.startswith(BRIDGE)],
        "offline": list(machine.offline),
        "disallowed": list(machine.disallowed),
        "isolated": list(machine.isolated),
        "dies": _lists(machine.dies),
        "caches": [{"level": c.level, "cpus": list(c.cpus), "size_bytes": c.size} for c in machine.caches],
        "kinds": {str(cpu.id): cpu.kind for cpu in machine.cpus if cpu.kind},
        "uncore": {str(cpu.id): cpu.uncore for cpu in machine.cpus if cpu.uncore is not None},
        "offline_nodes": [{"node": n.id, "cpus": list(n.cpus)} for n in machine.nodes if not n.online],
        "sockets": len(machine.packages),
        "warnings": list(machine.warnings),
    }


def local_nodes(machine: Machine, device: PciDevice) -> NodeSet:
    """The nodes local to a device: its own, and the memory-only nodes that those reach best (a GPU's own memory).

    All nodes of the machine where nothing says where the device is.
    """
    if not device.numa_nodes:
        return NodeSet.from_ids(node.id for node in machine.nodes if node.online)
    near = (n.id for n in machine.nodes if not n.cpus and not n.initiators.isdisjoint(device.numa_nodes))
    return device.numa_nodes | NodeSet.from_ids(near)


def _device(machine: Machine, device: PciDevice) -> dict[str, Any]:
    return {
        "address": device.address,
        "numa_nodes": list(local_nodes(machine, device)),
        "numa_source": device.numa_source,
        "class": device.class_code,
        "vendor": device.vendor,
        "device": device.device,
        "driver": device.driver,
        "iommu_group": device.iommu_group,
        "physfn": device.physfn,
        "parent": device.parent,
    }


def _lists(sets: tuple[Any, ...]) -> list[list[int]]:
    return [list(cpus) for cpus in sets]
