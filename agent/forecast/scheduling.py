"""Which of several nodes a pod goes to, as kube-scheduler counts: for `simulate`. Pure and deterministic.

    filter   what the pod requests fits into allocatable less what the node's pods request, for every resource that
             the node counts (NodeResourcesFit), and the node may run one pod more
    score    least-allocated, the scheduler's default, or most-allocated: the mean over CPU and memory of the share
             that would be free (or taken), in whole hundredths; what a container does not request counts as 100m
             and 200Mi; listed gives no scores: each pod goes to the first node that has room
    ties     the node that was named first (the scheduler draws lots)

https://kubernetes.io/docs/concepts/scheduling-eviction/resource-bin-packing/. Like the scheduler's own, these sums
know nothing of NUMA nodes. Selectors, affinity and taints are for `agent.forecast.placing`. Spreading and the balance
of resources are not counted.
Amounts are thousandths of a unit, as in `agent.model.pod`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container as Collected
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from heapq import heapify, heappop, heappush

from agent.core.admission.allocatable import CPU, MEMORY, PODS
from agent.core.request.amounts import HUGE
from agent.model.pod import ContainerKind, Pod

LEAST_CPU, LEAST_MEMORY = 100, 200 * 2**20 * 1000
"""What a container without requests counts as in scores (pkg/scheduler/util/pod_resources.go)."""
FULL = 100


class Strategy(StrEnum):
    """The scoring strategy of NodeResourcesFit; `listed` is none of its."""

    LEAST_ALLOCATED = "least-allocated"
    MOST_ALLOCATED = "most-allocated"
    LISTED = "listed"


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


NONE = Needs((), 0, 0)
"""Of no pod."""


@dataclass(slots=True)
class _Ranking:
    """The nodes that one kind of pod fits on, best first.

    Attributes:
        heap: (-score, node, how often the node had changed by then); what is older than the node is skipped.
        seen: how many changes are in it.
    """

    heap: list[tuple[int, int, int]]
    seen: int


class Scheduler:
    """Nodes by number, and what their pods request.

    Args:
        rooms: allocatable per node.
        strategy: how nodes that fit are scored.
        held: what their pods request at the beginning, per node; () for nothing.
        strict: a resource that no node counts keeps a pod away; else it is not known here, and does not.
    """

    def __init__(
        self, rooms: Sequence[Mapping[str, int]], strategy: Strategy = Strategy.LEAST_ALLOCATED,
        held: Sequence[Needs] = (), *, strict: bool = False,
    ) -> None:  # fmt: skip
        self._rooms = rooms
        self._free = [dict(room) for room in rooms]
        self._scored = [[room.get(CPU, 0), room.get(MEMORY, 0)] for room in rooms]  # what is free as scores count it
        self._strategy, self._strict = strategy, strict
        self._counted = frozenset(name for room in rooms for name in room)
        self._versions = [0] * len(rooms)
        self._changes = list[int]()
        self._closed = set[int]()
        self._rankings: dict[tuple[Needs, frozenset[int]], _Ranking] = {}
        self._lacks: dict[Needs, tuple[int, dict[str, int]]] = {}
        for number, needs in enumerate(held):
            self._add(number, needs, 1)

    @property
    def counted(self) -> frozenset[str]:
        """The resources that some node counts."""
        return self._counted

    def taken(self, number: int) -> dict[str, int]:
        """Resource -> what the pods of a node request."""
        return {name: total - self._free[number][name] for name, total in self._rooms[number].items()}

    def choose(
        self, needs: Needs, avoid: Collected[int] = (), only: int | None = None, barred: frozenset[int] = frozenset()
    ) -> int | None:
        """The node that the pod goes to; None when it fits nowhere.

        Args:
            needs: of the pod.
            avoid: nodes that are out of the question this time.
            only: the one node that is not; None for all.
            barred: nodes that no pod of this kind may go to.
        """
        if only is not None:
            return only if only not in barred and only not in avoid and self.fits(only, needs) else None
        ranking = self._ranking(needs, barred)
        heap, versions = ranking.heap, self._versions
        passed = list[tuple[int, int, int]]()
        found = None
        while heap:
            _, number, version = heap[0]
            if version == versions[number]:
                if number not in avoid:
                    found = number
                    break
                passed.append(heap[0])
            heappop(heap)
        for each in passed:
            heappush(heap, each)
        return found

    def fits(self, number: int, needs: Needs) -> bool:
        """Whether a node has what the pod requests."""
        return number in self._fitting((number,), needs)

    def _fitting(self, numbers: Iterable[int], needs: Needs) -> list[int]:
        """Those of these nodes that have what the pod requests."""
        asked = self._asked(needs)
        found = list[int]()
        for number in numbers:
            free = self._free[number]
            if number not in self._closed and all(free.get(name, 0) >= amount for name, amount in asked):
                found.append(number)
        return found

    def order(self, needs: Needs, barred: frozenset[int] = frozenset()) -> list[int]:
        """All nodes that it fits on, best first."""
        fit = self._fitting((number for number in range(len(self._free)) if number not in barred), needs)
        return sorted(fit, key=lambda number: (-self._score(number, needs), number))

    def lacking(self, needs: Needs) -> dict[str, int]:
        """Resource -> on how many nodes it is what does not fit (a node may lack several)."""
        known = self._lacks.get(needs)
        if known is None or known[0] != len(self._changes):
            lacks, asked = Counter[str](), self._asked(needs)
            for free in self._free:
                lacks.update(name for name, amount in asked if free.get(name, 0) < amount)
            known = self._lacks[needs] = len(self._changes), dict(sorted(lacks.items()))
        return known[1]

    def take(self, number: int, needs: Needs) -> None:
        """A pod is bound to a node."""
        self._add(number, needs, 1)

    def give(self, number: int, needs: Needs) -> None:
        """A pod of a node ended or failed."""
        self._add(number, needs, -1)

    def close(self, number: int) -> None:
        """No pod goes to a node any more."""
        self._closed.add(number)
        self._changed(number)

    def _ranking(self, needs: Needs, barred: frozenset[int]) -> _Ranking:
        """As of now: only nodes that have changed since are looked at again."""
        found = self._rankings.get((needs, barred))
        if found is None or len(found.heap) > 2 * len(self._free) + 1000:
            found = _Ranking([], len(self._changes))
            self._rankings[needs, barred] = found
            changed: Iterable[int] = range(len(self._free))
        else:
            changed = set(self._changes[found.seen :])
            found.seen = len(self._changes)
        fresh = self._fitting((number for number in changed if number not in barred), needs)
        entries = [(-self._score(number, needs), number, self._versions[number]) for number in fresh]
        if found.heap:
            for each in entries:
                heappush(found.heap, each)
        else:
            heapify(entries)
            found.heap = entries
        return found

    def _asked(self, needs: Needs) -> tuple[tuple[str, int], ...]:
        """Leave out resources that no node counts: they keep no pod away (devices of plugins, unknown here)."""
        if self._strict:
            return needs.amounts
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
        self._changed(number)

    def _changed(self, number: int) -> None:
        self._versions[number] += 1
        self._changes.append(number)

    def _score(self, number: int, needs: Needs) -> int:
        cpu, memory = self._scored[number]
        return score(self._strategy, self._rooms[number], cpu - needs.cpu, memory - needs.memory)


def score(strategy: Strategy, room: Mapping[str, int], cpu: int, memory: int) -> int:
    """Score a node as NodeResourcesFit does: the higher, the likelier it is chosen.

    Args:
        strategy: the scheduler's.
        room: Node Allocatable.
        cpu: what is left of it with the pod on it; negative where containers count for more than there is.
        memory: the same.
    """
    if strategy is Strategy.LISTED:
        return 0
    most, total, counted = strategy is Strategy.MOST_ALLOCATED, 0, 0
    for capacity, left in ((room.get(CPU, 0), max(cpu, 0)), (room.get(MEMORY, 0), max(memory, 0))):
        if capacity:
            total += ((capacity - left) if most else left) * FULL // capacity
            counted += 1
    return total // counted if counted else 0
