"""S6: where the runtime is told to start a container on its own CPUs nobody else is, whenever it asks."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from agent.host.device_nodes import Usable
from agent.host.nri.decisions import EngineDecisions
from agent.host.scratch import Layout, Scratch
from agent.host.standin import container_id
from agent.model.cgroup import Level
from agent.model.idset import CpuSet
from agent.model.pod import Qos
from tests.examples import examples
from tests.flow.world import World, container, manifest

WHAT = ("come", "resize", "start", "end", "switch", "reconcile", "nameless")


class Event(NamedTuple):
    """What happens to which pod; and what amid its plan, before the write of a number."""

    what: str
    pod: int
    cpus: int
    amid: str
    write: int


EVENTS = st.builds(
    Event, st.sampled_from(WHAT), st.integers(0, 3), st.integers(1, 3),
    st.sampled_from(["", "", "switch", "name", "start"]), st.integers(1, 5),
)  # fmt: skip


class Node:
    """A node whose runtime asks before every write, and starts containers where it is told to."""

    def __init__(self, folder: Path, version: int) -> None:
        plain = World(folder / "plain").machine
        Scratch.create(folder / "tree", cpus=plain.online, nodes=plain.node_set, setup=Layout(version))
        self.world = World(folder / "tree")
        self.world.check = lambda: None  # type: ignore[method-assign]  # a container that starts is pinned a plan later
        self.decisions = EngineDecisions(self.world.engine, lambda _address: Usable(()))
        self.running: set[str] = set()
        self.nameless: list[str] = []
        self.event: Event | None = None
        self.world.engine.pods_listed(set())
        self.world.run(manifest("web", container(cpu="", memory=""), created=1))
        self.world.kernel.before = self.before

    def before(self, _path: str, _file: str, _value: str) -> None:
        """A write is about to be made."""
        self.look()
        if self.event is not None:
            event = self.event
            self.event = event._replace(write=event.write - 1) if event.write > 1 else None
            if event.write == 1:
                self.amid(event)

    def amid(self, event: Event) -> None:
        """Something comes while the engine writes: what takes no lock."""
        if event.amid == "switch":
            self.world.engine.halted = True
        elif event.amid == "name" and self.nameless:
            number = self.nameless.pop()
            self.world.engine.containers_announced({number: (number, "app")})
        elif event.amid == "start":
            self.start(f"p{event.pod}")

    def start(self, uid: str) -> None:
        """The runtime makes a container where it is told to."""
        engine = self.world.engine
        if uid in self.running or not self.world.holds(uid):
            return
        number = container_id(uid, "app")
        engine.containers_announced({number: (uid, "app")})
        cpus = None if engine.halted else self.decisions.desired(uid, "app").cpus
        self.world.tree.add_pod(uid, Qos.GUARANTEED)
        path = self.world.tree.add_container(uid, number)
        if cpus:
            self.world.tree.kernel_write(path, "cpuset.cpus", str(cpus))
        self.running.add(uid)

    def happen(self, event: Event, step: int) -> None:
        """One event, and what it brings about."""
        world, uid = self.world, f"p{event.pod}"
        self.event = event if event.amid else None
        if event.what in ("come", "resize") and (event.what == "resize") is (uid in world.pods):
            world.see(manifest(uid, container(cpu=str(event.cpus)), created=2 + event.pod))
        elif event.what == "start":
            self.start(uid)
            world.engine.containers_seen({container_id(uid, "app"): (uid, "app")})
        elif event.what == "end" and uid in world.pods:
            del world.pods[uid]
            if uid in self.running:
                self.running.remove(uid)
                world.end(uid)
            world.engine.pods_gone([uid])
        elif event.what == "nameless":
            number = f"{step:064x}"
            world.tree.add_pod(number, Qos.BEST_EFFORT)
            world.tree.add_container(number, number)
            self.nameless.append(number)
        else:
            world.engine.halted = event.what == "switch" and not world.engine.halted
            self.look()
            world.engine.reconcile()
        self.event = None
        self.look()

    def look(self) -> None:
        """The runtime asks for each container that has CPUs of its own."""
        saved = self.world.engine.snapshot.saved
        if self.world.engine.halted or saved is None:
            return
        there = [each for each in self.world.cgroups.observe().cgroups if each.level is Level.CONTAINER]
        for uid in saved.cpus.assigned:
            told = self.decisions.desired(uid, "app")
            others = CpuSet.union(each.effective_cpus for each in there if each.pod_uid != uid)
            assert not told.exclusive or told.cpus is None or told.cpus.isdisjoint(others), (
                f"{uid} would start on {told.cpus}, and others run on {others}"
            )


@given(st.sampled_from([1, 2]), st.lists(EVENTS, min_size=5, max_size=15))
@settings(max_examples=examples(40))
def test_s6_no_container_starts_beside_others_whenever_the_runtime_asks(version: int, events: list[Event]) -> None:
    """A plan may be under way, or cut short by the kill switch or a name: a start puts nobody beside others."""
    with TemporaryDirectory() as folder:
        node = Node(Path(folder), version)
        for step, event in enumerate(events):
            node.happen(event, step)
        node.world.engine.halted = False
        node.world.engine.reconcile()
        for uid in node.world.engine.ledger.cpus.assigned:
            assert node.decisions.desired(uid, "app").exclusive, "in the end, each is told to have its own"
