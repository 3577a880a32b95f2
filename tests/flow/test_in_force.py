"""What the kubelet's own cgroup has in force: pods are placed within it, and what it lacks is told."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from agent.core.cgroups.enforced import sentence
from agent.core.machines.synthetic import parse_synthetic
from agent.engine.engine import OUTSIDE
from agent.forecast.node_summary import decode, encode, summarize
from agent.host.nri.decisions import EngineDecisions
from agent.host.scratch import Layout, Scratch
from agent.kube.topology_crd import topology_object
from agent.model.idset import CpuSet
from agent.model.machine import Machine
from agent.model.podspec import pod_from
from agent.node.explaining import explained
from tests.flow.world import MemoryStore, World, container, manifest

MACHINE = parse_synthetic("2 sockets x 1 node x 4 cores x 1 thread, 8G per node")
VERSIONS = pytest.mark.parametrize("version", [1, 2])
STATIC = {
    "memoryManagerPolicy": "Static",
    "reservedMemory": [{"numaNode": 0, "limits": {"memory": "256Mi"}}],
    "kubeReserved": {"cpu": "1", "memory": "156Mi"},
}


def node(folder: Path, version: int = 2, *, root: tuple[str, ...] = (), **more: Any) -> World:  # noqa: ANN401 - of a World
    """A listed node without pods; the kubelet's root lies below cgroups where these are named."""
    machine: Machine = more.setdefault("machine", MACHINE)
    if not folder.exists():
        online, nodes = MACHINE.online | machine.online, machine.node_set
        made = Scratch.create(folder, cpus=online, nodes=nodes, setup=Layout(version=version, root=root))
        made.online(machine.online, nodes)
    world = World(folder, **more)
    world.engine.pods_listed(set())
    return world


def narrow(world: World, cpus: str, file: str = "cpuset.cpus", top: str = "") -> None:
    """Another program writes a set to the kubelet's root or above it; on v1 to all that lies below first."""
    top = top or world.tree.kubepods
    if world.cgroups.version == 1:
        below = [each for each in world.cgroups.observe().cgroups if each.path != top]
        for each in reversed(below):
            has = each.cpus if file == "cpuset.cpus" else CpuSet(each.mems.bits)
            world.tree.kernel_write(each.path, file, str(has & CpuSet.parse(cpus) or cpus))
        if top != world.tree.kubepods:
            world.tree.kernel_write(world.tree.kubepods, file, cpus)
    world.tree.kernel_write(top, file, cpus)


def told(world: World) -> list[str]:
    """What was told of the kubelet's root."""
    return [text for what, text in world.ears.problems if what == "in-force"]


@VERSIONS
@pytest.mark.parametrize("root", [(), ("system",)])
@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("compatibility", ["fixed", "kubelet-1.37"])
def test_nothing_is_granted_outside(
    tmp_path: Path, version: int, root: tuple[str, ...], *, late: bool, compatibility: str
) -> None:  # fmt: skip
    """A root that was narrowed, or a cgroup above it, before or after the start: pods are placed on what is left."""
    settings = {"compatibility": compatibility}
    world = node(tmp_path / "tree", version, root=root, settings=settings)
    top = world.tree.kubepods.rpartition("/")[0] if root else world.tree.kubepods
    narrow(world, "2-7", top=top)
    if not late:
        world = node(tmp_path / "tree", settings=settings)
    world.run(manifest("web", container(cpu="500m"), created=1))
    world.run(manifest("db", container(cpu="3"), created=2))
    world.run(manifest("next", container(cpu="3"), created=3))
    for _ in range(3):
        world.engine.reconcile()
    assert (world.holds("db"), world.effective("db"), world.condition("db")) == ("4-6", "4-6", "True Aligned")
    assert world.holds("next") == ""
    assert world.ears.refused_["next"].reason == "SharedPoolWouldBeEmpty"
    assert world.effective("web") == world.effective("next") == "2-3,7"
    (text,) = told(world)
    assert text.startswith(
        f"{world.tree.kubepods}, the kubelet's own cgroup, has CPUs 2-7 of 0-7, and no pod is granted the rest"
    )
    assert "set reservedSystemCPUs: 0-1, or restart the kubelet if CPUs were added, or widen it" in text
    world.check()


@VERSIONS
def test_a_pod_that_the_runtime_starts_first_is_placed_within_it(tmp_path: Path, version: int) -> None:
    """The root was narrowed a moment ago, and a runtime's question is the first event since."""
    world = node(tmp_path / "tree", version)
    narrow(world, "0,4-7")
    body = manifest("db", container(cpu="3"), created=1)
    world.engine.pod_found(pod_from(body))
    assert world.holds("db") == "4-6"
    world.run(body)
    assert world.effective("db") == "4-6"


@VERSIONS
@pytest.mark.parametrize("wish", ["run", "wait"])
def test_a_wider_root_lets_refused_pods_in(tmp_path: Path, version: int, wish: str) -> None:
    """A pod that only the narrow root kept out is decided again when that is wide again, unless it runs already."""
    world = node(tmp_path / "tree", version, settings={"onMisalignment": wish})
    narrow(world, "4-7")
    world.see(manifest("big", container(cpu="6"), created=1))
    world.run(manifest("web", container(cpu="500m"), created=2))
    assert world.holds("big") == ""
    assert len(told(world)) == 1
    world.tree.kernel_write(world.tree.kubepods, "cpuset.cpus", "0-7")
    world.engine.reconcile()
    assert world.holds("big") == "1-2,4-7"
    assert (world.effective("web"), len(told(world))) == ("0,3", 1)
    world.check()


def test_cpus_that_numalign_itself_chose_to_reserve_are_told(tmp_path: Path) -> None:
    """The shared pool loses them, so that is said until the settings name them. The policy none grants nothing."""
    world = node(tmp_path / "tree")
    narrow(world, "1-7")
    world.engine.reconcile()
    assert "set reservedSystemCPUs: 0, or" in told(world)[0]
    world.engine.changed(world.node(reservedSystemCPUs="0"))
    assert (world.engine.node.barred(), str(world.engine.ledger.cpus.shared)) == ("", "1-7")
    narrow(world, "2-7")
    world.engine.reconcile()
    assert "set reservedSystemCPUs: 0-1, or" in told(world)[-1]
    world.engine.changed(world.node(cpuManagerPolicy="none"))
    assert world.engine.node.barred() == ""


@VERSIONS
def test_what_runs_is_not_moved(tmp_path: Path, version: int) -> None:
    """A pod that holds CPUs outside keeps its grant, is told why, and has it again as soon as the root is wide."""
    world = node(tmp_path / "tree", version)
    world.run(manifest("web", container(cpu="500m"), created=1))
    world.run(manifest("db", container(cpu="3"), created=2))
    world.run(manifest("next", container(cpu="3"), created=3))
    narrow(world, "2-7")
    world.engine.reconcile()
    before = len(world.ears.written_)
    for _ in range(5):
        world.engine.reconcile()
    assert len(world.ears.written_) == before, "nothing is written again and again"
    assert (world.holds("db"), world.effective("db"), world.condition("db")) == ("1-3", "2-3", "False NotEnforced")
    assert (world.effective("next"), world.effective("web")) == ("4-6", "7")
    why = sentence(world.ears.unenforced["db"])
    assert (
        f"is 2-3 instead of 1-3: it lies in {world.tree.kubepods}, which has CPUs 2-7 alone: it is the kubelet's"
        in why
    )
    world.tree.kernel_write(world.tree.kubepods, "cpuset.cpus", "0-7")
    world.engine.reconcile()
    assert (world.effective("db"), world.condition("db"), world.effective("web")) == ("1-3", "True Aligned", "0,7")
    world.check()


def test_a_pod_that_has_not_started_is_placed_again(tmp_path: Path) -> None:
    """The root lost its CPUs before any container was there; where it fits nowhere else it keeps its place."""
    world = node(tmp_path / "tree")
    world.run(manifest("web", container(cpu="1"), created=1))
    world.see(manifest("db", container(cpu="2"), created=2), manifest("big", container(cpu="3"), created=3))
    assert [world.holds(uid) for uid in ("web", "db", "big")] == ["1", "2-3", "4-6"]
    narrow(world, "0,4-7")
    world.engine.reconcile()
    assert [world.holds(uid) for uid in ("web", "db", "big")] == ["1", "2-3", "4-6"]
    narrow(world, "0-7")
    world.engine.pods_gone(["big"])
    world.engine.reconcile()
    narrow(world, "0,4-7")
    world.engine.reconcile()
    assert [world.holds(uid) for uid in ("web", "db")] == ["1", "4-5"]
    world.start("db")
    assert (world.effective("db"), world.condition("db")) == ("4-5", "True Aligned")


def whole(uid: str, cpu: str, *containers: dict[str, Any], created: int = 0) -> dict[str, Any]:
    """A pod with resources of its own."""
    body = manifest(uid, *containers, created=created)
    sizes = {"cpu": cpu, "memory": "1Gi"}
    body["spec"]["resources"] = {"requests": sizes, "limits": sizes}
    return body


WHOLE = {
    "topologyManagerScope": "pod",
    "featureGates": {"PodLevelResources": True, "PodLevelResourceManagers": True},
}


def test_a_pod_that_is_managed_as_a_whole_is_placed_again(tmp_path: Path) -> None:
    """CPUs that are the pod's, and no container's, were lost: it has others now, all within the root."""
    world = node(tmp_path / "tree", settings=WHOLE)
    world.see(whole("db", "3", container(cpu="1"), created=1))
    books = world.engine.ledger.cpus
    assert (str(books.pools["db"]), world.holds("db")) == ("1-3", "1")
    narrow(world, "0-1,4-7")
    world.engine.reconcile()
    assert str(world.engine.ledger.cpus.pools["db"]) == "4-6"
    world.start("db")
    world.engine.reconcile()
    assert world.effective("db") == world.holds("db") == "4"


@pytest.mark.parametrize("settings", [{}, WHOLE], ids=["by container", "as a whole"])
def test_a_pod_whose_memory_lies_outside_is_placed_again(tmp_path: Path, settings: Mapping[str, Any]) -> None:
    """The root lost the NUMA node of its memory; a pod that runs stays."""
    policy = {**STATIC, **settings, "topologyManagerPolicy": "single-numa-node"}
    world = node(tmp_path / "tree", settings=policy)
    sized = container(cpu="1", memory="1Gi")
    for uid, bring in (("web", world.run), ("db", world.see)):
        bring(whole(uid, "1", sized) if settings else manifest(uid, sized))
    assert [str(world.engine.ledger.grant(uid, "app").mems) for uid in ("web", "db")] == ["0", "0"]
    narrow(world, "1", "cpuset.mems")
    world.engine.reconcile()
    assert [str(world.engine.ledger.grant(uid, "app").mems) for uid in ("web", "db")] == ["0", "1"]
    world.check()


@pytest.mark.parametrize("file", ["cpuset.cpus", "cpuset.mems"])
def test_a_root_that_was_narrowed_while_no_agent_ran(tmp_path: Path, file: str) -> None:
    """At the start a pod that has not started is placed again, as is told; one whose container exists stays."""
    settings, store = {**STATIC, "topologyManagerPolicy": "single-numa-node"}, MemoryStore()
    world = node(tmp_path / "tree", store=store, settings=settings)
    sized = container(cpu="1", memory="1Gi")
    world.run(manifest("web", sized, created=1))
    world.see(manifest("db", sized, created=2))
    before = {uid: world.engine.ledger.grant(uid, "app") for uid in ("web", "db")}
    narrow(world, {"cpuset.cpus": "4-7", "cpuset.mems": "1"}[file], file)
    again = World(tmp_path / "tree", machine=MACHINE, store=store, settings=settings, pods=world.pods.values())
    after = {uid: again.engine.ledger.grant(uid, "app") for uid in ("web", "db")}
    assert after["web"] == before["web"]
    assert (str(before["db"].mems), str(after["db"].mems)) == ("0", "1")
    assert ("machine", f"{OUTSIDE}: default/db") in again.ears.problems
    again.start("db")
    assert again.effective("db") == again.holds("db")
    third = World(tmp_path / "tree", machine=MACHINE, store=store, settings=settings, pods=again.pods.values())
    assert third.engine.ledger == again.engine.ledger


def test_a_container_with_nothing_left_is_not_put_beside_its_pods_others(tmp_path: Path) -> None:
    """What the kernel makes of such a set is all that the pod has: another container's own CPUs, too."""
    world = node(tmp_path / "tree")
    world.run(manifest("db", container("one", cpu="1"), container("two", cpu="2"), created=1))
    assert (world.holds("db", "one"), world.holds("db", "two")) == ("1", "2-3")
    narrow(world, "0,2,4-7")
    world.engine.reconcile()
    assert (world.effective("db", "one"), world.effective("db", "two")) == ("0,4-7", "2")
    world.check()
    narrow(world, "0-7")
    world.engine.reconcile()
    assert (world.effective("db", "one"), world.effective("db", "two")) == ("1", "2-3")
    assert world.condition("db") == "True Aligned"


def test_a_grant_that_lies_outside_as_a_whole_runs_on_the_pool(tmp_path: Path) -> None:
    """It is on no other pod's CPUs, whatever the kernel makes of its set."""
    world = node(tmp_path / "tree")
    for number, uid in enumerate(("db", "next")):
        world.run(manifest(uid, container(cpu="3"), created=number))
    narrow(world, "4-7")
    world.engine.reconcile()
    assert (world.holds("db"), world.effective("db"), world.effective("next")) == ("1-3", "7", "4-6")
    world.check()


@VERSIONS
def test_cpus_that_come_after_the_kubelet_are_granted_to_no_pod(tmp_path: Path, version: int) -> None:
    """A root with the CPUs of the kubelet's start: CPUs that are plugged in later are outside until it is widened."""
    small = parse_synthetic("1 socket x 1 node x 4 cores x 1 thread, 8G per node")
    world = node(tmp_path / "tree", version, machine=small)
    narrow(world, "0-3")
    world.run(manifest("db", container(cpu="2"), created=1))
    world.tree.online(MACHINE.online, MACHINE.node_set)
    world.machine = MACHINE
    world.engine.changed(world.node())
    world.see(manifest("next", container(cpu="3"), created=2))
    assert (world.holds("db"), world.holds("next"), str(world.engine.ledger.cpus.shared)) == ("1-2", "", "0,3")
    assert "has CPUs 0-3 of 0-7" in told(world)[-1]
    world.tree.kernel_write(world.tree.kubepods, "cpuset.cpus", "0-7")
    world.engine.reconcile()
    assert (world.holds("next"), str(world.engine.ledger.cpus.shared)) == ("4-6", "0,3,7")


@pytest.mark.parametrize("settings", [{}, {"reservedSystemCPUs": "0-1"}])
def test_cpus_that_a_partition_took_are_outside(tmp_path: Path, settings: Mapping[str, Any]) -> None:
    """The root asks for nothing, and has less in force; nothing is told where these CPUs are reserved."""
    world = node(tmp_path / "tree", settings=settings)
    world.tree._store.put(world.tree.kubepods, "cpuset.cpus.effective", "2-7")
    world.see(manifest("db", container(cpu="5"), created=1))
    assert (world.holds("db"), str(world.engine.ledger.cpus.shared)) == ("2,4-7", "3")
    assert len(told(world)) == (not settings)


@VERSIONS
@pytest.mark.parametrize("compatibility", ["fixed", "kubelet-1.37"])
def test_memory_is_granted_where_the_root_has_some(tmp_path: Path, version: int, compatibility: str) -> None:
    """A NUMA node that the root lacks gets no memory of a pod, which is told; CPUs there are granted as ever."""
    world = node(tmp_path / "tree", version, settings={**STATIC, "compatibility": compatibility})
    narrow(world, "1", "cpuset.mems")
    world.run(manifest("db", container(cpu="3", memory="1Gi"), created=1))
    assert str(world.engine.ledger.grant("db", "app").mems) == "1"
    assert (world.holds("db"), world.condition("db")) == ("4-6", "True Aligned")
    (text,) = told(world)
    assert "has NUMA nodes 1 of 0-1, and no pod is granted the rest: widen it" in text
    world.see(manifest("big", container(cpu="1", memory="7500Mi"), created=2))
    assert world.holds("big") == "", "both nodes together would have had the memory"


def test_the_next_start_knows_it(tmp_path: Path) -> None:
    """A ledger that was saved with a narrow root is taken as it is, and carried over where it is wide by now."""
    store = MemoryStore()
    world = node(tmp_path / "tree", store=store)
    narrow(world, "2-7")
    world.run(manifest("db", container(cpu="3"), created=1))
    again = node(tmp_path / "tree", store=store, pods=world.pods.values())
    assert again.recovered.as_saved
    assert again.holds("db") == "4-6"
    assert len(told(again)) == 1
    again.tree.kernel_write(again.tree.kubepods, "cpuset.cpus", "0-7")
    wide = node(tmp_path / "tree", store=store, pods=world.pods.values())
    assert (wide.holds("db"), str(wide.engine.ledger.cpus.shared), told(wide)) == ("4-6", "0-3,7", [])


def test_a_root_that_says_nothing_or_cannot_be_read_changes_nothing(tmp_path: Path) -> None:
    """Where the set is empty all of the machine is used; where it cannot be read, what was known last counts."""
    world = node(tmp_path / "tree")
    world.tree._store.put(world.tree.kubepods, "cpuset.cpus.effective", "")
    world.see(manifest("db", container(cpu="3"), created=1))
    assert world.holds("db") == "1-3"
    narrow(world, "0-6")
    world.engine.reconcile()
    world.tree._store.put(world.tree.kubepods, "cpuset.cpus.effective", "?")
    world.engine.pods_seen([])
    world.see(manifest("next", container(cpu="4"), created=2))
    assert world.holds("next") == ""
    assert len(told(world)) == 1


def test_the_runtime_is_answered_what_the_root_has(tmp_path: Path) -> None:
    """A container that is created again gets those CPUs of its grant that are in force: runc fails for more on v1."""
    world = node(tmp_path / "tree", 1)
    world.run(manifest("db", container(cpu="3"), created=1))
    narrow(world, "2-7")
    world.engine.reconcile()
    answer = EngineDecisions(world.engine, lambda _address: None).desired("db", "app")  # type: ignore[arg-type,return-value]  # no devices
    assert (str(answer.cpus), answer.exclusive) == ("2-3", True)


def test_an_explanation_of_a_refusal_says_so(tmp_path: Path) -> None:
    """The explanation of a refused pod says that the kubelet's root has less than the machine, and what to do."""
    world = node(tmp_path / "tree")
    narrow(world, "4-7")
    world.see(manifest("big", container(cpu="6"), created=1))
    found = explained(world.engine.snapshot, "big")
    assert found is not None
    assert any("has CPUs 4-7 of 0-7, and no pod is granted the rest" in each for each in found.notes)


@VERSIONS
def test_a_narrowed_pod_is_told_as_such(tmp_path: Path, version: int) -> None:
    """Where another program writes the pod's cgroup, the sentence names that, and not the container's own file."""
    world = node(tmp_path / "tree", version)
    world.run(manifest("db", container(cpu="3"), created=1))
    pod, path = world.path("db", "app").rpartition("/")[0], world.path("db", "app")
    for _ in range(2):  # it is put right at once the first time
        if version == 1:
            world.tree.kernel_write(path, "cpuset.cpus", "3")
        world.tree.kernel_write(pod, "cpuset.cpus", "3")
        world.engine.reconcile(again=False)
    why = f"is 3 instead of 1-3: it follows {pod}, which another program made narrower (3); that is put right again"
    assert why in sentence(world.ears.unenforced["db"])


def test_whoever_decides_elsewhere_knows_it(tmp_path: Path) -> None:
    """The node's summary for `numalign fleet` places pods within it; the scheduler is not offered what is outside."""
    world = node(tmp_path / "tree", settings=STATIC)
    narrow(world, "2-7")
    narrow(world, "1", "cpuset.mems")
    world.see(manifest("web", container(cpu="500m"), created=1))
    summary = decode(encode(summarize(world.engine.snapshot, began=0, enforcing=True)))
    assert (str(summary.machine.barred), str(summary.machine.barred_nodes)) == ("0-1", "0")
    assert summary.node().start().cpus == world.engine.node.start().cpus
    state = world.engine.snapshot
    body = topology_object(
        state.node.machine,
        state.ledger,
        state.node.rules,
        reserved=state.node.reserved,
        node="n",
        node_uid="u",
        pods=(),
    )
    offered = {
        (zone["name"], each["name"]): (each["allocatable"], each["available"])
        for zone in body["zones"]
        for each in zone["resources"]
    }
    assert offered["node-0", "cpu"] == ("2", "2")
    assert offered["node-1", "cpu"] == ("4", "4")
    assert offered["node-0", "memory"] == ("0", "0")


@VERSIONS
def test_a_pod_that_grows_takes_nothing_from_outside(tmp_path: Path, version: int) -> None:
    """A resize in place finds its CPUs within, and no more memory on a node that is outside."""
    world = node(tmp_path / "tree", version, settings=STATIC)
    world.run(manifest("db", container(cpu="2", memory="1Gi"), created=1))
    assert (world.holds("db"), str(world.engine.ledger.grant("db", "app").mems)) == ("1-2", "0")
    narrow(world, "1-2,4-7")
    world.see(manifest("db", container(cpu="3", memory="1Gi"), created=1))
    assert world.holds("db") == "1-2,4"
    world.tree._store.put(world.tree.kubepods, f"cpuset.mems{'.effective' if version == 2 else ''}", "1")
    world.see(manifest("db", container(cpu="3", memory="2Gi"), created=1))
    assert [block.size for block in world.engine.ledger.grant("db", "app").memory] == [2**30]
    assert "resize not followed" in world.engine.ledger.pods["db"].why["app"]


def test_cpus_that_were_taken_below_the_root_are_told_as_such(tmp_path: Path) -> None:
    """A partition beside a pod takes CPUs away while every file says what it should: the sentence says that."""
    world = node(tmp_path / "tree")
    world.run(manifest("db", container(cpu="3"), created=1))
    pod, path = world.path("db", "app").rpartition("/")[0], world.path("db", "app")
    for each in (pod, path):
        world.tree._store.put(each, "cpuset.cpus.effective", "3")
    world.engine.reconcile()
    why = f"it lies in {pod.rpartition('/')[0]}, from which CPUs 1-2 were taken: a cpuset partition"
    assert f"is 3 instead of 1-3: {why}" in sentence(world.ears.unenforced["db"])
