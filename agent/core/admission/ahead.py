"""A place for each container that leaves the later ones theirs (defect D19, Compatibility.FIXED).

Under scope container the kubelet places one container after the other and looks at none of those that follow. What
an init container leaves must lie within what a later container takes (kubelet rules 4.5, 6.2), so an init container
of one CPU decides the NUMA node of its pod, even where the rest does not fit there and another node has room for all
of it (kubernetes issues 94220, 110306, 123816). A small app container can take the one node that a later one fits on.

The rule. The kubelet's placement comes first, and stays where all containers are as well placed as each would be as
the pod's only one. Else the containers' preferred node sets are walked, in the pod's order of containers. Each
container's are tried as the merge orders them: the fewest nodes, then (with prefer-closest-numa-nodes) the closest,
then the lowest. Under restricted and single-numa-node every container must be preferred; the first such placement is
taken. Under best-effort it is the first with the fewest containers that are not preferred, and of these the fewest
NUMA nodes under their CPUs and memory; a container that cannot be preferred takes what the merge gives it. With
prefer-closest-numa-nodes, of equally good placements the closest is taken, not the first. So no placement gets worse,
and the same input gives the same answer.

The walk looks at few places: a set of nodes is dropped as soon as a container that failed before cannot be preferred
beside it. That is final, since what a pod takes never widens what is left to it. `LOOKS` bounds the merges; after so
many the best placement that was found counts. Called by `agent.core.admission.pod`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from math import comb
from typing import Protocol

from agent.core.merge.inputs import MergeQuestion, question_of
from agent.core.merge.masks import Positions, members
from agent.core.merge.merge import Merged
from agent.core.merge.order import Order
from agent.core.merge.provider import Answer
from agent.model.hint import Hint
from agent.model.ledger import Ledger
from agent.model.outcome import Refusal
from agent.model.pod import Container, ContainerKind

AHEAD = "later containers"
"""The provider in a merge that stands for the node set that a later container leaves to one before it."""
LOOKS = 200
"""Merges that one search makes at most: enough for an init container on each of 64 NUMA nodes."""
LISTED = 4096
"""So many node sets of one size are listed; of more the merge's own choice alone is tried."""

Cost = tuple[int, int, int]
"""How many containers are not preferred, the NUMA nodes under the CPUs and memory of these, and the distances within
the node sets of the preferred ones."""
NOTHING: Cost = (0, 0, 0)

Plan = Mapping[str, Hint]
"""Container -> where it goes."""


class Way(Protocol):
    """How an admission asks, merges and places; pure functions of their arguments."""

    def ask(self, ledger: Ledger, container: Container) -> Mapping[str, Answer]:
        """Ask the providers what they offer to a container."""

    def merge(self, answers: Mapping[str, Answer]) -> Merged:
        """Merge that under the policy."""

    def place(self, ledger: Ledger, container: Container, hint: Hint) -> tuple[Ledger, Refusal | None]:
        """Let the providers take, and say why one of them refuses."""


class LookAhead:
    """One search.

    Args:
        way: the admission.
        containers: the pod's, in its order.
        positions, order: of the machine's nodes, and by which node sets are told apart.
        strict: the policy refuses a container that is not preferred.
        width: how many NUMA nodes the CPUs and memory of a container lie on.
    """

    def __init__(
        self,
        way: Way,
        containers: Sequence[Container],
        positions: Positions,
        order: Order,
        *,
        strict: bool,
        width: Callable[[Ledger, str], int],
    ) -> None:
        self._way, self._containers = way, containers
        self._positions, self._order = positions, order
        self._strict, self._width = strict, width
        self._left = LOOKS
        self._watched: set[int] = set()
        self._alone: dict[int, Cost] = {}
        self._best: Cost | None = None
        self._plan: Plan | None = None

    def better(self, ledger: Ledger, failed: Collection[str], first: tuple[Ledger, Plan] | None) -> Plan | None:
        """Find a placement that is better than the first one; None where there is none.

        Args:
            ledger: before the pod.
            failed: the containers that were not preferred in the first placement, or lie on several nodes.
            first: the ledger with it, and its affinities; None where it refused the pod.
        """
        if first is not None:
            self._best = _sum(self._cost(first[0], name, hint) for name, hint in first[1].items())
        self._watched = {n for n, each in enumerate(self._containers) if each.name in failed}
        for number in sorted(range(len(self._containers)), key=lambda n: n not in self._watched):
            cost = self._cost_alone(ledger, number) if self._left > 0 else None
            if cost is None:
                return None
            self._alone[number] = cost
        if self._is_better(_sum(self._alone.values())):
            self._walk(0, ledger, NOTHING, {})
        return self._plan

    def _cost(self, ledger: Ledger, name: str, hint: Hint) -> Cost:
        return (0, 0, self._distance(hint)) if hint.preferred else (1, self._width(ledger, name), 0)

    def _distance(self, hint: Hint) -> int:
        apart = several(hint, self._positions) and hint.nodes
        return self._order.spread(self._positions.mask(apart)) if apart else 0

    def _cost_alone(self, ledger: Ledger, number: int) -> Cost | None:
        """Count what a container would cost as its pod's only one; None where even so it would be refused."""
        container = self._containers[number]
        merged = self._look(ledger, container)[1]
        if merged.hint.preferred:
            return self._cost(ledger, container.name, merged.hint)
        if self._strict:
            return None
        taken, refusal = self._way.place(ledger, container, merged.hint)
        return None if refusal is not None else self._cost(taken, container.name, merged.hint)

    def _walk(self, at: int, ledger: Ledger, cost: Cost, plan: Plan) -> None:
        """Place the containers from one on in every way that can still be better; keep the best."""
        if at == len(self._containers):
            self._best, self._plan = cost, plan
            return
        container = self._containers[at]
        answers, merged = self._look(ledger, container)
        if not merged.hint.preferred:
            self._watched.add(at)
        known, least = -1, cost
        for hint in self._options(answers, merged):
            if len(self._watched) > known:  # at first, and when a later container has failed for the first time
                known = len(self._watched)
                least = _sum([cost, self._lacks(merged.hint), *self._least(at, ledger)])
            if self._left <= 0 or not self._is_better(least):
                return
            after, refusal = self._way.place(ledger, container, hint)
            if refusal is not None:
                continue
            more = _sum([cost, self._cost(after, container.name, hint)])
            if self._is_better(_sum([more, *(self._alone[n] for n in range(at + 1, len(self._containers)))])):
                self._walk(at + 1, after, more, {**plan, container.name: hint})

    def _least(self, at: int, ledger: Ledger) -> Iterator[Cost]:
        """Count what each container after one costs at least; those that have failed somewhere are asked again.

        Not where a container between them may take what init containers left, which then binds none after it.
        """
        kinds = [each.kind is ContainerKind.INIT for each in self._containers]
        bound = any(kinds[:at])
        for number in range(at + 1, len(self._containers)):
            least = self._alone[number]
            if number in self._watched and not least[0] and (not bound or all(kinds[at:number])):
                least = self._lacks(self._look(ledger, self._containers[number])[1].hint)
            yield least

    def _lacks(self, hint: Hint) -> Cost:
        return (0, 0, self._distance(hint)) if hint.preferred else (1, 1, 0)

    def _is_better(self, cost: Cost) -> bool:
        if self._strict and cost[0]:
            return False
        return self._best is None or cost < self._best

    def _look(self, ledger: Ledger, container: Container) -> tuple[Mapping[str, Answer], Merged]:
        self._left -= 1
        answers = self._way.ask(ledger, container)
        return answers, self._way.merge(answers)

    def _options(self, answers: Mapping[str, Answer], merged: Merged) -> Iterator[Hint]:
        """List where a container may go, the merge's own choice first: it is the best of them."""
        yield merged.hint
        if not merged.hint.preferred or merged.hint.nodes is None:
            return
        first = self._positions.mask(merged.hint.nodes)
        for mask in preferred_masks(question_of(list(answers.values()), self._positions), self._order):
            if mask != first:
                yield Hint(self._positions.nodes(mask), preferred=True)


def preferred_masks(question: MergeQuestion, order: Order) -> list[int]:
    """List all node sets that every hint list prefers, the best first."""
    binding = question.binding
    if not binding or question.hopeless:
        return []
    found = {mask for demand in binding for mask in demand.fixed}
    domain = question.everything
    for demand in binding:
        domain &= demand.family.domain if demand.family is not None else domain
    nodes = members(domain)
    sizes = {demand.size for demand in binding if demand.size is not None and not demand.sockets}
    if not sizes:
        sizes = set(range(1, len(nodes) + 1))
    for size in sizes if len(sizes) == 1 or any(demand.sockets for demand in binding) else ():
        if comb(len(nodes), size) <= LISTED:
            found.update(sum(1 << node for node in chosen) for chosen in combinations(nodes, size))
    liked = (mask for mask in found if all(demand.prefers(mask) for demand in binding))
    return sorted(liked, key=lambda mask: (mask.bit_count(), order.spread(mask), mask))


def several(hint: Hint, positions: Positions) -> bool:
    """Tell whether an affinity is of several nodes, but not of all."""
    return hint.nodes is not None and 1 < len(hint.nodes) < len(positions)


def _sum(costs: Iterable[Cost]) -> Cost:
    lacking, width, distance = NOTHING
    for cost in costs:
        lacking, width, distance = lacking + cost[0], width + cost[1], distance + cost[2]
    return lacking, width, distance
