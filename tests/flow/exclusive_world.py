"""Worlds of Burstable pods with CPUs of their own; they look after each single write who stands on whose CPUs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from agent.host.scratch import CgroupDriver, Layout, Scratch
from agent.host.standin import container_id
from agent.kube import pod_report as pod_reports
from agent.kube.objects.pod_objects import seen
from agent.model.cgroup import Cgroup, Level, Write, Written
from agent.model.idset import CpuSet
from agent.model.pod import Qos
from tests.flow.world import World, container, manifest

MACHINE = "2 sockets x 1 node x 16 cores x 1 thread"


ALL = CpuSet.parse("0-31")


MEMORY: dict[str, Any] = {
    "memoryManagerPolicy": "Static", "kubeReserved": {"cpu": "1", "memory": "412Mi"},
    "reservedMemory": [{"numaNode": 0, "limits": {"memory": "512Mi"}}],
}  # fmt: skip


SIDE: dict[str, Any] = {"resources": {"requests": {"cpu": "100m"}, "limits": {"cpu": "500m"}}}


EVERY_LAYOUT = pytest.mark.parametrize(
    "layout", [Layout(version, driver) for version in (1, 2) for driver in CgroupDriver],
    ids=lambda each: f"v{each.version}-{each.driver}",
)  # fmt: skip


class Node(World):
    """A world of a given layout that looks after each single write who stands on whose CPUs."""

    def __init__(self, folder: Path, layout: Layout | None = None, **more: Any) -> None:  # noqa: ANN401 - of several types
        if not folder.exists():
            Scratch.create(folder, cpus=ALL, nodes=World(folder.parent / "plain", machine=MACHINE).machine.node_set,
                           setup=layout or Layout(2))  # fmt: skip
        super().__init__(folder, machine=MACHINE, **more)
        self._apply = self.cgroups.apply
        self.cgroups.apply = self._one_by_one  # type: ignore[method-assign]  # watched by this world
        self.engine.pods_listed(set())

    def _one_by_one(self, writes: tuple[Write, ...], go_on: Any = lambda: True) -> tuple[Written, ...]:  # noqa: ANN401 - as it is called
        done: list[Written] = []
        before = {each for each, _ in self.trespassers()}
        for write in writes:
            done += self._apply((write,), go_on)
            now = {each for each, _ in self.trespassers()}
            assert now <= before, f"after {write}: {now - before}"
            before = now
        return tuple(done)

    def trespassers(self) -> Iterator[tuple[str, CpuSet]]:
        """Whoever may run on CPUs that another container has in force already."""
        here = [each for each in self.cgroups.observe().cgroups if each.level is Level.CONTAINER]
        names, ledger = self.names(), self.engine.ledger
        placed = {
            each.path: each.effective_cpus for each in here
            if ledger.grant(*names.get(each.container_id, ("", ""))).cpus == each.effective_cpus
        }  # fmt: skip
        for other in here:
            for path, cpus in placed.items():
                if path != other.path and other.effective_cpus & cpus:
                    yield other.path, other.effective_cpus & cpus

    def come(self, body: Mapping[str, Any], defaults: Mapping[str, str] | None = None) -> None:
        """A pod is listed, with its namespace's annotations below its own, and runs."""
        found = seen(body, defaults or {}).pod
        self.pods[found.uid] = found
        self.engine.pods_seen([found])
        self.start(found.uid)

    def released(self) -> None:
        """Everything is put back: nobody has CPUs of his own from here on."""
        self.cgroups.apply = self._apply  # type: ignore[method-assign]  # watched by this world
        self.engine.release()

    def slice_of(self, qos: Qos) -> Cgroup:
        return next(c for c in self.cgroups.observe().cgroups if c.level is Level.QOS and c.qos is qos)

    def message(self, uid: str) -> str:
        rules = self.engine.node.rules
        return pod_reports.admitted(uid, self.engine.ledger, self.machine, rules=rules).message


def burstable(name: str, cpu: str = "4", created: int = 0, **notes: Any) -> dict[str, Any]:  # noqa: ANN401 - a manifest's
    """An app with whole CPUs, and a sidecar that makes its pod Burstable."""
    side = container("side", cpu="", memory="") | SIDE
    return manifest(name, container("app", cpu=cpu), side, created=created, **notes)


def guaranteed(name: str, cpu: str = "2", created: int = 0, **notes: Any) -> dict[str, Any]:  # noqa: ANN401 - a manifest's
    """One that needs no annotation."""
    return manifest(name, container("app", cpu=cpu), created=created, **notes)


def limited(node: Node, path: str, milli: int) -> None:
    """The kubelet or the runtime gives a cgroup a quota worth so many thousandths of a CPU."""
    if not milli:
        return
    if node.tree.layout.version == 1:
        node.tree.kernel_write(path, "cpu.cfs_quota_us", str(milli * 100))
    else:
        node.tree.kernel_write(path, "cpu.max", f"{milli * 100} 100000")


def quotas(node: Node) -> dict[str, int]:
    """Container ("" for the pod) -> thousandths of a CPU that its quota is worth; 0 for none."""
    names = {container_id("b", name): name for name in ("app", "side", "two", "pause")} | {"": ""}
    found = {}
    for each in node.cgroups.observe().cgroups:
        if each.pod_uid == "b" and each.level in (Level.POD, Level.CONTAINER):
            first = each.quota.split()[0] if each.quota else "max"
            found[names[each.container_id]] = 0 if first in ("max", "-1") else int(first) // 100
    return found
