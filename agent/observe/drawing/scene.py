"""What the drawing needs beside the machine: the holder of each CPU, node's memory and device.

Made by `draw`, read by `layout` and `side`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from agent.core.devices.nearness import pairs_of
from agent.core.machines.pcie import Pair
from agent.model.idset import CpuSet
from agent.model.ledger import Ledger, NodeBook
from agent.model.machine import Machine, NumaNode
from agent.model.rules import Rules
from agent.observe.drawing.holders import Holder, holders
from agent.observe.drawing.units import Unit


@dataclass(frozen=True)
class Scene:
    """A machine and, perhaps, its ledger.

    Attributes:
        full: draw every unit, equal ones too.
        reserved: CPUs that are kept for the system; some of them, or all, may be in the shared pool too.
        fold_over: units of a kind above which equal neighbours are folded.
        rules: whether devices of a pod are compared with each other; None: they are not.
    """

    machine: Machine
    ledger: Ledger | None = None
    full: bool = False
    fold_over: int = 16
    reserved: CpuSet = CpuSet()
    rules: Rules | None = None
    holders: tuple[Holder, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "holders", holders(self.ledger) if self.ledger else ())

    @cached_property
    def of_cpu(self) -> dict[int, Holder]:
        """Holder of each exclusive CPU."""
        return {cpu: holder for holder in self.holders for cpu in holder.cpus}

    @cached_property
    def of_device(self) -> dict[str, Holder]:
        """Holder of each device."""
        return {device: holder for holder in self.holders for device in holder.devices}

    def near(self, uid: str) -> tuple[Pair, ...]:
        """How near the devices of a pod are to each other."""
        return pairs_of(self.ledger, uid, self.machine, self.rules) if self.ledger and self.rules else ()

    @cached_property
    def unpooled(self) -> CpuSet:
        """CPUs that are in no pool and held by no pod: reserved. Those that the kernel isolates have a mark."""
        if self.ledger is None:
            return CpuSet()
        held = CpuSet.union(holder.cpus for holder in self.holders)
        return self.machine.online - self.ledger.cpus.shared - held - self.machine.isolated

    @cached_property
    def pooled(self) -> CpuSet:
        """Reserved CPUs that containers without CPUs of their own run on as well."""
        return (self.reserved & self.ledger.cpus.shared) if self.ledger else CpuSet()

    @cached_property
    def kinds(self) -> dict[int, str]:
        """Kind of each CPU of a hybrid machine."""
        return {cpu.id: cpu.kind for cpu in self.machine.cpus if cpu.kind}

    @cached_property
    def digits(self) -> int:
        """Digits of the largest CPU number."""
        return len(str(max(self.machine.online)))

    @cached_property
    def folds(self) -> bool:
        """True if equal neighbours are folded, as on machines that would not be readable otherwise."""
        return not self.full and max(len(self.machine.nodes), len(self.machine.l3)) > self.fold_over

    def special(self, unit: Unit) -> bool:
        """Return True if a unit shows something that no other one does."""
        odd = self.machine.isolated | self.unpooled | self.pooled
        if not unit.cpus.isdisjoint(odd) or any(cpu in self.of_cpu for cpu in unit.cpus):
            return True
        nodes = [unit.node, *(child.node for child in unit.children)]
        return any(self.book(node) and self._used(node) for node in nodes if node) or any(
            device.address in self.of_device for device in unit.devices
        )

    def book(self, node: NumaNode) -> NodeBook | None:
        """Return the memory accounts of a node; None where no manager keeps any."""
        found = [book for book in self.ledger.memory.nodes if book.id == node.id] if self.ledger else []
        return found[0] if found else None

    def on_node(self, node: NumaNode) -> Iterator[tuple[Holder, dict[str, int]]]:
        """Return the holders of a node's memory, and how many bytes of each resource."""
        for holder in self.holders:
            if holder.memory.get(node.id):
                yield holder, dict(holder.memory[node.id])

    def _used(self, node: NumaNode) -> bool:
        book = self.book(node)
        return bool(book and (any(book.reserved.values()) or any(book.system.values()))) or any(self.on_node(node))
