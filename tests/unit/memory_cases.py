"""Machines, pods and a small desk at which memory is asked for, for the tests of the memory and device managers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from agent.core.memory.provider import MemoryManager
from agent.core.merge.demand import Demand, Positions, listed
from agent.core.merge.provider import Answer
from agent.core.merge.provider import Provider as HintProvider
from agent.model.hint import Hint, Stance
from agent.model.idset import CpuSet, NodeSet
from agent.model.ledger import Block, CpuBooks, Ledger
from agent.model.machine import Cpu, Machine, NumaNode
from agent.model.outcome import Refusal
from agent.model.pod import Pod
from agent.model.rules import Compatibility, MemoryRules, MemoryTier, Minor, Rules
from tests.world.pods import HUGE_1G, HUGE_2M

MIB, GIB = 1 << 20, 1 << 30
SIZES = {HUGE_2M: 2 * MIB, HUGE_1G: GIB}
FIXED, KUBELET = Compatibility.FIXED, Compatibility.KUBELET
BOTH = (FIXED, KUBELET)
Manager = TypeVar("Manager", bound=HintProvider)


def node(
    number: int,
    memory: int,
    pages: Mapping[str, int] | None = None,
    *,
    cpus: CpuSet | None = None,
    distances: tuple[int, ...] = (),
) -> NumaNode:
    """A node with `memory` bytes beside its huge pages, given in bytes by resource; two CPUs of its own."""
    pages = pages or {}
    sizes = tuple(sorted((SIZES[name], amount // SIZES[name]) for name, amount in pages.items()))
    own = CpuSet.of(2 * number, 2 * number + 1) if cpus is None else cpus
    return NumaNode(number, own, memory + sum(pages.values()), sizes, distances)


def machine(*nodes: NumaNode) -> Machine:
    """A machine of these nodes; each CPU is a core, each node a package."""
    cpus = [Cpu(cpu, each.id, core=cpu, package=each.id, die=each.cpus.first) for each in nodes for cpu in each.cpus]
    return Machine(cpus=tuple(sorted(cpus, key=lambda cpu: cpu.id)), nodes=nodes)


def nodes(*ids: int) -> Hint:
    """A preferred affinity."""
    return Hint(NodeSet.of(*ids), preferred=True)


def about(*ids: int) -> Hint:
    """An affinity that is not preferred."""
    return Hint(NodeSet.of(*ids), preferred=False)


ANYWHERE = Hint(None, preferred=True)
NO_HINT = Hint(None, preferred=False)


def shown(answer: Answer, positions: Positions) -> object:
    """An answer for people: resource -> "{0}p {0,1}n", or the stance."""
    if isinstance(answer, Stance):
        return answer.value
    return {resource: _hints(offer, positions) for resource, offer in answer.items()}


def _hints(offer: object, positions: Positions) -> str:
    if isinstance(offer, Stance):
        return offer.value
    assert isinstance(offer, Demand)
    words = []
    for hint in listed(offer, positions):
        assert hint.nodes is not None
        words.append(f"{{{','.join(map(str, hint.nodes))}}}{'p' if hint.preferred else 'n'}")
    return " ".join(words)


class Asked(Generic[Manager]):
    """A manager with its ledger, asked as a node asks it."""

    provider: Manager
    positions: Positions
    ledger: Ledger

    def answer(self, of: Pod, name: str = "c") -> Answer:
        """A container's hints, or with "" the pod's."""
        if not name:
            return self.provider.pod_hints(self.ledger, of)
        found = next(each for each in of.containers if each.name == name)
        return self.provider.container_hints(self.ledger, of, found)

    def allocate(self, of: Pod, affinity: Hint, *names: str) -> Refusal | None:
        """Allocate containers in order, all by default; stops at the first refusal."""
        for each in of.containers:
            if not names or each.name in names:
                taken = self.provider.allocate(self.ledger, of, each, affinity)
                if isinstance(taken, Refusal):
                    return taken
                self.ledger = taken
        return None


@dataclass
class Desk(Asked[MemoryManager]):
    """One machine's memory manager and its ledger."""

    machine: Machine
    compatibility: Compatibility = FIXED
    reserved: Mapping[int, Mapping[str, int]] = field(default_factory=lambda: {0: {"memory": 1}})
    tier: MemoryTier = MemoryTier.LOCAL
    pod_level: bool = False
    static: bool = True
    minor: Minor = Minor.V1_36

    def __post_init__(self) -> None:
        rules = Rules(
            memory=MemoryRules(static=self.static, reserved=self.reserved, tier=self.tier),
            compatibility=self.compatibility,
            minor=self.minor,
            pod_level_managers=self.pod_level,
        )
        self.provider = MemoryManager(self.machine, rules)
        self.positions = Positions.of(self.machine.node_set)
        self.ledger = Ledger("", CpuBooks(CpuSet()), memory=self.provider.start())

    def hints(self, of: Pod, name: str = "") -> object:
        return shown(self.answer(of, name), self.positions)

    def admit(self, of: Pod, affinity: Hint) -> Pod:
        """Allocate all containers; none may be refused."""
        refusal = self.allocate(of, affinity)
        assert refusal is None, refusal
        return of

    def allocate_pod(self, of: Pod, affinity: Hint) -> Refusal | None:
        taken = self.provider.allocate_pod(self.ledger, of, affinity)
        if isinstance(taken, Refusal):
            return taken
        self.ledger = taken
        return None

    def release(self, of: Pod, name: str | None = None) -> None:
        self.ledger = self.provider.release(self.ledger, of.uid, name)

    def blocks(self, of: Pod, name: str) -> tuple[Block, ...] | None:
        return self.ledger.memory.blocks.get(of.uid, {}).get(name)

    def held(self, of: Pod, name: str) -> dict[str, tuple[int, str]] | None:
        """What a container holds: resource -> (bytes, nodes)."""
        blocks = self.blocks(of, name)
        return None if blocks is None else {each.resource: (each.size, str(each.nodes)) for each in blocks}

    def free(self, resource: str = "memory") -> list[int]:
        return [book.free(resource) for book in self.ledger.memory.nodes]

    def reserved_bytes(self, resource: str = "memory") -> list[int]:
        return [book.reserved[resource] for book in self.ledger.memory.nodes]

    def groups(self) -> list[tuple[int, str]]:
        """(users, group) by node."""
        return [(book.users, str(book.group)) for book in self.ledger.memory.nodes]


def even(count: int, memory: int, pages: dict[str, int] | None = None) -> Machine:
    """Equal nodes, one byte of each reserved for the system by the desk on node 0."""
    return machine(*(node(number, memory + (number == 0), pages) for number in range(count)))
