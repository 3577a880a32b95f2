"""Plans against a kernel's rules: every write is legal, nobody ever lands on granted CPUs, and one plan is enough."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from agent.core.plan import plan
from agent.host.scratch.kernel import CpusetKernel
from agent.host.scratch.store import MemoryStore
from agent.model.cgroup import Cgroup, Level, Observed, Write
from agent.model.idset import CpuSet, NodeSet
from agent.model.ledger import Block, Confinement, CpuBooks, Ledger, MemoryBooks, PodRecord
from agent.model.machine import Cpu, Machine, NumaNode
from agent.model.pod import Container, Pod, Qos
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


QOS_FOLDER = {Qos.GUARANTEED: "", Qos.BURSTABLE: "/burstable", Qos.BEST_EFFORT: "/besteffort"}


@st.composite
def worlds(draw: st.DrawFn, version: int) -> World:
    """A node with some pods; each has a sandbox, and one or two containers, some with a runtime's inner level."""
    kernel = CpusetKernel(version, MemoryStore(), CpuSet.from_ids(range(CPUS)), NodeSet.from_ids(range(NODES)))
    kernel.store.put("", "cgroup.procs", "")
    kernel.online(kernel.possible_cpus, kernel.possible_nodes)
    world = World(version, kernel)
    world.add("/kubepods", Level.KUBEPODS, Qos.GUARANTEED)
    world.add("/kubepods/burstable", Level.QOS, Qos.BURSTABLE)
    world.add("/kubepods/besteffort", Level.QOS, Qos.BEST_EFFORT)
    for number in range(draw(st.integers(1, 5))):
        qos = draw(st.sampled_from([Qos.GUARANTEED, Qos.GUARANTEED, Qos.BURSTABLE, Qos.BEST_EFFORT]))
        uid = f"p{number}"
        pod = f"/kubepods{QOS_FOLDER[qos]}/pod{uid}"
        world.add(pod, Level.POD, qos, uid)
        for name in ["sandbox", "a", "b"][: draw(st.integers(2, 3))]:
            path = f"{pod}/{uid}{name}"
            world.add(path, Level.CONTAINER, qos, uid, uid + name)
            if name != "sandbox":
                world.names[uid + name] = (uid, name)
            inner = draw(st.sampled_from(["", "", "/container", "/own"]))
            if inner and (version == 1 or inner == "/container"):
                world.add(path + inner, Level.INNER, qos, uid, uid + name)
            world.spawn(path + inner if version == 1 or inner == "/container" else path)
    return world


@st.composite
def ledgers(draw: st.DrawFn, world: World) -> Ledger:
    """Any grants: disjoint exclusive sets to some containers of Guaranteed pods, some pods confined, some bound."""
    uids = {c.pod_uid: c.qos for c in world.cgroups if c.pod_uid}
    owners = [name for name in world.names.values() if uids[name[0]] is Qos.GUARANTEED and draw(st.booleans())]
    assigned: dict[str, dict[str, CpuSet]] = {}
    shared = RESERVED
    for cpu in range(CPUS):
        index = draw(st.integers(-2, len(owners) - 1))
        if cpu in RESERVED or index < 0:
            shared |= CpuSet.of(cpu)
        else:
            uid, name = owners[index]
            mine = assigned.setdefault(uid, {})
            mine[name] = mine.get(name, CpuSet()) | CpuSet.of(cpu)
    some_nodes = st.integers(1, 2**NODES - 1).map(NodeSet)
    confined = {
        uid: Confinement(draw(some_nodes), (), memory=draw(st.booleans()))
        for uid in uids
        if uid not in assigned and draw(st.integers(0, 2)) == 0
    }
    blocks = {
        uid: {name: (Block("memory", 1, draw(some_nodes)),)} for uid, name in owners if draw(st.integers(0, 1)) == 0
    }
    records = {
        uid: PodRecord(
            Pod(uid, uid, "ns", (Container("a"), Container("b")), qos),
            "none",
            "container",
            bind_memory=draw(st.booleans()),
        )
        for uid, qos in uids.items()
    }
    return Ledger(
        MACHINE.digest,
        CpuBooks(shared, assigned=assigned, confined=confined),
        MemoryBooks(blocks=blocks),
        pods=records,
    )


def enforce(world: World, ledger: Ledger) -> None:
    """Carry out the plan."""
    for write in plan(ledger, world.names, world.observe(), RULES, MACHINE):
        carry_out(world, write)


def carry_out(world: World, write: Write) -> None:
    """One write; a refusal of the kernel fails the test, and shows the tree."""
    assert world.kernel.store.get(write.path, write.file) == write.old
    try:
        world.kernel.write(write.path, write.file, write.value)
    except OSError as error:
        tree = "\n".join(f"{c.path}: {c.cpus} / {c.mems}" for c in world.observe().cgroups)
        raise AssertionError(f"{write}: {error}\n{tree}") from error


def disturb(world: World, data: st.DataObject, times: int) -> None:
    """Someone else writes sets, as far as the kernel lets them."""
    for _ in range(times):
        cgroup = data.draw(st.sampled_from(world.cgroups[1:]))
        with contextlib.suppress(OSError):
            world.kernel.write(cgroup.path, "cpuset.cpus", str(CpuSet(data.draw(st.integers(1, 2**CPUS - 1)))))
            world.kernel.write(cgroup.path, "cpuset.mems", str(NodeSet(data.draw(st.integers(1, 2**NODES - 1)))))


def trespasses(world: World, ledgers_: tuple[Ledger, Ledger]) -> set[tuple[int, str, str]]:
    """(CPU, who owns it, who else is there) for every container that owns CPUs before and after."""
    cgroups = world.observe().cgroups
    running = {c.path: c.effective_cpus for c in cgroups if c.level in (Level.CONTAINER, Level.INNER)}
    found = set()
    for cgroup in cgroups:
        uid, name = world.names.get(cgroup.container_id, ("", ""))
        before, after = (ledger.cpus.assigned.get(uid, {}).get(name, CpuSet()) for ledger in ledgers_)
        if cgroup.level is not Level.CONTAINER or not after:
            continue
        for other, cpus in running.items():
            if other != cgroup.path and not other.startswith(cgroup.path + "/"):
                found |= {(cpu, cgroup.path, other) for cpu in cpus & cgroup.effective_cpus & (before | after)}
    return found


@settings(max_examples=150, deadline=None)
@given(data=st.data(), version=st.sampled_from([1, 2]), times=st.integers(0, 1))
def test_s6_nobody_enters_granted_cpus_on_the_way(data: st.DataObject, version: int, times: int) -> None:
    """From one ledger to any other, even past somebody else's write, no write lets anyone onto CPUs of another."""
    world = data.draw(worlds(version))
    before, after = data.draw(ledgers(world)), data.draw(ledgers(world))
    enforce(world, before)
    assert plan(before, world.names, world.observe(), RULES, MACHINE) == ()
    disturb(world, data, times)
    last = trespasses(world, (before, after))
    for write in plan(after, world.names, world.observe(), RULES, MACHINE):
        carry_out(world, write)
        now = trespasses(world, (before, after))
        assert now <= last, write
        last = now
    assert not last
    check_end(world, after)


@settings(max_examples=100, deadline=None)
@given(data=st.data(), version=st.sampled_from([1, 2]))
def test_any_state_is_mended_by_one_plan(data: st.DataObject, version: int) -> None:
    """Whatever others wrote, every write of the plan is legal, and after it nothing differs."""
    world = data.draw(worlds(version))
    disturb(world, data, 12)
    ledger = data.draw(ledgers(world))
    enforce(world, ledger)
    check_end(world, ledger)


def check_end(world: World, ledger: Ledger) -> None:
    """The tree is what the ledger says: a second plan is empty, and everyone runs where they should."""
    assert plan(ledger, world.names, world.observe(), RULES, MACHINE) == ()
    for cgroup in world.observe().cgroups:
        if cgroup.level not in (Level.CONTAINER, Level.INNER):
            continue
        uid, name = world.names.get(cgroup.container_id, (cgroup.pod_uid, ""))
        should = ledger.cpus.assigned.get(uid, {}).get(name)
        if should is None:
            confined = ledger.cpus.confined.get(uid)
            should = ledger.cpus.shared & MACHINE.cpus_of(confined.nodes) if confined else ledger.cpus.shared
        if cgroup.path.endswith("/own"):
            assert cgroup.effective_cpus
            assert cgroup.effective_cpus.issubset(should)
        else:
            assert cgroup.effective_cpus == should
