"""What changed between two readings of a machine, a sentence each.

Called by the engine when a machine is read again (start, hot-plug, reboot) and by `numalign topology`. Every
difference that `Machine.digest` sees is told; a difference of names alone (a core is called by another of its CPUs
because its lowest one went offline) is not told twice.
"""

from __future__ import annotations

from collections.abc import Iterator

from agent.model.idset import CpuSet
from agent.model.machine import Machine, NumaNode, PciDevice
from agent.model.quantity import show_bytes


def changes(old: Machine, new: Machine) -> tuple[str, ...]:
    """Every difference that matters to a grant, in a fixed order; empty exactly when the digests are equal."""
    if old.digest == new.digest:
        return ()
    found = (*_cpus(old, new), *_nodes(old, new), *_devices(old, new))
    if found:
        return found
    return ("the kernel numbers packages, dies or caches in another way",)


def _cpus(old: Machine, new: Machine) -> Iterator[str]:
    gone, added = old.online - new.online, new.online - old.online
    offline, vanished = gone & new.offline, gone - new.offline
    if offline:
        yield f"CPUs {offline} are offline now"
    if vanished:
        yield f"CPUs {vanished} are not there any more"
    if added:
        yield f"CPUs {added} are online now"
    common = old.online & new.online
    for what, unit in (("a core", "core"), ("a die", "die"), ("a package", "package"), ("an uncore cache", "uncore")):
        moved = _regrouped(old, new, unit, common)
        if moved:
            yield f"CPUs {moved} share {what} with other CPUs than before"
    was, now = {c.id: c for c in old.cpus}, {c.id: c for c in new.cpus}
    moved = CpuSet.from_ids(cpu for cpu in common if was[cpu].node != now[cpu].node)
    if moved:
        yield f"CPUs {moved} belong to other NUMA nodes than before"
    other = CpuSet.from_ids(cpu for cpu in common if was[cpu].kind != now[cpu].kind)
    if other:
        yield f"CPUs {other} are of another kind than before"
    isolated = old.isolated ^ new.isolated
    if isolated:
        yield f"kernel-isolated CPUs were {old.isolated or 'none'} and are {new.isolated or 'none'}"


def _regrouped(old: Machine, new: Machine, unit: str, common: CpuSet) -> CpuSet:
    """CPUs, online before and after, whose unit holds other common CPUs than before."""
    before, after = _groups(old, unit, common), _groups(new, unit, common)
    return CpuSet.from_ids(cpu for cpu in common if before.get(cpu) != after.get(cpu))


def _groups(machine: Machine, unit: str, common: CpuSet) -> dict[int, int]:
    bits: dict[int, int] = {}
    keys = {cpu.id: getattr(cpu, unit) for cpu in machine.cpus if cpu.id in common}
    for cpu, key in keys.items():
        if key is not None:
            bits[key] = bits.get(key, 0) | 1 << cpu
    return {cpu: bits[key] for cpu, key in keys.items() if key is not None}


def _nodes(old: Machine, new: Machine) -> Iterator[str]:
    for number in sorted(set(old.by_node) | set(new.by_node)):
        was, now = old.by_node.get(number), new.by_node.get(number)
        subject = f"node {number}"
        if now is None:
            yield f"NUMA node {number} is not there any more"
        elif was is None:
            yield f"NUMA node {number} is new: {_memory(now)}, CPUs {now.cpus or '-'}"
        else:
            yield from _node(was, now, subject, same_nodes=old.node_set == new.node_set)


def _node(was: NumaNode, now: NumaNode, subject: str, *, same_nodes: bool) -> Iterator[str]:
    if was.memory != now.memory:
        verb = "grew" if now.memory > was.memory else "shrank"
        yield f"the memory of NUMA {subject} {verb} from {_memory(was)} to {_memory(now)}"
    had, has = dict(was.hugepages), dict(now.hugepages)
    for size in sorted(had.keys() | has.keys()):
        if had.get(size) != has.get(size):
            pages = f"{show_bytes(size)} pages of NUMA {subject}"
            yield f"{pages} were {had.get(size, 'not offered')} and are {has.get(size, 'not offered')}"
    if same_nodes and was.distances != now.distances:
        yield f"the distances of NUMA {subject} changed"
    if was.kind != now.kind:
        yield f"the memory of NUMA {subject} was {was.kind} and is {now.kind}"
    if was.movable != now.movable:
        yield f"the memory of NUMA {subject} is {'movable only' if now.movable else 'not movable only any more'}"
    if was.initiators != now.initiators:
        before, after = was.initiators or "-", now.initiators or "-"
        yield f"the memory of NUMA {subject} was nearest to nodes {before}, now {after}"


def _memory(node: NumaNode) -> str:
    return show_bytes(node.memory)


def _devices(old: Machine, new: Machine) -> Iterator[str]:
    before, after = {d.address: d for d in old.devices}, {d.address: d for d in new.devices}
    for address in sorted(before.keys() | after.keys()):
        was, now = before.get(address), after.get(address)
        if now is None:
            yield f"PCI device {address} is not there any more"
        elif was is None:
            yield f"PCI device {address} ({_model(now)}) is new"
        elif _model(was) != _model(now):
            yield f"PCI device {address} was {_model(was)} and is {_model(now)}"
        elif was.numa_nodes != now.numa_nodes:
            yield f"PCI device {address} was local to nodes {was.numa_nodes or '-'}, now {now.numa_nodes or '-'}"


def _model(device: PciDevice) -> str:
    return f"class {device.class_code}, {device.vendor}:{device.device}"
