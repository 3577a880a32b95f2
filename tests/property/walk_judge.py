"""The judge of the random walk: what is true of every node at every moment. It uses no code of the product.

It looks at the kernel's sets, at what the ledger says, and at what the kubelet, the API and the walk itself did. Sets
of CPUs are plain sets of numbers here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

_HOLDER = re.compile(r"\S+/(\S+) (?:has ended|is being deleted|is bound to this node)")
Cpus = frozenset[int]
Spot = tuple[str, str]
"""(pod uid, container)."""


@dataclass(frozen=True)
class Scene:
    """One moment.

    Attributes:
        running: path of a cgroup with processes -> (whose it is, the CPUs that the kernel lets it use).
        held: who holds which CPUs for itself, by the ledger.
        counted: pod that is confined -> thousandths of a CPU of each NUMA node that it counts on, by the ledger.
        allocated: whole CPUs that the kubelet has allocated to a container, or to none at all.
        over: uids of pods that left the API or ended, and in whose cgroups no process is.
        online, reserved: CPUs.
        nodes: CPUs of each NUMA node.
        refused: pod that none of whose containers was made, and that was refused -> (CPUs that it asks for, words).
        single: whether a container's CPUs must lie on one NUMA node.
        hindered: what keeps the agent from deciding or acting.
        powerless: what of that keeps it from putting a new container where it belongs.
        stopped: threads that ended, and faults that the agent met with itself.
    """

    running: Mapping[str, tuple[Spot, Cpus]]
    held: Mapping[Spot, Cpus]
    counted: Mapping[str, tuple[int, ...]]
    allocated: Mapping[Spot, int]
    over: frozenset[str]
    online: Cpus
    reserved: Cpus
    nodes: tuple[Cpus, ...]
    refused: Mapping[str, tuple[int, str]]
    single: bool
    hindered: frozenset[str]
    powerless: frozenset[str]
    stopped: tuple[str, ...] = ()


@dataclass
class Judge:
    """Remembers which containers ran on CPUs of their own, and which stood apart from them.

    And the least that the kubelet had allocated to each since nothing hindered the agent: it may have followed that.
    """

    own: dict[str, Cpus] = field(default_factory=dict)
    least: dict[str, int] = field(default_factory=dict)
    apart: set[tuple[str, str]] = field(default_factory=set)

    def wrong(self, now: Scene) -> Iterator[str]:
        yield from now.stopped
        self.own = {path: cpus & now.online for path, cpus in self.own.items() if path in now.running}
        still = now.powerless or "late" in now.hindered
        for path, cpus in list(self.own.items()):
            spot, found = now.running[path]
            given = now.allocated.get(spot, 0)
            self.least[path] = given = min(given, self.least.get(path, given))
            if given == 0:  # the kubelet took them all: it shares the pool, at once or later
                del self.own[path]
            elif len(cpus) > given and found < cpus and len(found) >= given:
                self.own[path] = found
            elif not cpus <= found or not (still or cpus <= now.held.get(spot, frozenset())):
                yield f"{spot} ran on CPUs {sorted(cpus)} of its own, and runs on {sorted(found)} with others"
        for path, (spot, found) in now.running.items():
            alone = not any(found & cpus for other, cpus in now.running.values() if other[0] != spot[0])
            if alone and found and found == now.held.get(spot):
                self.own[path] = found
        pairs = {
            (path, other)
            for path in self.own
            for other, (spot, _) in now.running.items()
            if spot[0] != now.running[path][0][0]
        }
        for path, other in sorted(pairs if not now.powerless else pairs & self.apart):
            both = self.own[path] & now.running[other][1]
            if both:
                yield f"{now.running[other][0]} runs on CPUs {sorted(both)} of {now.running[path][0]}"
        self.apart = {(path, other) for path, other in pairs if not self.own[path] & now.running[other][1]}
        if not now.hindered:
            self.least = {}
            yield from self._holdings(now)
            yield from self._refusals(now)

    def _holdings(self, now: Scene) -> Iterator[str]:
        for (uid, name), cpus in now.held.items():
            if uid in now.over:
                yield f"{uid} is gone or has ended, has no process, and holds {sorted(cpus)}"
            elif len(cpus) > now.allocated.get((uid, name), 0):
                given = now.allocated.get((uid, name), 0)
                yield f"{uid}/{name} holds {sorted(cpus)}, and the kubelet has allocated {given} CPUs to it"
        for uid in sorted(now.counted.keys() & now.over):
            yield f"{uid} is gone or has ended, has no process, and is confined"

    def _refusals(self, now: Scene) -> Iterator[str]:
        free = now.online - now.reserved - frozenset().union(*now.held.values())
        kept = [-(-sum(each) // 1000) for each in zip(*now.counted.values(), strict=True)] or [0] * len(now.nodes)
        rooms = [max(0, len(free & cpus) - each) for cpus, each in zip(now.nodes, kept, strict=True)]
        holding = {uid for uid, _ in now.held}
        for uid, (count, words) in now.refused.items():
            for holder in [] if "as of this decision" in words else _HOLDER.findall(words):
                if holder not in holding:
                    yield f"{uid} is refused for {holder}, which holds nothing: {words}"
            most = max(rooms, default=0) if now.single else sum(rooms)
            if 0 < count <= most:
                yield f"{uid} asks for {count} CPUs, {most} are free where they may lie, and it is refused: {words}"
