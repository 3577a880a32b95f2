"""The start: checkpoint, cgroups and pods in every disagreement, and nothing that runs is moved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.app.statedir.loading import load
from agent.core.machines.synthetic import parse_synthetic
from agent.host.checkpoint import Checkpoint
from agent.host.standin import container_id
from agent.model.cgroup import Cause, Observed
from agent.model.hint import Hint
from agent.model.idset import CpuSet, NodeSet
from agent.model.ledger import CpuBooks
from agent.model.podspec import pod_from
from agent.node.migrate import migrate
from agent.node.recover import NAMES, names_in, of_another_machine
from tests.flow.world import MemoryStore, World, container, manifest

MEMORY = {"memoryManagerPolicy": "Static", "reservedMemory": [{"numaNode": 0, "limits": {"memory": "100Mi"}}]}


def running(folder: Path, store: MemoryStore, settings: Mapping[str, Any] | None = None) -> World:
    """A node with two pods that hold CPUs, one with a sidecar, and one that shares."""
    world = World(folder, store=store, settings=settings)
    world.engine.pods_listed({"db", "cache", "web"})
    world.run(manifest("db"))
    side = container("side", cpu="1", restartPolicy="Always")
    world.run(manifest("cache", container(cpu="1"), inits=[side], created=1))
    world.run(manifest("web", container(cpu="", memory=""), created=2))
    return world


def test_a_restart_changes_nothing(tmp_path: Path) -> None:
    """Same ledger, and not one write: neither at start nor when the pods are listed again; nor is it saved again."""
    store = MemoryStore()
    before = running(tmp_path, store)
    after = World(tmp_path, store=store, pods=before.pods.values())
    assert (after.recovered.as_saved, after.recovered.kept) == (True, ("cache", "db", "web"))
    assert after.recovered.unknown == (), "nobody is said to be unknown who was kept"
    after.engine.pods_seen(before.pods.values())
    after.engine.pods_listed(set(before.pods))
    assert after.engine.reconcile() == ()
    assert after.engine.ledger == before.engine.ledger
    assert after.ears.written_ == []
    assert "save" not in after.steps
    after.check()


def test_after_a_restart_somebody_elses_write_is_seen_as_one(tmp_path: Path) -> None:
    """The new agent found all in order and wrote nothing: what changes then is repaired, and counted by its cause."""
    store = MemoryStore()
    before = running(tmp_path, store)
    after = World(tmp_path, store=store, pods=before.pods.values())
    assert after.engine.reconcile() == ()
    after.tree.kernel_write(before.path("db", "app"), "cpuset.cpus", "5-6")
    assert {each.write.cause for each in after.engine.reconcile()} == {Cause.DRIFT_FOREIGN}
    assert after.effective("db") == "1-2"


def test_a_restart_without_the_api_keeps_pods_pinned(tmp_path: Path) -> None:
    """Nobody names a pod: the checkpoint's grants are enforced, a container that restarts is pinned again."""
    store = MemoryStore()
    before = running(tmp_path, store)
    after = World(tmp_path, store=store)
    after.tree.kernel_write(before.path("db", "app"), "cpuset.cpus", "0-7")
    after.engine.names_at_start(before.names())
    after.engine.reconcile()
    assert before.effective("db") == "1-2"


def test_a_crash_between_save_and_write_is_completed(tmp_path: Path) -> None:
    """The ledger says so and the cgroups do not yet: the ledger wins."""
    store = MemoryStore()
    before = running(tmp_path, store)
    for each in before.cgroups.observe().cgroups:
        if each.cpus and each.container_id:
            before.tree.kernel_write(each.path, "cpuset.cpus", "0-7")
    after = World(tmp_path, store=store, pods=before.pods.values())
    after.engine.reconcile()
    assert after.effective("db") == "1-2"
    after.check()


def test_without_a_checkpoint_grants_are_read_from_the_cgroups(tmp_path: Path) -> None:
    """The checkpoint was deleted: every pod that runs keeps its very CPUs."""
    before = running(tmp_path, MemoryStore(), MEMORY)
    held = before.engine.ledger.cpus.assigned
    after = World(tmp_path, pods=before.pods.values(), settings=MEMORY)
    assert after.recovered.adopted == ("cache", "db")
    assert after.recovered.running == ("web",)
    assert after.engine.ledger.cpus.assigned == held
    after.engine.pods_seen(before.pods.values(), ran=after.recovered.running)
    after.engine.pods_listed(set(before.pods))
    assert after.ears.refused_ == {}
    assert (after.effective("db"), after.effective("cache", "side")) == ("1-2", before.holds("cache", "side"))
    record = after.engine.ledger.pods["db"]
    assert (record.adopted, record.aligned) == (True, {"app": True})
    blocks = after.engine.ledger.memory.blocks["db"]["app"]
    assert [(block.resource, block.size, str(block.nodes)) for block in blocks] == [("memory", 64 << 20, "0")]
    after.check()


def test_an_older_checkpoint_is_completed_from_the_cgroups(tmp_path: Path) -> None:
    """A pod was pinned after the checkpoint was saved, as from a backup: it keeps its CPUs."""
    store = MemoryStore()
    before = World(tmp_path, store=store)
    before.engine.pods_listed({"db"})
    before.run(manifest("db"))
    older = store.saved
    before.run(manifest("cache", container(cpu="1"), created=1))
    store.saved = older
    after = World(tmp_path, store=store, pods=before.pods.values())
    assert (after.recovered.kept, after.recovered.adopted) == (("db",), ("cache",))
    assert (after.holds("db"), after.holds("cache")) == (before.holds("db"), before.holds("cache"))
    after.check()


def test_what_runs_keeps_its_cpus_though_another_container_of_its_pod_does_not(tmp_path: Path) -> None:
    """An init container that has ended is not missed; an app container without a cgroup gets CPUs later."""
    before = World(tmp_path)
    before.engine.pods_listed({"db", "pair"})
    before.see(manifest("db", inits=[container("setup", cpu="1")]), manifest("pair", container("a"), container("b")))
    before.start("db", "app")
    before.start("pair", "a")
    after = World(tmp_path, pods=before.pods.values())
    assert (after.recovered.adopted, after.recovered.running) == (("db", "pair"), ())
    assert (after.holds("db"), after.holds("pair", "a")) == (before.holds("db"), before.holds("pair", "a"))
    after.engine.pods_listed(set(before.pods))
    after.engine.reconcile()
    assert (after.holds("pair", "a"), len(CpuSet.parse(after.holds("pair", "b")))) == (before.holds("pair", "a"), 2)
    after.check()


def test_s4_a_confined_pod_is_adopted_as_it_runs(tmp_path: Path) -> None:
    """On the nodes that its cgroup has; its memory counts as bound only where it is, else binding would move it."""
    before = World(tmp_path)
    before.engine.pods_listed({"web"})
    before.run(manifest("web", container(cpu="1500m"), align="numa,memory"))
    held = before.engine.ledger.cpus.confined["web"]
    assert before.condition("web") == "True Aligned", "all that it asked for"
    after = World(tmp_path, pods=before.pods.values())
    assert after.engine.ledger.cpus.confined == {"web": held}
    assert after.engine.ledger.pods["web"].bind_memory
    before.tree.kernel_write(before.path("web", "app"), "cpuset.mems", "0-1")
    after = World(tmp_path, pods=before.pods.values())
    found = after.engine.ledger
    assert found.cpus.confined == {"web": replace(held, memory=False, limit=())}
    assert not found.pods["web"].bind_memory


def test_where_there_is_one_node_memory_is_adopted_as_it_is_asked_for(tmp_path: Path) -> None:
    """Nobody can tell whether it was bound to the only node, nor needs to: the books count it as before."""
    machine = "1 socket x 1 node x 8 cores x 1 thread"
    before = World(tmp_path, machine=machine, settings=MEMORY)
    before.engine.pods_listed({"db"})
    before.run(manifest("db"))
    after = World(tmp_path, machine=machine, settings=MEMORY, pods=before.pods.values())
    assert after.recovered.adopted == ("db",)
    assert after.engine.ledger.memory.blocks == before.engine.ledger.memory.blocks
    assert after.engine.ledger.memory.blocks["db"]["app"]


def test_s4_memory_is_not_adopted_where_nobody_manages_it(tmp_path: Path) -> None:
    """The Memory Manager was switched off: what an earlier agent bound stays as it is, and is no grant any more."""
    before = running(tmp_path, MemoryStore(), MEMORY)
    after = World(tmp_path, pods=before.pods.values())
    assert after.engine.ledger.memory.blocks == {}
    assert not after.engine.ledger.pods["db"].bind_memory
    assert after.holds("db") == before.holds("db")


def test_saved_names_that_are_none_are_left_out() -> None:
    """A file that somebody wrote: what names no container of a pod gives nobody a grant, and ends no start."""
    rows = {"a": ["db", "app"], "b": ["db", 5], "c": ["db"], "d": "db"}
    assert names_in({NAMES: rows}) == {"a": ("db", "app")}
    assert names_in({NAMES: "db"}) == names_in({}) == {}


def test_without_a_checkpoint_nothing_is_written_before_the_first_list(tmp_path: Path) -> None:
    """Cgroups of pods that nobody has named yet are not touched: they may hold what an earlier agent granted."""
    before = running(tmp_path, MemoryStore())
    after = World(tmp_path)
    assert after.recovered.unknown == ("cache", "db", "web")
    after.engine.reconcile()
    assert after.ears.written_ == []
    assert before.effective("db") == "1-2"


def test_sets_that_cannot_be_a_grant_are_not_adopted(tmp_path: Path) -> None:
    """Too few CPUs, reserved ones, or those of another pod: left to admission, as a pod that ran before."""
    before = running(tmp_path, MemoryStore())
    before.tree.kernel_write(before.path("db", "app"), "cpuset.cpus", "0-1")
    after = World(tmp_path, pods=before.pods.values())
    assert after.recovered.adopted == ("cache",)
    assert after.recovered.running == ("db", "web")
    assert after.recovered.unknown == (), "nobody is said to be unknown whom the API names"
    after.engine.pods_listed(set(before.pods))
    after.engine.pods_seen(before.pods.values(), ran=after.recovered.running)
    assert after.engine.ledger.pods["db"].adopted is True
    assert after.holds("db") != ""
    after.check()


def test_only_who_holds_something_is_adopted_onto_nodes(tmp_path: Path) -> None:
    """A container that shared belongs nowhere: a resize that gives it its first CPUs may follow its pod's."""
    before = World(tmp_path)
    before.engine.pods_listed({"db"})
    before.run(manifest("db", container(cpu="2"), container("helper", cpu="500m")))
    after = World(tmp_path, pods=before.pods.values())
    assert after.recovered.adopted == ("db",)
    assert after.engine.ledger.pods["db"].affinity == {"app": Hint(NodeSet.of(0), preferred=True)}


def test_a_pod_that_is_only_in_the_checkpoint_goes_with_the_first_list(tmp_path: Path) -> None:
    """Kept at start, since the list may be late; freed once a complete list does not name it."""
    store = MemoryStore()
    World(tmp_path, store=store).see(manifest("db"))
    after = World(tmp_path, store=store)
    assert after.holds("db") == "1-2"
    after.engine.pods_listed(set())
    assert after.holds("db") == ""
    assert store.saved == after.engine.ledger


def test_a_checkpoint_of_another_machine_is_carried_over_as_far_as_it_goes(tmp_path: Path) -> None:
    """CPUs that do not exist here are lost and told, the rest stays; the ledger is of this machine then."""
    store = MemoryStore()
    World(tmp_path / "a", store=store, machine="2 sockets x 1 node x 4 cores x 1 thread, offline 3").see(
        manifest("low"), manifest("high", container(cpu="3"), created=1)
    )
    after = World(tmp_path / "b", store=store, machine="1 socket x 1 node x 4 cores x 1 thread")
    assert after.recovered.as_saved is False
    assert (after.holds("low"), after.holds("high")) == ("1-2", "")
    assert [(loss.uid, loss.container, loss.what) for loss in after.recovered.losses] == [
        ("high", "app", "it lost CPUs 4-6, which are offline or another pod's; it runs on the shared pool")
    ]
    after.engine.reconcile()
    assert after.engine.ledger.machine == after.machine.digest
    after.check()


def test_a_ledger_brought_from_elsewhere_is_put_aside(tmp_path: Path) -> None:
    """A copied disk: its pods are strangers that hold what runs here. It is put aside, and nothing here is moved."""
    here = running(tmp_path / "here", MemoryStore())
    there = World(tmp_path / "there", machine="2 sockets x 1 node x 4 cores x 1 thread, offline 7")
    there.see(manifest("stranger", container(cpu="3")))
    store = Checkpoint(tmp_path / "checkpoint.json")
    store.save(there.engine.ledger)
    pods, observed = tuple(here.pods.values()), here.cgroups.observe()
    found = load(store, here.node(), observed, pods)
    assert found.ledger is None
    assert "is of machine" in found.aside
    assert "put aside as checkpoint.json.corrupt-" in found.aside
    again = World(tmp_path / "here", pods=pods)
    assert again.holds("db") == here.holds("db") == "1-2"


def test_a_machine_that_changed_is_not_another_one(tmp_path: Path) -> None:
    """Known pods, cgroups, or an empty node: each alone says that a ledger of other hardware may be ours."""
    here = running(tmp_path / "here", MemoryStore())
    observed, node = here.cgroups.observe(), here.node()
    before = replace(here.engine.ledger, machine="before")
    pods = tuple(here.pods.values())
    assert not of_another_machine(before, node, Observed(2), pods), "the API knows its pods"
    assert not of_another_machine(before, node, observed, ()), "its pods run"
    assert not of_another_machine(before, node, Observed(2), ()), "nothing is here: it harms nobody"
    assert not of_another_machine(replace(before, pods={}), node, observed, pods), "nobody is in it"
    strangers = replace(before, pods={"x": before.pods["db"]})
    assert of_another_machine(strangers, node, observed, pods)
    assert of_another_machine(strangers, node, observed, ()), "somebody was pinned here"
    assert not of_another_machine(replace(strangers, machine=node.machine.digest), node, observed, pods)


def test_of_two_claims_to_one_cpu_the_older_pod_has_it(tmp_path: Path) -> None:
    """A ledger that contradicts itself comes out coherent."""
    world = World(tmp_path)
    world.see(manifest("b"), manifest("a", created=1))
    ledger = world.engine.ledger
    both = {uid: {"app": CpuSet.parse("1-2")} for uid in ("a", "b")}
    clash = replace(ledger, cpus=CpuBooks(ledger.cpus.shared, assigned=both))
    carried = migrate(clash, world.node())
    assert carried.ledger.cpus.assigned == {"b": {"app": CpuSet.parse("1-2")}}
    assert list(carried.sentences()) == [
        (
            "container app of pod default/a: it lost CPUs 1-2, which are offline or another pod's; "
            "it runs on the shared pool"
        )
    ]
    assert str(carried.ledger.cpus.shared) == "0,3-7"


def test_carrying_over_to_the_same_machine_and_settings_is_the_identity(tmp_path: Path) -> None:
    """Nothing is lost and nothing differs, memory accounts included."""
    world = running(tmp_path, MemoryStore(), MEMORY)
    world.run(manifest("kept", container(cpu="500m"), created=5, align="numa"))
    carried = migrate(world.engine.ledger, world.node())
    assert (carried.ledger, carried.losses) == (world.engine.ledger, ())


def test_memory_is_lost_with_its_node_and_kept_elsewhere(tmp_path: Path) -> None:
    """A node that is not there any more takes its blocks along; the container is bound to nothing then."""
    world = World(tmp_path, settings=MEMORY)
    world.see(*(manifest(name, container(cpu="2"), created=number) for number, name in enumerate("abc")))
    assert {str(block.nodes) for block in world.engine.ledger.memory.blocks["c"]["app"]} == {"1"}
    one = parse_synthetic("1 socket x 1 node x 8 cores x 1 thread")
    carried = migrate(world.engine.ledger, world.node(one))
    assert sorted(carried.ledger.memory.blocks) == ["a"]
    assert [(loss.uid, loss.container) for loss in carried.losses] == [("b", "app"), ("c", "app")]
    assert carried.ledger.pods["c"].aligned == {"app": False}


def test_policy_none_keeps_the_books_for_later(tmp_path: Path) -> None:
    """Switching the CPU manager off and on again is no reason to move anybody."""
    world = running(tmp_path, MemoryStore())
    held = world.engine.ledger.cpus.assigned
    world.engine.changed(world.node(cpuManagerPolicy="none"))
    assert world.engine.ledger.cpus.assigned == held
    assert world.engine.reconcile() == ()
    world.engine.changed(world.node(cpuManagerPolicy="static"))
    assert world.engine.ledger.cpus.assigned == held
    assert world.effective("db") == "1-2"


def test_a_pod_that_changed_while_the_agent_was_down_keeps_its_grant(tmp_path: Path) -> None:
    """Same uid, other annotations: a restart moves nothing."""
    store = MemoryStore()
    before = running(tmp_path, store)
    after = World(tmp_path, store=store, pods=before.pods.values())
    after.engine.pods_seen([pod_from(manifest("db", policy="restricted"))])
    assert after.holds("db") == "1-2"
    after.check()


def test_more_cpus_than_asked_for_are_no_grant(tmp_path: Path) -> None:
    """A container that asks for 2 CPUs and runs on 3 free ones was not pinned by us: adopted, it would hold three."""
    before = running(tmp_path, MemoryStore())
    free = sorted(before.engine.ledger.cpus.shared - before.engine.node.reserved)[:3]
    before.tree.kernel_write(before.path("db", "app"), "cpuset.cpus", str(CpuSet.from_ids(free)))
    after = World(tmp_path, pods=before.pods.values())
    assert after.recovered.adopted == ("cache",)
    assert "db" in after.recovered.running


def claiming(folder: Path, *, first: int, second: int) -> World:
    """Two known pods whose cgroups both ask for CPUs 1-2, created at these times."""
    before = World(folder)
    before.engine.pods_listed({"a", "b"})
    before.run(manifest("a", created=first))
    before.run(manifest("b", created=second))
    for uid in ("a", "b"):
        before.tree.kernel_write(before.path(uid, "app"), "cpuset.cpus", "1-2")
    return before


@pytest.mark.parametrize(("first", "second", "older"), [(0, 9, "a"), (9, 0, "b")])
def test_s4_of_two_pods_on_the_same_cpus_the_older_is_adopted(
    tmp_path: Path, first: int, second: int, older: str
) -> None:
    """Who ran before is adopted in order of creation (S4), not of names; the other is admitted, and gets others."""
    before = claiming(tmp_path, first=first, second=second)
    after = World(tmp_path, pods=before.pods.values())
    assert (after.recovered.adopted, len(after.recovered.running)) == ((older,), 1)
    after.engine.pods_seen(before.pods.values(), ran=after.recovered.running)
    after.engine.pods_listed(set(before.pods))
    assert (after.holds(older), after.effective(older)) == ("1-2", "1-2")
    after.check()


def test_a_restarted_container_keeps_its_cpus_beside_the_cgroup_that_its_last_one_left(tmp_path: Path) -> None:
    """While nothing names it, the cgroup with processes may be the container, and the empty one is not."""
    store = MemoryStore()
    before = running(tmp_path, store)
    before.engine.keep_names()
    held, old = before.holds("db"), container_id("db", "app")
    before.tree.remove_container("db", old)
    before.tree.kernel_write(before.tree.add_container("db", old, processes=0), "cpuset.cpus", held)
    new = before.tree.add_container("db", "7e" * 32)
    after = World(tmp_path, store=store)
    after.engine.reconcile()
    found = {each.path: each.effective_cpus for each in after.cgroups.observe().cgroups}
    assert CpuSet.parse(held).issubset(found[new])
    after.engine.containers_seen({"7e" * 32: ("db", "app")})
    after.engine.pods_listed({"db", "cache", "web"})
    assert {each.path: str(each.effective_cpus) for each in after.cgroups.observe().cgroups}[new] == held


UNLIKE: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "more was asked for": (
        manifest("a", created=1), manifest("a", container(cpu="4"), created=1),
        "resize not followed from 2 to 4 CPUs: the saved ledger was lost; it keeps CPUs 1-2",
    ),
    "less was asked for": (
        manifest("a", created=1), manifest("a", container(cpu="1"), created=1),
        "resize not followed from 2 to 1 CPUs: the saved ledger was lost; it keeps CPUs 1-2",
    ),
    "of a mixed container": (
        manifest("a", created=1, mixed="app"), manifest("a", container(cpu="4"), created=1, mixed="app"),
        "resize not followed from 2 to 4 CPUs: the saved ledger was lost; it keeps CPUs 1-2",
    ),
    "one beside it was to get some": (
        manifest("a", container(), container("side", "500m"), created=1),
        manifest("a", container(), container("side", "1"), created=1),
        "resize not followed from 0 to 1 CPUs: the saved ledger was lost; it stays on the shared pool",
    ),
    "exclusive: none came": (manifest("a", created=1), manifest("a", created=1, exclusive="none"), ""),
}  # fmt: skip
"""A pod as it was granted CPUs, as it is now, and what is said of it when the ledger is lost."""


@pytest.mark.parametrize("late", [False, True], ids=["API at the start", "API late"])
@pytest.mark.parametrize("name", UNLIKE)
def test_a_set_that_stands_alone_is_adopted_though_it_is_not_what_is_asked_for(
    tmp_path: Path, name: str, *, late: bool
) -> None:
    """Its container keeps its CPUs, what differs is a resize that waits, and neither pool nor newcomer gets them."""
    first, now, said = UNLIKE[name]
    before = World(tmp_path)
    before.engine.pods_listed(set())
    for body in (first, manifest("b", container(cpu="3"), created=2), manifest("c", container(cpu="1"), created=3)):
        before.run(body)
    ran = {uid: before.effective(uid) for uid in "abc"}
    before.store.full = "No space left on device"  # less cannot be saved
    before.see(now)
    assert {uid: before.effective(uid) for uid in "abc"} == ran
    pods = list(before.pods.values())
    after = World(tmp_path, pods=() if late else pods)
    after.pods = dict(before.pods)
    if late:
        after.engine.adopt(pods, before.names(), {}, set("abc"))
    assert "; ".join(after.engine.ledger.pods["a"].why.values()) == said
    assert {uid: after.holds(uid) for uid in "abc"} == {uid: before.holds(uid) for uid in "abc"}
    after.engine.pods_seen(pods, ran=set("abc"))
    after.engine.containers_seen(before.names())
    after.engine.pods_listed(set("abc"))
    after.engine.reconcile()
    after.check()
    less = name == "less was asked for"
    assert all(CpuSet.parse(after.effective(uid)).issubset(CpuSet.parse(ran[uid])) for uid in "abc")
    assert [len(CpuSet.parse(after.holds(uid))) for uid in "abc"] == [1 if less else 2, 3, 1]
    after.see(manifest("d", created=9))
    assert not CpuSet.parse(after.holds("d")) & CpuSet.union(CpuSet.parse(after.holds(uid)) for uid in "abc")


def test_memory_that_could_not_grow_is_adopted_as_far_as_it_is_there(tmp_path: Path) -> None:
    """Both pods stay bound to their node: what one asks for more since does not take the other's."""
    machine = "2 sockets x 1 node x 4 cores x 1 thread, 1G per node"
    before = World(tmp_path, machine=machine, settings=MEMORY)
    before.engine.pods_listed(set())
    for uid in "ab":
        before.run(manifest(uid, container(cpu="1", memory="400Mi"), created=ord(uid)))
    assert before.engine.ledger.grant("a", "app").mems == before.engine.ledger.grant("b", "app").mems
    before.see(manifest("a", container(cpu="1", memory="800Mi"), created=ord("a")))
    after = World(tmp_path, machine=machine, settings=MEMORY, pods=before.pods.values())
    sizes = {uid: after.engine.ledger.grant(uid, "app").memory[0].size >> 20 for uid in "ab"}
    assert sizes == {"a": 800, "b": 124}
    assert after.engine.ledger.pods["b"].why["app"] == (
        "resize not followed: NUMA nodes 0 have no 289406976 bytes of memory more; it keeps what it has"
    )
    after.engine.pods_listed({"a", "b"})
    assert [after.engine.ledger.pods[uid].bind_memory for uid in "ab"] == [True, True]
    after.check()


@pytest.mark.parametrize("cpu", ["3", "4"], ids=["as it was", "more was asked for"])
@pytest.mark.parametrize("parts", ["reserved", "pool"])
def test_a_mixed_container_keeps_a_cpu_that_is_reserved_since(tmp_path: Path, parts: str, cpu: str) -> None:
    """The ledger is lost, and more CPUs are reserved by now: its own ones are those that the pool of before lacks."""
    mixed = {"mixedSharedCPUs": parts}
    before = World(tmp_path, settings=mixed)
    before.engine.pods_listed(set())
    before.run(manifest("a", container(cpu="3"), mixed="app"))
    body = manifest("a", container(cpu=cpu), mixed="app")
    after = World(tmp_path, settings={**mixed, "kubeReserved": {"cpu": "2"}}, pods=[pod_from(body)])
    assert before.holds("a") == after.holds("a") == "1-3"
    after.engine.pods_listed({"a"})
    after.engine.reconcile()
    assert str(after.engine.ledger.cpus.shared) == {"3": "0,4-7", "4": "0,5-7"}[cpu]
    assert {key: str(cpus) for key, cpus in after.engine.ledger.cpus.mixed["a"].items()} == {
        "app": {"reserved": "0", "pool": ""}[parts]
    }
