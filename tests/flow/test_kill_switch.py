"""The kill switch in the middle of a plan (safety.md S3): not one write more, and what that leaves is safe."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from agent.app import setup
from agent.app.cluster.build import ClusterService
from agent.app.statedir import node_allocatable as keeping
from agent.app.statedir.node_allocatable import NodeAllocatable
from agent.core.machines.synthetic import parse_synthetic
from agent.host.device_nodes import Usable
from agent.host.nri.decisions import EngineDecisions
from agent.host.nri.driver import NriDriver
from agent.host.nri.values import Adjustment, RuntimeContainer, Sandbox
from agent.host.scratch import Layout, Scratch
from agent.host.standin import container_id
from agent.model.cgroup import Level
from agent.model.idset import CpuSet
from tests.flow.cluster_node import ClusterNode, StandInApi, edges_of, list_pods, page, running
from tests.flow.world import Ears, World, container, manifest
from tests.patience import PATIENCE, until

MACHINE = "2 sockets x 1 node x 4 cores x 1 thread"
MEMORY = {"memoryManagerPolicy": "Static", "reservedMemory": [{"numaNode": 0, "limits": {"memory": "100Mi"}}]}


class Switch:
    """Turns the agent off before its n-th write, and counts those that come after all."""

    def __init__(self, world: World, at: int) -> None:
        self.world, self.at = world, at
        self.writes = self.late = 0
        world.kernel.before = self.told

    def told(self, _path: str, _file: str, _value: str) -> None:
        self.late += self.world.engine.halted
        self.writes += 1
        if self.writes == self.at:
            self.world.engine.halted = True


def busy(folder: Path, version: int, settings: Mapping[str, Any] | None = None) -> World:
    """A node where a pod shrinks, another takes what it leaves, and others share: many writes, some of them jumps."""
    machine = parse_synthetic(MACHINE)
    Scratch.create(folder, cpus=machine.online, nodes=machine.node_set, setup=Layout(version))
    world = World(folder, machine=MACHINE, settings=settings)
    world.engine.pods_listed({"web", "db", "side", "next"})
    world.run(manifest("web", container(cpu="", memory=""), created=1))
    world.run(manifest("db", container(cpu="3"), container("helper", cpu="500m"), created=2))
    return world


def change(world: World) -> None:
    """Two pods come and one gets smaller, all while the agent only observes: one plan for all of that is due."""
    world.engine.halted = True
    world.run(manifest("side", container(cpu="2"), created=3))
    world.see(manifest("db", container(cpu="2"), container("helper", cpu="500m"), created=2))
    world.run(manifest("next", container(cpu="3"), created=4))
    world.engine.halted = False


def intruders(world: World) -> dict[str, CpuSet]:
    """Containers that run on CPUs which were granted to another: path -> these CPUs."""
    ledger, names = world.engine.ledger, world.names()
    found = {}
    for each in world.cgroups.observe().cgroups:
        if each.level is Level.CONTAINER:
            mine = names.get(each.container_id, ("", ""))
            others = [
                cpus for uid, by in ledger.cpus.assigned.items() for name, cpus in by.items() if (uid, name) != mine
            ]
            found[each.path] = each.effective_cpus & CpuSet.union(others)
    return found


def in_order(world: World) -> None:
    """Everybody has what the ledger says."""
    for uid in ("db", "side", "next"):
        assert world.effective(uid) == world.holds(uid) != ""
        assert world.report(uid).reason in ("Aligned", "NotAligned"), "two nodes may be what there was"
    world.check()


@pytest.mark.parametrize("version", [1, 2])
def test_s3_the_switch_is_obeyed_before_every_single_write(tmp_path: Path, version: int) -> None:
    """Off before the first write, the second, ... the last: none follows, half a plan puts nobody on others' CPUs."""
    count = 0
    for at in range(1, 100):
        world = busy(tmp_path / str(at), version)
        change(world)
        before, switch = intruders(world), Switch(world, at)
        world.engine.reconcile()
        assert switch.late == 0, f"{switch.late} writes after the switch, which fell before write {at}"
        for path, cpus in intruders(world).items():
            assert cpus.issubset(before[path]), f"the switch before write {at} left {path} on others' CPUs {cpus}"
        world.engine.halted = False
        world.engine.reconcile()
        in_order(world)
        if switch.writes < at:
            break
        count = at
    assert count > 6


def test_s3_the_switch_is_obeyed_between_writes_of_memory_nodes(tmp_path: Path) -> None:
    """They share one time limit, and are single writes all the same."""
    world = busy(tmp_path / "tree", 2, MEMORY)
    change(world)
    memory: list[str] = []

    def told(path: str, file: str, _value: str) -> None:
        assert not world.engine.halted, "a write after the switch"
        if file == "cpuset.mems":
            memory.append(path)
            world.engine.halted = True

    world.kernel.before = told
    world.engine.reconcile()
    assert len(memory) == 1
    world.kernel.before = lambda _path, _file, _value: None
    world.engine.halted = False
    world.engine.reconcile()
    in_order(world)


def test_s3_the_switch_is_told_as_observing_only(tmp_path: Path) -> None:
    """Without a lock, at once, in what everybody asks; and nothing is due until it is off again."""
    world = busy(tmp_path / "tree", 2)
    world.engine.halted = True
    assert world.engine.switches.observe_only
    world.tree.kernel_write(world.path("db", "app"), "cpuset.cpus", "0-6")
    assert world.engine.reconcile() == ()
    assert world.engine.repair_in() is None
    assert world.effective("db") != world.holds("db")
    world.engine.halted = False
    assert not world.engine.switches.observe_only


def test_s3_a_pod_that_comes_while_it_is_off_is_told_why_nothing_is_written(tmp_path: Path) -> None:
    """Not that the kernel refused: whoever reads the condition looks for a fault where there is none."""
    world = busy(tmp_path / "tree", 2)
    world.engine.halted = True
    world.run(manifest("side", container(cpu="2"), created=3))
    assert "observing only" in world.report("side").message


def test_s3_a_start_without_the_api_server_obeys_the_nodes_switch_of_before(tmp_path: Path) -> None:
    """What the Node's object said last counts until it is read again: nothing is written before, nor forgotten."""
    node, state = ClusterNode(tmp_path), tmp_path / "state"
    body = manifest("db")
    node.world.run(body)
    node.keep()
    before = NodeAllocatable(1000, 0, known=True, observe_only="true", resources=frozenset({"example.com/nic"}))
    keeping.save(state, before)
    node.world.tree.kernel_write(node.world.path("db", "app"), "cpuset.cpus", "0-7")
    with node.serving() as agent:
        until(lambda: page(agent, "/readyz?only=recovery")[0] == 200)
        list_pods(agent, running(body))
        agent.engine.reconcile()
        assert node.world.effective("db") == "0-7"
        kept = keeping.load(state)
        assert (kept.observe_only, kept.resources) == (before.observe_only, before.resources)
        agent.source.intake.node_changed({"metadata": {"uid": "n1"}, "status": {}})
        until(lambda: node.world.effective("db") == node.world.holds("db"))


def test_s3_what_changed_meanwhile_is_put_right_as_soon_as_the_switch_is_off(tmp_path: Path) -> None:
    """Not with the next look by the clock, until which a pod would run on CPUs that are not its own."""
    node = ClusterNode(tmp_path, settings={"cpuManagerReconcilePeriod": "1h"})
    body = manifest("db")
    node.world.run(body)
    node.keep()
    node.world.tree.kernel_write(node.world.path("db", "app"), "cpuset.cpus", "0-6")
    with node.serving() as agent:
        list_pods(agent, running(body))
        until(lambda: node.world.effective("db") == node.world.holds("db"))
        agent.source.intake.node_changed(
            {"metadata": {"uid": "n1", "annotations": {"numalign.io/observe-only": "true"}}, "status": {}}
        )
        until(lambda: agent.engine.switches.observe_only)
        node.world.tree.kernel_write(node.world.path("db", "app"), "cpuset.cpus", "0-7")
        agent.engine.reconcile()
        assert node.world.effective("db") == "0-7"
        agent.source.intake.node_changed({"metadata": {"uid": "n1"}, "status": {}})
        until(lambda: node.world.effective("db") == node.world.holds("db"), within=20)


def test_s3_the_settings_switch_is_followed_though_nobody_says_a_word_of_the_node(tmp_path: Path) -> None:
    """An agent that began while it was on writes again once it is off, and not only when the Node changes."""
    node = ClusterNode(tmp_path, settings={"observeOnly": True})
    with node.serving() as agent:
        until(lambda: agent.engine.halted)
        (tmp_path / "config.yaml").write_text(json.dumps({**node.world.settings, "observeOnly": False}), "utf-8")
        until(lambda: not agent.engine.halted)


PODS = ("a", "b", "c")


def node(folder: Path, cpus: str = "0-7") -> ClusterNode:
    """Three pods with CPUs of their own, whose sets somebody has just changed to these."""
    made = ClusterNode(folder)
    for number, name in enumerate(PODS):
        made.world.run(manifest(name, container(cpu="1"), created=number))
    made.keep()
    for name in PODS:
        made.world.tree.kernel_write(made.world.path(name, "app"), "cpuset.cpus", cpus)
    return made


def pinned(made: ClusterNode) -> int:
    """How many of them have their CPUs back."""
    return sum(made.world.effective(name) == made.world.holds(name) for name in PODS)


def test_s03_the_settings_stop_a_plan_in_the_middle(tmp_path: Path) -> None:
    """The file says observeOnly before the second write of a plan: that write is not made, nor any after it."""
    made, writes = node(tmp_path), list[str]()
    file = tmp_path / "config.yaml"

    def steps(name: str) -> None:
        if name.startswith("write ") and name.endswith("cpuset.cpus"):
            writes.append(name)
            if len(writes) == 1:
                file.write_text(json.dumps({**made.world.settings, "observeOnly": True}), "utf-8")

    with made.serving(steps=steps) as agent:
        until(lambda: agent.engine.snapshot.switches.observe_only, "the settings")
        assert len(writes) == 1
        assert pinned(made) <= 1
        file.write_text(json.dumps(made.world.settings), "utf-8")
        until(lambda: pinned(made) == len(PODS), "all of them, once it is off")


def test_s03_pages_are_answered_while_a_plan_is_held_up(tmp_path: Path) -> None:
    """Whatever holds a write up holds up no probe and no scrape."""
    made, held, go_on = node(tmp_path), threading.Event(), threading.Event()

    def steps(name: str) -> None:
        if name.startswith("write ") and made.world.path("b", "app") in name and not held.is_set():
            held.set()
            assert go_on.wait(300)

    with made.serving(steps=steps) as agent:
        made.world.tree.kernel_write(made.world.path("b", "app"), "cpuset.cpus", "0-7")
        try:
            until(held.is_set, "a plan that is held up")
            for path in ("/healthz", "/readyz", "/metrics"):
                status, text = page(agent, path)
                assert status in (200, 503)
                assert text
            assert agent.engine.repair_in() is None or agent.engine.repair_in() == 0
            assert not agent.engine.switches.observe_only
        finally:
            go_on.set()
        until(lambda: pinned(made) == len(PODS), "all of them")


def test_s03_the_settings_stop_answers_and_actions_while_a_plan_is_held_up(tmp_path: Path) -> None:
    """The settings can be followed only after the write; the runtime is told no set from now on all the same."""
    made, held, go_on = node(tmp_path), threading.Event(), threading.Event()

    def steps(name: str) -> None:
        if name.startswith("write ") and not held.is_set():
            held.set()
            assert go_on.wait(300)

    with made.serving(steps=steps) as agent:
        try:
            until(held.is_set, "a plan that is held up")
            decisions = EngineDecisions(agent.engine, lambda _address: Usable(()))
            driver = NriDriver(decisions, enforcing=edges_of(agent).enforcing)
            asked = Sandbox("s", "a", "default", "a"), RuntimeContainer(container_id("a", "app"), "s", "app")
            assert driver.create_container(*asked).cpus is not None
            file = tmp_path / "config.yaml"
            file.write_text(json.dumps({**made.world.settings, "observeOnly": True}), "utf-8")
            assert driver.create_container(*asked) == driver.update_container(*asked) == Adjustment()
            until(lambda: "numalign_observe_only 1" in page(agent, "/metrics")[1], "the metric")
        finally:
            go_on.set()


DESCRIBED = "synthetic:2 sockets x 1 node x 4 cores x 1 thread, 8G per node"
RIGHT = "reservedSystemCPUs: '0'\n"


@pytest.mark.parametrize("wrong", ["reservedSystemCPUs: '99'", "reservedSystemCpus: '1'", "waiting: soon"])
def test_s03_a_mistake_beside_the_kill_switch_does_not_keep_it_off(tmp_path: Path, wrong: str) -> None:
    """The rest of the file changes nothing; the agent says both."""
    ears, config = Ears(), tmp_path / "config.yaml"
    config.write_text(RIGHT)
    before = setup.read_setup(config, DESCRIBED)
    config.write_text(f"{wrong}\nobserveOnly: true\n")
    now = setup.again(config, DESCRIBED, before, ears)
    assert now.switches.observe_only
    assert str(now.node.reserved) == "0"
    assert [(what, text.split(":")[0]) for what, text in ears.problems] == [
        ("settings", "the old settings stay, with observeOnly")
    ]


@pytest.mark.parametrize(
    "text", ["observeOnly: yes please", "observeOnly: [true]", "observeOnly: true\n  a: [", "- true"]
)
def test_s03_what_is_no_kill_switch_turns_nothing_off(tmp_path: Path, text: str) -> None:
    """Neither another value nor a file that is no YAML stops the agent."""
    ears, config = Ears(), tmp_path / "config.yaml"
    config.write_text(RIGHT)
    before = setup.read_setup(config, DESCRIBED)
    config.write_text(text)
    assert not setup.again(config, DESCRIBED, before, ears).switches.observe_only
    assert len(ears.problems) == 1


def test_s03_a_wrong_file_never_turns_the_kill_switch_off(tmp_path: Path) -> None:
    """It is on; who turns it off and mistypes something finds it on."""
    ears, config = Ears(), tmp_path / "config.yaml"
    config.write_text(RIGHT + "observeOnly: true\n")
    before = setup.read_setup(config, DESCRIBED)
    config.write_text("reservedSystemCPUs: '99'\nobserveOnly: false\n")
    assert setup.again(config, DESCRIBED, before, ears).switches.observe_only


ASKING = manifest("me", container(cpu="", memory=""), namespace="numalign-system", release="please")
NODE = {"kind": "Node", "metadata": {"name": "n1", "uid": "n1"}, "status": {}}


def ask(agent: ClusterService) -> None:
    """The watch brings the request, on a thread of its own, which waits for nobody."""
    thread = threading.Thread(target=agent.source.intake.pod_changed, args=(ASKING,))
    thread.start()
    thread.join(PATIENCE)
    assert not thread.is_alive()


def sets(made: ClusterNode) -> list[str]:
    """The CPUs in force for each pod."""
    return [made.world.effective(name) for name in PODS]


def released_for_good(made: ClusterNode, agent: ClusterService) -> None:
    """Every container may run everywhere; whatever makes the agent look at the cgroups, it writes nothing to them."""
    everywhere = str(made.world.machine.online)
    until(lambda: sets(made) == [everywhere] * len(PODS))
    assert agent.engine.halted
    assert agent.engine.reconcile() == ()
    agent.source.intake.node_changed(NODE)
    made.world.tree.kernel_write(made.world.path("a", "app"), "cpuset.cpus", "6")
    assert agent.engine.reconcile() == ()
    assert sets(made) == ["6", everywhere, everywhere], "nobody repairs a node that was released"


def test_s18_a_plan_writes_no_more_once_release_was_asked_for(tmp_path: Path) -> None:
    """S18: asked before the first of three repairs is made: none is, and nothing comes after the release."""
    made, serving, up = node(tmp_path, "0,5"), list[ClusterService](), threading.Event()
    before: list[list[str]] = []

    def steps(name: str) -> None:
        if name.startswith("write ") and name.endswith("cpuset.cpus"):
            before.append(sets(made))
            if len(before) == 1 and up.wait(PATIENCE):
                ask(serving[0])

    with StandInApi() as api, made.serving(api.url, steps=steps, own_uid="me") as agent:
        serving.append(agent)
        up.set()
        until(lambda: len(before) > 1)
        assert before[:2] == [["0,5"] * 3] * 2, "the second write is the release's"
        released_for_good(made, agent)
