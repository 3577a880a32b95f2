"""Random machines, pods and affinities for the properties of the memory and device managers."""

from __future__ import annotations

from random import Random

from agent.model.hint import Hint
from agent.model.idset import CpuSet, NodeSet
from agent.model.machine import Machine, NumaNode
from agent.model.pod import Container, ContainerKind, Pod
from agent.model.rules import Compatibility, MemoryTier
from tests.unit.memory_cases import GIB, MIB, Desk, machine, node
from tests.world.pods import APP, HUGE_1G, HUGE_2M, INIT, SIDECAR, container, pod


def random_machine(r: Random, most: int = 5) -> Machine:
    """Up to `most` nodes: ids with holes, some without CPUs or without pages of a size, uneven memory."""
    count = r.randint(1, most)
    step = r.choice((1, 1, 1, 3))
    rows = [[10 if a == b else r.choice((12, 20, 32)) for b in range(count)] for a in range(count)]
    nodes: list[NumaNode] = []
    for at in range(count):
        pages = {name: r.choice((0, 0, 1, 2, 3, 4)) * size for name, size in ((HUGE_2M, 2 * MIB), (HUGE_1G, GIB))}
        cpus = CpuSet() if at and r.random() < 0.25 else CpuSet.of(2 * at, 2 * at + 1)
        distances = tuple(rows[at]) if r.random() < 0.9 else ()
        nodes.append(node(at * step, r.randint(1, 8) * GIB, pages, cpus=cpus, distances=distances))
    return machine(*nodes)


def random_desk(r: Random, compatibility: Compatibility, *, pod_level: bool = False) -> Desk:
    """A random machine with a little reserved and any tier."""
    made = random_machine(r)
    first = made.nodes[0].id
    return Desk(made, compatibility, {first: {"memory": 64 * MIB}}, r.choice(list(MemoryTier)), pod_level)


def random_pod(r: Random, uid: str, *, pod_level: bool = False) -> Pod:
    """A Guaranteed pod of inits, sidecars and apps that ask for memory and now and then for huge pages."""
    before = [(f"i{n}", r.choice((INIT, INIT, SIDECAR))) for n in range(r.choice((0, 0, 1, 2)))]
    kinds: list[tuple[str, ContainerKind]] = [*before, *((f"c{n}", APP) for n in range(r.randint(1, 2)))]
    made = [_container(r, name, kind) for name, kind in kinds]
    if not (pod_level and r.random() < 0.5):
        return pod(uid, *made)
    shared = [container(each.name, each.kind) if r.random() < 0.4 else each for each in made]
    return pod(uid, *shared, whole={"cpu": 8, "memory": r.randint(1, 12) * GIB, HUGE_1G: r.choice((0, 2)) * GIB})


def _container(r: Random, name: str, kind: ContainerKind) -> Container:
    memory = r.choice((r.randint(1, 20) * 100 * MIB, r.randint(1, 9) * GIB, MIB + r.randint(0, 5)))
    pages = {key: r.randint(1, 3) * size for key, size in (("huge2m", 2 * MIB), ("huge1g", GIB)) if r.random() < 0.2}
    cpus = 0.5 if r.random() < 0.3 else 1  # half a CPU is shared: memory alone decides
    return container(name, kind, cpus=cpus, memory=memory, huge1g=pages.get("huge1g"), huge2m=pages.get("huge2m"))


def random_affinity(r: Random, nodes: NodeSet) -> Hint:
    """Any nodes, or none named."""
    if r.random() < 0.25:
        return Hint(None, preferred=r.random() < 0.5)
    chosen = NodeSet.from_ids(each for each in nodes if r.random() < 0.5)
    return Hint(chosen or nodes, preferred=r.random() < 0.5)
