"""Plans by example: who gets which set, in which order, and what is left alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.core.cgroups.desired import DesiredSets, desired_sets, one_by_one, share
from agent.core.cgroups.enforced import Look, after, sentence, unenforced
from agent.core.cgroups.naming import UNSURE
from agent.core.cgroups.plan import plan
from agent.model.cgroup import Cause, Level, Write, Written
from agent.model.idset import CpuSet, NodeSet
from agent.model.ledger import Block, Confinement, CpuBooks, Ledger, MemoryBooks, PodRecord
from agent.model.pod import Container, Pod, Qos
from agent.model.rules import CpuRules, MemoryRules, Rules
from tests.property.plan_worlds import MACHINE, RULES, World, carry_out, empty_node

G, B = Qos.GUARANTEED, Qos.BURSTABLE
OWN, POOL = CpuSet.of(4, 5), CpuSet.from_ids([0, 1, 2, 3, *range(6, 16)])
LESS = POOL - CpuSet.of(6, 7)
RECORD = PodRecord(Pod("db", "db", "ns", (Container("main"), Container("side")), G), "none", "container")
LEDGER = Ledger(MACHINE.digest, CpuBooks(POOL, assigned={"db": {"main": OWN}}), pods={"db": RECORD})
POD = "/kubepods/poddb"


def node(version: int, *, inner: bool = False) -> World:
    """Pod db (Guaranteed: sandbox, main, side, a monitor), pod web (Burstable), pod lone (Guaranteed, all shared)."""
    world = empty_node(version)
    pods = [
        (POD, G, "db", ("box", "main", "side", "conmon-main")),
        ("/kubepods/burstable/podweb", B, "web", ("web",)),
        ("/kubepods/podlone", G, "lone", ("lone",)),
    ]
    for path, qos, uid, containers in pods:
        world.add(path, Level.POD, qos, uid)
        for name in containers:
            world.add(f"{path}/{name}", Level.CONTAINER, qos, uid, name)
            if inner:
                world.add(f"{path}/{name}/container", Level.INNER, qos, uid, name)
            world.spawn(f"{path}/{name}/container" if inner else f"{path}/{name}")
    world.names = {"main": ("db", "main"), "side": ("db", "side"), "web": ("web", "web"), "lone": ("lone", "lone")}
    return world


def planned(world: World, ledger: Ledger = LEDGER, rules: Rules = RULES) -> list[tuple[str, str, str]]:
    """Path, file and value of each write."""
    return [
        (w.path, w.file, w.value)
        for w in plan(world.observe(), desired_sets(ledger, world.names, world.observe(), rules, MACHINE))
    ]


def in_force(world: World) -> dict[str, str]:
    """The CPUs in force, by the last part of the path."""
    return {c.path.rpartition("/")[2]: str(c.effective_cpus) for c in world.observe().cgroups}


def enforce(world: World, ledger: Ledger = LEDGER, rules: Rules = RULES) -> tuple[Write, ...]:
    """Carry out the plan."""
    writes = plan(world.observe(), desired_sets(ledger, world.names, world.observe(), rules, MACHINE))
    for write in writes:
        carry_out(world, write)
    return writes


def test_s6_on_v2_the_pool_is_written_where_it_is_inherited() -> None:
    """QoS slices and Guaranteed pods get the pool, and every other container of the pod with a grant, by name."""
    assert planned(node(2)) == [
        # first the pool
        ("/kubepods/podlone", "cpuset.cpus", str(POOL)),
        (f"{POD}/side", "cpuset.cpus", str(POOL)),
        (f"{POD}/conmon-main", "cpuset.cpus", str(POOL)),
        (f"{POD}/box", "cpuset.cpus", str(POOL)),
        ("/kubepods/burstable", "cpuset.cpus", str(POOL)),
        ("/kubepods/besteffort", "cpuset.cpus", str(POOL)),
        # then the grant
        (f"{POD}/main", "cpuset.cpus", str(OWN)),
        (POD, "cpuset.cpus", "0-15"),
    ]


@pytest.mark.parametrize("version", [1, 2])
def test_a_node_without_grants_is_not_touched(version: int) -> None:
    """While all CPUs are shared there is nothing to write; with strict reservation there is."""
    everything = replace(LEDGER, cpus=CpuBooks(POOL | OWN))
    assert planned(node(version), everything) == []
    strict = replace(LEDGER, cpus=CpuBooks((POOL | OWN) - CpuSet.of(0)))
    assert ("/kubepods/burstable", "cpuset.cpus", "1-15") in planned(node(version), strict)
    world = node(version)
    enforce(world)
    enforce(world, everything)
    assert set(in_force(world).values()) == {"0-15"}


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("inner", [False, True])
def test_s6_nobody_else_runs_on_the_grant(version: int, *, inner: bool) -> None:
    """The grant is the container's alone; sandbox, monitor, the fractional container and other pods have the pool."""
    world = node(version, inner=inner)
    enforce(world)
    found = in_force(world)
    assert found["main"] == str(OWN)
    assert {found[name] for name in ("box", "side", "conmon-main", "web", "lone", "burstable")} == {str(POOL)}
    assert found["kubepods"] == found["poddb"] == "0-15"
    if inner:
        assert {str(c.effective_cpus) for c in world.observe().cgroups if c.path.startswith(f"{POD}/main/")} == {
            str(OWN)
        }
    assert planned(world) == []


def test_s21_a_container_that_cannot_be_written_is_held_by_its_pod() -> None:
    """Somebody widened it, and the kernel refuses us its file, as it does the agent's own: it leaves the grant."""
    world = node(2)
    enforce(world)
    for path in ("/kubepods/burstable", "/kubepods/burstable/podweb/web"):
        world.kernel.write(path, "cpuset.cpus", "0-15")
    for write in plan(world.observe(), desired_sets(LEDGER, world.names, world.observe(), RULES, MACHINE)):
        if not write.path.endswith(("/web", "/burstable")):
            carry_out(world, write)
    assert in_force(world)["web"] == str(POOL)


@pytest.mark.parametrize("version", [1, 2])
def test_s6_first_the_pool_shrinks_then_the_grant(version: int) -> None:
    """When the grant's first write comes, nobody but the container itself is on its CPUs; on release the reverse."""
    world = node(version)
    enforce(world, replace(LEDGER, cpus=CpuBooks(POOL | OWN)))
    moved = replace(
        LEDGER, cpus=CpuBooks(CpuSet.from_ids(range(4, 16)), assigned={"db": {"main": CpuSet.of(0, 1, 2, 3)}})
    )
    for ledger in (LEDGER, moved, replace(LEDGER, cpus=CpuBooks(POOL | OWN))):
        for write in plan(world.observe(), desired_sets(ledger, world.names, world.observe(), RULES, MACHINE)):
            if write.path == f"{POD}/main":
                others = [
                    c for c in world.observe().cgroups if c.level is Level.CONTAINER and c.container_id != "main"
                ]
                granted = ledger.cpus.assigned.get("db", {}).get("main", CpuSet())
                assert all(c.effective_cpus.isdisjoint(granted) for c in others)
            carry_out(world, write)
        assert plan(world.observe(), desired_sets(ledger, world.names, world.observe(), RULES, MACHINE)) == ()


@pytest.mark.parametrize("version", [1, 2])
def test_s6_who_was_moved_onto_cpus_leaves_them_before_they_are_granted(version: int) -> None:
    """Somebody put a pod's container on CPUs that the next grant takes: it jumps to the pool before that is written.

    And not onto those that another grant is still leaving.
    """
    world = node(version)
    moved = CpuSet.of(6, 7)
    enforce(world, replace(LEDGER, cpus=CpuBooks(POOL - moved | OWN, assigned={"db": {"main": moved}})))
    for path in ("/kubepods/podlone/lone", *(["/kubepods/podlone"] if version == 2 else [])):
        world.kernel.write(path, "cpuset.cpus", str(OWN))
    seen = []
    for write in plan(world.observe(), desired_sets(LEDGER, world.names, world.observe(), RULES, MACHINE)):
        carry_out(world, write)
        now = {c.container_id: c.effective_cpus for c in world.observe().cgroups if c.level is Level.CONTAINER}
        seen.append((str(now["lone"]), now["main"] & now["lone"]))
    assert not any(shared for _, shared in seen), seen
    assert seen[-1][0] == str(POOL)
    assert in_force(world)["main"] == str(OWN)


@pytest.mark.parametrize("widened", [False, True])
def test_two_grants_that_swap_never_overlap(*, widened: bool) -> None:
    """One container of the ring waits on the pool, also where somebody widened the slices: none runs on the other."""
    world = node(2)
    one, two = CpuSet.of(4, 5), CpuSet.of(6, 7)
    enforce(world, replace(LEDGER, cpus=CpuBooks(LESS, assigned={"db": {"main": one, "side": two}})))
    for path in ("/kubepods/burstable", "/kubepods/besteffort") if widened else ():
        world.kernel.write(path, "cpuset.cpus", "0-15")
    swapped = replace(LEDGER, cpus=CpuBooks(LESS, assigned={"db": {"main": two, "side": one}}))
    assert [each for each in planned(world, swapped) if each[0].startswith(POD)] == [
        (f"{POD}/side", "cpuset.cpus", str(LESS)),
        (f"{POD}/main", "cpuset.cpus", "6-7"),
        (f"{POD}/side", "cpuset.cpus", "4-5"),
    ]


def test_two_that_swap_are_not_both_moved_twice_for_a_third() -> None:
    """Somebody widened both onto its CPUs: one waits on the pool, and the other loses its caches only once."""
    world = node(2)
    before, swapped = (
        replace(LEDGER, cpus=CpuBooks(LESS, assigned={"db": {"main": OWN, "side": side}, "lone": {"lone": lone}}))
        for side, lone in ((CpuSet.of(6), CpuSet.of(7)), (CpuSet.of(7), CpuSet.of(6)))
    )
    enforce(world, before)
    for path, cpus in ((f"{POD}/side", "4,6"), ("/kubepods/podlone", "0-15"), ("/kubepods/podlone/lone", "5,7")):
        world.kernel.write(path, "cpuset.cpus", cpus)
    assert [value for path, _, value in planned(world, swapped) if path == f"{POD}/side"] == ["7"]


@pytest.mark.parametrize("version", [1, 2])
def test_a_confined_pod_keeps_to_its_nodes(version: int) -> None:
    """numalign.io/align: the pool's CPUs of those nodes, for the whole pod; memory only where it was asked for."""
    cpus = CpuBooks(POOL, assigned={"db": {"main": OWN}}, confined={"web": Confinement(NodeSet.of(1, 2), ())})
    record = PodRecord(Pod("web", "web", "ns", (Container("web"),), B), "none", "container")
    ledger = replace(LEDGER, cpus=cpus, pods={**LEDGER.pods, "web": record})
    world = node(version)
    enforce(world, ledger)
    assert in_force(world)["web"] == in_force(world)["podweb"] == "6-11"
    assert planned(world, ledger) == []
    asked = replace(ledger, cpus=replace(cpus, confined={"web": Confinement(NodeSet.of(1, 2), (), memory=True)}))
    assert planned(world, asked) == [("/kubepods/burstable/podweb/web", "cpuset.mems", "1-2")]
    none = Rules(cpu=CpuRules(static=True), memory=MemoryRules(static=False))
    assert planned(world, asked, none) == planned(world, asked)  # the pod's own wish


def test_a_confinement_without_shared_cpus_is_not_kept() -> None:
    """When every CPU of its nodes was granted, a pod gets the pool rather than nothing."""
    cpus = CpuBooks(CpuSet.of(0, 1), confined={"web": Confinement(NodeSet.of(3), ())})
    assert share(replace(LEDGER, cpus=cpus), "web", "web", RULES, MACHINE).cpus == CpuSet.of(0, 1)


@pytest.mark.parametrize("version", [1, 2])
def test_policies_none_write_nothing_of_their_kind(version: int) -> None:
    """CPU policy none: no CPU set where nobody was granted CPUs; memory policy None: no nodes."""
    blocks = MemoryBooks(blocks={"db": {"main": (Block("memory", 1, NodeSet.of(1)),)}})
    ledger = replace(LEDGER, cpus=CpuBooks(POOL | OWN), memory=blocks)
    neither = Rules(cpu=CpuRules(static=False), memory=MemoryRules(static=False))
    memory = replace(neither, memory=MemoryRules(static=True))
    cpus = replace(neither, cpu=CpuRules(static=True))
    assert planned(node(version), ledger, neither) == []
    assert planned(node(version), ledger, memory) == [(f"{POD}/main", "cpuset.mems", "1")]
    assert {file for _, file, _ in planned(node(version), replace(ledger, cpus=LEDGER.cpus), cpus)} == {"cpuset.cpus"}


@pytest.mark.parametrize("version", [1, 2])
def test_a_grant_of_before_the_policy_none_stays_exclusive(version: int) -> None:
    """CPU policy none with a grant of before: its container keeps its CPUs, and everybody else is kept off them."""
    none = Rules(cpu=CpuRules(static=False), memory=MemoryRules(static=False))
    world = node(version)
    enforce(world, rules=none)
    sets = in_force(world)
    assert sets["main"] == str(OWN)
    assert {sets[name] for name in ("side", "box", "web", "lone")} == {str(POOL)}


def test_s4_memory_is_not_bound_where_pages_lie_elsewhere() -> None:
    """No nodes are written to a container that holds pages on others, nor to one whose record forbids it."""
    ledger = replace(LEDGER, memory=MemoryBooks(blocks={"db": {"main": (Block("memory", 1, NodeSet.of(1)),)}}))
    world = node(2)
    enforce(world)

    def mems(held: dict[str, NodeSet], ledger: Ledger = ledger) -> list[str]:
        sets = desired_sets(ledger, world.names, world.observe(), RULES, MACHINE)
        return [write.value for write in plan(world.observe(), sets, held=held)]

    assert mems({}) == mems({f"{POD}/main": NodeSet.of(1)}) == ["1"]
    assert mems({f"{POD}/main": NodeSet.of(0, 1)}) == []
    adopted = replace(ledger, pods={"db": replace(RECORD, bind_memory=False)})
    assert mems({}, adopted) == []
    assert share(adopted, "db", "main", RULES, MACHINE) == DesiredSets(OWN, None, exclusive=True)


def test_v1_parents_span_their_childrens_nodes() -> None:
    """On v1 a pod whose nodes were narrowed widens before its container; it is not narrowed again by us."""
    ledger = replace(LEDGER, memory=MemoryBooks(blocks={"db": {"main": (Block("memory", 1, NodeSet.of(1)),)}}))
    world = node(1)
    enforce(world)
    for path in (f"{POD}/main", f"{POD}/box", f"{POD}/side", f"{POD}/conmon-main", POD):
        world.kernel.write(path, "cpuset.mems", "0")
    assert planned(world, ledger) == [(POD, "cpuset.mems", "0-1"), (f"{POD}/main", "cpuset.mems", "1")]
    enforce(world, ledger)
    assert planned(world, ledger) == []


def test_a_status_that_claims_another_pods_container_is_not_believed() -> None:
    """A container id counts for the pod in whose cgroup it lies, and for no other."""
    world = node(2)
    world.names["web"] = ("db", "main")
    enforce(world)
    assert in_force(world)["web"] == str(POOL)


def test_a_pod_managed_as_a_whole_shares_its_own_pool() -> None:
    """PodLevelResourceManagers (kubelet rule 4.12): containers may share a set; the sandbox has the node's pool."""
    own = CpuSet.of(4, 5, 6)
    cpus = CpuBooks(POOL - own, assigned={"db": {"main": own, "side": own}}, pools={"db": own})
    world = node(2)
    enforce(world, replace(LEDGER, cpus=cpus))
    found = in_force(world)
    assert found["main"] == found["side"] == "4-6"
    assert found["box"] == found["conmon-main"] == str(POOL - own)


def test_a_pod_that_cannot_be_worked_out_is_a_fault_and_no_plan() -> None:
    """Commands without an agent would otherwise judge the tree by a part of what it is to be."""
    world, broken = node(2), replace(LEDGER, cpus=CpuBooks(POOL, assigned={"db": {"main": None}}))  # type: ignore[dict-item]  # broken, as the test says
    found, faults = one_by_one(broken, world.names, world.observe(), RULES, MACHINE)
    assert list(faults) == ["db"]
    assert "/kubepods/podlone" in found
    with pytest.raises(type(faults["db"])):
        desired_sets(broken, world.names, world.observe(), RULES, MACHINE)


def test_who_may_hold_a_grant_keeps_no_shared_cpus_of_a_container_that_is_known() -> None:
    """Reserved CPUs beside a grant are of that grant's container: another one of the pod leaves them at once."""
    other, reserved = CpuSet.of(6, 7), CpuSet.of(0)
    cpus = CpuBooks(
        POOL - other - reserved, assigned={"db": {"main": OWN, "side": other}}, mixed={"db": {"main": reserved}}
    )
    world = node(2)
    world.kernel.write(f"{POD}/side", "cpuset.cpus", "0,6-7")
    names = {**world.names, "side": ("db", UNSURE)}
    wanted = desired_sets(replace(LEDGER, cpus=cpus), names, world.observe(), RULES, MACHINE)
    assert wanted[f"{POD}/side"].cpus == other


@pytest.mark.parametrize("version", [1, 2])
def test_a_mixed_container_has_its_reserved_cpus_where_the_pool_has_none(version: int) -> None:
    """Its pod's level spans them, too: on v2 it would have none of them else, and on v1 the write is refused."""
    reserved = CpuSet.of(0)
    cpus = CpuBooks(POOL - reserved, assigned={"db": {"main": OWN}}, mixed={"db": {"main": reserved}})
    world = node(version)
    enforce(world, replace(LEDGER, cpus=cpus))
    assert in_force(world)["main"] == "0,4-5"
    assert in_force(world)["side"] == str(POOL - reserved)


def test_an_empty_pool_is_never_written() -> None:
    """Without shared CPUs (the invariants keep it from happening) shared cgroups are left alone, not emptied."""
    ledger = replace(LEDGER, cpus=CpuBooks(CpuSet(), assigned={"db": {"main": OWN}}))
    assert [(path, value) for path, _, value in planned(node(2), ledger)] == [(f"{POD}/main", "4-5")]


def test_an_applications_own_levels_are_its_own() -> None:
    """Below a container on v2 only the runtime's level is ours; on v1 a level is cut to what fits, and no more."""
    world = node(1)
    world.add(f"{POD}/main/app", Level.INNER, G, "db", "main")
    world.kernel.write(f"{POD}/main/app", "cpuset.cpus", "3-4")
    enforce(world)
    assert in_force(world)["app"] == "4"
    assert planned(world) == []
    wanted = desired_sets(LEDGER, world.names, replace(world.observe(), version=2), RULES, MACHINE)
    assert f"{POD}/main/app" not in wanted


def test_causes_and_old_values_are_told() -> None:
    """A write carries why it is needed, and what was there."""
    world = node(2)
    enforce(world)
    world.kernel.write("/kubepods/burstable", "cpuset.cpus", "0-15")
    world.kernel.write(f"{POD}/main", "cpuset.cpus", "4")
    assert plan(world.observe(), desired_sets(LEDGER, world.names, world.observe(), RULES, MACHINE)) == (
        Write("/kubepods/burstable", "cpuset.cpus", str(POOL), "0-15", Cause.POOL),
        Write(f"{POD}/main", "cpuset.cpus", "4-5", "4", Cause.GRANT),
    )


def test_kubepods_itself_is_never_written() -> None:
    """It is the kubelet's, even where it is too narrow for a grant: that is told by the effective set."""
    for version in (1, 2):
        world = node(version)
        world.kernel.online(CpuSet.of(0, 1), NodeSet.of(0))
        assert "/kubepods" not in {path for path, _, _ in planned(world)}


def test_what_was_not_written_stays_as_it_was_read() -> None:
    """On v1 a CPU that is offline stays in the set and is not in force: a write elsewhere does not make it so."""
    world = node(1)
    enforce(world)
    found = world.observe()
    offline = CpuSet.of(5)
    read = replace(
        found, cgroups=tuple(replace(each, effective_cpus=each.effective_cpus - offline) for each in found.cgroups)
    )
    done = Written(Write(f"{POD}/side", "cpuset.cpus", "0-3", str(POOL), Cause.POOL), "0-3", "0-3")
    there = {each.path: each for each in after(read, [done]).cgroups}
    assert str(there[f"{POD}/side"].effective_cpus) == "0-3"
    assert (str(there[f"{POD}/main"].cpus), str(there[f"{POD}/main"].effective_cpus)) == ("4-5", "4")


def test_who_follows_a_level_that_cannot_be_written_is_told_which() -> None:
    """The container's own set is right: whoever looks there for the fault finds none."""
    world = node(2)
    enforce(world)
    world.kernel.write(POD, "cpuset.cpus", "4")
    wanted = desired_sets(LEDGER, world.names, world.observe(), RULES, MACHINE)
    refused = {(POD, "cpuset.cpus"): "Permission denied"}
    told = unenforced(Look(LEDGER, world.names, MACHINE, wanted, world.observe(), refused, {}))
    found, _, reason = told["db"]["main"].partition(": ")
    assert found == f"cpuset.cpus of {POD}/main is 4 instead of 4-5"
    assert reason.startswith(f"it follows {POD}, which could not be written: Permission denied")


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        ("main", "4", f"cpuset.cpus of {POD}/main is 4 instead of 4-5: another program wrote it; it is put right"),
        ("side", "0-5", f"its CPUs 4-5 are not its own yet, {POD}/side may still run there: another program"),
    ],
    ids=["less", "trespasses"],
)
def test_a_repair_is_told_as_it_is_paced(place: str, value: str, words: str) -> None:
    """Processes on another container's CPUs are urgent; what is only less than granted waits longer and longer."""
    world = node(2)
    enforce(world)
    world.kernel.write(f"{POD}/{place}", "cpuset.cpus", value)
    wanted = desired_sets(LEDGER, world.names, world.observe(), RULES, MACHINE)
    there = world.observe()
    there = replace(there, cgroups=tuple(replace(each, populated=True) for each in there.cgroups))
    told = unenforced(Look(LEDGER, world.names, MACHINE, wanted, there, {}, {}))
    pace = {"main": ", with growing pauses", "side": " at once, and once a second where that does not last"}[place]
    assert sentence(told["db"]).startswith(f"main: {words}")
    assert sentence(told["db"]).endswith(f"it is put right again{pace}")


@pytest.mark.parametrize(
    ("file", "value", "words"),
    [("cpuset.cpus", "4-6", "asks for 4-6 instead of 4-5, and has 4-5 for now"),
     ("cpuset.cpus", "", "asks for nothing instead of 4-5, and has 4-5 for now")],
)  # fmt: skip
def test_a_container_that_asks_for_something_else_is_told_so(file: str, value: str, words: str) -> None:
    """What is in force is as granted only since the cgroup above has no more: two equal sets are never compared."""
    world = node(2)
    enforce(world)
    there = world.observe()
    asked, path = CpuSet.parse(value), f"{POD}/main"
    there = replace(
        there, cgroups=tuple(replace(each, cpus=asked) if each.path == path else each for each in there.cgroups)
    )
    wanted = desired_sets(LEDGER, world.names, there, RULES, MACHINE)
    refused = {(f"{POD}/main", file): "EBUSY"}
    told = unenforced(Look(LEDGER, world.names, MACHINE, wanted, there, refused, {}))
    assert told["db"]["main"].startswith(f"{file} of {POD}/main {words}: EBUSY: a cgroup below it holds others")
