"""Memory that is to be bound where the node's real memory is short, through the engine (safety.md S7)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from agent.core.memory.confined import UNBOUND
from agent.errors import SysfsMalformedError
from agent.kube import pod_report as report
from agent.model.outcome import Reason
from agent.model.pod import Qos
from tests.flow.world import World, container, manifest

MIB = 1 << 20
STATIC = {"memoryManagerPolicy": "Static", "reservedMemory": [{"numaNode": 0, "limits": {"memory": "100Mi"}}]}
SHORT = "pods bound to NUMA node 0 would need 67108864 bytes of memory there, and 33554432 bytes are free"


class Kernel:
    """What the nodes' meminfo says."""

    def __init__(self) -> None:
        self.bytes, self.broken, self.looks = {0: 32 * MIB, 1: 32 * MIB}, "", 0

    def room(self, nodes: Iterable[int]) -> Mapping[int, int]:
        """As NodeMemory.room."""
        self.looks += 1
        if self.broken:
            raise SysfsMalformedError("/sys/devices/system/node/node0/meminfo", self.broken)
        return {node: self.bytes[node] for node in nodes}


@pytest.fixture
def kernel() -> Kernel:
    """32 MiB can be had on each node; a pod's grant is 64."""
    return Kernel()


def node(folder: Path, kernel: Kernel, choice: str, **settings: Any) -> World:  # noqa: ANN401 - a document's values
    """A world that asks this kernel."""
    world = World(folder, settings={**STATIC, "onMemoryShortage": choice, **settings}, room=kernel.room)
    world.engine.pods_listed(set())
    return world


def mems(world: World, uid: str) -> str:
    """The memory nodes that its container is bound to, as its cgroup says."""
    return next(str(each.mems) for each in world.cgroups.observe().cgroups if each.path == world.path(uid, "app"))


def test_s7_open_binds_by_the_books_and_asks_nobody(tmp_path: Path, kernel: Kernel) -> None:
    """The default: as without the setting, and no file of the nodes is read."""
    world = node(tmp_path, kernel, "open")
    world.run(manifest("db"))
    assert (mems(world, "db"), kernel.looks, world.engine.ledger.pods["db"].why) == ("0", 0, {})


def test_s7_widen_leaves_the_memory_unbound_and_the_pod_says_why(tmp_path: Path, kernel: Kernel) -> None:
    """CPUs and books are as under open; cpuset.mems stays alone, also when room appears, and after a restart."""
    world = node(tmp_path, kernel, "widen")
    world.run(manifest("db"))
    assert (mems(world, "db"), world.holds("db")) == ("", "1-2")
    assert world.engine.ledger.grant("db", "app").mems is not None
    told = report.admitted("db", world.engine.ledger, world.machine)
    assert f'"why":"{UNBOUND}: {SHORT}' in str(told.annotations[report.ASSIGNMENT])
    assert '"mems"' not in str(told.annotations[report.ASSIGNMENT])
    assert (told.status, told.reason) == ("False", report.NOT_ALIGNED)
    kernel.bytes[0] = 999 * MIB
    world.engine.reconcile()
    again = World(tmp_path, settings=world.settings, store=world.store, pods=world.pods.values())
    again.engine.reconcile()
    assert mems(again, "db") == ""
    assert SHORT in again.engine.ledger.pods["db"].why["app"]


def test_s7_widen_binds_what_fits(tmp_path: Path, kernel: Kernel) -> None:
    """Pods seen together do not count on the same bytes: the first is bound, the second would not fit beside it."""
    kernel.bytes[0] = 127 * MIB
    world = node(tmp_path, kernel, "widen", topologyManagerPolicy="none")
    world.see(manifest("one", container(cpu="1")), manifest("two", container(cpu="1"), created=1))
    records = world.engine.ledger.pods
    assert [records[uid].bind_memory for uid in ("one", "two")] == [True, False]
    assert kernel.looks == 1
    world.start("one")
    world.tree.put_pages(next(e.path for e in world.cgroups.observe().cgroups if e.pod_uid == "one"), {0: 64 * MIB})
    kernel.bytes[0] = 64 * MIB
    world.see(manifest("three", container(cpu="1"), created=2))
    assert world.engine.ledger.pods["three"].bind_memory, "what the first has touched counts once"


def test_s7_refuse_runs_on_the_shared_pool_unless_the_pod_wishes_otherwise(tmp_path: Path, kernel: Kernel) -> None:
    """A refusal like any other: its own reason, a sentence with node and bytes, and onMisalignment decides."""
    world = node(tmp_path, kernel, "refuse")
    world.run(manifest("db"))
    refusal = world.ears.refused_["db"]
    assert refusal.reason is Reason.MEMORY
    assert refusal.message.startswith(SHORT)
    assert (mems(world, "db"), world.holds("db")) == ("", "")
    assert SHORT in world.engine.ledger.pods["db"].why[""]
    world.see(manifest("strict", on_misalignment="fail"))
    assert "strict" in world.ears.refused_
    assert "strict" not in world.engine.ledger.pods
    world.see(manifest("shares", container(cpu="500m", memory="")))
    assert "shares" not in world.ears.refused_, "nothing of it would be bound"


def test_s7_refuse_lets_a_pod_wait_until_the_node_has_room(tmp_path: Path, kernel: Kernel) -> None:
    """It waits in line, and is let in when the kernel, not only the books, has room."""
    world = node(tmp_path, kernel, "refuse")
    world.see(manifest("db", on_misalignment="wait"))
    world.engine.let_in()
    assert world.holds("db") == ""
    kernel.bytes[0] = 64 * MIB
    world.engine.let_in()
    assert (world.holds("db"), world.ears.admitted_) == ("1-2", ["db"])
    assert world.engine.ledger.pods["db"].bind_memory


def test_s7_a_pod_that_ran_before_is_never_refused(tmp_path: Path, kernel: Kernel) -> None:
    """It asks for its memory to be moved, and the node is full: its CPUs are pinned, its memory is not bound."""
    world = node(tmp_path, kernel, "refuse")
    world.see(manifest("old", move_memory="true"), manifest("calm", created=1), ran=["old", "calm"])
    record = world.engine.ledger.pods["old"]
    assert (world.holds("old"), record.bind_memory, record.adopted) == ("1-2", False, True)
    assert SHORT in record.why["app"]
    assert world.engine.ledger.pods["calm"].why == {}, "it would not be bound in any case"


def test_s7_what_pods_that_ran_before_hold_already_is_not_asked_for_again(tmp_path: Path, kernel: Kernel) -> None:
    """Each has touched half of its grant, and the node has room for the other halves: their memory is bound."""
    kernel.bytes[0] = 64 * MIB
    world = node(tmp_path, kernel, "refuse")
    for uid in ("one", "two"):
        world.tree.put_pages(world.tree.add_pod(uid, Qos.GUARANTEED), {0: 32 * MIB})
    world.see(*(manifest(uid, container(cpu="1"), move_memory="true") for uid in ("one", "two")), ran=["one", "two"])
    for uid in ("one", "two"):
        record = world.engine.ledger.pods[uid]
        assert (record.adopted, record.bind_memory, record.why) == (True, True, {})


def test_s7_what_cannot_be_read_is_told_once_and_changes_nothing(tmp_path: Path, kernel: Kernel) -> None:
    """A malformed meminfo: one sentence with its file, memory is bound by the books; read again, it counts again."""
    world = node(tmp_path, kernel, "refuse")
    kernel.broken = "it has no number of kB for MemFree"
    for number, uid in enumerate(("one", "two")):
        world.see(manifest(uid, container(cpu="1"), created=number))
        assert world.engine.ledger.pods[uid].bind_memory
    (told,) = [text for what, text in world.ears.problems if what == "meminfo"]
    assert told.startswith("onMemoryShortage has no effect now")
    assert "node0/meminfo: it has no number" in told
    kernel.broken = ""
    world.see(manifest("three", container(cpu="1"), created=2))
    assert "three" in world.ears.refused_
