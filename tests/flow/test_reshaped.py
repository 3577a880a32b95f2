"""A machine that comes back with other NUMA nodes (NPS, sub-NUMA clustering, SMT, a socket less) under one ledger."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.core.admission.alignment import MOVED
from agent.core.machines.synthetic import parse_synthetic
from agent.engine.engine import PLACED_AGAIN
from agent.host.standin import container_id
from agent.kube import pod_report as pod_reports
from agent.model.claims import PROVIDER, ClaimDevice, from_text, to_text
from agent.model.idset import CpuSet, NodeSet
from tests.examples import examples
from tests.flow.gpus import asking, gpu
from tests.flow.world import World, container, manifest
from tests.world.nodes import managers_of

ONE = "1 socket x 1 node x 16 cores x 1 thread, 64G per node"
FOUR = "1 socket x 4 nodes x 4 cores x 1 thread, 16G per node"
CLUSTERS = "2 sockets x 2 nodes x 4 cores x 1 thread, 16G per node"
SOCKETS = "2 sockets x 1 node x 8 cores x 1 thread, 32G per node"
THREADS = "2 sockets x 1 node x 4 cores x 2 threads, 32G per node"
EIGHT = "1 socket x 8 nodes x 2 cores x 1 thread, 8G per node"
SHAPES = (ONE, FOUR, CLUSTERS, SOCKETS, THREADS)
MEMORY: Mapping[str, Any] = {
    "memoryManagerPolicy": "Static", "reservedMemory": [{"numaNode": 0, "limits": {"memory": "100Mi"}}],
}  # fmt: skip
STRICT = {**MEMORY, "topologyManagerPolicy": "single-numa-node"}


def node(folder: Path, machine: str, settings: Mapping[str, Any], *bodies: Mapping[str, Any]) -> World:
    """A node whose pods are admitted and run."""
    world = World(folder / "before", machine=machine, settings=settings)
    world.engine.pods_listed(set())
    for body in bodies:
        world.run(body)
    return world


def booted(world: World, machine: str, folder: Path, **more: Any) -> World:  # noqa: ANN401 - of World
    """The node after a reboot: the saved ledger and the pods are those of before, and no cgroup is there."""
    return World(
        folder, machine=machine, settings=world.settings, store=world.store, pods=world.pods.values(), **more
    )


def restarted(world: World, machine: str, folder: Path) -> World:
    """The agent alone is started again, on a machine that was changed meanwhile: all containers still run."""
    return booted(world, machine, folder / "before")


def start(world: World, *uids: str) -> None:
    """The runtime makes the pods' containers after a reboot."""
    for uid in uids:
        world.tree.add_pod(uid, world.pods[uid].qos)
        for each in world.pods[uid].containers:
            world.tree.add_container(uid, container_id(uid, each.name))
    world.engine.containers_seen(world.names())
    world.engine.reconcile()
    world.check()


def message(world: World, uid: str) -> str:
    """Reason and sentence of the condition that a pod carries."""
    report = pod_reports.admitted(uid, world.engine.ledger, world.engine.node.machine)
    return f"{report.reason}: {report.message}"


def lies(world: World, uid: str, name: str = "app") -> tuple[str, str]:
    """The NUMA nodes of a container's CPUs, and of its memory."""
    grant = world.engine.ledger.grant(uid, name)
    return str(world.engine.node.machine.nodes_of(grant.cpus or CpuSet())), str(grant.mems or "")


def pods(count: int, cpu: str, memory: str = "4Gi", **more: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - annotations
    """Pods that are alike."""
    return [
        manifest(f"db{each}", container(cpu=cpu, memory=memory), created=each + 1, **more) for each in range(count)
    ]


@pytest.mark.parametrize("after", SHAPES)
@pytest.mark.parametrize("before", SHAPES)
def test_pods_that_do_not_run_are_placed_again(tmp_path: Path, before: str, after: str) -> None:
    """Under single-numa-node CPUs and memory of each pod lie on one node of the machine as it is now, as is told."""
    world = booted(node(tmp_path, before, STRICT, *pods(3, "3")), after, tmp_path / "after")
    for each in range(3):
        cpus, memory = lies(world, f"db{each}")
        assert (cpus, len(cpus)) == (memory, 1)
    start(world, "db0", "db1", "db2")
    for each in range(3):
        assert world.engine.ledger.pods[f"db{each}"].aligned == {"app": True}
        assert world.engine.ledger.pods[f"db{each}"].why == {}
        nodes = world.engine.ledger.pods[f"db{each}"].affinity["app"].nodes
        assert nodes is None or str(nodes) == lies(world, f"db{each}")[0]


def test_what_was_placed_again_is_one_sentence_about_the_node(tmp_path: Path) -> None:
    """It names the pods; a reboot of the same machine says nothing."""
    before = node(tmp_path, ONE, STRICT, *pods(3, "3"))
    same = booted(before, ONE, tmp_path / "same")
    assert same.ears.problems == []
    assert same.engine.ledger == before.engine.ledger
    world = booted(before, FOUR, tmp_path / "after")
    assert world.ears.problems == [("machine", f"{PLACED_AGAIN}: default/db1, default/db2")]
    assert "default/db0" not in world.ears.problems[0][1], "it lies on one node as it is"


def test_whole_cores_are_whole_after_smt_was_switched_on(tmp_path: Path) -> None:
    """Eight cores of one thread become four of two: CPUs that were cores are threads of two pods' cores now."""
    options = {"cpuManagerPolicyOptions": {"full-pcpus-only": "true"}, "kubeReserved": {"cpu": "2"}}
    plain = "1 socket x 1 node x 16 cores x 1 thread, 64G per node"
    threads = "1 socket x 1 node x 8 cores x 2 threads, 64G per node"
    before = node(tmp_path, plain, {**options, "memoryManagerPolicy": "None"}, *pods(3, "4"))
    world = booted(before, threads, tmp_path / "after")
    for each in range(3):
        cpus = world.engine.ledger.cpus.assigned[f"db{each}"]["app"]
        assert cpus == CpuSet.union(core for core in world.machine.cores if core & cpus)


def test_a_pod_that_is_managed_as_a_whole_is_placed_again(tmp_path: Path) -> None:
    """Its CPUs lie on one node of the machine as it is now, with those that no container of it has."""
    gates = {"PodLevelResources": True, "PodLevelResourceManagers": True}
    settings = {**STRICT, "topologyManagerScope": "pod", "featureGates": gates}
    bodies = pods(4, "1")
    for body in bodies:
        sizes = {"cpu": "3", "memory": "4Gi"}
        body["spec"]["resources"] = {"requests": sizes, "limits": sizes}
    world = booted(node(tmp_path, ONE, settings, *bodies), FOUR, tmp_path / "after")
    books, machine = world.engine.ledger.cpus, world.engine.node.machine
    assert [len(books.pools[f"db{each}"]) for each in range(4)] == [3] * 4
    assert [len(machine.nodes_of(books.pools[f"db{each}"])) for each in range(4)] == [1] * 4
    start(world, "db0", "db1", "db2", "db3")


def test_a_machine_with_one_node_has_lost_no_memory(tmp_path: Path) -> None:
    """Four nodes become one, also under running containers: there is no node 1 to tell of, and all lies on node 0."""
    before = node(tmp_path, FOUR, STRICT, *pods(2, "3"))
    assert lies(before, "db1") == ("1", "1")
    for world in (booted(before, ONE, tmp_path / "after"), restarted(before, ONE, tmp_path)):
        assert lies(world, "db1") == ("0", "0")
        record = world.engine.ledger.pods["db1"]
        assert (record.aligned, record.why) == ({"app": True}, {})
        assert world.recovered.losses == ()


@pytest.mark.parametrize(
    ("policy", "aligned"), [("single-numa-node", False), ("restricted", True), ("best-effort", True), ("none", False)]
)
def test_a_pod_that_fits_no_node_any_more_keeps_its_cpus(tmp_path: Path, policy: str, *, aligned: bool) -> None:
    """Six CPUs; nodes have four now: a policy that allows it places them on two; else it is told where they lie."""
    before = node(tmp_path, ONE, {"topologyManagerPolicy": policy}, *pods(1, "6"))
    world = booted(before, FOUR, tmp_path / "after")
    assert len(world.engine.ledger.cpus.assigned["db0"]["app"]) == 6
    record = world.engine.ledger.pods["db0"]
    assert record.aligned == {"app": aligned}
    if policy == "single-numa-node":
        assert record.why == {"app": f"{MOVED}: CPUs 1-6 lie on NUMA nodes 0-1"}
        start(world, "db0")
        assert message(world, "db0") == f"NotAligned: app: {MOVED}: CPUs 1-6 lie on NUMA nodes 0-1"
    if policy == "none":
        assert "policy none aligns nothing: it lies on NUMA nodes 0-1" in record.why["app"]


def test_a_container_that_runs_is_not_moved_and_is_judged_again(tmp_path: Path) -> None:
    """CPUs and memory that lie on two nodes now are told; beside it, a pod that does not run is placed."""
    before = node(tmp_path, CLUSTERS, STRICT, *pods(3, "3"))
    assert lies(before, "db1") == ("1", "1")
    held = before.holds("db1")
    before.end("db2")
    world = restarted(before, SOCKETS, tmp_path)
    assert world.holds("db1") == held == world.effective("db1")
    record = world.engine.ledger.pods["db1"]
    where = f"CPUs {held} lie on NUMA node 0, 4Gi of memory lies on NUMA node 1"
    assert (record.aligned, record.why) == ({"app": False}, {"app": f"{MOVED}: {where}"})
    assert world.engine.ledger.pods["db0"].aligned == {"app": True}
    assert lies(world, "db2") == ("1", "1")
    world.engine.pods_listed({"db0", "db1", "db2"})
    world.engine.reconcile()
    world.check()
    assert world.effective("db1") == held


def test_live_hot_plug_moves_nothing_that_runs(tmp_path: Path) -> None:
    """A CPU goes offline: a pod that runs keeps the rest, one that has not started gets a free one; all is told."""
    world = node(tmp_path, SOCKETS, {"topologyManagerPolicy": "single-numa-node"}, *pods(1, "3"))
    world.see(manifest("next", container(cpu="3"), created=5))
    assert (world.holds("db0"), world.holds("next")) == ("1-3", "4-6")
    world.engine.changed(world.node(parse_synthetic(f"{SOCKETS}, offline 2,5")))
    assert (world.holds("db0"), world.effective("db0")) == ("1,3", "1,3")
    assert len(world.engine.ledger.cpus.assigned["next"]["app"]) == 3
    assert world.engine.ledger.pods["next"].why == {}
    assert world.engine.ledger.pods["db0"].why["app"].startswith("it lost CPUs 2")
    world.start("next")
    words = len(world.ears.words)
    world.engine.changed(world.node(parse_synthetic(f"{EIGHT}, offline 2,5")))
    assert (world.holds("db0"), world.effective("db0")) == ("1,3", "1,3")
    assert world.engine.ledger.pods["next"].why["app"] == f"{MOVED}: CPUs 4,6-7 lie on NUMA nodes 2-3"
    assert "next" in world.ears.words[words:], "and that is told"


def test_confined_pods_are_kept_on_nodes_that_are_there(tmp_path: Path) -> None:
    """Pods of numalign.io/align, with their memory: each on one node of the machine as it is, and by the new sets."""
    bodies = [
        manifest(f"c{each}", container(cpu="2500m", memory="1Gi"), created=each, align="numa,memory")
        for each in range(3)
    ]
    before = node(tmp_path, CLUSTERS, MEMORY, *bodies)
    for after in (ONE, FOUR, SOCKETS):
        world = booted(before, after, tmp_path / after[:12].replace(" ", "-"))
        for each in range(3):
            confinement = world.engine.ledger.cpus.confined.get(f"c{each}")
            record = world.engine.ledger.pods[f"c{each}"]
            assert confinement is not None
            assert confinement.nodes.issubset(world.machine.node_set)
            assert (record.why, record.aligned) == ({}, {"app": True})
            start(world, f"c{each}")
            assert CpuSet.parse(world.effective(f"c{each}")).issubset(world.machine.cpus_of(confinement.nodes))


def test_devices_of_numalign_are_chosen_again(tmp_path: Path) -> None:
    """Devices that numalign hands out are those near the CPUs, on the machine as it is."""
    settings = {**STRICT, "devices": [{"resource": "numalign.io/nic", "class": "02", "namespaces": ["*"]}]}
    bodies = [
        manifest(f"n{each}", container(cpu="2", memory="1Gi"), created=each, devices="numalign.io/nic=1")
        for each in range(2)
    ]
    before = node(tmp_path, f"{CLUSTERS}, nic on 0, nic on 2", settings, *bodies)
    world = booted(before, f"{SOCKETS}, nic on 0, nic on 1", tmp_path / "after")
    places = {each.id: str(each.nodes) for each in world.engine.node.inventory.of("numalign.io/nic")}
    for each in range(2):
        (device,) = world.engine.ledger.grant(f"n{each}", "app").devices["numalign.io/nic"]
        assert lies(world, f"n{each}") == (places[device], places[device])
        assert set(world.engine.ledger.pods[f"n{each}"].aligned.values()) == {True}


def test_the_kubelets_devices_are_followed_once_they_are_told(tmp_path: Path) -> None:
    """A pod is placed again without its device, and once more when the kubelet names it after the reboot."""
    before = node(tmp_path, CLUSTERS, MEMORY)
    before.engine.devices_offered([gpu("g", 1)])
    before.engine.devices_reported("job", {"app": (gpu("g", 1),)})
    before.see(asking())
    assert lies(before, "job") == ("1", "1")
    world = booted(before, SOCKETS, tmp_path / "after")
    world.engine.devices_offered([gpu("g", 1)])
    world.engine.devices_reported("job", {"app": (gpu("g", 1),)})
    assert lies(world, "job") == ("1", "1")
    assert world.engine.ledger.pods["job"].aligned == {"app": True}
    assert world.engine.ledger.grant("job", "app").devices == {"vendor.com/gpu": ("g",)}


def test_nodes_of_claims_are_of_the_machine_that_told_them(tmp_path: Path) -> None:
    """After a reboot with other nodes a claim's device lies nowhere until it is told again."""
    before = node(tmp_path, FOUR, {"dra": {"enabled": True}}, *pods(1, "2"))
    device = ClaimDevice("c", "gpu.example.com", "n", "d3", nodes=NodeSet.of(3), why="by attribute numaNode")
    claims = {PROVIDER: {"db0": {"app": (to_text(device),)}}}
    before.store.saved = replace(before.engine.ledger, others=claims)
    world = booted(before, SOCKETS, tmp_path / "after")
    for (text,) in (held["app"] for held in world.engine.ledger.others.get(PROVIDER, {}).values()):
        assert (found := from_text(text)) is not None
        assert found.nodes is None
    assert world.engine.ledger.pods["db0"].aligned == {"app": True}


def test_pods_that_are_left_alone_stay_as_they_are(tmp_path: Path) -> None:
    """A pod whose namespace was excluded meanwhile keeps its CPUs, where they are."""
    before = node(tmp_path, ONE, STRICT, *pods(2, "6"))
    held = [before.holds("db0"), before.holds("db1")]
    world = booted(before, FOUR, tmp_path / "after", exempt=lambda _pod: "it is excluded")
    assert [world.holds("db0"), world.holds("db1")] == held


def test_a_pod_that_was_refused_gets_in_where_it_fits_now(tmp_path: Path) -> None:
    """It was refused, and runs unpinned: after each reboot it is decided again."""
    before = node(tmp_path, FOUR, STRICT, *pods(2, "3"), manifest("large", container(cpu="6"), created=5))
    assert (before.holds("large"), before.engine.ledger.pods["large"].why[""][:13]) == ("", "TopologyAffin")
    world = booted(before, CLUSTERS, tmp_path / "same")
    assert world.holds("large") == ""
    assert world.engine.ledger.pods["large"].why[""].startswith("TopologyAffinityError")
    world = booted(world, SOCKETS, tmp_path / "after")
    assert len(world.engine.ledger.cpus.assigned["large"]["app"]) == 6
    assert world.engine.ledger.pods["large"].why == {}


def test_a_ledger_that_may_lack_pods_places_none_again(tmp_path: Path) -> None:
    """CPUs that look free may be those of a pod that runs and that only the first complete list names."""
    before = node(tmp_path, ONE, STRICT, *pods(3, "3"))
    before.store.extra = {**before.store.extra, "listed": False}
    world = booted(before, FOUR, tmp_path / "after")
    assert [world.holds(f"db{each}") for each in range(3)] == [before.holds(f"db{each}") for each in range(3)]


@settings(max_examples=examples(25), deadline=None)
@given(data=st.data())
def test_no_reboot_costs_a_pod_its_cpus(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Any pods, any shape after any other: one that does not run has no fewer CPUs, one that runs has the same."""
    folder = tmp_path_factory.mktemp("shapes")
    policy = data.draw(st.sampled_from(["none", "best-effort", "restricted", "single-numa-node"]))
    asked = {**data.draw(st.sampled_from([MEMORY, {}])), "topologyManagerPolicy": policy}
    first, second = data.draw(st.sampled_from(SHAPES)), data.draw(st.sampled_from(SHAPES))
    before = node(folder, first, asked)
    for each in range(data.draw(st.integers(1, 5))):
        cpu = data.draw(st.sampled_from(["1", "2", "3", "5", "1500m"]))
        body = manifest(f"p{each}", container(cpu=cpu, memory="1Gi"), created=each)
        if cpu == "1500m" and data.draw(st.booleans()):
            body["metadata"]["annotations"]["numalign.io/align"] = "numa"
        before.run(body)
    for uid in data.draw(st.sets(st.sampled_from(sorted(before.pods)))):
        before.end(uid)  # its containers have ended, and the kubelet makes them again
    running = {cgroup.pod_uid for cgroup in before.cgroups.observe().cgroups if cgroup.populated}
    world = restarted(before, second, folder)
    exist = world.machine.node_set
    for uid in before.pods:
        was, now = before.engine.ledger.grant(uid, "app").cpus, world.engine.ledger.grant(uid, "app").cpus
        assert (now == was) if uid in running else (len(now or ()) >= len(was or ()))
        record = world.engine.ledger.pods[uid]
        hint = record.affinity.get("app")
        assert hint is None or hint.nodes is None or hint.nodes.issubset(exist)
        grant = world.engine.ledger.grant(uid, "app")
        parts = [world.machine.nodes_of(now or CpuSet()), *(block.nodes for block in grant.memory)]
        if record.aligned["app"] and policy == "single-numa-node":
            assert len(NodeSet.union(parts)) <= 1
    world.engine.pods_listed(set(world.pods))
    world.engine.reconcile()
    world.check()
    managers_of(second, asked)
