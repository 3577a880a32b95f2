"""The engine behind the NRI driver: every answer from a snapshot, every word of the runtime on another thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.core.cgroups.desired import DesiredSets
from agent.core.devices.kubelet import Offered
from agent.core.machines.synthetic import parse_synthetic
from agent.errors import SandboxRefused
from agent.host.device_nodes import DeviceNode, Usable
from agent.host.nri.decisions import EngineDecisions
from agent.host.nri.driver import NriDriver
from agent.host.nri.plugin import Plugin
from agent.host.nri.session import Identity
from agent.host.nri.values import Adjustment, RuntimeContainer, Sandbox
from agent.host.standin import container_id
from agent.model.idset import CpuSet, NodeSet
from agent.model.podspec import pod_from
from agent.model.rules import OnMisalignment
from tests.flow.world import World, container, manifest
from tests.nri.peer import Peer, quick
from tests.patience import PATIENCE, until

MACHINE = "2 sockets x 1 node x 4 cores x 1 thread, 4G per node, nic on 0, nic on 1"
NICS = {"devices": [{"resource": "numalign.io/nic", "class": "02", "namespaces": ["*"]}]}
VFIO = DeviceNode("/dev/vfio/vfio", "c", 10, 196)
MEMORY = {
    "memoryManagerPolicy": "Static", "topologyManagerPolicy": "single-numa-node",
    "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1124Mi"}}],
    "kubeReserved": {"cpu": "1", "memory": "1Gi"},
}  # fmt: skip
"""Settings with which memory is bound."""


def usable(address: str) -> Usable:
    """Functions of bus 0 have a group of their own; others have no file."""
    if address.startswith("0000:00"):
        return Usable((DeviceNode(f"/dev/vfio/{address[-4:-2]}", "c", 243, 1), VFIO))
    return Usable((), f"{address} has none")


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Two nodes; CPU 0 is the system's."""
    made = World(tmp_path / "node", machine=MACHINE, settings=NICS)
    made.engine.pods_listed(set())
    return made


@pytest.fixture
def decisions(world: World) -> Iterator[EngineDecisions]:
    """The adapter, its thread running."""
    made = EngineDecisions(world.engine, usable)
    made.start()
    yield made
    assert made.stop(PATIENCE)


def refused_for(world: World, wish: str) -> None:
    """A pod that no node has the CPUs for."""
    world.see(manifest("big", container(cpu="6"), policy="single-numa-node", on_misalignment=wish))


@pytest.mark.parametrize(("wish", "held"), [("wait", True), ("fail", True), ("evict", False), ("run", False)])
def test_only_wait_and_fail_keep_a_pod_from_starting(
    world: World, decisions: EngineDecisions, wish: str, *, held: bool
) -> None:
    """The verdict names the container and the reason; a pod that is to run, or is being evicted, starts."""
    refused_for(world, wish)
    sentence = "container app: Resources cannot be allocated with Topology locality"
    verdict = decisions.verdict("big")
    assert verdict.startswith(sentence) if held else verdict == ""
    assert ("CPUs" in verdict) == held, "with the numbers"
    assert decisions.knows("big")


def test_s2_s4_nobody_else_is_held(tmp_path: Path) -> None:
    """S2, S4: pods that are left alone, that ran before, or that nobody knows."""
    world = World(tmp_path, exempt=lambda pod: "ours" if pod.name == "big" else "")
    decisions = EngineDecisions(world.engine, usable)
    refused_for(world, "fail")
    assert (decisions.knows("big"), decisions.verdict("big"), decisions.desired("big", "app")) == (
        True,
        "",
        DesiredSets(),
    )
    world.see(manifest("old", container(cpu="6"), policy="single-numa-node", on_misalignment="fail"), ran=["old"])
    assert (decisions.verdict("old"), decisions.verdict("nobody"), decisions.knows("nobody")) == ("", "", False)
    assert decisions.desired("nobody", "app") == DesiredSets()
    assert decisions.devices("nobody", "app") == ({}, ())


def test_s12_a_milder_wish_lets_the_pod_start(world: World, decisions: EngineDecisions) -> None:
    """S12: where too many of one owner were refused, fail has become run."""
    refused_for(world, "fail")
    assert decisions.verdict("big")
    world.engine.soften("big", OnMisalignment.RUN)
    assert decisions.verdict("big") == ""


def test_sets_of_containers(world: World, decisions: EngineDecisions) -> None:
    """Exclusive ones get theirs, others of such a pod the pool; the runtime never waits (S9): sharers inherit it."""
    world.see(
        manifest("db", container(), container("log", cpu="500m")),
        manifest("web", container(cpu="", memory=""), created=1),
    )
    assert decisions.desired("db", "app") == DesiredSets(CpuSet.parse("1-2"), exclusive=True)
    assert decisions.desired("db", "log") == DesiredSets(CpuSet.parse("0,3-7"))
    assert decisions.desired("web", "app") == DesiredSets()


def test_memory_is_bound_where_it_is_managed(tmp_path: Path) -> None:
    """With memoryManagerPolicy Static the nodes come with the container."""
    world = World(tmp_path, machine=MACHINE, settings=MEMORY)
    world.engine.pods_listed(set())
    world.see(manifest("db"))
    want = EngineDecisions(world.engine, usable).desired("db", "app")
    assert (want.cpus, want.mems, want.exclusive) == (CpuSet.parse("1-2"), NodeSet.of(0), True)


def test_a_node_that_the_machine_has_lost_is_not_named_to_the_runtime(tmp_path: Path) -> None:
    """The disk is full, so what is saved is of the machine of before; with that set the container would not start."""
    world = World(tmp_path, machine=MACHINE, settings=MEMORY)
    world.engine.pods_listed(set())
    world.see(manifest("first", container(cpu="3")))
    world.see(manifest("db", created=1))
    decisions = EngineDecisions(world.engine, usable)
    assert decisions.desired("db", "app") == DesiredSets(CpuSet.parse("4-5"), NodeSet.of(1), exclusive=True)
    world.store.full = "no space left"
    world.engine.changed(world.node(parse_synthetic("1 socket x 1 node x 4 cores x 1 thread, 4G per node")))
    assert decisions.desired("db", "app") == DesiredSets()
    assert decisions.desired("first", "app") == DesiredSets(CpuSet.parse("1-3"), NodeSet.of(0), exclusive=True)


@pytest.mark.parametrize(("lift", "cpu", "lifted"), [(True, "2", True), (False, "2", False), (True, "500m", False)])
def test_s16_the_quota(tmp_path: Path, cpu: str, *, lift: bool, lifted: bool) -> None:
    """The quota is lifted with exclusive CPUs (S16), if the settings say so; a fractional container keeps its own."""
    world = World(tmp_path, lift_quota=lift)
    world.engine.pods_listed(set())
    world.see(manifest("db", container(cpu=cpu), container("log", cpu="500m")))
    decisions = EngineDecisions(world.engine, usable)
    assert decisions.quota_lifted("db", "app") is lifted
    driver = NriDriver(decisions)
    pod = Sandbox(id="s", name="db", namespace="default", uid="db")
    decisions.start()
    made = [driver.create_container(pod, RuntimeContainer("c", "s", name)).quota for name in ("app", "log")]
    assert made == [-1 if lifted else None, None]
    assert decisions.stop(PATIENCE)


def test_s22_self_handed_devices_come_with_environment_and_files(world: World, decisions: EngineDecisions) -> None:
    """Devices are handed out once (S22), by limits or annotation: addresses, files; what has no file is a hint."""
    both = container()
    both["resources"]["limits"]["numalign.io/nic"] = "2"
    world.see(manifest("two", both))
    first, second = world.engine.ledger.grant("two", "app").devices["numalign.io/nic"]
    env, files = decisions.devices("two", "app")
    assert env == {"PCIDEVICE_NUMALIGN_IO_NIC": f"{first},{second}"}
    assert files == tuple(sorted({*usable(first).nodes, *usable(second).nodes}, key=lambda node: node.path))
    hinted = {address for address in (first, second) if not usable(address).nodes}
    assert set(decisions.hints("two", "app")) == hinted
    world.engine.pods_gone(["two"])
    world.see(manifest("one", container(), container("side"), devices="numalign.io/nic=1", created=1))
    assert decisions.devices("one", "app")[0] == {"PCIDEVICE_NUMALIGN_IO_NIC": first}
    assert decisions.devices("one", "side") == ({}, ())


def test_s22_the_kubelets_devices_are_its_own_business(world: World, decisions: EngineDecisions) -> None:
    """S22: what a plugin handed out is in the container already; nothing of it is added."""
    given = Offered("numalign.io/nic", "0000:ff:00.0", NodeSet.of(1))
    world.engine.devices_offered([given])
    world.engine.devices_reported("job", {"app": (given,)})
    world.see(manifest("job"))
    assert world.engine.ledger.grant("job", "app").devices == {"numalign.io/nic": ("0000:ff:00.0",)}
    assert decisions.devices("job", "app") == ({}, ())


def test_s8_s9_answers_do_not_wait_for_a_write_that_hangs(world: World, decisions: EngineDecisions) -> None:
    """The runtime never waits (S9), not for a write that hangs (S8): with the lock held, all is answered at once."""
    world.see(manifest("db"))
    held, free = threading.Event(), threading.Event()

    def hang() -> None:
        with world.engine._lock:
            held.set()
            free.wait(PATIENCE)

    thread = threading.Thread(target=hang)
    thread.start()
    assert held.wait(PATIENCE)
    assert decisions.knows("db")
    assert decisions.verdict("db") == ""
    assert decisions.desired("db", "app").exclusive
    assert decisions.quota_lifted("db", "app")
    assert decisions.devices("db", "app") == ({}, ())
    decisions.containers_named({"c1": ("db", "app")})
    decisions.container_gone("c0")
    decisions.pods_live(frozenset({"db"}))
    assert not decisions.decide(pod_from(manifest("late", created=1)), within=0.05)
    assert thread.is_alive(), "all of that was answered while the lock was held"
    free.set()
    thread.join()
    assert until(lambda: world.engine._enforcer.names.get("c1") == ("db", "app"))
    assert decisions.decide(pod_from(manifest("soon", created=2)), within=PATIENCE)
    assert not decisions.knows("late"), "the question was given up: the watch brings the pod, or it is gone by now"


def test_names_reach_the_engine_and_leave_it(world: World, decisions: EngineDecisions) -> None:
    """A container that the runtime names is enforced soon after; one that it removed names nobody."""
    world.see(manifest("db"))
    pod = world.pods["db"]
    world.tree.add_pod("db", pod.qos)
    number = container_id("db", "app")
    world.tree.add_container("db", number)
    decisions.containers_named({number: ("db", "app")})
    assert until(lambda: world.effective("db") == "1-2")
    decisions.container_gone(number)
    assert until(lambda: number not in world.engine._enforcer.names)


def test_a_pod_that_is_found_in_time_is_decided(world: World, decisions: EngineDecisions) -> None:
    """RunPodSandbox comes before the watch: the pod is handed in and decided while the runtime waits."""
    assert decisions.decide(pod_from(manifest("quick")), within=PATIENCE)
    assert decisions.cleared("quick", "app", within=PATIENCE)
    assert decisions.desired("quick", "app").exclusive


def test_s6_cpus_are_answered_once_others_have_left_them(world: World) -> None:
    """A grant is saved before the pool is written: who asks in between starts on the pool, and not beside others.

    An agent that is killed there would leave the others on these CPUs until it is back.
    """
    decisions = EngineDecisions(world.engine, usable)
    world.run(manifest("web", container(cpu="", memory="")))
    between: list[tuple[bool, DesiredSets, CpuSet]] = []

    def ask(_path: str, _file: str, _value: str) -> None:
        if not between:
            cleared = decisions.cleared("db", "app", within=0.0)
            between.append((cleared, decisions.desired("db", "app"), CpuSet.parse(world.effective("web"))))

    world.kernel.before = ask
    world.see(manifest("db", created=1))
    cleared, sets, others = between[0]
    assert CpuSet.parse(world.holds("db")) & others
    assert (cleared, sets) == (False, DesiredSets(CpuSet.parse("0,3-7")))
    assert decisions.cleared("db", "app", within=0.0)
    assert decisions.desired("db", "app") == DesiredSets(CpuSet.parse("1-2"), exclusive=True)


def test_s6_cpus_that_a_container_gave_back_are_answered_when_it_has_left_them(world: World) -> None:
    """A resize to fewer CPUs is saved before it is written: until then no container is answered those CPUs."""
    decisions = EngineDecisions(world.engine, usable)
    world.run(manifest("db", container(cpu="4")))
    world.see(manifest("pair", container(cpu="1"), container("side", cpu="500m"), created=1))
    stays = CpuSet.parse(world.effective("db"))
    between: list[tuple[CpuSet, CpuSet]] = []

    def ask(path: str, _file: str, _value: str) -> None:
        if path == at and not between:
            now = world.engine.snapshot.saved
            answer = decisions.desired("pair", "side").cpus
            assert now is not None
            assert answer is not None
            between.append((now.cpus.shared, answer))

    at, world.kernel.before = world.path("db", "app"), ask
    world.see(manifest("db", container(cpu="1")))
    shared, answer = between[0]
    assert len(shared & stays) == 3
    assert answer == shared - stays
    assert decisions.desired("pair", "side").cpus == shared


def test_s6_what_a_pod_has_already_it_keeps_while_it_grows(world: World) -> None:
    """A resize gives more: until others have left that, the runtime is answered what the container has."""
    decisions = EngineDecisions(world.engine, usable)
    world.run(manifest("web", container(cpu="", memory="")))
    world.run(manifest("db", created=1))
    between: list[DesiredSets] = []
    world.kernel.before = lambda _path, _file, _value: between.append(decisions.desired("db", "app"))
    world.see(manifest("db", container(cpu="3"), created=1))
    assert between[0] == DesiredSets(CpuSet.parse("1-2"), exclusive=True)
    assert decisions.desired("db", "app") == DesiredSets(CpuSet.parse("1-3"), exclusive=True)


def test_a_fault_ends_nothing(world: World, decisions: EngineDecisions, caplog: pytest.LogCaptureFixture) -> None:
    """One word of the runtime that cannot be carried out is logged; the next one is."""
    world.see(manifest("db"))
    world.store.full = "no space left"
    decisions.pods_live(frozenset())
    decisions.containers_named({"c": ("nobody", "app")})
    decisions.containers_named({"d": ("db", "app")})
    assert until(lambda: "d" in world.engine._enforcer.names)
    assert caplog.records == []


@pytest.mark.go
def test_engine_to_runtime_through_the_real_protocol(
    program: Path, tmp_path: Path, world: World, decisions: EngineDecisions
) -> None:
    """A pod with CPUs and a device is created with both; a pod that waits is refused with the engine's sentence."""
    world.see(manifest("db", devices="numalign.io/nic=1"))
    address = world.engine.ledger.grant("db", "app").devices["numalign.io/nic"][0]
    refused_for(world, "wait")
    with Peer(program, tmp_path / "nri.sock") as peer:
        peer.ask("state", pods=[], containers=[])
        patient = Identity(answer_within=30.0)
        plugin = Plugin(str(peer.socket), NriDriver(decisions), delays=quick, identity=patient)
        plugin.start()
        peer.event("synchronized")
        pod: dict[str, Any] = {"id": "s", "name": "db", "namespace": "default", "uid": "db"}
        assert "error" not in peer.ask("run_pod_sandbox", pod=pod)
        created = peer.ask(
            "create_container", pod=pod, container={"id": "c", "pod_sandbox_id": "s", "name": "app"}
        )["result"]["adjust"]  # fmt: skip
        assert created["linux"]["resources"]["cpu"]["cpus"] == world.holds("db") == "1-2"
        assert created["env"] == [{"key": "PCIDEVICE_NUMALIGN_IO_NIC", "value": address}]
        files = [each["path"] for each in created["linux"].get("devices", [])]
        assert files == [node.path for node in usable(address).nodes]
        assert len(created["linux"]["resources"].get("devices", [])) == len(files)
        answer = peer.ask("run_pod_sandbox", pod={**pod, "id": "t", "name": "big", "uid": "big"})
        assert "numalign: container app: Resources cannot be allocated with Topology locality" in answer["error"]
        assert plugin.stop(PATIENCE)
    assert until(lambda: world.engine._enforcer.names.get("c") == ("db", "app"))


def test_the_driver_refuses_with_the_engines_sentence(world: World, decisions: EngineDecisions) -> None:
    """The same without a runtime: what `kubectl describe pod` will show."""
    refused_for(world, "fail")
    with pytest.raises(SandboxRefused, match=r"^numalign: container app: Resources cannot be allocated"):
        NriDriver(decisions).run_sandbox(Sandbox(id="s", name="big", namespace="default", uid="big"))
    assert NriDriver(decisions).create_container(
        Sandbox(id="s", name="x", namespace="default", uid="x"), RuntimeContainer("c", "s", "app")
    ) == Adjustment()  # fmt: skip


@pytest.mark.parametrize("by", ["runtime", "list"])
def test_containers_of_pods_that_nothing_knows_any_more_are_forgotten(
    world: World, decisions: EngineDecisions, by: str
) -> None:
    """Their removal was never told, and the API never showed their pods: the next complete word ends their names."""
    world.run(manifest("db"))
    decisions.containers_named({f"{number:064x}": (f"gone-{number}", "app") for number in range(300)})
    assert until(lambda: len(world.engine.names) == 301)
    if by == "runtime":
        decisions.pods_live(frozenset({"db"}))
    else:
        world.engine.pods_listed({"db"})
    assert until(lambda: world.engine.names == {container_id("db", "app"): ("db", "app")})
