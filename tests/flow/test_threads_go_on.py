"""A fault that nothing expects is told, and the thread goes on with what comes next, whichever it is.

Finding 1.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import pytest

from agent.app.cluster.build import cluster_node
from agent.app.cluster.topology_loop import TopologyLoop
from agent.app.service.machine_watch import MachineWatch
from agent.errors import HostError, KubeError
from agent.host import udev
from agent.host.cgroups.watching import Changes, Watcher
from agent.host.manifests import Follower
from agent.host.nri import mux, nri_pb2
from agent.host.nri.plugin import Plugin
from agent.host.nri.values import Adjustment, RuntimeContainer, Sandbox
from agent.host.udev import Hotplug, Uevent
from agent.kube.pod_report import PodReport
from agent.kube.publishing.publisher import Publisher
from agent.kube.topology_crd import TopologyPublisher
from agent.model.cgroup import Cause, Write
from agent.node.state import State
from tests.flow.cluster_node import ClusterNode, StandInApi, edges_of, page, running
from tests.flow.told import Api
from tests.flow.world import World, container, manifest
from tests.nri.handlers import Recorder
from tests.nri.test_frames import PATIENT, Nonsense, ask, quick
from tests.patience import PATIENCE, until


@pytest.fixture(autouse=True)
def ended(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Threads that an exception ended: none, at the end of each test."""
    found: list[str] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: found.append(f"{args.thread}: {args.exc_value}"))
    yield found
    assert found == []


class Deaf(Hotplug):
    """A source of events that is ready all the time and cannot be read."""

    def __init__(self, error: Exception) -> None:
        self.error, self.asked = error, 0
        self._mine, self._theirs = socket.socketpair()
        self._theirs.send(b".")

    def fileno(self) -> int:
        return self._mine.fileno()

    def drain(self) -> tuple[Uevent, ...]:
        self.asked += 1
        raise self.error

    def close(self) -> None:
        """Both ends."""
        self._mine.close()
        self._theirs.close()


@pytest.mark.parametrize("error", [HostError("udev", "no longer tells"), ValueError("of a kind nobody expects")])
def test_hot_plug_events_that_cannot_be_read_are_left(error: Exception) -> None:
    """Asked once and not in a loop, told once; the machine is looked at now and then from there on."""
    source, told = Deaf(error), list[str]()
    watch = MachineWatch(None, lambda: None, told.append, listen=lambda: source, again=0.01)
    watch.start()
    until(lambda: watch.seen >= 5, "five looks at the machine")
    watch.stop()
    source.close()
    assert source.asked == 1
    assert len(told) == 1
    assert "is read again every" in told[0]


class Storm:
    """libudev, with a socket on which events never stop."""

    Monitor = property(lambda self: self)

    def from_netlink(self, _context: None, source: str) -> Self:
        assert source == "kernel"
        return self

    def filter_by(self, subsystem: str) -> None:
        """All that comes is of one that is asked for."""

    def start(self) -> None:
        """It has begun."""

    def poll(self, timeout: float) -> Any:  # noqa: ANN401 - pyudev ships no types
        assert timeout == 0
        return type("Device", (), {"action": "change", "subsystem": "cpu", "device_path": "/x"})


def test_a_storm_of_hot_plug_events_is_taken_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many come, one reading ends."""
    monkeypatch.setattr(udev, "_pyudev", lambda: (Storm(), None))
    assert 0 < len(Hotplug().drain()) <= 1000


def test_a_fault_of_whoever_hears_of_cgroups_ends_no_watch(tmp_path: Path) -> None:
    """The first word on a new cgroup goes wrong: told as a problem, and all of it is told again."""
    world = World(tmp_path)
    world.engine.pods_listed(set())
    problems: list[str] = []
    paths: set[str] = set()
    wrong = threading.Event()

    def told(changes: Changes) -> None:
        if wrong.is_set():
            wrong.clear()
            raise ZeroDivisionError("of a kind that nobody expects")
        paths.update(each.path for each in changes.appeared)

    watcher = Watcher(world.cgroups.mounts, told, rescan=0.1, problem=problems.append)
    watcher.start()
    try:
        wrong.set()
        world.run(manifest("db", container(cpu="1"), created=1))
        until(lambda: not wrong.is_set(), "the fault")
        world.run(manifest("web", container(cpu="1"), created=2))
        until(lambda: world.path("web", "app") in paths, "the next container")
    finally:
        watcher.close()
    assert len(problems) == 1
    assert "ZeroDivisionError" in problems[0]


def test_a_fault_of_whoever_follows_manifests_ends_no_watch(tmp_path: Path) -> None:
    """The first change goes wrong, the next one is told."""
    seen: list[int] = []

    def changed() -> None:
        seen.append(len(seen))
        if len(seen) == 1:
            raise ZeroDivisionError

    follower = Follower(tmp_path, changed, rescan=0.1)
    follower.start()
    until(lambda: len(seen) >= 3, "three looks")
    follower.stop()


def test_topology_that_cannot_be_put_together_is_tried_again(tmp_path: Path) -> None:
    """Told once; published when it can be."""
    world, api, problems = World(tmp_path), Api(), list[str]()
    broken = threading.Event()
    broken.set()

    def snapshot() -> State:
        if broken.is_set():
            raise ZeroDivisionError("of a kind that nobody expects")
        return world.engine.snapshot

    loop = TopologyLoop(
        TopologyPublisher(api), "n1", snapshot=snapshot, node_uid=lambda: "u",
        enforcing=lambda: True, problem=problems.append, every=0.01,
    )  # fmt: skip
    before = set(threading.enumerate())
    loop.start()
    until(lambda: bool(problems), "the fault is told")
    broken.clear()
    until(lambda: bool(api.requests), "it is published")
    loop.stop(PATIENCE)
    assert set(threading.enumerate()) <= before, "asked to stop, it ends: an agent that ends waits for it"
    assert len([each for each in problems if "ZeroDivisionError" in each]) == 1


def test_a_look_at_a_pod_that_goes_wrong_ends_no_publisher() -> None:
    """Refused, and the question whether the pod is there fails in its own way: tried again, and the next told."""
    api = Api()
    now = [1000.0]

    def answer(method: str, path: str, _body: object) -> Mapping[str, Any]:
        if "/odd" not in path:
            return {}
        if method == "PATCH":
            raise KubeError(409, "conflict")
        raise ZeroDivisionError("of a kind that nobody expects")

    api.answer = answer
    publisher = Publisher(api, "n1", clock=lambda: now[0])
    for name in ("odd", "good"):
        publisher.publish(PodReport(name, "ns", name, {"numalign.io/cpus": "1"}, "True", "Aligned", "1"))
    for _ in range(20):
        now[0] += publisher.turn() or 0.0
    assert publisher.waiting == 1, "the odd one waits for its next try"
    assert api.condition("good")["reason"] == "Aligned"


def test_a_write_that_goes_wrong_oddly_is_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write of memory nodes fails with no word of the kernel: told as its error, and no thread ends by it."""
    world = World(tmp_path)
    world.engine.pods_listed(set())
    world.run(manifest("db", container(cpu="2"), created=1))
    write = Write(world.path("db", "app"), "cpuset.mems", "0", "", Cause.GRANT)

    def odd(*_: object) -> None:
        raise ZeroDivisionError("of a kind that nobody expects")

    monkeypatch.setattr("agent.host.scratch.kernel.ScratchKernel.write", odd)
    (written,) = world.cgroups.apply((write,))
    assert "ZeroDivisionError" in written.error


def test_a_fault_in_the_loops_own_work_ends_no_agent(tmp_path: Path) -> None:
    """The main thread puts a set right and stumbles: told and counted, and the next set is put right as ever."""
    node = ClusterNode(tmp_path)
    world = node.world
    world.run(manifest("db", container(cpu="2"), created=1))
    node.keep()
    wrong = threading.Event()

    def steps(name: str) -> None:
        if name == "tell" and wrong.is_set():
            wrong.clear()
            raise ZeroDivisionError("of a kind that nobody expects")

    held = world.effective("db")
    with node.serving(steps=steps) as agent:
        wrong.set()
        for _ in range(2):
            world.tree.kernel_write(world.path("db", "app"), "cpuset.cpus", "0-7")
            until(lambda: world.effective("db") == held, "the set is put right")
            until(lambda: not wrong.is_set(), "the fault")
        assert agent.health.live()[0]
        assert 'numalign_problems_total{what="host"} 1.0' in page(agent, "/metrics")[1]


class OddApi(StandInApi):
    """Answers some questions with what no API server says."""

    odd: Mapping[str, bytes] = {}

    def answer(self, path: str) -> tuple[int, dict[str, Any] | bytes]:
        """See StandInApi."""
        found = next((body for part, body in self.odd.items() if part in path), None)
        return super().answer(path) if found is None else (200, found)


ODD = [
    b"[]", b"null", b"{", b"\xff", b'{"items": 7}', b'{"items": [7, null, {}, {"metadata": 7}]}',
    b'{"metadata": [], "spec": 7, "status": "x"}', b'{"status": {"capacity": [], "allocatable": {"cpu": {}}}}',
]  # fmt: skip


@pytest.mark.parametrize("body", ODD, ids=lambda body: body.decode("latin-1"))
@pytest.mark.parametrize("asked", ["/nodes/", "/pods", "/namespaces/"])
def test_an_odd_answer_at_the_start_ends_no_start(tmp_path: Path, asked: str, body: bytes) -> None:
    """The agent is made, and its thread that asks ends by itself: what runs stays on its CPUs."""
    node = ClusterNode(tmp_path)
    web = manifest("web", container(cpu="2"), created=1)
    node.world.run(web)
    node.keep()
    held = node.world.effective("web")
    with OddApi(pods=[running(web)]) as api:
        api.odd = {asked: body}
        with cluster_node(node.options(api.url)) as agent:
            agent.engine.reconcile()
            assert node.world.effective("web") == held


@pytest.mark.parametrize("body", ODD, ids=lambda body: body.decode("latin-1"))
def test_an_odd_answer_about_one_pod_ends_no_asking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: bytes
) -> None:
    """The runtime starts a pod of which the API server says nonsense; the next one is found."""
    node = ClusterNode(tmp_path)
    node.keep()
    good = running(manifest("good", container(cpu="1"), created=1))
    with OddApi() as api:
        api.odd = {"/pods/odd": body, "/pods/good": json.dumps(good).encode()}
        with cluster_node(node.options(api.url)) as agent:
            assert edges_of(agent).find("default", "odd", "odd") is None
            monkeypatch.setattr("agent.app.cluster.find_pod.FIND_WITHIN", PATIENCE)
            found = edges_of(agent).find("default", "good", "good")
            assert found is not None
            assert found.uid == "good"


PLUGIN = "nri.pkg.api.v1alpha1.Plugin"


def chunk(*ids: str, more: bool = False) -> bytes:
    """A part of what the runtime has."""
    pods = [nri_pb2.PodSandbox(id=each, uid=each) for each in ids]
    return nri_pb2.SynchronizeRequest(pods=pods, more=more).SerializeToString()


@pytest.mark.parametrize(
    "parts",
    [[chunk("a", "b", more=True), chunk("c", "d", more=True), chunk("e")], [b"\xff\xff\xff", chunk("e")]],
    ids=["too-many", "malformed"],
)
def test_a_part_of_what_runs_is_not_taken_for_all_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parts: list[bytes]
) -> None:
    """More than can be, or one part that cannot be read: whoever is not named would be nobody's: nothing is told.

    Finding 30.
    """
    monkeypatch.setattr("agent.host.nri.session.MOST_SYNCHRONIZED", 3)
    handler, good = Recorder(), nri_pb2.PodRequest(pod=nri_pb2.PodSandbox(id="s", uid="u")).SerializeToString()
    asked = [ask(1 + 2 * n, PLUGIN, "Synchronize", part) for n, part in enumerate(parts)]
    server = Nonsense(tmp_path / "s", [*asked, ask(99, PLUGIN, "RunPodSandbox", good)])
    plugin = Plugin(str(tmp_path / "s"), handler, delays=quick, identity=PATIENT)
    plugin.start()
    until(lambda: len(server.answers) == len(parts) + 1, "all answers")
    assert [name for name, _ in handler.seen] == ["run"]
    assert plugin.connected
    assert plugin.stop(PATIENCE)
    server.stop()


SERVICE = "nri.pkg.api.v1alpha1.Plugin"
GOOD = nri_pb2.PodRequest(pod=nri_pb2.PodSandbox(id="s", uid="u")).SerializeToString()
EMPTY = nri_pb2.SynchronizeRequest().SerializeToString()


class Failing(Recorder):
    """Cannot take in what runs."""

    def synchronize(
        self, sandboxes: tuple[Sandbox, ...], containers: tuple[RuntimeContainer, ...]
    ) -> Mapping[str, Adjustment]:
        raise ZeroDivisionError("of a kind that nobody expects")


@pytest.mark.parametrize(("handler", "picture"), [(Failing(), EMPTY), (Recorder(), b"\xff\xff\xff")])
def test_a_picture_that_cannot_be_taken_in_leaves_us_connected(
    tmp_path: Path, handler: Recorder, picture: bytes
) -> None:
    """The runtime counts us in and asks us of the next pod: so we are connected, and we answer (finding 30)."""
    parts = [ask(1, SERVICE, "Synchronize", picture), ask(3, SERVICE, "RunPodSandbox", GOOD)]
    server = Nonsense(tmp_path / "s", parts)
    plugin = Plugin(str(tmp_path / "s"), handler, delays=quick, identity=PATIENT)
    plugin.start()
    until(lambda: len(server.answers) == 2)
    assert [answer.status.code for answer in server.answers] == [0, 0]
    assert plugin.connected
    assert handler.names() == ["run"]
    assert plugin.stop(PATIENCE)
    server.stop()


def test_a_fault_in_the_handlers_last_word_ends_no_thread(tmp_path: Path) -> None:
    """The runtime goes away, and even telling that goes wrong: the plugin connects again (finding 30)."""

    class Mute(Recorder):
        def disconnected(self, why: str) -> None:
            raise ZeroDivisionError(why)

    server = Nonsense(tmp_path / "s", [mux.HEADER.pack(1, 1 << 31)])
    plugin = Plugin(str(tmp_path / "s"), Mute(), delays=quick, identity=PATIENT)
    plugin.start()
    until(lambda: server.connections > 2)
    assert plugin.stop(PATIENCE)
    server.stop()
