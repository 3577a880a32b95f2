"""Which of several nodes a pod goes to, as kube-scheduler counts: for `simulate`. Pure and deterministic.

    filter   what the pod requests fits into allocatable less what the node's pods request, for every resource that
             the node counts (NodeResourcesFit), and the node may run one pod more
    score    least-allocated, the scheduler's default, or most-allocated: the mean over CPU and memory of the share
             that would be free (or taken), in whole hundredths; what a container does not request counts as 100m
             and 200Mi
    ties     the node that was named first (the scheduler draws lots)

https://kubernetes.io/docs/concepts/scheduling-eviction/resource-bin-packing/. Like the scheduler's own, these sums
know nothing of NUMA nodes. Node selectors, affinity, taints, spreading and the balance of resources are not counted.
Amounts are thousandths of a unit, as in `agent.model.pod`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container as Collected
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from agent.core.admission.node import Node
from agent.core.request.amounts import HUGE
from agent.model.pod import ContainerKind, Pod

PODS = "pods"
CPU, MEMORY = "cpu", "memory"
LEAST_CPU, LEAST_MEMORY = 100, 200 * 2**20 * 1000
"""What a container without requests counts as in scores (pkg/scheduler/util/pod_resources.go)."""
FULL = 100


class Strategy(StrEnum):
    """The scoring strategy of NodeResourcesFit."""

    LEAST_ALLOCATED = "least-allocated"
    MOST_ALLOCATED = "most-allocated"


@dataclass(frozen=True, slots=True)
class Needs:
    """What the scheduler counts of a pod.

    Attributes:
        amounts: (resource, thousandths), sorted, nothing that is zero; "pods" is one of them.
        cpu, memory: thousandths for the score.
    """

    amounts: tuple[tuple[str, int], ...]
    cpu: int
    memory: int


def needs_of(pod: Pod) -> Needs:
    """What the scheduler counts: the most that is held at once, pod-level requests in its place, and the overhead."""
    names = {name for each in pod.containers for name in each.requests} | set(pod.requests or ())
    found = {PODS: 1000}
    for name in names | set(pod.overhead):
        found[name] = _asked(pod, name)
    amounts = tuple((name, found[name]) for name in sorted(found) if found[name])
    return Needs(amounts, _asked(pod, CPU, LEAST_CPU), _asked(pod, MEMORY, LEAST_MEMORY))


def _asked(pod: Pod, name: str, missing: int = 0) -> int:
    """Of one resource; `missing` is what a container counts as that does not request it."""
    whole = (pod.requests or {}).get(name)
    return (_at_once(pod, name, missing) if whole is None else whole) + pod.overhead.get(name, 0)


def _at_once(pod: Pod, name: str, missing: int) -> int:
    """The highest sum of requests at a time: init containers one after the other, beside the sidecars before them."""
    beside = peak = apps = 0
    for container in pod.containers:
        milli = container.requests.get(name, missing)
        if container.kind is ContainerKind.APP:
            apps += milli
        elif container.kind is ContainerKind.SIDECAR:
            beside += milli
            peak = max(peak, beside)
        else:
            peak = max(peak, beside + milli)
    return max(apps + beside, peak)


def room_of(node: Node, *, reserved_cpu: int, reserved_memory: int, most_pods: int) -> dict[str, int]:
    """Node Allocatable of a machine: resource -> thousandths.

    Args:
        node: the managers; devices that it hands out are resources.
        reserved_cpu: thousandths of a CPU kept from pods.
        reserved_memory: bytes kept from pods.
        most_pods: the kubelet's maxPods.
    """
    found = {PODS: 1000 * most_pods}
    for each in node.machine.nodes:
        for name, size in each.resources.items():
            found[name] = found.get(name, 0) + 1000 * size
    found[CPU] = max(0, 1000 * len(node.machine.online) - reserved_cpu)
    found[MEMORY] = max(0, found.get(MEMORY, 0) - 1000 * reserved_memory)
    found |= {resource: 1000 * len(devices) for resource, devices in node.inventory.resources.items()}
    return dict(sorted(found.items()))


class Scheduler:
    """Nodes by number, and what their pods request. The only state is `taken`.

    Args:
        rooms: allocatable per node.
        strategy: how nodes that fit are scored.
    """

    def __init__(self, rooms: Sequence[Mapping[str, int]], strategy: Strategy = Strategy.LEAST_ALLOCATED) -> None:
        self._rooms = rooms
        self._free = [dict(room) for room in rooms]
        self._scored = [[room[CPU], room[MEMORY]] for room in rooms]  # what is free as scores count it
        self._most = strategy is Strategy.MOST_ALLOCATED
        self._counted = frozenset(name for room in rooms for name in room)

    @property
    def counted(self) -> frozenset[str]:
        """The resources that some node counts."""
        return self._counted

    def taken(self, number: int) -> dict[str, int]:
        """Resource -> what the pods of a node request."""
        return {name: total - self._free[number][name] for name, total in self._rooms[number].items()}

    def choose(self, needs: Needs, avoid: Collected[int] = (), only: int | None = None) -> int | None:
        """The node that the pod goes to; None when it fits nowhere.

        Args:
            needs: of the pod.
            avoid: nodes that are out of the question.
            only: the one node that is not; None for all.
        """
        best, highest = None, -1
        amounts = self._asked(needs)
        for number, free in enumerate(self._free) if only is None else [(only, self._free[only])]:
            for name, amount in amounts:
                if free.get(name, 0) < amount:
                    break
            else:
                score = self._score(number, needs)
                if score > highest and number not in avoid:
                    best, highest = number, score
        return best

    def lacking(self, needs: Needs) -> dict[str, int]:
        """Resource -> on how many nodes it is what does not fit (a node may lack several)."""
        lacks = Counter[str]()
        for free in self._free:
            lacks.update(name for name, amount in self._asked(needs) if free.get(name, 0) < amount)
        return dict(sorted(lacks.items()))

    def take(self, number: int, needs: Needs) -> None:
        """A pod is bound to a node."""
        self._add(number, needs, 1)

    def give(self, number: int, needs: Needs) -> None:
        """A pod of a node ended or failed."""
        self._add(number, needs, -1)

    def _asked(self, needs: Needs) -> tuple[tuple[str, int], ...]:
        """Resources that nobody counts keep no pod away: devices of plugins, say, of which nothing is known here."""
        return tuple(
            (name, amount) for name, amount in needs.amounts if name in self._counted or name.startswith(HUGE)
        )

    def _add(self, number: int, needs: Needs, sign: int) -> None:
        free, scored = self._free[number], self._scored[number]
        for name, amount in needs.amounts:
            if name in free:
                free[name] -= sign * amount
        scored[0] -= sign * needs.cpu
        scored[1] -= sign * needs.memory

    def _score(self, number: int, needs: Needs) -> int:
        room, (cpu, memory) = self._rooms[number], self._scored[number]
        total = counted = 0
        for capacity, left in ((room[CPU], cpu - needs.cpu), (room[MEMORY], memory - needs.memory)):
            if capacity:
                left = max(left, 0)  # noqa: PLW2901 - what containers count as by default may be more than there is
                total += ((capacity - left) if self._most else left) * FULL // capacity
                counted += 1
        return total // counted if counted else 0
