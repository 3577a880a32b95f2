"""Putting things back, and the CPU quota."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.core.cgroups.release import lifted, pod_limit, quota_plan, release_plan
from agent.model.cgroup import Cause, Level, Write
from agent.model.idset import CpuSet
from agent.model.ledger import CpuBooks, PodRecord
from agent.model.pod import Container, ContainerKind, Pod, Qos
from tests.property.plan_worlds import World
from tests.unit.test_plan import LEDGER, POD, enforce, in_force, node

APP, SIDE, INIT = ContainerKind.APP, ContainerKind.SIDECAR, ContainerKind.INIT


def limited(name: str, milli: int, kind: ContainerKind = APP) -> Container:
    """A container with a CPU limit."""
    return Container(name, kind, {"cpu": milli}, {"cpu": milli})


POD_DB = Pod("db", "db", "ns", (limited("main", 2000), limited("side", 500)), Qos.GUARANTEED)
WITH_LIMITS = replace(LEDGER, pods={"db": PodRecord(POD_DB, "none", "container")})


def release(world: World) -> list[tuple[Write, str]]:
    """Carry out the release; each write and the kernel's refusal."""
    done = []
    for write in release_plan(LEDGER, world.names, world.observe()):
        try:
            world.kernel.write(write.path, write.file, write.value)
            done.append((write, ""))
        except OSError as error:
            done.append((write, error.strerror or ""))
    return done


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("inner", [False, True])
def test_s17_release_gives_everyone_all_cpus(version: int, *, inner: bool) -> None:
    """First sets widen, which always works; on v2 they are emptied where nobody runs; a refusal changes nothing."""
    world = node(version, inner=inner)
    enforce(world)
    done = release(world)
    assert {why for write, why in done if write.value} == {""}
    assert {why for write, why in done if not write.value} == (
        {"No space left on device", ""} if version == 2 else set()
    )
    assert set(in_force(world).values()) == {"0-15"}
    asked = {c.path: str(c.cpus) for c in world.observe().cgroups}
    assert asked["/kubepods/besteffort"] == ("" if version == 2 else "0-15")  # nobody there
    assert all(why for _, why in release(world))  # a second release has nothing left but what is refused
    assert {write.cause for write, _ in done} == {Cause.RELEASE}


def test_release_leaves_alone_what_has_no_set() -> None:
    """On a v2 node that was never enforced there is nothing to release."""
    world = node(2)
    assert release_plan(LEDGER, world.names, world.observe()) == ()


def with_quota(version: int, **quotas: str) -> tuple[World, dict[str, str]]:
    """A node where cgroups of pod db have these quotas."""
    world = node(version)
    paths = {"pod": POD} | {name: f"{POD}/{name}" for name in ("main", "side", "box")}
    return world, {paths[name]: quota for name, quota in quotas.items()}


@pytest.mark.parametrize(
    ("version", "file", "none", "two", "half", "all_of_it"),
    [(1, "cpu.cfs_quota_us", "-1", "200000", "50000", "250000"),
     (2, "cpu.max", "max 100000", "200000 100000", "50000 100000", "250000 100000")],
)  # fmt: skip
def test_s16_quota_of_the_whole_pod(version: int, file: str, none: str, two: str, half: str, all_of_it: str) -> None:
    """Lifted on pod, sandbox and the container with exclusive CPUs, not on the fractional one; put back by limits."""
    world, quotas = with_quota(version, pod=all_of_it, main=two, side=half, box=all_of_it)
    observed = world.observe()
    before = replace(observed, cgroups=tuple(replace(c, quota=quotas.get(c.path, none)) for c in observed.cgroups))
    lifted = quota_plan(WITH_LIMITS, world.names, before, lift=True)
    assert [(w.path, w.file, w.value, w.old) for w in lifted] == [
        (POD, file, none, all_of_it), (f"{POD}/box", file, none, all_of_it), (f"{POD}/main", file, none, two)
    ]  # fmt: skip
    values = {w.path: w.value for w in lifted}
    after = replace(before, cgroups=tuple(replace(c, quota=values.get(c.path, c.quota)) for c in before.cgroups))
    assert quota_plan(WITH_LIMITS, world.names, after, lift=True) == ()
    back = quota_plan(WITH_LIMITS, world.names, after, lift=False)
    assert [(w.path, w.value, w.cause) for w in back] == [
        (f"{POD}/main", two, Cause.QUOTA), (POD, all_of_it, Cause.QUOTA)
    ]  # fmt: skip
    assert set(back) <= set(release_plan(WITH_LIMITS, world.names, after))


@pytest.mark.parametrize("own", [{"main": "2", "side": "3"}, {"main": "2"}, {}])
def test_s16_a_pod_managed_as_a_whole_keeps_the_quota_that_containers_share(own: dict[str, str]) -> None:
    """As the kubelet: a share of the pod's own pool is throttled, and the pod is unless all of it is exclusive."""
    both = {"cpu": 1000, "memory": 1}
    main = Container("main", APP, both, both)
    side = Container("side", APP, {}, {})
    pod = Pod("db", "db", "ns", (main, side), Qos.GUARANTEED, requests={"cpu": 2000}, limits={"cpu": 2000})
    books = CpuBooks(CpuSet.parse("0"), {"db": {name: CpuSet.parse(cpus) for name, cpus in own.items()}})
    ledger = replace(LEDGER, cpus=books, pods={"db": PodRecord(pod, "none", "pod")})
    assert {name for name in ("main", "side", "") if lifted(ledger, "db", name)} == {"main"} & set(own)
    alone = replace(ledger, pods={"db": PodRecord(replace(pod, containers=(main,)), "none", "pod")})
    assert lifted(alone, "db") is ("main" in own)


def test_s16_pods_without_exclusive_cpus_keep_their_quota() -> None:
    """Nothing is lifted for a pod that shares, and nothing where the node has no cpu controller."""
    world, quotas = with_quota(2, pod="100000 100000")
    observed = world.observe()
    with_quotas = replace(observed, cgroups=tuple(replace(c, quota=quotas.get(c.path, "")) for c in observed.cgroups))
    shared = replace(WITH_LIMITS, cpus=CpuBooks(CpuSet.of(0)))
    assert quota_plan(shared, world.names, with_quotas, lift=True) == ()
    assert quota_plan(WITH_LIMITS, world.names, observed, lift=True) == ()


def test_s16_who_is_not_named_yet_keeps_the_quota_of_a_container_that_shares() -> None:
    """Before any name is known, what may be the fractional container is throttled on; sandbox and main are not."""
    world, quotas = with_quota(2, pod="250000 100000", main="200000 100000", side="50000 100000", box="250000 100000")
    observed = world.observe()
    before = replace(observed, cgroups=tuple(replace(c, quota=quotas.get(c.path, "")) for c in observed.cgroups))
    unthrottled = {write.path for write in quota_plan(WITH_LIMITS, {}, before, lift=True)}
    assert unthrottled == {POD, f"{POD}/box", f"{POD}/main"}


def test_s16_only_a_lifted_quota_is_put_back() -> None:
    """A finite quota is the kubelet's own; and where it limits no container, none is made up (cpuCFSQuota: false)."""
    world = node(2)
    observed = world.observe()

    def back(**quotas: str) -> list[str]:
        given = {name: quota.replace("_", " ") for name, quota in quotas.items()}
        cgroups = [replace(c, quota=given.get(c.path.rpartition("/")[2], "")) for c in observed.cgroups]
        plan = quota_plan(WITH_LIMITS, world.names, replace(observed, cgroups=tuple(cgroups)), lift=False)
        return [write.path for write in plan]

    assert back(poddb="300000_100000", main="max_100000", side="50000_100000") == [f"{POD}/main"]
    assert back(poddb="max_100000", main="max_100000", side="max_100000") == []


@pytest.mark.parametrize(("version", "none", "least"), [(1, "-1", "1000"), (2, "max 100000", "1000 100000")])
def test_s16_no_quota_is_put_back_that_the_kernel_refuses(version: int, none: str, least: str) -> None:
    """Less than a millisecond is EINVAL, and a container of five thousandths of a CPU would run without any limit."""
    whole, part = {"cpu": 1000, "memory": 1}, {"cpu": 5, "memory": 1}
    containers = (Container("main", APP, whole, whole), Container("side", APP, part, part))
    pod = Pod("db", "db", "ns", containers, Qos.GUARANTEED, requests={"cpu": 2000}, limits={"cpu": 2000})
    books = CpuBooks(CpuSet.parse("0"), {"db": {"main": CpuSet.parse("2"), "side": CpuSet.parse("3")}})
    ledger = replace(LEDGER, cpus=books, pods={"db": PodRecord(pod, "none", "pod")})
    world = node(version)
    observed = world.observe()
    lifted_all = replace(observed, cgroups=tuple(replace(each, quota=none) for each in observed.cgroups))
    back = {write.path: write.value for write in quota_plan(ledger, world.names, lifted_all, lift=False)}
    assert back[f"{POD}/side"] == least


def test_s16_another_period_is_kept() -> None:
    """With cpuCFSQuotaPeriod changed, the quota is of that period."""
    world = node(2)
    observed = world.observe()
    short = replace(
        observed,
        cgroups=tuple(
            replace(c, quota="25000 50000" if c.container_id == "side" else "max 50000") for c in observed.cgroups
        ),
    )
    assert {w.path: w.value for w in quota_plan(WITH_LIMITS, world.names, short, lift=False)}[POD] == "125000 50000"


def test_limit_of_a_pod() -> None:
    """The facts of kubelet rule 8.2, and the pod's own limit and overhead."""
    sides = (limited("s1", 1000, SIDE), limited("s2", 2000, SIDE), limited("s3", 3000, SIDE))
    pod = replace(POD_DB, containers=(limited("i", 5000, INIT), *sides, limited("a", 1000)))
    assert pod_limit(pod) == 7000
    assert pod_limit(replace(pod, containers=(sides[0], limited("i", 9000, INIT), limited("a", 100)))) == 10_000
    assert pod_limit(replace(pod, limits={"cpu": 4000}, overhead={"cpu": 250})) == 4250
    assert pod_limit(replace(pod, qos=Qos.BURSTABLE)) == 7000  # rule 7.4: each of its containers has a limit
    open_ended = replace(pod, qos=Qos.BURSTABLE, containers=(*sides, limited("a", 0)))
    assert pod_limit(open_ended) == 0


def test_s17_release_leaves_levels_that_an_application_made() -> None:
    """What a program chose below its container is its own: release would move its threads about."""
    world = node(2)
    enforce(world)
    own = f"{POD}/main/workers"
    world.add(own, Level.INNER, Qos.GUARANTEED, "db", "main")
    world.kernel.write(own, "cpuset.cpus", "1")
    done = release_plan(LEDGER, world.names, world.observe())
    assert f"{POD}/main" in {write.path for write in done}
    assert own not in {write.path for write in done}
