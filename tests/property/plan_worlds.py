"""A modelled node for trying plans: cgroups in memory under a kernel's rules, and who is who."""

from __future__ import annotations

import errno
import os
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

from agent.host.scratch.kernel import CpusetKernel
from agent.model.cgroup import Cgroup, Level, Observed, Write
from agent.model.idset import CpuSet, NodeSet
from agent.model.machine import Cpu, Machine, NumaNode
from agent.model.pod import Qos
from agent.model.rules import CpuRules, MemoryRules, Rules

CPUS = 16
NODES = 4
MACHINE = Machine(
    cpus=tuple(Cpu(i, i // 4, i, 0, 0) for i in range(CPUS)),
    nodes=tuple(NumaNode(n, CpuSet.from_ids(range(4 * n, 4 * n + 4)), 1 << 30) for n in range(NODES)),
)
RESERVED = CpuSet.of(0, 4, 8, 12)
RULES = Rules(cpu=CpuRules(static=True), memory=MemoryRules(static=True))


@dataclass
class InMemory:
    """A store of control files (agent.host.scratch.store) for trying many trees quickly."""

    files: dict[str, dict[str, str]] = field(default_factory=lambda: {"": {}})
    below: dict[str, list[str]] = field(default_factory=dict)

    def has(self, path: str, file: str) -> bool:
        return file in self.files.get(path, {})

    def get(self, path: str, file: str) -> str:
        return self.files.get(path, {}).get(file, "")

    def put(self, path: str, file: str, text: str) -> None:
        self.files[path][file] = text

    def alone(self) -> AbstractContextManager[object]:
        return nullcontext()

    def children(self, path: str) -> list[str]:
        return self.below.get(path, [])

    def make(self, path: str) -> None:
        parent = path.rpartition("/")[0]
        if parent not in self.files:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        self.files[path] = {}
        self.below[parent] = sorted([*self.below.get(parent, []), path])

    def remove(self, path: str) -> None:
        del self.files[path]
        self.below[path.rpartition("/")[0]].remove(path)


@dataclass
class World:
    """A modelled node: cgroups under a kernel's rules, and who is who."""

    version: int
    kernel: CpusetKernel
    cgroups: list[Cgroup] = field(default_factory=list)
    names: dict[str, tuple[str, str]] = field(default_factory=dict)

    def add(self, path: str, level: Level, qos: Qos, uid: str = "", container_id: str = "") -> None:
        self.kernel.mkdir(path)
        if self.version == 1:
            for file in ("cpuset.cpus", "cpuset.mems"):
                self.kernel.write(path, file, self.kernel.store.get(path.rpartition("/")[0], file))
        self.cgroups.append(Cgroup(path, level, qos, uid, container_id))

    def spawn(self, path: str) -> None:
        """One process, so that emptying is refused."""
        self.kernel.store.put("", "cgroup.procs", str(len(self.cgroups)))
        self.kernel.write(path, "cgroup.procs", str(len(self.cgroups)))

    def observe(self) -> Observed:
        effective = "cpuset.{}.effective" if self.version == 2 else "cpuset.effective_{}"
        get = self.kernel.store.get
        found = [
            Cgroup(
                c.path, c.level, c.qos, c.pod_uid, c.container_id,
                cpus=CpuSet.parse(get(c.path, "cpuset.cpus")),
                mems=NodeSet.parse(get(c.path, "cpuset.mems")),
                effective_cpus=CpuSet.parse(get(c.path, effective.format("cpus"))),
                effective_mems=NodeSet.parse(get(c.path, effective.format("mems"))),
            )
            for c in self.cgroups
        ]  # fmt: skip
        return Observed(self.version, tuple(sorted(found, key=lambda c: c.path.split("/"))))


def empty_node(version: int) -> World:
    """A node with the kubelet's own cgroups and no pod."""
    kernel = CpusetKernel(version, InMemory(), CpuSet.from_ids(range(CPUS)), NodeSet.from_ids(range(NODES)))
    kernel.store.put("", "cgroup.procs", "")
    kernel.online(kernel.possible_cpus, kernel.possible_nodes)
    world = World(version, kernel)
    world.add("/kubepods", Level.KUBEPODS, Qos.GUARANTEED)
    world.add("/kubepods/burstable", Level.QOS, Qos.BURSTABLE)
    world.add("/kubepods/besteffort", Level.QOS, Qos.BEST_EFFORT)
    return world


def carry_out(world: World, write: Write) -> None:
    """One write; a refusal of the kernel fails the test, and shows the tree."""
    assert world.kernel.store.get(write.path, write.file) == write.old
    try:
        world.kernel.write(write.path, write.file, write.value)
    except OSError as error:
        tree = "\n".join(f"{c.path}: {c.cpus} / {c.mems}" for c in world.observe().cgroups)
        raise AssertionError(f"{write}: {error}\n{tree}") from error
