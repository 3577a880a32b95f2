"""A node of ours without a cluster: the whole engine on a scratch tree of cgroups whose kernel is played.

What a container has is read back from its cgroup, as a process in it would see it; the kubelet's part (the cgroups,
their quotas, the devices) is played here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from agent.core.devices.kubelet import Offered
from agent.core.request.amounts import pod_limits
from agent.host.standin import container_id
from agent.model.cgroup import Cgroup
from agent.model.idset import NodeSet
from agent.model.pod import ContainerKind, Pod
from agent.model.podspec import pod_from
from agent.settings import parse
from tests.flow.world import MemoryStore, World
from tests.referee.running import ANY, SHARED, Admitted, Has, Refused
from tests.referee.sequence import Sequence, Step, manifest_of
from tests.referee.shapes import MEMORY, config_of, description

PERIOD = 100_000
LEAST = 1_000


@dataclass
class EngineNode:
    """See `tests.referee.running.Node`. `folder` must be empty."""

    folder: Path
    sequence: Sequence
    memory: str = MEMORY[-1]
    name: str = "engine"
    store: MemoryStore = field(default_factory=MemoryStore)
    count: int = 0
    given: dict[str, dict[str, set[str]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.world = self._world({})
        self.world.engine.pods_listed(set())
        self.period = int(str(self.sequence.kubelet.get("cpuCFSQuotaPeriod", "100ms")).removesuffix("ms")) * 1000

    def _world(self, pods: Mapping[str, Pod]) -> World:
        minor = f"-1.{self.sequence.since}" if self.sequence.since else ""
        ours = {"compatibility": f"kubelet{minor}", "onMisalignment": "fail"}
        settings = {**config_of(self.sequence.config), **ours}
        return World(
            self.folder / "tree", machine=description(self.sequence.machine, self.memory), store=self.store,
            settings=settings, pods=pods.values(), lift_quota=parse(settings)[0].lifts_quota,
        )  # fmt: skip

    def create(self, step: Step) -> Admitted | Refused:
        """Seen, then started container by container if it got in."""
        self.count += 1
        body = manifest_of(step, created=self.count)
        pod = pod_from(body)
        self._hand_out(pod)
        self.world.see(body)
        refusal = self.world.ears.refused_.pop(pod.uid, None)
        if refusal is not None:
            self.world.engine.pods_gone([pod.uid])
            self.world.pods.pop(pod.uid)
            self.given.pop(pod.uid, None)
            return Refused(str(refusal.reason), refusal.message)
        path = self.world.tree.add_pod(pod.uid, pod.qos)
        self._limit(path, _limit_of(pod))
        had = {}
        for container in pod.containers:
            number = container_id(pod.uid, container.name)
            self._limit(self.world.tree.add_container(pod.uid, number), container.limits.get("cpu", 0))
            self.world.engine.containers_seen({number: (pod.uid, container.name)})
            had[container.name] = self._has(self._cgroup(number))
            if container.kind is ContainerKind.INIT:
                self.finish(pod.uid, container.name)
        self.world.check()
        quota = next(each.quota for each in self.world.cgroups.observe().cgroups if each.path == path)
        return Admitted(had, _short(quota))

    def _hand_out(self, pod: Pod) -> None:
        """The kubelet's device manager, which knows no NUMA here: the lowest free device of each resource."""
        taken = {each for by in self.given.values() for ids in by.values() for each in ids}
        found: dict[str, tuple[Offered, ...]] = {}
        for container in pod.containers:
            for resource, devices in sorted(self.sequence.devices.items()):
                wanted = container.limits.get(resource, 0) // 1000
                free = [each for each in sorted(devices) if each not in taken][:wanted]
                taken.update(free)
                self.given.setdefault(pod.uid, {}).setdefault(container.name, set()).update(free)
                offered = [Offered(resource, each, NodeSet.of(devices[each])) for each in free]
                found[container.name] = (*found.get(container.name, ()), *offered)
        if any(found.values()):
            self.world.engine.devices_reported(pod.uid, found)

    def look(self, pod: str) -> Mapping[str, Has]:
        there = {each.container_id: each for each in self.world.cgroups.observe().cgroups if each.pod_uid == pod}
        numbers = {container_id(pod, each.name): each.name for each in self.world.pods[pod].containers}
        return {name: self._has(there[number]) for number, name in numbers.items() if number in there}

    def delete(self, pod: str) -> None:
        """Processes and cgroups end, and the pod leaves the API."""
        self.world.end(pod)
        self.world.engine.pods_gone([pod])
        self.world.pods.pop(pod)
        self.given.pop(pod, None)
        self.world.check()

    def finish(self, pod: str, container: str) -> None:
        """Processes end; for a whole pod the same comes of it as of a deletion."""
        if not container:
            self.delete(pod)
            return
        number = container_id(pod, container)
        self.world.tree.remove_container(pod, number)
        self.world.engine.container_gone(number)
        self.world.engine.reconcile()

    def restart(self) -> None:
        """The agent is killed, and another one starts over the same checkpoint and cgroups."""
        pods = dict(self.world.pods)
        self.world = self._world(pods)
        self.world.engine.pods_seen(pods.values(), ran=set(pods))
        self.world.engine.pods_listed(set(pods))
        self.world.engine.reconcile()
        self.world.check()

    def shared(self) -> str:
        """Of the ledger; that nobody else is on other CPUs is the world's own check. Empty without a CPU policy."""
        static = self.world.engine.node.rules.cpu.static
        return str(self.world.engine.ledger.cpus.shared) if static else ""

    def _cgroup(self, number: str) -> Cgroup:
        return next(each for each in self.world.cgroups.observe().cgroups if each.container_id == number)

    def _has(self, cgroup: Cgroup) -> Has:
        cpus = str(cgroup.effective_cpus)
        return Has(
            cpus=SHARED if cpus == (self.shared() or str(self.world.machine.online)) else cpus,
            mems=str(cgroup.effective_mems) if cgroup.mems else ANY,
            quota=_short(cgroup.quota),
        )

    def _limit(self, path: str, milli: int) -> None:
        """Kubelet rule 7.4: what the kubelet and the runtime write when they make a cgroup."""
        quota = max(LEAST, milli * self.period // 1000) if milli else "max"
        self.world.tree.kernel_write(path, "cpu.max", f"{quota} {self.period}")


def _limit_of(pod: Pod) -> int:
    """Find what a pod may use as a whole, 0 where one of its containers has no limit (kubelet rule 7.4)."""
    limited = "cpu" in (pod.limits or {}) or all(each.limits.get("cpu") for each in pod.containers)
    return pod_limits(pod)["cpu"] if limited else 0


def _short(quota: str) -> str:
    """`cpu.max` without the period where that is the usual one."""
    return quota.removesuffix(f" {PERIOD}")
