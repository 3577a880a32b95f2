"""When the kubelet is asked for devices, and what the engine is told; with the real client at the end."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agent.core.devices.kubelet import Given, Offered
from agent.engine.engine import Engine
from agent.errors import InvariantError, RuntimeLinkError
from agent.host.podresources import podresources_pb2 as pb
from agent.host.podresources.client import DevicesByContainer, HeldDevice, PodResources
from agent.host.podresources.lookup import DELAYS, RESYNC, Lookup
from agent.model.idset import NodeSet
from agent.model.podspec import pod_from
from agent.node.state import State
from agent.observe.health import Health
from agent.observe.threads import watched
from tests import patience
from tests.flow.world import World, container, manifest
from tests.patience import PATIENCE, until
from tests.podresources.test_client import Kubelet, device
from tests.world.clock import Clock

GPU = "vendor.com/gpu"
ON_ONE = HeldDevice(GPU, "g1", NodeSet.of(1))
TOLD = Offered(GPU, "g1", NodeSet.of(1))


class Client:
    """A kubelet of the test's choice, which counts what it is asked."""

    def __init__(self) -> None:
        self.pods: dict[tuple[str, str], DevicesByContainer] = {}
        self.offers: tuple[HeldDevice, ...] = ()
        self.away = ""
        self.no_get = False
        self.asked: list[str] = []

    def _ask(self, what: str) -> None:
        self.asked.append(what)
        if self.away:
            raise RuntimeLinkError(self.away)

    def list(self) -> dict[tuple[str, str], DevicesByContainer]:
        self._ask("list")
        return dict(self.pods)

    def get(self, namespace: str, name: str) -> DevicesByContainer | None:
        self._ask(f"get {namespace}/{name}")
        if self.no_get:
            raise RuntimeLinkError("podresources Get: UNKNOWN: PodResources API Get method disabled")
        return self.pods.get((namespace, name))

    def allocatable(self) -> tuple[HeldDevice, ...]:
        self._ask("allocatable")
        return self.offers


class Desk:
    """A lookup whose thread is the test."""

    def __init__(self, folder: Path) -> None:
        self.world = World(folder)
        self.world.engine.pods_listed(set())
        self.client, self.clock, self.problems = Client(), Clock(100.0), list[str]()
        self.told: list[tuple[str, Given]] = []
        self.offered: list[tuple[Offered, ...]] = []
        self.lookup = Lookup(self.client, self, problem=self.problems.append, clock=self.clock)

    @property
    def snapshot(self) -> State:
        """The engine's."""
        return self.world.engine.snapshot

    def devices_reported(self, uid: str, given: Given) -> None:
        """Note it and pass it on."""
        self.told.append((uid, given))
        self.world.engine.devices_reported(uid, given)

    def devices_offered(self, offered: tuple[Offered, ...]) -> None:
        """Note it and pass it on."""
        self.offered.append(offered)
        self.world.engine.devices_offered(offered)

    def see(self, name: str = "job", gpus: int = 1) -> None:
        """A pod is decided."""
        body = container()
        if gpus:
            body["resources"]["limits"][GPU] = str(gpus)
        self.world.see(manifest(name, body))
        self.lookup.handle("decided", name)

    def wait(self, seconds: float) -> list[str]:
        """Time passes; what the kubelet was asked meanwhile."""
        self.client.asked.clear()
        self.clock.now += seconds
        self.lookup.work()
        return list(self.client.asked)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """A lookup that has read its first listing."""
    made = Desk(tmp_path)
    assert made.wait(0) == ["allocatable", "list"]
    return made


def test_a_pod_is_asked_for_until_the_kubelet_knows(desk: Desk) -> None:
    """The first Get is too early; the second brings the device; then there is nothing more to ask."""
    desk.see()
    assert desk.wait(DELAYS[0]) == ["get default/job"]
    assert desk.told == []
    desk.client.pods["default", "job"] = {"app": (ON_ONE,)}
    assert desk.wait(DELAYS[1]) == ["get default/job"]
    assert desk.told == [("job", {"app": (TOLD,)})]
    assert desk.world.holds("job") == "4-5"
    desk.lookup.handle("decided", "job")
    assert desk.wait(5.0) == []


def test_a_pod_that_is_about_to_start_is_asked_for_at_once(desk: Desk) -> None:
    """Its sandbox comes after the kubelet's allocation: whatever the next turn would be, it is now."""
    desk.see()
    for delay in DELAYS[:5]:
        desk.wait(delay)
    desk.client.pods["default", "job"] = {"app": (ON_ONE,)}
    assert desk.wait(0) == []
    desk.lookup.handle("starting", "job")
    assert desk.wait(0) == ["get default/job"]
    assert len(desk.told) == 1
    desk.lookup.handle("starting", "job")
    assert desk.wait(5.0) == []


def test_a_pod_that_is_about_to_start_takes_no_other_ones_turn(desk: Desk) -> None:
    """Each is asked for once a turn: who starts is not asked for twice, and who waits is not lost."""
    desk.see()
    desk.see("other")
    desk.lookup.handle("starting", "job")
    assert desk.wait(0) == ["get default/job"]
    assert sorted(desk.wait(max(DELAYS[:2]))) == ["get default/job", "get default/other"]


def test_half_an_answer_is_told_and_the_rest_is_asked_for(desk: Desk) -> None:
    """One of two devices is known: it counts, and the pod is asked for again."""
    desk.see(gpus=2)
    desk.client.pods["default", "job"] = {"app": (ON_ONE,)}
    desk.wait(DELAYS[0])
    assert len(desk.told) == 1
    assert desk.wait(DELAYS[1]) == ["get default/job"]
    assert len(desk.told) == 1


def test_a_pod_without_such_devices_is_not_asked_for(desk: Desk) -> None:
    """CPUs and memory alone cost the kubelet nothing."""
    desk.see(gpus=0)
    assert desk.wait(5.0) == []


def test_s9_asking_gets_rarer_and_ends(desk: Desk) -> None:
    """S9: eight times in all for a pod that the kubelet never knows; then only the listing asks."""
    desk.see()
    asked = 0
    for _ in range(210):
        asked += len([each for each in desk.wait(0.1) if each.startswith("get")])
    assert asked == len(DELAYS)
    assert desk.wait(RESYNC) == ["allocatable", "list"]


def test_the_listing_finds_what_was_missed(desk: Desk) -> None:
    """Devices that nobody asked for in time come with the next listing, and are told once."""
    desk.see()
    desk.client.pods["default", "job"] = {"app": (ON_ONE,)}
    desk.client.offers = (ON_ONE,)
    desk.lookup._due.clear()
    assert desk.wait(RESYNC) == ["allocatable", "list"]
    desk.wait(RESYNC)
    assert [uid for uid, _ in desk.told] == ["job"]
    assert desk.offered == [(), (TOLD,)]


def test_a_kubelet_that_is_away_is_told_once_and_asked_again(desk: Desk) -> None:
    """What is known stays; when it is back, everything is listed."""
    desk.see()
    desk.client.away = "podresources List: UNAVAILABLE: no such file"
    desk.wait(DELAYS[0])
    desk.wait(DELAYS[1])
    assert desk.problems == [f"the kubelet's devices are not known: {desk.client.away}"]
    assert desk.lookup.away
    desk.client.away = ""
    desk.client.pods["default", "job"] = {"app": (ON_ONE,)}
    assert desk.wait(DELAYS[2]) == ["get default/job"]
    assert desk.wait(0) == ["allocatable", "list"]
    assert (desk.lookup.away, len(desk.told)) == ("", 1)


def test_a_kubelet_without_get_is_listed_instead(desk: Desk) -> None:
    """Gate off: one Get finds out, then listings at least a second apart serve all pods."""
    desk.client.no_get = True
    desk.see()
    desk.see("other")
    assert desk.wait(DELAYS[0]) == ["get default/job"]
    desk.client.pods |= {("default", "job"): {"app": (ON_ONE,)}}
    asked = [each for _ in range(30) for each in desk.wait(0.1)]
    assert set(asked) == {"allocatable", "list"}
    assert 1 <= asked.count("list") <= 4
    assert [uid for uid, _ in desk.told] == ["job"]


def test_pods_that_are_gone_are_forgotten(desk: Desk) -> None:
    """A new pod of the same name is asked for anew: the answer carries no uid (kubelet rule 6.6)."""
    desk.see()
    desk.world.engine.pods_gone(["job"])
    desk.lookup.handle("gone", "job")
    assert desk.wait(DELAYS[0]) == []


def test_static_pods_have_the_nodes_name_behind_theirs(tmp_path: Path) -> None:
    """The kubelet knows them as <pod>-<node>."""
    desk = Desk(tmp_path)
    desk.lookup = Lookup(desk.client, desk, name_of=lambda pod: f"{pod.name}-n1", clock=desk.clock)
    desk.client.pods["default", "job-n1"] = {"app": (ON_ONE,)}
    desk.see()
    assert desk.wait(DELAYS[0]) == ["allocatable", "list"]
    assert [uid for uid, _ in desk.told] == ["job"]


@pytest.fixture
def kubelet(tmp_path: Path) -> Iterator[Kubelet]:
    """A gRPC server on a unix socket."""
    server = Kubelet(tmp_path / "kubelet.sock")
    yield server
    server.stop()


class Fan:
    """A reporter that passes on to one that is made later."""

    def __init__(self) -> None:
        self.to: Lookup | None = None

    def __getattr__(self, name: str) -> object:
        return getattr(self.to, name)


def test_over_grpc_the_cpus_follow_the_device(kubelet: Kubelet, tmp_path: Path) -> None:
    """Engine, thread, client and a server: a pod that was decided on node 0 moves to its device before it starts."""
    answer = pb.GetPodResourcesResponse(pod_resources=pb.PodResources(
        name="job", namespace="default",
        containers=[pb.ContainerResources(name="app", devices=[device(GPU, ["g1"], 1)])],
    ))  # fmt: skip
    kubelet.answers = {
        "List": lambda _request, _context: pb.ListPodResourcesResponse().SerializeToString(),
        "GetAllocatableResources": lambda _request, _context: pb.AllocatableResourcesResponse(
            devices=[device(GPU, ["g0"], 0), device(GPU, ["g1"], 1)]
        ).SerializeToString(),
        "Get": lambda _request, _context: answer.SerializeToString(),
    }
    world, reporters = World(tmp_path / "node"), Fan()
    engine: Engine = world.engine
    world.reporters.add(reporters)  # type: ignore[arg-type]  # it passes all on
    client = PodResources(str(tmp_path / "kubelet.sock"))
    reporters.to = lookup = Lookup(client, engine)
    lookup.start()
    body = container()
    body["resources"]["limits"][GPU] = "1"
    engine.pods_listed(set())
    world.pods["job"] = pod_from(manifest("job", body))  # its checks would read beside the thread that decides anew
    engine.pods_seen([world.pods["job"]])
    patience.until(lambda: world.holds("job") == "4-5", lambda: f"4-5, and it holds {world.holds('job')}")
    assert engine.node.inventory.reported == {GPU}
    assert lookup.stop(PATIENCE)
    client.close()
    assert "podresources" not in {thread.name for thread in threading.enumerate()}


def test_s9_news_is_handed_over_without_waiting(tmp_path: Path) -> None:
    """The runtime never waits (S9): what the engine tells under its lock is queued; no kubelet is asked there."""
    desk = Desk(tmp_path)
    for number in range(1000):
        desk.lookup.released(str(number))
    assert desk.client.asked == []


class OneEach:
    """Gave every pod one device; lists nothing."""

    def list(self) -> dict[tuple[str, str], DevicesByContainer]:
        return {}

    def get(self, _namespace: str, name: str) -> DevicesByContainer | None:
        return {"app": (HeldDevice(GPU, name, NodeSet.of(1)),)}

    def allocatable(self) -> tuple[HeldDevice, ...]:
        return ()


class Sink:
    """An engine that goes wrong with some pods, and from which pods vanish between two questions."""

    def __init__(self, world: World) -> None:
        self.world, self.vanishing, self.wrong = world, set[str](), set[str]()
        self.asked = 0
        self.told: list[str] = []

    @property
    def snapshot(self) -> State:
        found = self.world.engine.snapshot
        self.asked += 1
        gone = self.vanishing if self.asked > 2 else set()
        return replace(found, pods={uid: each for uid, each in found.pods.items() if uid not in gone})

    def devices_reported(self, uid: str, _given: Given) -> None:
        self.told.append(uid)
        if uid in self.wrong:
            raise InvariantError("a rule that never breaks was broken")

    def devices_offered(self, offered: tuple[Offered, ...]) -> None:
        """Of no interest."""


def lives(tmp_path: Path, *, vanishing: str = "", wrong: str = "") -> list[str]:
    """Which pods' devices were told, where something goes wrong with the first of two pods."""
    world = World(tmp_path)
    world.engine.pods_listed(set())
    asking = container()
    asking["resources"]["limits"][GPU] = "1"
    world.see(manifest("first", asking, created=1), manifest("second", asking, created=2))
    sink, health = Sink(world), Health()
    lookup = Lookup(OneEach(), sink, delays=(0.001,))
    with watched(health, lambda: None):
        lookup.start()
        sink.vanishing, sink.wrong, sink.asked = {vanishing}, {wrong}, 0
        lookup.starting("first")
        until(lambda: sink.asked > 2)
        lookup.starting("second")
        until(lambda: "second" in sink.told)
        assert lookup.stop(PATIENCE)
    assert health.live()[0]
    return sink.told


def test_a_pod_that_is_freed_between_two_looks_ends_nothing(tmp_path: Path) -> None:
    """It is known when its turn comes, and gone when its name is asked for (finding 24)."""
    assert lives(tmp_path, vanishing="first") == ["second"]


def test_a_fault_with_one_pods_devices_ends_nothing(tmp_path: Path) -> None:
    """The engine cannot take in the devices of one pod; the other's are heard of all the same (finding 24)."""
    assert set(lives(tmp_path, wrong="first")) == {"first", "second"}
