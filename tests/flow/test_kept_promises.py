"""Promises that no other test would miss: an unsaved ledger is not enforced; who ran before stays adopted (S4)."""

from __future__ import annotations

from pathlib import Path

from agent.host.standin import container_id
from agent.model.cgroup import Observed
from agent.model.idset import CpuSet
from tests.flow.test_one_pod_alone import failing
from tests.flow.world import MemoryStore, World, container, manifest

MEMORY = {"memoryManagerPolicy": "Static", "reservedMemory": [{"numaNode": 0, "limits": {"memory": "100Mi"}}]}


def test_an_adopted_ledger_that_cannot_be_saved_is_not_written(tmp_path: Path) -> None:
    """The checkpoint is lost, the disk is full: what was read out of the cgroups is kept in mind, and no more."""
    first = World(tmp_path / "tree")
    first.engine.pods_listed({"db"})
    first.run(manifest("db", container(cpu="2"), created=1))
    full = World(tmp_path / "tree", store=MemoryStore(full="no space left"), pods=first.pods.values())
    assert full.holds("db") == first.holds("db")
    full.engine.pods_listed({"db"})
    full.tree.kernel_write(full.path("db", "app"), "cpuset.cpus", "5")
    full.engine.reconcile()
    assert full.ears.written_ == []
    full.store.full = ""
    full.engine.reconcile()
    assert full.effective("db") == full.holds("db")


def test_what_changes_while_the_disk_is_full_is_enforced_once_it_is_saved(tmp_path: Path) -> None:
    """The new one stands, since the old one may be of another machine; nothing is written before it is saved."""
    world = World(tmp_path / "tree")
    world.engine.pods_listed({"web", "db"})
    world.run(manifest("web", container(cpu="", memory=""), created=1))
    world.run(manifest("db", container(cpu="2"), created=2))
    world.store.full = "no space left"
    before = len(world.ears.written_)
    world.engine.changed(world.node(cpuManagerPolicyOptions={"strict-cpu-reservation": "true"}))
    assert world.engine.ledger.cpus.shared == CpuSet.parse("3-7")
    world.engine.reconcile()
    assert len(world.ears.written_) == before
    world.store.full = ""
    world.engine.reconcile()
    assert world.store.saved == world.engine.ledger
    assert world.effective("web") == str(world.engine.ledger.cpus.shared)


def test_s4_memory_is_moved_where_the_pod_asks_for_it(tmp_path: Path) -> None:
    """numalign.io/move-memory: a container with pages on the wrong node is bound all the same."""
    world = World(tmp_path, settings=MEMORY)
    world.engine.pods_listed({"db"})
    world.see(manifest("db", move_memory="true"))
    number = container_id("db", "app")
    world.tree.add_pod("db", world.pods["db"].qos)
    path = world.tree.add_container("db", number)
    world.tree.put_pages(path, {1: 8 << 20})
    world.engine.containers_seen({number: ("db", "app")})
    (cgroup,) = [each for each in world.cgroups.observe().cgroups if each.container_id == number]
    assert str(cgroup.mems) == "0"
    assert world.condition("db") == "True Aligned"


def test_s4_a_pod_that_ran_before_the_agent_is_never_refused_when_it_changes(tmp_path: Path) -> None:
    """It changes long after it was adopted, to what cannot be had: it runs on, and nothing is done to it."""
    world = World(tmp_path)
    world.engine.pods_listed({"big"})
    world.see(manifest("big", container(cpu="9"), created=1, on_misalignment="fail"), ran=["big"])
    assert "big" in world.engine.ledger.pods
    world.see(manifest("big", container(cpu="10"), created=1, on_misalignment="fail", policy="restricted"))
    assert "big" in world.engine.ledger.pods, "one that is refused and to fail is in no book"


def test_s4_a_pod_that_is_not_pinned_since_it_ran_before_stays_so_when_it_changes(tmp_path: Path) -> None:
    """With pinAdopted off, another annotation is, days later, no reason to move what runs."""
    world = World(tmp_path, pin_adopted=False)
    world.engine.pods_listed({"old"})
    world.see(manifest("old", created=1), ran=["old"])
    world.start("old")
    everywhere = world.effective("old")
    world.see(manifest("old", created=1, policy="restricted"))
    assert (world.holds("old"), world.effective("old")) == ("", everywhere)


def test_s4_a_pod_that_ran_before_and_was_set_aside_is_never_refused_either(tmp_path: Path) -> None:
    """The agent met a fault of its own with it; when the pod changes, it is decided on as one that ran before."""
    world = World(tmp_path, exempt=failing("big"))
    world.engine.pods_listed({"big"})
    world.see(manifest("big", container(cpu="9"), created=1, policy="restricted"), ran=["big"])
    assert "set aside" in world.ears.problems[-1][1]
    world.see(manifest("big", container(cpu="9"), created=1, on_misalignment="fail"))
    assert "big" in world.engine.ledger.pods, "one that is refused and to fail is in no book"


def test_s7_memory_is_not_bound_where_one_container_has_no_limit(tmp_path: Path) -> None:
    """It may use any amount: on one node's memory the kernel would end processes while another node has plenty."""
    world = World(tmp_path)
    world.engine.pods_listed({"web"})
    free = {"name": "free", "image": "example.com/x", "resources": {"requests": {"cpu": "100m", "memory": "1Mi"}}}
    world.run(manifest("web", container(cpu="500m"), free, align="numa,memory"))
    assert "memory is not bound: not every container has a limit" in world.report("web").message
    assert {str(each.mems) for each in world.cgroups.observe().cgroups if each.pod_uid == "web"} == {""}


def test_cpus_of_its_sockets_are_aligned_for_a_pod_that_asks_for_that(tmp_path: Path) -> None:
    """Its own align-by-socket counts, not the node's: who got what it asked for is not told that it did not."""
    world = World(
        tmp_path, machine="1 socket x 2 nodes x 2 cores x 2 threads",
        settings={**MEMORY, "topologyManagerPolicy": "restricted"},
    )  # fmt: skip
    world.engine.pods_listed({"one", "three"})
    world.run(manifest("one", container(cpu="1"), created=1, cpu_options="align-by-socket=true"))
    world.run(manifest("three", container(cpu="3"), created=2, cpu_options="align-by-socket=true"))
    affinity = world.engine.ledger.pods["three"].affinity["app"].nodes
    assert affinity is not None
    assert not CpuSet.parse(world.holds("three")).issubset(world.machine.cpus_of(affinity))
    assert world.condition("three") == "True Aligned"


def test_a_refusal_counts_the_cpus_on_cores_without_a_reserved_one(tmp_path: Path) -> None:
    """full-pcpus-only: CPU 4 shares its core with the reserved CPU 0: three are left, as the kubelet counts."""
    world = World(
        tmp_path, machine="2 sockets x 1 node x 2 cores x 2 threads",
        settings={"reservedSystemCPUs": "0", "topologyManagerPolicy": "best-effort"},
    )  # fmt: skip
    world.engine.pods_listed({"first", "other", "whole"})
    world.run(manifest("first", container(cpu="1"), created=1))
    world.run(manifest("other", container(cpu="3"), created=2))
    assert (world.holds("first"), world.holds("other")) == ("4", "2-3,6")
    world.end("first")
    world.engine.pods_gone(["first"])
    asks = "full-pcpus-only=true"
    world.see(manifest("whole", container(cpu="4"), created=3, on_misalignment="fail", cpu_options=asks))
    assert "available physical CPUs = 3, requested CPUs = 4" in world.ears.refused_["whole"].message


def test_a_container_that_is_named_again_costs_no_look_at_the_tree(tmp_path: Path) -> None:
    """The API tells of every container with each change of its pod's status: on a full node that is all day long."""
    world = World(tmp_path)
    world.engine.pods_listed({"db"})
    world.run(manifest("db", container(cpu="2"), created=1))
    world.engine.reconcile()
    looks: list[int] = []
    observe = world.cgroups.observe

    def counted() -> Observed:
        looks.append(1)
        return observe()

    world.cgroups.observe = counted  # type: ignore[method-assign] # how often it is read
    world.engine.containers_seen({container_id("db", "app"): ("db", "app")})
    assert looks == []
    world.engine.containers_seen({"5d" * 32: ("db", "app")})
    assert looks == [1]
