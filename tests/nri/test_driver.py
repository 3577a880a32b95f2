"""The agent behind the NRI protocol: what the runtime is answered, with a real runtime side (Go) where it matters."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from agent.core.cgroups.desired import DesiredSets
from agent.core.request.memory_policy import MemoryPolicyWish, PagePolicy
from agent.errors import SandboxRefused
from agent.host.device_nodes import DeviceNode
from agent.host.nri.driver import NriDriver
from agent.host.nri.plugin import Plugin
from agent.host.nri.session import Identity
from agent.host.nri.values import Adjustment, RuntimeContainer, Sandbox
from agent.model.idset import CpuSet, NodeSet
from tests.nri.peer import Peer, quick
from tests.patience import PATIENCE

PATIENT = Identity(answer_within=30.0)
"""A busy test machine must not decide what a handler may answer; the deadline has its own test."""

POD = Sandbox(id="s", name="p", namespace="n", uid="u")
CONTAINER = RuntimeContainer(id="c", sandbox_id="s", name="app")
EXCLUSIVE = DesiredSets(cpus=CpuSet.parse("2-3"), mems=NodeSet.of(1), exclusive=True)
SHARED = DesiredSets(cpus=CpuSet.parse("0-1"))
MODES = {
    MemoryPolicyWish.INTERLEAVE: "MPOL_INTERLEAVE", MemoryPolicyWish.PREFERRED: "MPOL_PREFERRED_MANY",
    MemoryPolicyWish.BIND: "MPOL_BIND",
}  # fmt: skip
"""As the runtime names them."""


class Engine:
    """Decisions of the test's choice."""

    def __init__(self) -> None:
        self.known = {"u"}
        self.refusal = ""
        self.wanted = EXCLUSIVE
        self.lifted = False
        self.in_force = True
        self.left = True
        self.names: dict[str, tuple[str, str]] = {}
        self.live: frozenset[str] = frozenset()
        self.policy: PagePolicy | None = None
        self.handed: tuple[Mapping[str, str], tuple[DeviceNode, ...]] = ({}, ())

    def knows(self, uid: str) -> bool:
        return uid in self.known

    def verdict(self, uid: str) -> str:
        return self.refusal if uid in self.known else ""

    def cleared(self, uid: str, container: str) -> bool:
        return self.left

    def desired(self, uid: str, container: str) -> DesiredSets:
        return self.wanted

    def running(self, uid: str, container: str) -> DesiredSets:
        return self.wanted

    def quota_lifted(self, uid: str, container: str) -> bool:
        return self.lifted

    def devices(self, uid: str, container: str) -> tuple[Mapping[str, str], tuple[DeviceNode, ...]]:
        return self.handed

    def mixed(self, uid: str, container: str) -> Mapping[str, str]:
        return {"NUMALIGN_EXCLUSIVE_CPUS": "2-3", "NUMALIGN_SHARED_CPUS": "0"} if self.wanted.shared else {}

    def folders(self, uid: str, container: str) -> tuple[tuple[str, str], ...]:
        return ((f"/host/{uid}/{container}", "/here"),) if self.wanted.shared else ()

    def pages(self, uid: str, container: str, mems: NodeSet | None) -> PagePolicy | None:
        return self.policy

    def containers_named(self, names: Mapping[str, tuple[str, str]]) -> None:
        self.names |= names

    def container_gone(self, container_id: str) -> None:
        self.names.pop(container_id, None)

    def pods_live(self, uids: frozenset[str]) -> bool:
        self.live = uids
        return self.in_force


@pytest.fixture
def engine() -> Engine:
    """What the driver asks."""
    return Engine()


@pytest.fixture
def counted() -> list[str]:
    """What became of sandboxes and containers."""
    return []


@pytest.fixture
def driver(engine: Engine, counted: list[str]) -> NriDriver:
    """The driver under test."""
    return NriDriver(engine, count=counted.append)


def test_an_exclusive_container_gets_its_sets(driver: NriDriver, engine: Engine, counted: list[str]) -> None:
    """The granted CPUs and nodes, and its name is remembered for the cgroup path."""
    assert driver.create_container(POD, CONTAINER) == Adjustment(cpus=EXCLUSIVE.cpus, mems=EXCLUSIVE.mems)
    assert engine.names == {"c": ("u", "app")}
    assert counted == ["pinned"]


def test_s16_the_quota_goes_with_exclusive_cpus(driver: NriDriver, engine: Engine) -> None:
    """S16: where the quota is lifted, the container starts without one, and a resize does not bring it back."""
    engine.lifted = True
    assert driver.create_container(POD, CONTAINER).quota == -1
    assert driver.update_container(POD, CONTAINER).quota == -1


def test_s22_self_handed_devices_are_usable(driver: NriDriver, engine: Engine) -> None:
    """S22: environment, device file and cgroup rule come with the container."""
    node = DeviceNode("/dev/vfio/7", "c", 243, 7)
    engine.handed = ({"PCIDEVICE_NUMALIGN_IO_NIC": "0000:01:00.0"}, (node,))
    adjustment = driver.create_container(POD, CONTAINER)
    assert adjustment.devices == (node,)
    assert adjustment.env == {"PCIDEVICE_NUMALIGN_IO_NIC": "0000:01:00.0"}


def test_a_mixed_container_is_told_which_cpus_are_its_own(driver: NriDriver, engine: Engine) -> None:
    """Own and shared CPUs in one set, and both by name in its environment, beside what its devices add."""
    engine.wanted = DesiredSets(cpus=CpuSet.parse("0,2-3"), exclusive=True, shared=CpuSet.of(0))
    engine.handed = ({"PCIDEVICE_NUMALIGN_IO_NIC": "0000:01:00.0"}, ())
    adjustment = driver.create_container(POD, CONTAINER)
    assert str(adjustment.cpus) == "0,2-3"
    assert adjustment.folders == (("/host/u/app", "/here"),)
    assert adjustment.env == {
        "NUMALIGN_EXCLUSIVE_CPUS": "2-3", "NUMALIGN_SHARED_CPUS": "0", "PCIDEVICE_NUMALIGN_IO_NIC": "0000:01:00.0",
    }  # fmt: skip


def test_a_refused_pod_does_not_start(driver: NriDriver, engine: Engine, counted: list[str]) -> None:
    """The sentence is ours and says so."""
    engine.refusal = "no NUMA node has 2 free CPUs"
    with pytest.raises(SandboxRefused, match=r"^numalign: no NUMA node has 2 free CPUs$"):
        driver.run_sandbox(POD)
    assert counted == ["refused"]


def test_s11_no_sandbox_is_refused_where_its_remains_would_stay(engine: Engine, counted: list[str]) -> None:
    """S11: a containerd that keeps each refused sandbox may not survive its restart: the pod starts, and it is told.

    A setting refuses all the same; a mended containerd, and CRI-O, are asked to refuse as ever.
    """
    told: list[str] = []
    always: list[bool] = [False]
    driver = NriDriver(engine, count=counted.append, refuse_always=lambda: always[0], problem=told.append)
    engine.refusal = "no room"
    driver.configured("containerd", "v2.2.5")
    driver.run_sandbox(POD)
    assert counted == ["unrefused"]
    (text,) = told
    assert text.startswith("containerd v2.2.5 keeps the remains of every refused sandbox")
    assert "wait and fail hold no pod back here" in text
    always[0] = True
    with pytest.raises(SandboxRefused):
        driver.run_sandbox(POD)
    always[0] = False
    for runtime, version in (("containerd", "v2.2.6"), ("cri-o", "1.35.0")):
        driver.configured(runtime, version)
        with pytest.raises(SandboxRefused):
            driver.run_sandbox(POD)
    assert told == [text]


def test_connected_means_synchronized(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    """A runtime that takes the agent in and asks nothing is told of with the remedy; connected is said afterwards."""
    told: list[str] = []
    driver = NriDriver(engine, problem=told.append)
    with caplog.at_level("INFO"):
        driver.configured("containerd", "v1.7.13")
        driver.unsynchronized(30.0)
        assert "connected to" not in caplog.text
        driver.synchronize((POD,), ())
    assert "NRI: connected to containerd v1.7.13" in caplog.text
    old, hung = told
    assert "can hang when a plugin registers (containerd#10085): update it to 1.7.26 or later" in old
    assert hung.startswith("taken in by containerd v1.7.13, not synchronized for 30 s: containers are pinned through")
    assert "restart it" in hung


def test_s9_a_pod_that_the_watch_did_not_bring_is_looked_up_once(engine: Engine) -> None:
    """The runtime never waits (S9): one look-up at RunPodSandbox; what it finds decides."""
    asked: list[tuple[str, str, str]] = []
    engine.known = set()

    def find(namespace: str, name: str, uid: str) -> bool:
        asked.append((namespace, name, uid))
        engine.known.add(uid)
        engine.refusal = "no room"
        return True

    driver = NriDriver(engine, find=find)
    with pytest.raises(SandboxRefused, match="no room"):
        driver.run_sandbox(POD)
    assert asked == [("n", "p", "u")]


def test_s6_a_container_whose_cpus_others_have_not_left_is_counted_and_told(
    engine: Engine, counted: list[str], driver: NriDriver, caplog: pytest.LogCaptureFixture
) -> None:
    """It starts with what it may have already; an operator sees that it was not pinned at its first instruction."""
    engine.left, engine.wanted = False, SHARED
    assert driver.create_container(POD, CONTAINER) == Adjustment(cpus=SHARED.cpus)
    assert counted == ["late"]
    assert "container app of pod n/p starts without its CPUs: others have not left them yet" in caplog.text


def test_an_unknown_pod_starts_unpinned_which_is_counted_and_told(
    engine: Engine, counted: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody knows what it asks for: it starts as the runtime would have it, and the cgroup path pins it later."""
    engine.known = set()
    driver = NriDriver(engine, count=counted.append)
    driver.run_sandbox(POD)
    assert driver.create_container(POD, CONTAINER) == Adjustment()
    assert counted == ["unknown"]
    assert "container app of pod n/p starts without its sets: numalign has not decided" in caplog.text


def test_s3_an_observer_adjusts_and_refuses_nothing(engine: Engine, counted: list[str]) -> None:
    """S3: with the kill switch on, the runtime is left alone; names are still learnt."""
    engine.refusal = "no room"
    driver = NriDriver(engine, enforcing=lambda: False, count=counted.append)
    driver.run_sandbox(POD)
    assert driver.create_container(POD, CONTAINER) == Adjustment()
    assert driver.update_container(POD, CONTAINER) == Adjustment()
    assert driver.synchronize((POD,), (CONTAINER,)) == {}
    assert engine.names == {"c": ("u", "app")}


def test_s9_synchronizing_changes_exclusive_containers_only(driver: NriDriver, engine: Engine) -> None:
    """The runtime never waits (S9): what differs on record is put right; sharers' pool is written to slices."""
    other = RuntimeContainer(id="d", sandbox_id="s", name="app", cpus="2-3", mems="1")
    stopped = RuntimeContainer(id="e", sandbox_id="s", name="app", ended=True)
    stray = RuntimeContainer(id="f", sandbox_id="?", name="app")
    nonsense = RuntimeContainer(id="g", sandbox_id="s", name="app", cpus="two", mems="1")
    changes = driver.synchronize((POD,), (CONTAINER, other, stopped, stray, nonsense))
    assert changes == {
        "c": Adjustment(cpus=EXCLUSIVE.cpus, mems=EXCLUSIVE.mems),
        "g": Adjustment(cpus=EXCLUSIVE.cpus),
    }
    assert set(engine.names) == {"c", "d", "g"}
    assert engine.live == {"u"}
    engine.wanted = SHARED
    assert driver.synchronize((POD,), (CONTAINER,)) == {}


def test_s6_synchronizing_names_no_set_that_others_may_still_stand_on(driver: NriDriver, engine: Engine) -> None:
    """Nobody runs on another's CPUs (S6): the engine is not through, and writes the sets when others have left."""
    engine.in_force = False
    assert driver.synchronize((POD,), (CONTAINER,)) == {}
    assert engine.names == {"c": ("u", "app")}


def test_a_runtime_that_stays_away_is_told_of_once(driver: NriDriver, caplog: pytest.LogCaptureFixture) -> None:
    """A node without NRI would be warned of with every try to connect; what is new, and each loss, is warned of."""
    for why in ("no such file", "no such file", "closed", "closed"):
        driver.disconnected(why)
    driver.configured("containerd", "v2")
    driver.disconnected("closed")
    told = [each.getMessage().partition(";")[0] for each in caplog.records if each.levelname == "WARNING"]
    assert told == ["NRI: no such file", "NRI: closed", "NRI: closed"]


def test_removed_containers_are_forgotten(driver: NriDriver, engine: Engine) -> None:
    """Their names go; the grant stays until the cgroup is gone."""
    driver.create_container(POD, CONTAINER)
    driver.event("StopContainer", POD, CONTAINER)
    assert engine.names
    driver.event("RemoveContainer", POD, CONTAINER)
    assert engine.names == {}


@pytest.mark.go
def test_through_the_real_protocol(program: Path, tmp_path: Path, engine: Engine) -> None:
    """Runtime, protocol, plugin, driver: pinned at creation, refused at the sandbox, put right at synchronization."""
    pod = {"id": "s", "name": "p", "namespace": "n", "uid": "u"}
    container: dict[str, Any] = {"id": "c", "pod_sandbox_id": "s", "name": "app", "state": "CONTAINER_RUNNING"}
    with Peer(program, tmp_path / "nri.sock") as peer:
        stopped = {**container, "id": "d", "state": "CONTAINER_STOPPED"}
        peer.ask("state", pods=[pod], containers=[container, stopped])
        plugin = Plugin(str(peer.socket), NriDriver(engine), delays=quick, identity=PATIENT)
        plugin.start()
        updates = peer.event("synchronized")["updates"]
        assert [each["containerId"] for each in updates] == ["c"], "nothing runs in the other one any more"
        assert updates[0]["linux"]["resources"]["cpu"] == {"cpus": "2-3", "mems": "1"}
        created = peer.ask("create_container", pod=pod, container=container)
        assert created["result"]["adjust"]["linux"]["resources"]["cpu"] == {"cpus": "2-3", "mems": "1"}
        assert "memoryPolicy" not in created["result"]["adjust"]["linux"]
        for wish, mode in MODES.items():
            engine.policy = PagePolicy(wish, NodeSet.parse("0-1"))
            created = peer.ask("create_container", pod=pod, container=container)
            assert created["result"]["adjust"]["linux"]["memoryPolicy"] == {"mode": mode, "nodes": "0-1"}
        engine.refusal = "no NUMA node has 2 free CPUs"
        assert "numalign: no NUMA node has 2 free CPUs" in peer.ask("run_pod_sandbox", pod=pod)["error"]
        assert plugin.stop(PATIENCE)
