"""What changed between two readings of a machine, as data and as sentences.

Called by the engine when a machine is read again (start, hot-plug, reboot) and by `numalign topology`. Every
difference that `Machine.digest` sees is told; a difference of names alone (a core is called by another of its CPUs
because its lowest one went offline) is not told twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from agent.model.idset import CpuSet
from agent.model.machine import Machine, NumaNode, PciDevice
from agent.model.quantity import show_bytes


class ChangeKind(StrEnum):
    """What sort of thing changed; a label of metrics and events."""

    CPU_GONE = "cpu-gone"
    CPU_NEW = "cpu-new"
    CPU_MOVED = "cpu-moved"
    CPU_ISOLATED = "cpu-isolated"
    NODE_GONE = "node-gone"
    NODE_NEW = "node-new"
    NODE_CHANGED = "node-changed"
    MEMORY = "memory"
    HUGEPAGES = "hugepages"
    DEVICE_GONE = "device-gone"
    DEVICE_NEW = "device-new"
    DEVICE_CHANGED = "device-changed"
    NUMBERING = "numbering"


@dataclass(frozen=True, slots=True)
class MachineChange:
    """One difference.

    Attributes:
        kind: what sort.
        subject: "CPUs 4-7", "node 1", a PCI address.
        text: a sentence for a person.
    """

    kind: ChangeKind
    subject: str
    text: str


def changes(old: Machine, new: Machine) -> tuple[MachineChange, ...]:
    """Every difference that matters to a grant, in a fixed order; empty exactly when the digests are equal."""
    if old.digest == new.digest:
        return ()
    found = (*_cpus(old, new), *_nodes(old, new), *_devices(old, new))
    if found:
        return found
    return (
        MachineChange(ChangeKind.NUMBERING, "machine", "the kernel numbers packages, dies or caches in another way"),
    )


def _cpus(old: Machine, new: Machine) -> Iterator[MachineChange]:
    gone, added = old.online - new.online, new.online - old.online
    offline, vanished = gone & new.offline, gone - new.offline
    if offline:
        yield MachineChange(ChangeKind.CPU_GONE, f"CPUs {offline}", f"CPUs {offline} are offline now")
    if vanished:
        yield MachineChange(ChangeKind.CPU_GONE, f"CPUs {vanished}", f"CPUs {vanished} are not there any more")
    if added:
        yield MachineChange(ChangeKind.CPU_NEW, f"CPUs {added}", f"CPUs {added} are online now")
    common = old.online & new.online
    for what, unit in (("a core", "core"), ("a die", "die"), ("a package", "package"), ("an uncore cache", "uncore")):
        moved = _regrouped(old, new, unit, common)
        if moved:
            text = f"CPUs {moved} share {what} with other CPUs than before"
            yield MachineChange(ChangeKind.CPU_MOVED, f"CPUs {moved}", text)
    was, now = {c.id: c for c in old.cpus}, {c.id: c for c in new.cpus}
    moved = CpuSet.from_ids(cpu for cpu in common if was[cpu].node != now[cpu].node)
    if moved:
        yield MachineChange(
            ChangeKind.CPU_MOVED, f"CPUs {moved}", f"CPUs {moved} belong to other NUMA nodes than before"
        )
    other = CpuSet.from_ids(cpu for cpu in common if was[cpu].kind != now[cpu].kind)
    if other:
        yield MachineChange(ChangeKind.CPU_MOVED, f"CPUs {other}", f"CPUs {other} are of another kind than before")
    isolated = old.isolated ^ new.isolated
    if isolated:
        text = f"kernel-isolated CPUs were {old.isolated or 'none'} and are {new.isolated or 'none'}"
        yield MachineChange(ChangeKind.CPU_ISOLATED, f"CPUs {isolated}", text)


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


def _nodes(old: Machine, new: Machine) -> Iterator[MachineChange]:
    for number in sorted(set(old.by_node) | set(new.by_node)):
        was, now = old.by_node.get(number), new.by_node.get(number)
        subject = f"node {number}"
        if now is None:
            yield MachineChange(ChangeKind.NODE_GONE, subject, f"NUMA node {number} is not there any more")
        elif was is None:
            yield MachineChange(
                ChangeKind.NODE_NEW, subject, f"NUMA node {number} is new: {_memory(now)}, CPUs {now.cpus or '-'}"
            )
        else:
            yield from _node(was, now, subject, same_nodes=old.node_set == new.node_set)


def _node(was: NumaNode, now: NumaNode, subject: str, *, same_nodes: bool) -> Iterator[MachineChange]:
    if was.memory != now.memory:
        verb = "grew" if now.memory > was.memory else "shrank"
        text = f"the memory of NUMA {subject} {verb} from {_memory(was)} to {_memory(now)}"
        yield MachineChange(ChangeKind.MEMORY, subject, text)
    before, after = dict(was.hugepages), dict(now.hugepages)
    for size in sorted(before.keys() | after.keys()):
        if before.get(size) != after.get(size):
            pages = f"{show_bytes(size)} pages of NUMA {subject}"
            text = f"{pages} were {before.get(size, 'not offered')} and are {after.get(size, 'not offered')}"
            yield MachineChange(ChangeKind.HUGEPAGES, subject, text)
    if same_nodes and was.distances != now.distances:
        yield MachineChange(ChangeKind.NODE_CHANGED, subject, f"the distances of NUMA {subject} changed")
    if was.kind != now.kind:
        yield MachineChange(
            ChangeKind.NODE_CHANGED, subject, f"the memory of NUMA {subject} was {was.kind} and is {now.kind}"
        )
    if was.initiators != now.initiators:
        text = (
            f"the memory of NUMA {subject} was nearest to nodes {was.initiators or '-'}, now {now.initiators or '-'}"
        )
        yield MachineChange(ChangeKind.NODE_CHANGED, subject, text)


def _memory(node: NumaNode) -> str:
    return show_bytes(node.memory)


def _devices(old: Machine, new: Machine) -> Iterator[MachineChange]:
    before, after = {d.address: d for d in old.devices}, {d.address: d for d in new.devices}
    for address in sorted(before.keys() | after.keys()):
        was, now = before.get(address), after.get(address)
        if now is None:
            yield MachineChange(ChangeKind.DEVICE_GONE, address, f"PCI device {address} is not there any more")
        elif was is None:
            yield MachineChange(ChangeKind.DEVICE_NEW, address, f"PCI device {address} ({_model(now)}) is new")
        elif _model(was) != _model(now):
            text = f"PCI device {address} was {_model(was)} and is {_model(now)}"
            yield MachineChange(ChangeKind.DEVICE_CHANGED, address, text)
        elif was.numa_nodes != now.numa_nodes:
            text = f"PCI device {address} was local to nodes {was.numa_nodes or '-'}, now {now.numa_nodes or '-'}"
            yield MachineChange(ChangeKind.DEVICE_CHANGED, address, text)


def _model(device: PciDevice) -> str:
    return f"class {device.class_code}, {device.vendor}:{device.device}"
