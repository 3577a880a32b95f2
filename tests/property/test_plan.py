"""Plans against a kernel's rules: every write is legal, nobody ever lands on granted CPUs, and one plan is enough."""

from __future__ import annotations

import contextlib

from hypothesis import given, settings
from hypothesis import strategies as st

from agent.core.cgroups.desired import desired_sets, mixed_part
from agent.core.cgroups.enforced import after
from agent.core.cgroups.plan import plan
from agent.model.cgroup import Level, Write, Written
from agent.model.idset import CpuSet, NodeSet
from agent.model.ledger import Block, Confinement, CpuBooks, Ledger, MemoryBooks, PodRecord
from agent.model.pod import Container, Pod, Qos
from tests.examples import examples
from tests.property.plan_worlds import CPUS, MACHINE, NODES, RESERVED, RULES, World, carry_out, empty_node

QOS_FOLDER = {Qos.GUARANTEED: "", Qos.BURSTABLE: "/burstable", Qos.BEST_EFFORT: "/besteffort"}


@st.composite
def worlds(draw: st.DrawFn, version: int, most: Qos = Qos.GUARANTEED) -> World:
    """A node with some pods; each has a sandbox, and one or two containers, some with a runtime's inner level."""
    world = empty_node(version)
    for number in range(draw(st.integers(1, 5))):
        qos = draw(st.sampled_from([most, most, Qos.GUARANTEED, Qos.BURSTABLE, Qos.BEST_EFFORT]))
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
    """Any grants: disjoint sets to some containers of any but BestEffort pods, some pods confined, some bound."""
    uids = {c.pod_uid: c.qos for c in world.cgroups if c.pod_uid}
    owners = [name for name in world.names.values() if uids[name[0]] is not Qos.BEST_EFFORT and draw(st.booleans())]
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
    parts = st.just(CpuSet()) | st.integers(1, 2 ** len(RESERVED) - 1).map(
        lambda bits: CpuSet.from_ids(cpu for place, cpu in enumerate(RESERVED) if bits >> place & 1)
    )
    mixed = {
        uid: {name: draw(parts) for name in containers if draw(st.integers(0, 2)) == 0}
        for uid, containers in assigned.items()
    }
    return Ledger(
        MACHINE.digest,
        CpuBooks(shared, assigned=assigned, confined=confined, mixed=mixed),
        MemoryBooks(blocks=blocks),
        pods=records,
    )


def enforce(world: World, ledger: Ledger) -> None:
    """Carry out the plan; what is known from the writes alone is what the kernel shows then."""
    before = world.observe()
    writes = plan(before, desired_sets(ledger, world.names, before, RULES, MACHINE))
    results = [carried_out(world, write) for write in writes]
    assert after(before, results) == world.observe()


def carried_out(world: World, write: Write) -> Written:
    """One write, and what is read back then."""
    carry_out(world, write)
    return Written(write, world.kernel.store.get(write.path, write.file), "")


def disturb(world: World, data: st.DataObject, times: int, *levels: Level) -> None:
    """Someone else writes sets to cgroups of these levels, as far as the kernel lets them."""
    for _ in range(times):
        cgroup = data.draw(st.sampled_from([cgroup for cgroup in world.cgroups if cgroup.level in levels]))
        with contextlib.suppress(OSError):  # the kernel refuses it
            world.kernel.write(cgroup.path, "cpuset.cpus", str(CpuSet(data.draw(st.integers(1, 2**CPUS - 1)))))
            world.kernel.write(cgroup.path, "cpuset.mems", str(NodeSet(data.draw(st.integers(1, 2**NODES - 1)))))


def trespasses(world: World, ledgers_: tuple[Ledger, Ledger]) -> set[tuple[int, str, str]]:
    """(CPU, who owns it, who else is there) for every container that owns CPUs before and after."""
    cgroups = world.observe().cgroups
    running = {c.path: c.effective_cpus for c in cgroups if c.level in (Level.CONTAINER, Level.INNER)}
    found = set()
    for cgroup in cgroups:
        uid, name = world.names.get(cgroup.container_id, ("", ""))
        held, mine = (ledger.cpus.assigned.get(uid, {}).get(name, CpuSet()) for ledger in ledgers_)
        if cgroup.level is not Level.CONTAINER or not mine:
            continue
        held -= mixed_part(ledgers_[1], uid, name, MACHINE)  # what it has to itself no more, and goes on to use
        for other, cpus in running.items():
            if other != cgroup.path and not other.startswith(cgroup.path + "/"):
                found |= {(cpu, cgroup.path, other) for cpu in cpus & cgroup.effective_cpus & (held | mine)}
    return found


@settings(max_examples=examples(150), deadline=None)
@given(data=st.data(), version=st.sampled_from([1, 2]), times=st.integers(0, 1))
def test_s6_nobody_enters_granted_cpus_on_the_way(data: st.DataObject, version: int, times: int) -> None:
    """From one ledger to any other, even past somebody else's write, no write lets anyone onto CPUs of another.

    Somebody else's write to a whole QoS slice is left out: while it is mended, v2 gives pods whose confinement it
    made void whatever the slice has (an empty intersection is all of the parent's).
    """
    world = data.draw(worlds(version))
    before, target = data.draw(ledgers(world)), data.draw(ledgers(world))
    enforce(world, before)
    assert plan(world.observe(), desired_sets(before, world.names, world.observe(), RULES, MACHINE)) == ()
    disturb(world, data, times, Level.POD, Level.CONTAINER, Level.INNER)
    last = trespasses(world, (before, target))
    for write in plan(world.observe(), desired_sets(target, world.names, world.observe(), RULES, MACHINE)):
        carry_out(world, write)
        now = trespasses(world, (before, target))
        assert now <= last, write
        last = now
    assert not last
    check_end(world, target)


@settings(max_examples=examples(150), deadline=None)
@given(data=st.data(), version=st.sampled_from([1, 2]))
def test_s6_nobody_enters_a_burstable_pods_cpus_on_the_way(data: st.DataObject, version: int) -> None:
    """Burstable pods hold most of what is granted: after no single write does anybody stand on another's CPUs.

    So it is when the first of them comes and the last one goes, and their slice gets more than the pool, or less.
    """
    world = data.draw(worlds(version, most=Qos.BURSTABLE))
    before, after = data.draw(ledgers(world)), data.draw(ledgers(world))
    for now, then in ((before, after), (after, data.draw(ledgers(world)))):
        enforce(world, now)
        last = trespasses(world, (now, then))
        for write in plan(world.observe(), desired_sets(then, world.names, world.observe(), RULES, MACHINE)):
            carry_out(world, write)
            assert trespasses(world, (now, then)) <= last, write
            last = trespasses(world, (now, then))
        assert not last
        check_end(world, then)


def test_s6_where_a_confined_pod_jumps_nobody_enters_what_another_is_still_on() -> None:
    """V1: its slice spans it until it has jumped, with CPU 7, which a gets; b, still there, leaves first."""
    world = empty_node(1)
    for uid, qos, folder, containers in (
        ("p", Qos.BURSTABLE, "burstable", "ab"),
        ("c", Qos.BEST_EFFORT, "besteffort", "c"),
    ):
        path = f"/kubepods/{folder}/pod{uid}"
        world.add(path, Level.POD, qos, uid)
        for name in containers:
            world.add(f"{path}/{name}", Level.CONTAINER, qos, uid, name)
            world.spawn(f"{path}/{name}")
            world.names[name] = (uid, name)

    def ledger(shared: str, node: int, **assigned: str) -> Ledger:
        own = {name: CpuSet.parse(cpus) for name, cpus in assigned.items()}
        books = CpuBooks(CpuSet.parse(shared), {"p": own}, confined={"c": Confinement(NodeSet.of(node), ())})
        pod = Pod("p", "p", "ns", (Container("a"), Container("b")), Qos.BURSTABLE)
        return Ledger(MACHINE.digest, books, pods={"p": PodRecord(pod, "none", "container")})

    now, then = ledger("0,4,7-8", 1, a="1"), ledger("0,4,8", 0, a="1,7", b="15")
    enforce(world, now)
    for write in plan(world.observe(), desired_sets(then, world.names, world.observe(), RULES, MACHINE)):
        carry_out(world, write)
        assert not trespasses(world, (now, then)), write
    check_end(world, then)


@settings(max_examples=examples(100), deadline=None)
@given(data=st.data(), version=st.sampled_from([1, 2]))
def test_any_state_is_mended_by_one_plan(data: st.DataObject, version: int) -> None:
    """Whatever others wrote, every write of the plan is legal, and after it nothing differs."""
    world = data.draw(worlds(version))
    disturb(world, data, 12, Level.QOS, Level.POD, Level.CONTAINER, Level.INNER)
    ledger = data.draw(ledgers(world))
    enforce(world, ledger)
    check_end(world, ledger)


def check_end(world: World, ledger: Ledger) -> None:
    """The tree is what the ledger says: a second plan is empty, and everyone runs where they should."""
    assert plan(world.observe(), desired_sets(ledger, world.names, world.observe(), RULES, MACHINE)) == ()
    for cgroup in world.observe().cgroups:
        if cgroup.level not in (Level.CONTAINER, Level.INNER):
            continue
        uid, name = world.names.get(cgroup.container_id, (cgroup.pod_uid, ""))
        should = ledger.cpus.assigned.get(uid, {}).get(name)
        if should is None:
            confined = ledger.cpus.confined.get(uid)
            should = ledger.cpus.shared & MACHINE.cpus_of(confined.nodes) if confined else ledger.cpus.shared
        should |= mixed_part(ledger, uid, name, MACHINE)
        if cgroup.path.endswith("/own"):
            assert cgroup.effective_cpus
            assert cgroup.effective_cpus.issubset(should)
        else:
            assert cgroup.effective_cpus == should


def test_s6_a_pod_that_was_moved_onto_a_grant_leaves_it_before_its_containers_do() -> None:
    """Somebody else wrote the set of a pod that loses its CPUs: none of its containers falls onto a grant."""
    world = empty_node(2)
    for uid in ("p0", "p1"):
        pod = f"/kubepods/pod{uid}"
        world.add(pod, Level.POD, Qos.GUARANTEED, uid)
        for name in ("sandbox", "a"):
            world.add(f"{pod}/{uid}{name}", Level.CONTAINER, Qos.GUARANTEED, uid, uid + name)
            world.spawn(f"{pod}/{uid}{name}")
        world.names[f"{uid}a"] = (uid, "a")
    own = RESERVED | CpuSet.of(1)
    records = {uid: PodRecord(Pod(uid, uid, "ns", (Container("a"),), Qos.GUARANTEED), "none", "container")
               for uid in ("p0", "p1")}  # fmt: skip

    def ledger(**assigned: CpuSet) -> Ledger:
        held = {uid: {"a": cpus} for uid, cpus in assigned.items()}
        shared = MACHINE.online - CpuSet.union(assigned.values())
        return Ledger(MACHINE.digest, CpuBooks(shared, assigned=held), MemoryBooks(), pods=records)

    everything = MACHINE.online - own
    last = CpuSet.of(max(everything))
    before, target = ledger(p0=everything - last, p1=last), ledger(p0=(everything - CpuSet.of(14)) | last)
    enforce(world, before)
    world.kernel.write("/kubepods/podp1", "cpuset.cpus", "14-15")
    seen = trespasses(world, (before, target))
    assert seen
    for write in plan(world.observe(), desired_sets(target, world.names, world.observe(), RULES, MACHINE)):
        carry_out(world, write)
        assert trespasses(world, (before, target)) <= seen, write
        seen = trespasses(world, (before, target))
    assert not seen
