"""The saved ledger is lost at any moment: no running container with CPUs of its own loses them, or shares them."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from agent.core.request.exclusive import is_fixed
from agent.host.standin import containers_in
from agent.model.idset import CpuSet
from agent.model.podspec import pod_from
from tests.examples import examples
from tests.flow.world import World
from tests.world.manifests import container, manifest

MACHINES = (
    "2 sockets x 1 node x 4 cores x 1 thread, 4G per node",
    "2 sockets x 1 node x 4 cores x 2 threads, 4G per node",
)
SETTINGS: tuple[dict[str, Any], ...] = (
    {},
    {"cpuManagerPolicyOptions": {"full-pcpus-only": "true"}},
    {"memoryManagerPolicy": "Static", "reservedMemory": [{"numaNode": 0, "limits": {"memory": "100Mi"}}]},
)
CPUS = st.sampled_from(["1", "2", "3", "4", "6", "500m"])
EVENTS = st.one_of(
    st.tuples(st.just("comes"), st.sampled_from("abcdef"), CPUS, st.sampled_from(["", "two", "mixed", "burstable"])),
    st.tuples(st.just("resizes"), st.sampled_from("abcdef"), CPUS, st.sampled_from(["64Mi", "1Gi", "3Gi"])),
    st.tuples(st.just("is noted"), st.sampled_from("abcdef"), st.sampled_from(["pin", "exclusive"])),
    st.tuples(st.just("ends"), st.sampled_from("abcdef")),
    st.tuples(st.just("disk"), st.sampled_from(["", "No space left on device"])),
)
"""What happens to a node before its ledger is lost."""


def body_of(uid: str, cpu: str, kind: str, memory: str = "64Mi", **notes: str) -> dict[str, Any]:
    """Make a pod of a kind: with a second container, a mixed one, or one of a Burstable pod."""
    apps = [container(cpu=cpu, memory=memory)]
    if kind == "two":
        apps.append(container("beside", "1"))
    elif kind == "mixed":
        notes = {"mixed": "app", **notes}
    elif kind == "burstable":
        apps.append({"name": "beside", "image": "example.com/x"})
        notes = {"exclusive": "app", **notes}
    body = manifest(uid, *apps, created=ord(uid))
    body["metadata"]["annotations"] |= {f"numalign.io/{name}": text for name, text in notes.items()}
    return body


@dataclass
class Pods:
    """A node, and the manifests of its pods as the kubelet has followed them."""

    world: World
    bodies: dict[str, tuple[str, str, str, dict[str, str]]]

    def happens(self, event: tuple[str, ...]) -> None:
        """Let one event happen, if it can be."""
        match event:
            case ("comes", uid, cpu, kind) if uid not in self.bodies:
                self.bodies[uid] = cpu, kind, "64Mi", {}
                self.world.run(self.body(uid))
            case ("resizes", uid, cpu, memory) if uid in self.bodies:
                _, kind, _, notes = self.bodies[uid]
                self.bodies[uid] = cpu, kind, memory, notes
                self.world.see(self.body(uid))
            case ("is noted", uid, what) if uid in self.bodies:
                cpu, kind, memory, notes = self.bodies[uid]
                self.bodies[uid] = cpu, kind, memory, {**notes, what: {"pin": "false", "exclusive": "none"}[what]}
                self.world.see(self.body(uid))
            case ("ends", uid) if uid in self.bodies:
                del self.bodies[uid]
                self.world.end(uid)
                self.world.engine.pods_gone([uid])
                self.world.pods.pop(uid)
            case ("disk", why):
                self.world.store.full = why
                self.world.engine.reconcile()
            case _:
                """It cannot be: the pod is there already, or is not."""

    def body(self, uid: str) -> dict[str, Any]:
        """Make the manifest of now."""
        cpu, kind, memory, notes = self.bodies[uid]
        return body_of(uid, cpu, kind, memory, **notes)

    def alone(self) -> dict[tuple[str, str], CpuSet]:
        """Find the containers with CPUs of their own now, and which of these the kernel lets them use."""
        ledger = self.world.engine.ledger
        return {
            (uid, name): cpus & CpuSet.parse(self.world.effective(uid, name))
            for uid, each in ledger.cpus.assigned.items()
            for name, cpus in each.items()
            if uid in self.bodies
        }


def asked(body: Mapping[str, Any], name: str) -> int:
    """Count the whole CPUs that a container requests; 0 for a fraction."""
    found = next(each for each in pod_from(body).containers if each.name == name)
    return found.requests["cpu"] // 1000 if is_fixed(found) else 0


@settings(max_examples=examples(60), deadline=None)
@given(
    machine=st.sampled_from(MACHINES), config=st.sampled_from(SETTINGS), events=st.lists(EVENTS, max_size=14),
    late=st.booleans(),
)  # fmt: skip
def test_what_runs_keeps_its_cpus_when_the_ledger_is_lost(
    machine: str, config: dict[str, Any], events: list[tuple[str, ...]], *, late: bool
) -> None:
    """Pods come, resize and go, the disk is full now and then, and the ledger is gone at the next start."""
    with tempfile.TemporaryDirectory() as folder:
        before = Pods(World(Path(folder), machine=machine, settings=config), {})
        before.world.engine.pods_listed(set())
        for event in events:
            before.happens(event)
        had = before.alone()
        pods = [pod_from(before.body(uid)) for uid in before.bodies]
        world = World(Path(folder), machine=machine, settings=config, pods=() if late else pods)
        after = Pods(world, before.bodies)
        world.pods = {pod.uid: pod for pod in pods}
        there = {uid for uid in before.bodies if containers_in(world.cgroups).get(uid)}
        world.kernel.before = lambda *_: kept(after, had)
        if late:
            world.engine.adopt(pods, world.names(), {}, there)
        world.engine.pods_seen(pods, ran=there)
        world.engine.containers_seen(world.names())
        world.engine.all_named()
        world.engine.pods_listed(set(before.bodies))
        for _ in range(3):
            world.engine.reconcile()
        kept(after, had)
        world.check()


def kept(after: Pods, had: Mapping[tuple[str, str], CpuSet]) -> None:
    """Check that each container runs on what it had, or on as much of it as it requests, and no other one there."""
    runs = {(uid, name): CpuSet.parse(after.world.effective(uid, name)) for uid, name in after.world.names().values()}
    for (uid, name), cpus in had.items():
        wants = asked(after.body(uid), name)
        now = runs[uid, name] & cpus
        assert now == cpus or len(now) >= wants, f"{uid}/{name} ran on {cpus}, and runs on {runs[uid, name]}"
        if not wants:
            continue
        own = after.world.engine.snapshot.ledger.grant(uid, name).cpus or cpus
        for other, cpus_there in runs.items():
            if other != (uid, name):
                assert not cpus_there & now & own, f"{other} runs on {cpus_there}, beside {uid}/{name} on {now}"
