"""Every invariant of a Machine, to be asserted after each load (a sound machine is never a guess).

Used by the replay tests, the fuzz tests and whoever builds machines in tests.
"""

from __future__ import annotations

from collections.abc import Iterable

from agent.model.idset import CpuSet, IdSet, NodeSet
from agent.model.machine import Machine, MemoryKind


def check_machine(machine: Machine) -> None:
    """Raise AssertionError with the rule that does not hold."""
    assert len(machine.online) > 0, "a machine has CPUs"
    _ordering(machine)
    _units(machine)
    _nodes(machine)
    _caches(machine)
    _devices(machine)
    assert machine.offline.isdisjoint(machine.online), "no CPU is both online and offline"
    assert machine.isolated.issubset(machine.online), "isolated CPUs are online"
    assert machine.sockets is None or machine.sockets > 0, "sockets are counted from one"
    assert all(": " in text for text in machine.warnings), "a warning names its file"
    assert len(machine.digest) == 16, "the digest has sixteen digits"


def _partition(sets: Iterable[IdSet], whole: IdSet, what: str) -> None:
    bits = 0
    for each in sets:
        assert each.bits, f"no empty {what}"
        assert not bits & each.bits, f"{what} are disjoint"
        bits |= each.bits
    assert bits == whole.bits, f"{what} cover all CPUs"


def _ordering(machine: Machine) -> None:
    for what, keys in (
        ("CPUs", [cpu.id for cpu in machine.cpus]),
        ("nodes", [node.id for node in machine.nodes]),
        ("cores", [cpus.first for cpus in machine.cores]),
        ("packages", [cpus.first for cpus in machine.packages]),
    ):
        assert keys == sorted(set(keys)), f"{what} are sorted and unique"
    levels = [(cache.level, cache.cpus.first) for cache in machine.caches]
    assert levels == sorted(set(levels)), "caches are sorted by level, then lowest CPU"


def _units(machine: Machine) -> None:
    for what, sets in (("cores", machine.cores), ("packages", machine.packages), ("dies", machine.dies)):
        _partition(sets, machine.online, what)
    by_id = {cpu.id: cpu for cpu in machine.cpus}
    for cpus in machine.cores:
        assert all(by_id[cpu].core == cpus.first for cpu in cpus), "a core is called by its lowest CPU"
        assert len({by_id[cpu].node for cpu in cpus}) == 1, "a core is inside one node"
        assert len({by_id[cpu].package for cpu in cpus}) == 1, "a core is inside one package"
        assert len({by_id[cpu].die for cpu in cpus}) == 1, "a core is inside one die"
        assert len({by_id[cpu].uncore for cpu in cpus}) == 1, "a core has one uncore cache"
    for cpus in machine.dies:
        assert len({by_id[cpu].package for cpu in cpus}) == 1, "a die is inside one package"
        assert all(by_id[cpu].die == cpus.first for cpu in cpus), "a die is called by its lowest CPU"
    kinds = {"", "performance", "middle", "efficiency"}
    assert {cpu.kind for cpu in machine.cpus} <= kinds, "kinds of cores are known words"


def _nodes(machine: Machine) -> None:
    _partition((node.cpus for node in machine.nodes if node.cpus), machine.online, "nodes")
    with_cpus = NodeSet.from_ids(node.id for node in machine.nodes if node.cpus)
    online = [node for node in machine.nodes if node.online]
    assert online, "a machine has a NUMA node that is online"
    for node in machine.nodes:
        assert all(cpu.node == node.id for cpu in machine.cpus if cpu.id in node.cpus), "a CPU names its node"
        assert all(amount >= 0 for amount in node.resources.values()), "huge pages fit into the node's memory"
        sizes = [size for size, _ in node.hugepages]
        assert sizes == sorted(set(sizes)), "huge page sizes are sorted and unique"
        assert all(size > 0 and count >= 0 for size, count in node.hugepages), "huge pages are counted"
        assert len(node.distances) in (0, len(machine.nodes)), "a distance to every node, or none"
        assert all(number > 0 for number in node.distances), "distances are positive"
        assert node.initiators.issubset(with_cpus), "initiators have CPUs"
        assert (node.kind is MemoryKind.NONE) <= (node.memory == 0), "a node without memory is of no kind"
        assert node.online or (node.memory == 0 and node.cpus), "a node that is not online has CPUs and no memory"


def _caches(machine: Machine) -> None:
    for level in {cache.level for cache in machine.caches}:
        sets = [cache.cpus for cache in machine.caches if cache.level == level]
        _partition(sets, CpuSet.union(sets), f"level {level} caches")
    for cache in machine.caches:
        assert cache.cpus.issubset(machine.online), "caches are shared by online CPUs"
        assert cache.size >= 0, "a cache has a size"
    groups: dict[int, set[int]] = {}
    for cpu in machine.cpus:
        if cpu.uncore is not None:
            groups.setdefault(cpu.uncore, set()).add(cpu.core)
    outer = [set(cache.cpus) for cache in machine.caches if cache.level >= 3]
    for ids in groups.values():
        assert any(ids <= cache for cache in outer), "the first threads of cores with one uncore id share a cache"


def _devices(machine: Machine) -> None:
    addresses = [device.address for device in machine.devices]
    assert len(addresses) == len(set(addresses)), "addresses are unique"
    for device in machine.devices:
        assert device.numa_nodes.issubset(machine.node_set), "devices are local to nodes that exist"
        assert bool(device.numa_nodes) == bool(device.numa_source), "what told the nodes is named"
        assert len(device.class_code) == 6, "a class has six digits"
        assert len(device.vendor) == len(device.device) == 4, "ids have four digits"
