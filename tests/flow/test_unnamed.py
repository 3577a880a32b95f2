"""Containers without a name: a start moves none of them, none counts as pinned, and old names do not pile up.

Finding 2.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.core.cgroups.naming import UNSURE
from agent.host.device_nodes import Usable
from agent.host.nri.decisions import EngineDecisions
from agent.host.standin import container_id
from agent.model.pod import Qos
from agent.model.podspec import pod_from
from agent.node.recover import NAMES
from tests.flow.cluster_node import ClusterNode, StandInApi, page
from tests.flow.world import MemoryStore, World, container, manifest
from tests.patience import PATIENCE, until
from tests.world.clock import Clock


@pytest.fixture
def before(tmp_path: Path) -> World:
    """A node with two pinned pods, one of them with two exclusive containers and a sandbox."""
    world = World(tmp_path, store=MemoryStore())
    world.engine.pods_listed(set())
    world.run(manifest("db"))
    world.run(manifest("two", container("front", cpu="1"), container("back", cpu="2"), created=1))
    world.tree.add_container("two", "5a" * 32)
    world.engine.reconcile()
    world.engine.keep_names()
    return world


def again(before: World, *, names: bool = True) -> World:
    """The next agent on that node; neither the API server nor the runtime says a word."""
    store = before.store if names else MemoryStore(before.store.saved, {"listed": True})
    return World(before.tree.folder, store=store)


def sets(world: World) -> dict[str, str]:
    """Container -> the CPUs in force."""
    spots = (("db", "app"), ("two", "front"), ("two", "back"))
    return {f"{uid}/{name}": world.effective(uid, name) for uid, name in spots}


def on_ids(world: World) -> dict[str, str]:
    """Container id -> the CPUs in force, of all that are there."""
    return {each.container_id: str(each.effective_cpus) for each in world.cgroups.observe().cgroups}


@pytest.mark.parametrize("names", [True, False])
def test_nothing_moves_while_nobody_names_containers(before: World, *, names: bool) -> None:
    """Saved names, or sets that a pod was granted: either keeps every container, and the sandbox, in place."""
    was, after = on_ids(before), again(before, names=names)
    for _ in range(3):
        assert after.engine.reconcile() == ()
    assert on_ids(before) == was
    assert sets(before) == {"db/app": "1-2", "two/front": "3", "two/back": "4-5"}


def test_a_reset_while_the_agent_is_away_is_repaired_from_the_saved_names(before: World) -> None:
    """A daemon-reload put every set back, the API server is away: the saved names say who belongs where."""
    for each in before.cgroups.observe().cgroups:
        if each.container_id:
            before.tree.kernel_write(each.path, "cpuset.cpus", "0-7")
    after = again(before)
    after.engine.reconcile()
    assert sets(before) == {"db/app": "1-2", "two/front": "3", "two/back": "4-5"}
    assert on_ids(before)["5a" * 32] == "0,6-7"


def test_a_reset_container_without_a_name_keeps_its_cpus_and_gets_no_siblings(before: World) -> None:
    """No name and no set of its own: it may use its pod's unclaimed CPUs and the pool, never those of a sibling."""
    before.tree.kernel_write(before.path("two", "back"), "cpuset.cpus", "0-7")
    after = again(before, names=False)
    after.engine.reconcile()
    assert sets(before) == {"db/app": "1-2", "two/front": "3", "two/back": "0,4-7"}
    after.engine.containers_seen(before.names())
    after.engine.pods_listed({"db", "two"})
    assert sets(before)["two/back"] == "4-5"


def test_a_restarted_container_is_given_no_set_by_guessing(before: World) -> None:
    """A new id while nobody names it: it is not the one left over by certainty, it may be a sandbox made anew."""
    before.tree.remove_container("two", container_id("two", "front"))
    before.tree.add_container("two", "7e" * 32)
    after = again(before)
    after.engine.reconcile()
    assert on_ids(before)["7e" * 32] == "0,3,6-7", "its pod's unclaimed CPU and the pool"
    assert (sets_of_db(before), before.effective("two", "back")) == ("1-2", "4-5")
    after.engine.containers_seen({**before.names(), "7e" * 32: ("two", "front")})
    after.engine.pods_listed({"db", "two"})
    assert on_ids(before)["7e" * 32] == "3"
    assert on_ids(before)["5a" * 32] == "0,6-7"


def sets_of_db(world: World) -> str:
    """The CPUs in force for db."""
    return world.effective("db")


def test_a_container_whose_grant_shrank_gives_up_what_went(before: World) -> None:
    """Saved and not written when the agent was killed: the nameless container keeps only what is still its pod's."""
    before.tree.kernel_write(before.path("db", "app"), "cpuset.cpus", "1-2,6")
    after = again(before, names=False)
    after.engine.pods_seen([pod_from(manifest("new", container(cpu="2"), created=9))])
    assert after.holds("new") == "6-7"
    assert before.effective("db") == "1-2"


def test_the_runtimes_word_ends_it(before: World) -> None:
    """Synchronize names all that runs: from then on who has no name is on the pool, the API server away or not."""
    before.tree.remove_container("two", container_id("two", "front"))
    before.tree.add_container("two", "7e" * 32)
    after = again(before)
    after.engine.reconcile()
    assert set(after.engine.snapshot.missing) == {"pods", "names"}
    decisions = EngineDecisions(after.engine, lambda _address: Usable(()))
    decisions.start()
    decisions.containers_named({**before.names(), "7e" * 32: ("two", "front")})
    decisions.pods_live(frozenset({"db", "two"}))
    assert decisions.stop(PATIENCE)
    assert set(after.engine.snapshot.missing) == {"pods"}
    assert (on_ids(before)["7e" * 32], on_ids(before)["5a" * 32]) == ("3", "0,6-7")


def test_a_container_that_is_named_while_a_plan_is_carried_out_stays_where_the_runtime_puts_it(
    before: World,
) -> None:
    """After a reboot: the runtime registers the agent amid its first writes, and takes the sets from its answer."""
    new = {"7e" * 32: "front", "7f" * 32: "back"}
    for number, name in new.items():
        before.tree.remove_container("two", container_id("two", name))
        before.tree.add_container("two", number)
    own, after, written = {"front": "3", "back": "4-5"}, again(before), list[str]()
    write = after.kernel.write

    def first_one_then_the_runtime(hierarchy: str, path: str, file: str, value: str) -> None:
        write(hierarchy, path, file, value)
        written.append(path)
        if [each for each in new if each in path]:
            after.engine.containers_announced({number: ("two", name) for number, name in new.items()})
            for number, name in new.items():
                cgroup = next(each for each in after.cgroups.observe().cgroups if each.container_id == number)
                before.tree.kernel_write(cgroup.path, "cpuset.cpus", own[name])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(after.kernel, "write", first_one_then_the_runtime)
        after.engine.reconcile()
    assert sum(number in path for path in written for number in new) == 1, "the plan began before they had names"
    assert {name: on_ids(before)[number] for number, name in new.items()} == own
    after.engine.containers_seen({number: ("two", name) for number, name in new.items()})
    assert {name: on_ids(before)[number] for number, name in new.items()} == own


def test_a_pod_is_not_told_to_have_cpus_while_a_container_of_it_has_no_name(before: World) -> None:
    """It ran before it was decided on, and which container it is nobody has said: what it has was not read back."""
    after, number = again(before), "7e" * 32
    before.tree.add_pod("new", Qos.GUARANTEED)
    before.tree.add_container("new", number)
    after.engine.pods_seen([pod_from(manifest("new", container(cpu="1"), created=9))])
    assert after.holds("new") == "6"
    assert after.condition("new") == "False NotEnforced"
    after.engine.containers_seen({number: ("new", "app")})
    assert on_ids(before)[number] == "6"
    assert after.condition("new") == "True Aligned"


def test_names_are_saved_now_and_then_and_bounded(tmp_path: Path) -> None:
    """No save per start of a container; one that restarts all day leaves one name, a shared one none."""
    store = MemoryStore()
    world = World(tmp_path, store=store)
    world.engine.pods_listed(set())
    world.run(manifest("db"))
    world.run(manifest("web", container(cpu="500m"), created=1))
    saves = store.saves
    for attempt in range(30):
        world.engine.containers_seen({f"{attempt:064x}": ("db", "app")})
    assert store.saves == saves
    world.engine.keep_names()
    world.engine.keep_names()
    assert store.saves == saves + 1
    kept = store.extra[NAMES]
    assert isinstance(kept, dict)
    assert kept == {container_id("db", "app"): ["db", "app"], f"{29:064x}": ["db", "app"]}


@pytest.mark.parametrize("names", [{}, [], "x", {"id": "db"}, {"id": ["db"]}, {"id": [1, 2]}, {"id": ["db", UNSURE]}])
def test_names_that_are_none_are_left_out(before: World, names: object) -> None:
    """What an older or a damaged file has in their place harms nobody."""
    before.store.extra = {"listed": True, NAMES: names}
    after = World(before.tree.folder, store=before.store)
    after.engine.reconcile()
    assert sets(before) == {"db/app": "1-2", "two/front": "3", "two/back": "4-5"}


@pytest.fixture
def node(tmp_path: Path) -> Iterator[ClusterNode]:
    """A node of a cluster with a pinned pod; its agent was killed."""
    made = ClusterNode(tmp_path)
    made.world.run(manifest("db", namespace="prod"))
    made.keep()
    yield made
    assert made.world.effective("db") == "1-2"


def test_the_agent_in_a_cluster_without_its_api_server(node: ClusterNode, caplog: pytest.LogCaptureFixture) -> None:
    """Served for some repairs: nothing moves, /readyz says what is missing, and the log does."""
    world = node.world
    with node.serving() as agent:
        until(lambda: page(agent, "/readyz?only=recovery")[0] == 200)
        status, text = page(agent, "/readyz")
        assert status == 503
        assert "pods: no complete list of pods" in text
        assert "names: neither the API server nor the runtime" in text
        assert "pods and containers are known from the saved ledger alone" in caplog.messages
        world.tree.kernel_write(world.path("db", "app"), "cpuset.cpus", "0-7")
        until(lambda: world.effective("db") == "1-2")


def test_a_list_that_takes_longer_than_the_start_waits(node: ClusterNode) -> None:
    """The list would have named the container, and comes too late: it stays where it is."""
    body = manifest("db", namespace="prod")
    with StandInApi(pods=[body], slow={"/api/v1/pods": 30.0}) as api, node.serving(api.url, patience=0.2) as agent:
        until(lambda: page(agent, "/readyz?only=recovery")[0] == 200)
        assert page(agent, "/readyz")[0] == 503
        assert node.world.effective("db") == "1-2"
        first = ["/api/v1/nodes/n1", "/api/v1/pods"]
        until(lambda: list(dict.fromkeys(path for path, _ in api.asked if path in first)) == first)


def claimed(folder: Path) -> World:
    """A node with a pinned pod."""
    world = World(folder, store=MemoryStore())
    world.engine.pods_listed(set())
    world.run(manifest("db"))
    world.run(manifest("web", created=1))
    world.engine.reconcile()
    world.engine.keep_names()
    return world


def test_a_restarted_container_beside_the_old_one_s_cgroup(tmp_path: Path) -> None:
    """Its name was not saved yet, the cgroup of the one before it is still dying, nobody answers: it stays."""
    first = claimed(tmp_path)
    first.tree.add_container("db", "7e" * 32)
    path = next(each.path for each in first.cgroups.observe().cgroups if each.container_id == "7e" * 32)
    first.tree.kernel_write(path, "cpuset.cpus", "1-2")
    after = World(tmp_path, store=first.store)
    after.engine.reconcile()
    on = {each.container_id: str(each.effective_cpus) for each in after.cgroups.observe().cgroups}
    assert (on["7e" * 32], on[container_id("db", "app")]) == ("1-2", "1-2")
    after.engine.containers_seen({"7e" * 32: ("db", "app")})
    after.tree.remove_container("db", container_id("db", "app"))
    after.engine.pods_listed({"db", "web"})
    assert after.engine.reconcile() == ()


def test_a_status_that_claims_another_pods_container_moves_nobody(tmp_path: Path) -> None:
    """Whoever may write his own pod's status names a neighbour's container as his: it stays on its CPUs."""
    world = claimed(tmp_path)
    world.engine.containers_seen({container_id("db", "app"): ("web", "app")})
    world.engine.reconcile()
    assert (world.effective("db"), world.effective("web")) == ("1-2", "4-5")


def test_a_status_that_claims_a_neighbours_shared_container_puts_it_on_no_grant(tmp_path: Path) -> None:
    """It claims to be called as the container with CPUs of its own: still it runs on the pool, as it asks for."""
    world = World(tmp_path)
    world.engine.pods_listed({"db", "web"})
    world.run(manifest("db", container(cpu="2"), container("helper", cpu="500m"), created=1))
    world.run(manifest("web", container(cpu="2"), created=2))
    world.engine.containers_seen({container_id("db", "helper"): ("web", "app")})
    world.engine.reconcile()
    assert world.effective("db", "helper") == str(world.engine.ledger.cpus.shared)
    assert world.effective("db") == world.holds("db")


SANDBOX, STRANGER = "5a" * 32, "7e" * 32
LONG = 31.0
"""Seconds after which a container that was seen should have been named."""


@pytest.fixture
def clock() -> Clock:
    """The engine's."""
    return Clock()


@pytest.fixture
def world(tmp_path: Path, clock: Clock) -> World:
    """All names are known: a pod with a sandbox, one of whose two containers has not been made yet."""
    made = World(tmp_path, clock=clock)
    made.engine.pods_listed({"two"})
    made.see(manifest("two", container("front", cpu="1"), container("back", cpu="2")))
    made.start("two", "front")
    made.tree.add_container("two", SANDBOX)
    made.engine.reconcile()
    clock.now += LONG
    made.engine.reconcile()
    return made


def test_a_sandbox_is_no_container_that_lacks_a_name(world: World) -> None:
    """What has no name and is alone in its pod may be the sandbox: its container may not be there yet."""
    assert world.condition("two") == "True Aligned"


def test_a_pod_with_a_container_that_nobody_names_is_not_told_to_have_its_cpus(world: World, clock: Clock) -> None:
    """One of two is a container, it may be the one that was granted CPUs, and runs on the pool; a name ends that."""
    world.tree.add_container("two", STRANGER)
    world.engine.reconcile()
    assert world.condition("two") == "True Aligned", "a moment is what names take that come by the API"
    clock.now += LONG
    world.engine.reconcile()
    assert world.condition("two") == "False NotEnforced"
    message = world.report("two").message
    assert "neither the API server nor the runtime" in message
    assert STRANGER in message
    world.engine.containers_seen({STRANGER: ("two", "back")})
    assert world.condition("two") == "True Aligned"


def test_an_agent_that_begins_gives_no_such_time(world: World, tmp_path: Path, clock: Clock) -> None:
    """Who was there before it and is in no list has no name: told with the first complete list."""
    world.tree.add_container("two", STRANGER)
    after = World(tmp_path, store=world.store, clock=clock, pods=world.pods.values())
    after.engine.pods_listed({"two"})
    assert after.condition("two") == "False NotEnforced"
    world.tree.remove_container("two", STRANGER)
    after.engine.reconcile()
    assert after.condition("two") == "True Aligned"


def test_a_sandbox_that_is_made_anew_is_none_either(world: World, clock: Clock) -> None:
    """The one before may outlast its processes; who runs there counts."""
    world.tree.remove_container("two", SANDBOX)
    world.tree.add_container("two", SANDBOX, processes=0)
    world.tree.add_container("two", "6b" * 32)
    clock.now += LONG
    world.engine.reconcile()
    assert world.condition("two") == "True Aligned"
    assert world.effective("two", "front") == world.holds("two", "front")
    assert container_id("two", "front") not in world.report("two").message


@pytest.mark.parametrize("observing", [False, True])
def test_names_of_containers_that_are_gone_do_not_pile_up(tmp_path: Path, *, observing: bool) -> None:
    """Hundreds of ids of one container, as its status names them one after the other; the living ones stay known.

    Finding 31.
    """
    world = World(tmp_path, observe_only=observing)
    world.engine.pods_listed(set())
    world.run(manifest("db"))
    (living,) = world.names()
    for number in range(300):
        world.engine.containers_seen({f"crash{number}": ("db", "app")})
    assert living in world.engine.names
    assert "crash299" in world.engine.names, "it may have been named before its cgroup is there"
    assert len(world.engine.names) < 10


def test_a_restarted_container_is_confined_as_before(tmp_path: Path) -> None:
    """Its new id is named before its cgroup comes, after many that are gone (finding 31)."""
    world = World(tmp_path)
    world.engine.pods_listed(set())
    world.run(manifest("db"))
    for number in range(50):
        world.engine.containers_seen({f"crash{number}": ("db", "app")})
    world.engine.reconcile()
    assert world.effective("db") == "1-2"
    world.check()
