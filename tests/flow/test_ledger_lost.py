"""The ledger is lost, or an older copy of it is there: what runs keeps its CPUs, its nodes and its devices.

Finding 2.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from agent.core.cgroups.desired import own_of
from agent.core.machines.synthetic import parse_synthetic
from agent.host.scratch import Layout, Scratch
from agent.host.standin import container_id
from agent.kube.pod_report import ASSIGNMENT, CONDITION, admitted, annotated_grant
from agent.model.idset import CpuSet, NodeSet
from agent.model.pod import Qos
from agent.model.podspec import pod_from
from agent.node.unlisted import keep
from tests.flow.cluster_node import MACHINE, ClusterNode, list_pods, running
from tests.flow.test_holding import WHOLE, whole
from tests.flow.world import MemoryStore, World, container, manifest


def test_what_nobody_knows_keeps_its_cpus_until_its_cgroup_has_gone(tmp_path: Path) -> None:
    """In no list and no ledger (S13): neither moved nor shared nor granted to others, and freed at its end."""
    node = ClusterNode(tmp_path)
    world = node.world
    gone, db = manifest("gone", container(), container("side", cpu="500m")), manifest("db", created=1)
    world.run(gone)
    world.run(db)
    was, theirs = world.effective("gone"), world.effective("db")
    with node.serving() as agent:
        list_pods(agent, running(db), manifest("new"))
        # the runtime names everything that runs
        agent.engine.containers_seen({container_id("gone", "app"): ("gone", "app")})
        agent.engine.reconcile()
        assert (world.effective("gone"), world.effective("db")) == (was, theirs)
        ledger = agent.engine.ledger
        own = ledger.grant("new", "app").cpus
        assert own is not None
        assert CpuSet.parse(was).isdisjoint(own | ledger.cpus.shared)
        assert world.effective("gone", "side") == str(ledger.cpus.shared)
        world.end("gone")
        agent.engine.reconcile()
        ledger = agent.engine.ledger
        assert CpuSet.parse(was).issubset(ledger.cpus.shared)
        assert set(ledger.pods) == {"db", "new"}


def test_before_the_first_list_counts_nothing_is_told_that_was_not_read_back(tmp_path: Path) -> None:
    """No ledger; a pod runs on no set of its own, the kernel refuses one: the first word of it says so."""
    world = World(tmp_path)
    db, number = manifest("db"), container_id("db", "app")
    world.tree.add_pod("db", Qos.GUARANTEED)
    world.tree.add_container("db", number)
    world.kernel.refuse(errno.EBUSY)
    world.engine.containers_announced({number: ("db", "app")})
    world.engine.adopt([pod_from(db)], {number: ("db", "app")}, {})
    world.see(db, ran=["db"])
    assert world.ears.admitted_ == ["db"]
    assert world.condition("db") == "False NotEnforced"
    world.kernel.mend()
    world.engine.pods_listed({"db"})
    world.engine.reconcile()
    assert world.condition("db") == "True Aligned"
    assert world.effective("db") == world.holds("db")


def test_nobody_is_left_what_confined_pods_count_on(tmp_path: Path) -> None:
    """A set that nobody knows takes three CPUs of the node where a confined pod counts on two and a half of them."""
    world = World(tmp_path)
    world.run(manifest("web", container(cpu="2500m"), align="numa"))
    assert world.engine.ledger.cpus.confined["web"].nodes == NodeSet.of(0)
    world.tree.add_pod("gone", Qos.GUARANTEED)
    world.tree.add_container("gone", container_id("gone", "app"))
    world.tree.kernel_write(world.path("gone", "app"), "cpuset.cpus", "1-3")
    observed, before = world.cgroups.observe(), world.engine.ledger
    assert keep(world.engine.node, before, observed, ["web"]) == (before, {})
    world.tree.kernel_write(world.path("gone", "app"), "cpuset.cpus", "5-7")
    _, told = keep(world.engine.node, before, world.cgroups.observe(), ["web"])
    assert list(told) == ["gone"], "on the other node they are in nobody's way"


@pytest.mark.parametrize("version", [1, 2], ids=["v1", "v2"])
def test_who_carries_the_pool_of_before_by_name_has_no_grant(tmp_path: Path, version: int) -> None:
    """A grant ended while no agent ran: taken for its own, what a sidecar shared would be kept from everybody."""
    machine = parse_synthetic(MACHINE)
    Scratch.create(tmp_path / "cgroup", cpus=machine.online, nodes=machine.node_set, setup=Layout(version))
    strict = {"cpuManagerPolicyOptions": {"strict-cpu-reservation": "true"}}
    node = ClusterNode(tmp_path, settings=strict)
    world = node.world
    world.run(manifest("db", container(cpu="2")))
    world.run(manifest("gone", container(cpu="2"), container("side", cpu="500m"), created=1))
    was, pool = world.effective("gone"), world.effective("gone", "side")
    assert CpuSet.parse(pool) == world.engine.ledger.cpus.shared
    world.end("db")
    with node.serving() as agent:
        list_pods(agent, manifest("new", container(cpu="4")))
        agent.engine.reconcile()
        ledger = agent.engine.ledger
        assert ledger.cpus.assigned["gone"] == {container_id("gone", "app"): CpuSet.parse(was)}
        assert len(ledger.grant("new", "app").cpus or ()) == 4, "there is room for it"
        assert world.effective("gone") == was
        assert world.effective("gone", "side") == str(ledger.cpus.shared)


def test_the_pool_of_before_is_no_grant_of_who_shared_it(tmp_path: Path) -> None:
    """The folder of a pod that only shares still has it, and no reserved CPU: nobody else would get these again."""
    world = World(tmp_path, settings={"cpuManagerPolicyOptions": {"strict-cpu-reservation": "true"}})
    world.tree.add_pod("gone", Qos.GUARANTEED)
    world.tree.add_container("gone", container_id("gone", "app"))
    folder = world.path("gone", "app").rpartition("/")[0]
    world.tree.kernel_write(folder, "cpuset.cpus", "5-7")
    assert world.engine.ledger.cpus.shared == CpuSet.parse("1-7"), "it has widened since"
    assert keep(world.engine.node, world.engine.ledger, world.cgroups.observe(), []) == (world.engine.ledger, {})


@pytest.mark.parametrize("version", [1, 2], ids=["v1", "v2"])
def test_finding_02_what_nobody_knows_may_leave_nothing_to_the_pool(tmp_path: Path, version: int) -> None:
    """Strict reservation, and all other CPUs are granted: the set of a pod of no list is no pool of before."""
    machine = parse_synthetic(MACHINE)
    Scratch.create(tmp_path / "cgroup", cpus=machine.online, nodes=machine.node_set, setup=Layout(version))
    node = ClusterNode(tmp_path)
    world = node.world
    world.run(manifest("gone", container(cpu="3")))
    db = manifest("db", container(cpu="4"), created=1)
    world.run(db)
    was, theirs = world.effective("gone"), world.effective("db")
    strict = {**world.settings, "cpuManagerPolicyOptions": {"strict-cpu-reservation": "true"}}
    (tmp_path / "config.yaml").write_text(json.dumps(strict), "utf-8")
    with node.serving() as agent:
        list_pods(agent, running(db))
        agent.engine.reconcile()
        assert (world.effective("gone"), world.effective("db")) == (was, theirs)
        assert not agent.engine.ledger.cpus.shared
        world.end("gone")
        agent.engine.reconcile()
        assert agent.engine.ledger.cpus.shared == CpuSet.parse(was)


@pytest.mark.parametrize("full", ["", "No space left"], ids=["saved", "disk full"])
@pytest.mark.parametrize("named", [True, False], ids=["names", "no names"])
def test_an_older_copy_of_the_checkpoint_moves_nobody(tmp_path: Path, full: str, *, named: bool) -> None:
    """It gives the CPUs to a pod that has left since, and lacks the one that runs on them: a state folder of before.

    Whether the API answers at once or later, and whether what is found can be saved.
    """
    world = World(tmp_path, store=MemoryStore())
    world.engine.pods_listed(set())
    world.run(manifest("left"))
    older = MemoryStore(world.store.saved, dict(world.store.extra), full)
    world.end("left")
    world.engine.pods_gone(["left"])
    world.run(manifest("stays", created=1))
    before, pod = world.effective("stays"), world.pods["stays"]
    assert before == world.holds("stays") != ""
    after = World(tmp_path, store=older, pods=[pod] if named else [])
    after.engine.reconcile()
    assert world.effective("stays") == before
    after.pods = {"stays": pod}
    after.engine.adopt([pod], after.names(), {}, {"stays"})  # as the first list is followed
    after.engine.pods_seen([pod], ran={"stays"})
    after.engine.containers_seen(after.names())
    after.engine.pods_listed({"stays"})
    after.engine.reconcile()
    assert world.effective("stays") == before
    older.full = ""
    after.engine.reconcile()
    assert world.effective("stays") == before
    assert after.holds("stays") == before


def test_a_pod_that_has_not_started_keeps_its_grant(tmp_path: Path) -> None:
    """The checkpoint is the last one: whom it granted CPUs and who has no cgroup yet keeps them."""
    world = World(tmp_path, store=MemoryStore())
    world.engine.pods_listed(set())
    world.run(manifest("runs"))
    world.see(manifest("waits", created=1))
    held = world.holds("waits")
    after = World(tmp_path, store=world.store)
    after.engine.reconcile()
    assert after.holds("waits") == held != ""


DISKS = "2 sockets x 1 node x 4 cores x 1 thread, nvme on 0, nvme on 1"
NVME = "numalign.io/nvme"
SETTINGS: dict[str, Any] = {"devices": [{"resource": NVME, "class": "0108", "namespaces": ["*"]}]}
FIRST, SECOND = "0000:01:00.0", "0000:02:00.0"


def node(folder: Path, *bodies: Mapping[str, Any]) -> World:
    """A node on which these pods run, each admitted by an agent."""
    world = World(folder, machine=DISKS, settings=SETTINGS)
    world.engine.pods_listed({body["metadata"]["uid"] for body in bodies})
    for body in bodies:
        world.run(body)
    return world


def told(world: World, body: dict[str, Any]) -> dict[str, Any]:
    """A pod as the API has it after its agent told it what it holds."""
    report = admitted(body["metadata"]["uid"], world.engine.ledger, world.machine)
    notes = {**body["metadata"]["annotations"], **{key: text for key, text in report.annotations.items() if text}}
    condition = {"type": CONDITION, "status": report.status, "reason": report.reason, "message": report.message}
    return {**body, "metadata": {**body["metadata"], "annotations": notes}, "status": {"conditions": [condition]}}


def lost(before: World, *bodies: Mapping[str, Any]) -> World:
    """The next agent, without a checkpoint; the API server has these pods."""
    words = {body["metadata"]["uid"]: word for body in bodies if (word := annotated_grant(body))}
    after = World(before.tree.folder, machine=DISKS, settings=SETTINGS, pods=before.pods.values(), words=words)
    after.engine.pods_seen(before.pods.values(), ran=after.recovered.running)
    after.engine.pods_listed(set(before.pods))
    return after


def disks(world: World, uid: str) -> tuple[str, ...]:
    """The disks that a pod holds."""
    held = world.engine.ledger.devices.held.get(uid, {})
    return tuple(number for by in held.values() for number in by.get(NVME, ()))


def disk(name: str, cpu: str = "2", *, created: int = 0, count: int = 1, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - notes
    """A pod that asks for disks."""
    return manifest(name, container(cpu=cpu), created=created, devices=f"{NVME}={count}", **more)


@pytest.mark.parametrize("cpu", ["2", "500m"])
def test_devices_are_rebuilt_from_the_pods_own_word(tmp_path: Path, cpu: str) -> None:
    """With exclusive CPUs or without: the pod keeps its disk, the next one gets the other, a third none.

    Finding 3b.
    """
    db = disk("db", cpu)
    before = node(tmp_path, db)
    was = disks(before, "db")
    after = lost(before, told(before, db))
    assert (disks(after, "db"), after.effective("db")) == (was, before.effective("db"))
    after.see(disk("new", "1", created=2))
    assert sorted((*was, *disks(after, "new"))) == [FIRST, SECOND]
    after.see(disk("third", "1", created=3, on_misalignment="fail"))
    assert disks(after, "third") == ()


def test_a_pod_that_shares_cpus_keeps_the_very_disk_that_it_has(tmp_path: Path) -> None:
    """It writes to the second disk: of two that are free at the start, another one would be told and handed out.

    Finding 3b.
    """
    before = node(tmp_path, disk("gone", "500m"), db := disk("db", "500m", created=1))
    before.end("gone")
    before.engine.pods_gone(["gone"])
    del before.pods["gone"]
    after = lost(before, told(before, db))
    assert (disks(before, "db"), disks(after, "db")) == ((SECOND,), (SECOND,))


WORDS = {
    "no word": "",
    "no json": "devices {{{{; ",
    "another shape": f"devices {FIRST}; ",
    "a container alone": "devices app; ",
    "no container": f"devices {NVME}={FIRST}; ",
    "a device that is not there": f"devices app {NVME}=0000:ff:00.0; ",
    "not at the beginning": f"app: devices app {NVME}={FIRST}; ",
    "endless": f"devices app {NVME}={FIRST},{'0000:ff:00.0,' * 10_000}; ",
}
"""What a condition may say that tells nobody which devices the pod holds."""


def broken(body: dict[str, Any], how: str) -> dict[str, Any]:
    """A pod whose word is no good."""
    if how == "no condition":
        return {**body, "status": {}}
    (condition,) = body["status"]["conditions"]
    return {**body, "status": {"conditions": [{**condition, "message": f"{WORDS[how]}CPUs 1-2 on NUMA node 0"}]}}


@pytest.mark.parametrize("how", ["no condition", *WORDS])
def test_nothing_is_handed_out_beside_a_pod_whose_devices_nobody_knows(tmp_path: Path, how: str) -> None:
    """It is told, the next pod is refused with the reason, over restarts; with the pod's end it is over.

    Finding 3b.
    """
    db = disk("db")
    before = node(tmp_path, db)
    after = lost(before, broken(told(before, db), how))
    assert (disks(after, "db"), after.effective("db")) == ((), "1-2")
    assert [text for text in after.recovered.untold if "pod default/db: nobody knows which devices" in text]
    after.see(disk("new", "1", created=2, on_misalignment="fail"), manifest("plain", container(cpu="1"), created=3))
    assert (disks(after, "new"), after.holds("plain") != "") == ((), True)
    assert f"{NVME} not being handed out while pod default/db runs" in after.ears.refused_["new"].message
    after.see(disk("pair", "1", created=4, count=2, policy="single-numa-node", on_misalignment="fail"))
    assert f"{NVME} not being handed out" in after.ears.refused_["pair"].message, "its nodes are not the reason"
    again = World(tmp_path, machine=DISKS, settings=SETTINGS, pods=after.pods.values(), store=after.store)
    again.engine.pods_listed({"db", "plain"})
    again.see(disk("db", note="changed"), disk("next", "1", created=4, on_misalignment="fail"))
    assert disks(again, "next") == ()
    again.end("db")
    again.engine.pods_gone(["db"])
    again.engine.retry(["next"])
    assert disks(again, "next") == (FIRST,)


def test_two_pods_that_have_one_disk_are_both_not_believed(tmp_path: Path) -> None:
    """One of them is wrong, and nobody knows which: neither has it in the books, and nobody else gets any.

    Finding 3b.
    """
    one, two = disk("one", "1"), disk("two", "1", created=1)
    before = node(tmp_path, one, two)
    after = lost(before, told(before, one), {**told(before, two), "status": told(before, one)["status"]})
    assert (disks(after, "one"), disks(after, "two"), len(after.recovered.untold)) == ((), (), 2)
    after.see(disk("new", "1", created=2, on_misalignment="fail"))
    assert disks(after, "new") == ()


SAYS = {
    "nothing": None,
    "no json": "{" * 5000,
    "another shape": json.dumps({"containers": {"app": {"devices": [FIRST]}}}),
    "a neighbour's": json.dumps({"containers": {"app": {"cpus": "1-2", "devices": {NVME: [SECOND]}}}}),
    "all": json.dumps({"containers": {"app": {"cpus": "1-2", "devices": {NVME: [FIRST, SECOND]}}}}),
    "none": json.dumps({"containers": {"app": {"cpus": "1-2"}}}),
    "refused, it says": json.dumps({"refused": "TopologyAffinityError", "policy": "none", "scope": "pod"}),
}


@pytest.mark.parametrize("ask", [f"{NVME}=1", f"{NVME}=2", f"{NVME}=x", ""])
@pytest.mark.parametrize("says", [*SAYS])
def test_a_tenants_annotations_change_nothing(tmp_path: Path, says: str, ask: str) -> None:
    """Anybody may write his own pod's annotations: both pods keep their disks, and nobody is kept from others.

    Finding 3b.
    """
    evil, db = disk("evil", "1"), disk("db", "1", created=1)
    before = node(tmp_path, evil, db)
    was = (disks(before, "evil"), disks(before, "db"))
    liar = told(before, evil)
    notes = {**liar["metadata"]["annotations"], "numalign.io/devices": ask, ASSIGNMENT: SAYS[says]}
    liar["metadata"]["annotations"] = {key: text for key, text in notes.items() if text}
    before.pods["evil"] = pod_from(liar)
    after = lost(before, liar, told(before, db))
    assert (disks(after, "evil"), disks(after, "db"), after.recovered.untold) == (*was, ())
    assert was == ((FIRST,), (SECOND,))
    after.end("evil")
    after.engine.pods_gone(["evil"])
    after.see(disk("new", "1", created=2))
    assert disks(after, "new") == (FIRST,)


@pytest.mark.parametrize("reason", ["NotEnforced", "NotAligned"])
def test_what_runs_out_of_place_holds_its_disk(tmp_path: Path, reason: str) -> None:
    """False says of these reasons that it runs, not that it was refused (finding 3b)."""
    db = disk("db")
    before = node(tmp_path, db)
    body = told(before, db)
    body["status"]["conditions"][0] |= {"status": "False", "reason": reason}
    after = lost(before, body)
    assert disks(after, "db") == (FIRST,)
    silent = {**body, "status": {"conditions": [{**body["status"]["conditions"][0], "message": "of an older agent"}]}}
    again = lost(before, silent)
    assert (disks(again, "db"), len(again.recovered.untold)) == ((), 1)


def test_a_disk_of_a_namespace_that_may_not_take_it_any_more_is_in_use(tmp_path: Path) -> None:
    """The settings changed while it ran: it keeps its disk without the checkpoint, too (finding 3b)."""
    before = node(tmp_path, disk("db", namespace="old"))
    narrowed = {"devices": [{**SETTINGS["devices"][0], "namespaces": ["new"]}]}
    word = annotated_grant(told(before, disk("db", namespace="old")))
    assert word is not None
    after = World(tmp_path, machine=DISKS, settings=narrowed, pods=before.pods.values(), words={"db": word})
    after.engine.pods_listed({"db"})
    assert disks(after, "db") == (FIRST,)
    after.see(disk("new", "1", created=2, namespace="new"))
    assert disks(after, "new") == (SECOND,)


def test_a_refused_pod_holds_nothing_and_bars_nobody(tmp_path: Path) -> None:
    """It runs on the shared pool, its word and its condition say that it was refused (finding 3b)."""
    big = disk("big", "2", count=3, policy="single-numa-node", on_misalignment="run")
    before = node(tmp_path, big)
    refusal = {"refused": "UnexpectedAdmissionError", "policy": "single-numa-node", "scope": "container", "why": ""}
    body = told(before, big)
    body["metadata"]["annotations"][ASSIGNMENT] = json.dumps(refusal)
    body["status"] = {"conditions": [{"type": CONDITION, "status": "False", "reason": "UnexpectedAdmissionError"}]}
    after = lost(before, body)
    assert after.recovered.untold == ()
    after.see(disk("new", "1", created=2))
    assert disks(after, "new") != ()


def test_confinements_and_policies_are_rebuilt(tmp_path: Path) -> None:
    """A confined pod stays on its node, accounted as before; the policy that was asked for is known again.

    Finding 3b.
    """
    first = manifest("first", container(cpu="2500m"), align="numa")
    pinned = manifest("pinned", container(cpu="2"), created=1, policy="restricted")
    second = manifest("second", container(cpu="1500m"), created=2, align="numa")
    before = node(tmp_path, first, pinned, second)
    books = before.engine.ledger.cpus.confined
    assert {str(each.nodes) for each in books.values()} == {"0", "1"}
    where = {uid: before.effective(uid) for uid in before.pods}
    after = lost(before, told(before, first), told(before, pinned), told(before, second))
    assert after.engine.ledger.cpus.confined == books
    assert {uid: after.effective(uid) for uid in before.pods} == where
    record, was = after.engine.ledger.pods["pinned"], before.engine.ledger.pods["pinned"]
    assert (record.policy, record.scope, record.asked) == (was.policy, was.scope, was.asked)
    assert own_of(after.engine.ledger, "pinned") == own_of(before.engine.ledger, "pinned")
    assert after.ears.refused_ == {}
    after.check()


@pytest.mark.parametrize("align", ["numa", "numa,memory"])
def test_a_pod_that_is_confined_as_it_asks_is_told_that(tmp_path: Path, align: str) -> None:
    """Its confinement was found in its cgroup: what it is told is what it was told before the loss (finding 3b)."""
    asks = manifest("web", container(cpu="1500m"), container("side", cpu="500m"), align=align)
    before = node(tmp_path, asks)
    said = told(before, asks)["status"]
    assert said["conditions"][0]["reason"] == "Aligned"
    after = lost(before, told(before, asks))
    assert after.recovered.adopted == ("web",)
    assert told(after, asks)["status"] == said
    # its memory is bound no more, and it is told that
    if "memory" in align:
        before.tree.kernel_write(before.path("web", "app"), "cpuset.mems", "0-1")
        (condition,) = told(lost(before, told(before, asks)), asks)["status"]["conditions"]
        assert condition["reason"] == "NotAligned"
        assert "its memory is not bound" in condition["message"]


def test_the_policy_in_force_then_is_known_without_its_annotation(tmp_path: Path) -> None:
    """It came from the namespace, whose annotations could not be read at this start: the pod's own word has it.

    Finding 3b.
    """
    asked = manifest("db", policy="single-numa-node")
    before = node(tmp_path, asked)
    body = told(before, asked)
    before.pods["db"] = pod_from(manifest("db"))
    after = lost(before, body)
    record = after.engine.ledger.pods["db"]
    assert (record.policy, record.asked, after.holds("db")) == ("single-numa-node", "single-numa-node", "1-2")


def test_the_ledger_lost_and_the_api_server_away_at_once(tmp_path: Path) -> None:
    """The list comes late, a newcomer first: who runs keeps the CPUs that it runs on, and its device."""
    machine = "2 sockets x 1 node x 4 cores x 1 thread, nvme on 0"
    nvme = "numalign.io/nvme"
    settings = {"devices": [{"resource": nvme, "class": "0108", "namespaces": ["*"]}]}
    node = ClusterNode(tmp_path, machine, settings)
    world = node.world
    db, gone = manifest("db", created=2, devices=f"{nvme}=1"), manifest("gone")
    world.run(gone)
    world.run(db)
    world.end("gone")
    world.engine.pods_gone(["gone"])
    was = world.effective("db")
    assert was != "1-2", "an admission would choose others"
    with node.serving() as agent:
        new = manifest("new", container(cpu="4"), created=0)
        list_pods(agent, running(new), running(told(world, db)))
        ledger = agent.engine.ledger
        assert (str(ledger.grant("db", "app").cpus), world.effective("db")) == (was, was)
        assert ledger.devices.held == {"db": {"app": {nvme: ("0000:01:00.0",)}}}
        assert ledger.pods["db"].adopted


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("cpu", ["4", "6"], ids=["as it was", "a growth is not followed"])
@pytest.mark.parametrize("memory", [False, True], ids=["cpus", "and memory"])
def test_a_pod_that_is_managed_as_a_whole_keeps_its_cpus(
    tmp_path: Path, version: int, cpu: str, *, memory: bool
) -> None:
    """Its exclusive container, the others that share the rest, and its memory: nothing moves, and no pod gets it."""
    machine = parse_synthetic("2 sockets x 1 node x 8 cores x 1 thread, 8G per node")
    static = {"memoryManagerPolicy": "Static", "reservedMemory": [{"numaNode": 0, "limits": {"memory": "100Mi"}}]}
    settings = {**WHOLE, "topologyManagerPolicy": "single-numa-node", **(static if memory else {})}
    Scratch.create(tmp_path / "tree", cpus=machine.online, nodes=machine.node_set, setup=Layout(version=version))
    world = World(tmp_path / "tree", machine=machine, settings=settings)
    world.engine.pods_listed(set())
    bare = {"name": "helper", "image": "example.com/x"}
    world.run(whole("p", "4", container(cpu="2", memory="256Mi"), bare, memory="2Gi"))
    world.run(whole("q", "3", bare))
    world.see(whole("p", cpu, container(cpu="2", memory="256Mi"), bare, memory="2Gi"))
    was = world.engine.ledger
    assert (str(was.cpus.pools["p"]), "p" in was.memory.pools) == ("1-4", memory)
    after = World(tmp_path / "tree", machine=machine, settings=settings, pods=world.pods.values())
    after.engine.pods_listed({"p", "q"})
    after.engine.reconcile()
    now = after.engine.ledger
    assert (now.cpus, now.memory) == (was.cpus, was.memory)
    assert [dict(now.pods[uid].why) for uid in "pq"] == [dict(was.pods[uid].why) for uid in "pq"]
    assert [after.effective("p"), after.effective("p", "helper"), after.effective("q", "helper")] == [
        "1-2",
        "3-4",
        "5-7",
    ]
