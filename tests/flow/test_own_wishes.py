"""A pod's own wish binds its memory only where the kernel says that its limit fits, whatever the defaults.

Finding 16.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from agent.errors import SysfsMalformedError
from agent.kube import pod_report as report
from tests.flow.world import World, container, manifest

GIB = 1 << 30
MACHINE = "2 sockets x 1 node x 4 cores x 1 thread, 8G per node"
STATIC = {"memoryManagerPolicy": "Static", "reservedMemory": [{"numaNode": 0, "limits": {"memory": "100Mi"}}]}


class Kernel:
    """What the nodes' meminfo says: bytes that can be had, or why it cannot be read."""

    def __init__(self, *room: int) -> None:
        self.bytes, self.broken = dict(enumerate(room)), ""

    def room(self, nodes: Iterable[int]) -> Mapping[int, int]:
        """As NodeMemory.room."""
        if self.broken:
            raise SysfsMalformedError("/sys/devices/system/node/node0/meminfo", self.broken)
        return {node: self.bytes[node] for node in nodes}


def world(folder: Path, kernel: Kernel, **settings: Any) -> World:  # noqa: ANN401 - a document's values
    """A node with the default settings, listed and empty."""
    made = World(folder, machine=MACHINE, settings=settings, room=kernel.room)
    made.engine.pods_listed(set())
    return made


def hog(limit: str = "7Gi", name: str = "hog", created: int = 0) -> dict[str, Any]:
    """A Burstable pod that asks for 1 MiB, may use much more, and wishes it all on one node."""
    resources = {"requests": {"cpu": "100m", "memory": "1Mi"}, "limits": {"memory": limit} if limit else {}}
    return manifest(name, {"name": "app", "image": "x", "resources": resources}, created=created, align="numa,memory")


def mems(of: World, uid: str = "hog") -> str:
    """The memory nodes of its container, as its cgroup says."""
    return next(str(each.mems) for each in of.cgroups.observe().cgroups if each.path == of.path(uid, "app"))


def told(of: World, uid: str = "hog") -> str:
    """What the pod carries."""
    found = report.admitted(uid, of.engine.ledger, of.machine)
    return f"{found.status} {found.annotations[report.ASSIGNMENT]}"


def test_a_full_node_is_bound_by_nobodys_annotation(tmp_path: Path) -> None:
    """By default settings: the CPUs are confined, cpuset.mems stays alone, and the pod says why."""
    node = world(tmp_path, Kernel(0, 0))
    node.run(hog())
    assert (mems(node), node.effective("hog")) == ("", "0-3")
    assert "False" in told(node)
    assert "its memory is not bound: pods bound to NUMA node 0 would need 7516192768 bytes" in told(node)


def test_the_limit_counts_not_the_request(tmp_path: Path) -> None:
    """1 MiB would fit, 7 GiB do not by a byte; a second pod's limit is added to the first one's."""
    kernel = Kernel(7 * GIB - 1, 0)
    node = world(tmp_path, kernel)
    node.run(hog())
    assert mems(node) == ""
    kernel.bytes = {0: 7 * GIB, 1: 0}
    node.run(hog(name="fits", created=1))
    assert mems(node, "fits") == "0"
    node.run(hog("1Gi", name="beside", created=2))
    assert mems(node, "beside") == "", "what the first may still touch is promised"


@pytest.mark.parametrize("choice", ["open", "widen"])
def test_where_the_check_cannot_be_made_nothing_is_bound(tmp_path: Path, choice: str) -> None:
    """An unreadable meminfo is no permission, and the pod says that."""
    kernel = Kernel(8 * GIB, 8 * GIB)
    kernel.broken = "it has no number of kB for MemFree"
    node = world(tmp_path, kernel, onMemoryShortage=choice)
    node.run(hog("1Gi"))
    assert mems(node) == ""
    assert "what the NUMA nodes really have cannot be read" in told(node)
    assert any("no pod's by its own wish" in text for _, text in node.ears.problems)


def test_a_container_without_a_limit_binds_nothing(tmp_path: Path) -> None:
    """Memory is bound only where it fits (S7): its container may use all there is, so no node has room for it."""
    node = world(tmp_path, Kernel(8 * GIB, 8 * GIB))
    node.run(hog(""))
    assert mems(node) == ""
    body = hog("1Gi", name="two")
    body["spec"]["containers"].append({"name": "free", "image": "x"})
    node.run(body)
    assert mems(node, "two") == "", "one container with a limit, one without"


def test_a_limit_that_grows_beyond_the_node_unbinds(tmp_path: Path) -> None:
    """Resized in place from 1 to 7 GiB on a node with 2: the kernel may use the other nodes again, pages stay put."""
    kernel = Kernel(2 * GIB, 8 * GIB)
    node = world(tmp_path, kernel)
    node.run(hog("1Gi"))
    assert mems(node) == "0"
    node.see(hog("2Gi"))
    assert mems(node) == "0"
    node.see(hog("7Gi"))
    assert mems(node) == "0-1"
    assert "its memory is not bound" in told(node)
    node.engine.reconcile()
    assert mems(node) == "0-1"


def test_pages_are_moved_to_no_full_node_by_a_pods_own_wish(tmp_path: Path) -> None:
    """Under Static and onMemoryShortage open, move-memory of a pod that ran is held against the kernel, too."""
    kernel = Kernel(0, 0)
    node = world(tmp_path, kernel, **STATIC)
    node.see(manifest("old", move_memory="true"), ran=["old"])
    node.start("old")
    assert mems(node, "old") == ""
    node.run(manifest("granted", container(), created=1))
    assert mems(node, "granted") == "1", "what the node's own policy grants is the node's own choice"


def test_an_unbound_pod_keeps_no_memory_from_others(tmp_path: Path) -> None:
    """The memory manager grants the node to a Guaranteed pod where a wish for the same bytes was not followed."""
    node = world(tmp_path, Kernel(0, 0), topologyManagerPolicy="single-numa-node", **STATIC)
    node.run(hog("7Gi"))
    node.run(hog("7Gi", name="hog2", created=1))
    node.run(manifest("db", container(memory="4Gi"), created=2))
    assert "db" not in node.ears.refused_


def test_what_a_wish_may_use_beyond_its_request_keeps_nobody_out(tmp_path: Path) -> None:
    """The scheduler counted 1 MiB, so a Guaranteed pod is not refused for 7 GiB: the latest such wish yields."""
    node = world(tmp_path, Kernel(8 * GIB, 8 * GIB), topologyManagerPolicy="single-numa-node", **STATIC)
    node.run(hog("7Gi", name="first"))
    node.run(hog("7Gi", name="second", created=1))
    assert (mems(node, "first"), mems(node, "second")) == ("0", "1")
    node.ears.admitted_.clear()
    node.run(manifest("db", container(memory="4Gi"), created=2))
    assert "db" not in node.ears.refused_
    assert (mems(node, "db"), mems(node, "first"), mems(node, "second")) == ("1", "0", "0-1")
    assert "another pod needs what it may use beyond its request" in told(node, "second")
    assert "second" in node.ears.admitted_, "it is told"
    node.run(manifest("huge", container(memory="9Gi"), created=3))
    assert (mems(node, "first"), "huge" in node.ears.refused_) == ("0", True), "nobody yields to what cannot be"


def test_no_more_wishes_yield_than_must(tmp_path: Path) -> None:
    """Two have room on node 1 beyond their requests: the latest is left unbound, which is enough, and no other."""
    node = world(tmp_path, Kernel(8 * GIB, 8 * GIB), topologyManagerPolicy="single-numa-node", **STATIC)
    for number, (uid, limit) in enumerate((("first", "7Gi"), ("second", "3Gi"), ("third", "3Gi"))):
        node.run(hog(limit, name=uid, created=number))
    assert [mems(node, uid) for uid in ("first", "second", "third")] == ["0", "1", "1"]
    node.run(manifest("db", container(memory="4Gi"), created=3))
    assert [mems(node, uid) for uid in ("first", "second", "third", "db")] == ["0", "1", "0-1", "1"]


def test_a_wish_within_its_request_yields_to_nobody(tmp_path: Path) -> None:
    """Memory that a pod requests is counted by the scheduler: it stays bound, and the other is refused."""
    node = world(tmp_path, Kernel(8 * GIB, 8 * GIB), topologyManagerPolicy="single-numa-node", **STATIC)
    for number, uid in enumerate(("first", "second")):
        body = hog("7Gi", name=uid, created=number)
        body["spec"]["containers"][0]["resources"]["requests"]["memory"] = "7Gi"
        node.run(body)
    node.run(manifest("db", container(memory="4Gi"), created=2))
    assert "db" in node.ears.refused_
    assert (mems(node, "first"), mems(node, "second")) == ("0", "1")


NODES, USABLE = 4, 15
FOUR = "2 sockets x 2 nodes x 4 cores x 1 thread"


def kept(name: str, milli: int, created: int) -> dict[str, Any]:
    """A Burstable pod that asks for so many thousandths of a CPU, and to be kept on few nodes."""
    app = {"name": "app", "image": "x", "resources": {"requests": {"cpu": f"{milli}m"}}}
    return manifest(name, app, created=created, align="numa")


def fit(world: World) -> int:
    """So many Guaranteed pods of one CPU get it, until one is refused."""
    for number in count():
        name = f"g{number}"
        world.see(manifest(name, container(cpu="1"), created=200 + number))
        if name in world.ears.refused_:
            return number
    raise AssertionError


@pytest.mark.parametrize(
    ("pods", "milli", "free"),
    [(110, 1, 14), (1, 1001, 13), (10, 700, 7), (9, 1500, 1), (4, 2100, 3)],
    ids=["many small ones", "one", "the rest of each node is cut", "nearly all", "more than half of each node"],
)
def test_so_many_cpus_are_kept_back_and_no_more(tmp_path: Path, pods: int, milli: int, free: int) -> None:
    """However many ask, and for however little: at most one CPU more per node than they ask for is kept back."""
    world = World(tmp_path, machine=FOUR)
    world.engine.pods_listed(set())
    for number in range(pods):
        world.see(kept(f"k{number}", milli, number))
    assert len(world.engine.ledger.cpus.confined) == pods, "all of them count"
    found = fit(world)
    assert found == free
    assert found >= USABLE - pods * milli / 1000 - NODES


def test_cpus_that_were_kept_back_are_had_when_their_pods_are_gone(tmp_path: Path) -> None:
    """The pod that was refused for them gets them; nothing of them is forgotten in the books."""
    world = World(tmp_path, machine=FOUR)
    world.engine.pods_listed(set())
    world.run(kept("k", 100, 1))
    assert fit(world) == USABLE - 1
    world.end("k")
    world.engine.pods_gone(["k"])
    assert world.holds(f"g{USABLE - 1}")
