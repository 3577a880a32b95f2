"""The engine, one event at a time: what is decided, saved, written and told, and in which order."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.core.machines.synthetic import parse_synthetic
from agent.errors import HostError
from agent.host.standin import container_id
from agent.model.cgroup import Cause
from agent.model.outcome import Reason
from agent.model.pod import Qos
from agent.node.explaining import explained
from tests.flow.world import MemoryStore, World, container, manifest

SMALL = "1 socket x 1 node x 4 cores x 1 thread"


def test_a_pod_gets_cpus_of_its_own_and_the_others_leave_them(tmp_path: Path) -> None:
    """Admission saves the grant, shrinks everybody else, and confines the container when it appears."""
    world = World(tmp_path)
    world.engine.pods_listed(set())
    world.run(manifest("web", container(cpu="", memory="")))
    world.run(manifest("db", created=1))
    assert world.holds("db") == "1-2"
    assert (world.effective("db"), world.effective("web")) == ("1-2", "0,3-7")
    assert world.ears.admitted_ == ["web", "db"]
    assert world.store.saved == world.engine.ledger


def test_effects_come_in_one_order(tmp_path: Path) -> None:
    """Saved first, then the shared pool gives the CPUs up, then the container gets them."""
    world = World(tmp_path)
    world.engine.pods_listed(set())
    world.run(manifest("web", container(cpu="", memory="")))
    world.see(manifest("db", created=1))
    world.steps.clear()
    world.run(manifest("late", created=2))
    kinds = [step.split()[0] for step in world.steps]
    assert kinds[0] == "save"
    assert kinds.count("save") == 1
    web = next(index for index, step in enumerate(world.steps) if "besteffort" in step)
    grants = [index for index, step in enumerate(world.steps) if "podlate" in step]
    assert web < min(grants)


def test_pods_are_admitted_in_order_of_creation_then_uid(tmp_path: Path) -> None:
    """Whatever the order in which they are told, the older pod chooses first; equal times go by uid."""
    world = World(tmp_path, machine=SMALL)
    world.see(manifest("c", created=1), manifest("b", created=2), manifest("a", created=1))
    assert (world.holds("a"), world.holds("c"), world.holds("b")) == ("1-2", "", "")
    assert list(world.ears.refused_) == ["c", "b"]


def test_a_refused_pod_runs_on_the_shared_pool_by_default(tmp_path: Path) -> None:
    """on-misalignment run: the reason stays in its record, and it runs where everybody does."""
    world = World(tmp_path, machine=SMALL)
    world.engine.pods_listed(set())
    world.run(manifest("big", container(cpu="3"), policy="single-numa-node"))
    world.run(manifest("two", container(cpu="2"), created=1, policy="single-numa-node"))
    assert world.effective("two") == "0"
    assert "TopologyAffinityError" in world.engine.ledger.pods["two"].why[""]
    assert world.ears.refused_["two"].reason is Reason.TOPOLOGY


def test_a_refused_pod_that_shall_fail_is_in_no_book(tmp_path: Path) -> None:
    """on-misalignment fail: nothing of it is in the ledger, the reason is told."""
    world = World(tmp_path, machine=SMALL)
    world.see(manifest("big", container(cpu="9"), policy="single-numa-node", on_misalignment="fail"))
    assert "big" not in world.engine.ledger.pods
    assert world.engine.pods["big"].refusal is not None


def test_a_waiting_pod_is_admitted_once_there_is_room(tmp_path: Path) -> None:
    """Retry decides again, in order of creation, and tells who got in."""
    world = World(tmp_path, machine=SMALL)
    world.engine.pods_listed({"first", "second"})
    world.run(manifest("first"))
    world.see(manifest("second", created=1, policy="single-numa-node", on_misalignment="wait"))
    world.engine.retry(["second"])
    assert world.holds("second") == ""
    world.end("first")
    world.engine.pods_gone(["first"])
    world.engine.retry(["second", "nobody"])
    assert world.holds("second") == "1-2"
    assert world.ears.admitted_ == ["first", "second"]
    world.check()


def test_s13_nothing_is_freed_while_its_cgroup_lives(tmp_path: Path) -> None:
    """A pod that left the API keeps its CPUs until its processes are gone."""
    world = World(tmp_path)
    world.engine.pods_listed({"db"})
    world.run(manifest("db"))
    world.engine.pods_gone(["db"])
    assert world.holds("db") == "1-2"
    world.end("db")
    world.engine.reconcile()
    assert world.holds("db") == ""
    assert world.ears.released_ == ["db"]
    assert "db" not in world.engine.pods
    world.check()


def test_s13_nothing_is_freed_before_the_first_complete_list(tmp_path: Path) -> None:
    """A deletion that is heard of before the list is remembered, and done after it."""
    store = MemoryStore()
    World(tmp_path, store=store).see(manifest("db"))
    world = World(tmp_path, store=store)
    world.engine.pods_gone(["db"])
    world.engine.reconcile()
    assert world.holds("db") == "1-2"
    world.engine.pods_listed(set())
    assert world.holds("db") == ""


def test_a_failed_save_grants_nothing_and_says_so(tmp_path: Path) -> None:
    """Nothing is written that was not saved; what runs stays; pods get in when the disk is back."""
    world = World(tmp_path)
    world.engine.pods_listed({"db", "next", "third"})
    world.run(manifest("db"))
    world.store.full = "cannot be saved: No space left on device"
    world.steps.clear()
    world.see(manifest("next", created=1))
    world.see(manifest("third", created=2))
    assert [step for step in world.steps if step.startswith("write")] == []
    assert (world.holds("db"), world.holds("next"), world.holds("third")) == ("1-2", "", "")
    assert "No space left" in world.ears.refused_["next"].message
    assert "No space left" in world.ears.refused_["third"].message
    assert [what for what, _ in world.ears.problems] == ["checkpoint"]
    assert "No space left" in world.engine.snapshot.unwritable
    world.store.full = ""
    world.engine.reconcile()
    assert (world.holds("next"), world.holds("third")) == ("4-5", "6-7")
    assert world.engine.snapshot.unwritable == ""
    world.check()


def test_a_pod_that_asks_to_be_confined_runs_while_the_disk_is_full(tmp_path: Path) -> None:
    """A Burstable pod that is kept on a node needs no CPUs of its own: it starts, and is kept with the next save."""
    world = World(tmp_path)
    world.engine.pods_listed({"web"})
    world.store.full = "cannot be saved: No space left on device"
    world.engine.keep()
    world.see(manifest("web", container(cpu="1500m", memory=""), align="numa"))
    assert world.ears.refused_ == {}
    assert set(world.engine.ledger.cpus.confined) == set()
    world.store.full = ""
    world.engine.reconcile()
    assert set(world.engine.ledger.cpus.confined) == {"web"}


def test_a_failed_save_frees_nothing(tmp_path: Path) -> None:
    """A release that cannot be saved is not done; it is when the disk is back."""
    world = World(tmp_path)
    world.engine.pods_listed({"db"})
    world.run(manifest("db"))
    world.end("db")
    world.store.full = "cannot be saved: Read-only file system"
    world.engine.pods_gone(["db"])
    assert world.holds("db") == "1-2"
    world.store.full = ""
    world.engine.reconcile()
    assert world.holds("db") == ""


@pytest.mark.parametrize(("value", "cause"), [("0-7", Cause.DRIFT_RESET), ("3-4", Cause.DRIFT_FOREIGN)])
def test_drift_is_repaired_and_counted_by_cause(tmp_path: Path, value: str, cause: Cause) -> None:
    """Somebody else's write is undone at the next look, and told apart from what we had to write anyway."""
    world = World(tmp_path)
    world.engine.pods_listed({"db"})
    world.run(manifest("db"))
    world.tree.kernel_write(world.path("db", "app"), "cpuset.cpus", value)
    results = world.engine.reconcile()
    assert [(each.write.cause, each.read_back) for each in results] == [(cause, "1-2")]
    assert world.engine.reconcile() == ()
    world.check()


def test_s3_the_kill_switch_writes_nothing(tmp_path: Path) -> None:
    """Observe-only: decided, saved and told, and no cgroup is touched; switched back, all is enforced."""
    world = World(tmp_path, observe_only=True)
    world.engine.pods_listed({"db"})
    world.run(manifest("db"))
    assert world.holds("db") == "1-2"
    assert world.effective("db") == "0-7"
    assert world.ears.written_ == []
    world.engine.changed(world.node(), type(world.engine.switches)())
    assert world.effective("db") == "1-2"


def test_s2_exempt_pods_share_whatever_they_ask_for(tmp_path: Path) -> None:
    """A pod that is left alone is never refused or pinned."""
    world = World(tmp_path, exempt=lambda pod: "left alone" if pod.namespace == "kube-system" else "")
    world.engine.pods_listed({"proxy"})
    world.run(manifest("proxy", container(cpu="64"), namespace="kube-system"))
    assert world.ears.refused_ == {}
    assert world.effective("proxy") == "0-7"


def test_a_pod_may_ask_not_to_be_pinned(tmp_path: Path) -> None:
    """numalign.io/pin: false leaves a pod on the shared pool."""
    world = World(tmp_path)
    world.see(manifest("db", pin="false"))
    assert (world.holds("db"), world.ears.admitted_) == ("", ["db"])


def test_a_pod_that_asks_too_late_not_to_be_pinned_keeps_its_cpus_and_is_told_so(tmp_path: Path) -> None:
    """Nobody who runs is moved: explain must not say that it runs on the shared pool."""
    world = World(tmp_path)
    world.engine.pods_listed(set())
    world.run(manifest("db"))
    world.see(manifest("db", pin="false"))
    told = explained(world.engine.snapshot, "db")
    assert told is not None
    assert told.summary == "default/db is left alone: its annotation numalign.io/pin is false"
    assert told.reasons == ("it holds CPUs 1-2 on NUMA node 0, and keeps that until it ends",)
    assert world.holds("db") == world.effective("db") == "1-2"


def test_s4_pods_that_ran_before_are_never_refused_and_their_memory_is_not_bound(tmp_path: Path) -> None:
    """Adopted pods: CPUs are pinned where they fit, memory is left where it is unless they ask."""
    memory = {"memoryManagerPolicy": "Static", "reservedMemory": [{"numaNode": 0, "limits": {"memory": "100Mi"}}]}
    world = World(tmp_path, settings=memory)
    bodies = [
        manifest("old"),
        manifest("asks", created=1, move_memory="true"),
        manifest("huge", container(cpu="90"), created=2, policy="single-numa-node", on_misalignment="fail"),
    ]
    world.see(*bodies, ran=["old", "asks", "huge"])
    records = world.engine.ledger.pods
    assert {uid: (each.adopted, each.bind_memory) for uid, each in records.items()} == {
        "old": (True, False), "asks": (True, True), "huge": (True, False),
    }  # fmt: skip
    assert (world.holds("old"), world.holds("huge")) == ("1-2", "")


def test_a_pod_that_was_never_bound_is_told_once(tmp_path: Path) -> None:
    """With each pod that comes all that ran before the agent would be told anew, each a request to the API server."""
    world = World(tmp_path)
    world.see(manifest("old"), ran=["old"])
    assert world.ears.words == ["old"]
    world.see(manifest("new", created=1))
    assert world.ears.words == ["old", "new"]


def test_s4_pinning_adopted_pods_can_be_switched_off(tmp_path: Path) -> None:
    """With pinAdopted false, pods that ran before the agent stay on the shared pool."""
    world = World(tmp_path, pin_adopted=False)
    world.see(manifest("old"), manifest("new", created=1), ran=["old"])
    assert (world.holds("old"), world.holds("new")) == ("", "1-2")


def test_init_containers_give_their_cpus_to_those_after_them(tmp_path: Path) -> None:
    """When the main container starts, what only the init container held is shared again (kubelet rule 5.9)."""
    world = World(tmp_path)
    world.engine.pods_listed({"job"})
    world.see(manifest("job", container(cpu="1"), inits=[container("setup", cpu="3")]))
    world.start("job", "setup")
    assert (world.holds("job", "setup"), world.effective("job", "setup")) == ("1-3", "1-3")
    world.tree.remove_container("job", next(iter(world.names())))
    world.start("job", "app")
    assert world.effective("job") == world.holds("job")
    world.check()


def test_a_malformed_annotation_falls_back_and_is_told(tmp_path: Path) -> None:
    """A typing error in an annotation never fails a pod: the node's default applies."""
    world = World(tmp_path)
    world.see(manifest("db", policy="single-numa"))
    assert world.holds("db") == "1-2"
    assert "is not one of" in str(world.engine.pods["db"].settings.problems[0])


def test_s17_release_puts_everything_back(tmp_path: Path) -> None:
    """Every cgroup may use every CPU again; the ledger still says who held what."""
    world = World(tmp_path)
    world.engine.pods_listed({"db", "web"})
    world.run(manifest("web", container(cpu="", memory="")))
    world.run(manifest("db", created=1))
    world.engine.release()
    assert (world.effective("db"), world.effective("web")) == ("0-7", "0-7")
    assert world.holds("db") == "1-2"


def test_s17_what_was_written_before_a_release_is_nobodys_drift_after_it(tmp_path: Path) -> None:
    """A request to release that is taken back: grants are written anew, and no other program is blamed for the gap.

    Somebody had widened the container already, so that the release had nothing to write there. Counted as a repair,
    the grant would wait for its turn, and a few of these would make the agent suspect another writer, and stop.
    """
    world = World(tmp_path)
    world.engine.pods_listed({"db"})
    world.run(manifest("db"))
    for _ in range(3):
        world.tree.kernel_write(world.path("db", "app"), "cpuset.cpus", "0-7")
        world.engine.release()
        written = [each.write for each in world.engine.reconcile()]
        at = world.path("db", "app"), "cpuset.cpus"
        assert [each.cause for each in written if (each.path, each.file) == at] == [Cause.GRANT]
        assert world.effective("db") == "1-2"
    assert not world.engine.snapshot.yields


def test_s17_a_release_of_unreadable_cgroups_is_no_release(tmp_path: Path) -> None:
    """Nothing is put back, and whoever asked is told so; once they can be read, the same request does it."""
    world = World(tmp_path)
    world.engine.pods_listed({"db"})
    world.run(manifest("db", created=1))
    file = Path(f"{world.cgroups.mounts.cpuset}{world.path('db', 'app')}/cpuset.cpus")
    text = file.read_text("ascii")
    file.write_text("1-banana\n", "ascii")
    with pytest.raises(HostError, match="banana"):
        world.engine.release()
    file.write_text(text, "ascii")
    assert world.effective("db") == "1-2"
    world.engine.release()
    assert world.effective("db") == "0-7"


def test_unreadable_cgroups_stop_enforcement_not_the_agent(tmp_path: Path) -> None:
    """A tree that cannot be read is told once, and enforced as soon as it can be."""
    world = World(tmp_path)
    world.engine.pods_listed({"db"})
    world.run(manifest("db"))
    file = Path(f"{world.cgroups.mounts.cpuset}{world.path('db', 'app')}/cpuset.cpus")
    text = file.read_text("ascii")
    file.write_text("1-banana\n", "ascii")
    world.engine.reconcile()
    world.engine.reconcile()
    assert [what for what, _ in world.ears.problems] == ["cgroups"]
    assert "banana" in world.engine.snapshot.broken
    file.write_text(text, "ascii")
    world.engine.reconcile()
    assert world.engine.snapshot.broken == ""


def test_a_cpu_that_goes_offline_is_lost_and_told(tmp_path: Path) -> None:
    """The grant keeps its other CPU, nothing is placed anew, the pod's record says why it is not aligned."""
    world = World(tmp_path)
    world.engine.pods_listed({"db", "idle"})
    world.run(manifest("db"))
    world.run(manifest("idle", created=1))
    smaller = parse_synthetic("2 sockets x 1 node x 4 cores x 1 thread, offline 2")
    world.tree.online(smaller.online)
    before = world.holds("idle")
    carried = world.engine.changed(world.node(smaller))
    assert (world.holds("db"), world.holds("idle")) == ("1", before)
    assert [loss.uid for loss in carried.losses] == ["db"]
    assert "2" in world.engine.ledger.pods["db"].why["app"]
    assert ("lost" in {what for what, _ in world.ears.problems}) is True
    world.machine = smaller
    world.check()


def test_a_change_of_settings_moves_no_running_pod(tmp_path: Path) -> None:
    """Reserving CPUs that a pod holds leaves them with it until it ends; new pods keep off them."""
    world = World(tmp_path)
    world.engine.pods_listed({"db", "new"})
    world.run(manifest("db"))
    world.engine.changed(world.node(reservedSystemCPUs="0-2", kubeReserved={}))
    assert (world.holds("db"), world.effective("db")) == ("1-2", "1-2")
    world.see(manifest("new", container(cpu="1"), created=1))
    assert world.holds("new") == "3"
    world.end("db")
    world.engine.pods_gone(["db"])
    assert str(world.engine.ledger.cpus.shared) == "0-2,4-7"
    world.check()


def test_s17_release_unbinds_memory_too(tmp_path: Path) -> None:
    """A container that keeps cpuset.mems would be killed for memory that other nodes have, long after we left."""
    static = {"memoryManagerPolicy": "Static", "reservedMemory": [{"numaNode": 0, "limits": {"memory": "100Mi"}}]}
    world = World(tmp_path, settings=static)
    world.engine.pods_listed({"db"})
    world.see(manifest("db"))
    world.tree.add_pod("db", Qos.GUARANTEED)
    world.tree.add_container("db", container_id("db", "app"), processes=0)  # else the kernel empties no set
    world.engine.containers_seen({container_id("db", "app"): ("db", "app")})

    def mems() -> str:
        return next(
            str(each.mems) for each in world.cgroups.observe().cgroups if each.path == world.path("db", "app")
        )

    assert mems() == "0"
    world.engine.release()
    assert mems() == "", "on v2 an empty set is the parent's"
