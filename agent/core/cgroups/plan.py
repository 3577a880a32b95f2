"""Which writes bring the kubelet's tree to what the ledger says, and in which order. Pure; nothing is written here.

Called by the engine after every decision and every observation. What each cgroup shall have is
`agent.core.cgroups.desired`; this module owns the order. Sets are compared as sets, never as text, so that a tree in
order gives no writes.

At no moment may two exclusive containers share a CPU, or a shared one use a CPU that is granted, once the pool has
shrunk; and on v1 no write may leave a child outside its parent (EACCES, EBUSY: kubelet rule 7.3). Hence the passes:

    A  shrink, children before parents: every cgroup gives up what it shall not keep (safety rule S6: the pool first).
       One that would keep nothing cannot be emptied (ENOSPC): it jumps later, and its parents hold its place.
    B1 widen parents that only hold others, parents first.
    B2 shared cgroups jump off CPUs they may not keep, onto pool CPUs that no exclusive container is still leaving.
    B3 exclusive containers get their sets, each after those that stand on its CPUs have left; of those that wait for
       each other in a ring, one is put on the pool meanwhile.
    B4 shared cgroups widen, parents first. On a release this comes after the CPUs were given up in A: the reverse.
    C  parents that held a place for jumpers shrink to their own sets, children first.

Then memory nodes, which no container owns: parents widen, containers change, parents shrink. They come last since
such a write may hang, and must hold up no pod (safety rule S8).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from operator import and_

from agent.core.cgroups import cuts
from agent.core.cgroups.desired import DesiredSets, children_of, parent_of
from agent.model.cgroup import Cause, Cgroup, Level, Observed, Write
from agent.model.idset import CpuSet, NodeSet

CPUS, MEMS = cuts.CPUS, cuts.MEMS

PageNodes = Mapping[str, NodeSet]
"""Cgroup path -> the nodes that hold its pages."""


def plan(
    observed: Observed, wanted: Mapping[str, DesiredSets], *, held: PageNodes | None = None
) -> tuple[Write, ...]:
    """The writes, in order, that give every cgroup what is wanted of it; none when nothing differs.

    Args:
        observed: the tree as last read.
        wanted: what each cgroup shall have (`agent.core.cgroups.desired.desired_sets`).
        held: where containers' pages lie already, as far as known. A container with pages outside the nodes it would
            be bound to keeps its nodes: the kernel would move the pages at once and stall it (safety rule S4). The
            caller leaves out those whose pod asks to be moved.

    """
    return (*_Cpus(observed, wanted).writes(), *_mems(observed, wanted, held or {}))


@dataclass
class _Pen:
    """Collects the writes to one file, and knows what each cgroup asks for after them."""

    file: str
    asked: dict[str, CpuSet] | dict[str, NodeSet]
    granting: frozenset[str]
    done: list[Write] = field(default_factory=list)

    def write(self, path: str, value: CpuSet | NodeSet) -> None:
        """One write, unless the cgroup asks for that already; an empty set is no order anyone gives here."""
        old = self.asked.get(path)
        if value and old is not None and value.bits != old.bits:
            cause = Cause.GRANT if path in self.granting else Cause.POOL
            self.done.append(Write(path, self.file, str(value), str(old), cause))
            self.asked[path] = value  # type: ignore[assignment]  # one pen writes one kind of set


class _Cpus:
    """The passes for cpuset.cpus."""

    def __init__(self, observed: Observed, wanted: Mapping[str, DesiredSets]) -> None:
        self.v1 = observed.version == 1
        self.wanted = {path: desired for path, desired in wanted.items() if desired.cpus is not None}
        self.target = {path: desired.cpus or CpuSet() for path, desired in self.wanted.items()}
        self.order = [cgroup for cgroup in observed.cgroups if cgroup.path in self.wanted]
        self.kids = children_of(observed)
        self.asked = {cgroup.path: cgroup.cpus for cgroup in observed.cgroups}
        granting = frozenset(path for path, desired in self.wanted.items() if desired.exclusive)
        self.pen = _Pen(CPUS, self.asked, granting | {parent_of(path) for path in granting})
        self.shared = [c.path for c in self.order if not self._exclusive(c.path) and not self._structural(c.path)]
        # A container and what lies below it change together.
        self.units = [c.path for c in self.order if self._exclusive(c.path) and not self._below_unit(c.path)]
        self.jumping: set[str] = set()
        self.common = CpuSet()

    def writes(self) -> tuple[Write, ...]:
        self._shrink()
        self.common = self._common()
        for cgroup in self.order:
            if self._structural(cgroup.path):
                self.pen.write(cgroup.path, self.target[cgroup.path] | self._places(cgroup))
        self._leave()
        self._grant()
        for path in self.shared:
            self.pen.write(path, self.target[path])
        for cgroup in reversed(self.order):
            self.pen.write(cgroup.path, self.target[cgroup.path])
        return tuple(self.pen.done)

    def _shrink(self) -> None:
        shared = set(self.shared)
        below_first = [*reversed(self.order)]
        users = [cgroup for cgroup in below_first if cgroup.path in shared]
        spans = [cgroup for cgroup in below_first if self._structural(cgroup.path)]
        # those with few CPUs first: what one gives up, another that still has all CPUs may get in this pass
        alone = sorted((each for each in below_first if self._exclusive(each.path)), key=lambda c: len(self._now(c)))
        for cgroup in (*users, *alone, *spans):
            target = self.target[cgroup.path]
            if self.asked[cgroup.path] == target:
                continue
            now = self._now(cgroup)
            keep = now & target
            if self._structural(cgroup.path):  # what is offline may be back before it is widened
                keep |= self.asked[cgroup.path] & target
            if self.v1 or self._structural(cgroup.path):
                keep |= self._places(cgroup) & now
            if now.isdisjoint(target) or self._voids(cgroup):
                self.jumping.add(self._unit(cgroup.path))
                keep = CpuSet() if self._structural(cgroup.path) else now
            self.pen.write(cgroup.path, keep)  # named even if it stays: what inherits widens with its parent

    def _voids(self, cgroup: Cgroup) -> bool:
        """Whether a shared pod jumps with what lies below it (v2).

        Below it a container would keep nothing of what it asks for, and would get all that its pod keeps: that may be
        CPUs of a grant where another program wrote the pod's set. So the pod leaves first, onto the common CPUs.
        """
        if self.v1 or self._structural(cgroup.path) or self._exclusive(cgroup.path):
            return False
        return any(kid.path in self.jumping for kid in self.kids.get(cgroup.path, ()))

    def _leave(self) -> None:
        busy = CpuSet.union(self.asked[path] - self.wanted[path].shared for path in self.units)
        alone = busy - self.common
        for path in self.shared:
            if path in self.jumping:
                target = self.target[path]
                self._move(path, target - busy or target - alone or target)

    def _common(self) -> CpuSet:
        """The CPUs that are shared, and stay so: those of every QoS slice after pass A. There, containers may join.

        Not what any shared cgroup runs on: one that another program moved may stand on CPUs of a grant.
        """
        slices = [self.asked[c.path] or c.effective_cpus for c in self.order if c.level is Level.QOS]
        shared = [self.asked[path] for path in self.shared if path not in self.jumping]
        found = reduce(and_, slices) if slices else CpuSet.union(shared)
        # on v1 a slice holds the place of cgroups that are to jump off CPUs that other containers get
        return found - CpuSet.union(self.target[path] - self.wanted[path].shared for path in self.units)

    def _grant(self) -> None:
        waiting = [path for path in self.units if self.asked[path] != self.target[path] or self._inner_differs(path)]
        while waiting:
            # what a container leaves is never what it is to get, so that its own part of this does no harm
            decommission = CpuSet.union(self._leaving(path) for path in waiting)
            free = next((path for path in waiting if self.target[path].isdisjoint(decommission)), None)
            if free is None:  # a ring: those in the way of one wait on the pool
                free = waiting[0]
                for other in self._standing_on(free, waiting):
                    self._park(other)
            self._move(free, self.target[free])
            waiting.remove(free)

    def _standing_on(self, path: str, waiting: Iterable[str]) -> list[str]:
        """The exclusive containers still on CPUs that this one is to get and they are to leave."""
        mine = self.target[path]
        decommission = {other: self._leaving(other) for other in waiting if other != path}
        return [other for other, cpus in decommission.items() if not cpus.isdisjoint(mine)]

    def _leaving(self, path: str) -> CpuSet:
        """What an exclusive container is still to leave, of what other containers may not join yet.

        The shared part of a mixed set is never alone: shared containers run there already.
        """
        return self.asked[path] - self.target[path] - self.common

    def _park(self, path: str) -> None:
        pool = self.target.get(parent_of(path), CpuSet()) - CpuSet.union(
            self.target[unit] - self.wanted[unit].shared for unit in self.units
        )
        self._move(path, pool & self.common or pool)

    def _move(self, path: str, to: CpuSet) -> None:
        """Bring one cgroup and what lies below it onto a set; on v1 it spans old and new while its children move."""
        if not to:
            return
        kids = [kid.path for kid in self.kids.get(path, ()) if kid.path in self.target]
        places = CpuSet.union(self.asked[kid] for kid in kids) if self.v1 else CpuSet()
        self.pen.write(path, to | places)
        for kid in kids:
            self._move(kid, self.target[kid] & to or to)
        self.pen.write(path, to)

    def _places(self, cgroup: Cgroup) -> CpuSet:
        """The CPUs on which children still stand."""
        return CpuSet.union(self.asked[kid.path] for kid in self.kids.get(cgroup.path, ()) if kid.path in self.target)

    def _now(self, cgroup: Cgroup) -> CpuSet:
        """What it runs on. On v2 that may be less than it asks for, and all of that if its parent widened."""
        return self.asked[cgroup.path] if self.v1 else cgroup.effective_cpus

    def _exclusive(self, path: str) -> bool:
        return self.wanted[path].exclusive

    def _structural(self, path: str) -> bool:
        return self.wanted[path].structural

    def _unit(self, path: str) -> str:
        """The cgroup that another changes together with: on v1 a container, for what lies below it."""
        above = parent_of(path)
        return self._unit(above) if self.v1 and above in self.wanted and not self._structural(above) else path

    def _below_unit(self, path: str) -> bool:
        above = parent_of(path)
        return above in self.wanted and self._exclusive(above)

    def _inner_differs(self, path: str) -> bool:
        kids = [kid.path for kid in self.kids.get(path, ()) if kid.path in self.target]
        return any(self.asked[kid] != self.target[kid] or self._inner_differs(kid) for kid in kids)


def _mems(observed: Observed, wanted: Mapping[str, DesiredSets], held: PageNodes) -> tuple[Write, ...]:
    """The writes of cpuset.mems. On v1 parents must span their children, so they widen where they do not."""
    asked = {cgroup.path: cgroup.mems for cgroup in observed.cgroups}
    target = _mems_targets(observed, wanted, held)
    pen = _Pen(MEMS, asked, frozenset(asked))
    if observed.version == 1:
        kids = children_of(observed)
        for cgroup in reversed(observed.cgroups):
            below = [target.get(kid.path, NodeSet()) for kid in kids.get(cgroup.path, ())]
            if cgroup.level in (Level.QOS, Level.POD) and any(below):
                target[cgroup.path] = NodeSet.union(below) | asked[cgroup.path]
        for cgroup in observed.cgroups:
            if cgroup.path in target:
                places = NodeSet.union(asked[kid.path] for kid in kids.get(cgroup.path, ()))
                pen.write(cgroup.path, target[cgroup.path] | places)
    for cgroup in reversed(observed.cgroups):
        if cgroup.path in target:
            pen.write(cgroup.path, target[cgroup.path])
    return tuple(pen.done)


def _mems_targets(observed: Observed, wanted: Mapping[str, DesiredSets], held: PageNodes) -> dict[str, NodeSet]:
    """The nodes to bind, by path; without what may not move (safety rule S4), nor what lies below such a cgroup."""
    target: dict[str, NodeSet] = {}
    for cgroup in observed.cgroups:  # parents first
        mems = wanted[cgroup.path].mems if cgroup.path in wanted else None
        above = parent_of(cgroup.path)
        stays = above in wanted and bool(wanted[above].mems) and above not in target
        if mems and not stays and held.get(cgroup.path, NodeSet()).issubset(mems):
            target[cgroup.path] = mems
    return target
