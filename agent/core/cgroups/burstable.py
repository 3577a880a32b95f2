"""Grants of Burstable pods: their slice then holds more than the pool, and unnamed containers below it may use that.

A Guaranteed pod lies beside the slices; a Burstable pod with CPUs of its own (numalign.io/exclusive) lies in one.
While the agent runs, every other pod of the slice has the pool by name. One that starts while it is away has what the
slice has: the pool, and these grants. The next start finds and tells it. Pure.

Used by `agent.node.recover`, `agent.node.unlisted` and the runtime's side (`agent.host.nri.decisions`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from agent.core.cgroups.desired import holders
from agent.model.cgroup import Cgroup, Level, Observed
from agent.model.idset import CpuSet
from agent.model.ledger import Ledger
from agent.model.pod import Qos

CONTAINERD = "cri-containerd-"
"""How the folders of containerd's containers begin under systemd. It makes a pod's sandbox first, and keeps it as
long as the pod; CRI-O may keep none."""


@dataclass(frozen=True, slots=True)
class Standing:
    """A container, or a pod's sandbox, that stands on CPUs granted to a pod that is not Guaranteed.

    Attributes:
        path: its cgroup.
        uid: its pod.
        container: its id, as far as it has one.
        cpus: which CPUs.
        holders: uids of the pods that they are granted to.
        sandbox: it is the pod's pause process: all other containers of its pod have names.
    """

    path: str
    uid: str
    container: str
    cpus: CpuSet
    holders: tuple[str, ...]
    sandbox: bool

    def sentence(self, ledger: Ledger, when: str) -> str:
        """Say which pod stands where, on whose CPUs, and since when.

        Args:
            ledger: has the pods.
            when: since when; "" for unknown.
        """
        pods = ledger.pods
        whose = ", ".join(pods[uid].pod.key for uid in self.holders)
        key = pods[self.uid].pod.key if self.uid in pods else f"uid {self.uid}"
        what = "the pause process of pod" if self.sandbox else "pod"
        where = f"may run on CPUs {self.cpus} of {whose}{when}: {self.path}"
        return f"{what} {key} started while no agent ran and {where}"


def standing(ledger: Ledger, names: Mapping[str, tuple[str, str]], observed: Observed) -> Iterator[Standing]:
    """Yield the containers that may run on CPUs granted to other pods. An unnamed one may be the owner of a grant.

    Args:
        ledger: the grants.
        names: container id -> (pod uid, container name), as far as known.
        observed: the tree, before anything is written.
    """
    held = holders(ledger, Qos.BURSTABLE)
    there = [each for each in observed.cgroups if held and each.level is Level.CONTAINER and each.populated]
    nameless = Counter(each.pod_uid for each in there if each.container_id not in names)
    for cgroup in there:
        if cgroup.qos is Qos.GUARANTEED:
            continue
        uid, name = names.get(cgroup.container_id, ("", ""))
        if cgroup.pod_uid in held and (uid != cgroup.pod_uid or name in ledger.cpus.assigned[cgroup.pod_uid]):
            continue
        mine = {each: cpus & cgroup.effective_cpus for each, cpus in held.items() if cpus & cgroup.effective_cpus}
        if mine:
            cpus = CpuSet.union(mine.values())
            made_first = cgroup.path.rpartition("/")[2].startswith(CONTAINERD)
            sandbox = made_first and cgroup.container_id not in names and nameless[cgroup.pod_uid] == 1
            yield Standing(cgroup.path, cgroup.pod_uid, cgroup.container_id, cpus, tuple(sorted(mine)), sandbox)


def common(observed: Observed) -> CpuSet:
    """The shared pool, as far as the cgroups say it: the BestEffort slice has nothing else."""
    return CpuSet.union(
        each.effective_cpus for each in observed.cgroups if each.level is Level.QOS and each.qos is Qos.BEST_EFFORT
    )


def own_sets(observed: Observed, reserved: CpuSet) -> Callable[[Cgroup], bool]:
    """Whether the set of a container, of which nothing else is known, may be a grant.

    That of a Guaranteed pod may. That of a Burstable one only if it lies outside of what the BestEffort slice has,
    which is always the pool alone, but for the `reserved` CPUs that a mixed set may have, too.
    """
    pool = common(observed)

    def may_be(cgroup: Cgroup) -> bool:
        if cgroup.level is not Level.CONTAINER or not cgroup.cpus:
            return False
        apart = cgroup.cpus - reserved
        return cgroup.qos is Qos.GUARANTEED or bool(pool and apart and apart.isdisjoint(pool))

    return may_be
