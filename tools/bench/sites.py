"""Trees for `tools.bench.node`: 250 pods in plain files, or on this machine's own v1 hierarchy."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from agent.core.admission.node import Node
from agent.core.machines.synthetic import parse_synthetic
from agent.core.request.exclusive import EXCLUSIVE
from agent.host.cgroups import Cgroups
from agent.host.checkpoint import Checkpoint
from agent.host.scratch import Layout, Scratch
from agent.host.standin import container_id
from agent.model.ledger import Ledger
from agent.model.machine import Machine
from agent.model.pod import Container, Pod, Qos
from tests.world.nodes import managers_of

PODS, FEW, CROWD = 250, 20, 110
WIDE = "8 sockets x 1 nodes x 40 cores x 1 thread, 16G per node"
NARROW = "1 sockets x 1 nodes x 2 cores x 1 thread, 16G per node"
ROOT = "/sys/fs/cgroup"
FILES = ("cpuset.cpus", "cpuset.mems")


class Plain:
    """Writes a set and what is in force of it: all that a kernel would show of these trees."""

    def write(self, hierarchy: str, path: str, file: str, value: str) -> None:
        """Write one cgroup file, and its `.effective` where there is one."""
        Path(f"{hierarchy}{path}/{file}").write_text(value, "ascii")
        effective = Path(f"{hierarchy}{path}/{file}.effective")
        if effective.exists():
            effective.write_text(value, "ascii")


def pod(number: int, *, exclusive: bool) -> Pod:
    """A pod of two containers: one with a CPU of its own (or none), one that shares."""
    cpu = 1000 if exclusive else 500
    containers = tuple(
        Container(name, requests=each, limits=each)
        for name, each in (("app", {"cpu": cpu, "memory": 1 << 26}), ("side", {"cpu": 100, "memory": 1 << 26}))
    )
    return Pod(f"pod-{number:03}", f"pod-{number:03}", "default", containers, Qos.GUARANTEED, created=float(number))


PINNED = [pod(number, exclusive=True) for number in range(PODS)]
SHARING = [pod(number, exclusive=False) for number in range(PODS)]


def node_of(machine: Machine) -> Node:
    """The managers with the defaults."""
    return managers_of(machine, {"kubeReserved": {"cpu": "1"}})


def names_of(pods: list[Pod]) -> dict[str, tuple[str, str]]:
    """Container ids."""
    return {container_id(each.uid, c.name): (each.uid, c.name) for each in pods for c in each.containers}


def granted(node: Node, pods: list[Pod]) -> Ledger:
    """A ledger that holds them all."""
    ledger = node.start()
    for each in pods:
        ledger = node.admit(ledger, each).ledger
    return ledger


def crowd(*, own: bool) -> list[Pod]:
    """Burstable pods that share, and one whose app may have a CPU of its own (numalign.io/exclusive)."""
    found = [replace(each, qos=Qos.BURSTABLE) for each in SHARING[:CROWD]]
    asks = {EXCLUSIVE: "auto"} if own else {}
    return [*found, replace(PINNED[CROWD], qos=Qos.BURSTABLE, annotations=asks)]


class Files:
    """The kubelet's tree in plain files."""

    def __init__(self, folder: Path, version: int, pods: list[Pod] = PINNED) -> None:
        machine = parse_synthetic(WIDE)
        self.node, self.pods = node_of(machine), pods
        self.tree = Scratch.create(
            folder / "cgroup", cpus=machine.online, nodes=machine.node_set, setup=Layout(version=version)
        )
        for each in self.pods:
            self.tree.add_pod(each.uid, each.qos)
            for container in each.containers:
                self.tree.add_container(each.uid, container_id(each.uid, container.name), processes=0)
        self.cgroups = Cgroups(folder / "cgroup", kernel=Plain())
        self.store = Checkpoint(folder / "checkpoint.json")
        self.store.save(granted(self.node, self.pods))

    def close(self) -> None:
        """The folder goes with its maker."""


class Real:
    """Folders of our own on the machine's v1 hierarchy. All containers share CPU 0, CPU 1 is another pod's."""

    def __init__(self, folder: Path, pods: list[Pod]) -> None:
        machine = parse_synthetic(NARROW)
        self.node, self.pods = node_of(machine), pods
        self.base = f"/numalign-bench-{os.getpid()}-{len(pods)}"
        self._hierarchy = f"{ROOT}/cpuset"
        self._made: list[str] = []
        self.races = 0
        """How often a parent shrank while a child copied its set."""
        self.store = Checkpoint(folder / "checkpoint.json")
        self.store.save(granted(self.node, [pod(PODS, exclusive=True), *self.pods]))
        self.cgroups = Cgroups(ROOT, kubepods=f"{self.base}/kubepods")

    def ready(self) -> None:
        """The kubelet's root."""
        for path in ("", "/kubepods"):
            self.make(path)

    def make(self, path: str) -> None:
        """A cgroup as runc makes it on v1: its parent's sets are copied."""
        folder = Path(self._hierarchy + self.base + path)
        folder.mkdir()
        self._made.append(str(folder))
        for file in FILES:
            while True:  # its parent may shrink between the two: runc fails then, and the kubelet tries again
                with suppress(PermissionError):  # counted as a race
                    (folder / file).write_text((folder.parent / file).read_text("ascii"), "ascii")
                    break
                self.races += 1
        if not path:
            (folder / FILES[0]).write_text("0-1", "ascii")

    def fill(self, pause: float) -> dict[str, float]:
        """All pods' folders, so many seconds apart; path of each container -> when it was asked for."""
        times = {}
        for each in self.pods:
            time.sleep(pause)
            self.make(f"/kubepods/pod{each.uid}")
            for container in each.containers:
                path = f"/kubepods/pod{each.uid}/{container_id(each.uid, container.name)}"
                times[self.base + path] = time.monotonic()
                self.make(path)
        return times

    def at_rest(self, path: str) -> bool:
        """Whether a container has the shared pool."""
        return Path(f"{self._hierarchy}{path}/{FILES[0]}").read_text("ascii").strip() == "0"

    def close(self) -> None:
        """Remove all of it."""
        for folder in reversed(self._made):
            with suppress(OSError):  # what still runs in it keeps it
                Path(folder).rmdir()
        self._made.clear()
