"""Paper nodes under a real kube-apiserver and a real kube-scheduler: each decides with the agent's own engine.

A node has a scratch cgroup tree whose kernel behaves (`tests.flow.world`), publishes its summary as the agent does,
and plays the kubelet: a pod that is refused fails, and a pod that is in starts.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agent.forecast.node_summary import encode, summarize
from agent.kube.topology_crd import PATH, topology_object
from agent.model.ledger import Ledger
from tests.cluster.control_plane import ApiError, ControlPlane
from tests.cluster.nodes import MERGE, install, register
from tests.cluster.objects import Object
from tests.flow.world import World
from tests.patience import until

MACHINES = (
    "2 sockets x 2 nodes x 6 cores x 2 threads, 16G per node",
    "2 sockets x 1 node x 16 cores x 2 threads, 32G per node",
    "1 socket x 4 nodes x 8 cores x 1 thread, 8G per node",
)
KEPT = {"reservedMemory": [{"numaNode": 0, "limits": {"memory": "612Mi"}}], "memoryManagerPolicy": "Static"}
SETTINGS: tuple[Mapping[str, Any], ...] = (
    {"topologyManagerPolicy": "single-numa-node", **KEPT, "kubeReserved": {"cpu": "1", "memory": "512Mi"}},
    {"topologyManagerPolicy": "restricted", "topologyManagerScope": "pod"},
    {"topologyManagerPolicy": "best-effort", "cpuManagerPolicyOptions": {"full-pcpus-only": "true"}},
    {"topologyManagerPolicy": "single-numa-node", "onMisalignment": "run"},
)
SHAPES = (
    ("1", "200Mi"), ("1", "500Mi"), ("1", "1Gi"), ("2", "500Mi"), ("2", "1Gi"), ("3", "1Gi"), ("4", "1Gi"),
    ("500m", "128Mi"), ("", ""),
)  # fmt: skip
SEEN = 0.3
"""Seconds after which kube-scheduler has seen that a pod failed."""


def scheduling(strategy: str, names: list[str]) -> dict[str, Any]:
    """A scheduler that scores by NodeResourcesFit; of equal nodes the one that is listed first wins, without lots.

    The second score can only decide between equals: it has a thousandth of the weight.
    """
    first = [
        {"weight": len(names) - place, "preference": {"matchFields": [
            {"key": "metadata.name", "operator": "In", "values": [name]}
        ]}} for place, name in enumerate(names)
    ]  # fmt: skip
    added = {"addedAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": first}}
    score = {"disabled": [{"name": "*"}], "enabled": [
        {"name": "NodeResourcesFit", "weight": 1000}, {"name": "NodeAffinity", "weight": 1}
    ]}  # fmt: skip
    return {
        **PLAIN, "percentageOfNodesToScore": 100,
        "profiles": [{
            "schedulerName": "default-scheduler", "plugins": {"score": score},
            "pluginConfig": [
                fit(strategy), {"name": "NodeAffinity", "args": added}
            ],
        }],
    }  # fmt: skip


def fit(strategy: str) -> Object:
    """The order of nodes by NodeResourcesFit."""
    order = {"type": strategy, "resources": [{"name": name, "weight": 1} for name in ("cpu", "memory")]}
    return {"name": "NodeResourcesFit", "args": {"scoringStrategy": order}}


PLAIN = {
    "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
    "leaderElection": {"leaderElect": False},
}  # fmt: skip
"""The scheduler as it comes, lots included."""


@dataclass
class Lot:
    """What became of a pod.

    Attributes:
        node: where it is bound; "" for nowhere.
        runs: its node let it in.
        cpus, memory: what its container holds.
        aligned: whether that lies as its policy wants.
    """

    node: str = ""
    runs: bool = False
    cpus: str = ""
    memory: str = ""
    aligned: bool = True


def lot_of(node: str, ledger: Ledger, uid: str) -> Lot:
    """What a pod has on a node, in words; the node refused it where it is not in the ledger."""
    record = ledger.pods.get(uid)
    if record is None:
        return Lot(node)
    grants = [ledger.grant(uid, each.name) for each in record.pod.containers]
    blocks = (",".join(f"{block.resource}:{block.size}@{block.nodes}" for block in each.memory) for each in grants)
    cpus = ";".join(str(each.cpus or "") for each in grants)
    aligned = all(record.aligned.values()) and not record.why
    return Lot(node, runs=True, cpus=cpus, memory=";".join(blocks), aligned=aligned)


class _PaperWorld(World):
    """A node that is checked at the end: to look at all cgroups after each event takes longer than all else."""

    def check(self) -> None:
        pass


class PaperFleet:
    """Nodes by name, and the pods that the scheduler binds to them."""

    def __init__(self, cluster: ControlPlane, folder: Path, count: int, seed: int) -> None:
        self.cluster, self._draw = cluster, random.Random(seed)
        self.names = [f"paper-{number:02}" for number in range(count)]
        self.bodies: dict[str, Object] = {}
        self.worlds = {
            name: _PaperWorld(
                folder / name, machine=MACHINES[number % len(MACHINES)],
                settings={"onMisalignment": "fail", **SETTINGS[number % len(SETTINGS)]},
            ) for number, name in enumerate(self.names)
        }  # fmt: skip
        install(cluster)
        for name, world in self.worlds.items():
            register(cluster, name, world.engine.node, memory=612 * 2**20, pods=110)

    def publish(self) -> None:
        """Each node's NodeResourceTopology, with its summary."""
        for name, world in self.worlds.items():
            state = world.engine.snapshot
            made = summarize(state, began=time.time() - time.monotonic(), enforcing=True)
            summary = encode(replace(made, generation=1, changed=time.time()))
            there = self.cluster.call("GET", f"/api/v1/nodes/{name}")
            body = topology_object(
                state.node.machine, state.ledger, state.node.rules, reserved=state.node.reserved, node=name,
                node_uid=there["metadata"]["uid"], pods=(), summary=summary,
            )  # fmt: skip
            with suppress(ApiError):  # none is there
                self.cluster.call("DELETE", f"{PATH}/{name}")
            self.cluster.call("POST", PATH, body)

    def manifest(self, name: str) -> Object:
        """A pod of the mix: some pinned, some on the shared pool, some with an annotation of their own."""
        cpu, memory = self._draw.choice(SHAPES)
        amounts = {"cpu": cpu, "memory": memory} if cpu else {}
        notes = self._draw.choice(
            ({}, {}, {}, {}, {"numalign.io/policy": "restricted"}, {"numalign.io/scope": "pod"})
        )
        resources = {"requests": amounts, "limits": amounts} if amounts else {}
        containers = [{"name": "c", "image": "none", "resources": resources}]
        if amounts and self._draw.random() < 0.2:
            containers.append({"name": "side", "image": "none", "resources": {
                part: {"cpu": "1", "memory": "100Mi"} for part in ("requests", "limits")
            }})  # fmt: skip
        return {
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", "annotations": dict(notes)},
            "spec": {"containers": containers, "terminationGracePeriodSeconds": 0},
        }  # fmt: skip

    def place(self, body: Object) -> Lot:
        """Create a pod, wait for the scheduler, and let the node decide."""
        self.cluster.create(body)
        name = body["metadata"]["name"]
        found: Object = {}

        def settled() -> bool:
            found.update(self.cluster.call("GET", f"/api/v1/namespaces/default/pods/{name}"))
            return bool(found["spec"].get("nodeName")) or _unschedulable(found)

        until(settled, what=f"the scheduler's word on {name}")
        if not found["spec"].get("nodeName"):
            self.delete(name)
            return Lot()
        return self.decide(found)

    def decide(self, found: Object) -> Lot:
        """A bound pod comes to its node."""
        name, uid, where = found["metadata"]["name"], found["metadata"]["uid"], found["spec"]["nodeName"]
        world = self.worlds[where]
        world.see(found)
        if uid not in world.engine.ledger.pods:
            world.engine.pods_listed([each for each in world.engine.pods if each != uid])  # the kubelet failed it
            self.cluster.call(
                "PATCH", f"/api/v1/namespaces/default/pods/{name}/status", {"status": {"phase": "Failed"}}, kind=MERGE
            )
            time.sleep(SEEN)
            return Lot(where)
        world.start(uid)
        self.bodies[name] = found
        return lot_of(where, world.engine.ledger, uid)

    def check(self) -> None:
        """What is true in every world: nobody runs on granted CPUs of others."""
        for world in self.worlds.values():
            World.check(world)

    def end(self, name: str) -> None:
        found = self.bodies.pop(name)
        world, uid = self.worlds[found["spec"]["nodeName"]], found["metadata"]["uid"]
        self.delete(name)
        world.end(uid)
        there = [each for each in world.engine.pods if each != uid]
        world.engine.pods_listed(there)
        world.engine.reconcile()

    def delete(self, name: str) -> None:
        self.cluster.call("DELETE", f"/api/v1/namespaces/default/pods/{name}?gracePeriodSeconds=0")

    def bound(self, prefix: str) -> Iterator[Object]:
        """Pods that are bound, in the order in which the API server knows them."""
        items = self.cluster.call("GET", "/api/v1/namespaces/default/pods")["items"]
        there = [
            each for each in items if each["spec"].get("nodeName") and each["metadata"]["name"].startswith(prefix)
        ]
        yield from sorted(there, key=lambda each: int(each["metadata"]["resourceVersion"]))


def _unschedulable(body: Object) -> bool:
    conditions = body.get("status", {}).get("conditions", [])
    return any((each["type"], each.get("reason")) == ("PodScheduled", "Unschedulable") for each in conditions)
