"""Which CPUs to take, spread evenly over NUMA nodes (distribute-cpus-across-numa, kubelet rule 4.10).

Of all sets of k nodes, for the smallest k that works, the one whose nodes stay most evenly filled (standard deviation
of what is left free, in the kubelet's rounding), each node giving the same number of groups of CPUs; what does not
divide goes, group by group, to the nodes where that keeps the balance best. Combinations are walked in the order
of `Taker.nodes`: the first of equals wins.

Defects: D2, the kubelet remembers a combination as a slice that later ones overwrite (kubernetes PR 141238), is
copied by `Slices` for kubelets up to 1.37 and absent otherwise. D3 and D14, its endless loops (PR 140730), are
guarded in both modes: a pass that gives nothing away ends the attempt. D6, the node count of the hint is not honoured
(issue 139430), is mended by `at_least`, and in kubelet 1.38 in a way of its own.

Where nodes and sockets cross-cut (some machines of virtual CPUs), `Taker.nodes` names a node once for each socket,
and the kubelet combines such a node with itself. It gives for each place that it has, out of one count. Mended, every
node is named once.

The number of combinations explodes with the nodes (64 choose 32). Above MANY of one size, which no machine with up to
11 nodes reaches, only the nodes with the most free CPUs are looked at, with align-by-socket first those of each
socket: taking there is what keeps the balance.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

from agent.core.cpus.packed import CannotTake, Taker, not_enough, packed
from agent.core.cpus.topology import CpuTopology
from agent.core.kubelets import MENDED, KubeletRules

Leftovers = dict[int, int]
"""NUMA node -> free CPUs."""

MANY = 500
"""Combinations of one size that are all walked; of more, only the best is."""
MANY_PLACES = 13_000
"""The same where the kubelet names nodes more than once: of equal combinations one is looked at. 8 nodes that are all
in two sockets have 12,870."""


@dataclass(slots=True)
class Slices:
    """Go's slices as the kubelet's combination walk uses them: `append` writes into a shared buffer with room.

    A subset of length L shares its buffer with its siblings unless L - 1 is 0, 1, 2, 4, 8, ...: remembered by
    reference, it changes when they are built (kubelet rule 4.11).
    """

    buffer: list[int]
    length: int

    @classmethod
    def empty(cls) -> Slices:
        """A slice of no capacity."""
        return cls([], 0)

    def append(self, value: int) -> Slices:
        """What Go's append returns."""
        buffer = self.buffer
        if self.length == len(buffer):
            buffer = buffer + [0] * (max(1, 2 * self.length) - self.length)
        buffer[self.length] = value
        return Slices(buffer, self.length + 1)

    def values(self) -> tuple[int, ...]:
        """The elements as they are by now."""
        return tuple(self.buffer[: self.length])


def walk(items: Sequence[int], size: int) -> Iterator[Slices]:
    """All subsets of a size, in order, as Go builds them."""

    def helper(start: int, chosen: Slices) -> Iterator[Slices]:
        if chosen.length == size:
            yield chosen
            return
        for place in range(start, len(items) - size + chosen.length + 1):  # no further: too few would be left
            yield from helper(place + 1, chosen.append(items[place]))

    yield from helper(0, Slices.empty())


def honest(items: Sequence[int], size: int) -> Iterator[Slices]:
    """The same subsets, each in a buffer of its own."""
    for chosen in combinations(items, size):
        yield Slices(list(chosen), size)


Subsets = Callable[[Sequence[int], int], Iterator[Slices]]


@dataclass(slots=True)
class _Best:
    score: float = math.inf
    combination: Slices | None = None
    remainder: Slices | None = None
    in_one: bool = False  # all in one socket; False where that does not count


def distributed(
    topology: CpuTopology,
    available: int,
    count: int,
    *,
    group: int = 1,
    spread: bool = False,
    literal: bool = False,
    at_least: int = 0,
    by_socket: bool = False,
    kubelet: KubeletRules = MENDED,
) -> int:
    """Take `count` of the available CPUs, evenly over as few NUMA nodes as hold them.

    Args:
        topology: the machine.
        available: CPUs to take from, as bits.
        count: how many.
        group: CPUs that stay together (threads of a core with full-pcpus-only).
        spread: distribute-cpus-across-cores.
        literal: answer as the kubelet does (`packed`), also where its slices alias (D2).
        by_socket: `KubeletRules.distribute_in_socket`, where align-by-socket is on.
        kubelet: what the kubelet's minor decides.
        at_least: nodes to use at least, if they can be filled evenly (D6); 0 leaves it to the count.

    Raises:
        CannotTake: with the kubelet's sentence.
    """
    if count % group:
        return packed(topology, available, count, spread=spread, literal=literal, kubelet=kubelet)
    taker = Taker(topology, available, count, spread=spread, literal=literal, kubelet=kubelet)
    if count < 1:
        return 0
    if count > taker.free.bit_count():
        raise not_enough(count, available.bit_count())
    nodes = taker.nodes() if literal else list(dict.fromkeys(taker.nodes()))
    groups = -(-topology.num_cpus // group)
    per_node = -(-groups // len(topology.nodes))
    needed = -(-count // group)
    least, most = -(-needed // per_node), min(needed, len(set(nodes)))
    subsets = walk if literal and kubelet.overwritten else honest
    for size in _sizes(least, most, at_least, kubelet):
        best = _best_of(taker, nodes, size, count, group, subsets, by_socket=by_socket)
        if best.combination is not None:
            return _give(taker, best, count, group)
    return packed(topology, available, count, spread=spread, literal=literal, kubelet=kubelet)


def _sizes(least: int, most: int, at_least: int, kubelet: KubeletRules) -> Iterator[int]:
    """How many nodes to try, in order. Kubelet 1.38 leaves a number alone that cannot be, and tries no fewer."""
    counted = kubelet.nodes_counted
    first = max(least, at_least if at_least <= most else 0 if counted else most)
    yield from range(first, most + 1)
    yield from () if counted else range(first - 1, least - 1, -1)


def _best_of(
    taker: Taker, nodes: list[int], size: int, count: int, group: int, subsets: Subsets, *, by_socket: bool
) -> _Best:
    best = _Best()
    free = {node: (taker.topology.nodes[node] & taker.free).bit_count() for node in nodes}
    even = each = (count // size // group) * group
    balance = Balance(sum(free.values()) - count, len(free))
    seen: set[tuple[int, ...]] = set()
    for combination in _combined(taker.topology, nodes, size, free, subsets, by_socket=by_socket):
        if best.score == 0 and (best.in_one or not by_socket):
            break
        chosen = combination.values()
        if chosen in seen:
            continue
        seen.add(chosen)
        if sum(free[node] for node in set(chosen)) < count:
            continue
        if group * sum(free[node] // group for node in chosen) < count:
            continue
        if by_socket:
            each = min(even, *(free[node] // group * group for node in chosen))
        if any(free[node] < each for node in chosen):
            continue
        left = dict(free)
        for node in chosen:
            left[node] -= each
        score, remainder = _remainder(left, chosen, count - each * size, group, subsets, balance)
        in_one = by_socket and _in_one_socket(taker.topology, chosen)
        if in_one if in_one != best.in_one else score < best.score:
            best.score = score
            best.combination = combination
            best.remainder = remainder
            best.in_one = in_one
    return best


def _in_one_socket(topology: CpuTopology, nodes: Sequence[int]) -> bool:
    return len({socket for node in nodes for socket in topology.sockets_of_node[node]}) <= 1


def _combined(
    topology: CpuTopology, nodes: Sequence[int], size: int, free: Leftovers, subsets: Subsets, *, by_socket: bool
) -> Iterator[Slices]:
    """The combinations to look at. `Taker.nodes` has a socket's nodes side by side, so theirs keep their order."""
    promising = _promising(nodes, size, free)
    if by_socket and promising is not nodes:
        for socket in dict.fromkeys(topology.sockets_of_node[node] for node in nodes):
            inside = [node for node in nodes if topology.sockets_of_node[node] == socket]
            if len(socket) == 1 and len(inside) >= size:
                yield from subsets(_promising(inside, size, free), size)
    yield from subsets(promising, size)


def _promising(nodes: Sequence[int], size: int, free: Leftovers) -> Sequence[int]:
    """The nodes to combine: all of them, or where that is too many combinations, those with the most free CPUs."""
    if math.comb(len(nodes), size) <= (MANY if len(set(nodes)) == len(nodes) else MANY_PLACES):
        return nodes
    fullest = set(sorted(nodes, key=lambda node: -free[node])[:size])
    return [node for node in nodes if node in fullest]


def _remainder(
    left: Leftovers, chosen: Sequence[int], rest: int, group: int, subsets: Subsets, balance: Balance
) -> tuple[float, Slices | None]:
    """The best nodes to take what does not divide, and the balance that leaves."""
    squares = sum([value * value for value in left.values()])
    if not rest:
        return balance.of(squares), None
    score, best = math.inf, None
    seen: set[tuple[int, ...]] = set()
    candidates = [node for node in chosen if left[node] >= group]
    for size in range(len(candidates), 0, -1):
        for subset in subsets(_promising(candidates, size, left), size):
            members = subset.values()
            if members in seen:
                continue
            seen.add(members)
            after = _dealt(left, members, rest, group) if sum([left[node] for node in members]) >= rest else None
            if after is None:
                continue
            value = balance.of(squares + sum([n * n - left[node] * left[node] for node, n in after.items()]))
            if value < score:
                score, best = value, subset
    return score, best


def _dealt(left: Leftovers, members: Sequence[int], rest: int, group: int) -> Leftovers | None:
    """What the members have left when the rest is dealt out group by group; None when it cannot be (defect D3).

    A node that is a member twice gives twice, out of one count (module's head).
    """
    after = {node: left[node] for node in members}
    while rest > 0:
        before = rest
        for node in members:
            if rest == 0:
                break
            if after[node] >= group:
                after[node] -= group
                rest -= group
        if rest == before:
            return None
    return after


def _give(taker: Taker, best: _Best, count: int, group: int) -> int:
    """Carry the choice out."""
    assert best.combination is not None  # noqa: S101 - the caller looked
    chosen = best.combination.values()
    topology = taker.topology
    each = (count // len(chosen) // group) * group
    if taker.kubelet.share_lowered:
        each = min(each, *((topology.nodes[node] & taker.free).bit_count() // group * group for node in chosen))
    for node in chosen:
        _take_in(taker, topology.nodes[node], each)
    rest = count - each * len(chosen)
    members = best.remainder.values() if best.remainder is not None else ()
    while rest > 0:
        before = rest
        for node in members:
            if rest == 0:
                break
            if (topology.nodes[node] & taker.free).bit_count() >= group:
                _take_in(taker, topology.nodes[node], group)
                rest -= group
        if rest == before:
            break
    if taker.need > 0:  # the combination that aliasing put in place of the best may hold less
        raise CannotTake(f"accounting error, not enough CPUs allocated, remaining: {taker.need}")
    if taker.need < 0:
        raise CannotTake(f"accounting error, too many CPUs allocated, remaining: {taker.need}")
    return taker.taken


def _take_in(taker: Taker, cpus: int, count: int) -> None:
    """Take within one node; what it cannot give is noticed by the final accounting."""
    free, spread, literal = cpus & taker.free, taker.spread, taker.literal
    with contextlib.suppress(CannotTake):  # see above
        taker.take(packed(taker.topology, free, count, spread=spread, literal=literal, kubelet=taker.kubelet))


class Balance:
    """How evenly nodes are filled: the population standard deviation of their free CPUs, as the kubelet rounds it.

    It rounds mean and deviation half away from zero to three decimals. All choices for one request leave the same
    number of CPUs free in all, so the deviation follows from the sum of the squares; it is kept in thousandths and
    computed with integers, which differs from the kubelet's floats at exact halves only: none exist up to 8 nodes.

    Args:
        total: CPUs left free on all nodes together.
        nodes: how many nodes.
    """

    def __init__(self, total: int, nodes: int) -> None:
        self._total, self._nodes = total, nodes
        self._known: dict[int, int] = {}

    @cached_property
    def mean(self) -> int:
        """The rounded mean, in thousandths."""
        return (2000 * self._total + self._nodes) // (2 * self._nodes)

    def of(self, squares: int) -> int:
        """The rounded deviation in thousandths, for a sum of squares."""
        known = self._known.get(squares)
        if known is None:
            spread = 1_000_000 * squares - 2000 * self.mean * self._total + self._nodes * self.mean**2
            known = self._known[squares] = (math.isqrt(4 * spread // self._nodes) + 1) // 2
        return known
