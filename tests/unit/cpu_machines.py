"""The machines of kubelet rule 12.1, and pods to put on them. Used by the tests of the CPU manager."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agent.core.cpus.provider import CpuManager
from agent.core.merge.demand import Demand, Positions, listed
from agent.core.merge.provider import Answer
from agent.model.hint import ANY_NODES, Hint, Stance
from agent.model.idset import CpuSet, NodeSet
from agent.model.ledger import Ledger
from agent.model.machine import Machine
from agent.model.outcome import Refusal
from agent.model.pod import Container, ContainerKind, Pod, Qos
from agent.model.rules import Compatibility, CpuOptions, CpuRules, Minor, Rules
from tests.parity.machines import machine_of
from tests.world import pods

KUBELET, FIXED = Compatibility.KUBELET, Compatibility.FIXED
Core = tuple[int, int | None, list[int]]


def machine(*nodes: Sequence[Core]) -> Machine:
    """Each node as (socket, uncore, CPUs) per core."""
    return machine_of({"numa": [{"id": node, "cores": list(cores)} for node, cores in enumerate(nodes)]})


def smt(socket: int, cores: Sequence[int], sibling: int, uncore: int | None = None) -> list[Core]:
    """Cores of two threads."""
    return [(socket, uncore, [core, core + sibling]) for core in cores]


S1 = machine(smt(0, range(4), 4))
D2 = machine(smt(0, [0, 2, 4], 6, 0), smt(1, [1, 3, 5], 6, 0))
M = machine(smt(0, range(3), 6), smt(1, range(3, 6), 6))
Q4 = machine(*(smt(node // 2, range(node * 10, node * 10 + 10), 40) for node in range(4)))
P4 = machine(*(smt(node // 2, range(node * 4, node * 4 + 4), 16) for node in range(4)))
U1 = machine([(0, cpu // 4, [cpu]) for cpu in range(16)])
U2 = machine([core for cache in range(2) for core in smt(0, range(cache * 4, cache * 4 + 4), 8, cache)])
U3 = machine([(cpu // 8, cpu // 4, [cpu]) for cpu in range(16)])
U4 = machine([core for cache in range(16) for core in smt(0, range(cache * 4, cache * 4 + 4), 64, cache)])
UNEVEN = machine([(0, None, [cpu]) for cpu in range(4)], smt(1, range(4, 8), 4))
"""4 cores of one thread and 4 of two: 1.5 threads per core on average, which the kubelet takes for 1."""


def container(name: str, count: float, kind: ContainerKind = ContainerKind.APP) -> Container:
    """One that asks for so many CPUs and a byte; 0 asks for nothing."""
    return pods.container(name, kind, cpus=count, memory=1) if count else Container(name, kind)


def init(name: str, count: float) -> Container:
    """A regular init container."""
    return container(name, count, ContainerKind.INIT)


def sidecar(name: str, count: float) -> Container:
    """A restartable init container."""
    return container(name, count, ContainerKind.SIDECAR)


def pod(uid: str, *containers: Container, whole: int | None = None, qos: Qos = Qos.GUARANTEED) -> Pod:
    """A pod; `whole`: its pod-level CPUs."""
    return pods.pod(uid, *containers, qos=qos, whole=None if whole is None else {"cpu": whole, "memory": 1})


def at(*nodes: int) -> Hint:
    """A merged hint."""
    return Hint(NodeSet.from_ids(nodes), preferred=True)


class Node:
    """A CPU manager with its ledger."""

    def __init__(
        self,
        machine: Machine,
        reserved: str = "",
        *,
        mode: Compatibility = KUBELET,
        minor: Minor = Minor.V1_36,
        gate: bool = False,
        **options: bool,
    ) -> None:
        keep = CpuSet.parse(reserved)
        self.machine = machine
        self.rules = Rules(
            cpu=CpuRules(options=CpuOptions(**options), reserved=keep or None, reserved_count=len(keep)),
            compatibility=mode,
            minor=minor,
            pod_level_managers=gate,
            keep_shared=bool(keep),
        )
        self.provider = CpuManager(machine, self.rules)
        self.ledger = Ledger(machine.digest, self.provider.start())

    @property
    def shared(self) -> str:
        return str(self.ledger.cpus.shared)

    def admit(self, pod: Pod, nodes: Sequence[int] | None = None) -> dict[str, str] | Refusal:
        """All containers in order, with one affinity; what each holds then. A refused pod leaves nothing."""
        before = self.ledger
        hint = ANY_NODES if nodes is None else at(*nodes)
        whole = self.rules.pod_level_managers and pod.pod_level
        for each in (None,) if whole else pod.containers:
            taken = (
                self.provider.allocate_pod(self.ledger, pod, hint)
                if each is None
                else self.provider.allocate(self.ledger, pod, each, hint)
            )
            if isinstance(taken, Refusal):
                self.ledger = before
                return taken
            self.ledger = taken
        return {name: str(held) for name, held in self.ledger.cpus.assigned.get(pod.uid, {}).items()}

    def release(self, uid: str, container: str | None = None) -> None:
        self.ledger = self.provider.release(self.ledger, uid, container)

    def free(self, text: str) -> None:
        """Make another pod hold all CPUs that are neither in `text` nor reserved."""
        books = self.ledger.cpus
        others = self.machine.online - CpuSet.parse(text) - self.provider.reserved
        shared = books.shared - others
        self.ledger = Ledger(
            self.ledger.machine, type(books)(shared=shared, assigned={"other": {"c": others}} if others else {})
        )

    def hints(self, count: int) -> str:
        """The hints of a new container of a new pod, as "{0}p {01}n"."""
        new = pod("new", container("c", count))
        return shown(self.provider.container_hints(self.ledger, new, new.containers[0]), self.machine)


def shown(answer: Answer, machine: Machine) -> str:
    """The hints for CPUs: nodes, then p for preferred or n for not; "[]" for none, "None" for no preference."""
    if isinstance(answer, Stance):
        return "None"
    offer: Any = answer["cpu"]
    if isinstance(offer, Stance):
        return "[]"
    assert isinstance(offer, Demand)
    return " ".join(
        "{" + "".join(map(str, hint.nodes or ())) + "}" + ("p" if hint.preferred else "n")
        for hint in listed(offer, Positions.of(machine.node_set))
    )
