"""Pods that were refused for the room of one that is about to leave it, and of which no container exists yet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from agent.app.page.values import PageInput, pods_value
from agent.host.device_nodes import Usable
from agent.host.nri.decisions import EngineDecisions
from agent.host.scratch import Layout, Scratch
from agent.host.standin import container_id
from agent.model.idset import CpuSet, NodeSet
from agent.node.explaining import explained
from agent.node.leavers import LEAVES_WITHIN
from agent.node.second_look import MOST_AGAIN
from agent.node.tracked_pod import Switches
from tests.flow.told import Told, telling
from tests.flow.world import World, container, manifest
from tests.patience import until
from tests.world.clock import Clock

MACHINE = "1 socket x 1 node x 8 cores x 1 thread"
STANDS = "default/job-1 has ended, its cgroup is still there"
WISHES = ("run", "fail", "wait", "evict")
ENDING = ("fail", "evict")


@pytest.fixture
def clock() -> Clock:
    """The engine's."""
    return Clock(100.0)


@pytest.fixture
def told(tmp_path: Path, clock: Clock) -> Iterator[Told]:
    """Seven CPUs to give, six of which job-1 has: it has ended, and its process runs still."""
    with telling(tmp_path, machine=MACHINE, clock=clock) as told:
        told.list()
        run(told, manifest("job-1", container(cpu="6")))
        end(told, "job-1")
        yield told


def run(told: Told, body: Mapping[str, Any]) -> None:
    """A pod comes by the watch, and its container starts."""
    told.see(body)
    told.settled()
    uid = body["metadata"]["uid"]
    told.world.pods[uid] = told.world.engine.pods[uid].pod
    told.world.start(uid)


def end(told: Told, name: str, cpu: str = "6") -> None:
    """The watch says that a pod has run to its end."""
    told.see({**manifest(name, container(cpu=cpu)), "status": {"phase": "Succeeded"}})
    told.settled()


def process_ends(told: Told, name: str) -> None:
    """The last process of a pod ends; the kubelet has not removed the pod's cgroup yet."""
    told.world.tree.remove_container(name, container_id(name, "app"))
    told.world.engine.reconcile(again=False)
    told.settled()


def second(wish: str, cpu: str = "6", created: int = 2) -> dict[str, Any]:
    """The next pod of the Job."""
    return manifest(f"job-{created}", container(cpu=cpu), created=created, on_misalignment=wish)


def come(told: Told, *bodies: Mapping[str, Any]) -> None:
    """Pods come, and all is told."""
    told.see(*bodies)
    told.settled()


def acts(told: Told, name: str = "job-2") -> list[str]:
    """What was done to a pod: the ends of the paths of the requests."""
    return [
        path.rpartition("/pods/")[2] for _, path, _ in told.api.requests
        if path.endswith((f"/pods/{name}", f"/pods/{name}/eviction"))
    ]  # fmt: skip


@pytest.mark.parametrize("wish", WISHES)
def test_a_pod_that_lacked_only_that_room_gets_it(told: Told, wish: str) -> None:
    """Under every wish: the process ends before a container of it exists, and it has the CPUs from the start."""
    come(told, second(wish))
    world = told.world
    assert (world.holds("job-1"), world.holds("job-2")) == ("1-6", "")
    assert STANDS in told.api.condition("job-2")["message"]
    process_ends(told, "job-1")
    assert (world.holds("job-2"), acts(told)) == ("1-6", [])
    assert told.api.condition("job-2")["status"] == "True"
    world.pods["job-2"] = world.engine.pods["job-2"].pod
    world.start("job-2")
    assert world.effective("job-2") == "1-6"


@pytest.mark.parametrize("wish", WISHES)
def test_the_holder_is_named_wherever_the_refusal_is_told(told: Told, wish: str) -> None:
    """Condition, Event, the runtime's answer, the page and explain say which pod stands in the way."""
    come(told, second(wish))
    (event,) = [each for each in told.api.events("job-2") if each["reason"] == "UnexpectedAdmissionError"]
    snapshot = told.world.engine.snapshot
    answer = EngineDecisions(told.world.engine, lambda _address: Usable(())).verdict("job-2")
    (shown,) = [each for each in pods_value(PageInput(snapshot=snapshot)) if each["uid"] == "job-2"]
    found = explained(snapshot, "job-2")
    assert found is not None
    assert STANDS in event["message"]
    assert STANDS in shown["why"]
    assert STANDS in str(found)
    assert (STANDS in answer) == (wish in ("wait", "fail"))


@pytest.mark.parametrize("wish", WISHES)
def test_a_holder_that_has_left_is_named_no_more(tmp_path: Path, clock: Clock, wish: str) -> None:
    """Two pods are in the way, and one of them leaves: the condition names the one that is left, and then none."""
    with telling(tmp_path, machine=MACHINE, clock=clock) as told:
        told.list()
        for name in ("job-1", "job-3"):
            run(told, manifest(name, container(cpu="3")))
            end(told, name, cpu="3")
        come(told, second(wish))
        assert told.api.condition("job-2")["message"].endswith(f"{STANDS}; {STANDS.replace('job-1', 'job-3')}")
        process_ends(told, "job-1")
        told.settled()
        assert "job-1" not in told.api.condition("job-2")["message"]
        assert told.api.condition("job-2")["message"].endswith(STANDS.replace("job-1", "job-3"))
        process_ends(told, "job-3")
        assert told.world.holds("job-2") == "1-6"


@pytest.mark.parametrize("wish", ENDING)
def test_a_pod_is_ended_only_when_the_holder_stands_still_after_a_while(told: Told, clock: Clock, wish: str) -> None:
    """Not before LEAVES_WITHIN seconds, and once; room that appears later is for other pods."""
    come(told, second(wish))
    clock.now += LEAVES_WITHIN - 1
    told.world.engine.reconcile()
    told.settled()
    assert acts(told) == []
    clock.now += 1
    for _ in range(3):
        told.world.engine.reconcile()
        told.settled()
    assert acts(told) == [{"fail": "job-2", "evict": "job-2/eviction"}[wish]]
    process_ends(told, "job-1")
    assert told.world.holds("job-2") == ""


def test_a_pod_without_a_place_in_line_is_let_in_when_the_holder_leaves(told: Told, clock: Clock) -> None:
    """More pods of a Job wait than the line has places: none is ended for the moment that the Job before takes."""
    pods = [second("wait", cpu="2", created=number) for number in (2, 3, 4)]
    come(told, *pods)
    process_ends(told, "job-1")
    assert [told.world.holds(body["metadata"]["uid"]) for body in pods] == ["1-2", "3-4", "5-6"]
    clock.now += 2 * LEAVES_WITHIN
    told.world.engine.reconcile()
    told.settled()
    assert not [done for number in (2, 3, 4) for done in acts(told, f"job-{number}")]


def test_a_pod_without_a_place_in_line_is_ended_when_the_holder_stands_still(told: Told, clock: Clock) -> None:
    """As under fail, once; the pods that have a place go on waiting."""
    told.world.engine.changed(told.world.engine.node, Switches(most_waiting=2))
    come(told, *(second("wait", cpu="2", created=number) for number in (2, 3, 4)))
    for _ in range(2):
        assert not acts(told, "job-4")
        clock.now += LEAVES_WITHIN / 2
        told.world.engine.reconcile(again=False)
        told.settled()
    assert [bool(acts(told, f"job-{number}")) for number in (2, 3, 4)] == [False, False, True]
    assert told.world.engine.pods["job-4"].refusal.facts["final"] == "crowd"  # type: ignore[union-attr] # it was refused


@pytest.mark.parametrize("wish", ENDING)
def test_a_pod_whose_container_exists_is_ended_at_once(told: Told, wish: str) -> None:
    """It would have to be moved; so its wish is followed, as without the holder."""
    come(told, second(wish))
    told.world.engine.containers_seen({"a" * 64: ("job-2", "app")})
    told.world.engine.reconcile()
    told.settled()
    assert len(acts(told)) == 1


@pytest.mark.parametrize("wish", ENDING)
def test_a_pod_that_lacks_more_than_that_is_ended_as_ever(told: Told, wish: str) -> None:
    """Without the holder there would be no room either: nothing is waited for, and it is not named."""
    come(told, second(wish, cpu="8"))
    assert len(acts(told)) == 1
    assert STANDS not in told.api.condition("job-2")["message"]


def test_a_pod_that_runs_on_the_shared_pool_is_not_moved(told: Told) -> None:
    """Its container exists: it stays where its memory is."""
    come(told, second("run"))
    told.world.pods["job-2"] = told.world.engine.pods["job-2"].pod
    told.world.start("job-2")
    process_ends(told, "job-1")
    assert (told.world.holds("job-2"), told.world.effective("job-2")) == ("", "0-7")


def test_a_container_without_a_name_counts_too(told: Told) -> None:
    """Without NRI, and while the API server is away: beside its sandbox something runs, which may be a container."""
    come(told, second("run"))
    tree = told.world.tree
    tree.add_pod("job-2", told.world.engine.pods["job-2"].pod.qos)
    for number in ("a" * 64, "b" * 64):
        tree.add_container("job-2", number)
    process_ends(told, "job-1")
    assert told.world.holds("job-2") == ""


def test_its_sandbox_alone_is_no_container(told: Told) -> None:
    """The image is pulled after the sandbox was made: that may take minutes."""
    come(told, second("run"))
    told.world.tree.add_pod("job-2", told.world.engine.pods["job-2"].pod.qos)
    told.world.tree.add_container("job-2", "a" * 64)
    process_ends(told, "job-1")
    assert told.world.holds("job-2") == "1-6"


@pytest.mark.parametrize("version", [1, 2])
def test_s13_an_empty_folder_of_a_pod_that_ended_does_not_live(tmp_path: Path, version: int) -> None:
    """The pod's folder and its containers' stand there without a process: the next pod has the CPUs, and alone."""
    cpus, nodes = CpuSet.from_ids(range(8)), NodeSet.of(0)
    Scratch.create(tmp_path / "tree", cpus=cpus, nodes=nodes, setup=Layout(version=version))
    world = World(tmp_path / "tree", machine=MACHINE)
    world.engine.pods_listed(set())
    world.run(manifest("job-1", container(cpu="6")))
    path = world.path("job-1", "app")
    for pid in world.tree._store.get(path, "cgroup.procs").split():
        world.tree.rules.exit(path, int(pid))
    world.engine.pods_gone(["job-1"])
    assert world.holds("job-1") == ""
    world.run(manifest("job-2", container(cpu="6"), created=1))
    assert (world.holds("job-2"), world.effective("job-2")) == ("1-6", "1-6")
    assert world.effective("job-1") == "0,7", "what would come to be in it stands on the shared pool"


def test_s13_a_pod_that_has_not_ended_keeps_its_cpus_without_a_process(tmp_path: Path) -> None:
    """Its container is between two starts: all folders are empty, and the CPUs are still its own."""
    world = World(tmp_path, machine=MACHINE)
    world.engine.pods_listed({"db"})
    world.run(manifest("db", container(cpu="6")))
    world.tree.remove_container("db", container_id("db", "app"))
    world.engine.container_gone(container_id("db", "app"))
    world.engine.reconcile()
    world.see(manifest("next", container(cpu="6"), created=1))
    assert (world.holds("db"), world.holds("next")) == ("1-6", "")


def test_s13_a_deleted_pod_whose_sandbox_lives_keeps_its_cpus(tmp_path: Path) -> None:
    """One process somewhere below the pod's folder is enough."""
    world = World(tmp_path, machine=MACHINE)
    world.engine.pods_listed({"db"})
    world.run(manifest("db", container(cpu="6")))
    world.tree.add_container("db", "a" * 64)
    world.tree.remove_container("db", container_id("db", "app"))
    world.engine.pods_gone(["db"])
    assert world.holds("db") == "1-6"
    world.see(manifest("next", container(cpu="6"), created=1))
    assert "default/db has ended, its cgroup is still there" in world.ears.refused_["next"].details


def test_s11_the_line_comes_first_and_is_not_delayed(told: Told) -> None:
    """The pod that waits came later than the one that would run: it has its turn first all the same."""
    come(told, second("run", cpu="4"), second("wait", cpu="5", created=3))
    process_ends(told, "job-1")
    assert (told.world.holds("job-3"), told.world.holds("job-2")) == ("1-5", "")


def test_s11_among_equals_the_older_pod_comes_first(told: Told) -> None:
    """Whichever the watch brought first."""
    come(told, second("run", cpu="4", created=3))
    come(told, second("run", cpu="4", created=2))
    process_ends(told, "job-1")
    assert (told.world.holds("job-2"), told.world.holds("job-3")) == ("1-4", "")


def test_nothing_is_told_again_where_only_numbers_change(told: Told, clock: Clock) -> None:
    """A pod is refused once more with other numbers: its words stay, and the ledger is not saved for them."""
    run(told, manifest("small", container(cpu="1"), created=1))
    come(told, second("run", cpu="8"))
    clock.now += LEAVES_WITHIN
    told.world.engine.reconcile()
    told.settled()
    asked, saves = len(told.api.requests), told.world.store.saves
    told.world.tree.remove_pod("small")
    told.see({**manifest("small", container(cpu="1"), created=1), "status": {"phase": "Succeeded"}})
    told.settled()
    told.world.engine.reconcile()
    told.settled()
    assert told.world.holds("job-2") == ""
    assert [path for _, path, _ in told.api.requests[asked:] if "job-2" in path] == []
    assert told.world.store.saves == saves + 1, "for what small gave back"


def test_s11_a_pod_that_waits_is_told_the_last_decision(tmp_path: Path) -> None:
    """Less is in its way than at first, and not yet little enough: condition, page and runtime say so; one Event."""
    with telling(tmp_path, machine=MACHINE) as told:
        told.list()
        for number, cpu in ((1, "4"), (2, "2")):
            run(told, manifest(f"db-{number}", container(cpu=cpu), created=number))
        for policy in ("none", "single-numa-node"):
            come(told, manifest(policy, container(cpu="5"), created=7, policy=policy, on_misalignment="wait"))
        assert "requested=5, available=1" in told.api.condition("none")["message"]
        assert "and 1 is free" in told.api.condition("single-numa-node")["message"]
        told.world.tree.remove_pod("db-2")
        told.see({**manifest("db-2", container(cpu="2")), "status": {"phase": "Succeeded"}})
        told.settled()
        answers = EngineDecisions(told.world.engine, lambda _address: Usable(()))
        assert "requested=5, available=3" in told.api.condition("none")["message"]
        assert "requested=5, available=3" in answers.verdict("none")
        assert "and 3 are free" in told.api.condition("single-numa-node")["message"]
        asked = len(told.api.requests)
        for _ in range(3):
            told.world.engine.reconcile()
            told.settled()
        assert len(told.api.requests) == asked, "the same decision is no news"
        assert [len(told.api.events(each)) for each in ("none", "single-numa-node")] == [1, 1]


@pytest.mark.parametrize("wish", [*ENDING, "wait"])
def test_the_last_word_is_of_its_decision(told: Told, clock: Clock, wish: str) -> None:
    """The pod is ended for a holder that stands: it goes on saying what was so, also when the holder has gone."""
    told.world.engine.changed(told.world.engine.node, Switches(most_waiting=1))
    come(told, second("wait", cpu="2"), second(wish, created=3))
    assert told.api.condition("job-3")["message"].endswith(f"; {STANDS}")
    clock.now += LEAVES_WITHIN
    told.world.engine.reconcile()
    told.settled()
    assert acts(told, "job-3")
    said = told.api.condition("job-3")["message"]
    assert f"; as of this decision: {STANDS}" in said
    process_ends(told, "job-1")
    told.world.engine.reconcile()
    told.settled()
    assert told.api.condition("job-3")["message"] == said


def test_s11_a_pod_that_waited_too_long_is_told_of_its_last_decision(told: Told, clock: Clock) -> None:
    """What stood in its way then, and that this was then."""
    come(told, second("wait"))
    clock.now += 1000
    told.world.engine.reconcile()
    told.settled()
    assert "it waited 1000 s" in told.api.condition("job-2")["message"]
    assert told.api.condition("job-2")["message"].endswith(f"; as of this decision: {STANDS}")


def test_a_pod_that_starts_on_the_shared_pool_keeps_a_word_that_stays_true(told: Told) -> None:
    """From its first container on it is not decided again: the holder is named as of then, here and in the ledger."""
    come(told, second("run"))
    assert told.api.condition("job-2")["message"].endswith(f"; {STANDS}")
    told.world.pods["job-2"] = told.world.engine.pods["job-2"].pod
    told.world.start("job-2")
    for _ in range(2):
        told.world.engine.reconcile()
        told.settled()
    asked = len(told.api.requests)
    process_ends(told, "job-1")
    assert told.api.condition("job-2")["message"].endswith(f"; as of this decision: {STANDS}")
    assert len(told.api.requests) == asked
    assert told.world.engine.ledger.pods["job-2"].why[""].endswith(f"; as of this decision: {STANDS}")


def test_many_refused_pods_have_their_turns(tmp_path: Path) -> None:
    """More than are looked at in one release: those that were not have their turn at the next."""
    world = World(tmp_path, machine=MACHINE)
    world.engine.pods_listed(set())
    world.run(manifest("a", container(cpu="5")))
    world.run(manifest("b", container(cpu="2"), created=1))
    for number in range(MOST_AGAIN):
        world.see(manifest(f"large-{number}", container(cpu="6"), created=number + 2))
    world.see(manifest("small", container(cpu="2"), created=59))
    world.engine.reconcile()
    world.end("b")
    world.engine.pods_gone(["b"])
    world.engine.reconcile()
    assert world.holds("small") == "6-7"


def test_an_open_refusal_is_looked_at_each_second(told: Told, clock: Clock) -> None:
    """The process ends, and no event says so: the loop has its next turn within a second, and then not again."""
    assert told.world.engine.repair_in() is None
    come(told, second("fail"))
    told.world.engine.reconcile()
    clock.now += 0.4
    assert told.world.engine.repair_in() == pytest.approx(0.6)
    clock.now += LEAVES_WITHIN
    told.world.engine.reconcile()
    until(lambda: not told.publisher.waiting)
    assert told.world.engine.repair_in() is None


@pytest.mark.parametrize("wish", ENDING)
def test_the_room_of_many_pods_that_are_about_to_leave_counts_together(
    tmp_path: Path, clock: Clock, wish: str
) -> None:
    """A Job of ten small pods has ended, and the next pod needs the room of all of them: it is not ended for that."""
    with telling(tmp_path, machine="1 socket x 1 node x 16 cores x 1 thread", clock=clock) as told:
        told.list()
        jobs = [f"small-{number}" for number in range(10)]
        for name in jobs:
            run(told, manifest(name, container(cpu="1")))
            end(told, name, cpu="1")
        come(told, second(wish, cpu="14"))
        assert told.api.condition("job-2")["message"].endswith("; and 7 more pods")
        for name in jobs:
            process_ends(told, name)
        assert (len(CpuSet.parse(told.world.holds("job-2"))), acts(told)) == (14, [])


@pytest.mark.parametrize("wish", ENDING)
def test_a_pod_that_is_kept_on_a_numa_node_holds_room_too(tmp_path: Path, clock: Clock, wish: str) -> None:
    """It has no CPUs of its own, and the shared ones that it counts on are in the way of the next pod."""
    with telling(tmp_path, machine="2 sockets x 1 node x 8 cores x 1 thread", clock=clock) as told:
        told.list()
        for name in ("other", "job-1"):
            run(told, manifest(name, container(cpu="6500m"), align="numa"))
        end(told, "job-1", cpu="6500m")
        body = second(wish)
        body["metadata"]["annotations"]["numalign.io/policy"] = "single-numa-node"
        come(told, body)
        assert told.api.condition("job-2")["message"].endswith(STANDS)
        process_ends(told, "job-1")
        assert (told.world.holds("job-2"), acts(told)) == ("8-13", [])


@pytest.mark.parametrize("wish", WISHES)
def test_a_refused_pod_is_decided_again_by_the_next_agent(tmp_path: Path, clock: Clock, wish: str) -> None:
    """The agent is restarted while the holder stands: the pod has no container yet, and gets the room as ever."""
    with telling(tmp_path, machine=MACHINE, clock=clock) as told:
        told.list()
        run(told, manifest("job-1", container(cpu="6")))
        end(told, "job-1")
        come(told, second(wish))
    store, ended = told.world.store, {**manifest("job-1", container(cpu="6")), "status": {"phase": "Succeeded"}}
    with telling(tmp_path, machine=MACHINE, clock=clock, store=store) as told:
        told.list(ended, second(wish))
        told.settled()
        assert told.world.holds("job-2") == ""
        process_ends(told, "job-1")
        assert (told.world.holds("job-2"), acts(told)) == ("1-6", [])


def test_the_next_agent_moves_no_container_of_a_refused_pod(tmp_path: Path, clock: Clock) -> None:
    """It runs on the shared pool since its refusal: there it stays, though there is room by then."""
    with telling(tmp_path, machine=MACHINE, clock=clock) as told:
        told.list()
        run(told, manifest("job-1", container(cpu="6")))
        run(told, second("run"))
    store = told.world.store
    told.world.end("job-1")
    status = [{"name": "app", "containerID": f"containerd://{container_id('job-2', 'app')}"}]
    with telling(tmp_path, machine=MACHINE, clock=clock, store=store) as told:
        told.list({**second("run"), "status": {"phase": "Running", "containerStatuses": status}})
        told.world.engine.reconcile()
        told.settled()
        assert (told.world.holds("job-1"), told.world.holds("job-2")) == ("", "")


@pytest.mark.parametrize("wish", ENDING)
def test_a_pod_that_went_while_no_agent_ran_ends_no_other_pod(tmp_path: Path, clock: Clock, wish: str) -> None:
    """The saved ledger has it, the list lacks it; a pod of the list needs its room before that list is complete."""
    with telling(tmp_path, machine=MACHINE, clock=clock) as told:
        told.list()
        run(told, manifest("job-1", container(cpu="6")))
    store = told.world.store
    told.world.end("job-1")
    with telling(tmp_path, machine=MACHINE, clock=clock, store=store) as told:
        told.list(second(wish))
        told.world.engine.reconcile()
        told.settled()
        assert (told.world.holds("job-2"), acts(told)) == ("1-6", [])


@pytest.mark.parametrize("wish", ENDING)
def test_a_pod_that_the_list_has_is_not_about_to_leave(tmp_path: Path, clock: Clock, wish: str) -> None:
    """The pod of the saved ledger runs: it is named until it is listed, and then the wish is followed."""
    with telling(tmp_path, machine=MACHINE, clock=clock) as told:
        told.list()
        run(told, manifest("job-1", container(cpu="6")))
    with telling(tmp_path, machine=MACHINE, clock=clock, store=told.world.store) as told:
        come(told, second(wish))
        assert "default/job-1 was there before this agent started" in told.api.condition("job-2")["message"]
        assert acts(told) == []
        told.list(manifest("job-1", container(cpu="6")), second(wish))
        told.world.engine.reconcile()
        told.settled()
        assert (told.world.holds("job-1"), len(acts(told))) == ("1-6", 1)


@pytest.mark.parametrize("wish", WISHES)
def test_a_refused_pod_that_is_being_deleted_takes_no_room(told: Told, wish: str) -> None:
    """It came first and will never start: the room is for the pod that came after it."""
    come(told, second(wish), second(wish, created=3))
    leaving = second(wish)
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:10:00Z"
    come(told, leaving)
    process_ends(told, "job-1")
    assert [told.world.holds(f"job-{number}") for number in (2, 3)] == ["", "1-6"]
